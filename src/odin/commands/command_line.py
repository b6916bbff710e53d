"""Shared by all subcommands: output, the argument parser, the flags of `odin`, and the flags that move its folders."""

import argparse
import sys
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TextIO

import msgspec

from odin.config.auth import MAX_KEY_LENGTH
from odin.core.errors import EXIT_CODES, OdinError, UsageError
from odin.core.lazy_pattern import compile_lazily
from odin.core.policy import mask_logins
from odin.core.provider import EFFORTS
from odin.core.text import list_choices, suggest_similar
from odin.ui.terminal import escape_hidden, escape_json, get_terminal_size, shorten, wrap_words

CLOSE_TIMEOUT_S = 10.0
"""How long running work may take to end when Odin exits."""

REDIRECTED_COLUMNS = 1000
"""The width of tables in a file or pipe."""

SHUTDOWN_TIMEOUT = "odin: running work did not stop in time."


def get_stdout() -> TextIO:
    """Return standard output. Raise OdinError if it is closed (`odin models >&-`)."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise OdinError("Standard output is closed.")
    return sys.stdout


def write_output(text: str, *, verbatim: bool = False) -> int:
    """Write a command's result to standard output and return exit code 0. Logins in URLs are masked.

    `verbatim` leaves them: in a patch, and in what the user reviews, where a mask could hide a command.
    """
    out = get_stdout()
    out.write(text if verbatim else mask_logins(text))
    out.flush()
    return 0


def write_json(value: Any, *, verbatim: bool = False) -> int:
    data = msgspec.json.encode(value)
    text = (escape_json(data) if get_stdout().isatty() else data).decode() + "\n"
    return write_output(text, verbatim=verbatim)


def write_table(lines: Sequence[Sequence[str]]) -> int:
    """Write lines of cells as columns, on a terminal cut at its width."""
    out = get_stdout()
    columns = get_terminal_size(out)[0] if out.isatty() else REDIRECTED_COLUMNS
    cells = [[escape_hidden(cell) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    texts = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
    return write_output("".join(f"{shorten(text.rstrip(), columns - 1)}\n" for text in texts))


def write_message(text: str) -> None:
    """Write a message to standard error, without logins in URLs, and with hidden and control characters escaped."""
    shown = "\n".join(map(escape_hidden, mask_logins(text).split("\n")))
    try:
        sys.stderr.write(f"{shown}\n")
    except (OSError, ValueError):
        return


ABOUT = """\
A coding agent for the terminal.

commands:
  odin models            list available models, including servers on this machine
  odin sessions          list, search, show, rename, fork, export or delete sessions
  odin usage             show tokens and cost by day, model, session, ...
  odin undo              undo the last prompt and its file changes
  odin redo              reverse the last undo
  odin replay SESSION    replay a recorded session and compare the results
  odin rules             list, add or remove permission rules
  odin agents            list agents: roles and types of sub-agents
  odin plugin            list, add or remove plugins
  odin skills            list the skills of the model, or check a folder of skills
  odin explain COMMAND   explain whether a command would run, and which rule decides
  odin trust             show, add, remove or list trusted folders
  odin doctor            check the installation, the settings or the models
  odin best TASK         have several agents do a task, and apply the best result
  odin eval              run small tasks with a model and print how many it solved
  odin auth              list, add or remove API keys
  odin provider          list, add or remove model servers by their URL
  odin mcp               list, add or remove MCP servers; serve Odin as one
  odin pair              let a browser or program use `odin serve`; list and revoke
  odin resume [ID]       same as --resume
  odin serve             serve sessions to browsers, programs and other machines
  odin gateway           answer messages from chats and webhooks; pair senders, list what failed
  odin onboard           make the workspace of the gateway
  odin status            show the version, the settings, the workspace and the gateway
  odin cron              list, add, remove or run schedules of the gateway
  odin trigger NAME      report something to the gateway, for a model to look at
  odin fleet             run many tasks at once; watch, report and compare runs
  odin share ID          share a session as a page without secrets; list and revoke
  odin acp               work as an agent of an editor: Zed, JetBrains, Neovim, Emacs, VS Code
  odin attach ID|URL     watch and steer a session that is open elsewhere
  odin headless          exchange JSON lines with a program: --format stream-json (the default) or jsonl
  odin migrate           import servers, rules, keys, sessions, ... of other agents
  odin import FILE       import an exported session or a transcript of another agent
  odin worktree          list, add, review, apply or remove git worktrees
  odin cleanup           show disk usage; remove old sessions, caches and logs
  odin completions SHELL print a completion script for bash, zsh or fish

