"""Notices a model that goes in circles: the same call again and again, or two calls taking turns."""

from collections import deque
from typing import Any

import msgspec

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

    @property
    def hopeless(self) -> bool:
        """The model was told several times and still repeats itself."""
        return self._warnings >= MAX_WARNINGS

    def end_round(self) -> None:
        """The calls of one reply are over: however many of them were refused, the model is told once."""
        self._warnings += self._refused
        self._refused = False

    def check(self, name: str, args: dict[str, Any]) -> str:
        """Why this call is refused, or "" when it may run."""
        key = msgspec.json.encode([name, args], order="deterministic")
        self._recent.append(key)
        reason = self._reason(key)
        self._refused = self._refused or bool(reason)
        return reason

    def _reason(self, key: bytes) -> str:
        recent = list(self._recent)
        if len(recent) >= MAX_CONSECUTIVE and all(item == key for item in recent[-MAX_CONSECUTIVE:]):
            return f"loop detected: this is the same call {MAX_CONSECUTIVE} times in a row. Change something or answer."
        if recent.count(key) > MAX_IN_WINDOW:
            count = recent.count(key)
            return f"loop detected: the same call came {count} times in the last {len(recent)}. Try another way."
        tail = recent[-ALTERNATIONS:]
        if len(tail) == ALTERNATIONS and tail[0] != tail[1] and tail == tail[:2] * (ALTERNATIONS // 2):
            return "loop detected: two calls are taking turns without progress. Try another way or answer."
        return ""
