"""Slash commands that send a prompt: Odin's own, and custom ones from folders of Markdown files and the configuration.

A custom command replaces one of Odin's own with the same name. Commands are read on demand and are only text for the
model: nothing in them is executed. Front matter is YAML. Real files often contain values that are not valid YAML, such
as `argument-hint: [a] [b]`; those values are read as plain text, so parsing never fails. Links that lead out of a
project are not followed: a cloned repository must not be able to send any file of this machine to the model.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, cast

from msgspec import Struct

from odin.core.client import CommandSource, CustomCommand
from odin.core.slash_commands import is_reserved
from odin.core.text import to_valid_unicode

_INIT = """\
Write instructions for coding agents that will work in this repository, in AGENTS.md at its root.

If AGENTS.md exists, improve it: keep what is right, correct what is wrong, add what is missing. If there is no \
AGENTS.md but an ODIN.md or CLAUDE.md, improve that file instead of writing a second one.

First look at the repository: the README, the build and package files, the CI configuration, rules for other tools \
(.cursor/rules, .cursorrules, .github/copilot-instructions.md), the layout of the source, a few typical files and tests.

Then write down what an agent cannot see at a glance:
- the commands to build, lint, format and test, and how to run a single test;
- the architecture: the main parts, how they work together, where to start reading;
- conventions that the code follows and a newcomer would break, and pitfalls.

Take every command and name from the repository; try commands that only read. Leave out what is obvious, general \
advice and lists of files. Stay under 100 lines. End with a summary of what you wrote or changed.

$ARGUMENTS
"""

_REVIEW = """\
Review a change in this repository. What to review: $ARGUMENTS

- Nothing is named: review the uncommitted changes (`git status`, `git diff HEAD`), and read new files.
- A branch: review what it adds to the default branch (`git diff main...BRANCH`). The default branch itself: review \
what the current branch adds to it (`git diff main...HEAD`).
- A commit or a range: review that (`git show COMMIT`, `git diff RANGE`).

Read enough of the code around the change to judge it. Do not change any file.

Look for what matters, in this order: wrong behavior, missing cases and error handling, security, data loss, races, \
broken callers and interfaces, performance, missing or weak tests, documentation that is now wrong. Do not comment on \
formatting or taste. Check each finding against the code before you report it.

Answer with the findings, most severe first. For each one: `file:line`, what is wrong, an input or a situation in \
which it fails, and how to fix it. If there are none, say so. End with one sentence: can this be merged?
"""

BUILTIN_COMMANDS: dict[str, dict[str, Any]] = {
    "init": {
        "description": "Write or improve AGENTS.md, the project's instructions for coding agents.",
        "argument-hint": "[INSTRUCTIONS]",
        "body": _INIT,
    },
    "review": {
        "description": "Review the uncommitted changes, or a branch or commit.",
        "argument-hint": "[BRANCH|COMMIT]",
        "body": _REVIEW,
    },
}


_FENCE = "---"
MAX_FRONT_MATTER_LINES = 200
"""A fence that is not closed within this many lines is part of the text."""


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter with lowercase keys, and the text. Without a closing fence everything is text.

    Scalars are strings, as written; lists and mappings are nested.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        return {}, text.strip()
    end = next(
        (at for at, line in enumerate(lines[1:MAX_FRONT_MATTER_LINES], 1) if line.rstrip() in (_FENCE, "...")), None
    )
    if end is None:
        return {}, text.strip()
    return _parse_values(lines[1:end]), "\n".join(lines[end + 1 :]).strip()


def _parse_values(lines: list[str]) -> dict[str, Any]:
    values: dict[Any, Any] | None = _load_yaml("\n".join(lines))
    if values is None:
        values = {}
        for block in _split_blocks(lines):
            values.update(_parse_block(block))
    return {str(key).strip().casefold().replace("_", "-"): value for key, value in values.items()}


def _load_yaml(text: str) -> dict[Any, Any] | None:
    """Return the mapping in the text with all scalars as strings, or None if it is not one."""
    import yaml

    try:
        value: Any = yaml.load(text, yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else None


def _split_blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield each top-level key with its continuation lines."""
    block: list[str] = []
    for line in lines:
        if line.strip() and not line[0].isspace() and not line.startswith(("- ", "#")) and block:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _parse_block(block: list[str]) -> dict[Any, Any]:
    """Return the key and value of one block. A value that is not valid YAML is taken as text."""
    values = _load_yaml("\n".join(block))
    if values is not None:
        return values
    name, colon, first = block[0].partition(":")
    return {name: " ".join(part for line in [first, *block[1:]] if (part := line.strip()))} if colon else {}


def text_of(value: Any) -> str:
    """Return a front matter value as one line of text."""
    if isinstance(value, list):
        return f"[{', '.join(text_of(item) for item in cast('list[Any]', value))}]"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {text_of(item)}" for key, item in cast("dict[Any, Any]", value).items())
    return str(value)


MAX_BYTES = 64 * 1024
MAX_FILES = 500
MAX_DEPTH = 8
MAX_SCANNED = 5_000
_MAX_LINE = 200

