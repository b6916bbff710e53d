"""Questions left open by a crash count as denied, also in the log."""

from odin.core.call_events import PermissionAnswered, PermissionAsked, QuestionsAnswered, QuestionsAsked
from odin.core.event import AnyEvent, Envelope
from odin.core.event_values import Question
from odin.engine.crash_recovery import find_dangling
from odin.session.state import SessionState


def closings(*events: AnyEvent) -> list[AnyEvent]:
    state = SessionState.fold([Envelope(number, 1.0, "s", event) for number, event in enumerate(events)])
    return [event for event, _ in find_dangling(state).events]


def test_a_permission_that_nobody_gave_is_not_given() -> None:
    (answer,) = closings(PermissionAsked("a1", "c1", "ExecuteCommand", {}, "it runs a program"))
    assert isinstance(answer, PermissionAnswered)
    assert (answer.ask_id, answer.call_id, answer.allowed, answer.rule) == ("a1", "c1", False, "")
    assert answer.by != "user"


def test_questions_that_nobody_answered_are_cancelled() -> None:
    (answer,) = closings(QuestionsAsked("a1", "c1", (Question("Name", "What is it called?"),)))
    assert isinstance(answer, QuestionsAnswered)
    assert (answer.ask_id, answer.cancelled, answer.answers) == ("a1", True, ())
    assert answer.by != "user"


def test_what_was_answered_stays_answered() -> None:
    asked = PermissionAsked("a1", "c1", "ExecuteCommand", {}, "it runs a program")
    assert closings(asked, PermissionAnswered("a1", "c1", True)) == []
