"""Finding sessions: by id, by the beginning of one, by words; the latest; and the list that is always true."""

import os
import random
from pathlib import Path

import msgspec
import pytest

from odin.core.client import SessionSummary
from odin.core.errors import SessionNotFound, UsageError
from odin.core.event import AnyEvent, Compacted, ModelChanged, PromptQueued, Redone, Rewound, TurnEnded, TurnStarted
from odin.session.index import INDEX_NAME, SessionIndex, index_entry_of
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore

from .logs import add, opened, titled, turn, write


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path, "/w")


def test_a_session_is_found_by_the_beginning_of_its_id_and_by_words_of_its_title(store: SessionStore) -> None:
    write(store, "20260101aaa", [opened(), *turn("t", "mend the login page")])
    write(store, "20260102bbb", [opened(), titled("A faster search"), *turn("t", "look")])
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


def test_an_exact_id_wins_over_longer_ones_that_begin_like_it(store: SessionStore) -> None:
    write(store, "ab", [opened(), *turn("t", "one")])
    write(store, "abc", [opened(), *turn("t", "two")])
    assert store.find("ab") == "ab"


def test_the_latest_has_something_asked_in_it_and_is_not_open_elsewhere(store: SessionStore) -> None:
    write(store, "good", [opened(), *turn("t", "hello")], 100)
    write(store, "older", [opened(), *turn("t", "hello")], 50)
    write(store, "empty", [opened(), titled("x")], 200)
    write(store, "broken", [opened(), *turn("t", "hello")], 300).path.write_text("no log\n")
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


def test_a_prompt_that_still_waits_makes_a_session_worth_going_on_with(store: SessionStore) -> None:
    write(store, "queued", [opened(), PromptQueued("p", "later", "edit_mode")])
    assert store.find_latest() == "queued"


def test_a_summary_says_what_the_log_says(store: SessionStore) -> None:
    log = write(store, "one", [opened("a/b"), *turn("t1", "first  thing\n" + "x" * 200), *turn("t2", "second")], 77)
    (row,) = SessionIndex(store.folder).list_summaries()
    assert row.original == row.first == ("first thing " + "x" * 67 + "…")
    assert len(row.first) == 80
    assert (row.id, row.turns, row.model, row.cwd, row.modified) == ("one", 2, "a/b", "/w", 77)
    assert (row.usage.input, row.usage.output, row.cost_usd) == (20, 10, 0.5)
    assert row.bytes == log.path.stat().st_size
    assert row.title == row.original


def test_the_first_prompt_is_remembered_when_a_summary_took_its_place(store: SessionStore) -> None:
    events = [*turn("t1", "first"), *turn("t2", "second"), Compacted("In short.", 2)]
    write(store, "a", [opened(), *events])
    write(store, "b", [opened(), *events[:-1], Compacted("In short.", 2, user_prompts=("second of all", "x"))])
    rows = {row.id: row for row in SessionIndex(store.folder).list_summaries()}
    assert (rows["a"].original, rows["a"].first) == ("first", "second")
    assert (rows["b"].original, rows["b"].first) == ("first", "second of all")


@pytest.mark.parametrize(
    "damage", [None, b"", b"\xff\xff", b"[]", b"\x93\x01\x02", msgspec.msgpack.encode([99, [["x"]]])]
)
def test_a_damaged_index_is_made_anew(store: SessionStore, damage: bytes | None) -> None:
    write(store, "one", [opened(), *turn("t", "hello")])
    before = SessionIndex(store.folder).list_summaries()
    index = store.folder / INDEX_NAME
    if damage is None:
        index.unlink()
    else:
        index.write_bytes(damage)
    assert SessionIndex(store.folder).list_summaries() == before
    assert index.read_bytes() not in (damage, b"")
    assert SessionIndex(store.folder).list_summaries() == before


def test_an_index_of_another_version_is_not_believed(store: SessionStore) -> None:
    write(store, "one", [opened(), *turn("t", "hello")])
    before = SessionIndex(store.folder).list_summaries()
    version, rows, *rest = msgspec.msgpack.decode((store.folder / INDEX_NAME).read_bytes())
    assert "hello" in rows[0]
    told = [["lies" if field == "hello" else field for field in row] for row in rows]
    (store.folder / INDEX_NAME).write_bytes(msgspec.msgpack.encode([version + 1, told, *rest]))
    assert SessionIndex(store.folder).list_summaries() == before
    (store.folder / INDEX_NAME).write_bytes(msgspec.msgpack.encode([version, told, *rest]))
    assert SessionIndex(store.folder).list_summaries()[0].first == "lies", "and one of this version is"


