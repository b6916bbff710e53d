"""The sessions that a server gives to its clients: opened on the first request, unloaded when nobody uses them."""

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from odin.app.workspace import make_workspace
from odin.config import Options
from odin.config.paths import make_environment
from odin.core.client import Client, Sessions, SessionSummary, is_session_busy
from odin.core.errors import (
    AgentShutdown,
    DeleteCurrentSession,
    OdinError,
    SessionBusy,
    SessionLocked,
    SessionNotFound,
    UsageError,
)
from odin.core.op import Answer, Op, Prompt
from odin.core.path_names import contains
from odin.core.rights import attribute
from odin.engine.client import LocalClient
from odin.host.manager import SessionManager
from odin.host.stored_sessions import ProjectSessions
from odin.host.workspace_sessions import WorkspaceSessions
from odin.remote.protocol import TURN_OPS, Identity, NewSession, OpRequest, Receipt
from odin.server.feed import Feed, FrameFeed, Watcher, Writer
from odin.server.guard import TooManyRequests
from odin.server.shares import remove_ended_shares
from odin.session.log import read_header

if TYPE_CHECKING:
    from odin.server.page.view import SessionView

_MAX_RECEIPTS = 1000
RETURN_S = 60.0
"""How long a client that may approve can be away until the session counts as one in which nobody answers."""

_MAX_OPEN = 100
"""Sessions that are open at once for clients."""


class OpConflict(OdinError):
    """An op contradicts what the session knows: its id was used for another one, or the server was restarted."""


class SharedSessions(Sessions, Protocol):
    """The sessions of a project, from one that several clients have open."""

    def copy(self) -> "SharedSessions":
        """Return the same with a client of its own, which can switch to another session."""
        ...

    async def find(self, name: str) -> str:
        """Return the id of the session of the project with this name. Raise SessionNotFound."""
        ...


Connect = Callable[[Path, str], Awaitable[SharedSessions]]
"""Attaches to a session that another process has open, given its log and id. Raises SessionLocked if it cannot."""


class HostedSession:
    """An open session with the events and receipts of its clients.

    With `answers` it asks also if nobody watches, else for `return_s` seconds after the last one who may approve left.
    """

    def __init__(
        self,
        session: str,
        sessions: SharedSessions,
        feed: Feed,
        clock: Callable[[], float],
        *,
        answers: bool,
        return_s: float,
        home: str,
        is_valid: Callable[[str], bool],
    ) -> None:
        self.id = session
        self.sessions = sessions
        self.client: Client = sessions.client
        self.feed = feed
        self.used_at = clock()
        self._clock = clock
        self._answers = answers
        self._return_s = return_s
        self._home = home
        self._is_valid = is_valid
        self._view: SessionView | None = None
        self._approvers = set[Watcher]()
        self._receipts: OrderedDict[str, tuple[bytes, asyncio.Task[Receipt]]] = OrderedDict()

    def touch(self) -> None:
        self.used_at = self._clock()

    @property
    def is_watched(self) -> bool:
        return bool(self.feed.watchers or (self._view is not None and self._view.is_watched))

    def get_view(self) -> "SessionView":
        """Return what pages show of the session, which is folded from its first event on when the first one asks."""
        from odin.server.page.view import SessionView

        if self._view is None or self._view.is_over:
            self._view = SessionView(self.client, self._home, is_valid=self._is_valid)
        return self._view

    def join(self, feed: FrameFeed, who: Identity, writer: Writer, token: str) -> Watcher:
        """Return a new watcher of a feed, which must leave, too. While one may approve, the session can ask."""
        watcher = feed.join(writer, token)
        if who.right == "approve":
            self._approvers.add(watcher)
        self._update_answering()
        return watcher

    def leave(self, feed: FrameFeed, watcher: Watcher) -> None:
        """A connection that breaks is no answer: what waits for one goes on waiting for a while."""
        feed.leave(watcher)
        asyncio.get_running_loop().call_later(self._return_s, self._retire, watcher)

    def _retire(self, watcher: Watcher) -> None:
        self._approvers.discard(watcher)
        self._update_answering()
        if self._view is not None and not self._view.is_watched:
            self._view.stop()
            self._view = None

    def _update_answering(self) -> None:
        self.client.set_answering(self._answers or bool(self._approvers))

    async def submit(self, request: OpRequest, who: Identity, is_same_run: bool | None) -> Receipt:
        """Carry out an op once. A repeated request gets the first one's receipt, or its error.

        `is_same_run`: the client has sent it to this run of the server for the first time; None: it does not say.
        Raise OpConflict for an id that was used for another op, and for an op of an earlier run whose fate is unknown.
        """
        from hashlib import sha256

        op = attribute(request.op, who.right, who.name)
        content = sha256(msgspec.json.encode((request.op, request.turn))).digest()
        known = self._receipts.get(request.id)
        if known is not None:
            if known[0] != content:
                raise OpConflict(f"The id {request.id!r} was used for another op.", "Use a new id for each op.")
            return await asyncio.shield(known[1])
        if is_same_run is False and not isinstance(op, Prompt):
            raise OpConflict(
                "The server was restarted, and whether this was carried out is not known.", "Look, and try again."
            )
        task = asyncio.create_task(self._carry_out(op, request.turn, is_same_run))
        self._receipts[request.id] = content, task
        if len(self._receipts) > _MAX_RECEIPTS:
            done = (name for name, (_, carried_out) in self._receipts.items() if carried_out.done())
            self._receipts.pop(next(done, request.id))
        return await asyncio.shield(task)

    async def _carry_out(self, op: Op, turn: str, is_same_run: bool | None) -> Receipt:
        if isinstance(op, Prompt) and is_same_run is not True:
            # The log knows the prompts of earlier runs.
            shot = await self.client.snapshot()
            bodies = {item.id: item.body for item in (*shot.messages, *shot.queue)}
            if (body := bodies.get(op.id)) is not None:
                if body != op.body:
                    raise OpConflict(f"The prompt {op.id!r} exists with another text.", "Use a new id for each prompt.")
                return Receipt(True, shot.seq)
        if turn and (type(op).__name__ in TURN_OPS or (isinstance(op, Prompt) and op.delivery == "steer")):
            shot = await self.client.snapshot()
            running = shot.messages[-1].id if shot.executing and shot.messages else ""
            if running != turn and not isinstance(op, Prompt):
                return Receipt(False, shot.seq)
            if running != turn and isinstance(op, Prompt):
                op = replace(op, delivery="queue")
        if isinstance(op, Answer):
            self.client.set_answering(True)
        try:
            return Receipt(await self.client.submit(op), self.feed.last_seq)
        finally:
            self._update_answering()

    async def close(self) -> None:
        with suppress(OdinError):
            await self.client.close()
        await self.feed.close()
        if self._view is not None:
            self._view.stop()


