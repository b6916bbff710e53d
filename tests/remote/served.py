"""`odin serve` in the process of the test, without the command line: sessions on a port of loopback."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from odin.config import Options
from odin.config.paths import make_environment
from odin.core.call_events import Replied, ReplyDiscarded, ReplyRolledBack, TextStreamed
from odin.core.client import Client
from odin.core.event import Envelope
from odin.core.rights import Right
from odin.host.manager import SessionManager
from odin.remote.client import RemoteClient, SessionLeft
from odin.remote.connection import Connection
from odin.remote.protocol import NewSession, Paired, Pairing, ShareLink
from odin.server.application import Application, Unauthorized
from odin.server.http import HttpServer
from odin.server.sessions import HostedSessions
from odin.server.shares import OpenedShare
from odin.session.log import read_log
from odin.testing import ScriptedServer


class NamedAccess:
    """The token `NAME:RIGHT` is the name and the right of the client."""

    def check_origin(self, scope: Any) -> None: ...

    def identify(self, token: str, scope: Any) -> tuple[str, Right]:
        name, _, right = token.partition(":")
        if right not in ("view", "prompt", "approve"):
            raise Unauthorized("No such client.")
        return name, right

    def is_valid(self, token: str) -> bool:
        return True

    async def pair(self, pairing: Pairing, scope: Any) -> Paired:
        raise NotImplementedError

    async def open_share(self, link: ShareLink, scope: Any) -> OpenedShare:
        raise NotImplementedError

    def log(self, scope: Any, name: str, status: int, what: str = "") -> None: ...


class Served:
    """A running server. `port` may be that of a proxy in front of it."""

    def __init__(self, port: int, manager: SessionManager, sessions: HostedSessions) -> None:
        self.port = port
        self.manager = manager
        self.sessions = sessions
        self._connections: list[Connection] = []
        self._clients: list[RemoteClient] = []

    def connect(self, token: str = "alice:approve", port: int = 0) -> Connection:
        self._connections.append(Connection(f"http://127.0.0.1:{port or self.port}", token))
        return self._connections[-1]

    def attach(self, session: str, token: str = "alice:approve", port: int = 0) -> RemoteClient:
        """Return a client that does not pause before it connects again."""
        self._clients.append(RemoteClient(self.connect(token, port), session, sleep=skip_pause))
        return self._clients[-1]

    async def create(self, **asked: Any) -> str:
        return (await self.connect().call("new", body=NewSession(**asked))).session

    def read_log(self, session: str) -> list[Envelope]:
        return list(read_log(self.sessions.locate(session)[0]))

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        for connection in self._connections:
            await connection.close()


async def skip_pause(seconds: float) -> None:
    await asyncio.sleep(0.001)


def make_options(server: ScriptedServer, workspace: Path, **more: Any) -> Options:
    return Options(env={**os.environ, **server.env("anthropic")}, cwd=str(workspace), can_ask=True, **more)


@asynccontextmanager
async def serve(
    model: ScriptedServer,
    workspace: Path,
    *,
    idle_s: float = 1800.0,
    clock: Callable[[], float] | None = None,
    stalled_s: float = 60.0,
    options: Options | None = None,
    answers: bool = True,
    return_s: float = 60.0,
    send_buffer: int = 0,
) -> AsyncGenerator[Served]:
    options = options or make_options(model, workspace)
    manager = SessionManager()
    given: dict[str, Any] = {} if clock is None else {"clock": clock}
    sessions = HostedSessions(
        manager, options, (str(workspace),), idle_s=idle_s, answers=answers, return_s=return_s, **given
    )
    environment = make_environment(options.env, options.cwd, options.state_dir)
    server = HttpServer(Application(sessions, NamedAccess(), environment), stalled_s=stalled_s)
    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    await server.listen(listener)
    served = Served(listener.getsockname()[1], manager, sessions)
    try:
        yield served
    finally:
        await served.close()
        await sessions.close()
        await server.close()
        await manager.close(10)


class Watcher:
    """Follows a session, as a front end does. `shown` is the text of the reply that streams."""

    def __init__(self, client: Client, after: int | None = -1) -> None:
        self.seen: list[Envelope] = []
        self.shown = ""
        self.wrong: list[tuple[str, str]] = []
        self.rollbacks = 0
        self.streamed = 0
        """Replies of which all text was streamed before they were final."""
        self.is_over = False
        self._events = client.stream_events(after)
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        try:
            await self._read()
        except SessionLeft:
            self.is_over = True

    async def _read(self) -> None:
        async for envelope in self._events:
            self.seen.append(envelope)
            if envelope.agent:
                continue
            match envelope.event:
                case TextStreamed(text):
                    self.shown += text
                case ReplyRolledBack() | ReplyDiscarded():
                    self.shown = ""
                    self.rollbacks += 1
                case Replied(message):
                    if self.shown not in ("", message.text):
                        self.wrong.append((self.shown, message.text))
                    self.streamed += bool(message.text) and self.shown == message.text
                    self.shown = ""
                case _:
                    pass

    @property
    def durable(self) -> list[Envelope]:
        return [envelope for envelope in self.seen if envelope.event.durable]

    def find(self, kind: type[Any]) -> list[Any]:
        return [envelope.event for envelope in self.seen if isinstance(envelope.event, kind)]

    def count(self, kind: type[Any]) -> int:
        return len(self.find(kind))
