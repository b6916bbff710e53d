"""The command line: prompts, and the way to the subcommands."""

import argparse
import asyncio
import gc
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from odin.cli.output import say
from odin.cli.parser import MISSED, PICK, build_parser, split_list
from odin.cli.places import take_places
from odin.config import Options, current_folder, load
from odin.core.errors import EmptyPrompt, OdinError, UsageError
from odin.core.event import Mode
from odin.core.op import Prompt
from odin.core.screen import ScreenSettings
from odin.core.text import mended
from odin.policy.modes import mode_of

MAX_STDIN = 10_000_000
CLOSING_S = 10.0
"""What is still running when a conversation is left gets this long to end."""

COMMANDS = {
    "models": "lists",
    "sessions": "sessions",
    "usage": "usage",
    "replay": "replay",
    "undo": "undo",
    "redo": "undo",
    "trust": "trust",
    "rules": "rules",
    "explain": "explain",
    "doctor": "doctor",
    "auth": "auth",
    "cleanup": "cleanup",
    "worktree": "worktree",
    "import": "importing",
    "completions": "completions",
}
"""Which file answers a subcommand, with a function called after it."""

SHORTHANDS = {
    "resume": ("--resume",),
    "headless": ("-p", "--input-format", "stream-json", "--output-format", "stream-json"),
}
"""Subcommands that are another way to write flags."""


def run(argv: list[str]) -> int:
    """Parse, run, and turn every failure into a sentence and an exit code."""
    gc.freeze()
    gc.enable()
    _open_missing_streams()
    try:
        argv = take_places(argv, os.environ)
        if argv and argv[0] in COMMANDS:
            return _subcommand(argv[0], argv[1:])
        if argv and argv[0] in SHORTHANDS:
            argv = [*SHORTHANDS[argv[0]], *argv[1:]]
        return _prompt_command(argv)
    except OdinError as error:
        say(f"odin: {error.sentence()}")
        return error.exit_code
    except BrokenPipeError:
        _forget_stdout()
        return 0
    except Exception as error:
        return _crashed(error)


def _crashed(error: Exception) -> int:
    from odin.app.logfile import crashed, without_secrets

    kept = crashed(error, os.environ)
    say(without_secrets(f"odin: something went wrong inside Odin ({type(error).__name__}: {error}).", os.environ))
    if kept is not None:
        say(f"The details are in {kept}; please send them with a report.")
        return 1
    import traceback

    say(without_secrets("".join(traceback.format_exception(error)), os.environ))
    return 1


def _subcommand(name: str, argv: list[str]) -> int:
    module = importlib.import_module(f"odin.cli.{COMMANDS[name]}")
    command: Callable[[list[str]], int] = getattr(module, f"{name}_command")
    return command(argv)


def _prompt_command(argv: list[str]) -> int:
    args = build_parser().parse_args(argv)
    if args.version:
        from odin import __version__

        print(f"odin {__version__}")
        return 0
    _mention_what_has_no_effect(args)
    streaming = args.input_format == "stream-json"
    if args.resume is not None and args.continue_last:
        raise UsageError("Both --resume and --continue were given.", "Use one of them.")
    if args.resume == PICK and not args.headless and not streaming and _at_a_terminal():
        from odin.cli.sessions import pick

        args.resume = pick(args.cwd)
        if not args.resume:
            return 0
    options = _options(args)
    if streaming and args.output_format != "stream-json":
        raise UsageError("--input-format stream-json needs --output-format stream-json.")
    if not args.headless and not streaming and args.output_format == "text":
        return _chat(args, options)
    if args.output_format == "stream-json":
        return asyncio.run(_stream(args, options, streaming))
    return asyncio.run(_print(args, options))


def _mention_what_has_no_effect(args: argparse.Namespace) -> None:
    for name in MISSED:
        if getattr(args, name.lstrip("-").replace("-", "_")):
            say(f"{name} has no effect in this version.")


def _options(args: argparse.Namespace) -> Options:
    system = args.system_prompt or None
    if args.system_prompt_file is not None:
        try:
            system = Path(args.system_prompt_file).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise UsageError(f"The system prompt file cannot be read ({error}).") from error
    if args.mode:
        mode_of(args.mode)
    if args.resume == "" or args.resume == PICK:
        raise UsageError("--resume needs the id of a session.", "See `odin sessions`, or use --continue.")
    tools = None if args.tools in (None, "default") else tuple(split_list([args.tools]))
    return Options(
        cwd=args.cwd,
        model=mended(args.model),
        fallback_model=tuple(split_list(args.fallback_model)),
        mode=args.mode,
        permission_mode=args.permission_mode,
        yes=args.yes,
        allowed_tools=tuple(split_list(args.allowedTools)),
        disallowed_tools=tuple(split_list(args.disallowedTools)),
        tools=tools,
        max_turns=args.max_turns,
        max_budget_usd=args.max_budget_usd,
        thinking=args.max_thinking_tokens,
        system_prompt=system,
        append_system_prompt=args.append_system_prompt,
        resume=args.resume or "",
        continue_last=args.continue_last,
        fork=args.fork_session,
        fork_at=args.at,
        session_id=args.session_id,
        include_partial=args.include_partial_messages,
        can_ask=args.permission_prompt_tool is not None,
        trust=args.trust,
    )