class HostedSessions:
    """Opens the sessions of the projects below `roots`, and attaches to those that the manager has open.

    With `answers` a session asks also while no client that may approve watches it: its questions wait. One that another
    process has open is reached through `connect`. One that nobody uses for `idle_s` seconds,
    and in which nothing goes on, is closed; the next request opens it again.
    """

    def __init__(
        self,
        manager: SessionManager,
        options: Options,
        roots: Sequence[str],
        *,
        idle_s: float,
        answers: bool = True,
        connect: Connect | None = None,
        return_s: float = RETURN_S,
        is_valid: Callable[[str], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._manager = manager
        self._options = replace(options, resume="", continue_last=False, fork=False, fork_at="", session_id="")
        self._roots = tuple(map(os.path.realpath, roots))
        self._idle_s = idle_s
        self._answers = answers
        self._connect = connect
        self._return_s = return_s
        self._is_valid = is_valid
        self._clock = clock
        self._is_closed = False
        self._hosted: dict[str, HostedSession] = {}
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._sweeper = asyncio.create_task(self._unload_unused())

    async def get(self, session: str) -> HostedSession:
        """Return an open session. Raise SessionNotFound for one that does not exist or is not below the roots."""
        hosted = self._hosted.get(session)
        if self._is_closed:
            raise AgentShutdown
        if hosted is None or hosted.feed.is_over:
            async with self._lock(session):
                hosted = self._hosted.get(session)
                if hosted is not None and hosted.feed.is_over:
                    await self._hosted.pop(session).close()
                    hosted = None
                if hosted is None:
                    hosted = await self._serve(await self._open(session))
        hosted.touch()
        return hosted

    def _lock(self, session: str) -> asyncio.Lock:
        return self._locks.setdefault(session, asyncio.Lock())

    async def _open(self, session: str) -> SharedSessions:
        await self._make_room()
        if self._manager.find(session) is not None:
            return self._share(self._options, self._manager.attach(session, answers=self._answers))
        log, cwd = self.locate(session)
        options = replace(self._options, cwd=cwd, can_ask=self._answers)
        try:
            return self._share(options, await self._manager.open(replace(options, resume=session)))
        except SessionLocked:
            if self._connect is None:
                raise
            return await self._connect(log, session)

    def _share(self, options: Options, client: LocalClient) -> WorkspaceSessions:
        workspace = make_workspace(options)
        return WorkspaceSessions(self._manager, workspace.store, options, workspace.environment, client)

    async def _serve(self, sessions: SharedSessions) -> HostedSession:
        shot = await sessions.client.snapshot()
        feed = Feed(sessions.client, shot.seq, is_valid=self._is_valid)
        hosted = HostedSession(
            shot.session,
            sessions,
            feed,
            self._clock,
            answers=self._answers,
            return_s=self._return_s,
            home=make_environment(self._options.env, "/").home,
            is_valid=self._is_valid,
        )
        self._hosted[shot.session] = hosted
        return hosted

    def locate(self, session: str) -> tuple[Path, str]:
        """Return the log and the folder of a stored session. Raise SessionNotFound unless it is below the roots."""
        log = make_workspace(self._options).store.find_log(session)
        if log is None or not self.is_below((header := read_header(log)).cwd):
            raise SessionNotFound(f"There is no session {session} here.", "List the sessions to see which there are.")
        return log, header.cwd

    def has(self, session: str) -> bool:
        """Return whether a session is stored, and below the roots."""
        try:
            self.locate(session)
        except SessionNotFound:
            return False
        return True

    def is_below(self, folder: str) -> bool:
        """True for a folder below the roots."""
        return any(contains(root, os.path.realpath(folder)) for root in self._roots)

    def list_all(self) -> tuple[SessionSummary, ...]:
        """Return the stored sessions of the projects below the roots, newest first. Reads files."""
        workspace = make_workspace(self._options)
        stored = ProjectSessions(workspace.store, workspace.environment, everywhere=True)
        return tuple(item for item in stored.list_sessions() if self.is_below(item.cwd))

    async def create(self, asked: NewSession) -> str:
        """Start a session and return its id. Raise UsageError if its folder is not below the roots."""
        cwd = "" if "\0" in asked.cwd else os.path.realpath(os.path.join(self._roots[0], asked.cwd))  # noqa: PTH118
        if not self.is_below(cwd):
            where = repr(asked.cwd)
            raise UsageError(f"{where} is not below a folder of this server.", f"Use one in {', '.join(self._roots)}.")
        await self._make_room()
        chosen = {name: value for name in ("role", "model", "permission_mode") if (value := getattr(asked, name))}
        options = replace(self._options, cwd=cwd, can_ask=self._answers)
        sessions = self._share(options, await self._manager.open(replace(options, **chosen)))
        return (await self._serve(sessions)).id

    async def derive(self, session: str, switch: Callable[[SharedSessions], Awaitable[object]]) -> str:
        """Return the id of the session that a front end of this one would switch to. Both are open then."""
        await self._make_room()
        other = (await self.get(session)).sessions.copy()
        try:
            await switch(other)
            return (await self._serve(other)).id
        except BaseException:
            await other.client.close()
            raise

    async def _make_room(self) -> None:
        """Close the session that was used longest ago if too many are open. Raise TooManyRequests if all are in use."""
        if len(self._hosted) < _MAX_OPEN:
            return
        for session, hosted in sorted(self._hosted.items(), key=lambda item: item[1].used_at):
            if not hosted.is_watched and not await is_session_busy(hosted.client):
                self._hosted.pop(session, None)
                await hosted.close()
                return
        raise TooManyRequests("sessions in use", 60)

    async def delete(self, session: str) -> None:
        """Delete a session of a project below the roots. Raise SessionBusy while it works, or has another client."""
        hosted = self._hosted.get(session)
        if hosted is not None:
            if await is_session_busy(hosted.client):
                raise SessionBusy("Interrupt it, then delete it.")
            await self._hosted.pop(session).close()
        if self._manager.find(session) is not None:
            raise DeleteCurrentSession
        self.locate(session)
        workspace = make_workspace(self._options)
        await asyncio.to_thread(ProjectSessions(workspace.store).delete, session)
        await asyncio.to_thread(remove_ended_shares, workspace.environment.variables)

    async def _unload_unused(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / 4)
            for session, hosted in list(self._hosted.items()):
                with suppress(OdinError):
                    await self._unload(session, hosted)

    async def _unload(self, session: str, hosted: HostedSession) -> None:
        is_unused = not hosted.is_watched and self._clock() - hosted.used_at > self._idle_s
        if hosted.feed.is_over or (is_unused and not await is_session_busy(hosted.client)):
            async with self._lock(session):
                if hosted.feed.is_over or self._clock() - hosted.used_at > self._idle_s:
                    self._hosted.pop(session, None)
                    await hosted.close()

    async def close(self) -> None:
        """End all streams, and close the sessions that have no other client."""
        self._is_closed = True
        self._sweeper.cancel()
        hosted, self._hosted = self._hosted, {}
        await asyncio.gather(*(one.close() for one in hosted.values()))
