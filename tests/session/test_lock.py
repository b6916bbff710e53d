"""The session lock: one writer per session, tested with real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from odin.core.errors import SessionLockCorrupt, SessionLocked, SessionNotFound
from odin.session.index import SessionIndex
from odin.session.lock import (
    LockHolder,
    describe_lock_holder,
    get_host_name,
    get_lock_path,
    read_lock_holder,
    read_start_time,
)
from odin.session.log import SessionLog
from odin.session.store import SessionStore
from tests.waiting import LIMIT_S

from .logs import opened, turn, write_session

HOLD = """
import sys
if sys.argv[3] == "without": sys.modules["fcntl"] = None
from odin.core.errors import OdinError
from odin.session.store import SessionStore
log = SessionStore(sys.argv[1], "/w").open(sys.argv[2])
try:
    log.hold()
    print("held", flush=True)
except OdinError as error:
    print(type(error).__name__, error, flush=True)
    sys.exit(3)
sys.stdin.read()
log.close()
"""

HOLD_AGAIN_AND_AGAIN = """
import sys
from odin.core.errors import OdinError
from odin.session.store import SessionStore
store = SessionStore(sys.argv[1], "/w")
print("held", flush=True)
while True:
    log = store.open(sys.argv[2])
    try:
        log.hold()
    except OdinError:
        pass
    log.close()
"""


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path, "/w")


@pytest.fixture
def log(store: SessionStore) -> Path:
    return write_session(store, "s1", [opened(), *turn("t1", "first")]).path


def _start_holder(tmp_path: Path, way: str = "with", program: str = HOLD) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), "s1", way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def hold_in_other_process(tmp_path: Path, way: str = "with", program: str = HOLD) -> Generator[subprocess.Popen[str]]:
    """Run another process that holds session s1."""
    process = _start_holder(tmp_path, way, program)
    try:
        assert _read_line(process) == "held"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


def test_locked_session_error_names_the_holder(tmp_path: Path, store: SessionStore, log: Path) -> None:
    with hold_in_other_process(tmp_path) as other:
        with pytest.raises(SessionLocked) as caught:
            store.open("s1").hold()
        assert f"already open in another process (PID {other.pid} on {get_host_name()} since " in str(caught.value)
        assert not isinstance(caught.value, SessionLockCorrupt)
        assert SessionIndex(store.folder).list_summaries()[0].locked.startswith(f"PID {other.pid} on ")


def test_lock_of_a_dead_process_is_taken_over(tmp_path: Path, store: SessionStore, log: Path) -> None:
    with hold_in_other_process(tmp_path) as other:
        other.kill()
        other.wait(LIMIT_S)
        assert get_lock_path(log).exists()
        assert SessionIndex(store.folder).list_summaries()[0].locked == ""
        ours = store.open("s1")
        ours.hold()
        assert f"PID {os.getpid()} " in describe_lock_holder(log)
        ours.close()
    assert not get_lock_path(log).exists()


def test_normal_exit_removes_the_lock_file(tmp_path: Path, store: SessionStore, log: Path) -> None:
    with hold_in_other_process(tmp_path) as other:
        other.communicate(timeout=LIMIT_S)
        assert other.returncode == 0
        assert not get_lock_path(log).exists()


@pytest.mark.parametrize("damage", ["not json", "", None])
def test_unreadable_lock_file_of_a_held_session_is_reported_as_corrupt(
    tmp_path: Path, store: SessionStore, log: Path, damage: str | None
) -> None:
    with hold_in_other_process(tmp_path):
        if damage is None:
            get_lock_path(log).unlink()
        else:
            get_lock_path(log).write_text(damage)
        with pytest.raises(SessionLockCorrupt, match="an unknown process"):
            store.open("s1").hold()
        assert bool(SessionIndex(store.folder).list_summaries()[0].locked) is (damage is not None)


@pytest.mark.slow
def test_holder_that_locks_and_unlocks_repeatedly_is_never_unknown(
    tmp_path: Path, store: SessionStore, log: Path
) -> None:
    with hold_in_other_process(tmp_path, program=HOLD_AGAIN_AND_AGAIN):
        for _ in range(1500):
            ours = store.open("s1")
            try:
                ours.hold()
            except SessionLocked as error:
                assert not isinstance(error, SessionLockCorrupt), error
            ours.close()


def test_holder_that_unlocks_while_its_file_is_read_is_still_named(
    tmp_path: Path, store: SessionStore, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_and_leave(path: Path) -> LockHolder | None:
        holder = read_lock_holder(path)
        path.unlink(missing_ok=True)
        return holder

    monkeypatch.setattr("odin.session.lock.read_lock_holder", read_and_leave)
    with (
        hold_in_other_process(tmp_path) as other,
        pytest.raises(SessionLocked, match=f"another process .PID {other.pid} "),
    ):
        store.open("s1").hold()


def test_damaged_lock_file_without_a_holder_is_replaced(store: SessionStore, log: Path) -> None:
    get_lock_path(log).write_text("{")
    ours = store.open("s1")
    ours.hold()
    assert f"PID {os.getpid()} " in describe_lock_holder(log)
    ours.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_zombie_process_does_not_hold_the_lock(tmp_path: Path, store: SessionStore, log: Path) -> None:
    with hold_in_other_process(tmp_path) as other:
        os.kill(other.pid, signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        os.kill(other.pid, 0)
        assert SessionIndex(store.folder).list_summaries()[0].locked == ""
        assert store.find_latest(unlocked=True) == "s1"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_reused_pid_does_not_hold_the_lock() -> None:
    ours = LockHolder(os.getpid(), get_host_name(), 1.0, read_start_time(os.getpid()))
    assert ours.is_alive
    assert not msgspec.structs.replace(ours, birth="1").is_alive
    assert msgspec.structs.replace(ours, birth="1", host="elsewhere").is_alive


def test_holding_a_deleted_session_does_not_create_it_again(store: SessionStore, log: Path) -> None:
    ours = store.open("s1")
    log.unlink()
    with pytest.raises(Exception, match="No such file"):
        ours.hold()
    assert not log.exists()


def test_log_unlinked_while_it_is_locked_counts_as_deleted(store: SessionStore, log: Path, tmp_path: Path) -> None:
    from odin.session.lock import SessionLock

    fd = os.open(log, os.O_RDWR)
    log.unlink()
    try:
        with pytest.raises(SessionNotFound, match="deleted by another process"):
            SessionLock(log, "s1").acquire(fd)
    finally:
        os.close(fd)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["with", "without"])
def test_one_of_many_concurrent_processes_gets_the_lock(
    tmp_path: Path, store: SessionStore, log: Path, way: str
) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    stale = LockHolder(int(dead.stdout), get_host_name(), 1.0)
    get_lock_path(log).write_bytes(msgspec.json.encode(stale))
    processes = [_start_holder(tmp_path, way) for _ in range(6)]
    try:
        said = [_read_line(process) for process in processes]
        assert said.count("held") == 1
        winner = processes[said.index("held")]
        assert all(f"(PID {winner.pid} on" in line for line in said if line != "held"), said
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=LIMIT_S)


def test_without_fcntl_the_lock_file_decides(tmp_path: Path, log: Path) -> None:
    with hold_in_other_process(tmp_path, "without") as other:
        second = _start_holder(tmp_path, "without")
        assert f"SessionLocked Session s1 is already open in another process (PID {other.pid} " in _read_line(second)
        second.communicate(timeout=LIMIT_S)
        assert second.returncode == 3
        get_lock_path(log).write_text("?")
        third = _start_holder(tmp_path, "without")
        assert _read_line(third).startswith("SessionLockCorrupt")
        third.communicate(timeout=LIMIT_S)


def test_sessions_created_at_the_same_time_get_different_ids(store: SessionStore) -> None:
    logs: list[SessionLog] = [store.create("/w", now=1_000_000.5) for _ in range(3)]
    assert len({log.session for log in logs}) == 3
    for log in logs:
        log.close()
    assert list(store.folder.iterdir()) == [], "an empty session leaves no files"


def test_sessions_of_other_projects_and_processes_get_other_ids(tmp_path: Path) -> None:
    program = """
