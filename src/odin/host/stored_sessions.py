"""The stored sessions of a project: list, search, show, rename, delete, fork and export them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from odin.config import get_state_dir, load
from odin.config.paths import find_worktree_origin, make_environment
from odin.core.client import (
    SessionMatch,
    SessionSummary,
    TurnRecord,
)
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import SessionNotFound, UsageError
from odin.core.event import TitleSet
from odin.core.text import to_valid_unicode
from odin.engine.event_bus import EventBus
from odin.engine.recorder import Recorder
from odin.session.index import SessionIndex
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore

MAX_TITLE_CHARS = 200


class SessionDetails(msgspec.Struct, frozen=True):
    """One session with its prompts, oldest first."""

    session: SessionSummary
    prompts: tuple[TurnRecord, ...]


class ProjectSessions:
    """The stored sessions of a project, or with `everywhere` of all projects."""

    def __init__(
        self, store: SessionStore, environment: ExecutionEnvironment | None = None, *, everywhere: bool = False
    ) -> None:
        self.store = store
        self._environment = environment
        self._everywhere = everywhere

    def _list_folders(self) -> Iterator[Path]:
        if not self._everywhere:
            yield self.store.folder
        elif self.store.folder.parent.is_dir():
            yield from (path for path in sorted(self.store.folder.parent.iterdir()) if path.is_dir())

    def list_sessions(self) -> tuple[SessionSummary, ...]:
        """Newest first."""
        found = [summary for folder in self._list_folders() for summary in SessionIndex(folder).list_summaries()]
        return tuple(sorted(found, key=lambda item: -item.modified) if self._everywhere else found)

    def search(self, words: str) -> tuple[SessionMatch, ...]:
        from odin.session.search import search_sessions
        from odin.tools.ripgrep import find_ripgrep

        if not words.strip():
            raise UsageError("No search words.")
        ripgrep = find_ripgrep() or ""
        found = [match for folder in self._list_folders() for match in search_sessions(folder, words, ripgrep=ripgrep)]
        return tuple(sorted(found, key=lambda match: -match.session.modified))

    def find(self, name: str) -> str:
        return self.store.find(name)

    def show(self, name: str) -> SessionDetails:
        session = self.find(name)
        path = self._find_log(session)
        summary = next((item for item in SessionIndex(path.parent.parent).list_summaries() if item.id == session), None)
        self.store.open(session)
        if summary is None:
            raise SessionNotFound(f"There is no session {session}.")
        return SessionDetails(summary, SessionState.fold(read_log(path), session).snapshot().prompts)

    def rename(self, name: str, title: str) -> str:
        """Set the title and return the session ID. Raise SessionLocked if the session is open."""
        title = normalize_title(title)
        log = self.store.open(self.find(name))
        log.hold()
        recorder = Recorder(log, SessionState.fold(read_log(log.path), log.session), EventBus())
        try:
            recorder.emit(TitleSet(title))
        finally:
            recorder.close()
        return log.session

    def delete(self, name: str) -> str:
        """Delete a session except for its cost, which stays in the usage reports. Return its ID."""
        from odin.session.lifecycle import delete_session, sweep_leftovers

        session = self.find(name)
        store = SessionStore.from_folder(self._find_log(session).parent.parent)
        sweep_leftovers(store)
        delete_session(store, session)
        return session

    def fork(self, name: str, at: str = "") -> tuple[str, str]:
        """Copy a session. Return the ID of the copy and the first prompt that was left out."""
        from odin.session.lifecycle import fork_session

        original = self.store.open(self.find(name))
        made = fork_session(SessionStore.from_folder(original.path.parent.parent), original, original.header.cwd, at=at)
        made.log.close()
        return made.log.session, made.left_out_prompt

    def export(self, name: str, form: str = "", path: str = "") -> str:
        """Export a session and return the path. Without a format, the suffix of the path decides."""
        from odin.app.export import export_session

        return export_session(self._find_log(self.find(name)), form, path, environment=self._environment)

    def _find_log(self, session: str) -> Path:
        path = self.store.find_log(session)
        if path is None:
            raise SessionNotFound(f"There is no session {session}.")
        return path


def normalize_title(title: str) -> str:
    title = " ".join(to_valid_unicode(title).split())
    if not title:
        raise UsageError("The title is empty.")
    return title if len(title) <= MAX_TITLE_CHARS else title[: MAX_TITLE_CHARS - 1] + "…"


def open_project_sessions(cwd: str = "", *, everywhere: bool = False) -> ProjectSessions:
    environment = make_environment(cwd=cwd)
    config = load(environment.cwd, environment.variables, {})
    state = get_state_dir(environment.variables)
    store = SessionStore(state, find_worktree_origin(config.root, state))
    return ProjectSessions(store, environment, everywhere=everywhere)
