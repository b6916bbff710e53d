"""Transports of the official package to servers with a URL, with the limits of `messages`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

from odin.config.settings import McpServerSettings
from odin.mcp.messages import MAX_MESSAGE_BYTES, FloodGate, RepairedStream

_CONNECT_S = 15.0
_READ_S = 300.0
_GOODBYE_S = 1.0
"""How long a server may take to end its session."""


class HttpTransport:
    """A transport of the package. `closed` is set when it ends, also because the server has forgotten the session."""

    junk = ""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.is_forgotten = False
        self.open_streams: Callable[[], AbstractAsyncContextManager[Any]] | None = None
        self._gate = FloodGate()
        self._streams: AbstractAsyncContextManager[Any] | None = None

    @property
    def is_faulty(self) -> bool:
        return bool(self._gate.fault)

    async def __aenter__(self) -> tuple[Any, Any]:
        assert self.open_streams is not None
        self._streams = self.open_streams()
        read, write = await self._streams.__aenter__()
        return RepairedStream(read, self._gate, self.closed.set), write

    async def __aexit__(self, *error: Any) -> Any:
        """Close the connection. The package says goodbye to the server, which may not answer."""
        if self._streams is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                return await self._streams.__aexit__(*error)
        return None

    def describe_end(self) -> str:
        """Return why the connection ended, "" if only the error that ended it says so."""
        return self._gate.fault or ("it has ended the session" if self.is_forgotten else "")

    async def check_response(self, response: Any) -> None:
        """Bound a response, and notice that the server does not know the session any more."""
        is_message = response.request.method != "DELETE" and "mcp-session-id" in response.request.headers
        if response.status_code == 404 and is_message:
            self.is_forgotten = True
            self.closed.set()
        response.headers.pop("content-encoding", None)  # Odin asks for none; a small body could unpack to gigabytes
        if response.headers.get("content-type", "").startswith("application/json"):
            response.stream = _make_bounded_stream(response.stream)


@asynccontextmanager
async def open_http(settings: McpServerSettings, auth: Any) -> AsyncGenerator[HttpTransport, None]:
    """Yield the transport to a server. Each of its messages is limited to `MAX_MESSAGE_BYTES`."""
    transport = HttpTransport()
    if settings.transport == "sse":
        from mcp.client.sse import sse_client

        transport.open_streams = lambda: sse_client(settings.url, headers=dict(settings.headers), auth=auth)
        yield transport
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(
        headers={"accept-encoding": "identity", **settings.headers},
        auth=auth,
        timeout=httpx2.Timeout(_CONNECT_S, read=_READ_S),
        event_hooks={"response": [transport.check_response]},
    ) as client:
        transport.open_streams = lambda: streamable_http_client(
            settings.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        )
        yield transport


def _make_bounded_stream(stream: Any) -> Any:
    """Return a body that ends with an error after too many bytes. The package fails the request with its text."""
    import httpx2

    class BoundedStream(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in stream:
                size += len(chunk)
                if size > MAX_MESSAGE_BYTES:
                    raise httpx2.StreamError(f"it sent a response of more than {MAX_MESSAGE_BYTES / 1e6:.0f} MB")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return BoundedStream()
