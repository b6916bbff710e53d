"""The HTTP interface: who asks, may they, and the answer. Routes are those of `odin.remote.protocol.ENDPOINTS`."""

import asyncio
import os
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
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
from odin.core.format import clip
from odin.core.private_folders import open_scratch
from odin.core.rights import Right, get_needed_right, has_right
from odin.core.text import to_valid_unicode_all
from odin.remote.protocol import (
    ENDPOINTS,
    MAX_BODY_BYTES,
    RUN_HEADER,
    VERSION_HEADER,
    ApiEndpoint,
    Board,
    BoardAnswer,
    BoardRow,
    BoardSummary,
    CommandAnswer,
    CommandRequest,
    Completion,
    CompletionAsked,
    EventsFrom,
    Identity,
    OpenedSession,
    Paired,
    Pairing,
    Problem,
    ShareLink,
    Suggestion,
)
from odin.server.access import CodeRefused
from odin.server.feed import FrameFeed, Watcher
from odin.server.guard import TooManyRequests
from odin.server.page.files import is_page_file, send_page_file
from odin.server.sessions import HostedSession, HostedSessions, OpConflict, SharedSessions
from odin.server.shared_page import encode_shared_session
from odin.server.shares import OpenedShare, ShareRefused
from odin.session.export_html import read_image
from odin.version import __version__

_BODY_S = 30.0
"""How long a client may take to send a request."""

_MAX_STREAMS = 2_000
_MAX_STREAMS_OF_CLIENT = 200
_MAX_READING_BYTES = 4 * MAX_BODY_BYTES
"""The bodies of all requests that are being received."""

_MAX_PAIRING_BYTES = 10_000
_PART_BYTES = 64_000
_MAX_COMPLETIONS = 50
_MAX_QUERIES = 4
"""Queries of one client that are answered at once; the next ones wait."""

_STREAMS = ("events", "view")
_NOT_QUEUED = ("me", *_STREAMS, "ops", "pair")
_LONG_SEQ = 15
"""Digits of a number that no session reaches."""


class BoardNotFound(OdinError):
    pass


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
    BoardNotFound: 404,
    OpConflict: 409,
    SessionBusy: 409,
    SessionLocked: 409,
    AgentShutdown: 410,
    BodyTooLarge: 413,
    VersionMismatch: 426,
    TooManyRequests: 429,
    CodeRefused: 403,
    ShareRefused: 404,
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

    async def open_share(self, link: ShareLink, scope: Scope) -> OpenedShare:
        """Return the share of a link. Raise OdinError."""
        ...

    def log(self, scope: Scope, name: str, status: int, what: str = "") -> None:
        """Note a request in the log of clients."""
        ...


class BoardSource(Protocol):
    """What a board is made of. The methods are called in threads: they may wait for the disk."""

    title: str

    def exists(self) -> bool:
        """Return whether there is anything to show."""
        ...

    def read(self) -> Board: ...

    def act(self, action: str) -> str:
        """Carry out an action of a row and return what was done, in a sentence. Raise OdinError."""
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
    "loop": lambda one, query, body: one.client.get_loop_status(query.agent),
    "rewind": lambda one, query, body: one.client.plan_rewind(body),
    "status": lambda one, query, body: one.client.read_status_line(body.facts),
    "usage": lambda one, query, body: one.sessions.report_usage(query.by, days=query.days, session=query.session),
    "changes": lambda one, query, body: one.sessions.list_changes(query.path),
    "title": lambda one, query, body: one.sessions.rename(one.id, body.title),
    "setting": lambda one, query, body: one.sessions.save_setting(body.key, body.value),
    "server": lambda one, query, body: one.sessions.add_server(body.url),
}
"""The endpoints that only ask the session something."""


