"""`odin serve` without its command line: the sessions below some folders, on a listening socket, for paired clients."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from odin.config import Options
from odin.config.paths import LOG_FOLDER, SERVER_LOG_NAME, make_environment
from odin.core.errors import OdinError
from odin.host.manager import SessionManager
from odin.server.access import open_access
from odin.server.application import Application, BoardSource
from odin.server.guard import ClientLog, HostCheck
from odin.server.http import HttpServer
from odin.server.sessions import Connect, HostedSessions
from odin.server.shares import open_shares
from odin.server.token_access import TokenAccess

if TYPE_CHECKING:
    import ssl

IDLE_S = 1800.0
_CLOSE_S = 10.0


@asynccontextmanager
async def serve_sessions(
    listener: socket.socket,
    check: HostCheck,
    options: Options,
    roots: Sequence[str],
    *,
    err: TextIO,
    manager: SessionManager | None = None,
    tls: "ssl.SSLContext | None" = None,
    idle_s: float = IDLE_S,
    connect: Connect | None = None,
    boards: Mapping[str, BoardSource] | None = None,
) -> AsyncGenerator[HostedSessions]:
    """Serve sessions until the end of the context; then end all streams and close all sessions. `err` gets the log.

    A session that nobody uses for `idle_s` seconds is closed until it is asked for again; one that another process has
    open is reached through `connect`.
    """
    manager = manager or SessionManager()
    environment = make_environment(options.env, roots[0], options.state_dir)
    log = ClientLog(Path(environment.state_dir, LOG_FOLDER, SERVER_LOG_NAME), err)
    shares = open_shares(environment.variables)
    access = TokenAccess(open_access(environment.variables), check, log, shares)
    sessions = HostedSessions(manager, options, roots, idle_s=idle_s, connect=connect, is_valid=access.is_valid)
    server = HttpServer(Application(sessions, access, environment, base=check.base_path, boards=boards))
    with suppress(OdinError):
        await asyncio.to_thread(shares.sweep)
    try:
        await server.listen(listener, tls)
        yield sessions
    finally:
        server.stop_listening()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await sessions.close()
        await server.close()
        await manager.close(_CLOSE_S)