Warn = Callable[[str], None]
"""Receives what was skipped and why."""


class MarkdownFile(Struct, frozen=True):
    """One file: its name relative to the folder without suffix, its front matter, and its text."""

    name: str
    path: str
    values: dict[str, Any]
    body: str


class _ParsedFile(Struct, frozen=True):
    """A parsed file and the stamp it had. `fault` says why it is skipped."""

    stamp: tuple[int, int, int]
    values: dict[str, Any]
    body: str = ""
    error: str = ""


class MarkdownFolder:
    """A folder of Markdown files with a cache. With `within`, anything that leads outside is skipped."""

    def __init__(self, folder: str, within: str = "") -> None:
        self._folder = folder
        self._within = within
        self._files: dict[str, _ParsedFile] = {}

    def read_files(self, warn: Warn) -> Iterator[MarkdownFile]:
        """Yield the files sorted by name."""
        before, self._files = self._files, {}
        for name, path, found in _MarkdownWalk(self._folder, self._within, warn).walk():
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            known = before.get(path)
            seen = known if known is not None and known.stamp == stamp else _parse_file(path, stamp)
            self._files[path] = seen
            if seen.error:
                warn(f"{to_plain_line(path)} is ignored: {seen.error}")
            else:
                yield MarkdownFile(name, to_plain_line(path), seen.values, seen.body)


