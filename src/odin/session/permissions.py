"""What a person allowed in earlier runs of a session. It holds in the project in which it was said.

What may be done in a session: its permission mode, the rules a person gave for it and what it may spend.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from odin.core.event import AnyEvent, BudgetSet, PermissionModeChanged, RuleAdded, RuleRemoved, SessionOpened
from odin.core.policy import RuleAction

_RESTRICTIVE_MODES = ("plan", "dontAsk")
"""Permission modes in which less happens than usual."""

_UNMENTIONED_MODES = ("", "default", "bypassPermissions", *_RESTRICTIVE_MODES)
"""Modes of which nothing is said: that nothing is asked at all is never taken over."""

_MAX_MENTIONED = 5


class Grants(Struct, frozen=True):
    """`permission` is the mode that was chosen, or ""; `budget_usd` the limit that was set, or None."""

    rules: tuple[tuple[str, RuleAction], ...] = ()
    permission: str = ""
    budget_usd: float | None = None

    def restrict_for_other_project(self) -> "Grants":
        """What is left of it in another project: what forbids and what asks."""
        return Grants(
            tuple(rule for rule in self.rules if rule[1] != "allow"),
            self.permission if self.permission in _RESTRICTIVE_MODES else "",
        )

    def describe_allowed(self) -> str:
        """What runs without a question because of it, in a few words; "" when nothing does."""
        parts = list(self._list_allowed())
        more = [f"{len(parts) - _MAX_MENTIONED} more"] if len(parts) > _MAX_MENTIONED else []
        return ", ".join([*parts[:_MAX_MENTIONED], *more])

    def _list_allowed(self) -> Iterator[str]:
        if self.permission not in _UNMENTIONED_MODES:
            yield f"permission mode {self.permission}"
        yield from (f"rule {text}" for text, action in self.rules if action == "allow")


def describe_resumed_grants(earlier: Grants, current: Grants) -> str:
    """What whoever resumes a session is told of what it was allowed, and of what is left of that; or ""."""
    if current != earlier and (said := earlier.describe_allowed()):
        return f"This session comes from another project; what it was allowed there does not hold here: {said}."
    said = current.describe_allowed()
    return f"This session was allowed earlier to act without a question: {said}." if said else ""


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
