"""The connection to a server, or to the process that has a session open: calls the endpoints of the protocol."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec

from odin.core import errors
from odin.core.errors import OdinError
from odin.core.format import clip
from odin.core.text import to_valid_unicode_all
from odin.remote.protocol import ENDPOINTS, RUN_HEADER, VERSION_HEADER, Problem
from odin.version import __version__

if TYPE_CHECKING:
    import ssl

    import httpx2

_CONNECT_S = 10.0
_ANSWER_S = 60.0
_WHOLE_ANSWER_S = 300.0
_MAX_ANSWER_BYTES = 256_000_000
_MAX_PROBLEM = 500
"""Characters of what a server says about an error."""

SILENCE_S = 30.0
"""How long a stream may be silent; the server sends a heartbeat every ten seconds."""


class ConnectionLost(OdinError):
    """The server cannot be reached, or the connection to it broke."""


class NotConnected(ConnectionLost):
    """There was no connection, so that nothing was sent."""


class ServerProblem(OdinError):
    """The server refused something for a reason that has no error class here."""


class Connection:
    """One server with the token for it. `place` names it for people. `run` is the name of the server's run, once known.

    `socket` is the path of a Unix socket, used instead of the address in `url`. `resources` are closed with it.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        socket: str = "",
        place: str = "",
        tls: "ssl.SSLContext | bool" = True,
        resources: ExitStack | None = None,
    ) -> None:
        import httpx2

        self.place = place or url
        self.is_local = bool(socket)
        self.run = ""
        self._resources = resources or ExitStack()
        self._httpx2 = httpx2
        transport = httpx2.AsyncHTTPTransport(uds=socket, verify=False) if socket else None
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers={"authorization": f"Bearer {token}", VERSION_HEADER: __version__, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S),
            transport=transport,
            verify=tls if transport is None else False,
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=20.0),
            trust_env=not is_loopback(httpx2.URL(url).host),  # a proxy elsewhere cannot reach this machine's ports
        )

    async def call(self, name: str, session: str = "", *, query: Any = None, body: Any = None, run: str = "") -> Any:
        """Return the result of an endpoint. Raise the error that the server reports, or ConnectionLost."""
        endpoint = ENDPOINTS[name]
        request = self._make_request(name, session, query, body, run)
        try:
            async with asyncio.timeout(_WHOLE_ANSWER_S):
                response = await self._http.send(request, stream=True)
                try:
                    content = await self._read_all(response)
                finally:
                    await response.aclose()
        except self._httpx2.HTTPError as error:
            raise self._make_lost(error) from error
        except TimeoutError as error:
            raise ServerProblem(f"{self.place} did not finish its answer in time.", "Try again.") from error
        self._check(response, content)
        try:
            return None if endpoint.result is None else msgspec.json.decode(content, type=endpoint.result)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.make_nonsense() from error

    async def _read_all(self, response: "httpx2.Response") -> bytes:
        content = bytearray()
        async for data in response.aiter_raw():
            content += data
            if len(content) > _MAX_ANSWER_BYTES:
                raise self.make_nonsense()
        return bytes(content)

    @asynccontextmanager
    async def stream(self, name: str, session: str, query: Any) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open the stream of an endpoint, and give its bytes. Raise as `call` does, also while they are read."""
        request = self._make_request(name, session, query, None, "")
        request.extensions["timeout"] = {"connect": _CONNECT_S, "read": SILENCE_S, "write": _ANSWER_S, "pool": None}
        try:
            response = await self._http.send(request, stream=True)
        except self._httpx2.HTTPError as error:
            raise self._make_lost(error) from error
        try:
            content = b""
            if response.status_code != 200:
                async with asyncio.timeout(_ANSWER_S):
                    content = await self._read_all(response)
            self._check(response, content)
            yield self._read(response)
        except (self._httpx2.HTTPError, TimeoutError) as error:
            raise self._make_lost(error) from error
        finally:
            await response.aclose()

    async def _read(self, response: "httpx2.Response") -> AsyncIterator[bytes]:
        try:
            async for data in response.aiter_raw():
                yield data
        except self._httpx2.HTTPError as error:
            raise self._make_lost(error) from error

    def _make_request(self, name: str, session: str, query: Any, body: Any, run: str) -> "httpx2.Request":
        endpoint = ENDPOINTS[name]
        given: dict[str, Any] = {} if query is None else msgspec.to_builtins(query)
        params = {key: value for key, value in given.items() if value not in (None, "", [])}
        content = None
        if body is not None:
            try:
                content = msgspec.json.encode(body)
            except UnicodeEncodeError:
                content = msgspec.json.encode(to_valid_unicode_all(msgspec.to_builtins(body)))
        headers = {"content-type": "application/json"} if body is not None else {}
        headers |= {RUN_HEADER: run} if run else {}
        path = endpoint.path.replace("{session}", session)
        return self._http.build_request(endpoint.method, path, params=params, content=content, headers=headers)

    def _check(self, response: "httpx2.Response", content: bytes) -> None:
        """Raise the error that a response reports. A server that is not Odin, or another version, is one, too."""
        version = _shorten(response.headers.get(VERSION_HEADER, ""))
        if not version:
            raise ConnectionLost(
                f"{self.place} did not answer as an Odin server does (status {response.status_code}).",
                "Check the address, and the proxy in front of it if there is one.",
            )
        if response.status_code != 426 and version != __version__:
            raise ServerProblem(
                f"{self.place} runs Odin {version}, this is {__version__}.", "Use the same version on both machines."
            )
        self.run = response.headers.get(RUN_HEADER, "")
        if response.status_code != 200:
            try:
                problem = msgspec.json.decode(content, type=Problem)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                problem = Problem(f"{self.place} answered with status {response.status_code}.", "Try again later.")
            raise make_error(problem)

    def make_nonsense(self) -> ServerProblem:
        """Return the error for an answer that is not what the protocol says."""
        return ServerProblem(
            f"{self.place} did not answer as Odin {__version__} does.", "Check the address, and what answers there."
        )

    def _make_lost(self, error: Exception) -> ConnectionLost:
        what = str(error) or type(error).__name__
        is_sent = not isinstance(error, self._httpx2.ConnectError | self._httpx2.ConnectTimeout)
        kind = ConnectionLost if is_sent else NotConnected
        return kind(f"{self.place} cannot be reached ({what}).", "Check that it runs, and try again.")

    async def close(self) -> None:
        with self._resources:
            await asyncio.shield(self._http.aclose())


def make_error(problem: Problem) -> OdinError:
    """Return the error as the server raised it, of its class if that is made of a message and a hint."""
    said, hint, kind = _shorten(problem.error), _shorten(problem.hint), getattr(errors, problem.kind, None)
    if isinstance(kind, type) and issubclass(kind, OdinError):
        error = kind.__new__(kind)
        OdinError.__init__(error, said, hint)
        return error
    return ServerProblem(said, hint)


def _shorten(text: str) -> str:
    return clip(" ".join("".join(char if char.isprintable() else " " for char in text).split()), _MAX_PROBLEM)


def is_loopback(host: str) -> bool:
    """True for an address or name of this machine that no other machine can have."""
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
