"""Calls the person back: the bell, a desktop notification and the terminal's title. All are written in one place."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from odin.core.client import Client, SessionInfo
from odin.core.event import (
    Envelope,
    LoopChanged,
    PermissionAnswered,
    PermissionAsked,
    QuestionsAnswered,
    QuestionsAsked,
    TurnEnded,
    TurnStarted,
)
from odin.core.screen import ScreenSettings
from odin.ui.tui.panels.facts import LOOPING

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

LONG_S = 10.0
"""Work that took this long is over: somebody may have looked away meanwhile."""

LONGEST = 120
BELL = "\a"
PUSH_TITLE, POP_TITLE = "\x1b[22;0t", "\x1b[23;0t"
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]+"
)


def plain(text: str) -> str:
    """Foreign words as they may stand inside a sequence for the terminal: one short line that cannot end it."""
    line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def desktop(title: str, text: str, env: Mapping[str, str]) -> str:
    """The sequence for a desktop notification in this terminal; "" where there is none that would be understood."""
    term = env.get("TERM", "")
    if term in ("", "dumb", "linux") or (term.startswith("screen") and "TMUX" not in env):
        return ""
    title, text = plain(title), plain(text)
    if "KITTY_WINDOW_ID" in env or term == "xterm-kitty":
        sequence = f"\x1b]99;;{title}: {text}\x1b\\"
    elif term.startswith(("rxvt", "foot")):
        sequence = f"\x1b]777;notify;{title.replace(';', ',')};{text.replace(';', ',')}\x1b\\"
    else:
        sequence = f"\x1b]9;{title}: {text}\x1b\\"
    return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\" if "TMUX" in env else sequence


def titled(text: str) -> str:
    return f"\x1b]0;{plain(text)}\a"


class Notifier:
    """A watcher. What happened before the app looked rings no bell.

    A turn that ends is told with the next frame, so that nobody is called for one that another follows at once; while
    loop mode goes on, nobody is called at all.
    """

    def __init__(self, app: "OdinApp | None", settings: ScreenSettings, env: Mapping[str, str] | None = None) -> None:
        self._app = app
        self._settings = settings
        self._env = dict(os.environ) if env is None else env
        self.write: Callable[[str], None] = self._to_terminal
        self._project = ""
        self._asked: set[str] = set()
        self._working = False
        self._looping = False
        self._since = 0.0
        self._news: list[tuple[str, bool]] = []
        self._title = ""
        self._pushed = False
        self.focus_known = False
        self.focused = True

    # --- what happens ---

    def enter(self, client: Client, info: SessionInfo) -> None:
        self._project = PurePath(info.cwd).name or info.cwd
        self._asked.clear()
        self._news.clear()
        self._working = self._looping = False

    def see(self, envelope: Envelope, live: bool) -> None:
        event, agent = envelope.event, envelope.agent
        if isinstance(event, PermissionAsked | QuestionsAsked):
            self._asked.add(event.ask_id)
            if live:
                self._news.append((_asking(event), True))
        elif isinstance(event, PermissionAnswered | QuestionsAnswered):
            self._asked.discard(event.ask_id)
        elif isinstance(event, LoopChanged):
            self._looping = event.state in LOOPING
        elif isinstance(event, TurnStarted) and not agent:
            self._since = self._since if self._working or self._looping else envelope.ts
            self._working = True
            self._news = [(text, asks) for text, asks in self._news if asks]
        elif isinstance(event, TurnEnded) and not agent:
            self._ended(event, envelope.ts, live)

    def _ended(self, event: TurnEnded, ts: float, live: bool) -> None:
        self._working = False
        self._asked.clear()
        self._news = []
        if live and event.reason not in ("interrupted", "aborted") and self._worth_telling(ts - self._since):
            failed = event.reason != "end_turn"
            self._news.append((f"failed: {event.error or event.reason}" if failed else "finished", False))

    def _worth_telling(self, seconds: float) -> bool:
        return seconds >= LONG_S or not self.focused

    def frame(self) -> None:
        self._show_title()
        held = self._looping and not self._asked
        if not self._news or held:
            return
        text, asks = self._news[-1]
        self._news.clear()
        if asks and not self._asked:
            return
        self._call(text)

    def _call(self, text: str) -> None:
        if self._settings.bell:
            self.write(BELL)
        watched = self.focus_known and self.focused
        if self._settings.desktop_notification and not watched:
            self._write_if(desktop(f"Odin in {self._project}", text, self._env))

    # --- the title ---

    def _show_title(self) -> None:
        silent = self._env.get("TERM", "") in ("", "dumb", "linux")
        lent = self._app is not None and not getattr(self._app._driver, "holding", True)
        if silent or lent or not self._settings.title or not self._project:
            return
        state = "? needs you — " if self._asked else "✳ working — " if self._working or self._looping else ""
        title = f"{state}{self._project}"
        if title != self._title:
            self._title = title
            self.write(("" if self._pushed else PUSH_TITLE) + titled(title))
            self._pushed = True

    def restore(self) -> None:
        """Give the terminal its own title back, before it is left or lent to somebody else."""
        if self._pushed:
            self.write(POP_TITLE)
            self._pushed, self._title = False, ""

    # --- the terminal ---

    def focus_changed(self, focused: bool) -> None:
        """The terminal says whether it is looked at; one that never does may be hidden at any time."""
        self.focus_known, self.focused = True, focused

    def _write_if(self, text: str) -> None:
        if text:
            self.write(text)

    def _to_terminal(self, text: str) -> None:
        driver = self._app._driver if self._app is not None and not self._app.is_headless else None
        if driver is not None:
            driver.write(text)
            driver.flush()


def lend_title(app: Any, notifier: Notifier) -> None:
    """While the app is suspended the terminal has its own title."""

    def back(_: object) -> None:
        app.wake()

    def away(_: object) -> None:
        notifier.restore()

    app.app_suspend_signal.subscribe(app, away, immediate=True)
    app.app_resume_signal.subscribe(app, back)


def _asking(event: PermissionAsked | QuestionsAsked) -> str:
    if isinstance(event, PermissionAsked):
        return f"needs your permission for {event.name}"
    return f"asks: {event.questions[0].text}" if event.questions else "asks something"
