"""Notifies the user that Odin needs them or is done: bell, desktop notification and terminal title."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import PurePath

from odin.core.call_events import AnswerEvent, AskEvent, PermissionAsked, PlanAsked
from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope, LoopChanged, TurnEnded, TurnStarted
from odin.core.tool import get_display_name
from odin.core.tui_settings import TuiSettings
from odin.ui.session_facts import ACTIVE_LOOP_STATES

LONG_WORK_S = 10.0
"""Notify at the end of work that took this long: the user may have looked away."""

MAX_CHARS = 120
BELL = "\a"
PUSH_TITLE, POP_TITLE = "\x1b[22;0t", "\x1b[23;0t"
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]+"
)


def sanitize_line(text: str) -> str:
    """Return foreign text as one short line that cannot break out of an escape sequence."""
    line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 1]}…"


def format_desktop_notification(title: str, text: str, env: Mapping[str, str]) -> str:
    """Return the escape sequence for a desktop notification in this terminal, or "" if it supports none."""
    term = env.get("TERM", "")
    if term in ("", "dumb", "linux") or (term.startswith("screen") and "TMUX" not in env):
        return ""
    title, text = sanitize_line(title), sanitize_line(text)
    if "KITTY_WINDOW_ID" in env or term == "xterm-kitty":
        sequence = f"\x1b]99;;{title}: {text}\x1b\\"
    elif term.startswith(("rxvt", "foot")):
        sequence = f"\x1b]777;notify;{title.replace(';', ',')};{text.replace(';', ',')}\x1b\\"
    else:
        sequence = f"\x1b]9;{title}: {text}\x1b\\"
    return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\" if "TMUX" in env else sequence


def format_title(text: str) -> str:
    return f"\x1b]0;{sanitize_line(text)}\a"


class Notifier:
    """A session observer that notifies about live events only.

    The end of a turn is reported with the next frame, so that a turn does not notify if another follows at once.
    While loop mode is active, only permission requests and questions notify.
    """

    def __init__(
        self,
        settings: TuiSettings,
        write: Callable[[str], None],
        env: Mapping[str, str] | None = None,
        *,
        is_suspended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._write = write
        self._is_suspended = is_suspended
        self._env = dict(os.environ) if env is None else env
        self._project = ""
        self._asked: set[str] = set()
        self._working = False
        self._looping = False
        self._since = 0.0
        self._pending: list[tuple[str, bool]] = []
        self._title = ""
        self._title_pushed = False
        self.focus_known = False
        self.focused = True

    # --- events ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._project = PurePath(info.cwd).name or info.cwd
        self._asked.clear()
        self._pending.clear()
        self._working = self._looping = False

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        event, agent = envelope.event, envelope.agent
        if isinstance(event, AskEvent):
            self._asked.add(event.ask_id)
            if live:
                self._pending.append((_describe_request(event), True))
        elif isinstance(event, AnswerEvent):
            self._asked.discard(event.ask_id)
        elif isinstance(event, LoopChanged) and not agent:
            self._looping = event.state in ACTIVE_LOOP_STATES
        elif isinstance(event, TurnStarted) and not agent:
            self._since = self._since if self._working or self._looping else envelope.ts
            self._working = True
            self._pending = [(text, asks) for text, asks in self._pending if asks]
        elif isinstance(event, TurnEnded) and not agent:
            ts = envelope.ts
            self._working = False
            self._asked.clear()
            self._pending = []
            if live and event.reason not in ("interrupted", "aborted") and self._is_worth_telling(ts - self._since):
                failed = event.reason != "end_turn"
                self._pending.append((f"failed: {event.error or event.reason}" if failed else "finished", False))

    def _is_worth_telling(self, seconds: float) -> bool:
        return seconds >= LONG_WORK_S or not self.focused

    def draw_frame(self) -> None:
        self._show_title()
        if not self._pending or (self._looping and not self._asked):
            return
        text, asks = self._pending[-1]
        self._pending.clear()
        if asks and not self._asked:
            return
        if self._settings.bell:
            self._write(BELL)
        watched = self.focus_known and self.focused
        if self._settings.desktop_notification and not watched:
            self._write(format_desktop_notification(f"Odin in {self._project}", text, self._env))

    # --- the title ---

    def _show_title(self) -> None:
        has_no_title = self._env.get("TERM", "") in ("", "dumb", "linux")
        if has_no_title or self._is_suspended() or not self._settings.title or not self._project:
            return
        state = "? needs you — " if self._asked else "✳ working — " if self._working or self._looping else ""
        title = f"{state}{self._project}"
        if title != self._title:
            self._title = title
            self._write(("" if self._title_pushed else PUSH_TITLE) + format_title(title))
            self._title_pushed = True

    def restore_title(self) -> None:
        """Restore the terminal's own title before Odin exits or hands the terminal to another program."""
        if self._title_pushed:
            self._write(POP_TITLE)
            self._title_pushed, self._title = False, ""

    # --- the terminal ---

    def record_focus(self, focused: bool) -> None:
        """Record whether the terminal has focus. Terminals that never report it count as unfocused."""
        self.focus_known, self.focused = True, focused


def _describe_request(event: AskEvent) -> str:
    if isinstance(event, PermissionAsked):
        return f"needs your permission for {get_display_name(event.name)}"
    if isinstance(event, PlanAsked):
        return f"presents a plan: {event.title}"
    return f"asks: {event.questions[0].text}" if event.questions else "asks something"
