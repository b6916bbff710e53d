"""One more rule: its text, what it does and for how long."""

from typing import ClassVar, TypeVar, get_args

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from odin.core.op import AddRule
from odin.core.rule import Action, RememberScope
from odin.ui.telling import SCOPES
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.field import Field
from odin.ui.tui.dialogs.hints import Hints

_ACTIONS: tuple[Action, ...] = get_args(Action)
_SCOPES: tuple[RememberScope, ...] = get_args(RememberScope)
_NEXT = {"tab": "action", "shift+tab": "scope", "f2": "scope"}

Word = TypeVar("Word")


class NewRule(Dialog[AddRule]):
    """Tab goes through what it does, F2 through where it holds."""

    EXAMPLES: ClassVar[str] = "such as Bash(git push:*), Edit(src/**) or WebFetch(domain:example.org)"

    def __init__(self, action: Action = "allow", scope: RememberScope = "session") -> None:
        super().__init__()
        self.action: Action = action
        self.scope: RememberScope = scope
        self._field = Field(self._key, "Tool or Tool(pattern)", id="rule")
        self._hints = Hints()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static("A new rule", classes="title", markup=False)
            yield self._field
            yield Static(self.EXAMPLES, classes="hint", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        self._field.focus()
        self._tell()

    def _tell(self) -> None:
        self._hints.show(
            [
                ("action", "Tab", self.action),
                ("scope", "F2", SCOPES[self.scope]),
                ("add", "Enter", "add"),
                ("close", "Esc", "leave it"),
            ]
        )

    def _key(self, event: events.Key) -> bool:
        if event.key == "enter":
            self.action_do("add")
        elif event.key == "escape":
            self.action_close()
        elif event.key in _NEXT:
            self.action_do(_NEXT[event.key])
        else:
            return False
        return True

    def action_do(self, name: str) -> None:
        """What a key or a click on its label means."""
        if name == "action":
            self.action = _after(self.action, _ACTIONS)
        elif name == "scope":
            self.scope = _after(self.scope, _SCOPES)
        elif name == "add" and self._field.value.strip():
            self.dismiss(AddRule(self._field.value.strip(), self.action, self.scope))
        elif name == "close":
            self.action_close()
        if self.is_current:
            self._tell()


def _after(word: Word, words: tuple[Word, ...]) -> Word:
    return words[(words.index(word) + 1) % len(words)]
