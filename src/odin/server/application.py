"""The HTTP interface: who asks, may they, and the answer. Routes are those of `odin.remote.protocol.ENDPOINTS`."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from odin.app.crash_log import log_crash
from odin.config.paths import SCRATCH_FOLDER
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import (
    AgentShutdown,
    OdinError,
    SessionBusy,
    SessionLocked,
    SessionNotFound,
    UsageError,
)
from odin.core.private_folders import open_scratch
from odin.core.rights import Right, get_needed_right, has_right
from odin.core.text import to_valid_unicode_all
from odin.remote.protocol import (
    ENDPOINTS,
    MAX_BODY_BYTES,
    RUN_HEADER,
    VERSION_HEADER,
    ApiEndpoint,
    Identity,
    OpenedSession,
    Paired,
    Pairing,
    Problem,
)
from odin.server.access import CodeRefused
from odin.server.guard import TooManyRequests
from odin.server.sessions import HostedSession, HostedSessions, OpConflict, SharedSessions
from odin.version import __version__

_BODY_S = 30.0
"""How long a client may take to send a request."""

_MAX_STREAMS = 2_000


class Unauthorized(OdinError):
    """The request has no valid token."""


class Forbidden(OdinError):
    """The token does not have the right, or the request comes from another site."""


class BodyTooLarge(OdinError):
    pass


class VersionMismatch(OdinError):
    pass


_STATUS: dict[type[OdinError], int] = {
    Unauthorized: 401,
    Forbidden: 403,
    SessionNotFound: 404,
    OpConflict: 409,
    SessionBusy: 409,
    SessionLocked: 409,
    AgentShutdown: 410,
    BodyTooLarge: 413,
    VersionMismatch: 426,
    TooManyRequests: 429,
    CodeRefused: 403,
    UsageError: 400,
}


class Access(Protocol):
    """Decides who a client is. `watch` returns whether its token is still valid."""

    def check_origin(self, scope: Scope) -> None:
        """Raise Forbidden if the request was made by the page of another site, or for another host."""
        ...

    def identify(self, token: str, scope: Scope) -> tuple[str, Right]:
        """Return the name and right of the client. Raise Unauthorized."""
        ...

    def is_valid(self, token: str) -> bool: ...

    async def pair(self, pairing: Pairing, scope: Scope) -> Paired:
        """Return the token for a code. Raise OdinError."""
        ...

    def log(self, scope: Scope, name: str, status: int, what: str = "") -> None:
        """Note a request in the log of clients."""
        ...


Handler = Callable[[HostedSession, Any, Any], Awaitable[Any]]
"""Gets the session, the query and the body."""


_HANDLERS: dict[str, Handler] = {
    "snapshot": lambda one, query, body: one.client.snapshot(),
    "info": lambda one, query, body: one.client.get_info(),
    "context": lambda one, query, body: one.client.report_context(),
    "rules": lambda one, query, body: one.client.list_rules(),
    "models": lambda one, query, body: one.client.list_models(query.servers),
    "commands": lambda one, query, body: one.client.list_commands(),
    "agents": lambda one, query, body: one.client.list_agents(),
    "memory": lambda one, query, body: one.client.read_memory(),
    "processes": lambda one, query, body: one.client.list_processes(),
    "process": lambda one, query, body: one.client.read_process(query.id, query.after),
    "working": lambda one, query, body: one.client.is_working(),
    "loop": lambda one, query, body: one.client.get_loop_status(query.agent),
    "files": lambda one, query, body: one.client.find_files(query.words, query.limit),
    "rewind": lambda one, query, body: one.client.plan_rewind(body),
    "status": lambda one, query, body: one.client.read_status_line(body.facts),
    "sessions": lambda one, query, body: one.sessions.list_sessions(),
    "search": lambda one, query, body: one.sessions.search(query.words),
    "find": lambda one, query, body: one.sessions.find(query.name),
    "prompts": lambda one, query, body: one.sessions.list_prompts(query.limit),
    "usage": lambda one, query, body: one.sessions.report_usage(query.by, days=query.days, session=query.session),
    "changes": lambda one, query, body: one.sessions.list_changes(query.path),
    "title": lambda one, query, body: one.sessions.rename(one.id, body.title),
    "setting": lambda one, query, body: one.sessions.save_setting(body.key, body.value),
    "server": lambda one, query, body: one.sessions.add_server(body.url),
}
"""The endpoints that only ask the session something."""


class Application:
    """An ASGI application. `base` is the path under which a proxy serves it.

    A client that takes nothing for `patience_s` seconds is given up, so that what is kept for it is freed.
    """

    def __init__(
        self,
        sessions: HostedSessions,
        access: Access,
        environment: ExecutionEnvironment,
        *,
        base: str = "",
        patience_s: float = 60.0,
    ) -> None:
        self._sessions = sessions
        self._access = access
        self._environment = environment
        self._base = base.rstrip("/")
        self._patience_s = patience_s
        self._run = os.urandom(6).hex()
        self._streams = 0
        self._router = Starlette(
            routes=[
                Route(endpoint.path, self._make_route(endpoint), methods=[endpoint.method])
                for endpoint in ENDPOINTS.values()
            ],
            exception_handlers={HTTPException: _explain_route, OdinError: _explain_error},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Without a valid token nothing is said, not even which routes there are."""
        if scope["type"] != "http":
            return
        if self._base and scope["path"].startswith(f"{self._base}/"):
            scope["path"] = scope["path"].removeprefix(self._base)
        who = ""

        async def send_and_log(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._list_headers()]
                self._access.log(scope, who, message["status"], scope.get("state", {}).get("op", ""))
            try:
                async with asyncio.timeout(self._patience_s):
                    await send(message)
            except TimeoutError as error:
                raise ClientDisconnect from error

        try:
            self._access.check_origin(scope)
            if not _is_public(scope):
                token = _read_token(scope)
                who, right = self._access.identify(token, scope)
                _check_version(scope)
                scope["state"] |= {"identity": Identity(who, right, __version__, self._run), "token": token}
            await self._router(scope, receive, send_and_log)
        except OdinError as error:
            await make_problem(error)(scope, receive, send_and_log)
        except ClientDisconnect:
            pass
        except Exception as error:
            # Not left to uvicorn, which would print it on the screen of the session.
            path = log_crash(error, self._environment.variables)
            problem = OdinError(
                "Internal error.", f"Details are in {path} on the machine of the server." if path else ""
            )
            await make_problem(problem)(scope, receive, send_and_log)

    def _list_headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (VERSION_HEADER.encode(), __version__.encode()),
            (RUN_HEADER.encode(), self._run.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]

    def _make_route(self, endpoint: ApiEndpoint) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            who: Identity | None = getattr(request.state, "identity", None)
            if endpoint.right is not None:
                assert who is not None
                require_right(who, endpoint.right)
            try:
                query = _read_query(endpoint, request)
                body = await _read_body(endpoint, request)
            except msgspec.ValidationError as error:
                raise UsageError(f"The request is not valid: {error}.", "See /openapi.json of this version.") from error
            if endpoint.name == "pair":
                return make_json(await self._access.pair(body, request.scope))
            assert who is not None
            session = request.path_params.get("session", "")
            return await self._answer(endpoint.name, session, query, body, who, request)

        return answer

    async def _answer(
        self, name: str, session: str, query: Any, body: Any, who: Identity, request: Request
    ) -> Response:
        match name:
            case "me":
                return make_json(who)
            case "all":
                return make_json(await asyncio.to_thread(self._sessions.list_all))
            case "new":
                if body.permission_mode:
                    require_right(who, "approve")
                return make_json(OpenedSession(await self._sessions.create(body)))
            case "events":
                return await self._stream(session, query.after, who, request)
            case "ops":
                request.state.op = type(body.op).__name__
                require_right(who, get_needed_right(body.op))
                sent_to = request.headers.get(RUN_HEADER)
                hosted = await self._sessions.get(session)
                return make_json(await hosted.submit(body, who, None if sent_to is None else sent_to == self._run))
            case "next" | "fork" | "plan":
                return make_json(await self._derive(name, session, body))
            case "preview":
                self._sessions.locate(query.name)
                return make_json(await (await self._sessions.get(session)).sessions.preview(query.name))
            case "delete":
                return make_json(await self._sessions.delete(session))
            case "export":
                hosted = await self._sessions.get(session)
                with open_scratch(Path(self._environment.state_dir, SCRATCH_FOLDER)) as folder:
                    path = await hosted.sessions.export(session, query.form, str(folder))
                    return make_json(await asyncio.to_thread(Path(path).read_text, encoding="utf-8"))
            case _:
                return make_json(await _HANDLERS[name](await self._sessions.get(session), query, body))

    async def _derive(self, name: str, session: str, body: Any) -> OpenedSession:
        given: dict[str, Any] = {}

        async def switch(sessions: SharedSessions) -> None:
            if name == "fork":
                _, given["draft"] = await sessions.fork(body.turn)
            elif name == "plan":
                _, given["prompt"] = await sessions.execute_plan(body.plan, body.role)
            else:
                await sessions.open_new()

        opened = await self._sessions.derive(session, switch)
        return OpenedSession(opened, **given)

    async def _stream(self, session: str, after: int | None, who: Identity, request: Request) -> Response:
        if self._streams >= _MAX_STREAMS:
            raise TooManyRequests("watching clients", 10)
        if request.scope["http_version"] != "1.1":
            raise UsageError("Events are streamed over HTTP/1.1 only.", "Use a client or proxy that speaks it.")
        last = request.headers.get("last-event-id", "")
        if last:
            if not last.isascii() or not last.isdigit():
                raise UsageError("Last-Event-ID is not a number.", "Leave it out, and use ?after=N.")
            after = int(last)
        hosted = await self._sessions.get(session)
        token = request.state.token
        return _EventResponse(self, hosted, after, who, lambda: self._access.is_valid(token))


