"""Custom slash commands from files and from the configuration.

They are read on demand. They are only text for the model: nothing in them is executed.
"""

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, cast

from msgspec import Struct

from odin.context.markdown_folder import MAX_BYTES, MarkdownFolder, is_typable, text_of, to_plain_line
from odin.core.client import CommandSource, CustomCommand
from odin.core.slash_commands import is_reserved
from odin.core.text import to_valid_unicode

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
    """A command and its text. `instead` is the user's own command of the same name that it overrides, if any."""

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
        told, self._pending_warnings = self._pending_warnings, []
        return told

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
            said = cast("dict[str, Any]", value) if isinstance(value, dict) else {"body": value}
            texts = {key.replace("_", "-"): text for key, text in said.items()}
            body: Any = texts.get("body")
            if not is_typable(name):
                self._warn(f"{at} is not used: its name cannot be typed as one word.")
            elif not all(isinstance(text, str) for text in texts.values()) or body is None:
                self._warn(f"{at} is not used: it must be a text, or an object with body and description.")
            elif len(body) > MAX_BYTES:
                self._warn(f"{at} is not used: it is {len(body):,} characters long; {MAX_BYTES:,} is the limit.")
            else:
                yield _make_text(name, texts, body.strip(), written.source, at)

    def _add(self, found: dict[str, CommandText], text: CommandText) -> None:
        name = text.command.name.casefold()
        if is_reserved(name):
            self._warn(f"{text.path} is not used: /{name} is a command of Odin. Give it another name.")
        elif not text.body:
            self._warn(f"{text.path} is not used: the command /{name} has no text.")
        elif name not in found:
            found[name] = text
        elif _is_users_own(text) and not _is_users_own(first := found[name]):
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


def _is_users_own(text: CommandText) -> bool:
    return text.command.source in ("user", "user config")


def _make_text(name: str, values: Mapping[str, Any], body: str, source: CommandSource, path: str) -> CommandText:
    first = next((line.strip("# \t") for line in body.splitlines() if line.strip("# \t")), "")
    description = to_plain_line(text_of(values.get("description", "")) or first)
    hint = to_plain_line(text_of(values.get("argument-hint", "") or values.get("hint", "")))
    return CommandText(CustomCommand(name, description, hint, source), to_valid_unicode(body), path)
