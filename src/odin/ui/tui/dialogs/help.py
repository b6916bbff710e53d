"""The keys and the commands, made from the tables that the app itself goes by."""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct
from rich.text import Text

from odin.core.client import CustomCommand
from odin.core.slash_commands import SLASH_COMMANDS, SlashCommand
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import RowContent
from odin.ui.tui.keys import KeyAction, KeyScope, format_key

_LEFT, _NARROW = 20, 12
_WIDE = 70

_SCOPE_TITLES: dict[KeyScope, str] = {
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

_SCOPE_ORDER: tuple[KeyScope, ...] = (
    "composer",
    "everywhere",
    "transcript",
    "permission",
    "questions",
    "popup",
    "queue",
)

HelpKind = Literal["key", "command", "custom"]


class HelpEntry(Struct, frozen=True):
    """One line of the help. `left` is the key or the command, `name` what it is called in the settings."""

    kind: HelpKind
    label: str
    summary: str
    name: str
    details: str = ""


class HelpDialog(PickerDialog[HelpEntry]):
    """Type to find a key or a command. Enter takes a command to the prompt."""

    HEADING = "Help"
    EMPTY_TEXT = "Nothing fits these words."
    ENTER_LABEL = "take a command to the prompt"
    DETAIL = "always"

    async def load(self) -> Sequence[HelpEntry]:
        custom = await self.odin.client.list_commands()
        return [*_list_keys(self.odin.keys.keys), *_list_commands(SLASH_COMMANDS), *_list_custom_commands(custom)]

    def text_of(self, item: HelpEntry) -> str:
        return f"{item.kind} {item.label} {item.summary} {item.name} {item.details}".casefold()

    def draw(self, item: HelpEntry) -> RowContent:
        colours = self.palette
        room = _LEFT if self.size.width >= _WIDE else _NARROW
        line = Text(f"{item.label:<{room}} ", colours.accent if item.kind == "key" else colours.user)
        line.append(item.summary, colours.text)
        return line, ()

    async def describe(self, item: HelpEntry) -> Text:
        colours = self.palette
        text = Text().append(f"{item.label}\n", colours.strong)
        text.append(f"{item.summary}\n", colours.text)
        if item.details:
            text.append(f"\n{item.details}\n", colours.dim)
        return text

    async def choose(self, item: HelpEntry) -> None:
        self.dismiss(f"/{item.name} " if item.kind != "key" else None)


def describe_scope(where: KeyScope) -> str:
    """In which part of the screen a key works."""
    return _SCOPE_TITLES.get(where, f"In the {where}")


def _rank_scope(key: KeyAction) -> int:
    return _SCOPE_ORDER.index(key.scope) if key.scope in _SCOPE_ORDER else len(_SCOPE_ORDER)


def _list_keys(keys: Iterable[KeyAction]) -> list[HelpEntry]:
    """What is used most comes first: the prompt, then what works everywhere, then the other parts of the screen."""
    found: list[HelpEntry] = []
    for key in sorted(keys, key=_rank_scope):
        each = [format_key(one.strip()) for one in key.keys.split(",") if one.strip()]
        also = f"Also {', '.join(each[1:])}. " if len(each) > 1 else ""
        named = f'tui.keys {{"{key.name}": "…"}} gives it another key.'
        more = f"{also}{describe_scope(key.scope)}. Its name is {key.name}: {named}"
        found.append(HelpEntry("key", each[0] if each else "(no key)", key.description, key.name, more))
    return found


def _list_commands(commands: Iterable[SlashCommand]) -> list[HelpEntry]:
    found: list[HelpEntry] = []
    for command in commands:
        also = ", ".join(f"/{name}" for name in command.aliases)
        more = f"Also {also}." if also else ""
        found.append(HelpEntry("command", f"/{command.name} {command.hint}".rstrip(), command.help, command.name, more))
    return found


def _list_custom_commands(commands: Iterable[CustomCommand]) -> list[HelpEntry]:
    return [
        HelpEntry(
            "custom",
            escape_hidden(f"/{command.name} {command.hint}".rstrip()),
            escape_hidden(command.description) or "A command of your own.",
            command.name,
            f"From the {command.source}.",
        )
        for command in commands
    ]
