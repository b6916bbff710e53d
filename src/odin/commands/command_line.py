"""What a command prints: its result, and what it has to say beside it.

The flags of `odin`, and what they mean.

The flags that move Odin's folders. They hold for every command, wherever they stand on its line.
"""

import argparse
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, ClassVar

from odin.core.errors import OdinError, UsageError


def write_output(text: str) -> int:
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise OdinError("Standard output is closed, so there is nowhere to write the list.")
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def write_message(text: str) -> None:
    """A message. What it repeats of a file cannot steer the terminal or hide in it."""
    from odin.ui.terminal import escape_hidden

    shown = "\n".join(map(escape_hidden, text.split("\n")))
    try:
        sys.stderr.write(f"{shown}\n")
    except (OSError, ValueError):
        return


EPILOG = """\
commands:
  odin models            the models that can be used, with local servers found on this machine
  odin sessions          the sessions of this project; also search, show, rename, fork, export and delete
  odin usage             tokens and cost by day, model, session, ...; also --today, --days N and --everywhere
  odin undo              take the last prompt back, with what it did to files; also --list and --to
  odin redo              take that back
  odin replay SESSION    play a session again in a scratch copy, and say whether the same things happened
  odin rules             what is allowed, asked about and denied here; also add and remove
  odin explain COMMAND   whether a command would run, and which rule says so; also --tool NAME PATH
  odin trust             what this folder asks to be trusted with; also add, remove and list
  odin doctor            whether what Odin needs is here, and which sandbox it uses; also config and models
  odin auth              the keys of providers; also add and remove
  odin resume [ID]       the same as --resume
  odin headless          the same as -p --input-format stream-json --output-format stream-json
  odin import FILE       a session that was exported, or a transcript of another agent, as a new session
  odin worktree          work trees of this repository for work beside yours; add, list and remove
  odin cleanup           what Odin keeps on disk; also sessions, cache, logs and project, which remove with --yes
  odin completions SHELL what bash, zsh or fish need to complete these lines

exit codes: 0 done, 1 failed, 2 wrong usage, 75 failed but worth trying again, 130 interrupted, 143 terminated
"""

_IGNORED_FLAGS = (
    ("--add-dir", 1),
    ("--agents", 1),
    ("--betas", 1),
    ("--effort", 1),
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

REPORTED_FLAGS = ("--add-dir", "--agents", "--json-schema", "--mcp-config", "--plugin-dir")
"""Those of them that a person would miss, so their absence is said."""


PICK_SESSION = "?"
"""What `--resume` without an id stands for: a person chooses one."""


class Parser(argparse.ArgumentParser):
    observer: ClassVar[Callable[["Parser"], None] | None] = None
    """Is shown every parser before it reads a line: what it knows is told in one place only."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._notify_observer()
        return super().parse_known_args(args, namespace)

    def parse_known_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._notify_observer()
        return super().parse_known_intermixed_args(args, namespace)

    def _notify_observer(self) -> None:
        if Parser.observer is not None:
            Parser.observer(self)

    def error(self, message: str) -> Any:
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", "See `odin --help`.")


def make_formatter(prog: str) -> argparse.HelpFormatter:
    """With a width of its own: argparse makes a formatter for every flag, and each would look for the terminal's."""
    return argparse.RawDescriptionHelpFormatter(prog, width=100)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="odin",
        description="A coding agent for the terminal.",
        epilog=EPILOG,
        formatter_class=make_formatter,
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
    add("--fallback-model", action="append", default=[], metavar="LIST", help="models to ask while it cannot answer")
    add("--max-turns", type=int, metavar="N", help="model calls for this prompt at most, 0 for no limit (100)")
    add("--max-budget-usd", type=float, metavar="USD", help="ask no model any more once the session has cost this")
    add("--max-thinking-tokens", type=int, metavar="N", help="tokens the model may think with")
    add("--permission-mode", default="", help="default, acceptEdits, plan, dontAsk or bypassPermissions")
    add("-y", "--yes", action="store_true", help="answer every permission question with yes")
    add("--allowedTools", "--allowed-tools", action="append", default=[], metavar="LIST", help="run without asking")
    add("--disallowedTools", "--disallowed-tools", action="append", default=[], metavar="LIST", help="never run")
    add("--tools", default=None, metavar="LIST", help='offer only these tools; "" for none, "default" for all')
    add("--system-prompt", default=None, metavar="TEXT", help="replace the system prompt")
    add("--system-prompt-file", default=None, metavar="FILE", help="replace the system prompt by a file's text")
    add("--append-system-prompt", default="", metavar="TEXT", help="add to the system prompt")
    add(
        "-r",
        "--resume",
        nargs="?",
        const=PICK_SESSION,
        default=None,
        metavar="ID",
        help="continue this session; without an id, choose one",
    )
    add("-c", "--continue", action="store_true", dest="continue_last", help="continue the latest session here")
    add("--fork-session", action="store_true", help="with --resume or --continue: go on in a copy")
    add("--at", default="", metavar="N|ID", help="with --fork-session: only what was before the N-th last prompt")
    add("--session-id", default="", metavar="ID", help="the id of the new session")
    add("--plain", action="store_true", help="ordinary lines in the ordinary scrollback instead of the terminal app")
    add("--cwd", default="", metavar="DIR", help="work in this folder")
    add("--config-dir", metavar="DIR", help="Odin's own settings and keys are there; any command takes these three")
    add("--state-dir", metavar="DIR", help="sessions are kept there")
    add("--cache-dir", metavar="DIR", help="what can be made again is kept there")
    add("--trust", action="store_true", help="trust this folder for this run: its hooks, rules and settings count")
    add("--verbose", action="store_true", help=argparse.SUPPRESS)
    for name, count in _IGNORED_FLAGS:
        if count:
            add(name, action="append", help=argparse.SUPPRESS)
        else:
            add(name, action="store_true", help=argparse.SUPPRESS)
    return parser


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


FOLDER_FLAGS = {
    "--config-dir": "ODIN_CONFIG_DIR",
    "--state-dir": "ODIN_STATE_DIR",
    "--cache-dir": "ODIN_CACHE_DIR",
}
"""Each flag with the variable it stands for. A flag wins over the environment."""


def extract_folder_flags(argv: list[str], env: MutableMapping[str, str]) -> list[str]:
    """The line without these flags, which are put into the environment. What comes after `--` is left alone."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            return [*kept, word, *words]
        flag, equals, value = word.partition("=")
        if flag not in FOLDER_FLAGS:
            kept.append(word)
            continue
        value = value if equals else next(words, "")
        if not value.strip():
            raise UsageError(f"{flag} needs a folder.", "See `odin --help`.")
        env[FOLDER_FLAGS[flag]] = str(Path(value).expanduser().absolute())
    return kept
