"""One MCP server: connecting, what it offers, calls, and what it asks of Odin.

A task owns the connection, because the official client must be left by the task that entered it. The package is
imported in a thread by the first connection of the process: it takes a second, and the app must stay responsive.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from odin.config import Config
from odin.config.mcp_file import explain_unusable
from odin.config.settings import McpServerSettings
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError
from odin.core.event_values import ServerStatus
from odin.core.profile import ProgramStart
from odin.core.tool import ToolContext
from odin.mcp.calls import RunningCalls, ServerUser
from odin.mcp.failures import describe_failure, import_package, is_lost, is_refusal, unpack
from odin.mcp.listing import ListingCache, ServerListing, fetch_listing, is_modern
from odin.mcp.transport import Exchange, SdkTransport, StdioTransport, open_http
from odin.sandbox.runner import ProcessRunner, SandboxUnavailable
from odin.version import __version__

ATTEMPTS = 3
_MAX_RECONNECTS = 3
"""How often calls start a server again that ended, until one of them succeeds."""

_CLOSE_S = 3.0
"""How long closing a connection may take. It is longer than ending a program takes."""

_RETRY_S = 30.0
_MAX_RETRY_S = 86_400.0
"""How long a server that did not answer is left alone: longer with each time."""

_LIST_S = 20.0
_MAX_REFRESH_PAUSE_S = 30.0
"""The longest pause before a list is fetched again: some servers never stop to announce changes."""

_AWAITED_REFRESH_S = 2.0
"""How long a request waits for a list that has changed."""

_MAX_LOGS = 20
_SHOWN_LEVELS = ("warning", "error", "critical", "alert", "emergency")


class ServerUnavailable(OdinError):
    """An MCP server cannot be used now. The text names the server and says why."""


class FinalFailure(Exception):
    """Why connecting again would be useless."""


class ServerEnded(Exception):
    """A server ended before it was connected; the text says how."""


class _SessionForgotten(Exception):
    """An HTTP server did not know the session, so it has not carried out the request."""


class ConnectionDeps(Struct, frozen=True):
    """What a connection needs, whoever uses it.

    `plan_start` returns how a program is started, for a server that the project brings or not. `find_exchange` returns
    the way to a server that an SDK client hosts.
    """

    config: Config
    environment: ExecutionEnvironment
    runner: ProcessRunner
    plan_start: Callable[[str, McpServerSettings, bool], Awaitable[ProgramStart]]
    project_servers: Collection[str] = ()
    find_exchange: Callable[[str], Exchange | None] = lambda name: None


class ServerConnection:
    """A server, for the sessions of a workspace. `users` are those in which it is enabled.

    `listing` is what it offers, from the cache until it is connected; None if it was never connected.
    """

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        deps: ConnectionDeps,
        source: str = "",
        *,
        of_project: bool | None = None,
    ) -> None:
        of_project = name in deps.project_servers if of_project is None else of_project
        self.name = name
        self.settings = settings
        self._of_project = of_project
        self._root = deps.config.root
        self._limits = deps.config.mcp_limits
        self._timing = deps.environment.timing
        self._cache = ListingCache(Path(deps.environment.cache_dir, "mcp"))
        # a project's program with the same settings may be another one
        self._cached_as = replace(settings, cwd=str(Path(self._root, settings.cwd))) if of_project else settings
        # A server that the client hosts is code in the client: nothing tells whether it is the same as the last time.
        self._is_stored = settings.transport != "sdk"
        known = self._cache.read(self._cached_as) if self._is_stored else None
        self._protocol = known.protocol if known is not None else ""
        self._failures = known.failures if known is not None else 0
        self.is_due = known is None or time.time() >= known.failed_at + min(_RETRY_S * 2**self._failures, _MAX_RETRY_S)
        """It has not failed too often, or not lately, to be tried unasked."""
        self.is_new = known is None
        """Odin has never tried to connect it, so its tools are worth waiting for."""
        self.is_slow = known is not None and known.is_slow
        """It did not answer the last time."""
        self.is_expired = known is not None and known.expires_at is not None and known.expires_at <= time.time()
        """It said for how long its tools stay as they are, and that is over."""
        self.listing: ServerListing | None = None if known is None or known.failed else known
        self.users: set[ServerUser] = set()
        self._deps = deps
        self._status = ServerStatus(
            name, "pending", settings.transport or "stdio", source, manual=settings.manual, attempts=ATTEMPTS
        )
        self._client: Any = None
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._stop = asyncio.Event()
        self._closing = asyncio.Lock()
        self._refreshes: set[asyncio.Task[None]] = set()
        self._refresh_pause = self._timing.mcp_refresh_s
        self._refreshed = asyncio.Event()
        self._refreshed_at = 0.0
        self._is_outdated = False
        self._calls = RunningCalls(settings.timeout_s)
        self._hint = ""
        self._reconnects = 0
        self._logged = 0

    def describe(self, user: ServerUser) -> ServerStatus:
        if user not in self.users:
            return replace(self._status, state="disabled", detail="")
        listing = self.listing or ServerListing()
        return replace(
            self._status,
            tools=len(listing.tools),
            prompts=len(listing.prompts),
            resources=len(listing.resources),
            version=listing.server,
        )

    @property
    def is_settled(self) -> bool:
        """True if it is connected or has failed."""
        return self._settled.is_set()

    @property
    def is_failed(self) -> bool:
        return self._status.state == "failed"

    def join(self, user: ServerUser) -> None:
        """Enable it in a session. What failed before is tried again."""
        if self.is_failed:
            self._reconnects = 0
            self._settled.clear()
            self._set_status("pending")
        self.users.add(user)

    async def close_unused(self) -> None:
        """Disconnect if no session uses it any more."""
        if not self.users:
            await self.close()

    def start(self) -> None:
        """Connect in the background, unless it is connected or connecting."""
        if self._task is None or self._task.done():
            if self.is_slow:  # the run may end before this one has
                self.remember_failure(is_slow=True)
            self._settled.clear()
            self._stop.clear()
            self._task = asyncio.create_task(self._run())

    async def wait_settled(self) -> None:
        await self._settled.wait()

    async def wait_refreshed(self) -> None:
        """Wait for a list that the server has announced, unless it announces changes all the time."""
        if self._refreshes and self._refresh_pause < _AWAITED_REFRESH_S:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._refreshed.wait(), _AWAITED_REFRESH_S)

    def remember_failure(self, *, is_slow: bool) -> None:
        """Let later sessions not wait for it as for a new server, unless they know what it offers."""
        if self.listing is None:
            failures = self._failures + 1 if is_slow else 0
            self._store(ServerListing(failed=True, is_slow=is_slow, failed_at=time.time(), failures=failures))

    def _store(self, listing: ServerListing) -> None:
        if self._is_stored:
            self._cache.write(self._cached_as, listing)

    async def close(self) -> None:
        """Disconnect, within a limited time. The server can be started again."""
        async with self._closing:
            self._reconnects = 0
            self._stop.set()
            for refresh in self._refreshes:
                refresh.cancel()
            task = self._task
            if task is not None:
                if not self._settled.is_set():
                    task.cancel()
                if (await asyncio.wait([task], timeout=_CLOSE_S))[1]:
                    task.cancel()
                    await asyncio.wait([task], timeout=_CLOSE_S)
            if self._task is task:  # else a call of another session has started it again
                self._task = None
                self._set_status("pending")

    # --- connecting ---

    def _set_status(self, state: Any, **fields: Any) -> None:
        self._status = replace(self._status, state=state, **{"detail": "", "attempt": 0, **fields})
        self._report_change()

    def _report_change(self) -> None:
        for user in tuple(self.users):
            with suppress(OdinError):  # a session that ends, or whose log cannot be written, does not stop the others
                user.on_change()

    async def _run(self) -> None:
        problem, is_slow = explain_unusable(self.settings), False
        # "auto" asks what the server speaks, and tries the handshake if it does not know. A program gets the handshake
        # first: most that know both ask their users only after one, and some old programs end at the question. Over
        # HTTP the question comes first: requests there say what they speak. Each attempt that fails changes this.
        is_new = is_modern(self._protocol) if self._protocol else self.settings.transport == "http"
        modes = ("auto", "legacy") if is_new else ("legacy", "auto")
        try:
            for attempt in range(1, ATTEMPTS + 1) if not problem else ():
                self._set_status("connecting", attempt=attempt)
                is_refused = False
                try:
                    problem = await self._connect_and_serve(modes[(attempt - 1) % 2])
                    break
                except FinalFailure as failure:
                    problem = str(failure)
                    break
                except Exception as error:  # whatever the server or the package makes of it
                    problem = describe_failure(error, self.settings, self._limits)
                    is_slow = isinstance(unpack(error), TimeoutError)
                    if is_slow:
                        problem += " in any of 3 attempts" if attempt == ATTEMPTS else ""
                        problem += _describe_junk(self._transport.junk) if self._transport is not None else ""
                    if isinstance(unpack(error), FileNotFoundError | PermissionError | SandboxUnavailable | OdinError):
                        break
                    is_refused = attempt == 1 and is_refusal(error)
                if attempt < ATTEMPTS and not is_refused:
                    await asyncio.sleep(self._timing.mcp_retry_pauses_s[attempt - 1])
        finally:
            self._client = None
            try:
                if not self._stop.is_set():
                    if problem:
                        self.remember_failure(is_slow=is_slow)
                    detail = f"{problem.rstrip('.')}; {self._hint}" if problem and self._hint else problem
                    self._set_status("failed" if problem else "pending", detail=detail)
            finally:
                self.is_new = False
                self._settled.set()

    async def _connect_and_serve(self, mode: str) -> str:
        """Connect and stay connected. Return why the connection ended, "" if the next call may connect again.

        `mode` is what the package tries: the handshake (`legacy`), or the revisions without one before it (`auto`).
        """
        started = time.monotonic()
        await asyncio.to_thread(import_package)
        transport: Any = None
        was_ready = False
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._limits.connect_s):
                    self._transport = transport = await stack.enter_async_context(self._open_transport())
                    client = await stack.enter_async_context(self._make_client(transport, mode))
                    self.listing = await fetch_listing(client)
                self._client, was_ready = client, True
                self._protocol = self.listing.protocol
                self._store(self.listing)
                self.is_new = self.is_expired = False
                self._set_status("ready", seconds=round(time.monotonic() - started, 3))
                self._settled.set()
                self._start_refresh()
                listening = asyncio.create_task(_listen(client))
                await _wait_for_any(self._stop, transport.closed)
                listening.cancel()
                self._client = None
        except Exception as error:
            if was_ready:
                why = transport.describe_end() or describe_failure(error, self.settings, self._limits)
                return "" if self._is_closing(transport) else why
            if transport is not None and transport.is_faulty:
                raise FinalFailure(transport.describe_end()) from None
            if transport is not None and is_lost(error) and transport.describe_end():
                raise ServerEnded(transport.describe_end()) from None
            raise
        return "" if self._is_closing(transport) else transport.describe_end() or "the connection ended"

    def _is_closing(self, transport: Any) -> bool:
        """True if the connection ends because Odin or the server has ended the session."""
        return self._stop.is_set() or getattr(transport, "is_forgotten", False)

    @asynccontextmanager
    async def _open_transport(self) -> AsyncGenerator[Any, None]:
        """Yield the transport, which the client enters."""
        kind, settings = self.settings.transport, self.settings
        if kind == "sdk":
            exchange = self._deps.find_exchange(self.name)
            if exchange is None:
                raise FinalFailure("it is hosted by an SDK client, and none is connected")
            yield SdkTransport(exchange)
        elif kind == "stdio":
            start = await self._deps.plan_start(self.name, settings, self._of_project)
            self._hint = start.hint
            yield StdioTransport(self._deps.runner, (settings.command, *settings.args), start)
        else:
            from odin.mcp.oauth import make_stored_auth

            auth = make_stored_auth(self.name, settings, self._deps.environment.variables)
            async with open_http(settings, auth, self._timing.mcp_goodbye_s) as transport:
                yield transport

    def _make_client(self, transport: Any, mode: str) -> Any:
        """Return the client, which is to be entered."""
        from mcp import Client
        from mcp_types import Implementation

        return Client(
            transport,
            mode=mode,
            client_info=Implementation(name="odin", version=__version__),
            elicitation_callback=self._answer_elicitation,
            sampling_callback=self._answer_sampling if self.settings.sampling else None,
            list_roots_callback=self._list_roots,
            logging_callback=self._log,
            message_handler=self._handle_message,
            cache=None,
        )

    # --- what the server sends ---

    async def _handle_message(self, message: Any) -> None:
        from mcp_types import (
            PromptListChangedNotification,
            ResourceListChangedNotification,
            ToolListChangedNotification,
        )

        changes = ToolListChangedNotification | PromptListChangedNotification | ResourceListChangedNotification
        if isinstance(message, changes):
            self._is_outdated = True
            self._refreshed.clear()
            self._start_refresh()

    def _start_refresh(self) -> None:
        if self._is_outdated and self._client is not None and not self._refreshes:
            task = asyncio.create_task(self._refresh())
            self._refreshes.add(task)
            task.add_done_callback(self._refreshes.discard)

    async def _refresh(self) -> None:
        """Fetch the listing until no change was announced meanwhile. It takes effect with the next request."""
        while self._is_outdated and self._client is not None:
            is_recent = time.monotonic() - self._refreshed_at < _MAX_REFRESH_PAUSE_S
            longer = min(2 * self._refresh_pause, _MAX_REFRESH_PAUSE_S)
            self._refresh_pause = longer if is_recent else self._timing.mcp_refresh_s
            await asyncio.sleep(self._refresh_pause)
            self._is_outdated = False
            with suppress(Exception):  # a server that announces a change and does not answer keeps what it had
                async with asyncio.timeout(_LIST_S):
                    listing = await fetch_listing(self._client)
                before, self.listing = self.listing, listing
                self._store(listing)
                if before is None or replace(listing, expires_at=before.expires_at) != before:
                    self._report_change()
            self._refreshed_at = time.monotonic()
            self._refreshed.set()

    async def _log(self, params: Any) -> None:
        data: Any = params.data
        text = str(cast("dict[str, Any]", data).get("message", data) if isinstance(data, dict) else data)[:500]
        if context := self._calls.find_context():
            context.progress(f"{params.level}: {text}")
        elif params.level in _SHOWN_LEVELS:
            self._show_log(text)

    def _show_log(self, text: str) -> None:
        if self._logged < _MAX_LOGS:
            self._logged += 1
            for user in self._calls.list_users() or tuple(self.users):
                with suppress(OdinError):
                    user.log(self.name, text)

    async def _list_roots(self, context: Any) -> Any:
        from mcp_types import ListRootsResult, Root

        uri: Any = Path(self._root).as_uri()
        return ListRootsResult(roots=[Root(uri=uri, name=Path(self._root).name)])

    async def _answer_elicitation(self, context: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        users = self._calls.list_users()
        if len(users) > 1:
            self._show_log(
                "it asked something while several sessions were calling it, and Odin declined: "
                "a program cannot say which of them it asks. Repeat the call"
            )
            return ElicitResult(action="decline")
        if not self._calls.can_ask:
            self._show_log("it wanted to ask you more than once at a time, or outside of a call, and Odin declined")
            return ElicitResult(action="decline")
        answer = await self._calls.serve(lambda asking: users[0].answer(self.name, params, asking))
        if answer is not None and answer.action == "cancel":
            self._calls.stop_questions(users[0])
        return answer or ElicitResult(action="cancel")

    async def _answer_sampling(self, context: Any, params: Any) -> Any:
        from mcp_types import INVALID_REQUEST, ErrorData

        users = self._calls.list_users()
        if self._calls.can_serve and len(users) == 1:
            answer = await self._calls.serve(lambda asking: users[0].sample(self.name, params))
            if answer is not None:
                return answer
        return ErrorData(code=INVALID_REQUEST, message="Sampling is possible during a call, once at a time.")

    # --- calls ---

    async def get_client(self, user: ServerUser) -> Any:
        """Return the connected client. Raise ServerUnavailable if it cannot be connected."""
        if self._client is not None and not self._transport.closed.is_set():
            return self._client
        if user not in self.users:
            raise ServerUnavailable(
                f"The MCP server {self.name} is disabled.", f"Enable it with /mcp enable {self.name}."
            )
        if self._settled.is_set() and self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_S)
        if self._task is None or self._task.done():
            self._reconnects += self._task is not None
            if self._reconnects <= _MAX_RECONNECTS:
                self.start()
        await self._settled.wait()
        if self._client is None:
            raise ServerUnavailable(
                f"The MCP server {self.name} is not available: {self._status.detail or 'it ended'}."
            )
        return self._client

    async def call_tool(self, tool: str, arguments: dict[str, Any], context: ToolContext, user: ServerUser) -> Any:
        """Call a tool and return its result. Raise ServerUnavailable with a clear message if there is none."""

        async def show_progress(progress: float, total: float | None, message: str | None) -> None:
            self._calls.note_progress(context)
            share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            context.progress(f"{share}{f': {message[:200]}' if message else ''}")

        return await self._request(
            lambda client: client.call_tool(tool, arguments, progress_callback=show_progress), context, user
        )

    async def read_resource(self, uri: str, context: ToolContext, user: ServerUser) -> Any:
        return await self._request(lambda client: client.read_resource(uri, cache_mode="bypass"), context, user)

    async def get_prompt(self, name: str, arguments: dict[str, str], context: ToolContext, user: ServerUser) -> Any:
        return await self._request(lambda client: client.get_prompt(name, arguments), context, user)

    async def _request(self, send: Callable[[Any], Awaitable[Any]], context: ToolContext, user: ServerUser) -> Any:
        """Return the answer to a request. An HTTP server that has forgotten the session gets it in a new one."""
        client = await self.get_client(user)
        try:
            return await self._wait_for_answer(send(client), context, user)
        except _SessionForgotten:
            client = await self.get_client(user)
        try:
            return await self._wait_for_answer(send(client), context, user)
        except _SessionForgotten:
            raise ServerUnavailable(f"The MCP server {self.name} ended the session twice.") from None

    async def _wait_for_answer(self, answer: Awaitable[Any], context: ToolContext, user: ServerUser) -> Any:
        transport = self._transport
        try:
            result = await self._calls.run(answer, context, user)
        except TimeoutError:
            why = f"did not answer within {self.settings.timeout_s:g} s{_describe_junk(transport.junk)}"
            raise ServerUnavailable(f"The MCP server {self.name} {why}.") from None
        except Exception as error:
            if getattr(transport, "is_forgotten", False):
                raise _SessionForgotten from None
            if self._client is None or transport.closed.is_set():
                if self._task is not None:
                    await asyncio.wait([self._task], timeout=_CLOSE_S)
                why = self._status.detail or "it ended"
                raise ServerUnavailable(f"The MCP server {self.name} ended during the call: {why}.") from None
            why = describe_failure(error, self.settings, self._limits)
            what = "did not answer" if is_lost(error) else "refused"
            raise ServerUnavailable(f"The MCP server {self.name} {what} the call: {why}.") from None
        self._reconnects = 0
        return result


async def _listen(client: Any) -> None:
    """Ask a server without a handshake to announce changes of its lists. They come as those of the others do."""
    kinds = ("tools", "prompts", "resources")
    capabilities = ((kind, getattr(client.server_capabilities, kind)) for kind in kinds)
    wanted = {f"{kind}_list_changed": True for kind, found in capabilities if found is not None and found.list_changed}
    if wanted and is_modern(client.protocol_version):
        with suppress(Exception):  # without announcements the lists are as they were
            async with client.listen(**wanted) as changes:
                async for _ in changes:
                    pass


async def _wait_for_any(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _describe_junk(junk: str) -> str:
    return f", but wrote: {junk}" if junk else ""
