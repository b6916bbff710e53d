"""`odin gateway`: chats with Odin on other platforms, webhooks, and who may use them."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from odin.app.crash_log import log_unhandled_errors
from odin.app.policy import build_redactor
from odin.commands.command_line import (
    Parser,
    get_stdout,
    make_formatter,
    write_json,
    write_output,
    write_table,
)
from odin.config import CONFIG_NAME, Options, get_config_dir, get_state_dir, load
from odin.config.paths import make_environment
from odin.core.errors import UsageError
from odin.core.format import clip, format_time, format_usd, pluralize
from odin.core.schedule import format_local
from odin.gateway.board import describe_heartbeat, describe_running
from odin.gateway.channels.terminal import chat_in_terminal
from odin.gateway.heartbeat import HEARTBEAT_FILE
from odin.gateway.jobs import HEARTBEAT, JobStatus, list_jobs
from odin.gateway.lock import GATEWAY_FOLDER, find_running
from odin.gateway.service import LAST_CHAT, open_gateway
from odin.gateway.store import GatewayStore
from odin.server.local import load_server
from odin.server.pairing_codes import read_code
from odin.ui.terminal import escape_hidden, shorten
from odin.version import __version__

_EPILOG = """\
commands:
  odin gateway           run all channels and webhooks of the settings, until Ctrl-C
  odin gateway status    show channels, chats and the heartbeat, and what today cost
  odin gateway failed    list what was not answered, not sent, or may have been sent
  odin gateway pair      make a code that lets somebody write; list who may, and end that
  odin gateway chat      chat with the gateway in this terminal

