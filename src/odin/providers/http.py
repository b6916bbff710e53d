"""A small HTTP/1.1 client on asyncio for model requests and streamed responses.

General-purpose clients take longer to import than Odin takes to send its first request. This one reuses connections,
supports proxies and private certificate authorities, bounds every wait, and raises the errors of `core/errors.py` with
the messages of `providers/errors.py`.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from odin.core import debug
from odin.core.errors import ConfigError, ProviderError
from odin.core.lazy_pattern import compile_lazily
from odin.providers import errors
from odin.providers.address import Address, Route, build_proxy_login, find_route, parse_address
from odin.providers.settings import DEFAULT_HEADER_TIMEOUT

if TYPE_CHECKING:
    import ssl

    from odin.providers.address_guard import AddressGuard

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
"""Variables that name the certificates to trust."""

_CHUNK_START = compile_lazily(rb"\r?\n([0-9a-fA-F]+)[ \t]*(?:;[^\n]*)?\r?\n")
_LAST_CHUNK = b"\r\n0\r\n\r\n"
MAX_HEAD = 64 * 1024
MAX_DECODED = 16 * 1024 * 1024
_HIGH_WATER = 1024 * 1024
_NEXT_ADDRESS_SECONDS = 3.0
"""Seconds after which the next address of a host is tried."""


class HttpConnection(asyncio.Protocol):
    """One connection. Notices when the peer closes it, even while nothing is being read."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_reused = False
        self.idle_since = 0.0
        self._buffer = bytearray()
        self._ended = False
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_alive(self) -> bool:
        return not self._ended and not self._buffer and self.transport is not None and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        raw = transport.get_extra_info("socket")
        if raw is not None:
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > _HIGH_WATER and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._wake()

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    async def read_some(self, limit: int = _HIGH_WATER) -> bytes:
        """Return up to `limit` bytes as soon as any arrive; empty at the end."""
        while not self._buffer:
            if self._ended:
                return b""
            await self._wait_for_data()
        return self._take(limit)

    async def read_line(self, limit: int) -> bytes | None:
        """Return one line without its line ending, or None at the end. Raise ValueError if it is too long."""
        searched = 0
        while (at := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > limit:
                raise ValueError("a line is too long")
            if self._ended:
                return None
            await self._wait_for_data()
        return self._take(at + 1)[:-1].removesuffix(b"\r")

    def take_chunks(self) -> bytes:
        """Return the content of the chunks after the current one that have arrived completely."""
        parts: list[bytes] = []
        at = 0
        while found := _CHUNK_START.match(self._buffer, at):
            end = found.end() + int(found[1], 16)
            if end == found.end() or end > len(self._buffer):  # the last chunk is empty
                break
            parts.append(bytes(self._buffer[found.end() : end]))
            at = end
        self._take(at)
        return b"".join(parts)

    def take_last_chunk(self) -> bool:
        """Take the end of a body in chunks if it has arrived."""
        has_arrived = self._buffer.startswith(_LAST_CHUNK)
        self._take(len(_LAST_CHUNK) if has_arrived else 0)
        return has_arrived

    def _take(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        if self._paused and len(self._buffer) < _HIGH_WATER and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        return data

    async def _wait_for_data(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class HttpResponse:
    """A response whose headers have arrived. Once the body is read to its end, the connection can be reused."""

    def __init__(
        self,
        http: "HttpClient",
        route: Route,
        connection: HttpConnection,
        status: int,
        headers: dict[str, str],
        keep: bool,
    ) -> None:
        self.status = status
        self.headers = headers
        self._http = http
        self._route = route
        self._connection = connection
        self._keep = keep
        self._ended = False
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._bytes_left = self._parse_length(status, headers)
        self._in_chunk = False
        self._decoder = _make_decoder(headers.get("content-encoding", ""), route.to)

    def _parse_length(self, status: int, headers: dict[str, str]) -> int | None:
        """Return the remaining bytes, or None if only the end of the connection tells."""
        if status in (204, 304):
            return 0
        if self._chunked:
            return 0
        length = headers.get("content-length", "").strip()
        if length.isascii() and length.isdigit():
            return int(length)
        self._keep = False
        return None

    async def read(self, timeout: float) -> bytes:
        """Return the next decoded bytes, empty at the end. Raise StreamStalled after `timeout` seconds of silence."""
        while not self._ended:
            try:
                async with asyncio.timeout(timeout):
                    data = await self._read_raw()
            except TimeoutError:
                self.discard()
                raise errors.make_idle_timeout_error(self._route.to, timeout) from None
            except ValueError as error:
                self.discard()
                raise errors.make_protocol_error(self._route.to, str(error)) from None
            except BaseException:
                self.discard()
                raise
            if not data:
                self.finish()
                return self._decoder.flush() if self._decoder else b""
            decoded = self._decode(data) if self._decoder else data
            if decoded:
                return decoded
        return b""

    async def read_all(self, timeout: float, limit: int = 1024 * 1024) -> bytes:
        """Return the body, or its first `limit` bytes; a longer one closes the connection."""
        parts: list[bytes] = []
        size = 0
        while size < limit and (data := await self.read(timeout)):
            parts.append(data)
            size += len(data)
        self.discard()
        return b"".join(parts)[:limit]

    def finish(self) -> None:
        """Keep the connection for the next request if both sides allow it. Call after reading the body."""
        if not self._ended:
            self._ended = True
            self._http.return_connection(self._route, self._connection, self._keep)

    def discard(self) -> None:
        """Close the connection, unless the body was read to its end."""
        if not self._ended:
            self._ended = True
            self._connection.abort()

    def release(self) -> None:
        """Keep the connection. If the body has not ended yet, its rest is read in the background first."""
        if self._ended:
            return
        if self._chunked and self._bytes_left == 0 and self._connection.take_last_chunk():
            self.finish()
        else:
            self._http.drain(self)

    def _decode(self, data: bytes) -> bytes:
        try:
            return self._decoder.feed(data) if self._decoder else data
        except ValueError as error:
            self.discard()
            raise errors.make_protocol_error(self._route.to, str(error)) from None

    async def _read_raw(self) -> bytes:
        """Return the next raw bytes, empty at the end. Raise StreamCut if the connection ends first."""
        if self._chunked and self._bytes_left == 0 and not await self._begin_chunk():
            return b""
        if self._bytes_left == 0:
            return b""
        data = await self._connection.read_some(self._bytes_left or _HIGH_WATER)
        if not data and self._bytes_left is not None:
            raise errors.make_cut_error(self._route.to)
        if self._bytes_left is not None:
            self._bytes_left -= len(data)
        if self._chunked and self._bytes_left == 0:
            data += self._connection.take_chunks()
        return data

    async def _begin_chunk(self) -> bool:
        """Read the size line of the next chunk. Return False after the last one."""
        if self._in_chunk and await self._read_line():
            raise ValueError("a chunk is longer than it says")
        text = (await self._read_line()).partition(b";")[0].strip()
        try:
            self._bytes_left = int(text, 16)
        except ValueError:
            raise ValueError("a chunk has no size") from None
        if self._bytes_left < 0:
            raise ValueError("a chunk has no size")
        self._in_chunk = True
        if self._bytes_left == 0:
            while await self._read_line():
                pass
            return False
        return True

    async def _read_line(self) -> bytes:
        line = await self._connection.read_line(MAX_HEAD)
        if line is None:
            raise errors.make_cut_error(self._route.to)
        return line


class TlsContexts:
    """The TLS contexts of a process, one for each set of trusted certificates: building one takes long."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[object, ...], asyncio.Task[ssl.SSLContext]] = {}

    async def get(self, env: Mapping[str, str]) -> "ssl.SSLContext":
        """Trust SSL_CERT_FILE and SSL_CERT_DIR, else REQUESTS_CA_BUNDLE, else the system's certificates."""
        from odin.providers.tls import build_tls_context

        named = [(name, env[name]) for name in _CERTIFICATES if env.get(name)]
        if any(name.startswith("SSL_") for name, _ in named):
            named = [(name, path) for name, path in named if name.startswith("SSL_")]
        key = tuple((*pair, _read_change_time(pair[1])) for pair in named)
        task = self._tasks.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            # In a thread, because loading certificates is slow.
            task = self._tasks[key] = asyncio.ensure_future(asyncio.to_thread(build_tls_context, named))
        return await asyncio.shield(task)


def _read_change_time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0


class HttpClients:
    """The HTTP clients of a process, for one event loop. Sessions share one if they use the same proxies and trust the
    same certificates. Keys are sent with each request and belong to no connection.
    """

    def __init__(self) -> None:
        self.tls = TlsContexts()
        self._clients: dict[tuple[tuple[str, str], ...], HttpClient] = {}

    def get(self, env: Mapping[str, str]) -> "HttpClient":
        used = {name: env[name] for name in sorted(env) if name.lower().endswith("_proxy") or name in _CERTIFICATES}
        key = tuple(used.items())
        if key not in self._clients:
            self._clients[key] = HttpClient(used, tls=self.tls)
        return self._clients[key]

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()


class HttpClient:
    """Connections that are used again. `env` provides proxies and certificates."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        connect_timeout: float = 10.0,
        header_timeout: float = DEFAULT_HEADER_TIMEOUT,
        keep_alive: float = 60.0,
        user_agent: str = "odin",
        guard: "AddressGuard | None" = None,
        tls: TlsContexts | None = None,
        unix_socket: str = "",
    ) -> None:
        """`guard` resolves the hosts and refuses some of their addresses. `tls` are the contexts of the process.

        `unix_socket` is the path of one that is used instead of every address.
        """
        self._env = env
        self._connect_timeout = connect_timeout
        self._header_timeout = header_timeout
        self._keep_alive = keep_alive
        self._user_agent = user_agent
        self._guard = guard
        self._idle: dict[str, list[HttpConnection]] = {}
        self._preconnecting: dict[str, asyncio.Task[HttpConnection]] = {}
        self._draining: dict[asyncio.Task[None], HttpResponse] = {}
        self._tls = tls or TlsContexts()
        self._unix_socket = unix_socket

    async def preconnect(self, url: str) -> None:
        """Start connecting in the background while the request is being built. Never fails."""
        try:
            route = find_route(parse_address(url), self._env)
        except ConfigError:
            return
        if route.key in self._preconnecting or any(connection.is_alive for connection in self._idle.get(route.key, ())):
            return
        task = asyncio.ensure_future(self._open(route))
        self._preconnecting[route.key] = task
        task.add_done_callback(lambda done: self._forget_failure(route.key, done))

    def _forget_failure(self, key: str, preconnecting: "asyncio.Task[HttpConnection]") -> None:
        failed = preconnecting.cancelled() or preconnecting.exception() is not None
        if failed and self._preconnecting.get(key) is preconnecting:  # it may work later
            del self._preconnecting[key]

    async def acquire(self, address: Address) -> HttpConnection:
        """Return a reused, warmed or new connection. It belongs to the caller until `send` takes it."""
        route = find_route(address, self._env)
        if self._draining and not self._idle.get(route.key):
            await asyncio.sleep(0)  # the end of the last answer may already have arrived
        kept = self._take_idle(route)
        if kept is not None:
            return kept
        preconnecting = self._preconnecting.pop(route.key, None)
        if preconnecting is not None:
            connection = await preconnecting
            connection.is_reused = True
            if self._is_fresh(connection):
                return connection
            connection.abort()
        return await self._open(route)

    async def send(
        self,
        connection: HttpConnection,
        method: str,
        address: Address,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        header_timeout: float | None = None,
        is_repeatable: bool = True,
    ) -> HttpResponse:
        """Send a request and wait for the response headers.

        A kept connection may have died. If it ends before the first byte of the response, the request is sent once more
        on a new connection, unless it must not be carried out twice.
        """
        route = find_route(address, self._env)
        limit = self._header_timeout if header_timeout is None else header_timeout
        url = f"{address.origin}{address.path.partition('?')[0]}"
        if debug.write is not None:
            debug.write("request", {"method": method, "url": url, "bytes": len(body), "reused": connection.is_reused})
        try:
            head = self._encode_head(method, route, headers, len(body))
            async with asyncio.timeout(limit):
                connection.write(head + body)
                first = await self._read_status_line(connection, route)
                if first is None and connection.is_reused and is_repeatable:
                    connection.abort()
                    connection = await self._open(route)
                    connection.write(head + body)
                    first = await self._read_status_line(connection, route)
                response = await self._read_response(connection, route, first)
                if debug.write is not None:
                    debug.write("response", {"url": url, "status": response.status})
                return response
        except TimeoutError:
            connection.abort()
            raise errors.make_header_timeout_error(address, limit) from None
        except ValueError as error:
            connection.abort()
            raise errors.make_protocol_error(address, str(error)) from None
        except BaseException:
            connection.abort()
            raise

    async def fetch(
        self, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None, timeout: float = 5.0
    ) -> tuple[int, bytes]:
        """Return status and body of one small response, for queries such as which models exist."""
        address = parse_address(url)
        method = "GET" if body is None else "POST"
        try:
            async with asyncio.timeout(timeout):
                connection = await self.acquire(address)
                response = await self.send(connection, method, address, headers or {}, body or b"")
                return response.status, await response.read_all(timeout)
        except TimeoutError:
            raise errors.make_header_timeout_error(address, timeout) from None

    async def close(self) -> None:
        for response in self._draining.values():
            response.discard()
        for task in (*self._preconnecting.values(), *self._draining):
            task.cancel()
        for task in tuple(self._preconnecting.values()):
            with suppress(asyncio.CancelledError, ProviderError):
                (await task).abort()
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._preconnecting.clear()
        self._idle.clear()
        await asyncio.sleep(0)

    # --- connections ---

    def return_connection(self, route: Route, connection: HttpConnection, keep: bool) -> None:
        if not keep or not connection.is_alive:
            connection.abort()
            return
        connection.is_reused = True
        connection.idle_since = asyncio.get_running_loop().time()
        connections = self._idle.setdefault(route.key, [])
        while connections and not self._is_fresh(connections[0]):  # the oldest: those that were in use at a busy time
            connections.pop(0).abort()
        connections.append(connection)

    def drain(self, response: HttpResponse) -> None:
        task = asyncio.ensure_future(_drain_response(response))
        self._draining[task] = response
        task.add_done_callback(self._draining.pop)

    def _take_idle(self, route: Route) -> HttpConnection | None:
        connections = self._idle.get(route.key, [])
        while connections:
            connection = connections.pop()
            if self._is_fresh(connection):
                return connection
            connection.abort()
        return None

    def _is_fresh(self, connection: HttpConnection) -> bool:
        """False if a router on the way may have forgotten the connection."""
        return connection.is_alive and asyncio.get_running_loop().time() - connection.idle_since <= self._keep_alive

    async def _open(self, route: Route) -> HttpConnection:
        connection: HttpConnection | None = None
        try:
            async with asyncio.timeout(self._connect_timeout):
                to = route.proxy or route.to
                if self._guard is not None and route.proxy is not None:
                    await self._guard.check_for_proxy(route.to.host, route.to.port)
                connection = await self._connect(to, await self._get_tls_context(to), guarded=route.proxy is None)
                if route.proxy is not None and route.to.scheme == "https":
                    # Ask the proxy to connect, then start TLS with the server.
                    host = f"[{route.to.host}]" if ":" in route.to.host else route.to.host
                    place = f"{host}:{route.to.port}"
                    lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}", *build_proxy_login(route.proxy), "", ""]
                    connection.write("\r\n".join(lines).encode("latin-1"))
                    await self._await_tunnel(connection, route)
                    await self._start_tls(connection, route.to)
                connection.idle_since = asyncio.get_running_loop().time()
                return connection
        except BaseException as error:
            if connection is not None:
                connection.abort()
            if isinstance(error, OSError | UnicodeError):
                raise errors.make_unreachable_error(route, error) from None
            raise

    async def _connect(self, to: Address, context: "ssl.SSLContext | None", *, guarded: bool) -> HttpConnection:
        """Connect to a host; if it is guarded, to an address of it that was checked."""
        loop = asyncio.get_running_loop()
        if self._unix_socket:
            return (await loop.create_unix_connection(HttpConnection, self._unix_socket))[1]
        named = to.host if context is not None else None
        race = None if to.is_loopback else 0.25  # a cancelled race may leave a socket behind, and here it gains nothing
        hosts = await self._guard.resolve(to.host, to.port) if guarded and self._guard is not None else [to.host]
        for left, host in enumerate(hosts, 1 - len(hosts)):
            with suppress(*([OSError] if left else [])):
                async with asyncio.timeout(_NEXT_ADDRESS_SECONDS if left else None):
                    _, connection = await loop.create_connection(
                        HttpConnection, host, to.port, ssl=context, server_hostname=named, happy_eyeballs_delay=race
                    )
                    return connection
        raise OSError("it has no address")

    async def _await_tunnel(self, connection: HttpConnection, route: Route) -> None:
        try:
            first = await connection.read_line(MAX_HEAD)
            while first is not None and await connection.read_line(MAX_HEAD):
                pass
            status, reason = _parse_status(first or b"")
        except ValueError:
            status, reason = 0, "it does not speak HTTP"
        if not 200 <= status < 300:
            raise errors.make_proxy_error(route, status, reason)

    async def _start_tls(self, connection: HttpConnection, to: Address) -> None:
        context = await self._get_tls_context(to)
        assert connection.transport is not None
        assert context is not None
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(connection.transport, connection, context, server_hostname=to.host)
        if secured is None:
            raise ConnectionResetError
        connection.transport = secured

    async def _get_tls_context(self, to: Address) -> "ssl.SSLContext | None":
        return None if to.scheme == "http" else await self._tls.get(self._env)

    # --- requests ---

    def _encode_head(self, method: str, route: Route, headers: Mapping[str, str], length: int) -> bytes:
        by_proxy = route.proxy is not None and route.to.scheme == "http"
        lines = [
            f"{method} {route.to.url if by_proxy else route.to.path} HTTP/1.1",
            f"host: {route.to.authority}",
            f"user-agent: {self._user_agent}",
            "accept-encoding: identity",
        ]
        if by_proxy and route.proxy is not None:
            lines += build_proxy_login(route.proxy)
        if length or method == "POST":
            lines.append(f"content-length: {length}")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        try:
            head = "\r\n".join(lines).encode("ascii")
        except UnicodeEncodeError:
            raise ConfigError(
                "A key, header or base URL has characters that cannot be sent.", "Use plain ASCII."
            ) from None
        if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1:
            raise ConfigError("A key or header has a line break in it.", "Remove the line break.")
        return head + b"\r\n\r\n"

    async def _read_status_line(self, connection: HttpConnection, route: Route) -> bytes | None:
        """Return the status line, or None if the connection ends before its first byte."""
        line = await connection.read_line(MAX_HEAD)
        if line is None and await connection.read_some():
            raise errors.make_cut_error(route.to)
        return line

    async def _read_response(self, connection: HttpConnection, route: Route, first: bytes | None) -> HttpResponse:
        if first is None:
            raise errors.make_closed_error(route.to)
        status, _ = _parse_status(first)
        headers = await self._read_headers(connection, route)
        while 100 <= status < 200:
            line = await connection.read_line(MAX_HEAD)
            if line is None:
                raise errors.make_cut_error(route.to)
            first = line
            status, _ = _parse_status(first)
            headers = await self._read_headers(connection, route)
        wanted = headers.get("connection", "").lower()
        keep = "close" not in wanted and (first.startswith(b"HTTP/1.1") or "keep-alive" in wanted)
        return HttpResponse(self, route, connection, status, headers, keep)

    async def _read_headers(self, connection: HttpConnection, route: Route) -> dict[str, str]:
        headers: dict[str, str] = {}
        size = 0
        while True:
            line = await connection.read_line(MAX_HEAD)
            if line is None:
                raise errors.make_cut_error(route.to)
            if not line:
                return headers
            size += len(line)
            if size > MAX_HEAD:
                raise ValueError("its headers are too long")
            name, separator, value = line.decode("latin-1").partition(":")
            if separator:
                headers[name.strip().lower()] = value.strip()


async def _drain_response(response: HttpResponse) -> None:
    """Read the rest of a body, bounded in time and size, so that its connection can be kept."""
    try:
        async with asyncio.timeout(1.0):
            for _ in range(64):
                if not await response.read(1.0):
                    return
    except (TimeoutError, ProviderError):
        pass
    finally:
        response.discard()


def _parse_status(line: bytes) -> tuple[int, str]:
    version, _, rest = line.decode("latin-1").partition(" ")
    code, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit() and len(code) == 3):
        raise ValueError("its first line is not a status line")
    return int(code), reason.strip()


class _Inflater:
    """Decompresses gzip, with any number of members, and deflate, which a proxy may apply unasked."""

    def __init__(self) -> None:
        import zlib

        self._zlib = zlib
        self._inflate = zlib.decompressobj(47)
        self._is_first = True

    def feed(self, data: bytes) -> bytes:
        plain = b""
        while data and not (self._inflate.eof and data[0] != 0x1F):  # else it is padding
            if self._inflate.eof:
                self._inflate = self._zlib.decompressobj(31)
            plain += self._decompress(data)
            data = self._inflate.unused_data
        return plain

    def flush(self) -> bytes:
        return self._inflate.flush()

    def _decompress(self, data: bytes) -> bytes:
        try:
            plain = self._inflate.decompress(data, MAX_DECODED)
        except self._zlib.error:
            if not self._is_first:
                raise ValueError("its compressed answer is damaged") from None
            self._inflate, self._is_first = self._zlib.decompressobj(-15), False
            return self._decompress(data)
        self._is_first = False
        if self._inflate.unconsumed_tail:
            raise ValueError("its compressed answer is too large")
        return plain


def _make_decoder(encoding: str, address: Address) -> _Inflater | None:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name in ("gzip", "x-gzip", "deflate"):
        return _Inflater()
    raise errors.make_protocol_error(address, f"its answer is compressed with {name}, which was not asked for")
