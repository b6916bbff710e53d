"""The sessions of a project: `ProjectSessions` manages stored ones, `SessionSwitcher` holds the open one.

A switch opens and locks the target session before it closes the old one.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from odin.app.compose import open_session
from odin.app.workspace import OpenedLog, make_workspace, open_log
from odin.config import Options, get_state_dir, load
from odin.config.files import set_key
from odin.config.paths import find_worktree_origin, make_environment
from odin.core.call_events import UsageGrouping, UsageReport
from odin.core.client import (
    ChangedFile,
    Client,
    ExportFormat,
    SavedSetting,
    SessionMatch,
    SessionPreview,
    SessionSummary,
    TurnRecord,
)
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import DeleteCurrentSession, OdinError, SessionBusy, SessionNotFound, UsageError
from odin.core.event import SessionSwitched, TitleSet
from odin.core.event_values import DEFAULT_ROLE
from odin.core.op import Prompt, SetTitle
from odin.core.text import to_valid_unicode
from odin.engine.client import LocalClient
from odin.engine.event_bus import EventBus
from odin.engine.recorder import Recorder
from odin.models.onboarding import is_first_run
from odin.session.index import SessionIndex
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore
from odin.tools.files import Refusal
from odin.tools.plans import PLANS, PlanFolder

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
        return SessionDetails(summary, SessionState.fold(read_log(path), session).turns)

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


SwitchKind = Literal["resume", "new", "fork"]


class SessionSwitcher:
    """The sessions of one project, one of them open. `draft` is the prompt that a fork at startup left out."""

    def __init__(
        self, store: SessionStore, options: Options, environment: ExecutionEnvironment, client: LocalClient
    ) -> None:
        self._store = store
        self._options = options
        self._environment = environment
        self._cwd = environment.cwd
        self._client = client
        self._project_sessions = ProjectSessions(store, environment)
        self._switch_lock = asyncio.Lock()
        self.draft = ""

    @property
    def client(self) -> Client:
        return self._client

    async def open_new(self) -> Client:
        return await self._open_fresh()

    async def _open_fresh(self, role: str = "") -> Client:
        async with self._switch_lock:
            await self._require_idle()
            options = await self._strip_session_options(keep=True)
            options = replace(options, role=role) if role else options
            opened = replace(open_log(self._store, options, self._cwd), source="clear")
            return await self._switch("new", options, opened)

    async def resume(self, session: str) -> Client:
        async with self._switch_lock:
            await self._require_idle()
            found = self._store.find(session)
            if found == await self._get_session_id():
                raise UsageError(f"Session {found} is already open.")
            options = replace(await self._strip_session_options(keep=False), resume=found)
            return await self._switch("resume", options, open_log(self._store, options, self._cwd))

    async def fork(self, turn: str = "") -> tuple[Client, str]:
        async with self._switch_lock:
            await self._require_idle()
            here = await self._get_session_id()
            if self._store.find_log(here) is None:
                raise UsageError("This session is empty: nothing to fork.")
            plain = await self._strip_session_options(keep=True)
            opened = open_log(self._store, replace(plain, resume=here, fork=True, fork_at=turn), self._cwd)
            return await self._switch("fork", plain, opened), opened.draft

    async def execute_plan(self, plan: str = "", role: str = "") -> tuple[Client, Prompt]:
        info = await self._client.get_info()
        try:
            found = await asyncio.to_thread(PlanFolder(info.root).read, plan, info.cwd)
        except (Refusal, OSError) as error:
            raise UsageError(str(error), f"Plans are the files in {PLANS}; plan mode writes them.") from None
        name = to_valid_unicode(f"{PLANS}/{Path(found.path).name}")
        text = to_valid_unicode(f"The user approved this plan ({name}). Carry it out.\n\n{found.text}")
        prompt = Prompt(os.urandom(6).hex(), text, "edit_mode", display_text=f"Carry out {name}")
        return await self._open_fresh(role or DEFAULT_ROLE), prompt

    async def list_sessions(self) -> tuple[SessionSummary, ...]:
        return await asyncio.to_thread(self._project_sessions.list_sessions)

    async def search(self, words: str) -> tuple[SessionMatch, ...]:
        return await asyncio.to_thread(self._project_sessions.search, words)

    async def preview(self, session: str) -> SessionPreview:
        from odin.session.search import preview_session

        where = self._store.find_log(session)
        if where is None:
            return SessionPreview(session)
        return await asyncio.to_thread(preview_session, where, session)

    async def report_usage(self, by: UsageGrouping = "day", *, days: int = 0, session: str = "") -> UsageReport:
        from odin.app.usage import UsagePeriod, make_recent_period, report_project_usage

        period = make_recent_period(days) if days else UsagePeriod()
        return await asyncio.to_thread(report_project_usage, self._store.folder, session=session, period=period, by=by)

    async def list_prompts(self, limit: int = 200) -> tuple[str, ...]:
        from odin.session.search import read_recent_prompts

        return await asyncio.to_thread(read_recent_prompts, self._store.folder, limit)

    async def list_changes(self, paths: Sequence[str] = ()) -> tuple[ChangedFile, ...]:
        from odin.app.git import open_git
        from odin.app.git_diff import list_changed_files

        async with open_git(load(self._cwd, self._environment.variables), self._environment) as git:
            return await list_changed_files(git, (await self._client.get_info()).cwd, paths)

    async def add_server(self, url: str) -> tuple[str, ...]:
        from odin.models.server_setup import add_server

        env = self._environment.variables
        added = await add_server(url, load(self._cwd, env).providers, env)
        return tuple(f"{added.provider}/{model}" for model in added.models)

    async def save_setting(self, key: str, value: str) -> SavedSetting:
        return await asyncio.to_thread(self._save_setting, key, value)

    def _save_setting(self, key: str, value: str) -> SavedSetting:
        env = self._environment.variables
        path = str(set_key(key, value, env))
        source = load(self._cwd, env).sources.get(key.partition(".")[0], path)
        return SavedSetting(path, source if source != path else "")

    async def rename(self, session: str, title: str) -> None:
        if session == await self._get_session_id():
            await self._client.submit(SetTitle(normalize_title(title)))
        else:
            await asyncio.to_thread(self._project_sessions.rename, session, title)

    async def delete(self, session: str) -> None:
        found = self._store.find(session)
        if found == await self._get_session_id():
            raise DeleteCurrentSession
        await asyncio.to_thread(self._project_sessions.delete, found)

    async def export(self, session: str, form: ExportFormat, path: str = "") -> str:
        if session == await self._get_session_id() and self._store.find_log(session) is None:
            raise UsageError("This session is empty: nothing to export.")
        return await asyncio.to_thread(self._project_sessions.export, session, form, path or self._cwd)

    async def close(self) -> None:
        await self._client.close()

    async def _get_session_id(self) -> str:
        return (await self._client.get_info()).session

    async def _require_idle(self) -> None:
        if (await self._client.snapshot()).executing:
            raise SessionBusy("Wait or interrupt it, then switch sessions.")

    async def _strip_session_options(self, *, keep: bool) -> Options:
        """Return the startup options without those that select a session.

        With `keep`, the current model and permission mode are kept; a resumed session restores its own.
        """
        info = await self._client.get_info()
        return replace(
            self._options,
            resume="",
            continue_last=False,
            fork=False,
            fork_at="",
            session_id="",
            model=info.model if keep and info.model_chosen else self._options.model,
            permission_mode=info.permission_mode if keep else self._options.permission_mode,
        )

    async def _switch(self, kind: SwitchKind, options: Options, opened: OpenedLog) -> Client:
        """Open the new session, then close the old one. If opening fails, the old session stays open."""
        entered = await open_session(options, opened=opened)
        left, self._client = self._client, entered
        event = SessionSwitched(kind, opened.log.session)
        with contextlib.suppress(OdinError):
            left.session.record_switch(event)
            await left.close()
        asyncio.get_running_loop().call_soon(entered.session.record_switch, event)
        return entered


async def open_switcher(options: Options) -> SessionSwitcher:
    """Open a session for a front end that switches between sessions.

    On a first run Odin connects to no server before the user has been asked.
    """
    workspace = make_workspace(options)
    if is_first_run(workspace.env, options):
        options = replace(options, reach_out=False)
    opened = open_log(workspace.store, options, workspace.environment.cwd)
    client = await open_session(options, opened=opened)
    switcher = SessionSwitcher(workspace.store, options, workspace.environment, client)
    switcher.draft = opened.draft
    return switcher
