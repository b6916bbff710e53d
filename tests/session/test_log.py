"""The session log: its format, torn and foreign files, and the store that creates and finds logs."""

import gc
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.core.errors import (
    LogDamaged,
    LogTooNew,
    LogTooOld,
    SessionLocked,
    SessionNotFound,
    StateUnwritable,
    UsageError,
)
from odin.core.event import Envelope, TurnEnded, TurnStarted
from odin.session.log import LOG_FORMAT, LogHeader, SessionLog, pause_collection, read_header, read_log
from odin.session.store import SessionStore, make_project_key, make_session_id
from tests.waiting import LIMIT_S


def make_envelope(number: int) -> Envelope:
    return Envelope(number, 1.0, "s", TurnStarted(f"t{number}", "héllo\n", "edit_mode"))


@pytest.fixture
def log(tmp_path: Path) -> SessionLog:
    return SessionLog(tmp_path / "deep" / "s" / "main.jsonl", LogHeader(LOG_FORMAT, "s", "/w", 1.0))


def test_log_has_a_header_and_one_line_per_event(log: SessionLog) -> None:
    log.append(make_envelope(0))
    log.append(make_envelope(1))
    log.sync()
    log.close()
    assert log.path.read_bytes().count(b"\n") == 3
    assert read_header(log.path).odin_log == LOG_FORMAT
    assert list(read_log(log.path)) == [make_envelope(0), make_envelope(1)]
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_log_without_events_leaves_no_file(log: SessionLog) -> None:
    log.prepare()
    log.close()
    assert not log.path.exists()


class GrowingPath(type(Path())):
    """A log that its writer is amid a line of when the reader comes to its end, and goes on with thereafter."""

    def open(self, *_: object, **__: object) -> io.BufferedReader:  # pyright: ignore[reportIncompatibleMethodOverride]
        lines = Path(self).read_bytes()
        return io.BufferedReader(GrowingFile([lines[:-300], b"", lines[-300:]]))


class GrowingFile(io.RawIOBase):
    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._parts.pop(0) if self._parts else b""
        buffer[: len(part)] = part
        return len(part)


def test_log_that_grows_while_it_is_read_is_read_as_a_prefix(log: SessionLog) -> None:
    for number in range(20):
        log.append(make_envelope(number))
    log.close()
    read = [envelope.seq for envelope in read_log(GrowingPath(log.path))]
    assert 10 < len(read) < 20
    assert read == list(range(len(read)))


def test_torn_last_line_is_skipped_and_stays_in_the_file(log: SessionLog) -> None:
    log.append(make_envelope(0))
    log.append(make_envelope(1))
    log.close()
    torn = log.path.read_bytes()[:-7]
    log.path.write_bytes(torn)
    assert list(read_log(log.path)) == [make_envelope(0)]
    again = SessionLog(log.path, read_header(log.path))
    again.append(make_envelope(2))
    again.close()
    assert log.path.read_bytes().startswith(torn)
    assert list(read_log(log.path)) == [make_envelope(0), make_envelope(2)]


def test_log_cut_at_any_byte_is_readable(log: SessionLog) -> None:
    for number in range(3):
        log.append(make_envelope(number))
    log.close()
    whole = log.path.read_bytes()
    header = whole.index(b"\n") + 1
    for cut in range(header, len(whole) + 1):
        log.path.write_bytes(whole[:cut])
        read = list(read_log(log.path))
        assert read == [make_envelope(number) for number in range(len(read))]


def test_a_newer_format_is_refused_and_left_alone(log: SessionLog) -> None:
    log.append(make_envelope(0))
    log.close()
    newer = log.path.read_bytes().replace(b'"odin_log":2', b'"odin_log":9')
    log.path.write_bytes(newer)
    with pytest.raises(LogTooNew, match="format 9"):
        read_header(log.path)
    assert log.path.read_bytes() == newer