async def _print(args: argparse.Namespace, options: Options) -> int:
    from odin.app import open_session
    from odin.ui.print import run_json, run_text

    text = _prompt_text(args)
    terminal = _terminal()
    import msgspec

    client = await open_session(msgspec.structs.replace(options, can_ask=terminal is not None))
    show = run_json if args.output_format == "json" else run_text
    try:
        prompt = Prompt(_prompt_id(), text, await _mode(args, client))
        return await show(client, prompt, out=sys.stdout, err=sys.stderr, tty_in=terminal, verbose=args.verbose)
    finally:
        await client.close()


async def _stream(args: argparse.Namespace, options: Options, reading: bool) -> int:
    from odin.app import open_session
    from odin.ui.pipes import read_lines
    from odin.ui.stream.sdk import run_stream

    text = "" if reading and args.prompt is None else _prompt_text(args)
    import msgspec

    client = await open_session(msgspec.structs.replace(options, can_ask=options.can_ask and reading))
    try:
        mode = await _mode(args, client)
        return await run_stream(
            client,
            out=sys.stdout,
            lines_in=read_lines(sys.stdin.fileno()) if reading else None,
            prompt=Prompt(_prompt_id(), text, mode) if text else None,
            include_partial=args.include_partial_messages,
            default_mode=mode,
            replay_prompts=args.replay_user_messages,
        )
    finally:
        await client.close()


async def _mode(args: argparse.Namespace, client: Any) -> Mode:
    return mode_of(args.mode) if args.mode else (await client.info()).mode


def _prompt_id() -> str:
    return os.urandom(6).hex()


def _prompt_text(args: argparse.Namespace) -> str:
    given: str = "-" if args.prompt is None else args.prompt
    text = _standard_input() if given == "-" else mended(given)
    if not text.strip():
        raise EmptyPrompt
    return text


def _standard_input() -> str:
    if sys.stdin.isatty():
        return ""
    try:
        raw = sys.stdin.buffer.read(MAX_STDIN + 1)
    except OSError as error:  # nohup leaves a standard input that can only be written to
        raise UsageError(f"The prompt cannot be read from standard input ({error.strerror}).") from error
    if len(raw) > MAX_STDIN:
        raise UsageError(f"The prompt on standard input is longer than {MAX_STDIN} bytes.", "Name a file instead.")
    return raw.decode("utf-8", "replace")


def _terminal() -> TextIO | None:
    """Where a person can be asked: standard input, or the terminal behind it when a prompt was piped in."""
    if not sys.stderr.isatty():
        return None
    if sys.stdin.isatty():
        return sys.stdin
    try:
        return Path("/dev/tty").open(encoding="utf-8")
    except OSError:
        return None


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _somebody_types(args: argparse.Namespace) -> bool:
    """Whether there is a conversation: somebody reads along, at least what is said beside the answers.

    A prompt whose answer goes into a file or a pipe is one prompt and an end.
    """
    return _at_a_terminal() or (sys.stdin.isatty() and sys.stderr.isatty() and not args.prompt)


def _lines_only(wanted: bool, env: Mapping[str, str]) -> bool:
    """Whether the conversation is one of ordinary lines: it was wanted, or nothing else can be shown here."""
    from odin.ui.terminal import dumb

    return wanted or dumb(env) or not (sys.stdout.isatty() and sys.stderr.isatty())


def _chat(args: argparse.Namespace, options: Options) -> int:
    """Prompts typed one after the other. Without a terminal there is nobody to type, so it is one prompt and an end."""
    if not _somebody_types(args):
        return asyncio.run(_print(args, options))
    settings = load(options.cwd or current_folder(), os.environ, trust=options.trust).tui
    if _lines_only(args.plain or settings.plain, os.environ):
        if not options.trust:
            from odin.cli.trust import ask_once

            ask_once(options.cwd)
        return asyncio.run(_converse(args, options, settings))
    from odin.cli.screen import run_screen

    return asyncio.run(run_screen(options, settings, first=args.prompt or "", mode=args.mode))


async def _converse(args: argparse.Namespace, options: Options, settings: ScreenSettings) -> int:
    import msgspec

    from odin.app.host import open_host
    from odin.ui.chat.chat import run_chat

    host = await open_host(msgspec.structs.replace(options, can_ask=True))
    try:
        mode = await _mode(args, host.client)
        return await run_chat(host, first=args.prompt or "", mode=mode, left=host.draft, settings=settings)
    finally:
        try:
            await asyncio.wait_for(host.close(), CLOSING_S)
        except TimeoutError:
            say("odin: what was running did not end in time.")


def _open_missing_streams() -> None:
    """Input and messages that were closed before we began become empty, and nothing else takes their numbers.

    Standard output is left as it is: a front end that has nowhere to put its answer must not begin.
    """
    for number, name, mode in ((0, "stdin", "r"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode))


def _forget_stdout() -> None:
    """The reader is gone: what is still buffered must not fail again when the interpreter closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
