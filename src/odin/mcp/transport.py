"""How messages reach a server: pipes to a program that Odin starts, HTTP, or the control protocol of an SDK client.

The official package has a client for programs, too. This one starts them with the runner of the session, and bounds
what a server can cost: the size of a message, the number of messages, text that is no message.
Servers with a URL are reached through the transports of the package, within the same limits.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

from odin.config.settings import McpServerSettings
from odin.core.profile import ProgramStart
from odin.core.timing import DEFAULT_TIMING
from odin.mcp.messages import (
    MAX_MESSAGE_BYTES,
    OversizedLine,
    RateLimiter,
    RepairedStream,
    fail_request,
    find_request_id,
    make_error,
    read_lines,
    repair_lists,
)
from odin.sandbox.output import HeadTailBuffer, InputPipe
from odin.sandbox.process import RunningProcess, describe_exit
from odin.sandbox.runner import ProcessRunner

MAX_JUNK_BYTES = 1_000_000
"""Output that is no message, after which a server is given up."""

_EXIT_S = 1.0
_STDERR_CHARS = 2_000
_BIG = 1_000_000

Exchange = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Gives a message to a server that the SDK client hosts and returns its response, None for a notification."""


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run work to its end, which is near, even if the task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _shorten(line: bytes) -> str:
    return line[:200].decode("utf-8", "replace").strip()


class StdioTransport:
    """The pipes of a program, as the official client wants a transport.

    `closed` is set when the program has closed its output. `describe_end` says why.
    """

    def __init__(self, runner: ProcessRunner, argv: Sequence[str], start: ProgramStart) -> None:
        self.closed = asyncio.Event()
        self._runner = runner
        self._argv = argv
        self._start = start
        self._process: RunningProcess | None = None
        self._pipe: InputPipe | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stderr = HeadTailBuffer(_STDERR_CHARS)
        self._fault = ""
        self._has_spoken = False
        self._junk = 0
        self._junk_sample = ""
        self._limiter = RateLimiter()
        self._streams: tuple[Any, ...] = ()

    @property
    def is_faulty(self) -> bool:
        """True if the program broke the protocol, so that starting it again is useless."""
        return bool(self._fault)

    async def __aenter__(self) -> tuple[Any, Any]:
        import anyio

        output = asyncio.StreamReader()
        self._process, self._pipe = await self._runner.start_connected(
            self._argv,
            cwd=self._start.cwd,
            env=self._start.env,
            on_output=output.feed_data,
            on_end=output.feed_eof,
            errors=self._stderr,
            profile=self._start.profile,
        )
        output.set_transport(cast("Any", self._process.pipes[0]))  # which it pauses
        to_client, from_server = anyio.create_memory_object_stream[Any](16)
        to_server, from_client = anyio.create_memory_object_stream[Any](16)
        self._streams = (to_client, from_server, to_server, from_client)
        work = (self._read_output(self._process, output, to_client), self._write_input(self._pipe, from_client))
        self._tasks = [asyncio.create_task(one) for one in work]
        return from_server, to_server

    async def __aexit__(self, *error: object) -> None:
        try:
            if self._process is not None:
                await _finish(self._stop(self._process))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for stream in self._streams:
                stream.close()

    async def _stop(self, process: RunningProcess) -> None:
        """Close the input of the program, then terminate and kill it with all it started."""
        if self._pipe is not None:
            self._pipe.close()
        patience = 0.0 if self._fault or not self._has_spoken else _EXIT_S
        if not await process.wait_until_gone(patience):
            await process.terminate(patience)
        self._runner.forget(process)

    @property
    def junk(self) -> str:
        """The beginning of the first line that was no message, or ""."""
        return self._junk_sample

    def describe_end(self) -> str:
        """Return why the connection ended, with the last line that the program wrote to standard error."""
        has_ended = self._process is not None and self._process.exited
        ended = f"it ended with {describe_exit(self._process.code)}" if self._process and has_ended else ""
        why = self._fault or ended or "it closed its output"
        lines = self._stderr.render_text()[0].splitlines()
        said = next((line for line in reversed(lines) if any(map(str.isalnum, line))), self._junk_sample)  # no frames
        return f"{why}: {said.strip(' │|')[-300:]}" if said.strip() else why

    async def _read_output(self, process: RunningProcess, output: asyncio.StreamReader, to_client: Any) -> None:
        import anyio

        try:
            async for line in read_lines(output.read):
                message = await self._parse(line)
                if message is not None:
                    await to_client.send(message)
                if self._fault:
                    break
            if not self._fault:
                await asyncio.wait([process.done], timeout=0.2)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        finally:
            self.closed.set()
            to_client.close()

    async def _parse(self, line: bytes | OversizedLine) -> Any:
        """Return a message, or None for a line that is dropped."""
        if isinstance(line, OversizedLine):
            return self._refuse_oversized(line)
        if not line.strip():
            return None
        if not line.lstrip().startswith(b"{"):
            self._count_junk(line)
            return None
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        def validate() -> Any:
            return jsonrpc_message_adapter.validate_json(line, by_name=False)

        try:
            message = await asyncio.to_thread(validate) if len(line) > _BIG else validate()
        except (ValueError, RecursionError):
            # The error for the request that a broken message answers, None if that cannot be seen.
            self._count_junk(line)
            number = find_request_id(line)
            return None if number is None else make_error(number, f"it sent broken JSON: {_shorten(line)}")
        self._has_spoken = True
        is_allowed = self._limiter.allow(message)
        self._fault = self._fault or self._limiter.fault
        if not is_allowed:
            return None
        repair_lists(message)
        return SessionMessage(message)

    def _refuse_oversized(self, line: OversizedLine) -> Any:
        why = f"it sent a message of {line.size / 1e6:.0f} MB; at most {MAX_MESSAGE_BYTES / 1e6:.0f} MB are allowed"
        number = find_request_id(line.head, line.tail)
        if number is None:
            self._fault = why
            return None
        return make_error(number, why)

    def _count_junk(self, line: bytes) -> None:
        self._junk += len(line)
        if not self._junk_sample:
            self._junk_sample = _shorten(line)
        if self._junk > MAX_JUNK_BYTES:
            self._fault = "it prints text that is not MCP on its standard output"

    async def _write_input(self, pipe: InputPipe, from_client: Any) -> None:
        async for item in from_client:
            pipe.write(f"{item.message.model_dump_json(by_alias=True, exclude_unset=True)}\n".encode())


