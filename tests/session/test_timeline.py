"""Every reader of a log agrees about which turns are part of the conversation."""

import tempfile
from pathlib import Path
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from odin.core import op as ops
from odin.core.event import Envelope, TurnStarted
from odin.core.message import PromptMessage, ReplyMessage, ToolMessage
from odin.core.policy import redact_nothing
from odin.core.timeline import LoggedTurn, follow_turns
from odin.replay.script import ReplayScript
from odin.session.export_entries import PromptEntry, build_entries, build_overview
from odin.session.index import SessionIndex
from odin.session.lifecycle import fork_session
from odin.session.messages import read_messages
from odin.session.search import MAX_EXCHANGES, preview_session
from odin.session.state import SessionState
from odin.session.store import SessionStore
from odin.ui.session_facts import SessionFacts
from odin.ui.transcript.blocks import PromptBlock
from odin.ui.transcript.model import TranscriptModels

from .session_model import Move, SessionModel

often: list[Move] = ["ask", "ask", "go back", "go back", "redo", "redo"]
moves = st.lists(st.tuples(st.sampled_from([*get_args(Move), *often]), st.integers(0, 3)), min_size=6, max_size=25)


def make_session(made: list[tuple[Move, int]]) -> SessionModel:
    session = SessionModel()
    for move, number in made:
        session.move(move, number)
    return session


def list_all_turns(log: list[Envelope]) -> list[LoggedTurn[None]]:
    timeline = follow_turns()
    changed = [(item, timeline.apply(item)) for item in log if not item.agent]
    return [turn for item, turns in changed if isinstance(item.event, TurnStarted) for turn in turns]


@given(moves)
def test_readers_of_events_agree_about_every_turn(made: list[tuple[Move, int]]) -> None:
    session = make_session(made)
    turns = list_all_turns(session.log)
    assert {turn.id: turn.status for turn in turns} == session.statuses
    assert [turn.id for turn in turns if turn.status == "current"] == session.names

    overview = build_overview(session.log)
    assert {line.id: not line.rewound for line in overview.turns} == {
        turn.id: turn.status == "current" for turn in turns
    }
    entries = [item for item in build_entries(session.log, overview, redact_nothing) if isinstance(item, PromptEntry)]
    assert [item.id for item in entries if item.number and not item.rewound] == session.names
    assert [item.content for item in read_messages(session.log) if item.role == "user"] == session.prompts

    transcripts, facts = TranscriptModels(), SessionFacts()
    for item in session.log:
        transcripts.apply(item)
        facts.apply(item)
    assert [block.key for block in transcripts[""].blocks if isinstance(block, PromptBlock)] == session.shown
    todos = facts.todos[""].todos if "" in facts.todos else ()
    assert [todo.id for todo in todos] == session.names[-1:]

    sent = [
        action.op.id for action in ReplayScript(session.log).actions if isinstance(action.op, ops.Prompt | ops.Continue)
    ]
    assert sent == [turn.id for turn in turns]


@given(moves)
def test_conversation_has_the_current_turns(made: list[tuple[Move, int]]) -> None:
    session = make_session(made)
    state = SessionState.fold(session.log, "s")
    assert [turn.id for turn in state.turns] == session.names
    assert [turn.files for turn in state.turns] == [1] * len(session.names)
    assert [todo.id for todo in state.conversation.todos] == session.names[-1:]
    history = state.build_history()
    assert [
        item.text for item in history if isinstance(item, PromptMessage) and item.origin == "user"
    ] == session.prompts
    asked = [call.id for item in history if isinstance(item, ReplyMessage) for call in item.calls]
    results = [result.call_id for item in history if isinstance(item, ToolMessage) for result in item.results]
    assert asked == results == [f"c{name}" for name in session.names]
    assert [item.event.id for item in state.conversation.timeline.rewinds] == [item[0] for item in session.undone]
    for name in session.names:
        assert f"/{name}" in [change.change.before.path for change in state.list_changes_since(name) or ()]


@given(moves, st.integers(0, 3))
def test_readers_of_files_agree_about_the_current_turns(made: list[tuple[Move, int]], at: int) -> None:
    session = make_session(made)
    with tempfile.TemporaryDirectory() as folder:
        store = SessionStore(Path(folder), "/w")
        log = store.create("/w", "one")
        for item in session.log:
            log.append(item)
        log.close()
        (row,) = SessionIndex(store.folder).list_summaries()
        assert row.turns == sum(prompts[:1] == [name] for name, prompts in session.turns)
        preview = preview_session(log.path, "one")
        assert [item.prompt for item in preview.exchanges] == session.prompts[-MAX_EXCHANGES:]
        if at < len(session.names):
            fork = fork_session(store, store.open("one"), "/w", at=session.names[at])
            fork.log.close()
            assert [turn.id for turn in SessionState.fold(fork.past).turns] == session.names[:at]
