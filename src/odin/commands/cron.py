"""`odin cron`: what the gateway does at a time, again and again, or once. `odin trigger`: what it is to do now."""

import os
import sys
import time

from odin.commands.command_line import Parser, make_formatter, write_json, write_output, write_table
from odin.config import get_state_dir, load
from odin.core.errors import UsageError
from odin.core.format import clip, format_time, format_usd
from odin.core.gateway_settings import GatewaySettings
from odin.core.schedule import format_local, make_schedule
from odin.gateway.channel import InboundMessage, MessageOptions, MessageOrigin
from odin.gateway.jobs import (
    ACCOUNT,
    HEARTBEAT,
    Job,
    JobAction,
    JobStatus,
    add_job,
    ask_for_run,
    check_name,
    enable_job,
    find_place,
    list_jobs,
    list_runs,
    remove_job,
)
from odin.gateway.lock import GATEWAY_FOLDER, find_running
from odin.gateway.store import GatewayStore
from odin.ui.terminal import escape_hidden, shorten

MAX_TRIGGER_BYTES = 200_000
_MAX_MESSAGE_CHARS = 3000
_MAX_PROMPT_CHARS = 20_000

_EPILOG = """\
commands:
  odin cron list [NAME]       list schedules, or the last runs of one
  odin cron add TEXT          add one: --at 18:00, --every 10m or --cron '0 9 * * 1-5'
  odin cron remove NAME       remove one
  odin cron enable NAME       switch one on again
  odin cron disable NAME      switch one off
  odin cron run NAME          run one now, whatever its schedule says

Schedules run while `odin gateway` runs. `/loop every` and `/at` do the same in an open session.
"""


def _open_store() -> tuple[GatewayStore, GatewaySettings, str]:
    """Return the store of the gateway, its settings, and the id of its process, or ""."""
    folder = get_state_dir(os.environ) / GATEWAY_FOLDER
    return GatewayStore(folder), load("/", os.environ).gateway, find_running(folder)


def run_cron(argv: list[str]) -> int:
    commands = {"list": _list, "add": _add, "remove": _remove, "enable": _enable, "disable": _disable, "run": _run}
    if argv and argv[0] in commands:
        return commands[argv[0]](argv[1:])
    parser = Parser(
        prog="odin cron",
        description="Let the gateway ask a model, send a text or run a command at certain times.",
        epilog=_EPILOG,
        formatter_class=make_formatter,
    )
    parser.add_argument("command", choices=[*commands], metavar="COMMAND")
    parser.parse_args(argv or ["--help"])
    return 0


def _list(argv: list[str]) -> int:
    parser = Parser(prog="odin cron list", description="List the schedules, or the last runs of one.")
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="list the last runs of this one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    store, _, running = _open_store()
    if args.name:
        runs = list_runs(store, args.name)
        if args.json:
            return write_json([{name: getattr(run, name) for name in run.__struct_fields__} for run in runs])
        rows = [
            (format_time(run.due), format_time(run.started), run.state, format_usd(run.usd), escape_hidden(run.note))
            for run in runs
        ]
        head = ("DUE", "STARTED", "STATE", "COST", "NOTE")
        return write_table([head, *rows]) if rows else write_output(f"{args.name} has not run.\n")
    jobs = [item for item in list_jobs(store) if item.job.action != HEARTBEAT]
    if args.json:
        return write_json([_make_facts(item) for item in jobs])
    if not jobs:
        return write_output("There are no schedules. `odin cron add` adds one.\n")
    write_table([("NAME", "WHEN", "NEXT", "LAST", "CHAT", "WHAT"), *map(_make_row, jobs)])
    return 0 if running else write_output("The gateway does not run. `odin gateway` starts it.\n")


def _make_facts(item: JobStatus) -> dict[str, object]:
    job, run = item.job, item.run
    return {
        "name": job.name,
        "when": job.schedule.describe(),
        "due": item.due,
        "chat": job.place,
        "action": job.action,
        "text": job.text,
        "missed": job.missed,
        "enabled": job.enabled,
        "last_state": run.state if run else "",
        "last_started": run.started if run else None,
        "last_usd": run.usd if run else 0.0,
    }


def _make_row(item: JobStatus) -> tuple[str, ...]:
    job, run = item.job, item.run
    return (
        job.name,
        job.schedule.describe(),
        format_local(item.due, job.schedule.timezone) if item.due else "off",
        f"{run.state}, {format_time(run.started)}" if run else "",
        escape_hidden(job.place),
        f"{job.action}: {escape_hidden(shorten(job.text, 40))}",
    )


