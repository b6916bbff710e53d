"""The bell, the desktop notification and the title: the bytes that go to the terminal, and when."""

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
BEGUN = TurnStarted("p", "x", "edit_mode")
DONE = TurnEnded("p", "end_turn")
ASKED = PermissionAsked("a", "c", "Bash", {}, "why")
TOLD = "\x1b]9;Odin in project: "


_QUIET: dict[str, Any] = {"title": False}


class Terminal:
    """A notifier with recorded output. `at` is the time of the next events in seconds."""

    def __init__(self, env: dict[str, str] | None = None, **settings: Any) -> None:
        chosen = TuiSettings(**{**_QUIET, **settings})
        self.notifier = Notifier(cast(Any, None), chosen, env or XTERM)
        self.written = ""
        self.notifier.write = self._write
        self.notifier.enter_session(cast(Client, None), INFO)

    def _write(self, text: str) -> None:
        self.written += text

    def happens(self, *events: Any, at: float = 0.0, live: bool = True, agent: str = "") -> str:
        """The output for these events and the next frame."""
        self.written = ""
        for event in events:
            self.notifier.handle_event(Envelope(0, at, "s", event, agent), live)
        self.notifier.draw_frame()
        return self.written


def test_a_question_rings_and_is_told() -> None:
    terminal = Terminal()
    assert terminal.happens(BEGUN) == ""
    assert terminal.happens(ASKED) == f"\a{TOLD}needs your permission for Bash\x1b\\"


def test_a_question_of_an_agent_calls_as_well() -> None:
    asked = QuestionsAsked("q", "c", (Question("Base", "Which one?"),))
    assert Terminal().happens(asked, agent="agent-1") == f"\a{TOLD}asks: Which one?\x1b\\"


def test_a_question_that_was_answered_at_once_calls_nobody() -> None:
    assert Terminal().happens(BEGUN, ASKED, PermissionAnswered("a", "c", True, by="rule")) == ""


def test_short_work_ends_without_a_call() -> None:
    terminal = Terminal()
    terminal.happens(BEGUN, at=0)
    assert terminal.happens(DONE, at=9) == ""


def test_long_work_ends_with_one() -> None:
    terminal = Terminal()
    terminal.happens(BEGUN, at=0)
    assert terminal.happens(DONE, at=10) == f"\a{TOLD}finished\x1b\\"


def test_a_failure_says_what_failed() -> None:
    terminal = Terminal()
    terminal.happens(BEGUN, at=0)
    assert "failed: The key is wrong." in terminal.happens(TurnEnded("p", "error", error="The key is wrong."), at=60)


def test_work_that_the_person_stopped_calls_nobody() -> None:
    terminal = Terminal()
    terminal.happens(BEGUN, at=0)
    assert terminal.happens(TurnEnded("p", "interrupted"), at=60) == ""


def test_nobody_is_called_between_a_turn_and_the_next_one() -> None:
    terminal = Terminal()
    terminal.happens(BEGUN, at=0)
    assert terminal.happens(DONE, TurnStarted("q", "y", "edit_mode"), at=30) == ""
    assert "finished" in terminal.happens(TurnEnded("q", "end_turn"), at=41)


def test_loop_mode_calls_when_it_is_over() -> None:
    terminal = Terminal()
    terminal.happens(LoopChanged("executing", "x", 1, 10), BEGUN, at=0)
    assert terminal.happens(DONE, at=30) == ""
    assert "finished" in terminal.happens(LoopChanged("completed"), at=31)


def test_the_past_calls_nobody() -> None:
    terminal = Terminal()
    assert terminal.happens(BEGUN, ASKED, at=0, live=False) == ""
    assert terminal.happens(DONE, at=100, live=False) == ""


def test_a_terminal_that_is_looked_at_gets_no_desktop_notification() -> None:
    terminal = Terminal()
    terminal.notifier.record_focus(True)
    assert terminal.happens(BEGUN, ASKED) == "\a"


def test_a_terminal_that_is_not_looked_at_is_called_for_short_work_too() -> None:
    terminal = Terminal()
    terminal.notifier.record_focus(False)
    terminal.happens(BEGUN, at=0)
    assert terminal.happens(DONE, at=1) == f"\a{TOLD}finished\x1b\\"


def test_both_can_be_switched_off() -> None:
    assert Terminal(bell=False).happens(BEGUN, ASKED).startswith(TOLD)
    assert Terminal(desktop_notification=False).happens(BEGUN, ASKED) == "\a"
    assert Terminal(bell=False, desktop_notification=False).happens(BEGUN, ASKED) == ""


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
def test_each_terminal_gets_what_it_understands(env: dict[str, str], sequence: str) -> None:
    assert format_desktop_notification("Odin", "done", env) == sequence


def test_no_words_of_a_model_can_end_the_sequence() -> None:
    evil = "a\x1b\\\x1b]52;c;ZXZpbA==\x07b\x9cc\nd\u202ee" + "x" * 500
    for written in (format_desktop_notification("Odin", evil, XTERM), format_title(evil)):
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", written[2:].removesuffix("\x1b\\").removesuffix("\a"))
    assert len(sanitize_line(evil)) == 120


def test_the_title_says_what_goes_on_and_is_given_back() -> None:
    terminal = Terminal(title=True, bell=False, desktop_notification=False)
    assert terminal.happens() == "\x1b[22;0t\x1b]0;project\a"
    assert terminal.happens(BEGUN) == "\x1b]0;✳ working — project\a"
    assert terminal.happens() == ""
    assert terminal.happens(ASKED) == "\x1b]0;? needs you — project\a"
    assert terminal.happens(PermissionAnswered("a", "c", True)) == "\x1b]0;✳ working — project\a"
    assert terminal.happens(DONE) == "\x1b]0;project\a"
    terminal.written = ""
    terminal.notifier.restore_title()
    terminal.notifier.restore_title()
    assert terminal.written == "\x1b[23;0t"
    assert terminal.happens() == "\x1b[22;0t\x1b]0;project\a"


def test_a_title_that_is_not_wanted_or_not_possible_is_never_written() -> None:
    assert Terminal(title=False).happens(BEGUN) == ""
    assert Terminal({"TERM": "linux"}, title=True).happens(BEGUN) == ""
