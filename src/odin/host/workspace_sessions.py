"""The sessions of a workspace as one front end sees them: the one it is attached to, and access to the others.

A switch opens and locks the target session before it leaves the old one, which is closed with its last client.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from odin.app.workspace import OpenedLog, make_workspace, open_log
from odin.config import Options, load
from odin.config.files import set_key
from odin.core.call_events import UsageGrouping, UsageReport
from odin.core.client import (
    ChangedFile,
    Client,
    ExportFormat,
    SavedSetting,
    SessionMatch,
    SessionPreview,
    SessionSummary,
)
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import DeleteCurrentSession, OdinError, SessionBusy, UsageError
from odin.core.event import SessionSwitched
from odin.core.event_values import DEFAULT_ROLE
from odin.core.op import Prompt, SetTitle
from odin.core.text import to_valid_unicode
from odin.engine.client import LocalClient
from odin.host.manager import SessionManager
from odin.host.stored_sessions import ProjectSessions, normalize_title
from odin.models.onboarding import is_first_run
from odin.session.store import SessionStore
from odin.tools.files import Refusal
from odin.tools.plans import PLANS, PlanFolder

SwitchKind = Literal["resume", "new", "fork"]


class WorkspaceSessions:
    """`draft` is the prompt that a fork at startup left out."""

    def __init__(
        self,
        manager: SessionManager,
        store: SessionStore,
        options: Options,
        environment: ExecutionEnvironment,
        client: LocalClient,
    ) -> None:
        self._manager = manager
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

    def copy(self) -> "WorkspaceSessions":
        """Return the same with a client of its own, which may watch and can switch to another session."""
        client = self._client.session.attach(answers=False)
        return WorkspaceSessions(self._manager, self._store, self._options, self._environment, client)

    async def open_new(self) -> Client:
        return await self._open_fresh()

    async def _open_fresh(self, role: str = "") -> Client:
        async with self._switch_lock:
            await self._require_idle()
            options = await self._strip_session_options(keep=True)
            options = replace(options, role=role) if role else options
            opened = replace(await open_log(self._store, options, self._cwd), source="clear")
            return await self._switch("new", options, opened)

    async def find(self, name: str) -> str:
        return await asyncio.to_thread(self._store.find, name)

    async def resume(self, session: str) -> Client:
        async with self._switch_lock:
            await self._require_idle()
            found = self._store.find(session)
            if found == await self._get_session_id():
                raise UsageError(f"Session {found} is already open.")
            options = replace(await self._strip_session_options(keep=False), resume=found)
            return await self._switch("resume", options, await open_log(self._store, options, self._cwd))

    async def fork(self, turn: str = "") -> tuple[Client, str]:
        async with self._switch_lock:
            await self._require_idle()
            here = await self._get_session_id()
            if self._store.find_log(here) is None:
                raise UsageError("This session is empty: nothing to fork.")
            mode = (await self._client.get_info()).permission_mode
            plain = replace(await self._strip_session_options(keep=True), permission_mode=mode)
            opened = await open_log(self._store, replace(plain, resume=here, fork=True, fork_at=turn), self._cwd)
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

        With `keep`, the current model is kept; a resumed session restores its own. What was granted for the session,
        its permission mode too, ends with it.
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
        )

    async def _switch(self, kind: SwitchKind, options: Options, opened: OpenedLog) -> Client:
        """Open the new session, then leave the old one. If opening fails, the front end stays where it is."""
        entered = await self._manager.open(options, opened=opened)
        left, self._client = self._client, entered
        event = SessionSwitched(kind, opened.log.session)
        with contextlib.suppress(OdinError):
            left.session.record_switch(event)
            await left.close()
        asyncio.get_running_loop().call_soon(entered.session.record_switch, event)
        return entered


async def open_workspace_sessions(options: Options, manager: SessionManager | None = None) -> WorkspaceSessions:
    """Open a session for a front end that switches between sessions.

    On a first run Odin connects to no server before the user has been asked.
    """
    workspace = make_workspace(options)
    if is_first_run(workspace.env, options):
        options = replace(options, reach_out=False)
    manager = manager or SessionManager()
    opened = await open_log(workspace.store, options, workspace.environment.cwd)
    client = await manager.open(options, opened=opened)
    sessions = WorkspaceSessions(manager, workspace.store, options, workspace.environment, client)
    sessions.draft = opened.draft
    return sessions
