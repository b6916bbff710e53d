"""The permission rules: list, add, remove, or open the file a rule is in."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, cast, get_args

from rich.text import Text

from odin.core.call_events import RuleAdded, RuleRemoved
from odin.core.errors import UsageError
from odin.core.op import AddRule, RemoveRule
from odin.core.policy import RememberScope, RuleAction, RuleLine
from odin.ui.progress import SCOPE_WORDS
from odin.ui.terminal import escape_hidden, shorten_home
from odin.ui.tui.composer.external_text import choose_editor, run_in_terminal
from odin.ui.tui.dialogs.form import FormDialog, FormResult
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import RowContent

_EXAMPLES = "Examples: Bash(git push:*), Edit(src/**) or WebFetch(domain:example.org)"
_SCOPES: dict[str, RememberScope] = {SCOPE_WORDS[scope]: scope for scope in get_args(RememberScope)}


def make_rule_form() -> FormDialog:
    options = {"rule_action": get_args(RuleAction), "rule_scope": tuple(_SCOPES)}
    return FormDialog("New rule", _EXAMPLES, accept="add", placeholder="Tool or Tool(pattern)", options=options)


_LAYERS = {
    "default": "Built in. Your own rules override it.",
    "user": "Your rule for all projects.",
    "project": "For this project.",
    "session": "For this session.",
}


class RulesDialog(PickerDialog[RuleLine]):
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
            self.ask(make_rule_form(), self._add)
        elif item is None:
            return
        elif name == "open_rule":
            await self._open(item)
        elif not item.number:
            raise UsageError(_explain_fixed(item))
        else:
            short = escape_hidden(item.text)[:40]
            self.ask(FormDialog(f"Remove “{item.action} {short}”?"), lambda _: self._remove(item))

    async def _add(self, entered: FormResult) -> None:
        action, scope = entered.selected["rule_action"], _SCOPES[entered.selected["rule_scope"]]
        await self.odin.client.submit(AddRule(entered.text, cast(RuleAction, action), scope))
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
