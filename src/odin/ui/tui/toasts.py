"""Notices that disappear by themselves."""

import time
from typing import Any, Literal

from msgspec import Struct
from textual.app import App

from odin.ui.clean_text import sanitize

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


class Toasts:
    """Shows at most `MAX_TOASTS` toasts, dropping the oldest, and no text twice at a time."""

    def __init__(self, host: App[Any]) -> None:
        self._host = host
        self._visible: list[_Toast] = []
        self._is_scheduled = False

    def show(self, text: str, level: ToastLevel = "info") -> None:
        now = time.monotonic()
        text = sanitize(text).strip()
        text = text if len(text) <= MAX_TOAST_CHARS else f"{text[:MAX_TOAST_CHARS]}…"
        self._visible = [toast for toast in self._visible if toast.ends > now]
        if not text or any(toast.text == text for toast in self._visible):
            return
        toast = _Toast(text, level, now + TOAST_SECONDS[level])
        full = len(self._visible) >= MAX_TOASTS
        self._visible = [*self._visible[-(MAX_TOASTS - 1) :], toast]
        if not full:
            self._show_toast(toast, now)
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._host.call_later(self._show_again)

    def _show_again(self) -> None:
        """Redraw the visible toasts after Textual has processed its pending ones."""
        self._is_scheduled = False
        now = time.monotonic()
        self._host.clear_notifications()
        for toast in self._visible:
            if toast.ends > now:
                self._show_toast(toast, now)

    def _show_toast(self, toast: _Toast, now: float) -> None:
        self._host.notify(toast.text, severity=_SEVERITIES[toast.level], timeout=toast.ends - now, markup=False)
