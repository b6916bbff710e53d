"""The command line: one parser, one short function per subcommand."""

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from odin.app import open_session
from odin.config import Options, current_folder
from odin.core.errors import EmptyPrompt, OdinError, UsageError
from odin.core.event import Mode
from odin.core.op import Prompt
from odin.core.text import mended
from odin.policy.modes import mode_of

MAX_STDIN = 10_000_000
EPILOG = """\
commands:
  odin models            the models that can be used, with local servers found on this machine
  odin sessions          the sessions of this project, newest first
  odin undo              take the last prompt back, with what it did to files; also --list and --to
  odin redo              take that back

exit codes: 0 done, 1 failed, 2 wrong usage, 75 failed but worth trying again, 130 interrupted, 143 terminated
"""

_NO_EFFECT = (
    ("--add-dir", 1),
    ("--agents", 1),
    ("--betas", 1),
    ("--effort", 1),
    ("--fallback-model", 1),
    ("--include-hook-events", 0),
    ("--json-schema", 1),
    ("--mcp-config", 1),
    ("--permission-prompt-tool", 1),
    ("--plugin-dir", 1),
    ("--session-mirror", 0),
    ("--setting-sources", 1),
    ("--settings", 1),
    ("--strict-mcp-config", 0),
    ("--task-budget", 1),
    ("--thinking", 1),
    ("--thinking-display", 1),
)
"""Flags that agent SDKs may pass and that change nothing here. They are accepted so that those SDKs can start Odin."""

_MISSED = ("--add-dir", "--agents", "--fallback-model", "--json-schema", "--mcp-config", "--plugin-dir")
"""Those of them that a person would miss, so their absence is said."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", "See `odin --help`.")


def _formatter(prog: str) -> argparse.HelpFormatter:
    """With a width of its own: argparse makes a formatter for every flag, and each would look for the terminal's."""
    return argparse.RawDescriptionHelpFormatter(prog, width=100)


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="odin",
        description="A coding agent for the terminal.",
        epilog=EPILOG,
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("prompt", nargs="?", help="what to do; with -p and without it, standard input is read")
    add("-p", "--print", action="store_true", dest="headless", help="answer one prompt and exit")
    add("-V", "--version", action="store_true", help="print the version")
    add("--output-format", choices=("text", "json", "stream-json"), default="text", help="what -p prints (text)")
    add("--input-format", choices=("text", "stream-json"), default="text", help="what -p reads (text)")
    add("--include-partial-messages", action="store_true", help="stream-json: also every piece as it arrives")
    add("--replay-user-messages", action="store_true", help="stream-json: repeat each prompt that was taken")
    add("--mode", default="", help="ask, plan or edit (edit)")
    add("-m", "--model", default="", help="provider/model, such as anthropic/claude-sonnet-4-5 or ollama/qwen3")
    add("--max-turns", type=int, metavar="N", help="model calls for this prompt at most, 0 for no limit (100)")
    add("--max-budget-usd", type=float, metavar="USD", help="stop before the call after which this is exceeded")
    add("--max-thinking-tokens", type=int, metavar="N", help="tokens the model may think with")
    add("--permission-mode", default="", help="default, acceptEdits, plan, dontAsk or bypassPermissions")
    add("-y", "--yes", action="store_true", help="answer every permission question with yes")
    add("--allowedTools", "--allowed-tools", action="append", default=[], metavar="LIST", help="run without asking")
    add("--disallowedTools", "--disallowed-tools", action="append", default=[], metavar="LIST", help="never run")
    add("--tools", default=None, metavar="LIST", help='offer only these tools; "" for none, "default" for all')
    add("--system-prompt", default=None, metavar="TEXT", help="replace the system prompt")
    add("--system-prompt-file", default=None, metavar="FILE", help="replace the system prompt by a file's text")
    add("--append-system-prompt", default="", metavar="TEXT", help="add to the system prompt")
    add("-r", "--resume", default=None, metavar="ID", help="continue this session")
    add("-c", "--continue", action="store_true", dest="continue_last", help="continue the latest session here")
    add("--fork-session", action="store_true", help="with --resume or --continue: go on in a copy")
    add("--session-id", default="", metavar="ID", help="the id of the new session")
    add("--cwd", default="", metavar="DIR", help="work in this folder")
    add("--verbose", action="store_true", help=argparse.SUPPRESS)
    for name, count in _NO_EFFECT:
        if count:
            add(name, action="append", help=argparse.SUPPRESS)
        else:
            add(name, action="store_true", help=argparse.SUPPRESS)
    return parser


def run(argv: list[str]) -> int:
    """Parse, run, and turn every failure into a sentence and an exit code."""
    gc.freeze()
    _open_missing_streams()
    try:
        command = _COMMANDS.get(argv[0]) if argv else None
        if command is not None:
            return command(argv[1:])
        return _prompt_command(argv)
    except OdinError as error:
        _say(f"odin: {error.sentence()}")
        return error.exit_code
    except BrokenPipeError:
        _forget_stdout()
        return 0


def _prompt_command(argv: list[str]) -> int:
    args = build_parser().parse_args(argv)
    if args.version:
        from odin import __version__

        print(f"odin {__version__}")
        return 0
    _mention_what_has_no_effect(args)
    options = _options(args)
    streaming = args.input_format == "stream-json"
    if streaming and args.output_format != "stream-json":
        raise UsageError("--input-format stream-json needs --output-format stream-json.")
    if not args.headless and not streaming and args.output_format == "text":
        return _chat(args, options)
    if args.output_format == "stream-json":
        return asyncio.run(_stream(args, options, streaming))
    return asyncio.run(_print(args, options))


