"""What the word before the cursor may become: a command, one of its arguments, or a file of the project."""

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from odin.core.client import CustomCommand
from odin.core.commands import BUILT_INS, built_in
from odin.ui.fuzzy import score

Kind = Literal["command", "argument", "file"]

_MENTION = re.compile(r"""(?:^|(?<=[\s('"`\[{<>=,;:]))@("[^"\n]*|[^\s"@]*)$""")
_RANGE = re.compile(r"\S:\d*-?\d*$")
_COMMAND = re.compile(r"/([^\s]*)$")
_ARGUMENT = re.compile(r"/(\S+)\s+(\S*)$")
_WORDS: dict[str, tuple[str, ...]] = {
    "loop": ("on", "off"),
    "yolo": ("on", "off"),
    "mouse": ("on", "off"),
    "vim": ("on", "off"),
    "theme": ("auto", "dark", "light"),
    "permissions": ("default", "acceptEdits", "plan", "dontAsk"),
    "compact": ("cancel",),
    "show": ("model", "mode", "sandbox", "rules", "context"),
    "list": ("models", "sessions", "rules", "commands", "tools"),
    "switch": ("model", "mode"),
}


class Wanted(Struct, frozen=True):
    """The letters that are to be completed, and at which columns of the line they stand. `of` is their command."""

    kind: Kind
    start: int
    end: int
    letters: str
    of: str = ""


class Choice(Struct, frozen=True):
    """One line of the list. `insert` takes the letters' place; with `more` it is not finished by that.

    With `runs` it can be sent as it stands then.
    """

    shown: str
    insert: str
    hint: str = ""
    sentence: str = ""
    more: bool = False
    runs: bool = False


def wanted(line: str, column: int, *, first: bool) -> Wanted | None:
    """What can be completed at this column; `first` says that the line is the first one of the text."""
    before = line[:column]
    if first and (found := _COMMAND.fullmatch(before)):
        return Wanted("command", 0, column, found[1])
    if first and (found := _ARGUMENT.fullmatch(before)):
        return Wanted("argument", found.start(2), column, found[2], found[1])
    found = _MENTION.search(before)
    if found is None or before[:1] == "!" or _RANGE.search(found[1]):
        return None
    return Wanted("file", found.start(), column, found[1].removeprefix('"'))


def commands(letters: str, custom: Sequence[CustomCommand]) -> list[Choice]:
    """The commands these letters may mean, the likeliest first."""
    scored: list[tuple[int, Choice]] = []
    for command in BUILT_INS:
        best = max(score(letters, name) for name in (command.name, *command.aliases))
        if best:
            scored.append((best, _command(command.name, command.hint, command.help)))
    for own in custom:
        if best := score(letters, own.name):
            scored.append((best, _command(own.name, own.hint, own.description or f"A command of the {own.source}.")))
    return [choice for _, choice in sorted(scored, key=lambda item: -item[0])]


def _command(name: str, hint: str, sentence: str) -> Choice:
    runs = not hint or hint.startswith("[")
    return Choice(f"/{name}", f"/{name} " if hint else f"/{name}", hint, sentence, more=not runs, runs=runs)


def is_command(text: str, custom: Sequence[CustomCommand]) -> bool:
    """Whether this is the whole name of a command, in any case."""
    name = text.removeprefix("/").casefold()
    return built_in(name) is not None or any(own.name.casefold() == name for own in custom)


def arguments(want: Wanted) -> list[Choice]:
    command = built_in(want.of)
    words = _WORDS.get(command.name, ()) if command is not None else ()
    scored = [(found, word) for word in words if (found := score(want.letters, word))]
    return [Choice(word, word, runs=True) for _, word in sorted(scored, key=lambda item: -item[0])]


def files(paths: Sequence[str]) -> list[Choice]:
    return [_file(path) for path in paths]


def _file(path: str) -> Choice:
    folder = path.endswith("/")
    if any(char.isspace() for char in path) and '"' not in path:
        return Choice(path, f'@"{path}' if folder else f'@"{path}" ', more=folder)
    return Choice(path, f"@{path}" if folder else f"@{path} ", more=folder)
