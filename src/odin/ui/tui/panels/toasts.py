"""Short notices that go away by themselves: few at a time, at the top, where they hide no word that is being typed."""

import time
from collections.abc import Callable
from typing import Literal, Protocol

from msgspec import Struct

from odin.ui.tui.paint.sanitize import sanitize

ToastLevel = Literal["info", "warn", "error"]
MAX_TOASTS = 3
TOAST_SECONDS: dict[ToastLevel, float] = {"info": 4.0, "warn": 6.0, "error": 10.0}
MAX_TOAST_CHARS = 400
_SEVERITIES: dict[ToastLevel, Literal["information", "warning", "error"]] = {
    "info": "information",
    "warn": "warning",
    "error": "error",
}


class _Toast(Struct, frozen=True):
    text: str
    level: ToastLevel
    ends: float


class ToastHost(Protocol):
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

    def __init__(self, host: ToastHost, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._clock = clock
        self._visible: list[_Toast] = []
        self._is_scheduled = False

    def show(self, text: str, level: ToastLevel = "info") -> None:
        now = self._clock()
        said = sanitize(text).strip()
        said = said if len(said) <= MAX_TOAST_CHARS else f"{said[:MAX_TOAST_CHARS]}…"
        self._visible = [toast for toast in self._visible if toast.ends > now]
        if not said or any(toast.text == said for toast in self._visible):
            return
        toast = _Toast(said, level, now + TOAST_SECONDS[level])
        full = len(self._visible) >= MAX_TOASTS
        self._visible = [*self._visible[-(MAX_TOASTS - 1) :], toast]
        if not full:
            self._show_toast(toast, now)
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._host.call_later(self._show_again)

    def _show_again(self) -> None:
        """Those that stay, after those that were on their way have come and gone."""
        self._is_scheduled = False
        now = self._clock()
        self._host.clear_notifications()
        for toast in self._visible:
            if toast.ends > now:
                self._show_toast(toast, now)

    def _show_toast(self, toast: _Toast, now: float) -> None:
        self._host.notify(toast.text, severity=_SEVERITIES[toast.level], timeout=toast.ends - now, markup=False)
