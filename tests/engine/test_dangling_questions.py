"""Permission requests and questions that a crash left open are recorded as denied or cancelled."""

from odin.core.call_events import PermissionAnswered, PermissionAsked, QuestionsAnswered, QuestionsAsked
from odin.core.event import AnyEvent, Envelope
from odin.core.event_values import Question
from odin.engine.crash_recovery import find_dangling
from odin.session.state import SessionState


def find_closing_events(*events: AnyEvent) -> list[AnyEvent]:
    state = SessionState.fold([Envelope(number, 1.0, "s", event) for number, event in enumerate(events)])
    return [event for event, _ in find_dangling(state).events]


def test_unanswered_permission_request_is_denied() -> None:
    (answer,) = find_closing_events(PermissionAsked("a1", "c1", "ExecuteCommand", {}, "it runs a program"))
    assert isinstance(answer, PermissionAnswered)
    assert (answer.ask_id, answer.call_id, answer.allowed, answer.rule) == ("a1", "c1", False, "")
    assert answer.by != "user"


def test_unanswered_questions_are_cancelled() -> None:
    (answer,) = find_closing_events(QuestionsAsked("a1", "c1", (Question("Name", "What is it called?"),)))
    assert isinstance(answer, QuestionsAnswered)
    assert (answer.ask_id, answer.cancelled, answer.answers) == ("a1", True, ())
    assert answer.by != "user"


def test_answered_permission_request_is_not_answered_again() -> None:
    asked = PermissionAsked("a1", "c1", "ExecuteCommand", {}, "it runs a program")
    assert find_closing_events(asked, PermissionAnswered("a1", "c1", True)) == []
