"""Notices a model that goes in circles: the same call again and again, two taking turns, or nothing new for long."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from odin.engine.call.novelty import STALE_ROUNDS, Novelty

MAX_CONSECUTIVE = 3
WINDOW = 10
MAX_IN_WINDOW = 5
ALTERNATIONS = 6
MAX_WARNINGS = 3


class RepetitionGuard:
    """Watches the calls of one turn. A refused call still counts, so insisting ends the turn."""

    def __init__(self) -> None:
        self._recent: deque[bytes] = deque(maxlen=WINDOW)
        self._refused = False
        self._warnings = 0
        self._novelty = Novelty()

    @property
    def hopeless(self) -> bool:
        """The model was told several times and still repeats itself."""
        return self._warnings >= MAX_WARNINGS

    def saw(self, name: str, args: dict[str, Any], text: str, *, failed: bool, runs: bool = False) -> None:
        """What came of a call that was not refused here; `runs` is a command."""
        self._novelty.saw(name, args, text, failed=failed, runs=runs)

    def end_round(self, *, changed: bool = False) -> None:
        """The calls of one reply are over: however many of them were refused, the model is told once.

        `changed` says that files are different now, which is progress whatever the results look like.
        """
        if self._refused and self._novelty.exhausted:
            self._novelty.warned()
        else:
            self._novelty.end_round(changed=changed)
        self._warnings += self._refused
        self._refused = False

    def check(self, name: str, args: dict[str, Any]) -> str:
        """Why this call is refused, or "" when it may run."""
        self._recent.append(_key(name, args))
        reason = _reason(list(self._recent)) or (_NOTHING_NEW if self._novelty.exhausted else "")
        self._refused = self._refused or bool(reason)
        return reason

    def would_refuse(self, calls: Iterable[tuple[str, dict[str, Any]]]) -> bool:
        """Whether the last of these calls would be refused if they were made one after the other. None is counted."""
        recent = deque(self._recent, maxlen=WINDOW)
        recent.extend(_key(name, args) for name, args in calls)
        return self._novelty.exhausted or bool(_reason(list(recent)))


_NOTHING_NEW = (
    f"loop detected: the calls of the last {STALE_ROUNDS} steps brought nothing that earlier ones had not. "
    "Try something different, or answer with what you know."
)


def _key(name: str, args: dict[str, Any]) -> bytes:
    return msgspec.json.encode([name, args], order="deterministic")


def _reason(recent: list[bytes]) -> str:
    """Why the newest call is refused."""
    key = recent[-1]
    if len(recent) >= MAX_CONSECUTIVE and all(item == key for item in recent[-MAX_CONSECUTIVE:]):
        return f"loop detected: this is the same call {MAX_CONSECUTIVE} times in a row. Change something or answer."
    if recent.count(key) > MAX_IN_WINDOW:
        count = recent.count(key)
        return f"loop detected: the same call came {count} times in the last {len(recent)}. Try another way."
    tail = recent[-ALTERNATIONS:]
    if len(tail) == ALTERNATIONS and tail[0] != tail[1] and tail == tail[:2] * (ALTERNATIONS // 2):
        return "loop detected: two calls are taking turns without progress. Try another way or answer."
    return ""
