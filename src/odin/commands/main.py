"""Entry point of the command line: runs a subcommand, a single prompt, plain mode or the terminal app.

The prompt of `odin -p` is its argument, and below it the text that is piped to Odin.
"""

import argparse
import asyncio
import contextlib
import errno
import gc
import importlib
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from odin.commands.command_line import (
    PICK_SESSION,
    build_parser,
    extract_folder_flags,
    split_list,
    write_message,
)
from odin.config import Options, get_current_folder, load
from odin.core.client import SessionSummary
from odin.core.errors import EmptyPrompt, OdinError, OutputFailed, UsageError
from odin.core.event_values import Mode
from odin.core.op import Prompt
from odin.core.text import append_piped_text, find_similar, to_valid_unicode
from odin.core.tui_settings import TuiSettings
from odin.policy.modes import parse_mode, split_plan_alias

if TYPE_CHECKING:
    from odin.ui.run_summary import RunSummary

_NAMES = (
    "models sessions usage replay undo redo trust rules agents skills plugin explain doctor eval auth provider mcp "
    "cleanup worktree migrate import completions attach pair serve share acp gateway fleet best cron trigger status "
    "onboard"
)
_MODULES = {
    "redo": "undo",
    "skills": "extensions",
    "plugin": "extensions",
    "import": "session_import",
    "trigger": "cron",
    "status": "gateway",
}
COMMANDS = {name: _MODULES.get(name, name) for name in _NAMES.split()}
"""Subcommands and their modules; module M implements subcommand X as `run_X(argv)`."""

SHORTHANDS = {
    "resume": ("--resume",),
    "headless": ("-p", "--format", "stream-json"),
}
"""Subcommands that are shorthands for flags."""

_MISTYPED_COMMAND = 0.76
"""How alike a word and a subcommand must be that have not the same letters: `test` is a prompt, `sesions` is not."""

_OTHER_NAMES = {
    word: meant.format(word)
    for words, meant in {
        "help": "odin --help",
        "version": "odin --version",
        "login": "odin auth add",
        "logout": "odin auth remove",
        "keys": "odin auth",
        "update upgrade": "uv tool upgrade odin-code` or `pipx upgrade odin-code",
        "uninstall": "uv tool uninstall odin-code` or `pipx uninstall odin-code",
        "install": "odin plugin add` or `odin mcp add",
        "config configure settings": "odin doctor config",
        "info": "odin doctor",
        "list ls history": "odin sessions",
        "delete export fork rename search show": "odin sessions {}",
        "cost stats tokens": "odin usage",
        "permissions": "odin rules",
        "rewind": "odin undo",
        "init": "odin /init",
        "setup": "odin /setup",
        "continue": "odin --continue",
        "start run chat open new clear reset restart": "odin",
        "add remove get set enable disable stop exit quit tools hooks": "odin --help",
    }.items()
    for word in words.split()
}
"""Usual verbs of command lines, and what they are here. None is worth a request to a model."""


