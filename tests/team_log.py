"""Checks the tasks and the mail of a session log: legal state changes, and every mail delivered once."""

from collections.abc import Iterable

from odin.core.event import Envelope, NoteAdded, SessionOpened, TurnStarted
from odin.core.team import MailSent, TaskChanged, TaskCreated, TaskState
from odin.engine.crash_recovery import find_dangling
from odin.session.state import SessionState

_LEGAL_CHANGES: dict[TaskState, set[TaskState]] = {
    "running": {"running", "waiting_main", "waiting_descendant", "completed", "failed", "cancelled", "idle"},
    "waiting_main": {"running", "cancelled", "idle"},
    "waiting_descendant": {"running", "waiting_main", "completed", "failed", "cancelled", "idle"},
    "idle": {"running", "cancelled"},
    "completed": {"running"},
    "failed": set(),
    "cancelled": set(),
}


def sent_in(log: Iterable[Envelope]) -> list[MailSent]:
    """Return all mail that was sent, in order."""
    events = [envelope.event for envelope in log]
    mail = [event.mail if isinstance(event, TaskChanged) else event for event in events]
    return [item for item in mail if isinstance(item, MailSent)]


def delivered_in(log: Iterable[Envelope]) -> list[str]:
    """Return the ids of all mail that was delivered to a model, in order."""
    events = [envelope.event for envelope in log]
    return [name for event in events if isinstance(event, TurnStarted | NoteAdded) for name in event.mail]


def check_team(log: list[Envelope]) -> SessionState:
    """Fold the log event by event, and check its tasks and mail after each. Return the final state."""
    state = SessionState.fold([], read_log=lambda: log)
    sent: set[str] = set()
    delivered: set[str] = set()
    replaced: set[str] = set()
    known: dict[str, MailSent] = {}
    for envelope in log:
        event = envelope.event
        before = dict(state.board.messages)
        known |= before
        if isinstance(event, TurnStarted | NoteAdded):
            for name in event.mail:
                assert name in sent and name not in delivered, f"{name} was delivered twice, or before it was sent"
                assert known[name].recipient == envelope.agent, f"{name} was delivered to {envelope.agent!r}"
                # A newer progress report may replace one that its recipient has already taken.
                assert name in before or known[name].kind == "progress", f"{name} was dropped, and then delivered"
                delivered.add(name)
        if isinstance(event, TaskCreated):
            assert event.id not in state.board.tasks, f"{event.id} was created twice"
        if isinstance(event, TaskChanged):
            old = state.board.tasks[event.id].state
            assert event.state in _LEGAL_CHANGES[old], f"{event.id}: {old} to {event.state} at event {envelope.seq}"
        for mail in sent_in([envelope]):
            assert mail.id not in sent, f"{mail.id} was sent twice"
            sent.add(mail.id)
        state.apply(envelope)
        replaced |= {name for name in before if name not in state.board.messages} - delivered
    waiting = set(state.board.messages)
    assert sent == delivered | replaced | waiting, f"lost mail: {sent - delivered - replaced - waiting}"
    assert {mail.kind for mail in sent_in(log) if mail.id in replaced} <= {"progress"}
    for mail in state.board.messages.values():
        task = next((task for task in state.board.tasks.values() if mail.recipient in task.agents), None)
        assert not mail.recipient or task is not None, f"{mail.id} has an unknown recipient: {mail.recipient}"
        unread_at_end = task is not None and task.state == "completed" and mail.kind != "progress"
        assert not unread_at_end, f"{mail.id} to {mail.recipient} was never read"
    return state


def check_prefixes(log: list[Envelope], steps: int = 25) -> None:
    """Resume prefixes of the log: no agent is running any more, and no mail is lost."""
    for end in range(1, len(log) + 1, max(1, len(log) // steps)):
        check_resumed(log[:end])


def check_resumed(log: list[Envelope]) -> SessionState:
    """Resume this log, and check that no agent is running and no mail is lost. Return the final state."""
    before = SessionState.fold(log)
    more = [(SessionOpened(before.cwd, before.model, "1"), ""), *find_dangling(before).events]
    after = [Envelope(before.seq + n, 0.0, before.session, event, agent) for n, (event, agent) in enumerate(more, 1)]
    state = check_team([*log, *after])
    assert not state.sub_agents.records
    assert not [item.id for item in state.queue if item.agent]
    assert {task.state for task in state.board.tasks.values()} <= set(_LEGAL_CHANGES) - {
        "running",
        "waiting_descendant",
    }
    assert set(state.board.messages) == set(before.board.messages)
    return state
