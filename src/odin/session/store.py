"""Where sessions are stored: `<state>/sessions/<project>/<session>/main.jsonl`."""

import contextlib
import os
import time
from binascii import crc32
from collections.abc import Container
from pathlib import Path

import msgspec

from odin.core.errors import LogDamaged, LogTooOld, SessionNotFound, UsageError
from odin.core.text import to_valid_unicode
from odin.session.lock import describe_lock_holder
from odin.session.log import (
    ID_CHARS,
    LOG_FORMAT,
    LOG_NAME,
    LogHeader,
    SessionLog,
    has_header,
    is_session_id,
    read_header,
    scan_logs,
)

_PROMPT_MARKS = (b'"event":{"type":"TurnStarted"', b'"event":{"type":"PromptQueued"')
_MAX_NAMED_SESSIONS = 5
_LAST_ID_NAME = ".last-id"
"""The file with the time of the newest id, in milliseconds."""

_MAX_AHEAD_MS = 60_000


class SessionFile(msgspec.Struct, frozen=True):
    id: str
    path: Path
    modified: float


def make_project_key(root: str) -> str:
    """A readable folder name for a project, made unique by a checksum of the full path."""
    name = "".join(char if char in ID_CHARS else "-" for char in root).strip("-")[-60:]
    return f"{name or 'root'}-{crc32(root.encode('utf-8', 'surrogateescape')):08x}"