def run(argv: list[str]) -> int:
    """Run a command line and return its exit code. Errors become messages on standard error."""
    gc.freeze()
    gc.enable()
    # Open /dev/null for a closed standard input or error, so that no other file gets their descriptors. A closed
    # standard output stays closed: front ends check it and refuse to start.
    for number, name, mode in ((0, "stdin", "r"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, os.fdopen(number, mode))
    try:
        return _run_and_flush(argv)
    except OdinError as error:
        write_message(f"odin: {error.describe()}")
        return error.exit_code
    except BrokenPipeError:
        _discard_stdout()
        return 0
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
            return _report_crash(error)
        _discard_stdout()
        failed = OutputFailed.from_error(error)
        write_message(f"odin: {failed.describe()}")
        return failed.exit_code
    except Exception as error:
        return _report_crash(error)


_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Why standard output cannot be written. Errors of other files name the file, or are reported where they happen."""


def _run_and_flush(argv: list[str]) -> int:
    try:
        code = _dispatch(argv)
    except SystemExit as left:  # of the parser
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout.flush()
    return code


def _dispatch(argv: list[str]) -> int:
    argv = extract_folder_flags(argv, os.environ)
    if argv and argv[0] in COMMANDS:
        name = argv[0]
        module = importlib.import_module(f"odin.commands.{COMMANDS[name]}")
        command: Callable[[list[str]], int] = getattr(module, f"run_{name}")
        return command(argv[1:])
    if argv and argv[0] in SHORTHANDS:
        argv = [*SHORTHANDS[argv[0]], *argv[1:]]
    return _run_prompt(argv)


def _report_crash(error: Exception) -> int:
    from odin.app.crash_log import log_crash, redact_secrets

    path = log_crash(error, os.environ)
    write_message(redact_secrets(f"odin: internal error ({type(error).__name__}: {error}).", os.environ))
    if path is not None:
        write_message(f"Details are in {path}; please attach them to a bug report.")
        return 1
    import traceback

    write_message(redact_secrets("".join(traceback.format_exception(error)), os.environ))
    return 1


def _run_prompt(argv: list[str]) -> int:
    args = build_parser().parse_args(argv)
    if args.version:
        from odin.version import __version__

        print(f"odin {__version__}")
        return 0
    if not args.headless and args.prompt and "--" not in argv:
        _refuse_mistyped_command(args.prompt, argv)
    if args.format:
        if not args.headless:
            raise UsageError("--format requires `odin headless`.", f"Use `odin headless --format {args.format}`.")
        args.input_format = args.output_format = args.format
    streaming = args.input_format != "text"
    if args.resume is not None and args.continue_last:
        raise UsageError("--resume and --continue cannot be combined.")
    if args.resume == PICK_SESSION and not args.headless and not streaming and _is_at_terminal():
        settings = load(args.cwd or get_current_folder(), os.environ, trust=args.trust).tui
        if args.prompt or args.fork_session or _is_plain(args, settings):
            from odin.commands.sessions import pick_session

            args.resume = pick_session(args.cwd)
            if not args.resume:
                return 0
        else:
            args.resume, args.prompt = None, "/resume"
    options = _build_options(args)
    if streaming and args.output_format != args.input_format:
        raise UsageError("--input-format stream-json requires --output-format stream-json.")
    is_interactive = not args.headless and not streaming and args.output_format == "text"
    # A prompt on the command line whose answer goes to a file or pipe is a single prompt, not a conversation.
    if is_interactive and not _is_at_terminal():
        is_interactive = sys.stdin.isatty() and sys.stderr.isatty() and not args.prompt
    text = to_valid_unicode(args.prompt or "") if is_interactive or streaming else read_prompt(args.prompt)
    with contextlib.ExitStack() as stack:
        if args.debug:
            from odin.app.debug_log import open_debug_log

            cwd = os.path.realpath(args.cwd or get_current_folder())
            stack.enter_context(open_debug_log(args.debug, cwd, os.environ))
        if is_interactive:
            return _run_interactive(args, options)
        if args.summary is not None:
            return _run_with_summary(args, options, streaming, text)
        return asyncio.run(_run_headless(args, options, streaming, text))


def _refuse_mistyped_command(word: str, argv: list[str]) -> None:
    """Raise UsageError if the only word on the command line is, or resembles, a subcommand."""
    known = (*COMMANDS, *SHORTHANDS)
    if not word.isalpha():
        return
    meant = _OTHER_NAMES.get(word.casefold(), "")
    if not meant:
        swapped = (name for name in known if sorted(name) == sorted(word.casefold()))
        similar = next(swapped, "") or find_similar(word, known, _MISTYPED_COMMAND)
        meant = similar and f"odin {similar}"
    if not meant:
        return
    problem = f"{word!r} must be the first argument." if word in known else f"Unknown command {word!r}."
    rest = " ".join(item for item in argv if item != word) if word in known else ""
    raise UsageError(
        f"{problem} Did you mean `{f'{meant} {rest}'.rstrip()}`?",
        f"To send it as a prompt, use `odin -- {word}` or `odin -p {word}`.",
    )


def _build_options(args: argparse.Namespace) -> Options:
    system = args.system_prompt or None
    if args.system_prompt_file is not None:
        try:
            system = Path(args.system_prompt_file).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise UsageError(f"Cannot read the system prompt file ({error}).") from error
    if args.mode:
        parse_mode(args.mode)
    args.mode, args.permission_mode = split_plan_alias(args.mode, args.permission_mode)
    if args.resume == "" or args.resume == PICK_SESSION:
        raise UsageError(
            "--resume needs a session ID.", "`odin sessions` lists sessions; --continue resumes the latest."
        )
    if args.agents:
        _check_agents(args.agents)
    if not args.headless and args.output_format == "text":
        for flag, given in (("--json-schema", args.json_schema), ("--summary", args.summary is not None)):
            if given:
                raise UsageError(f"{flag} requires -p.")
    tools = None if args.tools in (None, "default") else tuple(split_list([args.tools]))
    return Options(
        cwd=args.cwd,
        model=to_valid_unicode(args.model),
        pool=to_valid_unicode(args.pool),
        fallback_model=tuple(split_list(args.fallback_model)),
        mode=args.mode,
        permission_mode=args.permission_mode,
        yes=args.yes,
        commands_ask=args.commands_ask
        or ("before" if args.input_format == "stream-json" or args.permission_prompt_tool else None),
        allowed_tools=tuple(split_list(args.allowedTools)),
        disallowed_tools=tuple(split_list(args.disallowedTools)),
        tools=tools,
        max_turns=args.max_turns,
        max_budget_usd=args.max_budget_usd,
        thinking=args.max_thinking_tokens,
        effort=args.effort,
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
        agent_definitions=to_valid_unicode(args.agents),
        role=to_valid_unicode(args.role),
        mcp_config=tuple(map(to_valid_unicode, args.mcp_config)),
        strict_mcp_config=args.strict_mcp_config,
        plugin_dirs=tuple(args.plugin_dir),
        add_dirs=tuple(args.add_dir),
        output_schema=_read_schema(args.json_schema) if args.json_schema else None,
    )


def _check_agents(text: str) -> None:
    """Raise UsageError unless the value of --agents is a JSON object. Mistakes in a definition are warnings."""
    import msgspec

    try:
        is_object = isinstance(msgspec.json.decode(text.encode("utf-8", "replace")), dict)
    except msgspec.DecodeError as error:
        raise UsageError(f"--agents is not valid JSON: {error}.") from error
    if not is_object:
        raise UsageError("--agents must be a JSON object: name → description, prompt, tools and model.")


def _read_schema(given: str) -> dict[str, Any]:
    """Return the schema of --json-schema, which is a file or JSON."""
    import msgspec

    from odin.config.files import MAX_CONFIG_BYTES
    from odin.core.structured_output import check_schema

    try:
        if given.lstrip().startswith(("{", "[")):
            return check_schema(msgspec.json.decode(to_valid_unicode(given)))
        with Path(given).open("rb") as file:
            return check_schema(msgspec.json.decode(file.read(MAX_CONFIG_BYTES)))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--json-schema: cannot read the schema ({error}).", "Give a JSON file, or JSON.") from error


def _run_with_summary(args: argparse.Namespace, options: Options, streaming: bool, text: str) -> int:
    """Write the summary of --summary, however the run ends."""
    from odin.app.debug_log import make_redactor
    from odin.ui.exit import EXIT_INTERRUPTED
    from odin.ui.run_summary import RunSummary

    summary = RunSummary(args.summary)
    code, failure = 1, "Internal error."
    try:
        summary.redact = make_redactor(os.path.realpath(args.cwd or get_current_folder()), os.environ)
        code, failure = asyncio.run(_run_headless(args, options, streaming, text, summary)), ""
    except OdinError as error:
        code, failure = error.exit_code, error.describe()
        raise
    except KeyboardInterrupt:
        code, failure = EXIT_INTERRUPTED, ""
        raise
    finally:
        summary.write(code, failure)
    return code


async def _run_headless(
    args: argparse.Namespace, options: Options, streaming: bool, text: str, summary: "RunSummary | None" = None
) -> int:
    try:
        if args.output_format == "jsonl":
            return await _run_jsonl(args, options, text, summary)
        if args.output_format == "stream-json":
            return await _run_json_stream(args, options, streaming, text, summary)
        return await _print_answer(args, options, text, summary)
    finally:
        if summary is not None:
            await summary.finish()


async def _print_answer(args: argparse.Namespace, options: Options, text: str, summary: "RunSummary | None") -> int:
    from odin.commands.attach import open_client
    from odin.ui.print import run_json, run_text

    terminal = _find_terminal()
    import msgspec

    options = msgspec.structs.replace(options, can_ask=terminal is not None, headless=True)
    show = run_json if args.output_format == "json" else run_text
    async with open_client(options, attach=not args.no_attach) as client:
        if summary is not None:
            summary.follow(client)
        await _check_command(client, args.prompt or "")
        mode = await _resolve_mode(args, client)
        prompt = Prompt(_make_prompt_id(), text, mode, output_schema=options.output_schema)
        return await show(
            client,
            prompt,
            out=sys.stdout,
            err=sys.stderr,
            tty_in=terminal,
            verbose=args.verbose,
            owns_process=True,
        )


async def _run_json_stream(
    args: argparse.Namespace, options: Options, reading: bool, text: str, summary: "RunSummary | None"
) -> int:
    import msgspec

    from odin.commands.attach import open_client
    from odin.ui.pipes import read_lines
    from odin.ui.stream_json.protocol import run_stream_json

    options = msgspec.structs.replace(options, can_ask=options.can_ask and reading, headless=True)
    async with open_client(options, attach=not args.no_attach) as client:
        if summary is not None:
            summary.follow(client)
        await _check_command(client, args.prompt or "")
        mode = await _resolve_mode(args, client)
        return await run_stream_json(
            client,
            out=sys.stdout,
            lines_in=read_lines(sys.stdin.fileno()) if reading else None,
            prompt=Prompt(_make_prompt_id(), text, mode, output_schema=options.output_schema) if text else None,
            include_partial=args.include_partial_messages,
            default_mode=mode,
            replay_prompts=args.replay_user_messages,
            output_schema=options.output_schema,
            owns_process=True,
        )


async def _run_jsonl(args: argparse.Namespace, options: Options, text: str, summary: "RunSummary | None") -> int:
    import msgspec

    from odin.commands.attach import open_client
    from odin.host.stored_sessions import open_project_sessions
    from odin.ui.jsonl.commands import MAX_LINE_BYTES
    from odin.ui.jsonl.server import run_jsonl
    from odin.ui.pipes import read_lines

    async def list_sessions() -> tuple[SessionSummary, ...]:
        return await asyncio.to_thread(lambda: open_project_sessions(args.cwd).list_sessions())

    options = msgspec.structs.replace(options, can_ask=True, headless=True)
    async with open_client(options, attach=not args.no_attach) as client:
        if summary is not None:
            summary.follow(client)
        await _check_command(client, args.prompt or "")
        mode = await _resolve_mode(args, client)
        return await run_jsonl(
            client,
            out=sys.stdout,
            lines_in=read_lines(sys.stdin.fileno(), MAX_LINE_BYTES),
            prompt=Prompt(_make_prompt_id(), text, mode, output_schema=options.output_schema) if text else None,
            default_mode=mode,
            include_deltas=args.include_partial_messages,
            output_schema=options.output_schema,
            list_sessions=list_sessions,
            owns_process=True,
        )


async def _check_command(client: Any, prompt: str) -> None:
    """Raise UsageError for a built-in or misspelled slash command: it is not sent to the model."""
    if prompt.startswith("/"):
        from odin.core.slash_commands import find_slash_command
        from odin.ui.slash_commands.actions import refuse_unknown_command

        if find_slash_command(word := prompt.split(None, 1)[0]) is not None:
            raise UsageError(
                f"{word} works only in a conversation.", "To send it to the model, put a space before the slash."
            )
        await refuse_unknown_command(client, prompt)


async def _resolve_mode(args: argparse.Namespace, client: Any) -> Mode:
    return parse_mode(args.mode) if args.mode else (await client.get_info()).mode


def _make_prompt_id() -> str:
    return os.urandom(6).hex()


def _find_terminal() -> TextIO | None:
    """Return a terminal for dialogs: standard input, or /dev/tty if the prompt was piped in."""
    if not sys.stderr.isatty():
        return None
    if sys.stdin.isatty():
        return sys.stdin
    try:
        return Path("/dev/tty").open(encoding="utf-8")
    except OSError:
        return None


def _is_at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _run_interactive(args: argparse.Namespace, options: Options) -> int:
    """Run the terminal app or plain mode."""
    settings = load(options.cwd or get_current_folder(), os.environ, trust=options.trust).tui
    if _is_plain(args, settings):
        if not options.trust:
            from odin.commands.trust import ask_for_trust

            ask_for_trust(options.cwd, options.add_dirs)
        return asyncio.run(_run_plain(args, options, settings))
    return asyncio.run(_run_app(args, options, settings))


async def _run_app(args: argparse.Namespace, options: Options, settings: TuiSettings) -> int:
    gc.disable()  # as in `entry.main`; `run_app` enables it again
    async with contextlib.AsyncExitStack() as stack:
        attaching = None
        if (options.resume or options.continue_last) and not args.no_attach:
            from odin.commands.attach import attach_if_open, attach_meanwhile

            attach = attach_if_open(options, prefetches=True)
            attaching = await stack.enter_async_context(attach_meanwhile(attach))
        from odin.commands.tui import run_tui

        return await run_tui(options, settings, first=args.prompt or "", mode=args.mode, attaching=attaching)


def _is_plain(args: argparse.Namespace, settings: TuiSettings) -> bool:
    """True if plain mode is requested, or the only choice because the terminal is dumb or output is redirected."""
    from odin.ui.terminal import is_dumb

    is_shown = sys.stdout.isatty() and sys.stderr.isatty()
    return args.plain or settings.plain or is_dumb(os.environ) or not is_shown


async def _run_plain(args: argparse.Namespace, options: Options, settings: TuiSettings) -> int:
    import msgspec

    from odin.commands.attach import open_sessions
    from odin.ui.plain.repl import run_plain

    async with open_sessions(msgspec.structs.replace(options, can_ask=True), attach=not args.no_attach) as sessions:
        mode = await _resolve_mode(args, sessions.client)
        return await run_plain(sessions, first=args.prompt or "", mode=mode, draft=sessions.draft, settings=settings)


def _discard_stdout() -> None:
    """Redirect standard output to /dev/null, so that flushing at exit does not fail again after a broken pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


MAX_STDIN = 10_000_000
FIRST_BYTE_TIMEOUT_S = 3.0
"""How long the first byte of a pipe is waited for if there is also a prompt on the command line."""

_IDLE_PIPE = (
    "Standard input is an open pipe without data for {:g} s, so it is ignored. Use `< /dev/null` to avoid the wait, or "
    "`odin -p -` to wait for it."
)


def read_prompt(argument: str | None, patience: float = FIRST_BYTE_TIMEOUT_S) -> str:
    """Return the prompt: the argument, standard input, or both; `-` is standard input alone.

    With an argument nothing is waited for at a terminal, and at most `patience` seconds at a pipe without data.
    """
    try:
        if argument is None or argument == "-":
            text = "" if sys.stdin.isatty() else _read_standard_input()
        else:
            text = to_valid_unicode(argument)
            if text.strip() and (piped := _read_piped_text(patience)).strip():
                text = append_piped_text(text, piped)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise UsageError(f"Cannot read standard input ({error.strerror}).") from error
        text = "" if argument in (None, "-") else to_valid_unicode(argument)  # under nohup there is no input
    if not text.strip():
        raise EmptyPrompt
    return text


def _read_piped_text(patience: float) -> str:
    """Return the input piped in with a prompt; "" if standard input is a terminal, an idle pipe or write-only."""
    if sys.stdin.isatty() or not _can_read_stdin():
        return ""
    if not select.select([sys.stdin], [], [], patience)[0]:
        write_message(_IDLE_PIPE.format(patience))
        return ""
    return _read_standard_input()


def _can_read_stdin() -> bool:
    """False for a write-only descriptor, which nohup leaves as standard input, and for a stream without one."""
    try:
        os.read(sys.stdin.fileno(), 0)
    except OSError:
        return False
    return True


def _read_standard_input() -> str:
    raw = sys.stdin.buffer.read(MAX_STDIN + 1)
    if len(raw) > MAX_STDIN:
        raise UsageError(
            f"Standard input is longer than {MAX_STDIN // 1_000_000} MB.",
            "Save it to a file and name the file in the prompt, or pass only a part of it, for example with `tail`.",
        )
    if b"\0" in raw:
        raise UsageError(
            "Standard input is binary data, not text.", "Save it to a file and name the file in the prompt."
        )
    return raw.decode("utf-8", "replace")
