"""The keys and the commands, made from the tables that the app itself goes by."""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct
from rich.text import Text

from odin.core.client import CustomCommand
from odin.core.commands import BUILT_INS, BuiltIn
from odin.ui.terminal import visible
from odin.ui.tui.dialogs.picker import Picker
from odin.ui.tui.dialogs.rows import Drawn
from odin.ui.tui.keynames import spelled
from odin.ui.tui.keys import Key, Where

_LEFT, _NARROW = 20, 12
_WIDE = 70

_PLACES: dict[Where, str] = {
    "everywhere": "Everywhere",
    "composer": "In the prompt",
    "transcript": "In the conversation",
    "permission": "When Odin asks for permission",
    "questions": "When Odin asks questions",
    "popup": "In the list that completes the prompt",
    "queue": "In the list of prompts that wait",
    "search": "In the line that searches the conversation",
    "answers": "Among the answers to a question",
    "step": "In a line of a question",
    "confirm": "When Odin asks yes or no",
    "welcome": "In the welcome",
    "dialog": "In every window",
    "list": "In every list",
    "sessions": "In the list of sessions",
    "models": "In the list of models",
    "rules": "In the list of rules",
    "rule": "In a new rule",
    "rewind": "When going back",
    "contents": "In the contents",
    "errors": "In the list of errors",
    "reading": "In a window to read",
    "stats": "In the statistics",
}

_FIRST: tuple[Where, ...] = ("composer", "everywhere", "transcript", "permission", "questions", "popup", "queue")

Kind = Literal["key", "command", "custom"]


class Entry(Struct, frozen=True):
    """One line of the help. `left` is the key or the command, `name` what it is called in the settings."""

    kind: Kind
    left: str
    what: str
    name: str
    more: str = ""


class HelpDialog(Picker[Entry]):
    """Type to find a key or a command. Enter takes a command to the prompt."""

    HEAD = "Help"
    EMPTY = "Nothing fits these words."
    ENTER = "take a command to the prompt"
    BESIDE = "always"

    async def load(self) -> Sequence[Entry]:
        custom = await self.odin.client.commands()
        return [*_keys(self.odin.keys.keys), *_commands(BUILT_INS), *_custom(custom)]

    def text_of(self, item: Entry) -> str:
        return f"{item.kind} {item.left} {item.what} {item.name} {item.more}".casefold()

    def draw(self, item: Entry) -> Drawn:
        colours = self.colours
        room = _LEFT if self.size.width >= _WIDE else _NARROW
        line = Text(f"{item.left:<{room}} ", colours.accent if item.kind == "key" else colours.user)
        line.append(item.what, colours.text)
        return line, ()

    async def about(self, item: Entry) -> Text:
        colours = self.colours
        text = Text().append(f"{item.left}\n", colours.strong)
        text.append(f"{item.what}\n", colours.text)
        if item.more:
            text.append(f"\n{item.more}\n", colours.dim)
        return text

    async def choose(self, item: Entry) -> None:
        self.dismiss(f"/{item.name} " if item.kind != "key" else None)


def place_of(where: Where) -> str:
    """In which part of the screen a key works."""
    return _PLACES.get(where, f"In the {where}")


def _place(key: Key) -> int:
    return _FIRST.index(key.where) if key.where in _FIRST else len(_FIRST)


def _keys(keys: Iterable[Key]) -> list[Entry]:
    """What is used most comes first: the prompt, then what works everywhere, then the other parts of the screen."""
    found: list[Entry] = []
    for key in sorted(keys, key=_place):
        each = [spelled(one.strip()) for one in key.keys.split(",") if one.strip()]
        also = f"Also {', '.join(each[1:])}. " if len(each) > 1 else ""
        named = f'tui.keys {{"{key.name}": "…"}} gives it another key.'
        more = f"{also}{place_of(key.where)}. Its name is {key.name}: {named}"
        found.append(Entry("key", each[0] if each else "(no key)", key.what, key.name, more))
    return found


def _commands(commands: Iterable[BuiltIn]) -> list[Entry]:
    found: list[Entry] = []
    for command in commands:
        also = ", ".join(f"/{name}" for name in command.aliases)
        more = f"Also {also}." if also else ""
        found.append(Entry("command", f"/{command.name} {command.hint}".rstrip(), command.help, command.name, more))
    return found


def _custom(commands: Iterable[CustomCommand]) -> list[Entry]:
    return [
        Entry(
            "custom",
            visible(f"/{command.name} {command.hint}".rstrip()),
            visible(command.description) or "A command of your own.",
            command.name,
            f"From the {command.source}.",
        )
        for command in commands
    ]