def test_a_line_that_is_half_written_counts_when_it_is_whole(store: SessionStore) -> None:
    log = write(store, "one", [opened(), *turn("t1", "hello")])
    line = log.path.read_bytes().splitlines(keepends=True)[2].replace(b'"t1"', b'"t2"')
    for part in (line[:50], line[50:]):
        with log.path.open("ab") as file:
            file.write(part)
        turns = SessionIndex(store.folder).list_summaries()[0].turns
    assert turns == 2


def test_a_row_whose_log_is_gone_is_not_believed(store: SessionStore) -> None:
    log = write(store, "one", [opened(), *turn("t", "hello")])
    write(store, "two", [opened(), *turn("t", "hello")])
    assert len(SessionIndex(store.folder).list_summaries()) == 2
    log.path.unlink()
    assert [row.id for row in SessionIndex(store.folder).list_summaries()] == ["two"]
    assert b"one" not in (store.folder / INDEX_NAME).read_bytes()


def test_a_log_that_was_replaced_by_a_shorter_one_is_read_again(store: SessionStore) -> None:
    log = write(store, "one", [opened(), *turn("t", "a rather long prompt")])
    assert SessionIndex(store.folder).list_summaries()[0].first == "a rather long prompt"
    log.path.write_bytes(log.path.read_bytes().replace(b"a rather long prompt", b"short"))
    assert SessionIndex(store.folder).list_summaries()[0].first == "short"


def test_a_folder_that_cannot_be_written_still_lists(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, "one", [opened(), *turn("t", "hello")])

    def full(*args: object, **more: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("odin.session.index.os.open", full)
        assert [row.first for row in SessionIndex(store.folder).list_summaries()] == ["hello"]
    assert not (store.folder / INDEX_NAME).exists()


def test_only_what_grew_is_read(store: SessionStore) -> None:
    """The beginning of the file is overwritten with the same number of bytes: a reader of all of it would notice."""
    log = write(store, "one", [opened(), *turn("t1", "hello")], 50)
    SessionIndex(store.folder).list_summaries()
    log.path.write_bytes(log.path.read_bytes().replace(b'"hello"', b'"olleh"'))
    again = store.open("one")
    add(again, turn("t2", "more"), 10)
    again.close()
    (row,) = SessionIndex(store.folder).list_summaries()
    assert (row.first, row.turns) == ("hello", 2)


def _some_events(rng: random.Random) -> list[AnyEvent]:
    events: list[AnyEvent] = [opened()]
    names: list[str] = []
    gone: list[tuple[str, list[str]]] = []
    for number in range(rng.randrange(1, 12)):
        kind = rng.randrange(7)
        if kind <= 2:
            names.append(f"t{number}")
            events += turn(names[-1], f"prompt {number}")
            gone.clear()
        elif kind == 3 and names:
            target = rng.randrange(len(names))
            gone.append((f"r{number}", list(names)))
            events.append(Rewound(f"r{number}", names[target], files=False, chat=True))
            del names[target:]
        elif kind == 4 and gone:
            back, names = gone.pop()
            events.append(Redone(back))
        elif kind == 5:
            blocked = TurnEnded(f"b{number}", "error", error_kind="PromptBlocked")
            events += [TurnStarted(f"b{number}", f"blocked {number}", "edit_mode"), blocked]
            gone.clear()
        else:
            events += [titled(f"title {number}"), ModelChanged(f"m/{number}")]
    return events


def _facts(row: SessionSummary) -> tuple[object, ...]:
    return row.first, row.turns, row.model, row.usage, row.cost_usd


@pytest.mark.parametrize("seed", range(60))
def test_the_list_agrees_with_the_fold_however_the_log_grew(store: SessionStore, seed: int) -> None:
    """Written in pieces with a look at the list after each, and torn in the middle of a line once."""
    rng = random.Random(seed)
    events = _some_events(rng)
    cut = rng.randrange(len(events))
    log = write(store, "one", events[:cut])
    index = SessionIndex(store.folder)
    if log.path.exists():
        index.list_summaries()
        if rng.random() < 0.3:
            with log.path.open("ab") as file:
                file.write(b'{"seq":500,"ts":1.0,"session":"one","event":{"type":"TurnStarted","id":"torn')
            index.list_summaries()
    again = store.open("one") if log.path.exists() else store.create("/w", "one")
    for number, event in enumerate(events[cut:], cut):
        add(again, [event], number)
        if rng.random() < 0.5:
            index.list_summaries()
    again.close()
    state = SessionState.fold(read_log(log.path))
    (row,) = index.list_summaries()
    turns = state.turns
    assert _facts(row) == (
        turns[0].body if turns else "",
        len(turns),
        state.model,
        state.totals.usage,
        state.totals.cost_usd,
    )
    info = log.path.stat()
    fresh = index_entry_of("one", log.path, info.st_size, info.st_mtime_ns)
    assert (fresh.title, fresh.first, fresh.turns, fresh.original) == (
        state.title,
        row.first,
        row.turns,
        row.original,
    )
