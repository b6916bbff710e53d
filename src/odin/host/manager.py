"""Who owns a session: the manager opens it, attaches clients to it, and closes it.

Front ends, servers and programs are clients. A session is closed with its last client, unless it is kept open for the
next one. A session that is open in this process is never opened twice: another client is attached to it.
"""

import asyncio
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Unpack

from msgspec.structs import replace

from odin.app.compose import GivenParts, open_session
from odin.app.process_services import ProcessServices
from odin.app.workspace import OpenedLog, Workspace, make_workspace
from odin.config import Options
from odin.core.errors import OdinError, SessionNotFound
from odin.core.op import AddMessage, Rewind, SetTitle
from odin.engine.client import LocalClient, OpenSession
from odin.session.log import read_log

if TYPE_CHECKING:
    from odin.session.messages import StoredMessage

NEW_TITLE = "New Session"

_CLOSE_S = 5.0


class SessionManager:
    """The open sessions of this process, or of one event loop of it.

    They share its connections and its watchdog, and those of the same workspace also servers (`process_services`).
    """

    def __init__(self) -> None:
        self._process = ProcessServices()
        self._sessions: dict[str, OpenSession] = {}
        """By the path of the log; the session that was used last is the last."""
        self._current: dict[str, str] = {}
        """By project: the current session, for programs that do not name one."""
        self._opening = weakref.WeakValueDictionary[str, asyncio.Lock]()

    # --- sessions and clients ---

    async def open(
        self, options: Options, *, opened: OpenedLog | None = None, **given: Unpack[GivenParts]
    ) -> LocalClient:
        """Start or resume a session and return a client of it, which may answer if `options.can_ask`.

        If it is open in this process, a client is attached, and the other options and what is `given` are not used.
        """
        if opened is not None or not options.resume or options.fork:
            return await self._open(options, opened=opened, **given)
        store = make_workspace(options).store
        log = str(store.find_log(store.find(options.resume)))
        lock = self._opening.setdefault(log, asyncio.Lock())
        async with lock:  # two clients that resume the same session must not both open it
            known = self._sessions.get(log)
            if known is not None and not known.is_closing:
                return known.attach(answers=options.can_ask)
            if known is not None:
                await known.close()  # it still holds the lock of its log
            return await self._open(options, **given)

    async def _open(
        self, options: Options, *, opened: OpenedLog | None = None, **given: Unpack[GivenParts]
    ) -> LocalClient:
        return await open_session(options, opened=opened, process=self._process, on_opened=self._add, **given)

    def _add(self, session: OpenSession, workspace: Workspace) -> None:
        self._sessions[session.log] = session
        session.on_closed = lambda: self._sessions.pop(session.log, None)
        if workspace.config.redis.url:
            from odin.host.publisher import publish_session

            publish_session(session, workspace)

    def find(self, name: str) -> OpenSession | None:
        """Return the open session with this id or log."""
        found = next((one for log, one in self._sessions.items() if name in (one.id, log)), None)
        return None if found is None or found.is_closing else found

    def list_open(self) -> tuple[OpenSession, ...]:
        """The session that was used last is the last."""
        return tuple(self._sessions.values())

    def attach(self, session: str, *, answers: bool = False) -> LocalClient:
        """Return another client of an open session. Raise SessionNotFound if it is not open here."""
        known = self.find(session)
        if known is None:
            raise SessionNotFound(f"Session {session} is not open.", "Open it with its id.")
        self._sessions[known.log] = self._sessions.pop(known.log)
        return known.attach(answers=answers)

    async def close_unused(self, keep: int) -> None:
        """Close sessions without a client, those used longest ago first, until at most `keep` sessions are open."""
        unused = [session for session in self._sessions.values() if not session.clients]
        for session in unused[: max(0, len(self._sessions) - keep)]:
            with suppress(OdinError):
                await session.close(_CLOSE_S)

    async def close(self, timeout: float | None = None) -> bool:
        """Close all sessions at once. Return False if that takes longer than `timeout`."""
        done = await asyncio.gather(*(session.close(timeout) for session in self._sessions.values()))
        return all(done)

    # --- the current session, for programs that do not name one ---

    async def create(self, options: Options, title: str = NEW_TITLE) -> LocalClient:
        """Start a session with a title. It becomes the current one of its project."""
        from odin.host.stored_sessions import normalize_title

        client = await self.open(replace(options, resume="", continue_last=False))
        await client.submit(SetTitle(normalize_title(title)))
        self._current[self._get_project(options)] = client.session.id
        return client

    async def get_current(self, options: Options) -> LocalClient:
        """Return a client of the current session of a project; create one if there is none."""
        session = self._current.get(self._get_project(options))
        if session is None:
            return await self.create(options)
        return await self.open(replace(options, resume=session, continue_last=False))

    def set_current(self, options: Options, session: str) -> bool:
        """Make a session the current one of its project. Return False if there is no such session."""
        store = make_workspace(options).store
        if self.find(session) is None and store.find_log(session) is None:
            return False
        self._current[str(store.folder)] = session
        return True

    async def add_message(self, options: Options, session: str, role: Literal["user", "assistant"], text: str) -> None:
        """Add a message to a session without asking a model. Raise SessionBusy while it works."""
        client = await self.open(replace(options, resume=session))
        try:
            await client.submit(AddMessage(role, text))
        finally:
            await client.close()

    def get_messages(self, options: Options, session: str) -> "list[StoredMessage]":
        """Return a copy of the messages of a session, without those that were taken back."""
        from odin.session.messages import read_messages

        store = make_workspace(options).store
        return read_messages(read_log(store.open(store.find(session)).path))

    async def clear_messages(self, options: Options, session: str) -> None:
        """Take all messages of a session back; files stay as they are. The log keeps them, and a redo restores them."""
        client = await self.open(replace(options, resume=session))
        try:
            turns = client.session.deps.recorder.state.turns
            if turns:
                await client.submit(Rewind(turns[0].id, files=False))
        finally:
            await client.close()

    def delete(self, options: Options, session: str) -> None:
        """Delete a stored session. If it was the current one, there is none then."""
        from odin.host.stored_sessions import ProjectSessions

        workspace = make_workspace(options)
        deleted = ProjectSessions(workspace.store, workspace.environment).delete(session)
        if self._current.get(str(workspace.store.folder)) == deleted:
            del self._current[str(workspace.store.folder)]

    def _get_project(self, options: Options) -> str:
        return str(make_workspace(options).store.folder)


_managers: dict[asyncio.AbstractEventLoop, SessionManager] = {}


def get_manager() -> SessionManager:
    """Return the manager of the running event loop, for programs that open sessions without one of their own.

    Connections belong to an event loop, so each has its own manager.
    """
    loop = asyncio.get_running_loop()
    for known in tuple(_managers):  # not weak keys: a session that was left open refers to its loop
        if known.is_closed():
            _managers.pop(known, None)
    if loop not in _managers:
        _managers[loop] = SessionManager()
    return _managers[loop]