`odin COMMAND --help` lists the flags of a command.
"""

_EPILOG = wrap_words(f"exit codes: {', '.join(f'{code} {words}' for code, words in EXIT_CODES.items())}", 100, " " * 12)

_IGNORED_FLAGS = (
    ("--betas", 1),
    ("--include-hook-events", 0),
    ("--permission-prompt-tool", 1),
    ("--session-mirror", 0),
    ("--setting-sources", 1),
    ("--settings", 1),
    ("--task-budget", 1),
    ("--thinking", 1),
    ("--thinking-display", 1),
)
"""Flags that agent SDKs pass and Odin ignores; rejecting them would keep those SDKs from starting Odin."""

PICK_SESSION = "?"
"""What `--resume` without an id stands for: a person chooses one."""


_INVALID_NUMBER = compile_lazily(r"argument (?:-\w/)?(\S+): invalid (?:int|float) value")
_INVALID_CHOICE = compile_lazily(r"argument (?:-\w/)?(\S+): invalid choice: '(.*)' \(choose from (.*)\)")
_UNKNOWN_ARGUMENTS = compile_lazily(r"unrecognized arguments: (.*)")
"""Messages of argparse that say too little."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError instead of exiting.

    `observer` is called with every parser before it parses, so that `odin completions` can read its flags.
    """

    observer: ClassVar[Callable[["Parser"], None] | None] = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._notify_observer()
        return super().parse_known_args(args, namespace)

    def parse_known_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._notify_observer()
        return super().parse_known_intermixed_args(args, namespace)

    def add_common_flags(self) -> None:
        self.add_argument("--json", action="store_true", help="print JSON")
        self.add_argument("--cwd", default="", metavar="DIR", help="project folder")

    def _notify_observer(self) -> None:
        if Parser.observer is not None:
            Parser.observer(self)

    def error(self, message: str) -> Any:
        if match := _INVALID_NUMBER.match(message):
            message = f"{match[1]} must be a number."
        elif match := _INVALID_CHOICE.match(message):
            message = _describe_invalid_choice(*match.groups())
        elif match := _UNKNOWN_ARGUMENTS.match(message):
            message = self._describe_unknown_arguments(match[1].split())
        else:
            message = f"{message[:1].upper()}{message[1:]}."
        raise UsageError(message, f"See `{self.prog} --help`.")

    def _describe_unknown_arguments(self, words: list[str]) -> str:
        flag = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
        if not flag:
            return f"Unexpected argument {words[0]!r}."
        shown = [name for action in self._actions if action.help != argparse.SUPPRESS for name in action.option_strings]
        return f"Unknown option {flag}.{suggest_similar(flag, shown)}"


def _describe_invalid_choice(name: str, value: str, listed: str) -> str:
    choices = [choice.strip(" '") for choice in listed.split(",")]
    where = f" for {name}" if name.startswith("-") else ""
    return f"Unknown value {value!r}{where}.{suggest_similar(value, choices)} Use {list_choices(choices)}."


def make_formatter(prog: str) -> argparse.HelpFormatter:
    """Return a help formatter with a fixed width: argparse would query the terminal."""
    return argparse.RawDescriptionHelpFormatter(prog, width=100)


def build_parser() -> argparse.ArgumentParser:
    shared = make_formatter("odin")  # argparse would make one for each flag, to check it
    parser = Parser(
        prog="odin",
        add_help=False,
        usage="odin [FLAGS] [PROMPT]\n       odin COMMAND [ARGUMENTS]",
        description=ABOUT,
        epilog=_EPILOG,
        formatter_class=lambda prog: shared,
        allow_abbrev=False,
    )
    add = parser.add_argument_group("the prompt, its input and output").add_argument
    add("prompt", nargs="?", help="the prompt; text piped to odin -p is added to it")
    add("-p", "--print", action="store_true", dest="headless", help="print the answer to one prompt and exit")
    add("-h", "--help", action="help", help="show this help and exit")
    add("-V", "--version", action="store_true", help="print the version and exit")
    add("--output-format", choices=("text", "json", "stream-json"), default="text", help="output of -p (default: text)")
    add("--input-format", choices=("text", "stream-json"), default="text", help="input of -p (default: text)")
    add("--format", choices=("stream-json", "jsonl"), default="", help="input and output of odin headless")
    add("--json-schema", default="", metavar="FILE|JSON", help="with -p: print JSON that matches this schema")
    add("--summary", metavar="FILE", help="with -p: append a summary of the run to a file, as Markdown")
    add(
        "--include-partial-messages",
        action="store_true",
        help="with stream-json or jsonl: include partial messages as they arrive",
    )
    add("--replay-user-messages", action="store_true", help="with stream-json: echo each accepted prompt")
    _add_model_flags(parser.add_argument_group("mode, model and limits").add_argument)
    _add_tool_flags(parser.add_argument_group("tools and permissions").add_argument)
    add = parser.add_argument_group("system prompt").add_argument
    add("--system-prompt", default=None, metavar="TEXT", help="replace the system prompt")
    add(
        "--system-prompt-file",
        default=None,
        metavar="FILE",
        help="replace the system prompt with the contents of a file",
    )
    add("--append-system-prompt", default="", metavar="TEXT", help="append to the system prompt")
    _add_session_flags(parser.add_argument_group("sessions").add_argument)
    add = parser.add_argument_group("where and how Odin runs").add_argument
    add("--plain", action="store_true", help="plain mode: ordinary lines instead of the terminal app")
    add("--cwd", default="", metavar="DIR", help="working directory")
    add_root_flag(add)
    add("--config-dir", metavar="DIR", help="settings and API keys (these three flags work with any command)")
    add("--state-dir", metavar="DIR", help="sessions and logs")
    add("--cache-dir", metavar="DIR", help="caches")
    add("--trust", action="store_true", help="trust this folder's hooks, rules and settings for this run")
    add("--debug", metavar="FILE", help="append requests, decisions and timings to a file, without secrets")
    add("--verbose", action="store_true", help="with -p: print the thinking and the sandbox to standard error")
    for name, count in _IGNORED_FLAGS:
        if count:
            add(name, action="append", help=argparse.SUPPRESS)
        else:
            add(name, action="store_true", help=argparse.SUPPRESS)
    parser.formatter_class = make_formatter
    return parser


_AddFlag = Callable[..., object]
"""`ArgumentParser.add_argument`."""


def add_root_flag(add: _AddFlag) -> None:
    what = "work in this folder, too; PATH:ro is read-only; repeatable"
    add("--add-dir", action="append", default=[], metavar="PATH", help=what)


def _add_model_flags(add: _AddFlag) -> None:
    add("--mode", default="", help="ask, plan or edit (default: edit)")
    add("--role", default="", metavar="NAME", help="builder (the default), planner or a role of your agent files")
    add("-m", "--model", default="", help="model to use, e.g. anthropic/claude-sonnet-5-5, openai/gpt-6-sol@high")
    add("--pool", default="", metavar="NAME", help="model pool to use, one of model_pools in your odinconfig.json")
    add(
        "--fallback-model",
        action="append",
        default=[],
        metavar="LIST",
        help="models to use while the main one is unavailable",
    )
    add("--effort", choices=EFFORTS, default="", metavar="LEVEL", help=f"reasoning effort: {', '.join(EFFORTS)}")
    add("--max-turns", type=int, metavar="N", help="maximum number of model calls; 0 (the default): no limit")
    add("--max-budget-usd", type=float, metavar="USD", help="stop when the session has cost this much; 0 is no limit")
    add("--max-thinking-tokens", type=int, metavar="N", help="token limit for thinking")


def _add_tool_flags(add: _AddFlag) -> None:
    add("--permission-mode", default="", help="default, acceptEdits, auto, dontAsk or bypassPermissions")
    add("--commands-ask", choices=("effects", "before"), help="ask about what commands changed, or before they run")
    add("-y", "--yes", action="store_true", help="approve every permission request")
    add(
        "--allowedTools",
        "--allowed-tools",
        action="append",
        default=[],
        metavar="LIST",
        help="tools to allow without asking",
    )
    add("--disallowedTools", "--disallowed-tools", action="append", default=[], metavar="LIST", help="tools to deny")
    add("--tools", default=None, metavar="LIST", help='only offer these built-in tools; "" for none, "default" for all')
    add("--mcp-config", action="append", default=[], metavar="FILE|JSON", help="more MCP servers, as in .mcp.json")
    add("--plugin-dir", action="append", default=[], metavar="DIR", help="use a plugin for this run; repeatable")
    add("--strict-mcp-config", action="store_true", help="use no MCP servers but those of --mcp-config")
    add("--agents", default="", metavar="JSON", help="more agents: name → description, prompt, tools, model")


def _add_session_flags(add: _AddFlag) -> None:
    add(
        "-r",
        "--resume",
        nargs="?",
        const=PICK_SESSION,
        default=None,
        metavar="ID",
        help="resume a session; without an ID, choose from a list",
    )
    add(
        "-c",
        "--continue",
        action="store_true",
        dest="continue_last",
        help="continue the latest session of this project",
    )
    add("--no-attach", action="store_true", help="refuse a session that another process has open")
    add("--fork-session", action="store_true", help="with --resume or --continue: continue in a copy")
    add("--at", default="", metavar="N|ID", help="with --fork-session: copy up to before the Nth last prompt")
    add("--session-id", default="", metavar="ID", help="ID for the new session")


def split_list(values: list[str]) -> list[str]:
    """Split lists of names at commas and spaces, except inside parentheses."""
    words: list[str] = []
    for value in values:
        depth, word = 0, ""
        for char in value:
            depth += (char == "(") - (char == ")")
            if char in ", " and depth <= 0:
                words.append(word)
                word = ""
            else:
                word += char
        words.append(word)
    return [word for word in words if word]


FOLDER_FLAGS = {"--config-dir": "ODIN_CONFIG_DIR", "--state-dir": "ODIN_STATE_DIR", "--cache-dir": "ODIN_CACHE_DIR"}
"""Flags that move Odin's folders, with the environment variables they override."""


def extract_folder_flags(argv: list[str], env: MutableMapping[str, str]) -> list[str]:
    """Remove the folder flags from the arguments before `--` and set their variables in `env`."""
    others: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            return [*others, word, *words]
        flag, equals, value = word.partition("=")
        if flag not in FOLDER_FLAGS:
            others.append(word)
            continue
        value = value if equals else next(words, "")
        if not value.strip():
            raise UsageError(f"{flag} needs a folder.", "See `odin --help`.")
        env[FOLDER_FLAGS[flag]] = str(Path(value).expanduser().absolute())
    return others


def read_api_key(owner: str) -> str:
    """Ask for an API key without showing it, or read it from a pipe."""
    if sys.stdin.isatty():
        from getpass import getpass

        try:
            return getpass(f"API key for {escape_hidden(owner)} (hidden): ")
        except EOFError:
            return ""
    return sys.stdin.buffer.read(MAX_KEY_LENGTH + 2).decode("utf-8", "replace")


def ask_line(question: str) -> str:
    """Return the typed line, or "" at the end of input or after Ctrl-C."""
    sys.stderr.write(question)
    sys.stderr.flush()
    try:
        return sys.stdin.readline()
    except KeyboardInterrupt:
        write_message("")
        return ""
