"""What a person allowed in earlier runs of a session. It holds in the project in which it was said."""

from collections.abc import Iterator

from msgspec import Struct

from odin.core.rule import RuleAction

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