class SdkTransport:
    """A server that the SDK client hosts: every message goes through `exchange`, and comes back with the response."""

    is_faulty = False
    junk = ""

    def __init__(self, exchange: Exchange) -> None:
        self.closed = asyncio.Event()
        self._exchange = exchange
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams: tuple[Any, ...] = ()

    async def __aenter__(self) -> tuple[Any, Any]:
        import anyio

        to_client, from_server = anyio.create_memory_object_stream[Any](16)
        to_server, from_client = anyio.create_memory_object_stream[Any](16)
        self._streams = (to_client, from_server, to_server, from_client)
        self._add_task(self._forward_all(from_client, to_client))
        return from_server, to_server

    async def __aexit__(self, *error: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in self._streams:
            stream.close()

    def describe_end(self) -> str:
        return "the SDK client closed it"

    def _add_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward_all(self, from_client: Any, to_client: Any) -> None:
        async for item in from_client:
            self._add_task(self._forward(item.message, to_client))

    async def _forward(self, message: Any, to_client: Any) -> None:
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        data: dict[str, Any] = message.model_dump(by_alias=True, exclude_unset=True, mode="json")
        number = data.get("id")
        if number is None or "method" not in data:
            with suppress(Exception):  # nothing waits for an answer
                await self._exchange(data)
            return
        try:
            response = await self._exchange(data)
            written = {**(response or {"error": {"code": -32000, "message": "the SDK client sent no answer"}})}
            answer = SessionMessage(
                jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **written, "id": number}, by_name=False)
            )
            repair_lists(answer.message)
        except Exception as error:  # the client's own words
            answer = make_error(number, str(error))
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await to_client.send(answer)


# --- HTTP ---

_CONNECT_S = 15.0
_READ_S = 300.0


class HttpTransport:
    """A transport of the package. `closed` is set when it ends, also because the server has forgotten the session."""

    junk = ""

    def __init__(self, url: str, goodbye_s: float) -> None:
        self.closed = asyncio.Event()
        self._url = url
        self._goodbye_s = goodbye_s
        self.is_forgotten = False
        self.open_streams: Callable[[], AbstractAsyncContextManager[Any]] | None = None
        self._limiter = RateLimiter()
        self._streams: AbstractAsyncContextManager[Any] | None = None

    @property
    def is_faulty(self) -> bool:
        return bool(self._limiter.fault)

    async def __aenter__(self) -> tuple[Any, Any]:
        assert self.open_streams is not None
        self._streams = self.open_streams()
        read, write = await self._streams.__aenter__()
        return RepairedStream(read, self._limiter, self.closed.set), write

    async def __aexit__(self, *error: Any) -> Any:
        """Close the connection. The package says goodbye to the server, which may not answer."""
        if self._streams is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._goodbye_s):
                return await self._streams.__aexit__(*error)
        return None

    def describe_end(self) -> str:
        """Return why the connection ended, "" if only the error that ended it says so."""
        return self._limiter.fault or ("it has ended the session" if self.is_forgotten else "")

    async def check_response(self, response: Any) -> None:
        """Bound a response, and notice that the server does not know the session any more."""
        is_message = response.request.method != "DELETE" and "mcp-session-id" in response.request.headers
        if response.status_code == 404 and is_message:
            self.is_forgotten = True
            self.closed.set()
        response.headers.pop("content-encoding", None)  # Odin asks for none; a small body could unpack to gigabytes
        is_json = response.headers.get("content-type", "").startswith("application/json")
        if is_json:
            response.stream = _make_bounded_stream(response.stream)
        elif response.status_code >= 400 and response.status_code != 401 and str(response.request.url) == self._url:
            fail_request(response, f"it answered with HTTP {response.status_code} {response.reason_phrase}".rstrip())


@asynccontextmanager
async def open_http(
    settings: McpServerSettings, auth: Any, goodbye_s: float = DEFAULT_TIMING.mcp_goodbye_s
) -> AsyncGenerator[HttpTransport, None]:
    """Yield the transport to a server. Each of its messages is limited to `MAX_MESSAGE_BYTES`."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    transport = HttpTransport(settings.url, goodbye_s)

    def make_client(**given: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={"accept-encoding": "identity", **settings.headers},
            auth=auth,
            timeout=httpx2.Timeout(_CONNECT_S, read=_READ_S),
            event_hooks={"response": [transport.check_response]},
        )

    if settings.transport == "sse":
        import mcp.client.sse
        from mcp.shared._httpx_utils import sse_within_origin

        package: Any = mcp.client.sse
        # A message may have 1 MiB there, which a screenshot exceeds, and no parameter changes that.
        package.sse_within_origin = partial(sse_within_origin, max_event_size=MAX_MESSAGE_BYTES)
        transport.open_streams = lambda: package.sse_client(settings.url, httpx_client_factory=make_client)
        yield transport
        return
    async with make_client() as client:
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
