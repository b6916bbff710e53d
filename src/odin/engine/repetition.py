"""Notices a model that keeps busy and learns nothing: every result is one it has had before.

A counter in the arguments, a third call in the circle or another guess at an edit makes calls differ; what comes of
them does not.

Notices a model that goes in circles: the same call again and again, two taking turns, or nothing new for long.

A call that is repeated and brings something else each time is no circle: somebody looks how far a build has come.
"""

import re
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

STALE_ROUNDS = 10
"""So many replies in a row whose calls brought nothing new are a circle."""

RESPITE_ROUNDS = 2
"""So many more may follow after each warning: perhaps the model tries another way."""

_REMEMBERED_RESULTS = 200
_COMPARED_CHARS = 20_000
_NUMBER = re.compile(r"\d+")


class StallDetector:
    def __init__(self) -> None:
        self._seen: deque[int] = deque(maxlen=_REMEMBERED_RESULTS)
        self._stale_rounds = 0
        self._has_results = False
        self._has_news = False

    @property
    def is_stalled(self) -> bool:
        return self._stale_rounds >= STALE_ROUNDS

    def record_result(
        self, name: str, args: dict[str, Any], text: str, *, failed: bool, runs: bool = False, edits: bool = False
    ) -> None:
        """What came of a call. `runs` is a command, which may do much and say nothing: what it was counts too.

        So it does for what went well: that one name is found nowhere is news, and that another is not, is news again.
        `edits` is a change of files, which is progress unless it failed.
        """
        told = _remove_arguments(text[:_COMPARED_CHARS], args)
        if failed:
            told = _NUMBER.sub("#", told)
        what = _NUMBER.sub("#", msgspec.json.encode(args, order="sorted").decode()) if runs or not failed else ""
        key = hash((name, failed, told, what))
        self._has_results = True
        self._has_news = self._has_news or key not in self._seen or (edits and not failed)
        self._seen.append(key)

    def end_round(self, *, changed: bool) -> None:
        """The calls of one reply are over; `changed` says that files are different now."""
        if self._has_news or changed:
            self._stale_rounds = 0
        elif self._has_results:
            self._stale_rounds += 1
        self._has_results = self._has_news = False

    def grant_respite(self) -> None:
        self._stale_rounds = STALE_ROUNDS - RESPITE_ROUNDS


def _remove_arguments(text: str, args: dict[str, Any]) -> str:
    """The text without what the call itself put into it, such as the name of a file that does not exist."""
    values = sorted((value for value in args.values() if isinstance(value, str) and len(value) > 1), key=len)
    for value in reversed(values):
        text = text.replace(value, "·")
    return text


MAX_SAME_IN_A_ROW = 3
CALL_WINDOW = 10
MAX_IN_WINDOW = 5
ALTERNATIONS = 6
MAX_WARNINGS = 3

_TIMES = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s|sec|seconds?|min|minutes?)\b|\b\d{1,2}:\d\d(?::\d\d)?(?:\.\d+)?\b")
"""What differs from one look to the next although nothing has happened."""


class _SeenCall:
    """One call, and what came of it once that is known."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.result: int | None = None


class RepetitionGuard:
    """Watches the calls of one turn. A refused call still counts, so insisting ends the turn."""

    def __init__(self) -> None:
        self._recent: deque[_SeenCall] = deque(maxlen=CALL_WINDOW)
        self._has_refused = False
        self._warnings = 0
        self._stall_detector = StallDetector()

    @property
    def is_hopeless(self) -> bool:
        """The model was told several times and still repeats itself."""
        return self._warnings >= MAX_WARNINGS

    def record_result(
        self, name: str, args: dict[str, Any], text: str, *, failed: bool, runs: bool = False, edits: bool = False
    ) -> None:
        """What came of a call that was not refused here; `runs` is a command, `edits` changes files."""
        self._stall_detector.record_result(name, args, text, failed=failed, runs=runs, edits=edits)
        key = _key_of(name, args)
        made = next((made for made in self._recent if made.key == key and made.result is None), None)
        if made is not None:
            made.result = hash((failed, _TIMES.sub("#", text)))

    def end_round(self, *, changed: bool = False) -> None:
        """The calls of one reply are over: however many of them were refused, the model is told once.

        `changed` says that files are different now, which is progress whatever the results look like.
        """
        if self._has_refused and self._stall_detector.is_stalled:
            self._stall_detector.grant_respite()
        else:
            self._stall_detector.end_round(changed=changed)
        self._warnings += self._has_refused
        self._has_refused = False

    def check_call(self, name: str, args: dict[str, Any]) -> str:
        """Why this call is refused, or "" when it may run."""
        self._recent.append(_SeenCall(_key_of(name, args)))
        reason = _repetition_reason_of(list(self._recent)) or (
            _STALLED_REASON if self._stall_detector.is_stalled else ""
        )
        self._has_refused = self._has_refused or bool(reason)
        return reason

    def would_refuse(self, calls: Iterable[tuple[str, dict[str, Any]]]) -> bool:
        """Whether the last of these calls would be refused if they were made one after the other. None is counted."""
        recent = deque(self._recent, maxlen=CALL_WINDOW)
        recent.extend(_SeenCall(_key_of(name, args)) for name, args in calls)
        return self._stall_detector.is_stalled or bool(_repetition_reason_of(list(recent)))


_STALLED_REASON = (
    f"loop detected: the calls of the last {STALE_ROUNDS} steps brought nothing that earlier ones had not. "
    "Try something different, or answer with what you know."
)


def _key_of(name: str, args: dict[str, Any]) -> bytes:
    return msgspec.json.encode([name, args], order="deterministic")


def _repetition_reason_of(recent: list[_SeenCall]) -> str:
    """Why the newest call is refused."""
    keys = [made.key for made in recent]
    key = keys[-1]
    same = [made for made in recent if made.key == key]
    if not _has_new_result(same):
        if len(keys) >= MAX_SAME_IN_A_ROW and all(item == key for item in keys[-MAX_SAME_IN_A_ROW:]):
            return (
                f"loop detected: this is the same call {MAX_SAME_IN_A_ROW} times in a row. Change something or answer."
            )
        if len(same) > MAX_IN_WINDOW:
            return f"loop detected: the same call came {len(same)} times in the last {len(keys)}. Try another way."
    tail = keys[-ALTERNATIONS:]
    if len(tail) == ALTERNATIONS and tail[0] != tail[1] and tail == tail[:2] * (ALTERNATIONS // 2):
        pair = recent[-ALTERNATIONS:]
        if not _has_new_result(pair[::2]) and not _has_new_result(pair[1::2]):
            return "loop detected: two calls are taking turns without progress. Try another way or answer."
    return ""


def _has_new_result(same: list[_SeenCall]) -> bool:
    """Whether the last two times this call was made, different things came of it."""
    results = [made.result for made in same if made.result is not None]
    return len(results) > 1 and results[-1] != results[-2]
