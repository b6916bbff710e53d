"""Those who hear of a session: readers that must all be told the same, and hooks that interfere."""

import asyncio
import random
from typing import Any

from odin.core.client import Client
from odin.core.event import Envelope
from odin.core.policy import CallbackHook


class Reader:
    """Reads the events after a number and keeps the numbers of those that last."""

    def __init__(self, client: Client, after: int, slow: bool) -> None:
        self._after = after
        self._slow = slow
        self._heard: list[Envelope] = []
        self._task = asyncio.create_task(self._read(client.stream_events(after)))

    async def _read(self, events: Any) -> None:
        async for envelope in events:
            if envelope.event.durable:
                self._heard.append(envelope)
            if self._slow:
                await asyncio.sleep(0.001)

    async def check(self, log: list[Envelope]) -> None:
        """After the session was closed: it has heard what the log holds, once and in order."""
        await asyncio.wait([self._task])
        self._task.result()
        wanted = [envelope.seq for envelope in log if envelope.seq > self._after]
        heard = [envelope.seq for envelope in self._heard]
        assert heard == wanted, f"after {self._after}: heard {_difference(heard, wanted)}"


def _difference(heard: list[int], wanted: list[int]) -> str:
    missing, extra = sorted(set(wanted) - set(heard)), sorted(set(heard) - set(wanted))
    return f"{len(heard)} of {len(wanted)} events; missing {missing[:5]}, not in the log {extra[:5]}"


Told = dict[str, Any]


class Meddler:
    """Hooks that mostly say nothing, and sometimes deny, dawdle, rewrite or break."""

    def __init__(self, random: random.Random) -> None:
        self._random = random

    def hooks(self) -> list[CallbackHook]:
        return [
            CallbackHook("before", "PreToolUse", self._before_call),
            CallbackHook("after", "PostToolUse", self._after_call),
            CallbackHook("prompt", "UserPromptSubmit", self._prompt),
            CallbackHook("stop", "Stop", self._stop),
            CallbackHook("asked", "Notification", self._any_time),
            CallbackHook("end", "SessionEnd", self._any_time),
        ]

    async def _dawdle(self) -> None:
        if self._random.random() < 0.2:
            await asyncio.sleep(self._random.choice((0.0, 0.01, 0.05)))

    async def _before_call(self, told: Told) -> Told | None:
        await self._dawdle()
        if self._random.random() < 0.02:
            raise RuntimeError("a hook that breaks")
        sayings: tuple[Told | None, ...] = (
            {"decision": "deny", "reason": "not now"},
            {"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "to be sure"}},
            {"hookSpecificOutput": {"updatedInput": {"command": "echo rewritten"}}},
            {"hookSpecificOutput": {"updatedInput": {"nonsense": 1}}},
            {"continue": False, "stopReason": "enough"},
            {},
            None,
        )
        return self._random.choices(sayings, (5, 5, 5, 2, 1, 20, 60))[0]

    async def _after_call(self, told: Told) -> Told | None:
        await self._dawdle()
        return {"hookSpecificOutput": {"additionalContext": "mind this"}} if self._random.random() < 0.1 else None

    async def _prompt(self, told: Told) -> Told | None:
        await self._dawdle()
        return {"decision": "block", "reason": "not this one"} if self._random.random() < 0.08 else None

    async def _stop(self, told: Told) -> Told | None:
        await self._dawdle()
        again = self._random.random() < 0.15 and not told.get("stop_hook_active")
        return {"decision": "block", "reason": "look once more"} if again else None

    async def _any_time(self, told: Told) -> Told | None:
        await self._dawdle()
        return None
