"""The bell, the desktop notification and the terminal title: when they are written, and which bytes."""

import re
from typing import Any, cast

import pytest

from odin.core.call_events import PermissionAnswered, PermissionAsked, QuestionsAsked
from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope, LoopChanged, TurnEnded, TurnStarted
from odin.core.event_values import Question
from odin.core.tui_settings import TuiSettings
from odin.ui.notifications import Notifier, format_desktop_notification, format_title, sanitize_line

INFO = SessionInfo("s", "/srv/project", "m", "0.1.0", "edit_mode", "default", ())
XTERM = {"TERM": "xterm-256color"}
TURN_STARTED = TurnStarted("p", "x", "edit_mode")
TURN_ENDED = TurnEnded("p", "end_turn")
ASKED = PermissionAsked("a", "c", "Bash", {}, "why")
NOTIFICATION = "\x1b]9;Odin in project: "


_DEFAULTS: dict[str, Any] = {"title": False}


class RecordedNotifier:
    """A notifier whose output is recorded."""

    def __init__(self, env: dict[str, str] | None = None, **settings: Any) -> None:
        merged = TuiSettings(**{**_DEFAULTS, **settings})
        self.notifier = Notifier(merged, self._write, env or XTERM)
        self.written = ""
        self.notifier.enter_session(cast(Client, None), INFO)

    def _write(self, text: str) -> None:
        self.written += text

    def get_output(self, *events: Any, at: float = 0.0, live: bool = True, agent: str = "") -> str:
        """Return the output for these events, which happen at second `at`, and for the next frame."""
        self.written = ""
        for event in events:
            self.notifier.handle_event(Envelope(0, at, "s", event, agent), live)
        self.notifier.draw_frame()
        return self.written


def test_a_request_rings_the_bell_and_notifies() -> None:
    recorded = RecordedNotifier()
    assert recorded.get_output(TURN_STARTED) == ""
    assert recorded.get_output(ASKED) == f"\a{NOTIFICATION}needs your permission for Bash\x1b\\"


def test_a_request_of_a_sub_agent_notifies() -> None:
    asked = QuestionsAsked("q", "c", (Question("Base", "Which one?"),))
    assert RecordedNotifier().get_output(asked, agent="agent-1") == f"\a{NOTIFICATION}asks: Which one?\x1b\\"


def test_a_request_answered_at_once_does_not_notify() -> None:
    assert RecordedNotifier().get_output(TURN_STARTED, ASKED, PermissionAnswered("a", "c", True, by="rule")) == ""


def test_the_end_of_a_short_turn_does_not_notify() -> None:
    recorded = RecordedNotifier()
    recorded.get_output(TURN_STARTED, at=0)
    assert recorded.get_output(TURN_ENDED, at=9) == ""


def test_the_end_of_a_long_turn_notifies() -> None:
    recorded = RecordedNotifier()
    recorded.get_output(TURN_STARTED, at=0)
    assert recorded.get_output(TURN_ENDED, at=10) == f"\a{NOTIFICATION}finished\x1b\\"


def test_a_failed_turn_notifies_with_the_error() -> None:
    recorded = RecordedNotifier()
    recorded.get_output(TURN_STARTED, at=0)
    assert "failed: The key is wrong." in recorded.get_output(TurnEnded("p", "error", error="The key is wrong."), at=60)


def test_an_interrupted_turn_does_not_notify() -> None:
    recorded = RecordedNotifier()
    recorded.get_output(TURN_STARTED, at=0)
    assert recorded.get_output(TurnEnded("p", "interrupted"), at=60) == ""


def test_a_turn_followed_by_another_does_not_notify() -> None:
    recorded = RecordedNotifier()
    recorded.get_output(TURN_STARTED, at=0)
    assert recorded.get_output(TURN_ENDED, TurnStarted("q", "y", "edit_mode"), at=30) == ""
    assert "finished" in recorded.get_output(TurnEnded("q", "end_turn"), at=41)


