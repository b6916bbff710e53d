"""Notices a model that keeps busy and learns nothing: every result is one it has had before.

A counter in the arguments, a third call in the circle or another guess at an edit makes calls differ; what comes of
them does not.
"""

import re
from collections import deque
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
