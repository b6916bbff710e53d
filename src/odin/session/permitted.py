"""What may be done in a session: its permission mode, the rules a person gave for it and what it may spend."""

from collections.abc import Callable
from typing import Any

from odin.core.event import AnyEvent, BudgetSet, PermissionModeChanged, RuleAdded, RuleRemoved, SessionOpened
from odin.core.rule import Action
from odin.session.grants import Grants


class Permitted:
    """`chosen` is the mode that a person chose in this session; "" when it is what the configuration says.

    What a person allowed holds in the project at `root`.
    """

    def __init__(self) -> None:
        self.root = ""
        self.mode = "default"
        self.chosen = ""
        self.rules: tuple[tuple[str, Action], ...] = ()
        self.budget_usd: float | None = None

    def grants(self, root: str) -> Grants:
        """What a person allowed, as far as it holds for work in that project."""
        had = Grants(self.rules, self.chosen, self.budget_usd)
        return had if root == self.root else had.elsewhere()

    def apply(self, event: AnyEvent) -> None:
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event)

    def _session_opened(self, event: SessionOpened) -> None:
        left = self.grants(event.root)
        self.rules, self.chosen, self.budget_usd = left.rules, left.permission, left.budget_usd
        self.root = event.root
        if self.chosen == "bypassPermissions":
            self.chosen = ""
        usual = str(event.config.get("permission_mode") or "default")
        self.mode = event.permission_mode or self.chosen or usual

    def _permission_mode_changed(self, event: PermissionModeChanged) -> None:
        self.mode = self.chosen = event.mode

    def _rule_added(self, event: RuleAdded) -> None:
        """What a person allowed for this session stays allowed until it is taken back, also after a rewind."""
        if event.scope == "session":
            self.rules = (*self._without(event), (event.text, event.action))

    def _rule_removed(self, event: RuleRemoved) -> None:
        if event.scope == "session":
            self.rules = self._without(event)

    def _without(self, event: RuleAdded | RuleRemoved) -> tuple[tuple[str, Action], ...]:
        return tuple(rule for rule in self.rules if rule != (event.text, event.action))

    def _budget_set(self, event: BudgetSet) -> None:
        self.budget_usd = event.usd


_STEPS: dict[type[AnyEvent], Callable[[Permitted, Any], None]] = {
    SessionOpened: Permitted._session_opened,
    PermissionModeChanged: Permitted._permission_mode_changed,
    RuleAdded: Permitted._rule_added,
    RuleRemoved: Permitted._rule_removed,
    BudgetSet: Permitted._budget_set,
}