import sys
from odin.session.store import SessionStore
for number in range(50):
    for root in ("/a", "/b"):
        print(SessionStore(sys.argv[1], root).create(root, now=1_000_000_000.5).session)
"""
    argv = [sys.executable, "-c", program, str(tmp_path)]
    processes = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ids = [line for process in processes for line in process.communicate(timeout=LIMIT_S)[0].split()]
    assert len(ids) == len(set(ids)) == 200
    assert all(len(session) == 17 and session.isdigit() for session in ids)


def test_clock_that_was_set_back_is_used_again(tmp_path: Path) -> None:
    first = SessionStore(tmp_path, "/a").create("/a", now=2_000_000_000.5)
    second = SessionStore(tmp_path, "/a").create("/a", now=1_000_000_000.5)
    assert (first.session[:4], second.session[:4]) == ("2033", "2001")


def test_lock_file_names_process_start_time_and_session(store: SessionStore) -> None:
    logs = [store.create("/w"), store.create("/w")]
    holders = [read_lock_holder(get_lock_path(log.path)) for log in logs]
    assert [holder and (holder.pid, holder.birth, holder.session) for holder in holders] == [
        (os.getpid(), read_start_time(os.getpid()), log.session) for log in logs
    ]
    for log in logs:
        log.close()


def test_lock_file_of_an_earlier_version_is_understood(store: SessionStore, log: Path) -> None:
    ours = store.open("s1")
    ours.hold()
    written = {"pid": os.getpid(), "host": get_host_name(), "since": 1.0, "birth": "another"}
    for birth, where in ((read_start_time(os.getpid()), "this"), ("", "another")):
        get_lock_path(log).write_bytes(msgspec.json.encode({**written, "birth": birth}))
        with pytest.raises(SessionLocked, match=f"already open in {where} process"):
            store.open("s1").hold()
    ours.close()


@pytest.mark.parametrize("damage", ["link", "folder", '{"pid": "x"}', "[]"])
def test_invalid_lock_file_counts_as_an_unknown_holder(store: SessionStore, log: Path, damage: str) -> None:
    file = get_lock_path(log)
    if damage == "link":
        file.symlink_to("nowhere")
    elif damage == "folder":
        file.mkdir()
    else:
        file.write_text(damage)
    with pytest.raises(ValueError):
        read_lock_holder(file)
    assert describe_lock_holder(log) == "unknown process"
    with pytest.raises(ValueError):
        read_lock_holder(log / "below a file")


def test_lock_works_without_a_writable_lock_file(store: SessionStore, log: Path) -> None:
    get_lock_path(log).mkdir()
    before = sorted(item.name for item in store.folder.iterdir())
    ours = store.open("s1")
    ours.hold()
    assert sorted(item.name for item in store.folder.iterdir()) == before, "fcntl holds the lock without a lock file"
    ours.close()
