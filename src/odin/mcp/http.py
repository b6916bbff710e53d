"""The HTTP transports: streamable HTTP, and the older server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from odin.config.settings import McpServerSettings

_CONNECT_S = 15.0
_READ_S = 300.0


class HttpTransport:
    """A transport of the official package. `closed` is never set: each request is a connection of its own."""

    is_faulty = False

    def __init__(self, open_streams: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self.closed = asyncio.Event()
        self._open_streams = open_streams
        self._streams: AbstractAsyncContextManager[Any] | None = None

    async def __aenter__(self) -> Any:
        self._streams = self._open_streams()
        return await self._streams.__aenter__()

    async def __aexit__(self, *error: Any) -> Any:
        return None if self._streams is None else await self._streams.__aexit__(*error)

    def describe_end(self) -> str:
        return "the connection ended"


@asynccontextmanager
async def open_http(settings: McpServerSettings, auth: Any, max_bytes: int) -> AsyncGenerator[HttpTransport, None]:
    """Yield the transport to a server. Responses in JSON are limited to `max_bytes`."""
    if settings.transport == "sse":
        from mcp.client.sse import sse_client

        yield HttpTransport(lambda: sse_client(settings.url, headers=dict(settings.headers), auth=auth))
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(
        headers=dict(settings.headers),
        auth=auth,
        timeout=httpx2.Timeout(_CONNECT_S, read=_READ_S),
        event_hooks={"response": [_make_size_check(max_bytes)]},
    ) as client:
        yield HttpTransport(lambda: streamable_http_client(settings.url, http_client=client))


def _make_size_check(max_bytes: int) -> Any:
    """Return a hook for responses that ends those in JSON after so many bytes. Streams of events are not limited."""
    import httpx2

    class BoundedStream(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in self._stream:
                size += len(chunk)
                if size > max_bytes:
                    raise httpx2.ReadError(f"it sent a response of more than {max_bytes / 1e6:.0f} MB")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound_response(response: httpx2.Response) -> None:
        if response.headers.get("content-type", "").startswith("application/json"):
            response.stream = BoundedStream(response.stream)

    return bound_response
