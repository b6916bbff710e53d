"""Serves an ASGI application on listening sockets in the running event loop, with the HTTP protocol of uvicorn."""

import asyncio
import socket
import ssl
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_REQUEST_S = 10.0
"""How long a connection may take to send the head of its first request."""

_CLOSE_S = 2.0


class HttpServer:
    """The connections of one application. Signals and the event loop belong to the caller."""

    def __init__(self, application: Any, *, max_connections: int = 4_000) -> None:
        self._config = Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=max_connections,
            h11_max_incomplete_event_size=32_768,
            timeout_keep_alive=30,
        )
        self._config.load()
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.get_running_loop()

    async def listen(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Serve the connections of a bound socket. It is closed with the server."""
        made = await self._loop.create_server(self._make_protocol, sock=listener, ssl=tls, backlog=2048)
        self._servers.append(made)

    async def accept(self, connection: socket.socket) -> None:
        """Serve one connection that was accepted already."""
        await self._loop.connect_accepted_socket(self._make_protocol, connection)

    def _make_protocol(self) -> H11Protocol:
        state: dict[str, Any] = {}
        protocol = _PromptProtocol(config=self._config, server_state=self._state, app_state=state)
        state["writer"] = protocol
        self._loop.call_later(_REQUEST_S, protocol.close_if_silent)
        return protocol

    def stop_listening(self) -> None:
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Let running answers end for a moment, then cut the connections."""
        self.stop_listening()
        for protocol in list(self._state.connections):
            protocol.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_CLOSE_S)
        for task in list(self._state.tasks):
            task.cancel()
        for protocol in list(self._state.connections):
            protocol.transport.abort()


class _PromptProtocol(H11Protocol):
    """Closes a connection that does not send a request soon, and takes encoded parts of a body."""

    @property
    def is_congested(self) -> bool:
        return self.flow.write_paused

    def write_chunk(self, data: bytes) -> None:
        self.transport.write(data)

    def close_if_silent(self) -> None:
        if self.scope is None and self.transport is not None and not self.transport.is_closing():  # pyright: ignore[reportUnnecessaryComparison]
            self.transport.abort()
