"""What a person allowed in earlier runs of a session. It holds in the project in which it was said."""

from collections.abc import Iterator

from msgspec import Struct

from odin.core.rule import Action

_CAREFUL = ("plan", "dontAsk")
"""Permission modes in which less happens than usual."""

_UNTOLD = ("", "default", "bypassPermissions", *_CAREFUL)
"""Modes of which nothing is said: that nothing is asked at all is never taken over."""

_NAMED = 5


class Grants(Struct, frozen=True):
    """`permission` is the mode that was chosen, or ""; `budget_usd` the limit that was set, or None."""

    rules: tuple[tuple[str, Action], ...] = ()
    permission: str = ""
    budget_usd: float | None = None

    def elsewhere(self) -> "Grants":
        """What is left of it in another project: what forbids and what asks."""
        return Grants(
            tuple(rule for rule in self.rules if rule[1] != "allow"),
            self.permission if self.permission in _CAREFUL else "",
        )

    def told(self) -> str:
        """What runs without a question because of it, in a few words; "" when nothing does."""
        parts = list(self._bold())
        more = [f"{len(parts) - _NAMED} more"] if len(parts) > _NAMED else []
        return ", ".join([*parts[:_NAMED], *more])

    def _bold(self) -> Iterator[str]:
        if self.permission not in _UNTOLD:
            yield f"permission mode {self.permission}"
        yield from (f"rule {text}" for text, action in self.rules if action == "allow")


def brought(had: Grants, holds: Grants) -> str:
    """What whoever resumes a session is told of what it was allowed, and of what is left of that; or ""."""
    if holds != had and (said := had.told()):
        return f"This session comes from another project; what it was allowed there does not hold here: {said}."
    said = holds.told()
    return f"This session was allowed earlier to act without a question: {said}." if said else ""