class _MarkdownWalk:
    """The Markdown files below a folder, sorted by name; each folder is entered once."""

    def __init__(self, folder: str, within: str, warn: Warn) -> None:
        self._folder = folder
        self._within = os.path.realpath(within) if within else ""
        self._warn = warn
        self._entered: set[str] = set()
        self._scanned = 0
        self._found = 0

    def walk(self) -> Iterator[tuple[str, str, os.stat_result]]:
        """Yield the name of each command, its path, and its stat result."""
        if Path(self._folder).is_dir() and self._is_inside(self._folder):
            yield from self._walk_folder(self._folder, (), MAX_DEPTH)

    def _walk_folder(
        self, folder: str, names: tuple[str, ...], depth: int
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        real = os.path.realpath(folder)
        if real in self._entered:
            return
        self._entered.add(real)
        for name in self._list_names(folder):
            self._scanned += 1
            if self._is_full():
                return
            path = f"{folder}/{name}"
            try:
                found = Path(path).stat()
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode):
                if depth and not name.startswith(".") and self._is_inside(path):
                    yield from self._walk_folder(path, (*names, name), depth - 1)
            elif name.endswith(".md") and stat.S_ISREG(found.st_mode) and self._is_inside(path):
                yield from self._yield_file((*names, name.removesuffix(".md")), path, found)

    def _yield_file(
        self, names: tuple[str, ...], path: str, found: os.stat_result
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        name = "/".join(names)
        if not is_typable(name):
            self._warn(f"{to_plain_line(path)} is ignored: its name must be one word.")
            return
        self._found += 1
        yield name, path, found

    def _list_names(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for _, entry in zip(range(MAX_SCANNED), entries, strict=False))
        except OSError as error:
            self._warn(f"{to_plain_line(folder)} cannot be read: {error.strerror or error}.")
            return []

    def _is_full(self) -> bool:
        full = self._scanned > MAX_SCANNED or self._found >= MAX_FILES
        if full:
            folder = to_plain_line(self._folder)
            self._warn(f"{folder} holds more than {MAX_FILES} commands or other files; some are ignored.")
        return full

    def _is_inside(self, path: str) -> bool:
        if not self._within or Path(os.path.realpath(path)).is_relative_to(self._within):
            return True
        self._warn(f"{to_plain_line(path)} points outside the project and is ignored.")
        return False


def _parse_file(path: str, stamp: tuple[int, int, int]) -> _ParsedFile:
    if stamp[1] > MAX_BYTES:
        return _ParsedFile(stamp, {}, error=f"it is {stamp[1]:,} bytes long; {MAX_BYTES:,} is the limit.")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            raw = file.read(MAX_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b"\0"
    except OSError as error:
        return _ParsedFile(stamp, {}, error=f"it cannot be read ({error.strerror or error}).")
    if b"\0" in raw:
        return _ParsedFile(stamp, {}, error="it is not a text file.")
    values, body = split_front_matter(raw[:MAX_BYTES].decode("utf-8-sig", "replace"))
    return _ParsedFile(stamp, values, body)


def to_plain_line(text: str) -> str:
    """Return the text as one line without control characters or direction marks."""
    line = " ".join(text.split())
    shown = "".join(char if char.isprintable() else "\ufffd" for char in line)
    return shown if len(shown) <= _MAX_LINE else shown[: _MAX_LINE - 1] + "…"


def is_typable(name: str) -> bool:
    """True if the name can be typed as one word and is not misleading."""
    return (
        0 < len(name) <= _MAX_LINE
        and name.isprintable()
        and not any(char.isspace() for char in name)
        and all(part and not part.startswith(".") for part in name.split("/"))
    )


PROJECT_FOLDERS = (".odin/commands", ".claude/commands")
USER_FOLDER = "commands"
ARGUMENTS = "$ARGUMENTS"


class CommandFolder(Struct, frozen=True):
    """A folder of commands. With `within`, anything that leads outside that folder is skipped."""

    folder: str
    source: CommandSource
    within: str = ""


class ConfiguredCommands(Struct, frozen=True):
    """Commands from a configuration file: name → text, or name → {description, argument-hint, body}."""

    entries: Mapping[str, Any]
    source: CommandSource
    path: str = ""


class CommandText(Struct, frozen=True):
    """A command and its text. `overridden_path`: a command of the user's or Odin's that a project's replaces."""

    command: CustomCommand
    body: str
    path: str
    overridden_path: str = ""

    def fill(self, arguments: str) -> str:
        """Return the text with the arguments inserted, or appended if it has no `$ARGUMENTS`."""
        if ARGUMENTS in self.body:
            return self.body.replace(ARGUMENTS, arguments)
        return f"{self.body}\n\n{arguments}" if arguments else self.body


class CommandLibrary:
    """The sources of commands, strongest first. It reads files, so call it in a thread."""

    def __init__(self, sources: Iterable[CommandFolder | ConfiguredCommands]) -> None:
        self._sources = tuple(
            (source, MarkdownFolder(source.folder, source.within) if isinstance(source, CommandFolder) else None)
            for source in sources
        )
        self._reported: set[str] = set()
        self._pending_warnings: list[str] = []
        self._lock = Lock()

    def list_commands(self) -> tuple[CustomCommand, ...]:
        """Return all commands, sorted by name."""
        found = self._read_all()
        return tuple(found[name].command for name in sorted(found))

    def find(self, typed: str) -> tuple[CommandText, str] | None:
        """Return the command a line starts with and the rest of the line, or None."""
        name, arguments = split_command(typed)
        text = self._read_all().get(name.casefold()) if name else None
        return None if text is None else (text, arguments)

    def take_warnings(self) -> list[str]:
        """Return what was skipped and why, each warning once."""
        warnings, self._pending_warnings = self._pending_warnings, []
        return warnings

    def _read_all(self) -> dict[str, CommandText]:
        found: dict[str, CommandText] = {}
        with self._lock:
            for source, folder in self._sources:
                for text in self._read_source(source, folder):
                    self._add(found, text)
        return found

    def _read_source(
        self, source: CommandFolder | ConfiguredCommands, folder: MarkdownFolder | None
    ) -> Iterator[CommandText]:
        if isinstance(source, ConfiguredCommands):
            yield from self._read_config(source)
        elif folder is not None:
            for page in folder.read_files(self._warn):
                yield _make_text(page.name, page.values, page.body, source.source, page.path)

    def _read_config(self, written: ConfiguredCommands) -> Iterator[CommandText]:
        for name, value in written.entries.items():
            at = f"{written.path}: commands.{to_plain_line(name)}"
            fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {"body": value}
            texts = {key.replace("_", "-"): text for key, text in fields.items()}
            body: Any = texts.get("body")
            if not is_typable(name):
                self._warn(f"{at} is ignored: its name must be one word.")
            elif not all(isinstance(text, str) for text in texts.values()) or body is None:
                self._warn(f"{at} is ignored: it must be a string, or an object with body and description.")
            elif len(body) > MAX_BYTES:
                self._warn(f"{at} is ignored: it is {len(body):,} characters long; {MAX_BYTES:,} is the limit.")
            else:
                yield _make_text(name, texts, body.strip(), written.source, at)

    def _add(self, found: dict[str, CommandText], text: CommandText) -> None:
        name = text.command.name.casefold()
        if is_reserved(name):
            self._warn(f"{text.path} is ignored: /{name} is a built-in command. Rename it.")
        elif not text.body:
            self._warn(f"{text.path} is ignored: the command /{name} is empty.")
        elif name not in found:
            found[name] = text
        elif not _is_from_project(text) and _is_from_project(first := found[name]):
            found[name] = CommandText(first.command, first.body, first.path, first.overridden_path or text.path)

    def _warn(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._pending_warnings.append(text)


def split_command(typed: str) -> tuple[str, str]:
    """Return the name a line starts with, without its slash, and the rest; "" if it starts with none."""
    line = typed.strip()
    if not line.startswith("/") or line[1:2].isspace():
        return "", ""
    word, *rest = line[1:].split(maxsplit=1) or [""]
    return word, rest[0] if rest else ""


def _is_from_project(text: CommandText) -> bool:
    return text.command.source in ("project", "project config")


def _make_text(name: str, values: Mapping[str, Any], body: str, source: CommandSource, path: str) -> CommandText:
    first = next((line.strip("# \t") for line in body.splitlines() if line.strip("# \t")), "")
    description = to_plain_line(text_of(values.get("description", "")) or first)
    hint = to_plain_line(text_of(values.get("argument-hint", "") or values.get("hint", "")))
    return CommandText(CustomCommand(name, description, hint, source), to_valid_unicode(body), path)
