"""The append-only session log: a header line, then one JSON line per durable event.

The file is created by the first event, so an unused session leaves nothing behind, and it only grows. A line torn by a
crash or a full disk stays in place; readers skip it, and the next event starts on a new line. A log with an event that
this version does not know is refused, as one with a newer format is: without the event it would mean something else.
"""

import contextlib
import gc
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from odin.core.errors import LogDamaged, LogTooNew, LogTooOld, OdinError, StateUnwritable
from odin.core.event import Envelope
from odin.core.text import to_valid_unicode_all
from odin.session.call_ids import LoggedCallIds
from odin.session.lock import SessionLock

LOG_FORMAT = 2
LOG_NAME = "main.jsonl"
_LONGEST_HEADER = 100_000
ID_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_HEADER_BYTES = 1_000_000


def is_session_id(text: str) -> bool:
    """True for a valid session id, which is also a safe folder name."""
    return bool(text) and len(text) <= 100 and set(text) <= ID_CHARS


class LogHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line. `odin_log` is the format version; logs with a newer version are not touched.

    For a fork, `forked_from` is the original session, `forked_turn` the turn before which the copy ends and
    `forked_seq` the last copied event. `key` is an address to find a session by, such as "channel:chat".
    """

    odin_log: int
    session: str
    cwd: str
    created: float
    forked_from: str = ""
    forked_turn: str = ""
    forked_seq: int = -1
    key: str = ""


_encoder = msgspec.json.Encoder()
_header_decoder = msgspec.json.Decoder(LogHeader)


@cache
def _get_decoder() -> msgspec.json.Decoder[Envelope]:
    """Built on first use: building it takes a while, and a new session reads nothing."""
    return msgspec.json.Decoder(Envelope)


class SessionLog:
    """Writes the log of one session."""

    def __init__(self, path: Path, header: LogHeader) -> None:
        self.path = path
        self._header = header
        self._lock = SessionLock(path, header.session)
        self._fd: int | None = None
        self._torn = False
        self._unsynced_entry = False

    @property
    def header(self) -> LogHeader:
        return self._header

    @property
    def session(self) -> str:
        return self._header.session

    def prepare(self) -> None:
        """Raise StateUnwritable if a new log could not be written, before any work is done."""
        project = self.path.parent.parent
        try:
            project.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(project, os.W_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise self._make_write_error(error) from error

    def reserve(self) -> bool:
        """Reserve the id of a new session before its file exists; False if another process already did."""
        return self._lock.reserve()

    def hold(self) -> None:
        """Lock an existing log, so that no process writes to it between reading and continuing it."""
        if self._fd is None:
            self._open(existing=True)

    def append(self, envelope: Envelope) -> None:
        fd = self._fd if self._fd is not None else self._open()
        line = _encode_line(envelope) + b"\n"
        try:
            _write_all(fd, b"\n" + line if self._torn else line)
            self._torn = False
        except OSError as error:
            self._torn = True
            raise self._make_write_error(error) from error

    def begin_with(self, envelopes: Iterable[Envelope]) -> None:
        """Create the log with all these events, synced to disk, or not at all."""
        temporary = self.path.with_name(f".{self.path.name}-{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(_encoder.encode(self._header) + b"\n")
                file.writelines(_encode_line(envelope) + b"\n" for envelope in envelopes)
                file.flush()
                os.fsync(fd)
            temporary.replace(self.path)
            _sync_folders(self.path.parent, 3)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise self._make_write_error(error) from error
        self.hold()

    def sync(self) -> None:
        """Sync the log to disk; the first time also the folders that contain it. May run in a thread."""
        if self._fd is not None:
            try:
                os.fsync(self._fd)
                if self._unsynced_entry:
                    _sync_folders(self.path.parent, 3)
                    self._unsynced_entry = False
            except OSError as error:
                raise self._make_write_error(error) from error

    def close(self) -> None:
        self._lock.release()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, *, existing: bool = False) -> int:
        """Open and lock the file. Child processes do not inherit it, so none can keep the lock after this process."""
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | (0 if existing else os.O_CREAT)
        try:
            if not existing:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise self._make_write_error(error) from error
        try:
            self._lock.acquire(fd)
            size = os.fstat(fd).st_size
            if size and not existing and not has_header(fd):
                os.ftruncate(fd, 0)
                size = 0
            if size == 0:
                self._unsynced_entry = True
                # Write all of the line or nothing: a log without a complete header is unreadable.
                try:
                    _write_all(fd, _encoder.encode(self._header) + b"\n")
                except OSError:
                    with contextlib.suppress(OSError):
                        os.ftruncate(fd, 0)
                    raise
            elif os.pread(fd, 1, size - 1) != b"\n":
                _write_all(fd, b"\n")
            self._lock.write_holder()
        except OSError as error:
            self._lock.release()
            os.close(fd)
            raise self._make_write_error(error) from error
        except OdinError:
            os.close(fd)
            raise
        self._fd = fd
        return fd

    def _make_write_error(self, error: OSError) -> StateUnwritable:
        return make_write_error("The session log cannot be written", self.path.parent, error)


def make_write_error(problem: str, path: Path, error: OSError) -> StateUnwritable:
    return StateUnwritable(
        f"{problem} ({path}: {error.strerror or error}).",
        "Free some space, or set ODIN_STATE_DIR to a folder you can write.",
    )


def _encode_line(envelope: Envelope) -> bytes:
    """Encode an event as JSON. Invalid Unicode is replaced, so that the event is not lost."""
    try:
        return _encoder.encode(envelope)
    except UnicodeEncodeError:
        return _encoder.encode(to_valid_unicode_all(msgspec.to_builtins(envelope)))


def has_header(fd: int) -> bool:
    """True if the first line is complete. A file without a header contains nothing of value."""
    return b"\n" in os.pread(fd, _LONGEST_HEADER, 0)


def _sync_folders(folder: Path, count: int) -> None:
    """Sync a folder and its parents, so that a new file survives a power cut. Not every file system supports it."""
    for each in (folder, *list(folder.parents)[: count - 1]):
        with contextlib.suppress(OSError):
            fd = os.open(each, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_header(path: Path) -> LogHeader:
    """Read the first line of a log. Raise LogDamaged, LogTooOld or LogTooNew."""
    if path.exists() and not path.is_file():  # reading a pipe or a device could block
        raise LogDamaged(f"{path} is not a file.", "Choose another session, or start a new one.")
    try:
        with path.open("rb") as file:
            line = file.readline(_HEADER_BYTES)
    except OSError as error:
        raise LogDamaged(f"The session log {path} cannot be read ({error.strerror or error}).") from error
    try:
        header = _header_decoder.decode(line)
        if not is_session_id(header.session):
            raise msgspec.ValidationError("the session has no id")
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise LogDamaged(
            f"{path} is not an Odin session log.", "Choose another session, or start a new one."
        ) from error
    if header.odin_log < LOG_FORMAT:
        raise LogTooOld(
            f"Session {header.session} was written by an earlier version of Odin (log format {header.odin_log}; "
            f"this version supports {LOG_FORMAT}).",
            "Start a new session. The file was not changed.",
        )
    if header.odin_log > LOG_FORMAT:
        raise LogTooNew(
            f"Session {header.session} was written by a newer version of Odin (log format {header.odin_log}; "
            f"this version supports {LOG_FORMAT}).",
            "Update Odin to open it. The file was not changed.",
        )
    return header


def read_log(path: Path) -> Iterator[Envelope]:
    """Yield every event in order, without torn lines, with call ids that are unique in the log.

    Raise LogTooNew for an event that this version cannot read.
    """
    decode, call_ids = _get_decoder().decode, LoggedCallIds()
    with path.open("rb") as file:
        if not file.readline().endswith(b"\n"):  # it is being created
            return
        for number, line in enumerate(file, 2):
            try:
                yield call_ids.apply(decode(line))
            except msgspec.ValidationError as error:
                kind = line.partition(b'"event":{"type":"')[2].partition(b'"')[0].decode(errors="replace")
                raise LogTooNew(
                    f"Session {path.parent.name} was written by a newer version of Odin (this version cannot read the "
                    f"event {kind} in line {number}).",
                    "Update Odin to open it. The file was not changed.",
                ) from error
            except (msgspec.MsgspecError, UnicodeError):
                pass
            if not line.endswith(b"\n"):  # it is being written; the rest of it would be read as a torn line
                return


@contextlib.contextmanager
def pause_collection() -> Generator[None]:
    """Keep Python from looking for garbage: reading a long log allocates much and leaves little garbage.

    The switch is the process's. It cannot stay off, in whichever order threads leave: the first one to enter switches
    it on again, perhaps before the others leave, which costs them only time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def scan_logs(folder: Path) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield id, path and stat result of every log in a project's folder, in no particular order."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if "." in entry.name:
                    continue
                path = f"{entry.path}{os.sep}{LOG_NAME}"
                try:
                    info = os.stat(path)  # noqa: PTH116 (Path is slower, and there can be thousands)
                except OSError:
                    continue
                if stat.S_ISREG(info.st_mode):
                    yield entry.name, path, info
    except OSError:
        return