def _add(argv: list[str]) -> int:
    parser = Parser(
        prog="odin cron add",
        description="Add a schedule: a prompt that is answered in a chat when it is due.",
        epilog="A command runs in the sandbox, in the folder of the chat. Its output is sent.\n",
        formatter_class=make_formatter,
    )
    add = parser.add_argument
    add("text", metavar="TEXT", help="the prompt, the message or the command")
    add("--at", default="", metavar="TIME", help="once: 18:00, '2027-01-31 18:00' or 'in 20m'")
    add("--every", default="", metavar="INTERVAL", help="again and again: 10m, 2h or 1d")
    add("--cron", default="", metavar="EXPRESSION", help="a cron expression, such as '0 9 * * 1-5'")
    add("--tz", default="", metavar="ZONE", help="time zone, such as Europe/Berlin; that of this computer")
    add("--name", default="", metavar="NAME", help="its name")
    add("--chat", default="", metavar="CHANNEL:CHAT", help="the chat; the one that you wrote in last")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--deliver", action="store_true", help="send TEXT as it is, without asking a model")
    kind.add_argument("--command", action="store_true", help="run TEXT as a command, and send its output")
    add("--fresh", action="store_true", help="each run has a conversation of its own")
    add("--missed", choices=("skip", "once"), help="what is done later about missed runs; `once` for --at, else `skip`")
    args = parser.parse_args(argv)
    store, settings, _ = _open_store()
    now = time.time()
    schedule = make_schedule(now, at=args.at, every=args.every, cron=args.cron, timezone=args.tz)
    limit = _MAX_MESSAGE_CHARS if args.deliver else _MAX_PROMPT_CHARS
    if not args.text.strip() or len(args.text) > limit:
        raise UsageError(f"TEXT needs 1 to {limit:,} characters.", "Put more into a file that TEXT names.")
    channel, chat = find_place(store, settings, args.chat)
    action: JobAction = "message" if args.deliver else "command" if args.command else "prompt"
    job = Job(
        name=args.name,
        schedule=schedule,
        channel=channel,
        chat=chat,
        text=args.text,
        action=action,
        missed=args.missed or ("once" if schedule.at else "skip"),
        history=not args.fresh,
    )
    job = add_job(store, job, now)
    due = next(item.due for item in list_jobs(store) if item.job.name == job.name)
    when = format_local(due or now, args.tz)
    return write_output(f"Added {job.name} for {escape_hidden(job.place)}, {schedule.describe()}. Next: {when}.\n")


def _parse_name(argv: list[str], command: str, description: str) -> str:
    parser = Parser(prog=f"odin cron {command}", description=description)
    parser.add_argument("name", metavar="NAME", help="the name that `odin cron list` shows")
    return parser.parse_args(argv).name


def _remove(argv: list[str]) -> int:
    name = _parse_name(argv, "remove", "Remove a schedule.")
    remove_job(_open_store()[0], name)
    return write_output(f"{name} is removed.\n")


def _enable(argv: list[str]) -> int:
    name = _parse_name(argv, "enable", "Switch a schedule on again.")
    enable_job(_open_store()[0], name, time.time(), on=True)
    return write_output(f"{name} is on.\n")


def _disable(argv: list[str]) -> int:
    name = _parse_name(argv, "disable", "Switch a schedule off, and keep it.")
    enable_job(_open_store()[0], name, time.time(), on=False)
    return write_output(f"{name} is off.\n")


def _run(argv: list[str]) -> int:
    name = _parse_name(argv, "run", "Run a schedule now, whatever it says. The next time stays as it is.")
    store, _, running = _open_store()
    ask_for_run(store, name, time.time())
    return write_output(f"{name} runs now.\n" if running else f"{name} runs when the gateway does.\n")


def run_trigger(argv: list[str]) -> int:
    parser = Parser(
        prog="odin trigger",
        description="Report something to the gateway, for a model to look at: a trigger of gateway.triggers.",
        epilog="It is stored also while the gateway does not run. The model takes TEXT as data, not as instructions.\n",
        formatter_class=make_formatter,
    )
    parser.add_argument("name", metavar="NAME", help="the name of the trigger")
    parser.add_argument("text", nargs="?", default="", metavar="TEXT", help="what is reported; else standard input")
    args = parser.parse_args(argv)
    store, settings, running = _open_store()
    trigger = settings.triggers.get(args.name)
    if trigger is None:
        known = ", ".join(settings.triggers) or "none"
        raise UsageError(
            f"There is no trigger {args.name!r}.", f"gateway.triggers in odinconfig.json declares: {known}."
        )
    text = args.text
    if not text and not sys.stdin.isatty():
        data = sys.stdin.buffer.read(MAX_TRIGGER_BYTES + 1)
        if len(data) > MAX_TRIGGER_BYTES:
            raise UsageError(f"There are more than {MAX_TRIGGER_BYTES:,} bytes.", "Write them to a file, and name it.")
        text = data.decode("utf-8", "replace")
    channel, chat = find_place(store, settings, trigger.chat)
    message = InboundMessage(
        channel=channel,
        id=os.urandom(12).hex(),
        account=ACCOUNT,
        sender=f"trigger:{check_name(args.name)}",
        chat=chat,
        text=text,
        instructions=trigger.prompt,
        origin=MessageOrigin("trigger", args.name),
        options=MessageOptions(history=trigger.history),
    )
    _, outcome = store.add_message(message, "prompt")
    if outcome == "full":
        raise UsageError(f"Too many messages of {channel}:{chat} wait to be answered.", "Try again later.")
    later = "" if running else " It is answered when the gateway runs."
    return write_output(f"Reported to {escape_hidden(clip(f'{channel}:{chat}', 80))}.{later}\n")
