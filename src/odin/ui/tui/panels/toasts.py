"""Short notices that go away by themselves: few at a time, at the top, where they hide no word that is being typed."""

import time
from collections.abc import Callable
from typing import Literal, Protocol

from msgspec import Struct

from odin.ui.tui.paint.foreign import foreign

Level = Literal["info", "warn", "error"]
MOST = 3
SECONDS: dict[Level, float] = {"info": 4.0, "warn": 6.0, "error": 10.0}
LONGEST = 400
_SEVERITIES: dict[Level, Literal["information", "warning", "error"]] = {
    "info": "information",
    "warn": "warning",
    "error": "error",
}


class _Toast(Struct, frozen=True):
    text: str
    level: Level
    ends: float


class Rack(Protocol):
    """What Textual's app can do with notices."""

    def notify(
        self,
        message: str,
        *,
        severity: Literal["information", "warning", "error"] = ...,
        timeout: float | None = ...,
        markup: bool = ...,
    ) -> None: ...

    def clear_notifications(self) -> None: ...

    def call_later(self, callback: Callable[[], None]) -> bool: ...


class Toasts:
    """The same words are not shown twice at once; of more than a few the oldest goes."""

    def __init__(self, rack: Rack, clock: Callable[[], float] = time.monotonic) -> None:
        self._rack = rack
        self._clock = clock
        self._shown: list[_Toast] = []
        self._again = False

    def tell(self, text: str, level: Level = "info") -> None:
        now = self._clock()
        said = foreign(text).strip()
        said = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
        self._shown = [toast for toast in self._shown if toast.ends > now]
        if not said or any(toast.text == said for toast in self._shown):
            return
        toast = _Toast(said, level, now + SECONDS[level])
        full = len(self._shown) >= MOST
        self._shown = [*self._shown[-(MOST - 1) :], toast]
        if not full:
            self._put(toast, now)
        elif not self._again:
            self._again = True
            self._rack.call_later(self._put_again)

    def _put_again(self) -> None:
        """Those that stay, after those that were on their way have come and gone."""
        self._again = False
        now = self._clock()
        self._rack.clear_notifications()
        for toast in self._shown:
            if toast.ends > now:
                self._put(toast, now)

    def _put(self, toast: _Toast, now: float) -> None:
        self._rack.notify(toast.text, severity=_SEVERITIES[toast.level], timeout=toast.ends - now, markup=False)
