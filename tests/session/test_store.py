"""The session store and index: finding sessions by id, prefix or words, the latest one, and the summaries."""

import os
import random
from pathlib import Path

import msgspec
import pytest

from odin.core.client import SessionSummary
from odin.core.errors import SessionNotFound, UsageError
from odin.core.event import AnyEvent, Compacted, ModelChanged, PromptQueued
from odin.session.index import INDEX_NAME, SessionIndex, read_index_entry
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore

from .logs import append_events, opened, titled, turn, write_session
from .session_model import Move, SessionModel


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path, "/w")


def test_session_is_found_by_a_prefix_of_its_id_or_words_of_its_title(store: SessionStore) -> None:
    write_session(store, "20260101aaa", [opened(), *turn("t", "mend the login page")])
    write_session(store, "20260102bbb", [opened(), titled("A faster search"), *turn("t", "look")])
    assert store.find("20260101aaa") == "20260101aaa"
    assert store.find("20260102") == "20260102bbb"
    assert store.find("LOGIN mend") == "20260101aaa"
    assert store.find(" faster ") == "20260102bbb"
    with pytest.raises(SessionNotFound, match="matches 2 sessions") as caught:
        store.find("2026")
    assert "20260101aaa" in caught.value.hint
    with pytest.raises(SessionNotFound, match="no session nothing like it"):
        store.find("nothing like it")
    with pytest.raises(SessionNotFound, match="No session given"):
        store.find("  ")
    for wrong in ("../escape", "a/b", "..", "x" * 101):
        with pytest.raises(UsageError):
            store.find(wrong)


def test_exact_id_wins_over_longer_ids_with_that_prefix(store: SessionStore) -> None:
    write_session(store, "ab", [opened(), *turn("t", "one")])
    write_session(store, "abc", [opened(), *turn("t", "two")])
    assert store.find("ab") == "ab"


def test_latest_session_has_a_prompt_and_is_not_locked(store: SessionStore) -> None:
    write_session(store, "good", [opened(), *turn("t", "hello")], 100)
    write_session(store, "older", [opened(), *turn("t", "hello")], 50)
    write_session(store, "empty", [opened(), titled("x")], 200)
    write_session(store, "broken", [opened(), *turn("t", "hello")], 300).path.write_text("no log\n")
    assert store.find_latest() == "good"
    taken = store.open("good")
    taken.hold()
    os.utime(taken.path, (100, 100))
    assert store.find_latest(unlocked=True) == "older"
    assert store.find_latest() == "good"
    also = store.open("older")
    also.hold()
    with pytest.raises(SessionNotFound) as caught:
        store.find_latest(unlocked=True)
    assert f"good is open in another process (PID {os.getpid()} " in caught.value.hint
    taken.close()
    also.close()


def test_session_with_only_a_queued_prompt_can_be_the_latest(store: SessionStore) -> None:
    write_session(store, "queued", [opened(), PromptQueued("p", "later", "edit_mode")])
    assert store.find_latest() == "queued"


def test_summary_agrees_with_the_log(store: SessionStore) -> None:
    log = write_session(
        store, "one", [opened("a/b"), *turn("t1", "first  thing\n" + "x" * 200), *turn("t2", "second")], 77
    )
    (row,) = SessionIndex(store.folder).list_summaries()
    assert row.original == row.first == ("first thing " + "x" * 67 + "…")
    assert len(row.first) == 80
    assert (row.id, row.turns, row.model, row.cwd, row.modified) == ("one", 2, "a/b", "/w", 77)
    assert (row.usage.input, row.usage.output, row.cost_usd) == (20, 10, 0.5)
    assert row.bytes == log.path.stat().st_size
    assert row.title == row.original


def test_summary_keeps_the_first_prompt_after_a_compaction(store: SessionStore) -> None:
    events = [*turn("t1", "first"), *turn("t2", "second"), Compacted("In short.", 2)]
    write_session(store, "a", [opened(), *events])
    write_session(store, "b", [opened(), *events[:-1], Compacted("In short.", 2, user_prompts=("second of all", "x"))])
    rows = {row.id: row for row in SessionIndex(store.folder).list_summaries()}
    assert (rows["a"].original, rows["a"].first) == ("first", "second")
    assert (rows["b"].original, rows["b"].first) == ("first", "second of all")


@pytest.mark.parametrize(
    "damage", [None, b"", b"\xff\xff", b"[]", b"\x93\x01\x02", msgspec.msgpack.encode([99, [["x"]]])]
)
def test_damaged_index_is_rebuilt(store: SessionStore, damage: bytes | None) -> None:
    write_session(store, "one", [opened(), *turn("t", "hello")])
    before = SessionIndex(store.folder).list_summaries()
    index = store.folder / INDEX_NAME
    if damage is None:
        index.unlink()
    else:
        index.write_bytes(damage)
    assert SessionIndex(store.folder).list_summaries() == before
    assert index.read_bytes() not in (damage, b"")
    assert SessionIndex(store.folder).list_summaries() == before


