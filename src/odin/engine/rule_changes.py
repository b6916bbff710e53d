"""Edits the rules of a running session."""

import asyncio
from collections.abc import Callable

from odin.core.call_events import RuleAdded, RuleRemoved
from odin.core.policy import RememberScope, RuleAction, RuleLine
from odin.engine.recorder import Recorder
from odin.policy.rules.rule import RuleSet, get_scope


class RuleChanges:
    """Edits the rules of a running session, one change at a time. Files are written in a thread: they may be locked.

    `list_fixed` returns rules that are shown with the others, such as those of the role.
    """

    def __init__(
        self, rule_set: RuleSet, recorder: Recorder, list_fixed: Callable[[], tuple[RuleLine, ...]] = lambda: ()
    ) -> None:
        self._rule_set = rule_set
        self._recorder = recorder
        self._list_fixed = list_fixed
        self._lock = asyncio.Lock()

    async def add(self, text: str, action: RuleAction, scope: RememberScope) -> None:
        """Add a rule. Raise OdinError if the text is not a rule or cannot be saved."""
        async with self._lock:
            if scope == "session":
                rule = self._rule_set.add(text, action, scope)
            else:
                rule = await asyncio.to_thread(self._rule_set.add, text, action, scope)
            self._recorder.emit(RuleAdded(rule.text, action, scope, rule.role))

    async def remove(self, number: int) -> None:
        async with self._lock:
            rule = await asyncio.to_thread(self._rule_set.remove, number)
            self._recorder.emit(RuleRemoved(rule.text, rule.action, get_scope(rule), rule.role))

    def list_rules(self) -> tuple[RuleLine, ...]:
        return (*self._rule_set.list_rules(), *self._list_fixed())
