"""The sessions of a project that are open nowhere: which there are, what they said, and what can be done with them."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from odin.config import current_folder, load, state_dir
from odin.core.client import TurnRecord
from odin.core.errors import SessionNotFound, UsageError
from odin.core.event import TitleSet
from odin.core.sessions import SessionMatch, SessionSummary
from odin.core.text import mended
from odin.session.index import Index
from odin.session.log import read_log
from odin.session.state import State
from odin.session.store import Store

MAX_TITLE = 200


class Shown(msgspec.Struct, frozen=True):
    """One session with its prompts, the first one first. `number` of a prompt is counted from the last one."""

    session: SessionSummary
    prompts: tuple[TurnRecord, ...]


class ProjectSessions:
    """`everywhere` also knows the sessions of other projects."""

    def __init__(self, store: Store, *, everywhere: bool = False) -> None:
        self.store = store
        self._everywhere = everywhere

    def _folders(self) -> Iterator[Path]:
        if not self._everywhere:
            yield self.store.folder
        elif self.store.folder.parent.is_dir():
            yield from (path for path in sorted(self.store.folder.parent.iterdir()) if path.is_dir())

    def list(self) -> tuple[SessionSummary, ...]:
        """Newest first."""
        found = [summary for folder in self._folders() for summary in Index(folder).summaries()]
        return tuple(sorted(found, key=lambda item: -item.modified) if self._everywhere else found)

    def search(self, words: str) -> tuple[SessionMatch, ...]:
        from odin.session.search import search
        from odin.tools.searching.ripgrep import find_ripgrep

        if not words.strip():
            raise UsageError("There are no words to search for.", "Name some.")
        ripgrep = find_ripgrep() or ""
        found = [match for folder in self._folders() for match in search(folder, words, ripgrep=ripgrep)]
        return tuple(sorted(found, key=lambda match: -match.session.modified))

    def find(self, said: str) -> str:
        return self.store.find(said)

    def show(self, said: str) -> Shown:
        session = self.find(said)
        path = self._log(session)
        summary = next((item for item in Index(path.parent.parent).summaries() if item.id == session), None)
        self.store.open(session)
        if summary is None:
            raise SessionNotFound(f"There is no session {session}.")
        return Shown(summary, State.fold(read_log(path), session).turns)

    def rename(self, said: str, title: str) -> str:
        """Gives the id. Raises SessionLocked while somebody has it open."""
        from odin.bus.hub import Hub
        from odin.engine.recorder import Recorder

        title = checked_title(title)
        log = self.store.open(self.find(said))
        log.hold()
        recorder = Recorder(log, State.fold(read_log(log.path), log.session), Hub())
        try:
            recorder.emit(TitleSet(title))
        finally:
            recorder.close()
        return log.session

    def delete(self, said: str) -> str:
        """What it cost stays known; everything else of it goes."""
        from odin.session.remove import delete, sweep

        session = self.find(said)
        store = Store.at(self._log(session).parent.parent)
        sweep(store)
        delete(store, session)
        return session

    def fork(self, said: str, at: str = "") -> tuple[str, str]:
        """The id of the copy, and the prompt that was left out."""
        from odin.session.fork import fork

        original = self.store.open(self.find(said))
        made = fork(Store.at(original.path.parent.parent), original, original.header.cwd, at=at)
        made.log.close()
        return made.log.session, made.draft

    def export(self, said: str, form: str = "", path: str = "") -> str:
        """Write it to a file and say which. Without a form the path's ending says what it holds."""
        from odin.app.export import export_session

        return export_session(self._log(self.find(said)), form, path)

    def _log(self, session: str) -> Path:
        path = self.store.where(session)
        if path is None:
            raise SessionNotFound(f"There is no session {session}.")
        return path


def checked_title(title: str) -> str:
    title = " ".join(mended(title).split())
    if not title:
        raise UsageError("A session cannot be without a title.", "Name one.")
    return title if len(title) <= MAX_TITLE else title[: MAX_TITLE - 1] + "…"


def project_sessions(
    cwd: str = "", env: Mapping[str, str] | None = None, *, everywhere: bool = False
) -> ProjectSessions:
    """The sessions of the project around `cwd`."""
    folder = os.path.realpath(cwd or current_folder())
    if not Path(folder).is_dir():
        raise UsageError(f"There is no folder {folder}.", "Name an existing one with --cwd.")
    environ = os.environ if env is None else env
    config = load(folder, environ, {})
    return ProjectSessions(Store(state_dir(environ), config.root), everywhere=everywhere)