def test_loop_mode_notifies_when_it_ends() -> None:
    recorded = RecordedNotifier()
    recorded.get_output(LoopChanged("executing", "x", 1, 10), TURN_STARTED, at=0)
    assert recorded.get_output(TURN_ENDED, at=30) == ""
    assert "finished" in recorded.get_output(LoopChanged("completed"), at=31)


def test_past_events_do_not_notify() -> None:
    recorded = RecordedNotifier()
    assert recorded.get_output(TURN_STARTED, ASKED, at=0, live=False) == ""
    assert recorded.get_output(TURN_ENDED, at=100, live=False) == ""


def test_a_focused_terminal_gets_no_desktop_notification() -> None:
    recorded = RecordedNotifier()
    recorded.notifier.record_focus(True)
    assert recorded.get_output(TURN_STARTED, ASKED) == "\a"


def test_an_unfocused_terminal_is_notified_of_short_turns() -> None:
    recorded = RecordedNotifier()
    recorded.notifier.record_focus(False)
    recorded.get_output(TURN_STARTED, at=0)
    assert recorded.get_output(TURN_ENDED, at=1) == f"\a{NOTIFICATION}finished\x1b\\"


def test_bell_and_desktop_notification_can_be_switched_off() -> None:
    assert RecordedNotifier(bell=False).get_output(TURN_STARTED, ASKED).startswith(NOTIFICATION)
    assert RecordedNotifier(desktop_notification=False).get_output(TURN_STARTED, ASKED) == "\a"
    assert RecordedNotifier(bell=False, desktop_notification=False).get_output(TURN_STARTED, ASKED) == ""


@pytest.mark.parametrize(
    ("env", "sequence"),
    [
        ({"TERM": "xterm-256color"}, "\x1b]9;Odin: done\x1b\\"),
        ({"TERM": "xterm-kitty"}, "\x1b]99;;Odin: done\x1b\\"),
        ({"TERM": "foot"}, "\x1b]777;notify;Odin;done\x1b\\"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0"}, "\x1bPtmux;\x1b\x1b]9;Odin: done\x1b\x1b\\\x1b\\"),
        ({"TERM": "screen-256color"}, ""),
        ({"TERM": "linux"}, ""),
        ({"TERM": "dumb"}, ""),
        ({}, ""),
    ],
)
def test_each_terminal_gets_its_notification_sequence(env: dict[str, str], sequence: str) -> None:
    assert format_desktop_notification("Odin", "done", env) == sequence


def test_text_cannot_terminate_the_sequence() -> None:
    evil = "a\x1b\\\x1b]52;c;ZXZpbA==\x07b\x9cc\nd\u202ee" + "x" * 500
    for written in (format_desktop_notification("Odin", evil, XTERM), format_title(evil)):
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", written[2:].removesuffix("\x1b\\").removesuffix("\a"))
    assert len(sanitize_line(evil)) == 120


def test_the_title_shows_the_state_and_is_restored() -> None:
    recorded = RecordedNotifier(title=True, bell=False, desktop_notification=False)
    assert recorded.get_output() == "\x1b[22;0t\x1b]0;project\a"
    assert recorded.get_output(TURN_STARTED) == "\x1b]0;✳ working — project\a"
    assert recorded.get_output() == ""
    assert recorded.get_output(ASKED) == "\x1b]0;? needs you — project\a"
    assert recorded.get_output(PermissionAnswered("a", "c", True)) == "\x1b]0;✳ working — project\a"
    assert recorded.get_output(TURN_ENDED) == "\x1b]0;project\a"
    recorded.written = ""
    recorded.notifier.restore_title()
    recorded.notifier.restore_title()
    assert recorded.written == "\x1b[23;0t"
    assert recorded.get_output() == "\x1b[22;0t\x1b]0;project\a"


def test_no_title_is_written_if_disabled_or_unsupported() -> None:
    assert RecordedNotifier(title=False).get_output(TURN_STARTED) == ""
    assert RecordedNotifier({"TERM": "linux"}, title=True).get_output(TURN_STARTED) == ""