def make_session_id(now: float | None = None) -> str:
    """Seventeen digits, YYYYMMDDHHmmSSfff, so that ids sort by time."""
    seconds, milliseconds = divmod(round((time.time() if now is None else now) * 1000), 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{milliseconds:03d}"


class SessionStore:
    """The sessions of one project."""

    def __init__(self, state_dir: str | Path, root: str) -> None:
        self.folder = Path(state_dir) / "sessions" / make_project_key(root)

    @classmethod
    def from_folder(cls, folder: Path) -> "SessionStore":
        """The sessions in this folder, for any project."""
        store = cls.__new__(cls)
        store.folder = folder
        return store

    def get_path(self, session: str) -> Path:
        if not is_session_id(session):
            raise UsageError(f"{session!r} is not a session id.", "Ids consist of letters, digits, '-' and '_'.")
        return self.folder / session / LOG_NAME

    def create(
        self, cwd: str, session: str = "", *, copied: LogHeader | None = None, now: float | None = None
    ) -> SessionLog:
        """Reserve an id and return its log. The file is created by the first event.

        `copied` has the `forked_…` fields of a fork. Raise UsageError if the requested id is in use.
        """
        now = time.time() if now is None else now
        requested = session
        while True:
            session = requested or make_session_id(self._claim_time(now))
            path = self.get_path(session)
            fields = msgspec.structs.asdict(copied) if copied is not None else {}
            fields |= {
                "odin_log": LOG_FORMAT,
                "session": session,
                "cwd": to_valid_unicode(cwd),
                "created": time.time(),
            }
            log = SessionLog(path, LogHeader(**fields))
            log.prepare()
            is_reserved = log.reserve() or (requested and not describe_lock_holder(path))
            if is_reserved and not is_log_started(path):
                return log
            log.close()
            if requested:
                raise UsageError(
                    f"Session {session} already exists.", f"Continue it with --resume {session}, or choose another id."
                )
            now += 0.001

    def _claim_time(self, now: float) -> float:
        """Return the time in milliseconds, later if a session of any project, in any process, has just claimed it.

        The lock file of a session makes its id unique within its project only, but sessions are found by id in all.
        """
        claimed = int(now * 1000)
        try:
            import fcntl

            self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self.folder.parent / _LAST_ID_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (ImportError, OSError):  # writing the first event reports a folder that cannot be written
            return claimed / 1000
        with os.fdopen(fd, "r+b") as file, contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
            last = file.read(20)
            # A time far ahead is that of a clock that was set back since.
            if last.isdigit() and claimed <= int(last) < claimed + _MAX_AHEAD_MS:
                claimed = int(last) + 1
            file.seek(0)
            file.write(b"%020d" % claimed)
        return claimed / 1000

    def open(self, session: str) -> SessionLog:
        """Open an existing log, in this project or another. Raise SessionNotFound."""
        path = self.find_log(session)
        if path is None:
            raise SessionNotFound(f"There is no session {session}.", self._suggest_sessions())
        return SessionLog(path, msgspec.structs.replace(read_header(path), session=session))

    def find_log(self, session: str) -> Path | None:
        """The log with this id, in this project or another; None if it does not exist."""
        path = self.get_path(session)
        if path.is_file():
            return path
        return next((path for path in self.folder.parent.glob(f"*/{session}/{LOG_NAME}") if path.is_file()), None)

    def find(self, name: str) -> str:
        """Return the id of the session named by its id, the start of its id, or words of its title."""
        name = name.strip()
        if is_session_id(name) and self.find_log(name) is not None:
            return name
        if not name:
            raise SessionNotFound("No session given.", self._suggest_sessions())
        ids = [entry.id for entry in self.list()]
        matches = [session for session in ids if session.startswith(name)] if is_session_id(name) else []
        matches = matches or self._find_by_title(name)
        if len(matches) == 1:
            return matches[0]
        if matches:
            listed = ", ".join(matches[:_MAX_NAMED_SESSIONS]) + (", …" if len(matches) > _MAX_NAMED_SESSIONS else "")
            raise SessionNotFound(f"{name!r} matches {len(matches)} sessions.", f"Be more specific: {listed}.")
        if not is_session_id(name) and " " not in name:
            self.get_path(name)
        raise SessionNotFound(f"There is no session {name}.", self._suggest_sessions())

    def _find_by_title(self, query: str) -> list[str]:
        from odin.session.index import SessionIndex

        words = query.lower().split()
        rows = SessionIndex(self.folder).list_entries()
        return [row.id for row in rows if all(word in f"{row.title}\n{row.original}".lower() for word in words)]

    def find_latest(self, *, unlocked: bool = False, exclude: Container[str] = ()) -> str:
        """The latest modified session of this project that has a prompt and is not in `exclude`.

        With `unlocked`, skip sessions that are open in another process. Raise SessionNotFound if none is left, and
        LogTooNew if a newer version wrote it.
        """
        locked = ""
        for entry in self.list():
            if entry.id in exclude:
                continue
            try:
                read_header(entry.path)
            except (LogDamaged, LogTooOld):
                continue
            if not _has_prompt(entry.path):
                continue
            if unlocked and (holder := describe_lock_holder(entry.path)):
                locked = locked or f"{entry.id} is open in another process ({holder}). "
                continue
            return entry.id
        raise SessionNotFound(
            "There is no earlier session in this project.", f"{locked}Start one without --continue.".strip()
        )

    def list(self) -> tuple[SessionFile, ...]:
        """All sessions of this project, latest modified first."""
        files = [
            SessionFile(name, Path(path), info.st_mtime)
            for name, path, info in scan_logs(self.folder)
            if is_session_id(name)
        ]
        return tuple(sorted(files, key=lambda item: (-item.modified, item.id)))

    def _suggest_sessions(self) -> str:
        latest = [entry.id for entry in self.list()[:3]]
        return f"Latest sessions: {', '.join(latest)}." if latest else "This project has no sessions yet."


def is_log_started(path: Path) -> bool:
    """True if the log has a complete header. A crash can leave an empty file or part of the header: not a session."""
    try:
        with path.open("rb") as file:
            return has_header(file.fileno())
    except OSError:
        return False


def _has_prompt(path: Path) -> bool:
    """True if the log has a prompt. The first one is usually near the beginning."""
    try:
        with path.open("rb") as file:
            return any(any(mark in line[:400] for mark in _PROMPT_MARKS) for line in file)
    except OSError:
        return False
