"""Where sessions live on disk: one folder per project, one per session in it, the log inside."""

import os
import stat
import time
import zlib
from collections.abc import Container, Iterator
from pathlib import Path

import msgspec

from odin.core.errors import LogDamaged, LogTooNew, SessionNotFound, UsageError
from odin.core.text import to_valid_unicode
from odin.session.lock import lock_holder_of
from odin.session.log import ID_CHARS, LOG_FORMAT, LogHeader, SessionLog, has_header, is_session_id, read_header

LOG_NAME = "main.jsonl"
_PROMPT_MARKS = (b'"event":{"type":"TurnStarted"', b'"event":{"type":"PromptQueued"')
_MAX_NAMED_SESSIONS = 5


class SessionFile(msgspec.Struct, frozen=True):
    id: str
    path: Path
    modified: float


def project_key_of(root: str) -> str:
    """A folder name for a project: readable, and unique by the checksum of the full path."""
    name = "".join(char if char in ID_CHARS else "-" for char in root).strip("-")[-60:]
    return f"{name or 'root'}-{zlib.crc32(root.encode('utf-8', 'surrogateescape')):08x}"


def make_session_id(now: float | None = None) -> str:
    """Seventeen digits, YYYYMMDDHHmmSSfff, so that names sort by time."""
    moment = time.time() if now is None else now
    return time.strftime("%Y%m%d%H%M%S", time.localtime(moment)) + f"{int(moment * 1000) % 1000:03d}"


class SessionStore:
    """The sessions of one project."""

    def __init__(self, state_dir: str | Path, root: str) -> None:
        self.folder = Path(state_dir) / "sessions" / project_key_of(root)

    @classmethod
    def from_folder(cls, folder: Path) -> "SessionStore":
        """The sessions in this folder, whatever project it is of."""
        store = cls.__new__(cls)
        store.folder = folder
        return store

    def path_of(self, session: str) -> Path:
        if not is_session_id(session):
            raise UsageError(f"{session!r} is not a session id.", "Ids are letters, digits, '-' and '_'.")
        return self.folder / session / LOG_NAME

    def create(self, cwd: str, session: str = "", *, key: str = "", copied: LogHeader | None = None) -> SessionLog:
        """A log that does not exist yet, its id claimed. Its file appears with the first event.

        `copied` has the `forked_…` fields of a fork.
        """
        now = time.time()
        wanted = session
        while True:
            session = wanted or make_session_id(now)
            path = self.path_of(session)
            fields = msgspec.structs.asdict(copied) if copied is not None else {}
            fields |= {
                "odin_log": LOG_FORMAT,
                "session": session,
                "cwd": to_valid_unicode(cwd),
                "created": time.time(),
                "key": key,
            }
            log = SessionLog(path, LogHeader(**fields))
            log.prepare()
            claimed = log.reserve() or (wanted and not lock_holder_of(path))
            if claimed and not is_log_started(path):
                return log
            log.close()
            if wanted:
                raise UsageError(
                    f"Session {session} exists already.", f"Continue it with --resume {session}, or choose another id."
                )
            now += 0.001

    def open(self, session: str) -> SessionLog:
        """An existing log, for reading and for writing on. Also found when it belongs to another project."""
        path = self.find_log(session)
        if path is None:
            raise SessionNotFound(f"There is no session {session}.", self._suggest_sessions())
        return SessionLog(path, msgspec.structs.replace(read_header(path), session=session))

    def find_log(self, session: str) -> Path | None:
        """The log of this id, here or in another project; None when there is none."""
        path = self.path_of(session)
        if path.is_file():
            return path
        return next((path for path in self.folder.parent.glob(f"*/{session}/{LOG_NAME}") if path.is_file()), None)

    def find(self, said: str) -> str:
        """The id of the session a person means by its id, by the beginning of one, or by words of its title."""
        said = said.strip()
        if is_session_id(said) and self.find_log(said) is not None:
            return said
        if not said:
            raise SessionNotFound("No session was named.", self._suggest_sessions())
        ids = [entry.id for entry in self.list()]
        found = [name for name in ids if name.startswith(said)] if is_session_id(said) else []
        found = found or self._find_by_title(said)
        if len(found) == 1:
            return found[0]
        if found:
            named = ", ".join(found[:_MAX_NAMED_SESSIONS]) + (", …" if len(found) > _MAX_NAMED_SESSIONS else "")
            raise SessionNotFound(f"{said!r} fits {len(found)} sessions.", f"Say more of one of them: {named}.")
        if not is_session_id(said) and " " not in said:
            self.path_of(said)
        raise SessionNotFound(f"There is no session {said}.", self._suggest_sessions())

    def _find_by_title(self, said: str) -> list[str]:
        from odin.session.index import SessionIndex

        words = said.lower().split()
        rows = SessionIndex(self.folder).list_entries()
        return [row.id for row in rows if all(word in f"{row.title}\n{row.original}".lower() for word in words)]

    def find_latest(self, *, unlocked: bool = False, exclude: Container[str] = ()) -> str:
        """The session written to last in this project in which something was asked.

        With `free` those that somebody has open are passed over, and in any case those in `but`.
        """
        taken = ""
        for entry in self.list():
            if entry.id in exclude:
                continue
            try:
                read_header(entry.path)
            except (LogDamaged, LogTooNew):
                continue
            if not _has_prompt(entry.path):
                continue
            if unlocked and (owner := lock_holder_of(entry.path)):
                taken = taken or f"{entry.id} is open elsewhere ({owner}). "
                continue
            return entry.id
        raise SessionNotFound(
            "There is no earlier session in this project.", f"{taken}Start one without --continue.".strip()
        )

    def list(self) -> tuple[SessionFile, ...]:
        """All sessions of this project, newest first."""
        found = [
            SessionFile(name, Path(path), info.st_mtime)
            for name, path, info in scan_logs(self.folder)
            if is_session_id(name)
        ]
        return tuple(sorted(found, key=lambda item: (-item.modified, item.id)))

    def _suggest_sessions(self) -> str:
        known = [entry.id for entry in self.list()[:3]]
        return f"The latest here: {', '.join(known)}." if known else "This project has no sessions yet."


def is_log_started(path: Path) -> bool:
    """Whether anything was ever written there. A kill may leave a folder or an empty file, and a power cut a part of
    the first line: that is no session.
    """
    try:
        with path.open("rb") as file:
            return has_header(file.fileno())
    except OSError:
        return False


def scan_logs(folder: Path) -> Iterator[tuple[str, str, os.stat_result]]:
    """The id, the path and what the file system knows of every log in a project's folder, in no order."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if "." in entry.name:
                    continue
                path = f"{entry.path}{os.sep}{LOG_NAME}"
                try:
                    info = os.stat(path)  # noqa: PTH116 (thousands of them, on the way to a list)
                except OSError:
                    continue
                if stat.S_ISREG(info.st_mode):
                    yield entry.name, path, info
    except OSError:
        return


def _has_prompt(path: Path) -> bool:
    """Whether anything was ever asked in it. The first prompt stands near the beginning."""
    try:
        with path.open("rb") as file:
            return any(any(mark in line[:400] for mark in _PROMPT_MARKS) for line in file)
    except OSError:
        return False
