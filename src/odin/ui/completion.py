"""How well a few letters go with a text.

What the word before the cursor may become: a command, one of its arguments, or a file of the project.
"""

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from odin.core.client import CustomCommand
from odin.core.slash_commands import SLASH_COMMANDS, find_slash_command

EXACT_PART_SCORE = 50_000
"""From here on every word stands in the text as it is."""


def score_match(words: str, text: str) -> int:
    """0 when the letters do not occur in this order; higher the better: the whole, its beginning, a part, the letters.

    Every word has to be found; only letters count, not their case.
    """
    sought, where = words.casefold().strip(), text.casefold()
    if not sought:
        return 1
    if where == sought:
        return 1_000_000
    if where.startswith(sought):
        return 500_000 - min(len(where), 1000)
    found = [_score_word(word, where) for word in sought.split()]
    return 0 if 0 in found else min(found)


def _score_word(word: str, where: str) -> int:
    at = where.find(word)
    if at >= 0:
        begins = at == 0 or not where[at - 1].isalnum()
        return (200_000 if begins else 100_000) - min(at, 1000)
    place, first = -1, 0
    for letter in word:
        place = where.find(letter, place + 1)
        if place < 0:
            return 0
        first = first or place + 1
    spread = place + 1 - first - len(word)
    return max(1, 10_000 - 50 * spread) if spread <= 2 * len(word) else 0


CompletionKind = Literal["command", "argument", "file"]

_MENTION = re.compile(r"""(?:^|(?<=[\s('"`\[{<>=,;:]))@("[^"\n]*|[^\s"@]*)$""")
_RANGE = re.compile(r"\S:\d*-?\d*$")
_COMMAND = re.compile(r"/([^\s]*)$")
_ARGUMENT = re.compile(r"/(\S+)\s+(\S*)$")
_ARGUMENT_WORDS: dict[str, tuple[str, ...]] = {
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


class CompletionTarget(Struct, frozen=True):
    """The letters that are to be completed, and at which columns of the line they stand. `of` is their command."""

    kind: CompletionKind
    start: int
    end: int
    letters: str
    command: str = ""


class CompletionItem(Struct, frozen=True):
    """One line of the list. `insert` takes the letters' place; with `more` it is not finished by that.

    With `runs` it can be sent as it stands then.
    """

    label: str
    insert: str
    hint: str = ""
    help: str = ""
    continues: bool = False
    is_runnable: bool = False


def find_target(line: str, column: int, *, first: bool) -> CompletionTarget | None:
    """What can be completed at this column; `first` says that the line is the first one of the text."""
    before = line[:column]
    if first and (found := _COMMAND.fullmatch(before)):
        return CompletionTarget("command", 0, column, found[1])
    if first and (found := _ARGUMENT.fullmatch(before)):
        return CompletionTarget("argument", found.start(2), column, found[2], found[1])
    found = _MENTION.search(before)
    if found is None or before[:1] == "!" or _RANGE.search(found[1]):
        return None
    return CompletionTarget("file", found.start(), column, found[1].removeprefix('"'))


def complete_command(letters: str, custom: Sequence[CustomCommand]) -> list[CompletionItem]:
    """The commands these letters may mean, the likeliest first."""
    scored: list[tuple[int, CompletionItem]] = []
    for command in SLASH_COMMANDS:
        best = max(score_match(letters, name) for name in (command.name, *command.aliases))
        if best:
            scored.append((best, _make_command_item(command.name, command.hint, command.help)))
    for own in custom:
        if best := score_match(letters, own.name):
            scored.append(
                (best, _make_command_item(own.name, own.hint, own.description or f"A command of the {own.source}."))
            )
    return [choice for _, choice in sorted(scored, key=lambda item: -item[0])]


def _make_command_item(name: str, hint: str, sentence: str) -> CompletionItem:
    runs = not hint or hint.startswith("[")
    return CompletionItem(
        f"/{name}", f"/{name} " if hint else f"/{name}", hint, sentence, continues=not runs, is_runnable=runs
    )


def is_command(text: str, custom: Sequence[CustomCommand]) -> bool:
    """Whether this is the whole name of a command, in any case."""
    name = text.removeprefix("/").casefold()
    return find_slash_command(name) is not None or any(own.name.casefold() == name for own in custom)


def complete_argument(want: CompletionTarget) -> list[CompletionItem]:
    command = find_slash_command(want.command)
    words = _ARGUMENT_WORDS.get(command.name, ()) if command is not None else ()
    scored = [(found, word) for word in words if (found := score_match(want.letters, word))]
    return [CompletionItem(word, word, is_runnable=True) for _, word in sorted(scored, key=lambda item: -item[0])]


def make_file_items(paths: Sequence[str]) -> list[CompletionItem]:
    return [_make_file_item(path) for path in paths]


def _make_file_item(path: str) -> CompletionItem:
    folder = path.endswith("/")
    if any(char.isspace() for char in path) and '"' not in path:
        return CompletionItem(path, f'@"{path}' if folder else f'@"{path}" ', continues=folder)
    return CompletionItem(path, f"@{path}" if folder else f"@{path} ", continues=folder)
