"""Readers of the events of a session, which must all receive the same, and hooks that interfere at random."""

import asyncio
import random
from typing import Any

from odin.core.client import Client
from odin.core.event import Envelope
from odin.core.policy import CallbackHook


class EventReader:
    """Reads the events after a number and keeps the durable ones."""

    def __init__(self, client: Client, after: int, slow: bool) -> None:
        self._after = after
        self._slow = slow
        self._received: list[Envelope] = []
        self._task = asyncio.create_task(self._read(client.stream_events(after)))

    async def _read(self, events: Any) -> None:
        async for envelope in events:
            if envelope.event.durable:
                self._received.append(envelope)
            if self._slow:
                await asyncio.sleep(0.001)

    async def check(self, log: list[Envelope]) -> None:
        """Assert, after the session was closed, that the received events are those of the log, once and in order."""
        await asyncio.wait([self._task])
        self._task.result()
        expected = [envelope.seq for envelope in log if envelope.seq > self._after]
        received = [envelope.seq for envelope in self._received]
        assert received == expected, f"after {self._after}: received {_difference(received, expected)}"


def _difference(received: list[int], expected: list[int]) -> str:
    missing, extra = sorted(set(expected) - set(received)), sorted(set(received) - set(expected))
    return f"{len(received)} of {len(expected)} events; missing {missing[:5]}, not in the log {extra[:5]}"


HookData = dict[str, Any]


class RandomHooks:
    """Hooks that mostly do nothing, and sometimes deny, delay, rewrite or fail."""

    def __init__(self, random: random.Random) -> None:
        self._random = random

    def hooks(self) -> list[CallbackHook]:
        return [
            CallbackHook("before", "PreToolUse", self._before_call),
            CallbackHook("after", "PostToolUse", self._after_call),
            CallbackHook("prompt", "UserPromptSubmit", self._prompt),
            CallbackHook("stop", "Stop", self._stop),
            CallbackHook("asked", "Notification", self._observe),
            CallbackHook("end", "SessionEnd", self._observe),
        ]

    async def _delay(self) -> None:
        if self._random.random() < 0.2:
            await asyncio.sleep(self._random.choice((0.0, 0.01, 0.05)))

    async def _before_call(self, data: HookData) -> HookData | None:
        await self._delay()
        if self._random.random() < 0.02:
            raise RuntimeError("a hook that breaks")
        answers: tuple[HookData | None, ...] = (
            {"decision": "deny", "reason": "not now"},
            {"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "to be sure"}},
            {"hookSpecificOutput": {"updatedInput": {"command": "echo rewritten"}}},
            {"hookSpecificOutput": {"updatedInput": {"nonsense": 1}}},
            {"continue": False, "stopReason": "enough"},
            {},
            None,
        )
        return self._random.choices(answers, (5, 5, 5, 2, 1, 20, 60))[0]

    async def _after_call(self, data: HookData) -> HookData | None:
        await self._delay()
        return {"hookSpecificOutput": {"additionalContext": "mind this"}} if self._random.random() < 0.1 else None

    async def _prompt(self, data: HookData) -> HookData | None:
        await self._delay()
        return {"decision": "block", "reason": "not this one"} if self._random.random() < 0.08 else None

    async def _stop(self, data: HookData) -> HookData | None:
        await self._delay()
        again = self._random.random() < 0.15 and not data.get("stop_hook_active")
        return {"decision": "block", "reason": "look once more"} if again else None

    async def _observe(self, data: HookData) -> HookData | None:
        await self._delay()
        return None
