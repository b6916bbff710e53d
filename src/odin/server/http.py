"""Serves an ASGI application on listening sockets in the running event loop, with the HTTP protocol of uvicorn."""

import asyncio
import resource
import socket
import ssl
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEAD_S = 10.0
"""How long a connection may take to send the head of a request, or to make a TLS connection."""

STALLED_S = 60.0
"""How long a client may take nothing of an answer."""

_LINGER_S = 2.0
"""How long the rest of a request is read after its answer, so that the client can read that."""

_MAX_SILENT = 200
"""Connections that have sent no request yet. One more ends the oldest."""

_CLOSE_S = 2.0


class HttpServer:
    """The connections of one application. Signals and the event loop belong to the caller.

    `head_s` and `stalled_s` are how long a client may take to send the head of a request, and to take an answer.
    """

    def __init__(
        self, application: Any, *, max_connections: int = 4_000, head_s: float = HEAD_S, stalled_s: float = STALLED_S
    ) -> None:
        # Half of the files that this process may open are for the sessions.
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            max_connections = min(max_connections, files // 2)
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
        self._silent: dict[_PromptProtocol, None] = {}
        self._head_s = head_s
        self._stalled_s = stalled_s

    async def listen(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Serve the connections of a bound socket. It is closed with the server."""
        limit = None if tls is None else self._head_s
        made = await self._loop.create_server(
            self._make_protocol, sock=listener, ssl=tls, backlog=2048, ssl_handshake_timeout=limit
        )
        self._servers.append(made)

    async def accept(self, connection: socket.socket) -> None:
        """Serve one connection that was accepted already."""
        await self._loop.connect_accepted_socket(self._make_protocol, connection)

    def _make_protocol(self) -> H11Protocol:
        return _PromptProtocol(self._config, self._state, self._silent, self._head_s, self._stalled_s)

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
    """Ends a connection whose client sends, or takes, too little. `silent`: those without a request, oldest first.

    It also takes parts of a body that are encoded already.
    """

    def __init__(
        self, config: Config, state: ServerState, silent: "dict[_PromptProtocol, None]", head_s: float, stalled_s: float
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={"writer": self})
        self._silent = silent
        self._head_s = head_s
        self._stalled_s = stalled_s
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def is_congested(self) -> bool:
        return self.flow.write_paused

    def write_chunk(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self._head_s, transport.abort)
        self._silent[self] = None
        if len(self._silent) > _MAX_SILENT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._silent.pop(self, None)
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._silent.pop(self, None)
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._head_timer is None and self.conn.trailing_data[0]:  # the head of a further request has begun
            self._head_timer = self.loop.call_later(self._head_s, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # the answer has begun
            self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self.loop.call_later(_LINGER_S, self._abort_if_sending)

    def _abort_if_sending(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is not h11.SEND_RESPONSE:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self._stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
