"""One more rule: its text, what it does and for how long."""

from typing import ClassVar, TypeVar, get_args

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from odin.core.op import AddRule
from odin.core.rule import RememberScope, RuleAction
from odin.ui.telling import SCOPE_WORDS
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.field import DialogInput
from odin.ui.tui.dialogs.hints import Hints

_ACTIONS: tuple[RuleAction, ...] = get_args(RuleAction)
_SCOPES: tuple[RememberScope, ...] = get_args(RememberScope)

Word = TypeVar("Word")


class NewRuleDialog(Dialog[AddRule]):
    """One key goes through what it does, another through where it holds."""

    KEY_SCOPES = ("rule", "dialog")
    EXAMPLES: ClassVar[str] = "such as Bash(git push:*), Edit(src/**) or WebFetch(domain:example.org)"

    def __init__(self, action: RuleAction = "allow", scope: RememberScope = "session") -> None:
        super().__init__()
        self.action: RuleAction = action
        self.scope: RememberScope = scope
        self._field = DialogInput(self._take_field_key, "Tool or Tool(pattern)", id="rule")
        self._hints = Hints()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static("A new rule", classes="title", markup=False)
            yield self._field
            yield Static(self.EXAMPLES, classes="hint", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        self._field.focus()
        self._show_hints()

    def _show_hints(self) -> None:
        says = {
            "rule_action": self.action,
            "rule_scope": SCOPE_WORDS[self.scope],
            "confirm": "add",
            "close": "leave it",
        }
        self._hints.show([(name, self.odin.keys.label_of(name), label) for name, label in says.items()])

    def _take_field_key(self, event: events.Key) -> bool:
        confirms = self.odin.keys.find_action(event.key, "step") == "confirm"
        name = self.find_key_action(event.key) or ("confirm" if confirms else "")
        if name:
            self.action_do(name)
        return bool(name)

    def action_do(self, name: str) -> None:
        """What a key or a click on its label means."""
        if name == "rule_action":
            self.action = _next_of(self.action, _ACTIONS)
        elif name == "rule_scope":
            self.scope = _next_of(self.scope, _SCOPES)
        elif name == "confirm" and self._field.value.strip():
            self.dismiss(AddRule(self._field.value.strip(), self.action, self.scope))
        elif name == "close":
            self.action_close()
        if self.is_current:
            self._show_hints()


def _next_of(word: Word, words: tuple[Word, ...]) -> Word:
    return words[(words.index(word) + 1) % len(words)]
