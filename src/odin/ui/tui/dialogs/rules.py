"""The permission rules: list, add, remove, or open the file a rule is in."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, TypeVar, get_args

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from odin.core.call_events import RuleAdded, RuleRemoved
from odin.core.errors import UsageError
from odin.core.op import AddRule, RemoveRule
from odin.core.policy import RememberScope, RuleAction, RuleLine
from odin.ui.progress import SCOPE_WORDS
from odin.ui.terminal import escape_hidden, shorten_home
from odin.ui.tui.composer.external_text import choose_editor, run_in_terminal
from odin.ui.tui.dialogs.dialog import Dialog
from odin.ui.tui.dialogs.picker import LivePicker
from odin.ui.tui.dialogs.widgets import Hints, RowContent
from odin.ui.tui.keys import DialogInput

_ACTIONS: tuple[RuleAction, ...] = get_args(RuleAction)
_SCOPES: tuple[RememberScope, ...] = get_args(RememberScope)

Word = TypeVar("Word")


class NewRuleDialog(Dialog[AddRule]):
    """Enter the text of a rule; keys cycle through its action and scope."""

    KEY_SCOPES = ("rule", "dialog")
    EXAMPLES: ClassVar[str] = "Examples: Bash(git push:*), Edit(src/**) or WebFetch(domain:example.org)"

    def __init__(self) -> None:
        super().__init__()
        self.action: RuleAction = "allow"
        self.scope: RememberScope = "session"
        self._field = DialogInput(self._take_field_key, "Tool or Tool(pattern)", id="rule")
        self._hints = Hints()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static("New rule", classes="title", markup=False)
            yield self._field
            yield Static(self.EXAMPLES, classes="hint", markup=False)
            yield self._hints

    def on_mount(self) -> None:
        self._field.focus()
        self._show_hints()

    def _show_hints(self) -> None:
        labels = {
            "rule_action": self.action,
            "rule_scope": SCOPE_WORDS[self.scope],
            "confirm": "add",
            "close": "cancel",
        }
        self._hints.show([(name, self.odin.keys.get_label(name), label) for name, label in labels.items()])

    def _take_field_key(self, event: events.Key) -> bool:
        confirms = self.odin.keys.find_action(event.key, "step") == "confirm"
        name = self.find_key_action(event.key) or ("confirm" if confirms else "")
        if name:
            self.action_do(name)
        return bool(name)

    def action_do(self, name: str) -> None:
        """Run the action of a key or of a clicked hint."""
        if name == "rule_action":
            self.action = _get_next(self.action, _ACTIONS)
        elif name == "rule_scope":
            self.scope = _get_next(self.scope, _SCOPES)
        elif name == "confirm" and self._field.value.strip():
            self.dismiss(AddRule(self._field.value.strip(), self.action, self.scope))
        elif name == "close":
            self.action_close()
        if self.is_current:
            self._show_hints()


def _get_next(word: Word, words: tuple[Word, ...]) -> Word:
    return words[(words.index(word) + 1) % len(words)]


_LAYERS = {
    "default": "Built in. Your own rules override it.",
    "user": "Your rule for all projects.",
    "project": "For this project.",
    "session": "For this session.",
}


class RulesDialog(LivePicker[RuleLine]):
    """Shows rules that are added or removed while it is open."""

    KEY_SCOPES = ("rules", "list", "dialog")
    HEADING = "Rules"
    EMPTY_TEXT = "No rules besides the defaults."
    STARTS_IN_FILTER = False
    ENTER_LABEL = ""
    RELOAD_ON = (RuleAdded, RuleRemoved)
    ACTIONS: ClassVar[dict[str, str]] = {"add_rule": "add", "remove_rule": "remove", "open_rule": "open file"}

    # --- the list ---

    async def load(self) -> Sequence[RuleLine]:
        return await self.odin.client.list_rules()

    def get_filter_text(self, item: RuleLine) -> str:
        return f"{item.layer} {item.action} {item.text} {item.origin}".casefold()

    def draw(self, item: RuleLine) -> RowContent:
        colors = self.palette
        style = {"allow": colors.good, "ask": colors.warn, "deny": colors.bad}[item.action]
        line = Text().append(f"{item.number or '–':>3} ", colors.dim)
        line.append(f"{item.action:<6}", style)
        line.append(escape_hidden(item.text), colors.text)
        role = f"role {escape_hidden(item.role)}" if item.role else ""
        return line, tuple(filter(None, (item.layer, role, escape_hidden(shorten_home(item.source)))))

    async def describe(self, item: RuleLine) -> Text:
        colors = self.palette
        text = Text().append(f"{item.action} {escape_hidden(item.text)}\n\n", colors.strong)
        text.append(f"{_LAYERS.get(item.layer, '')}\n", colors.text)
        if item.role:
            text.append(f"Only in the role {escape_hidden(item.role)}.\n", colors.text)
        if item.source:
            text.append("\nFile\n", colors.dim)
            text.append(f"{escape_hidden(shorten_home(item.source))}\n", colors.text)
        text.append("\n")
        text.append(f"Number {item.number}." if item.number else _explain_fixed(item), colors.dim)
        return text

    async def choose(self, item: RuleLine) -> None:
        return None

    # --- changes ---

    async def act(self, name: str, item: RuleLine | None) -> None:
        if name == "add_rule":
            self.odin.push_screen(NewRuleDialog(), self._add_entered)
        elif item is None:
            return
        elif name == "open_rule":
            await self._open(item)
        elif not item.number:
            raise UsageError(_explain_fixed(item))
        else:
            short = escape_hidden(item.text)[:40]
            self.ask_whether(f"Remove “{item.action} {short}”?", lambda: self._remove(item))

    def _add_entered(self, rule: AddRule | None) -> None:
        if rule is not None:
            self._run_and_report(self._add(rule))

    async def _add(self, rule: AddRule) -> None:
        await self.odin.client.submit(rule)
        await self.reload(self.rows.mark)

    async def _remove(self, item: RuleLine) -> None:
        known = {rule.number: rule for rule in await self.odin.client.list_rules()}
        if known.get(item.number) != item:
            raise UsageError("The rules have changed; nothing was removed.", "Select the rule again.")
        await self.odin.client.submit(RemoveRule(item.number))
        await self.reload(self.rows.mark)

    async def _open(self, item: RuleLine) -> None:
        path = Path(item.source).expanduser()
        if not item.source or not path.is_file():
            raise UsageError("This rule is not stored in a file.")
        await run_in_terminal(self.odin, [*choose_editor(), str(path)])
        self.odin.show_toast("Changes to the file take effect in the next session.")


def _explain_fixed(item: RuleLine) -> str:
    """Return why a rule without a number cannot be removed here."""
    if item.layer == "default":
        return "This rule is built in and cannot be removed; your own rules override it."
    if item.source:
        return f"This rule is part of {escape_hidden(shorten_home(item.source))}; remove it from that file."
    return "This rule was given on the command line; it ends with this run."
