"""The connection to a server, or to the process that has a session open: calls the endpoints of the protocol."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace

from odin.core import errors
from odin.core.errors import OdinError, ProviderError
from odin.core.format import clip
from odin.core.text import to_valid_unicode_all
from odin.providers.address import parse_address
from odin.providers.http import HttpClient, HttpResponse
from odin.remote.protocol import ENDPOINTS, RUN_HEADER, VERSION_HEADER, Problem
from odin.version import __version__

_CONNECT_S = 10.0
_ANSWER_S = 60.0
_WHOLE_ANSWER_S = 300.0
_KEPT_S = 20.0
"""How long an unused connection is kept; the server keeps it for thirty seconds."""

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

    `socket` is the path of a Unix socket, used instead of the address in `url`. `env` has proxies and certificates.
    `resources` are closed with it.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        socket: str = "",
        place: str = "",
        env: Mapping[str, str] = MappingProxyType({}),
        resources: ExitStack | None = None,
    ) -> None:
        self.place = place or url
        self.is_local = bool(socket)
        self.run = ""
        self._resources = resources or ExitStack()
        self._address = parse_address(url)
        self._headers = {"authorization": f"Bearer {token}", VERSION_HEADER: __version__}
        self._http = HttpClient(env, connect_timeout=_CONNECT_S, keep_alive=_KEPT_S, unix_socket=socket)

    async def call(self, name: str, session: str = "", *, query: Any = None, body: Any = None, run: str = "") -> Any:
        """Return the result of an endpoint. Raise the error that the server reports, or ConnectionLost."""
        try:
            async with asyncio.timeout(_WHOLE_ANSWER_S):
                response = await self._send(name, session, query, body, run, _ANSWER_S)
                content = await self._read_all(response)
        except TimeoutError as error:
            raise ServerProblem(f"{self.place} did not finish its answer in time.", "Try again.") from error
        self._check(response, content)
        result = ENDPOINTS[name].result
        try:
            return None if result is None else msgspec.json.decode(content, type=result)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.make_nonsense() from error

    async def _send(self, name: str, session: str, query: Any, body: Any, run: str, seconds: float) -> HttpResponse:
        """Return the response once its headers are there; an answer must begin within these seconds."""
        endpoint = ENDPOINTS[name]
        given: dict[str, Any] = {} if query is None else msgspec.to_builtins(query)
        params = {key: value for key, value in given.items() if value not in (None, "", [])}
        path = endpoint.path.replace("{session}", quote(session, safe=""))
        path = self._address.path.rstrip("/") + path + (f"?{urlencode(params, doseq=True)}" if params else "")
        content = b""
        if body is not None:
            try:
                content = msgspec.json.encode(body)
            except UnicodeEncodeError:
                content = msgspec.json.encode(to_valid_unicode_all(msgspec.to_builtins(body)))
        headers = {**self._headers, **({RUN_HEADER: run} if run else {})}
        headers |= {"content-type": "application/json"} if body is not None else {}
        address = replace(self._address, path=path)
        try:
            connection = await self._http.acquire(address)
        except ProviderError as error:
            raise self._make_lost(error, NotConnected) from error
        try:
            return await self._http.send(
                connection,
                endpoint.method,
                address,
                headers,
                content,
                header_timeout=seconds,
                is_repeatable=endpoint.method == "GET",
            )
        except ProviderError as error:
            raise self._make_lost(error) from error

    async def _read_all(self, response: HttpResponse) -> bytes:
        content = bytearray()
        async for data in self._read(response, _ANSWER_S):
            content += data
            if len(content) > _MAX_ANSWER_BYTES:
                response.discard()
                raise self.make_nonsense()
        return bytes(content)

    @asynccontextmanager
    async def stream(self, name: str, session: str, query: Any) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open the stream of an endpoint, and give its bytes. Raise as `call` does, also while they are read."""
        response = await self._send(name, session, query, None, "", SILENCE_S)
        try:
            content = b""
            if response.status != 200:
                async with asyncio.timeout(_ANSWER_S):
                    content = await self._read_all(response)
            self._check(response, content)
            yield self._read(response, SILENCE_S)
        except TimeoutError as error:
            raise self._make_lost(error) from error
        finally:
            response.discard()

    async def _read(self, response: HttpResponse, seconds: float) -> AsyncIterator[bytes]:
        try:
            while data := await response.read(seconds):
                yield data
        except ProviderError as error:
            raise self._make_lost(error) from error

    def _check(self, response: HttpResponse, content: bytes) -> None:
        """Raise the error that a response reports. A server that is not Odin, or another version, is one, too."""
        version = _shorten(response.headers.get(VERSION_HEADER, ""))
        if not version:
            raise ConnectionLost(
                f"{self.place} did not answer as an Odin server does (status {response.status}).",
                "Check the address, and the proxy in front of it if there is one.",
            )
        if response.status != 426 and version != __version__:
            raise ServerProblem(
                f"{self.place} runs Odin {version}, this is {__version__}.", "Use the same version on both machines."
            )
        self.run = response.headers.get(RUN_HEADER, "")
        if response.status != 200:
            try:
                problem = msgspec.json.decode(content, type=Problem)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                problem = Problem(f"{self.place} answered with status {response.status}.", "Try again later.")
            raise make_error(problem)

    def make_nonsense(self) -> ServerProblem:
        """Return the error for an answer that is not what the protocol says."""
        return ServerProblem(
            f"{self.place} did not answer as Odin {__version__} does.", "Check the address, and what answers there."
        )

    def _make_lost(self, error: Exception, kind: "type[ConnectionLost]" = ConnectionLost) -> ConnectionLost:
        origin = self._address.origin
        what = str(error).removeprefix(f"Cannot reach {origin}: ").replace(origin, self.place)
        what = _shorten(what).rstrip(".") or type(error).__name__
        return kind(f"{self.place} cannot be reached ({what}).", "Check that it runs, and try again.")

    async def close(self) -> None:
        with self._resources:
            await asyncio.shield(self._http.close())


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
    from ipaddress import ip_address

    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