class _EventResponse(Response):
    """Server-sent events. The connection gets the frames of the feed directly once the past is sent."""

    media_type = "text/event-stream"

    def __init__(
        self,
        application: Application,
        hosted: HostedSession,
        after: int | None,
        who: Identity,
        is_allowed: Callable[[], bool],
    ) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._application = application
        self._hosted = hosted
        self._after = after
        self._who = who
        self._is_allowed = is_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        application, hosted = self._application, self._hosted
        watcher = hosted.join(self._who, scope["state"]["writer"], self._is_allowed)
        application._streams += 1
        gone = asyncio.create_task(_wait_until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(hosted.feed.begin(watcher, self._after)) as past:
                async for data in past:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    if gone.done():
                        return
            await asyncio.wait((gone, watcher.done), return_when=asyncio.FIRST_COMPLETED)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            hosted.leave(watcher)
            hosted.touch()
            application._streams -= 1


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def require_right(who: Identity, right: Right) -> None:
    if not has_right(who.right, right):
        raise Forbidden(
            f"This needs the right to {right}; {who.name or 'this client'} may only {who.right}.",
            f"Pair again with `odin pair --right {right}` on the machine of the server.",
        )


def make_json(result: Any) -> Response:
    try:
        data = msgspec.json.encode(result)
    except UnicodeEncodeError:
        data = msgspec.json.encode(to_valid_unicode_all(msgspec.to_builtins(result)))
    return Response(data, media_type="application/json")


def make_problem(error: OdinError) -> Response:
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 422)
    response = make_json(Problem(str(error), error.hint, error.kind))
    response.status_code = status
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response


