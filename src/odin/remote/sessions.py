"""The sessions of a project elsewhere: the `Sessions` protocol over HTTP."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

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
from odin.core.errors import DeleteCurrentSession, UsageError
from odin.core.op import Prompt
from odin.remote.client import RemoteClient
from odin.remote.connection import Connection
from odin.remote.protocol import (
    ExportAsked,
    ForkRequest,
    NamedSession,
    OpenedSession,
    PathsAsked,
    PlanRequest,
    PromptsAsked,
    ServerRequest,
    SettingRequest,
    TitleRequest,
    UsageAsked,
    Words,
)

_SUFFIXES: dict[ExportFormat, str] = {"markdown": ".md", "json": ".json", "html": ".html"}


class RemoteSessions:
    def __init__(self, connection: Connection, session: str) -> None:
        self.connection = connection
        self.draft = ""
        self._client = RemoteClient(connection, session)

    @property
    def client(self) -> Client:
        return self._client

    async def prefetch(self) -> None:
        await self._client.prefetch()

    def copy(self) -> "RemoteSessions":
        """Return the same with a client of its own, which can switch to another session."""
        return RemoteSessions(self.connection, self._client.session)

    async def _switch(self, session: str) -> Client:
        """Leave the session, which goes on, for another one."""
        entered = RemoteClient(self.connection, session)
        await entered.get_info()
        left, self._client = self._client, entered
        await left.close()
        return entered

    async def open_new(self) -> Client:
        opened: OpenedSession = await self.connection.call("next", self._client.session)
        return await self._switch(opened.session)

    async def find(self, name: str) -> str:
        """Return the id of the session of the project with this name."""
        return await self.connection.call("find", self._client.session, query=NamedSession(name))

    async def resume(self, session: str) -> Client:
        found = await self.find(session)
        if found == self._client.session:
            raise UsageError(f"Session {found} is already open.")
        return await self._switch(found)

    async def fork(self, turn: str = "") -> tuple[Client, str]:
        opened: OpenedSession = await self.connection.call("fork", self._client.session, body=ForkRequest(turn))
        return await self._switch(opened.session), opened.draft

    async def execute_plan(self, plan: str = "", role: str = "") -> tuple[Client, Prompt]:
        body = PlanRequest(plan, role)
        opened: OpenedSession = await self.connection.call("plan", self._client.session, body=body)
        assert opened.prompt is not None
        return await self._switch(opened.session), opened.prompt

    async def list_sessions(self) -> tuple[SessionSummary, ...]:
        return await self.connection.call("sessions", self._client.session)

    async def search(self, words: str) -> tuple[SessionMatch, ...]:
        return await self.connection.call("search", self._client.session, query=Words(words))

    async def list_prompts(self, limit: int = 200) -> tuple[str, ...]:
        return await self.connection.call("prompts", self._client.session, query=PromptsAsked(limit))

    async def preview(self, session: str) -> SessionPreview:
        return await self.connection.call("preview", self._client.session, query=NamedSession(session))

    async def report_usage(self, by: UsageGrouping = "day", *, days: int = 0, session: str = "") -> UsageReport:
        return await self.connection.call("usage", self._client.session, query=UsageAsked(by, days, session))

    async def list_changes(self, paths: Sequence[str] = ()) -> tuple[ChangedFile, ...]:
        return await self.connection.call("changes", self._client.session, query=PathsAsked(tuple(paths)))

    async def add_server(self, url: str) -> tuple[str, ...]:
        return await self.connection.call("server", self._client.session, body=ServerRequest(url))

    async def save_setting(self, key: str, value: str) -> SavedSetting:
        return await self.connection.call("setting", self._client.session, body=SettingRequest(key, value))

    async def rename(self, session: str, title: str) -> None:
        await self.connection.call("title", session, body=TitleRequest(title))

    async def delete(self, session: str) -> None:
        found = await self.find(session)
        if found == self._client.session:
            raise DeleteCurrentSession
        await self.connection.call("delete", found)

    async def export(self, session: str, form: ExportFormat, path: str = "") -> str:
        """Write the session to a file of this machine and return its path."""
        text: str = await self.connection.call("export", session, query=ExportAsked(form))
        where = Path(path or ".").absolute()
        if where.is_dir():
            where /= f"{session}{_SUFFIXES[form]}"
        await asyncio.to_thread(_write, where, text)
        return str(where)

    async def close(self) -> None:
        await self._client.close()
        await self.connection.close()


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.", "Choose another path.") from error
