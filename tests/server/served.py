"""A server as `odin serve` starts it, on a loopback port, with a scripted model and a token of each right."""

import asyncio
import io
import json
import os
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from odin.config import Options
from odin.config.paths import make_environment
from odin.core.op import Op
from odin.core.rights import RIGHTS, Right
from odin.core.timing import DEFAULT_TIMING, Timing
from odin.host.manager import SessionManager
from odin.remote.protocol import OpRequest
from odin.server.access import AccessStore
from odin.server.application import Application, BoardSource
from odin.server.guard import BindAddress, ClientLog, HostCheck
from odin.server.http import HttpServer
from odin.server.sessions import HostedSessions
from odin.server.shares import ShareStore
from odin.server.token_access import TokenAccess
from odin.testing import ScriptedServer
from tests.waiting import LIMIT_S, TimeLimit


@dataclass
class Served:
    url: str
    port: int
    http: httpx2.AsyncClient
    tokens: dict[str, str]
    store: AccessStore
    shares: ShareStore
    sessions: HostedSessions
    application: Application
    log: Path
    err: io.StringIO

    async def ask(self, right: str, method: str, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        """Send a request with the token of a right, or another one; "" for none."""
        token = self.tokens.get(right, right)
        headers = {**({"authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return await self.http.request(method, f"{self.url}{path}", content=content, headers=headers, **more)

    async def submit(self, right: Right, session: str, op: Op, id: str = "") -> httpx2.Response:
        body = msgspec.json.encode(OpRequest(id or os.urandom(4).hex(), op))
        return await self.ask(right, "POST", f"/sessions/{session}/ops", body)

    async def open(self) -> str:
        return (await self.ask("approve", "POST", "/sessions", {})).json()["session"]

    async def wait_until(self, session: str, *, idle: bool = True) -> dict[str, Any]:
        """Return the snapshot once the session is idle, or asks something."""
        async with TimeLimit():
            while True:
                shot = (await self.ask("view", "GET", f"/sessions/{session}/snapshot")).json()
                if shot["messages"] and not shot["executing"] if idle else shot["interactions"]:
                    return shot
                await asyncio.sleep(0.01)

    async def send_raw(self, data: bytes) -> bytes:
        """Send bytes on a connection of their own, and return what comes back until it ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            writer.write_eof()
            async with TimeLimit():
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def serve(
    model: ScriptedServer,
    folder: Path,
    roots: Sequence[Path] = (),
    timing: Timing = DEFAULT_TIMING,
    boards: Mapping[str, BoardSource] | None = None,
    **limits: Any,
) -> AsyncGenerator[Served]:
    options = Options(env={**os.environ, **model.env("anthropic")}, cwd=str(folder))
    environment = make_environment(options.env, options.cwd)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    state, err = Path(environment.state_dir), io.StringIO()
    store, log = AccessStore(state / "server"), state / "logs/server.log"
    manager = SessionManager()
    shares = ShareStore(state, timing)
    access = TokenAccess(store, HostCheck(BindAddress("127.0.0.1", port)), ClientLog(log, err), shares)
    served = [str(root) for root in roots or (folder,)]
    sessions = HostedSessions(manager, options, served, idle_s=1000, is_valid=access.is_valid)
    application = Application(sessions, access, environment, boards=boards)
    server = HttpServer(application, **limits)
    await server.listen(listener)
    tokens = {right: store.create_token(f"may {right}", right) for right in RIGHTS}
    url = f"http://127.0.0.1:{port}"
    try:
        # Reading the certificates of the machine for each client would take longer than most tests.
        unlimited = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=LIMIT_S, limits=unlimited, verify=False) as http:
            yield Served(url, port, http, tokens, store, shares, sessions, application, log, err)
    finally:
        server.stop_listening()
        await sessions.close()
        await server.close()
        await manager.close(5)