async def _explain_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, OdinError)
    return make_problem(error)


async def _explain_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        problem = UsageError(f"{request.url.path} does not take {request.method}.", "See the OpenAPI description.")
    else:
        problem = SessionNotFound(f"There is no {request.url.path}.", "See the OpenAPI description.")
    response = make_problem(problem)
    response.status_code = error.status_code
    return response


def _is_public(scope: Scope) -> bool:
    """True for the only request that needs no token: exchanging a code for one."""
    return scope["method"] == "POST" and scope["path"] == ENDPOINTS["pair"].path


def get_header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _read_token(scope: Scope) -> str:
    scheme, _, token = get_header(scope, b"authorization").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("This needs a token.", "Pair this client: run `odin pair` on the machine of the server.")
    return token.strip()


def _check_version(scope: Scope) -> None:
    version = get_header(scope, VERSION_HEADER.encode())
    if version and version != __version__:
        raise VersionMismatch(
            f"The server runs Odin {__version__}, this client {version}.", "Use the same version on both machines."
        )


def _read_query(endpoint: ApiEndpoint, request: Request) -> Any:
    given: dict[str, Any] = dict(request.query_params)
    lists = {name: request.query_params.getlist(name) for name in given if name == "path"}
    return msgspec.convert(given | lists, endpoint.query, strict=False)


async def _read_body(endpoint: ApiEndpoint, request: Request) -> Any:
    if endpoint.body is None:
        return None
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                data += part
                if len(data) > MAX_BODY_BYTES:
                    raise BodyTooLarge(f"The request is longer than {MAX_BODY_BYTES // 1_000_000} MB.")
    except TimeoutError as error:
        raise UsageError(f"The request was not complete within {_BODY_S:g} s.", "Send it again.") from error
    try:
        return msgspec.json.decode(data, type=endpoint.body)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise
        raise UsageError(f"The request is not valid JSON: {error}.") from error