def test_an_earlier_format_is_refused_and_left_alone(log: SessionLog) -> None:
    log.append(make_envelope(0))
    log.close()
    older = log.path.read_bytes().replace(b'"odin_log":2', b'"odin_log":1')
    log.path.write_bytes(older)
    with pytest.raises(LogTooOld, match="format 1"):
        read_header(log.path)
    assert log.path.read_bytes() == older


def test_file_that_is_not_a_log_counts_as_damaged(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(LogDamaged):
        read_header(tmp_path / "x")


def test_a_second_writer_is_refused(log: SessionLog) -> None:
    log.append(make_envelope(0))
    with pytest.raises(SessionLocked, match="already open in this process"):
        SessionLog(log.path, read_header(log.path)).append(make_envelope(1))
    log.close()


def test_uncreatable_state_folder_raises_an_explained_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the way")
    with pytest.raises(StateUnwritable, match="cannot be written") as caught:
        SessionStore(tmp_path / "state", "/w").create("/w")
    assert "ODIN_STATE_DIR" in caught.value.hint


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_raises_an_error() -> None:
    log = SessionLog(Path("/dev/full"), LogHeader(LOG_FORMAT, "s", "/w", 1.0))
    with pytest.raises(StateUnwritable, match="No space left"):
        log.append(make_envelope(0))


def test_sigkill_keeps_every_finished_line(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from odin.core.event import Envelope, TurnEnded\nfrom odin.session.log import *\n"
        "log = SessionLog(Path(sys.argv[1]), LogHeader(LOG_FORMAT, 's', '/w', 1.0))\n"
        "for n in range(50): log.append(Envelope(n, 1.0, 's', TurnEnded('t', 'end_turn', 'x' * n)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "main.jsonl"
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    events = [item.event for item in read_log(path)]
    assert [len(event.text) for event in events if isinstance(event, TurnEnded)] == list(range(50))


def test_sessions_are_listed_newest_first_and_found(tmp_path: Path) -> None:
    store = SessionStore(tmp_path, "/w")
    for number, name in enumerate(("one", "two")):
        log = store.create("/w", name)
        log.append(make_envelope(0))
        log.close()
        os.utime(log.path, (number, number))
    assert [entry.id for entry in store.list()] == ["two", "one"]
    assert store.find_latest() == "two"
    assert SessionStore(tmp_path, "/elsewhere").open("one").path == store.get_path("one")


def test_invalid_unknown_and_taken_ids_are_refused(tmp_path: Path) -> None:
    store = SessionStore(tmp_path, "/w")
    with pytest.raises(UsageError):
        store.get_path("../escape")
    with pytest.raises(SessionNotFound, match="no session nope"):
        store.open("nope")
    with pytest.raises(SessionNotFound, match="no earlier session"):
        store.find_latest()
    log = store.create("/w", "taken")
    log.append(make_envelope(0))
    log.close()
    with pytest.raises(UsageError, match="already exists"):
        store.create("/w", "taken")


def test_session_ids_are_digits_and_project_keys_differ() -> None:
    assert make_session_id(0.123).isdigit()
    assert len(make_session_id()) == 17
    assert make_project_key("/a/b") != make_project_key("/a-b")


def test_garbage_collection_pauses_while_a_log_is_read():
    for is_enabled in (True, False):
        (gc.enable if is_enabled else gc.disable)()
        try:
            with pause_collection():
                assert not gc.isenabled()
            assert gc.isenabled() == is_enabled
        finally:
            gc.enable()


@pytest.mark.parametrize("first_out", [0, 1])
def test_garbage_collection_is_on_after_several_threads_have_read_logs(first_out: int):
    entered, leave = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]

    def read(number: int) -> None:
        with pause_collection():
            entered[number].set()
            assert leave[number].wait(LIMIT_S)

    threads = [threading.Thread(target=read, args=[number]) for number in range(2)]
    for number, thread in enumerate(threads):
        thread.start()
        assert entered[number].wait(LIMIT_S)
    assert not gc.isenabled()
    for number in (first_out, 1 - first_out):
        leave[number].set()
        threads[number].join()
    assert gc.isenabled()
