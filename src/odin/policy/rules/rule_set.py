"""All rules of a session in one place, which its agents share: a rule that is added holds for all of them at once.

Layers, from the weakest: default, user, project, role, session. A denial of any layer holds. Between asking and
allowing, the strongest layer that says something decides, and within a layer what was said last.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol, get_args

from odin.core.errors import UsageError
from odin.core.policy import RememberScope, RuleAction, RuleLayer, RuleLine
from odin.policy.rules.rule import Rule, find_objection, rule_of

LAYERS: tuple[RuleLayer, ...] = get_args(RuleLayer)

_SESSION = "this session"


class RuleStore(Protocol):
    """Where rules are remembered beyond the session."""

    def load_rules(self) -> Sequence[Rule]: ...

    def add(self, text: str, action: RuleAction, scope: RememberScope) -> None: ...

    def remove(self, text: str, action: RuleAction, scope: RememberScope) -> None: ...


class RuleSet:
    """`fixed` rules come from settings and stay; remembered ones can be taken back by their number."""

    def __init__(self, fixed: Iterable[Rule] = (), *, store: RuleStore | None = None, warnings: Iterable[str] = ()):
        self.warnings = tuple(warnings)
        self._fixed = tuple(fixed)
        self._store = store
        self._stored = tuple(store.load_rules()) if store else ()
        self._session: tuple[Rule, ...] = ()
        self.deny_rules: tuple[Rule, ...] = ()
        self.ask_allow_rules: tuple[Rule, ...] = ()
        self._sort()

    def _sort(self) -> None:
        ordered = self._sort_by_layer()
        self.deny_rules = tuple(rule for rule in ordered if rule.action == "deny")
        self.ask_allow_rules = tuple(rule for rule in reversed(ordered) if rule.action != "deny")

    def _sort_by_layer(self) -> list[Rule]:
        """From the weakest to the strongest; those from settings before those that were remembered."""
        every = (*self._fixed, *self._stored, *self._session)
        return sorted(every, key=lambda rule: LAYERS.index(rule.layer))

    def restore(self, rules: Iterable[tuple[str, RuleAction]]) -> None:
        """Take over what an earlier run of the session remembered for itself."""
        for text, action in rules:
            with suppress(UsageError):  # a rule of an older version that is none any more
                self._session = (*self._session, self.check(text, action))
        self._sort()

    def with_rule(self, rule: Rule) -> "RuleSet":
        """A copy that also holds this one, to see what would change."""
        copy = RuleSet((*self._fixed, *self._stored))
        copy._session = (*self._session, rule)
        copy._sort()
        return copy

    def check(self, text: str, action: RuleAction) -> Rule:
        """The rule that would be added. Raises UsageError when it may not be."""
        rule = rule_of(text, action, "session", _SESSION)
        why = find_objection(rule)
        if why:
            raise UsageError(why)
        return rule

    def add(self, text: str, action: RuleAction = "allow", scope: RememberScope = "session") -> Rule:
        rule = self.check(text, action)
        if scope == "session":
            same = (rule.text, action)
            self._session = (*(old for old in self._session if (old.text, old.action) != same), rule)
        else:
            if self._store is None:
                raise UsageError("Rules can only be remembered for this session here.")
            self._store.add(rule.text, action, scope)
            self._stored = tuple(self._store.load_rules())
        self._sort()
        return rule

    def remove(self, number: int) -> Rule:
        """Take a remembered rule back. Returns what it was."""
        rule = dict(self._number_rules()).get(number)
        if rule is None:
            raise UsageError(f"There is no rule with the number {number} that can be removed.", "See `odin rules`.")
        if rule.layer == "session":
            self._session = tuple(other for other in self._session if other is not rule)
        elif self._store is not None:
            self._store.remove(rule.text, rule.action, scope_of(rule))
            self._stored = tuple(self._store.load_rules())
        self._sort()
        return rule

    def list_rules(self) -> tuple[RuleLine, ...]:
        """All rules as they are listed. The strongest come last."""
        numbers = {id(rule): number for number, rule in self._number_rules()}
        return tuple(
            RuleLine(numbers.get(id(rule), 0), rule.layer, rule.action, rule.text, rule.source)
            for rule in self._sort_by_layer()
        )

    def _number_rules(self) -> list[tuple[int, Rule]]:
        kept = {id(rule) for rule in (*self._stored, *self._session)}
        return list(enumerate((rule for rule in self._sort_by_layer() if id(rule) in kept), 1))


def scope_of(rule: Rule) -> RememberScope:
    return rule.layer if rule.layer in ("project", "user") else "session"
