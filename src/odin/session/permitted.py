"""What may be done in a session: its permission mode, the rules a person gave for it and what it may spend."""

from collections.abc import Callable
from typing import Any

from odin.core.event import AnyEvent, BudgetSet, PermissionModeChanged, RuleAdded, RuleRemoved, SessionOpened
from odin.core.rule import RuleAction
from odin.session.grants import Grants


class SessionPermissions:
    """`chosen` is the mode that a person chose in this session; "" when it is what the configuration says.

    What a person allowed holds in the project at `root`.
    """

    def __init__(self) -> None:
        self.root = ""
        self.mode = "default"
        self.chosen_mode = ""
        self.rules: tuple[tuple[str, RuleAction], ...] = ()
        self.budget_usd: float | None = None

    def get_grants(self, root: str) -> Grants:
        """What a person allowed, as far as it holds for work in that project."""
        had = Grants(self.rules, self.chosen_mode, self.budget_usd)
        return had if root == self.root else had.restrict_for_other_project()

    def apply(self, event: AnyEvent) -> None:
        step = _PERMISSION_HANDLERS.get(type(event))
        if step is not None:
            step(self, event)

    def _on_session_opened(self, event: SessionOpened) -> None:
        left = self.get_grants(event.root)
        self.rules, self.chosen_mode, self.budget_usd = left.rules, left.permission, left.budget_usd
        self.root = event.root
        if self.chosen_mode == "bypassPermissions":
            self.chosen_mode = ""
        usual = str(event.config.get("permission_mode") or "default")
        self.mode = event.permission_mode or self.chosen_mode or usual

    def _on_permission_mode_changed(self, event: PermissionModeChanged) -> None:
        self.mode = self.chosen_mode = event.mode

    def _on_rule_added(self, event: RuleAdded) -> None:
        """What a person allowed for this session stays allowed until it is taken back, also after a rewind."""
        if event.scope == "session":
            self.rules = (*self._list_rules_without(event), (event.text, event.action))

    def _on_rule_removed(self, event: RuleRemoved) -> None:
        if event.scope == "session":
            self.rules = self._list_rules_without(event)

    def _list_rules_without(self, event: RuleAdded | RuleRemoved) -> tuple[tuple[str, RuleAction], ...]:
        return tuple(rule for rule in self.rules if rule != (event.text, event.action))

    def _on_budget_set(self, event: BudgetSet) -> None:
        self.budget_usd = event.usd


_PERMISSION_HANDLERS: dict[type[AnyEvent], Callable[[SessionPermissions, Any], None]] = {
    SessionOpened: SessionPermissions._on_session_opened,
    PermissionModeChanged: SessionPermissions._on_permission_mode_changed,
    RuleAdded: SessionPermissions._on_rule_added,
    RuleRemoved: SessionPermissions._on_rule_removed,
    BudgetSet: SessionPermissions._on_budget_set,
}
