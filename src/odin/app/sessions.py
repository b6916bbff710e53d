"""The sessions of a project that are open nowhere: which there are, what they said, and what can be done with them."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from odin.config import get_current_folder, get_state_dir, load
from odin.core.client import TurnRecord
from odin.core.errors import SessionNotFound, UsageError
from odin.core.event import TitleSet
from odin.core.sessions import SessionMatch, SessionSummary
from odin.core.text import to_valid_unicode
from odin.session.index import SessionIndex
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore

MAX_TITLE_CHARS = 200


class SessionDetails(msgspec.Struct, frozen=True):
    """One session with its prompts, the first one first. `number` of a prompt is counted from the last one."""

    session: SessionSummary
    prompts: tuple[TurnRecord, ...]


class ProjectSessions:
    """`everywhere` also knows the sessions of other projects."""

    def __init__(self, store: SessionStore, *, everywhere: bool = False) -> None:
        self.store = store
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
        from odin.tools.searching.ripgrep import find_ripgrep

        if not words.strip():
            raise UsageError("There are no words to search for.", "Name some.")
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
        return SessionDetails(summary, SessionState.fold(read_log(path), session).turns)

    def rename(self, name: str, title: str) -> str:
        """Gives the id. Raises SessionLocked while somebody has it open."""
        from odin.bus.hub import EventBus
        from odin.engine.recorder import Recorder

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
        """What it cost stays known; everything else of it goes."""
        from odin.session.remove import delete_session, sweep_leftovers

        session = self.find(name)
        store = SessionStore.from_folder(self._find_log(session).parent.parent)
        sweep_leftovers(store)
        delete_session(store, session)
        return session

    def fork(self, name: str, at: str = "") -> tuple[str, str]:
        """The id of the copy, and the prompt that was left out."""
        from odin.session.fork import fork_session

        original = self.store.open(self.find(name))
        made = fork_session(SessionStore.from_folder(original.path.parent.parent), original, original.header.cwd, at=at)
        made.log.close()
        return made.log.session, made.left_out_prompt

    def export(self, name: str, form: str = "", path: str = "") -> str:
        """Write it to a file and say which. Without a form the path's ending says what it holds."""
        from odin.app.export import export_session

        return export_session(self._find_log(self.find(name)), form, path)

    def _find_log(self, session: str) -> Path:
        path = self.store.find_log(session)
        if path is None:
            raise SessionNotFound(f"There is no session {session}.")
        return path


def normalize_title(title: str) -> str:
    title = " ".join(to_valid_unicode(title).split())
    if not title:
        raise UsageError("A session cannot be without a title.", "Name one.")
    return title if len(title) <= MAX_TITLE_CHARS else title[: MAX_TITLE_CHARS - 1] + "…"


def open_project_sessions(
    cwd: str = "", env: Mapping[str, str] | None = None, *, everywhere: bool = False
) -> ProjectSessions:
    """The sessions of the project around `cwd`."""
    folder = os.path.realpath(cwd or get_current_folder())
    if not Path(folder).is_dir():
        raise UsageError(f"There is no folder {folder}.", "Name an existing one with --cwd.")
    environ = os.environ if env is None else env
    config = load(folder, environ, {})
    return ProjectSessions(SessionStore(get_state_dir(environ), config.root), everywhere=everywhere)