class Application:
    """An ASGI application. `base` is the path under which a proxy serves it, `boards` are those of the page by name."""

    def __init__(
        self,
        sessions: HostedSessions,
        access: Access,
        environment: ExecutionEnvironment,
        *,
        base: str = "",
        boards: Mapping[str, BoardSource] | None = None,
    ) -> None:
        self._boards = boards or {}
        self._sessions = sessions
        self._access = access
        self._environment = environment
        self._base = base.rstrip("/")
        self._run = os.urandom(6).hex()
        self._streams = Counter[str]()
        self._queries = weakref.WeakValueDictionary[str, asyncio.Semaphore]()
        self._reading_bytes = 0
        routes = [
            Route(endpoint.path, self._make_route(endpoint), methods=[endpoint.method])
            for endpoint in ENDPOINTS.values()
        ]
        routes.append(Route("/{file:path}", send_page_file, methods=["GET"]))
        handlers = {HTTPException: _explain_route, OdinError: _explain_error}
        self._router = ExceptionMiddleware(Router(routes, redirect_slashes=False), handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Without a valid token nothing is said, not even which routes there are."""
        if scope["type"] != "http":
            return
        if self._base and (scope["path"] + "/").startswith(f"{self._base}/"):
            scope["path"] = scope["path"].removeprefix(self._base)
        scope["app"] = self  # so that a router raises the error of a missing route
        who, is_started = "", False

        async def send_and_log(message: Any) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                has_body = get_header(scope, b"transfer-encoding") or get_header(scope, b"content-length")
                is_stranger = not (who or has_body or (scope["method"] == "GET" and is_page_file(scope["path"])))
                close = ((b"connection", b"close"),) if is_stranger else ()
                given: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
                is_stored = any(name == b"cache-control" for name, _ in given)
                caching = () if is_stored else ((b"cache-control", b"no-store"),)
                message["headers"] = [*given, *self._list_headers(), *caching, *close]
                self._access.log(scope, who, message["status"], scope.get("state", {}).get("op", ""))
            await send(message)

        try:
            self._access.check_origin(scope)
            _check_framing(scope)
            if not _is_public(scope):
                token = _read_token(scope)
                who, right = self._access.identify(token, scope)
                _check_version(scope)
                scope["state"] |= {"identity": Identity(who, right, __version__, self._run), "token": token}
            if not scope["path"]:  # the links of the page are relative to its folder
                await RedirectResponse(f"{self._base}/", 308)(scope, receive, send_and_log)
                return
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
            if not is_started:
                await make_problem(problem)(scope, receive, send_and_log)

    def _list_headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (VERSION_HEADER.encode(), __version__.encode()),
            (RUN_HEADER.encode(), self._run.encode()),
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
                body = await self._read_body(endpoint, request)
            except msgspec.ValidationError as error:
                raise UsageError(f"The request is not valid: {error}.", "docs/openapi.json describes it.") from error
            if endpoint.name == "pair":
                return make_json(await self._access.pair(body, request.scope))
            if endpoint.name == "shared":
                share = await self._access.open_share(body, request.scope)
                data = await asyncio.to_thread(encode_shared_session, share)
                return _PartedResponse(data, media_type="application/json")
            assert who is not None
            if not self._access.is_valid(request.state.token):
                raise Unauthorized("The token was revoked.", "Pair this client again: `odin pair`.")
            session = request.path_params.get("session", "")
            if endpoint.name in _STREAMS:
                return await self._stream(endpoint, session, query, who, request)
            if endpoint.name in _NOT_QUEUED:
                return make_json(await self._answer(endpoint, session, query, body, who, request))
            async with self._queries.setdefault(who.name, asyncio.Semaphore(_MAX_QUERIES)):
                result = await self._answer(endpoint, session, query, body, who, request)
            return result if isinstance(result, Response) else make_json(result)

        return answer

    async def _read_body(self, endpoint: ApiEndpoint, request: Request) -> Any:
        if endpoint.body is None:
            return None
        limit = MAX_BODY_BYTES if endpoint.right is not None else _MAX_PAIRING_BYTES
        length = request.headers.get("content-length", "0")
        is_too_long = len(length) > _LONG_SEQ or int(length) > limit
        data = bytearray()
        try:
            async with asyncio.timeout(_BODY_S):
                async for part in request.stream():
                    is_too_long = is_too_long or len(data) + len(part) > limit
                    if is_too_long:
                        break
                    data += part
                    self._reading_bytes += len(part)
                    if self._reading_bytes > _MAX_READING_BYTES:
                        raise TooManyRequests("long requests", 10)
        except TimeoutError as error:
            raise UsageError(f"The request was not complete within {_BODY_S:g} s.", "Send it again.") from error
        finally:
            self._reading_bytes -= len(data)
        if is_too_long:
            raise BodyTooLarge(f"The request is longer than {limit:,} bytes.", "Send less at once.")
        try:
            return msgspec.json.decode(data, type=endpoint.body)
        except RecursionError as error:
            raise UsageError("The request is nested too deeply.", "Send flatter JSON.") from error
        except (UnicodeDecodeError, msgspec.DecodeError) as error:
            if isinstance(error, msgspec.ValidationError):
                raise
            raise UsageError(f"The request is not valid JSON: {error}.", "Send JSON in UTF-8.") from error

    async def _answer(
        self, endpoint: ApiEndpoint, session: str, query: Any, body: Any, who: Identity, request: Request
    ) -> Any:
        """Return the result of an endpoint for a client that has the right to it, or a response that is not JSON."""
        match endpoint.name:
            case "me":
                return who
            case "all":
                return await asyncio.to_thread(self._sessions.list_all)
            case "boards":
                named = self._boards.items()
                return [BoardSummary(name, one.title) for name, one in named if await asyncio.to_thread(one.exists)]
            case "board":
                return await asyncio.to_thread(self._read_board, query.name)
            case "act":
                request.state.op = type(body).__name__
                return BoardAnswer(await asyncio.to_thread(self._find_board(body.name).act, body.action))
            case "new":
                if body.permission_mode or body.role:  # a role has its own rules, tools and permission mode
                    require_right(who, "approve")
                return OpenedSession(await self._sessions.create(body))
            case "ops":
                request.state.op = type(body.op).__name__
                require_right(who, get_needed_right(body.op))
                sent_to = request.headers.get(RUN_HEADER)
                hosted = await self._sessions.get(session)
                return await hosted.submit(body, who, None if sent_to is None else sent_to == self._run)
            case "next" | "fork" | "plan":
                if endpoint.name == "plan" and body.role:
                    require_right(who, "approve")
                return await self._derive(endpoint.name, session, body)
            case "preview":
                self._sessions.locate(query.name)
                return await (await self._sessions.get(session)).sessions.preview(query.name)
            case "sessions":
                found = await (await self._sessions.get(session)).sessions.list_sessions()
                return [item for item in found if self._sessions.is_below(item.cwd)]
            case "search":
                matches = await (await self._sessions.get(session)).sessions.search(query.words)
                return [match for match in matches if self._sessions.is_below(match.session.cwd)]
            case "prompts":
                hosted = await self._sessions.get(session)
                is_served = self._sessions.is_below((await hosted.client.get_info()).root)
                return await hosted.sessions.list_prompts(query.limit) if is_served else ()
            case "find":
                found = await (await self._sessions.get(session)).sessions.find(query.name)
                self._sessions.locate(found)
                return found
            case "files":
                return await self._find_files(session, query.words, query.limit, who)
            case "complete":
                return await self._complete(session, query, who)
            case "blocks":
                view = (await self._sessions.get(session)).get_view()
                return await view.list_blocks(query.agent, query.end, query.limit)
            case "image":
                view = (await self._sessions.get(session)).get_view()
                image = await view.find_image(query.agent, query.block, query.index)
                # A log that was imported may name any file.
                folder = self._sessions.locate(session)[0].parent
                content = await asyncio.to_thread(read_image, image, folder, MAX_BODY_BYTES)
                if content is None:
                    raise UsageError("The file of this image is gone.", "It was in the folder of the session.")
                return Response(content, media_type=image.media_type)
            case "command":
                return await self._run_command(session, body, who, request)
            case "edit":
                from odin.server.page.requests import edit_request

                asked = (await (await self._sessions.get(session)).client.snapshot()).interactions
                ask = next((one for one in asked if one.id == body.id and one.kind == "permission"), None)
                if ask is None:
                    raise UsageError("This was answered already.")
                return edit_request(ask, body.texts)
            case "delete":
                return await self._sessions.delete(session)
            case "export":
                hosted = await self._sessions.get(session)
                with open_scratch(Path(self._environment.state_dir, SCRATCH_FOLDER)) as folder:
                    path = await hosted.sessions.export(session, query.form, str(folder))
                    return await asyncio.to_thread(Path(path).read_text, encoding="utf-8")
            case _:
                return await _HANDLERS[endpoint.name](await self._sessions.get(session), query, body)

    def _find_board(self, name: str) -> BoardSource:
        found = self._boards.get(name)
        if found is None or not found.exists():
            raise BoardNotFound(f"There is no board {clip(name, 50)!r}.", "The list of sessions shows which there are.")
        return found

    def _read_board(self, name: str) -> Board:
        """Return a board that links only sessions which this server has."""
        board = self._find_board(name).read()
        linked = {cell.session for section in board.sections for row in section.rows for cell in row.cells}
        foreign = {one for one in linked if one and not self._sessions.has(one)}
        if not foreign:
            return board

        def unlink(row: BoardRow) -> BoardRow:
            cells = (replace(cell, session="") if cell.session in foreign else cell for cell in row.cells)
            return replace(row, cells=tuple(cells))

        sections = (replace(section, rows=tuple(map(unlink, section.rows))) for section in board.sections)
        return replace(board, sections=tuple(sections))

    async def _find_files(self, session: str, words: str, limit: int, who: Identity) -> tuple[str, ...]:
        # Such words list any folder of the machine.
        if words.startswith(("/", "~/", "../", "./")) and not has_right(who.right, "approve"):
            return ()
        return await (await self._sessions.get(session)).client.find_files(words, limit)

    async def _complete(self, session: str, asked: CompletionAsked, who: Identity) -> Completion:
        from odin.server.page.commands import NOT_FOR_PAGES
        from odin.ui.completion import complete_argument, complete_command, find_target, make_file_items

        target, client = (
            find_target(asked.line, asked.column, first=asked.first),
            (await self._sessions.get(session)).client,
        )
        if target is None:
            return Completion()
        if target.kind == "command":
            found = complete_command(target.letters, await client.list_commands())
            items = [item for item in found if item.label.removeprefix("/") not in NOT_FOR_PAGES]
        elif target.kind == "argument":
            shot = await client.snapshot()
            items = complete_argument(target, await client.list_agents(), (*shot.sub_agents, *shot.tasks))
        else:
            items = make_file_items(await self._find_files(session, target.letters, _MAX_COMPLETIONS, who))
        return Completion(
            target.start,
            target.end,
            tuple(msgspec.convert(items[:_MAX_COMPLETIONS], list[Suggestion], from_attributes=True)),
        )

    async def _run_command(self, session: str, asked: CommandRequest, who: Identity, request: Request) -> CommandAnswer:
        from odin.server.page.commands import run_command

        async def perform(endpoint: ApiEndpoint, session: str, query: Any, body: Any) -> Any:
            if endpoint.right is not None:
                require_right(who, endpoint.right)
            return await self._answer(endpoint, session, query, body, who, request)

        if not asked.line.strip():
            raise UsageError("There is no command.", "Type / and its name.")
        return await run_command(perform, session, asked, await (await self._sessions.get(session)).client.get_info())

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

    async def _stream(
        self, endpoint: ApiEndpoint, session: str, query: Any, who: Identity, request: Request
    ) -> Response:
        if request.scope["http_version"] != "1.1":
            raise UsageError("Events are streamed over HTTP/1.1 only.", "Use a client or proxy that speaks it.")
        last = request.headers.get("last-event-id", "")
        if last and endpoint.name == "events":
            if not last.isascii() or not last.isdigit() or len(last) > _LONG_SEQ:
                raise UsageError("Last-Event-ID is not a number.", "Leave it out, and use ?after=N.")
            query = EventsFrom(int(last))
        hosted = await self._sessions.get(session)
        token = request.state.token
        if self._streams[who.name] >= _MAX_STREAMS_OF_CLIENT or self._streams.total() >= _MAX_STREAMS:
            raise TooManyRequests("open streams", 10)
        if endpoint.name == "view":
            feed = await hosted.get_view().open_feed(query.agent)
            return _EventResponse(self._streams, hosted, feed, feed.begin, who, token)
        return _EventResponse(
            self._streams, hosted, hosted.feed, partial(hosted.feed.begin, after=query.after), who, token
        )


class _PartedResponse(Response):
    """Sends each part when the one before was taken, so that slow readers cost no memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, len(self.body), _PART_BYTES):
            part = bytes(self.body[start : start + _PART_BYTES])
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _EventResponse(Response):
    """Server-sent events. The connection gets the frames of the feed directly once the past is sent."""

    media_type = "text/event-stream"

    def __init__(
        self,
        streams: Counter[str],
        hosted: HostedSession,
        feed: FrameFeed,
        begin: Callable[[Watcher], AsyncGenerator[bytes]],
        who: Identity,
        token: str,
    ) -> None:
        """`streams` counts the open ones of each client. `begin` yields what comes before the frames of the feed."""
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._streams = streams
        self._hosted = hosted
        self._feed = feed
        self._begin = begin
        self._who = who
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = self._hosted.join(self._feed, self._who, scope["state"]["writer"], self._token)
        self._streams[self._who.name] += 1
        gone = asyncio.create_task(_wait_until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(self._begin(watcher)) as past:
                async for data in past:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    if gone.done():
                        return
            await asyncio.wait((gone, watcher.done), return_when=asyncio.FIRST_COMPLETED)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._hosted.leave(self._feed, watcher)
            self._hosted.touch()
            self._streams[self._who.name] -= 1
            if not self._streams[self._who.name]:
                del self._streams[self._who.name]


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
    """True for what needs no token: the files of the page, exchanging a code for one, and reading a shared session."""
    if scope["method"] == "GET":
        return is_page_file(scope["path"])
    return scope["method"] == "POST" and scope["path"] in (ENDPOINTS["pair"].path, ENDPOINTS["shared"].path)


def get_header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _read_token(scope: Scope) -> str:
    scheme, _, token = get_header(scope, b"authorization").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("This needs a token.", "Pair this client: run `odin pair` on the machine of the server.")
    return token.strip()


def _check_framing(scope: Scope) -> None:
    """Raise UsageError if a proxy could see another end of the request than this server (request smuggling)."""
    if get_header(scope, b"transfer-encoding") and get_header(scope, b"content-length"):
        raise UsageError("A request has Content-Length or Transfer-Encoding, not both.", "Leave one out.")


def _check_version(scope: Scope) -> None:
    version = get_header(scope, VERSION_HEADER.encode())
    if version and version != __version__:
        raise VersionMismatch(
            f"The server runs Odin {__version__}, this client {version}.", "Use the same version on both machines."
        )


def _read_query(endpoint: ApiEndpoint, request: Request) -> Any:
    given: dict[str, Any] = dict(request.query_params)
    if "\0" in request.url.query or "%00" in request.url.query:
        raise UsageError("A parameter contains a NUL character.", "Leave it out.")
    lists = {name: request.query_params.getlist(name) for name in given if name == "path"}
    return msgspec.convert(given | lists, endpoint.query, strict=False)