def test_index_of_another_version_is_ignored(store: SessionStore) -> None:
    write_session(store, "one", [opened(), *turn("t", "hello")])
    before = SessionIndex(store.folder).list_summaries()
    version, rows, *rest = msgspec.msgpack.decode((store.folder / INDEX_NAME).read_bytes())
    assert "hello" in rows[0]
    told = [["lies" if field == "hello" else field for field in row] for row in rows]
    (store.folder / INDEX_NAME).write_bytes(msgspec.msgpack.encode([version + 1, told, *rest]))
    assert SessionIndex(store.folder).list_summaries() == before
    (store.folder / INDEX_NAME).write_bytes(msgspec.msgpack.encode([version, told, *rest]))
    assert SessionIndex(store.folder).list_summaries()[0].first == "lies", "an index of this version is used"


def test_half_written_line_counts_once_it_is_complete(store: SessionStore) -> None:
    log = write_session(store, "one", [opened(), *turn("t1", "hello")])
    line = log.path.read_bytes().splitlines(keepends=True)[2].replace(b'"t1"', b'"t2"')
    turns: list[int] = []
    for part in (line[:50], line[50:]):
        with log.path.open("ab") as file:
            file.write(part)
        turns.append(SessionIndex(store.folder).list_summaries()[0].turns)
    assert turns == [1, 2]


def test_index_row_without_a_log_is_dropped(store: SessionStore) -> None:
    log = write_session(store, "one", [opened(), *turn("t", "hello")])
    write_session(store, "two", [opened(), *turn("t", "hello")])
    assert len(SessionIndex(store.folder).list_summaries()) == 2
    log.path.unlink()
    assert [row.id for row in SessionIndex(store.folder).list_summaries()] == ["two"]
    assert b"one" not in (store.folder / INDEX_NAME).read_bytes()


def test_log_replaced_by_a_shorter_one_is_read_again(store: SessionStore) -> None:
    log = write_session(store, "one", [opened(), *turn("t", "a rather long prompt")])
    assert SessionIndex(store.folder).list_summaries()[0].first == "a rather long prompt"
    log.path.write_bytes(log.path.read_bytes().replace(b"a rather long prompt", b"short"))
    assert SessionIndex(store.folder).list_summaries()[0].first == "short"


def test_sessions_are_listed_if_the_index_cannot_be_written(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_session(store, "one", [opened(), *turn("t", "hello")])

    def raise_no_space(*args: object, **more: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("odin.session.index.os.open", raise_no_space)
        assert [row.first for row in SessionIndex(store.folder).list_summaries()] == ["hello"]
    assert not (store.folder / INDEX_NAME).exists()


def test_only_the_new_end_of_a_log_is_read(store: SessionStore) -> None:
    """The start of the log changes without changing its size, which a full read would notice."""
    log = write_session(store, "one", [opened(), *turn("t1", "hello")], 50)
    SessionIndex(store.folder).list_summaries()
    log.path.write_bytes(log.path.read_bytes().replace(b'"hello"', b'"olleh"'))
    again = store.open("one")
    append_events(again, turn("t2", "more"), 10)
    again.close()
    (row,) = SessionIndex(store.folder).list_summaries()
    assert (row.first, row.turns) == ("hello", 2)


def _make_random_events(rng: random.Random) -> list[AnyEvent]:
    session = SessionModel()
    kinds: tuple[Move, ...] = ("ask", "ask", "ask and inject", "be blocked", "go back", "take files back", "redo")
    for number in range(rng.randrange(1, 12)):
        session.move(rng.choice(kinds), rng.randrange(1, 4))
        if rng.random() < 0.2:
            session.emit(titled(f"title {number}"))
            session.emit(ModelChanged(f"m/{number}"))
    return [item.event for item in session.log]


def _list_facts(row: SessionSummary) -> tuple[object, ...]:
    return row.first, row.turns, row.model, row.usage, row.cost_usd


@pytest.mark.parametrize("seed", range(60))
def test_index_agrees_with_the_folded_state_however_the_log_grew(store: SessionStore, seed: int) -> None:
    """The log is written in pieces with a listing after each, and may have a torn line."""
    rng = random.Random(seed)
    events = _make_random_events(rng)
    cut = rng.randrange(len(events))
    log = write_session(store, "one", events[:cut])
    index = SessionIndex(store.folder)
    if log.path.exists():
        index.list_summaries()
        if rng.random() < 0.3:
            with log.path.open("ab") as file:
                file.write(b'{"seq":500,"ts":1.0,"session":"one","event":{"type":"TurnStarted","id":"torn')
            index.list_summaries()
    again = store.open("one") if log.path.exists() else store.create("/w", "one")
    for number, event in enumerate(events[cut:], cut):
        append_events(again, [event], number)
        if rng.random() < 0.5:
            index.list_summaries()
    again.close()
    state = SessionState.fold(read_log(log.path))
    (row,) = index.list_summaries()
    turns = state.turns
    assert _list_facts(row) == (
        turns[0].body if turns else "",
        len(turns),
        state.model,
        state.totals.usage,
        state.totals.cost_usd,
    )
    info = log.path.stat()
    fresh = read_index_entry("one", log.path, info.st_size, info.st_mtime_ns)
    assert (fresh.title, fresh.first, fresh.turns, fresh.original) == (
        state.title,
        row.first,
        row.turns,
        row.original,
    )
