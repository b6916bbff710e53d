"""Holds the session that is open and goes to others: the target is opened and locked before the old one ends."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from odin.app.compose import open_session
from odin.app.opening import OpenedLog, open_log, workspace_of
from odin.app.sessions import ProjectSessions, normalize_title
from odin.app.setup import is_first_run
from odin.config import Options
from odin.context.prompt import SystemPromptSource
from odin.core.client import Client
from odin.core.errors import DeleteCurrentSession, OdinError, SessionBusy, UsageError
from odin.core.event import SessionSwitched
from odin.core.op import SetTitle
from odin.core.provider import ModelInfo, Provider
from odin.core.sessions import ExportFormat, SessionMatch, SessionPreview, SessionSummary
from odin.core.tool import Tool
from odin.core.usage import UsageGrouping, UsageReport
from odin.engine.local import LocalClient
from odin.session.store import SessionStore

SwitchKind = Literal["resume", "new", "fork"]


class SessionParts(Struct, frozen=True):
    """What a program brings to every session it opens."""

    tools: Sequence[Tool[Any]] = ()
    provider: tuple[Provider, ModelInfo] | None = None
    assembler: SystemPromptSource | None = None

    async def open(self, options: Options, opened: OpenedLog) -> LocalClient:
        return await open_session(
            options, tools=self.tools, provider=self.provider, assembler=self.assembler, opened=opened
        )


class SessionSwitcher:
    """The sessions of one project, one of them open. `draft` is the prompt that a fork at the start left out."""

    def __init__(
        self, store: SessionStore, options: Options, cwd: str, client: LocalClient, parts: "SessionParts"
    ) -> None:
        self._store = store
        self._options = options
        self._cwd = cwd
        self._client = client
        self._parts = parts
        self._project_sessions = ProjectSessions(store)
        self._switch_lock = asyncio.Lock()
        self.draft = ""

    @property
    def client(self) -> Client:
        return self._client

    async def open_new(self) -> Client:
        async with self._switch_lock:
            await self._require_idle()
            options = await self._strip_session_options(keep=True)
            opened = replace(open_log(self._store, options, self._cwd), source="clear")
            return await self._switch("new", options, opened)

    async def resume(self, session: str) -> Client:
        async with self._switch_lock:
            await self._require_idle()
            found = self._store.find(session)
            if found == await self._get_session_id():
                raise UsageError(f"Session {found} is the one that is open.")
            options = replace(await self._strip_session_options(keep=False), resume=found)
            return await self._switch("resume", options, open_log(self._store, options, self._cwd))

    async def fork(self, turn: str = "") -> tuple[Client, str]:
        async with self._switch_lock:
            await self._require_idle()
            here = await self._get_session_id()
            if self._store.find_log(here) is None:
                raise UsageError("Nothing was said in this session yet, so there is nothing to copy.")
            plain = await self._strip_session_options(keep=True)
            opened = open_log(self._store, replace(plain, resume=here, fork=True, fork_at=turn), self._cwd)
            return await self._switch("fork", plain, opened), opened.draft

    async def list_sessions(self) -> tuple[SessionSummary, ...]:
        return await asyncio.to_thread(self._project_sessions.list_sessions)

    async def search(self, words: str) -> tuple[SessionMatch, ...]:
        return await asyncio.to_thread(self._project_sessions.search, words)

    async def preview(self, session: str) -> SessionPreview:
        from odin.session.glance import preview_session

        where = self._store.find_log(session)
        if where is None:
            return SessionPreview(session)
        return await asyncio.to_thread(preview_session, where, session)

    async def report_usage(self, by: UsageGrouping = "day", *, days: int = 0, session: str = "") -> UsageReport:
        from odin.app.usage import UsagePeriod, period_of_last_days, report_project_usage

        period = period_of_last_days(days) if days else UsagePeriod()
        return await asyncio.to_thread(report_project_usage, self._store.folder, session=session, period=period, by=by)

    async def list_prompts(self, limit: int = 200) -> tuple[str, ...]:
        from odin.session.prompts import read_recent_prompts

        return await asyncio.to_thread(read_recent_prompts, self._store.folder, limit)

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
            raise UsageError("Nothing was said in this session yet, so there is nothing to export.")
        return await asyncio.to_thread(self._project_sessions.export, session, form, path)

    async def close(self) -> None:
        await self._client.close()

    async def _get_session_id(self) -> str:
        return (await self._client.get_info()).session

    async def _require_idle(self) -> None:
        if (await self._client.snapshot()).executing:
            raise SessionBusy("Wait for it or interrupt it, then go to another session.")

    async def _strip_session_options(self, *, keep: bool) -> Options:
        """What was asked for at the start, without what named a session; with `keep`, what was chosen since stays.

        A session that is resumed brings its own choices.
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
        """Whatever fails before the new session is whole leaves the old one as it is."""
        entered = await self._parts.open(options, opened)
        left, self._client = self._client, entered
        event = SessionSwitched(kind, opened.log.session)
        with contextlib.suppress(OdinError):
            left.record_switch(event)
            await left.close()
        asyncio.get_running_loop().call_soon(entered.record_switch, event)
        return entered


async def open_switcher(
    options: Options,
    *,
    tools: Sequence[Tool[Any]] = (),
    provider: tuple[Provider, ModelInfo] | None = None,
    assembler: SystemPromptSource | None = None,
) -> SessionSwitcher:
    """Open a session as `open_session` does, for a front end that goes from one to another.

    A first run connects to nothing by itself: somebody is there who can be asked whether it should.
    """
    place = workspace_of(options)
    if is_first_run(place.env, options):
        options = replace(options, reach_out=False)
    opened = open_log(place.store, options, place.cwd)
    parts = SessionParts(tools, provider, assembler)
    host = SessionSwitcher(place.store, options, place.cwd, await parts.open(options, opened), parts)
    host.draft = opened.draft
    return host
