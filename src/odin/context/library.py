"""Texts that somebody wrote once to be sent by their name: custom commands, from files and from the configuration.

They are read when one is asked for. They are only words for the model: nothing in them is run.
"""

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, cast

from msgspec import Struct

from odin.context.shelf import MAX_BYTES, Shelf, plain, typable
from odin.core.client import CommandSource, CustomCommand
from odin.core.commands import reserved
from odin.core.text import mended

PROJECT_FOLDERS = (".odin/commands", ".claude/commands")
USER_FOLDER = "commands"
ARGUMENTS = "$ARGUMENTS"


class Place(Struct, frozen=True):
    """A folder of commands. With `within`, whatever leads out of that folder is left out."""

    folder: str
    source: CommandSource
    within: str = ""


class Written(Struct, frozen=True):
    """Commands of a configuration file: name → text, or name → {description, argument-hint, body}."""

    entries: Mapping[str, Any]
    source: CommandSource
    path: str = ""


class Text(Struct, frozen=True):
    """One command with its text. `instead` is the user's own of the same name that it took the place of, if any."""

    command: CustomCommand
    body: str
    path: str
    instead: str = ""

    def filled(self, arguments: str) -> str:
        """The text with the arguments in it, or behind it when it does not say where they go."""
        if ARGUMENTS in self.body:
            return self.body.replace(ARGUMENTS, arguments)
        return f"{self.body}\n\n{arguments}" if arguments else self.body


class Library:
    """Where commands come from, the strongest source first. It reads files, so it is asked in a thread of its own."""

    def __init__(self, sources: Iterable[Place | Written]) -> None:
        self._sources = tuple(
            (source, Shelf(source.folder, source.within) if isinstance(source, Place) else None) for source in sources
        )
        self._told: set[str] = set()
        self._untold: list[str] = []
        self._one_at_a_time = Lock()

    def commands(self) -> tuple[CustomCommand, ...]:
        """All of them, by name."""
        found = self._read()
        return tuple(found[name].command for name in sorted(found))

    def find(self, typed: str) -> tuple[Text, str] | None:
        """The command that a line begins with and what follows its name; None when it begins with none."""
        name, arguments = parted(typed)
        text = self._read().get(name.casefold()) if name else None
        return None if text is None else (text, arguments)

    def take_warnings(self) -> list[str]:
        """What is not used, and why: every sentence once."""
        told, self._untold = self._untold, []
        return told

    def _read(self) -> dict[str, Text]:
        found: dict[str, Text] = {}
        with self._one_at_a_time:
            for source, shelf in self._sources:
                for text in self._texts(source, shelf):
                    self._add(found, text)
        return found

    def _texts(self, source: Place | Written, shelf: Shelf | None) -> Iterator[Text]:
        if isinstance(source, Written):
            yield from self._in_config(source)
        elif shelf is not None:
            for page in shelf.pages(self._tell):
                yield _text(page.name, page.values, page.body, source.source, page.path)

    def _in_config(self, written: Written) -> Iterator[Text]:
        for name, value in written.entries.items():
            at = f"{written.path}: commands.{plain(name)}"
            said = cast("dict[str, Any]", value) if isinstance(value, dict) else {"body": value}
            texts = {key.replace("_", "-"): text for key, text in said.items()}
            body: Any = texts.get("body")
            if not typable(name):
                self._tell(f"{at} is not used: its name cannot be typed as one word.")
            elif not all(isinstance(text, str) for text in texts.values()) or body is None:
                self._tell(f"{at} is not used: it must be a text, or an object with body and description.")
            elif len(body) > MAX_BYTES:
                self._tell(f"{at} is not used: it is {len(body):,} characters long; {MAX_BYTES:,} is the limit.")
            else:
                yield _text(name, texts, body.strip(), written.source, at)

    def _add(self, found: dict[str, Text], text: Text) -> None:
        name = text.command.name.casefold()
        if reserved(name):
            self._tell(f"{text.path} is not used: /{name} is a command of Odin. Give it another name.")
        elif not text.body:
            self._tell(f"{text.path} is not used: the command /{name} has no text.")
        elif name not in found:
            found[name] = text
        elif _users(text) and not _users(first := found[name]):
            found[name] = Text(first.command, first.body, first.path, first.instead or text.path)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._untold.append(text)


def parted(typed: str) -> tuple[str, str]:
    """The name a line begins with, without its slash, and the rest of the line; "" when it begins with none."""
    line = typed.strip()
    if not line.startswith("/") or line[1:2].isspace():
        return "", ""
    word, *rest = line[1:].split(maxsplit=1) or [""]
    return word, rest[0] if rest else ""


def _users(text: Text) -> bool:
    return text.command.source in ("user", "user config")


def _text(name: str, values: Mapping[str, str], body: str, source: CommandSource, path: str) -> Text:
    first = next((line.strip("# \t") for line in body.splitlines() if line.strip("# \t")), "")
    description = plain(values.get("description", "") or first)
    hint = plain(values.get("argument-hint", "") or values.get("hint", ""))
    return Text(CustomCommand(name, description, hint, source), mended(body), path)
