"""Where sessions live on disk: one folder per project, one per session in it, the log inside."""

import os
import time
import zlib
from pathlib import Path

import msgspec

from odin.core.errors import LogDamaged, LogTooNew, SessionNotFound, UsageError
from odin.core.text import mended
from odin.session.log import FORMAT, Header, SessionLog, read_header

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
LOG_NAME = "main.jsonl"


class SessionFile(msgspec.Struct, frozen=True):
    id: str
    path: Path
    modified: float


def project_key(root: str) -> str:
    """A folder name for a project: readable, and unique by the checksum of the full path."""
    name = "".join(char if char in _SAFE else "-" for char in root).strip("-")[-60:]
    return f"{name or 'root'}-{zlib.crc32(root.encode('utf-8', 'surrogateescape')):08x}"


def new_session_id(now: float | None = None) -> str:
    """Seventeen digits, YYYYMMDDHHmmSSfff, so that names sort by time."""
    moment = time.time() if now is None else now
    return time.strftime("%Y%m%d%H%M%S", time.localtime(moment)) + f"{int(moment * 1000) % 1000:03d}"


class Store:
    """The sessions of one project."""

    def __init__(self, state_dir: str | Path, root: str) -> None:
        self.folder = Path(state_dir) / "sessions" / project_key(root)

    def path_of(self, session: str) -> Path:
        if not session or len(session) > 100 or not set(session) <= _SAFE:
            raise UsageError(f"{session!r} is not a session id.", "Ids are letters, digits, '-' and '_'.")
        return self.folder / session / LOG_NAME

    def create(self, cwd: str, session: str = "") -> SessionLog:
        """A log that does not exist yet. Its file appears with the first event."""
        if session:
            if self.path_of(session).exists():
                raise UsageError(
                    f"Session {session} exists already.", f"Continue it with --resume {session}, or choose another id."
                )
        else:
            now = time.time()
            session = new_session_id(now)
            while self.path_of(session).parent.exists():
                now += 0.001
                session = new_session_id(now)
        log = SessionLog(self.path_of(session), Header(FORMAT, session, mended(cwd), time.time()))
        log.prepare()
        return log

    def open(self, session: str) -> SessionLog:
        """An existing log, for reading and for writing on. Also found when it belongs to another project."""
        path = self.path_of(session)
        if not path.exists():
            path = next(iter(self.folder.parent.glob(f"*/{session}/{LOG_NAME}")), path)
        if not path.exists():
            raise SessionNotFound(f"There is no session {session}.", self._suggestion())
        return SessionLog(path, read_header(path))

    def latest(self) -> str:
        """The session written to last in this project."""
        for entry in self.list():
            try:
                read_header(entry.path)
            except (LogDamaged, LogTooNew):
                continue
            return entry.id
        raise SessionNotFound("There is no earlier session in this project.", "Start one without --continue.")

    def list(self) -> tuple[SessionFile, ...]:
        """All sessions of this project, newest first."""
        found: list[SessionFile] = []
        if self.folder.is_dir():
            for entry in os.scandir(self.folder):
                path = Path(entry.path) / LOG_NAME
                try:
                    found.append(SessionFile(entry.name, path, path.stat().st_mtime))
                except OSError:
                    continue
        return tuple(sorted(found, key=lambda item: (-item.modified, item.id)))

    def _suggestion(self) -> str:
        known = [entry.id for entry in self.list()[:3]]
        return f"The latest here: {', '.join(known)}." if known else "This project has no sessions yet."
