"""Changing the rules of a running session: the change holds at once, and the log says so."""

import asyncio

from odin.core.event import RuleAdded, RuleRemoved
from odin.core.rule import RememberScope, RuleAction, RuleLine
from odin.engine.recorder import Recorder
from odin.policy.rule.book import RuleSet, scope_of


class RuleChanges:
    """One change at a time. Files are written in a thread, since another process may hold them for a while."""

    def __init__(self, book: RuleSet, recorder: Recorder) -> None:
        self._book = book
        self._recorder = recorder
        self._lock = asyncio.Lock()

    async def add(self, text: str, action: RuleAction, scope: RememberScope) -> None:
        """From now on. Raises OdinError for a text that is no rule, or when it cannot be written down."""
        async with self._lock:
            if scope == "session":
                rule = self._book.add(text, action, scope)
            else:
                rule = await asyncio.to_thread(self._book.add, text, action, scope)
            self._recorder.emit(RuleAdded(rule.text, action, scope))

    async def remove(self, number: int) -> None:
        async with self._lock:
            rule = await asyncio.to_thread(self._book.remove, number)
            self._recorder.emit(RuleRemoved(rule.text, rule.action, scope_of(rule)))

    def list_rules(self) -> tuple[RuleLine, ...]:
        return self._book.list_rules()