def _mention_what_has_no_effect(args: argparse.Namespace) -> None:
    for name in _MISSED:
        if getattr(args, name.lstrip("-").replace("-", "_")):
            _say(f"{name} has no effect in this version.")


def _options(args: argparse.Namespace) -> Options:
    system = args.system_prompt or None
    if args.system_prompt_file is not None:
        try:
            system = Path(args.system_prompt_file).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise UsageError(f"The system prompt file cannot be read ({error}).") from error
    if args.mode:
        mode_of(args.mode)
    if args.resume == "":
        raise UsageError("--resume needs the id of a session.", "See `odin sessions`, or use --continue.")
    tools = None if args.tools in (None, "default") else tuple(split_list([args.tools]))
    return Options(
        cwd=args.cwd,
        model=mended(args.model),
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
        session_id=args.session_id,
        include_partial=args.include_partial_messages,
        can_ask=args.permission_prompt_tool is not None,
    )


def split_list(values: list[str]) -> list[str]:
    """Names separated by commas or spaces; what stands in parentheses stays together."""
    found: list[str] = []
    for value in values:
        depth, word = 0, ""
        for char in value:
            depth += (char == "(") - (char == ")")
            if char in ", " and depth <= 0:
                found.append(word)
                word = ""
            else:
                word += char
        found.append(word)
    return [word for word in found if word]


async def _print(args: argparse.Namespace, options: Options) -> int:
    from odin.ui.print import run_json, run_text

    text = _prompt_text(args)
    terminal = _terminal()
    import msgspec

    client = await open_session(msgspec.structs.replace(options, can_ask=terminal is not None))
    show = run_json if args.output_format == "json" else run_text
    try:
        prompt = Prompt(_prompt_id(), text, await _mode(args, client))
        return await show(client, prompt, out=sys.stdout, err=sys.stderr, tty_in=terminal)
    finally:
        await client.close()


async def _stream(args: argparse.Namespace, options: Options, reading: bool) -> int:
    from odin.ui.pipes import read_lines
    from odin.ui.sdk import run_stream

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
    raw = sys.stdin.buffer.read(MAX_STDIN + 1)
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


def _chat(args: argparse.Namespace, options: Options) -> int:
    """Prompts typed one after the other. Without a terminal there is nobody to type, so it is one prompt and an end."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return asyncio.run(_print(args, options))
    return asyncio.run(_converse(args, options))


async def _converse(args: argparse.Namespace, options: Options) -> int:
    import msgspec

    from odin.ui.chat import run_chat

    client = await open_session(msgspec.structs.replace(options, can_ask=True))
    try:
        return await run_chat(client, first=args.prompt or "", mode=await _mode(args, client))
    finally:
        await client.close()


def _models_command(argv: list[str]) -> int:
    parser = _Parser(prog="odin models", description="The models that can be used from here.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from odin.app.models import describe_models

    return _put(describe_models(os.environ, current_folder(), as_json=args.json))


def _sessions_command(argv: list[str]) -> int:
    parser = _Parser(prog="odin sessions", description="The sessions of this project, newest first.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    from odin.app.sessions import list_sessions

    rows = list_sessions(args.cwd)
    if args.json:
        import msgspec

        return _put(msgspec.json.encode(rows).decode() + "\n")
    return _put("".join(f"{row.id}  {row.when}  {row.title}\n" for row in rows) or "No sessions yet.\n")


def _undo_parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"odin {name}", description=description, formatter_class=_formatter)
    add = parser.add_argument
    add("--session", default="", metavar="ID", help="that session instead of the latest one here")
    add("--force", action="store_true", help="also what somebody else changed since")
    add("--dry-run", action="store_true", help="only say what would be done")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser


def _undo_command(argv: list[str]) -> int:
    parser = _undo_parser("undo", "Go back to before a prompt: its conversation and what it did to files.")
    add = parser.add_argument
    add("--to", default="1", metavar="N|ID", help="before the N-th last prompt, or the one of that id (1)")
    add("--list", action="store_true", help="the prompts that can be taken back")
    add("--files", action="store_true", help="only the files")
    add("--chat", action="store_true", help="only the conversation")
    args = vars(parser.parse_args(argv))
    from odin.app.undo import Wish, list_prompts, undo
    from odin.ui.terminal import harmless

    both = args["files"] == args["chat"]
    args["files"], args["chat"] = both or args["files"], both or args["chat"]
    if args.pop("list"):
        return _put(harmless(list_prompts(Wish(**args))))
    text, code = asyncio.run(undo(Wish(**args)))
    return _put(harmless(text)) or code


def _redo_command(argv: list[str]) -> int:
    args = _undo_parser("redo", "Take the last undo back, as long as nothing was asked since.").parse_args(argv)
    from odin.app.undo import Wish, redo
    from odin.ui.terminal import harmless

    text, code = asyncio.run(redo(Wish(**vars(args))))
    return _put(harmless(text)) or code


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "models": _models_command,
    "sessions": _sessions_command,
    "undo": _undo_command,
    "redo": _redo_command,
}


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


def _put(text: str) -> int:
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise OdinError("Standard output is closed, so there is nowhere to write the list.")
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"{text}\n")
    except (OSError, ValueError):
        return


def _forget_stdout() -> None:
    """The reader is gone: what is still buffered must not fail again when the interpreter closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
