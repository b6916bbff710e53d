"""The permissions of a session: permission mode, session rules and cost budget, as a fold over its events.

A grant holds only in the project where the user gave it. When a session is resumed in another project, allow rules and
permissive modes are dropped; deny and ask rules stay.
"""

from collections.abc import Iterator

from msgspec import Struct

from odin.core.event import AnyEvent, BudgetSet, PermissionModeChanged, RuleAdded, RuleRemoved, SessionOpened
from odin.core.policy import RuleAction

_RESTRICTIVE_MODES = ("plan", "dontAsk")
"""Modes that allow less than the default mode."""

_UNMENTIONED_MODES = ("", "default", "bypassPermissions", *_RESTRICTIVE_MODES)
"""Modes not mentioned on resume; `bypassPermissions` is never restored anyway."""

_MAX_MENTIONED = 5


class Grants(Struct, frozen=True):
    """What the user granted. `permission` is the chosen mode, or ""; `budget_usd` the cost limit, or None."""

    rules: tuple[tuple[str, RuleAction], ...] = ()
    permission: str = ""
    budget_usd: float | None = None

    def restrict_for_other_project(self) -> "Grants":
        """The grants that carry over to another project: deny and ask rules, and restrictive modes."""
        return Grants(
            tuple(rule for rule in self.rules if rule[1] != "allow"),
            self.permission if self.permission in _RESTRICTIVE_MODES else "",
        )

    def describe_allowed(self) -> str:
        """A short list of everything these grants allow without asking; "" if nothing."""
        parts = list(self._list_allowed())
        more = [f"{len(parts) - _MAX_MENTIONED} more"] if len(parts) > _MAX_MENTIONED else []
        return ", ".join([*parts[:_MAX_MENTIONED], *more])

    def _list_allowed(self) -> Iterator[str]:
        if self.permission not in _UNMENTIONED_MODES:
            yield f"permission mode {self.permission}"
        yield from (f"rule {text}" for text, action in self.rules if action == "allow")


def describe_resumed_grants(earlier: Grants, current: Grants) -> str:
    """The notice shown on resume about grants that are still in force or were dropped; "" if there are none."""
    if current != earlier and (dropped := earlier.describe_allowed()):
        return f"This session comes from another project. Its permissions do not apply here: {dropped}."
    allowed = current.describe_allowed()
    return f"This session may act without asking, as you allowed earlier: {allowed}." if allowed else ""


class SessionPermissions:
    """`chosen_mode` is the mode the user chose in this session, or "" if the configuration decides.

    Grants hold in the project at `root`.
    """

    def __init__(self) -> None:
        self.root = ""
        self.mode = "default"
        self.chosen_mode = ""
        self.rules: tuple[tuple[str, RuleAction], ...] = ()
        self.budget_usd: float | None = None

    @property
    def grants(self) -> Grants:
        return Grants(self.rules, self.chosen_mode, self.budget_usd)

    def get_grants(self, root: str) -> Grants:
        """The grants that hold in the project at `root`."""
        return self.grants if root == self.root else self.grants.restrict_for_other_project()

    def apply(self, event: AnyEvent) -> None:
        match event:
            case SessionOpened():
                self._open(event)
            case PermissionModeChanged():
                self.mode = self.chosen_mode = event.mode
            case RuleAdded() if event.scope == "session":  # stays until removed, even after a rewind
                self.rules = (*self._list_rules_without(event), (event.text, event.action))
            case RuleRemoved() if event.scope == "session":
                self.rules = self._list_rules_without(event)
            case BudgetSet():
                self.budget_usd = event.usd
            case _:
                pass

    def _open(self, event: SessionOpened) -> None:
        grants = self.get_grants(event.root)
        self.rules, self.chosen_mode, self.budget_usd = grants.rules, grants.permission, grants.budget_usd
        self.root = event.root
        if self.chosen_mode == "bypassPermissions":
            self.chosen_mode = ""
        configured = str(event.config.get("permission_mode") or "default")
        self.mode = event.permission_mode or self.chosen_mode or configured

    def _list_rules_without(self, event: RuleAdded | RuleRemoved) -> tuple[tuple[str, RuleAction], ...]:
        return tuple(rule for rule in self.rules if rule != (event.text, event.action))