Channels are set up in odinconfig.json under `gateway`. Nobody may write before you have paired them.
"""
_HEADINGS = ("CHAT", "SESSION", "FOLDER", "WAITING", "UNSENT", "TODAY")


def run_gateway(argv: list[str]) -> int:
    commands = {"status": _show_status, "failed": _list_failed, "pair": _pair, "chat": _chat}
    if argv and argv[0] in commands:
        return commands[argv[0]](argv[1:])
    parser = Parser(
        prog="odin gateway",
        description="Answer messages from chats and webhooks, each chat with a session of its own.",
        epilog=_EPILOG,
        formatter_class=make_formatter,
    )
    parser.add_argument("--model", default="", help="model of the chats")
    args = parser.parse_args(argv)
    return asyncio.run(_serve(Options(model=args.model)))


async def _serve(options: Options) -> int:
    load_server()
    log_unhandled_errors(asyncio.get_running_loop(), os.environ)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with open_gateway(options, sys.stderr):
        await stopped.wait()
    return 0


def _get_folder() -> Path:
    return get_state_dir(os.environ) / GATEWAY_FOLDER


def _show_status(argv: list[str]) -> int:
    parser = Parser(prog="odin gateway status", description="Show channels and chats, what waits, and today's cost.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    store, running = GatewayStore(_get_folder()), find_running(_get_folder())
    chats = [chat for chat in store.list_chats() if chat.channel != HEARTBEAT]
    failed, jobs = store.list_failed(), list_jobs(store)
    channels = store.list_values("channel:")
    facts = {
        "running": running,
        "channels": channels if running else {},
        "last_chat": store.get_value(LAST_CHAT),
        "chats": [{name: getattr(chat, name) for name in chat.__struct_fields__} for chat in chats],
        "failed": len(failed),
        "heartbeat": _find_heartbeat(store, jobs),
        "schedules": len(jobs) - any(item.job.name == HEARTBEAT for item in jobs),
    }
    if args.json:
        return write_json(facts)
    lines = [describe_running(running)]
    lines += [f"{name}: {escape_hidden(state)}" for name, state in channels.items() if running and name != HEARTBEAT]
    lines += _describe_jobs(store, jobs)
    if failed:
        lines.append(f"{pluralize(len(failed), 'item')} failed: `odin gateway failed` shows more.")
    write_output("".join(f"{line}\n" for line in lines))
    rows = [
        (
            escape_hidden(f"{chat.channel}:{chat.chat}"),
            chat.session,
            escape_hidden(chat.folder),
            str(chat.waiting),
            str(chat.unsent),
            format_usd(chat.usd_today),
        )
        for chat in chats
    ]
    return write_table([_HEADINGS, *rows]) if rows else 0


def _find_heartbeat(store: GatewayStore, jobs: Sequence[JobStatus]) -> dict[str, Any] | None:
    """Return when the heartbeat is due and what it cost; None if it is off."""
    item = next((item for item in jobs if item.job.name == HEARTBEAT), None)
    if item is None or not load("/", os.environ).read_gateway().heartbeat.enabled:
        return None
    run = item.run
    return {
        "due": item.due,
        "last_state": run.state if run else "",
        "last_usd": run.usd if run else 0.0,
        "usd_today": store.get_cost_today(HEARTBEAT, item.job.chat),
    }


def _describe_jobs(store: GatewayStore, jobs: Sequence[JobStatus]) -> list[str]:
    beat = next((item for item in jobs if item.job.name == HEARTBEAT), None)
    is_on = beat is not None and load("/", os.environ).read_gateway().heartbeat.enabled
    lines = [f"Heartbeat: {describe_heartbeat(store, beat)}"] if beat is not None and is_on else []
    others = [item for item in jobs if item.job.name != HEARTBEAT]
    due = next((item for item in others if item.due), None)
    following = f"; next {due.job.name} at {format_local(due.due or 0, due.job.schedule.timezone)}" if due else ""
    return [*lines, f"{pluralize(len(others), 'schedule')}{following}."] if others else lines


def run_status(argv: list[str]) -> int:
    parser = Parser(
        prog="odin status",
        description="Show the version, the settings, the workspace and the gateway. `odin doctor` checks more.",
    )
    parser.parse_args(argv)
    config, store = load("/", os.environ), GatewayStore(_get_folder())
    gateway = config.read_gateway()
    environment = make_environment(os.environ, "/")
    workspace, running = Path(environment.expand_home(gateway.workspace)), find_running(_get_folder())
    made = "" if (workspace / HEARTBEAT_FILE).exists() else " (`odin onboard` sets it up)"
    lines = [
        f"Odin {__version__}",
        f"Settings: {get_config_dir(os.environ) / CONFIG_NAME}",
        f"Model: {gateway.model or config.model or 'chosen by Odin (`odin models` lists them)'}",
        f"Workspace: {workspace}{made}",
        f"Gateway: running as process {running}." if running else "Gateway: not running. `odin gateway` starts it.",
        *_describe_jobs(store, list_jobs(store)),
    ]
    return write_output("".join(f"{line}\n" for line in lines))


def _list_failed(argv: list[str]) -> int:
    parser = Parser(
        prog="odin gateway failed",
        description="List messages that were not answered, and answers that were not sent or may have been sent.",
    )
    parser.add_argument("--retry", metavar="ID", help="answer the message, or send the answer, once more")
    parser.add_argument("--drop", metavar="ID", help="forget it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    store = GatewayStore(_get_folder())
    if args.retry:
        store.retry_failed(args.retry)
        later = "" if find_running(_get_folder()) else " when the gateway runs"
        return write_output(f"{args.retry} is tried again{later}.\n")
    if args.drop:
        store.drop_failed(args.drop)
        return write_output(f"{args.drop} is forgotten.\n")
    hide = build_redactor(load("/", os.environ), os.environ, ()).hide  # who wrote may have written a secret
    failed = [replace(item, error=hide(item.error), text=hide(item.text)) for item in store.list_failed()]
    if args.json:
        return write_json([{name: getattr(item, name) for name in item.__struct_fields__} for item in failed])
    if not failed:
        return write_output("Nothing has failed.\n")
    rows = [
        (
            item.id,
            escape_hidden(f"{item.channel}:{item.chat}"),
            item.state,
            format_time(item.at),
            escape_hidden(clip(item.error, 80)),
            escape_hidden(shorten(item.text, 40)),
        )
        for item in failed
    ]
    return write_table([("ID", "CHAT", "STATE", "SINCE", "WHY", "TEXT"), *rows])


def _pair(argv: list[str]) -> int:
    parser = Parser(
        prog="odin gateway pair",
        description="Make a code that somebody types in a chat to be answered there, or enter one that a chat shows.",
        epilog="A code is valid for one hour and for one sender. At most three can wait to be used.\n",
        formatter_class=make_formatter,
    )
    add = parser.add_argument
    add("code", nargs="?", default="", metavar="CODE", help="the code that a chat shows after /pair")
    add("--owner", action="store_true", help="the sender is you: may bind chats to folders, and answer requests")
    add("--channel", default="", metavar="NAME", help="the code is valid on this channel only")
    add("--list", action="store_true", help="list who may write")
    add("--revoke", metavar="CHANNEL:SENDER", help="answer this sender no longer")
    add("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    store = GatewayStore(_get_folder())
    if args.list:
        senders = store.list_senders()
        if args.json:
            return write_json(
                [dict(zip(one.__struct_fields__, msgspec.structs.astuple(one), strict=True)) for one in senders]
            )
        rows = [
            (escape_hidden(f"{one.channel}:{one.sender}"), escape_hidden(one.name), one.right, format_time(one.paired))
            for one in senders
        ]
        return write_table([("SENDER", "NAME", "RIGHT", "PAIRED"), *rows]) if rows else write_output("Nobody.\n")
    if args.revoke is not None:
        channel, _, sender = args.revoke.partition(":")
        if not store.remove_sender(channel, sender):
            raise UsageError(f"{args.revoke!r} is not paired.", "`odin gateway pair --list` shows who is.")
        return write_output(f"{escape_hidden(args.revoke)} is answered no longer.\n")
    if args.code:
        paired = store.redeem(read_code(args.code), right="owner" if args.owner else "sender")
        if paired is None:
            hint = "Write /pair in the chat again."
            raise UsageError("This code is not valid: it is mistyped, was used already, or has expired.", hint)
        name = escape_hidden(paired.name or paired.sender)
        return write_output(f"{name} may write on {escape_hidden(paired.channel)} now.\n")
    text = store.create_code("owner" if args.owner else "sender", args.channel)
    if args.json:
        return write_json({"code": text, "right": "owner" if args.owner else "sender", "channel": args.channel})
    return write_output(f"Write this to Odin in the chat, within an hour:\n\n{text}\n")


def _chat(argv: list[str]) -> int:
    parser = Parser(prog="odin gateway chat", description="Chat with the gateway in this terminal, as its owner.")
    parser.add_argument("name", nargs="?", default="main", metavar="NAME", help="another chat than the main one")
    args = parser.parse_args(argv)

    async def run() -> None:
        lines, loop = asyncio.Queue[str](), asyncio.get_running_loop()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

        threading.Thread(target=read, daemon=True).start()
        await chat_in_terminal(_get_folder(), args.name, get_stdout(), lines)

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        return 130
    return 0
