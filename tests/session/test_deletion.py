"""Deletion of a session: its files and nothing else, and only while the session is closed."""

import os
from pathlib import Path

import msgspec
import pytest

from odin.core.errors import SessionLocked, SessionNotFound, UsageError
from odin.session.index import SessionIndex
from odin.session.lifecycle import DELETED_PREFIX, delete_session, sweep_leftovers
from odin.session.lock import LockHolder, get_host_name
from odin.session.store import SessionStore

from .logs import opened, turn, write_session


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    store = SessionStore(tmp_path / "state", "/w")
    for session in ("one", "two"):
        folder = write_session(store, session, [opened(), *turn("t", "hello")]).path.parent
        for name in ("outputs/a.txt", "spawn-logs/b.log", "images/c.png"):
            path = folder / name
            path.parent.mkdir()
            path.write_text("x")
    return store


def test_deletion_removes_the_session_and_nothing_else(store: SessionStore) -> None:
    beside = store.folder.parent.parent / "checkpoints" / store.folder.name / "objects"
    beside.mkdir(parents=True)
    (beside / "shared").write_text("bytes")
    SessionIndex(store.folder).list_summaries()
    delete_session(store, "one")
    left = {path.name for path in store.folder.iterdir()}
    assert left - {"usage.jsonl"} == {".index", "two"}, "the usage record may stay"
    assert [item.id for item in SessionIndex(store.folder).list_summaries()] == ["two"]
    assert (beside / "shared").read_text() == "bytes"


def test_open_session_is_not_deleted(store: SessionStore) -> None:
    log = store.open("one")
    log.hold()
    with pytest.raises(SessionLocked):
        delete_session(store, "one")
    assert log.path.exists()
    log.close()
    delete_session(store, "one")
    assert not log.path.exists()


@pytest.mark.parametrize("session", ["..", ".", "", "../two", "/etc", "one/outputs", "two/.."])
def test_id_with_a_path_is_refused(store: SessionStore, session: str) -> None:
    with pytest.raises(UsageError):
        delete_session(store, session)
    assert len(store.list()) == 2


def test_unknown_session_is_an_error(store: SessionStore) -> None:
    with pytest.raises(SessionNotFound):
        delete_session(store, "three")


def test_symbolic_links_are_not_followed(store: SessionStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.jsonl").write_text("precious")
    (store.folder / "linked").symlink_to(outside)
    with pytest.raises(UsageError, match="is a link"):
        delete_session(store, "linked")
    (store.get_path("one").parent / "outputs" / "link").symlink_to(outside)
    delete_session(store, "one")
    assert (outside / "main.jsonl").read_text() == "precious"


def test_session_with_a_damaged_log_can_be_deleted(store: SessionStore) -> None:
    store.get_path("one").write_bytes(b"\xff no log")
    delete_session(store, "one")
    assert [item.id for item in store.list()] == ["two"]


def test_half_deleted_session_is_not_listed_and_is_swept_up(store: SessionStore) -> None:
    (store.folder / "one").rename(store.folder / f"{DELETED_PREFIX}one")
    assert [item.id for item in SessionIndex(store.folder).list_summaries()] == ["two"]
    assert store.find_log("one") is None
    sweep_leftovers(store)
    assert sorted(path.name for path in store.folder.iterdir()) == [".index", "two"]


def test_old_lock_files_without_a_session_are_swept_up(store: SessionStore) -> None:
    claimed = store.create("/w", "claimed")
    for name, pid, age in (("dead", 2**22 + 1, 1e6), ("young", 2**22 + 1, 0), ("alive", os.getpid(), 1e6)):
        path = store.folder / f"{name}.lock"
        path.write_bytes(msgspec.json.encode(LockHolder(pid, get_host_name(), 1.0)))
        then = path.stat().st_mtime - age
        os.utime(path, (then, then))
    sweep_leftovers(store)
    assert {path.name for path in store.folder.glob("*.lock")} == {"young.lock", "alive.lock", "claimed.lock"}
    claimed.close()
