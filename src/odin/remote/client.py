"""A client of a session elsewhere: the `Client` protocol over HTTP.

A stream of events goes on after a broken connection where it stopped: durable events come once, in order, and the text
of a reply that streams is started again. An op is repeated with the same id until the server has answered it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from odin.core.call_events import ActivityChanged, ReplyRolledBack
from odin.core.client import (
    AgentSummary,
    AvailableModel,
    ContextReport,
    CustomCommand,
    LoopStatus,
    MemoryFile,
    ProcessOutput,
    ProcessRecord,
    RewindPlan,
    ServerScope,
    SessionInfo,
    Snapshot,
)
from odin.core.errors import OdinError, UsageError
from odin.core.event import AnyEvent, Envelope, TurnEnded, TurnStarted, Warned
from odin.core.live_events import LiveEvents
from odin.core.op import Op, Rewind
from odin.core.policy import CallbackHook, RuleLine, ServerExchange
from odin.core.tool import Tool
from odin.remote.connection import Connection, ConnectionLost, NotConnected, ServerProblem
from odin.remote.protocol import (
    AgentNamed,
    EventsFrom,
    OpRequest,
    ProcessNamed,
    Receipt,
    ServersAsked,
    StatusFacts,
    StreamStart,
    Words,
)

_PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Before each attempt to connect again; the last one is repeated."""

_GIVE_UP_S = 600.0
_GIVE_UP_LOCAL_S = 3.0
"""How long it is tried: the process that has a session open is gone if its socket does not answer."""

_REPEAT_S = 30.0
_READY_S = 10.0
_QUEUE = 1000
_MAX_EVENT_BYTES = 128_000_000

_decoder = msgspec.json.Decoder(Envelope)
_open_decoder = msgspec.json.Decoder(StreamStart)


class SessionLeft(OdinError):
    """The session was closed, or the process that had it open is gone."""


class RemoteClient:
    def __init__(self, connection: Connection, session: str, *, sleep: Callable[[float], Any] = asyncio.sleep) -> None:
        self.connection = connection
        self.session = session
        self._sleep = sleep
        self._streams: set[EventStream] = set()
        self._observer: Callable[[ActivityChanged], None] | None = None
        self._turn = ""
        self._answers: dict[str, Any] = {}
        self._first_events: EventStream | None = None

    async def prefetch(self) -> None:
        """Ask what a front end asks first, before it is there: it gets these answers, and the events from now on."""
        info = await self.get_info()
        self._first_events = self.stream_events(after=-1)
        self._answers = {"snapshot": await self.snapshot(), "info": info}

    async def submit(self, op: Op) -> bool:
        await self._wait_for_streams()  # what the op causes is in them
        run, request, is_sent = self.connection.run, OpRequest(os.urandom(8).hex(), op, self._turn), False

        async def send() -> Receipt:
            nonlocal run, is_sent
            run = run or (await self.connection.call("me")).run
            try:
                return await self.connection.call("ops", self.session, body=request, run=run)
            except NotConnected:
                raise
            except ConnectionLost:
                is_sent = True
                raise
            except ServerProblem:
                # A server that was restarted refuses what may have been carried out. This was not.
                if is_sent or run == self.connection.run:
                    raise
            run = self.connection.run
            return await send()

        return (await self._repeat(send)).done

    async def _wait_for_streams(self) -> None:
        """Return when the server has begun to collect events for the streams that were asked for before."""
        for stream in tuple(self._streams):
            await stream.wait_until_open()

    async def _repeat(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result of a call; repeat it for a while if the connection breaks."""
        loop = asyncio.get_running_loop()
        deadline, attempt = loop.time() + (_GIVE_UP_LOCAL_S if self.connection.is_local else _REPEAT_S), 0
        while True:
            try:
                return await call()
            except ConnectionLost:
                if loop.time() > deadline:
                    raise
            await self._sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
            attempt += 1

    def set_answering(self, answers: bool, reason: str = "") -> None:
        """The token decides who may answer."""

    # --- streams ---

    def stream_events(self, after: int | None = None) -> "EventStream":
        if after == -1 and self._first_events is not None:
            stream, self._first_events = self._first_events, None
            return stream
        stream = EventStream(self.connection, self.session, after, self._handle_event, self._streams, self._sleep)
        self._streams.add(stream)
        return stream

    def _handle_event(self, envelope: Envelope) -> None:
        event = envelope.event
        if not envelope.agent and isinstance(event, TurnStarted | TurnEnded):
            self._turn = event.id if isinstance(event, TurnStarted) else ""
        if self._observer is not None and isinstance(event, ActivityChanged):
            self._observer(replace(event, agent=envelope.agent or "main"))

    def stream_named_events(self, names: Collection[str] = ()) -> AsyncIterator[tuple[str, Envelope]]:
        raise UsageError("A remote session does not stream events by name.", "Use stream_events.")

    async def stream_snapshots(self) -> AsyncIterator[Snapshot]:
        events = self.stream_events()
        try:
            shot = await self.snapshot()
            yield shot
            async for envelope in events:
                if envelope.event.durable and envelope.seq > shot.seq:
                    shot = await self.snapshot()
                    yield shot
        finally:
            events.close()

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        """Call this function for the activities in the streams of this client."""
        self._observer = observer

    # --- queries ---

    async def _ask(self, name: str, *, query: Any = None, body: Any = None) -> Any:
        if name in self._answers:
            return self._answers.pop(name)
        call = partial(self.connection.call, name, self.session, query=query, body=body)
        return await (self._repeat(call) if self._streams else call())

    async def snapshot(self) -> Snapshot:
        await self._wait_for_streams()  # what changes after it is in them
        return await self._ask("snapshot")

    async def get_info(self) -> SessionInfo:
        return await self._ask("info")

    async def report_context(self) -> ContextReport:
        return await self._ask("context")

    async def read_status_line(self, facts: dict[str, Any]) -> str:
        return await self._ask("status", body=StatusFacts(facts))

    async def list_rules(self) -> tuple[RuleLine, ...]:
        return await self._ask("rules")

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        return await self._ask("models", query=ServersAsked(servers))

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        return await self._ask("commands")

    async def list_agents(self) -> tuple[AgentSummary, ...]:
        return await self._ask("agents")

    async def read_memory(self) -> tuple[MemoryFile, ...]:
        return await self._ask("memory")

    async def list_processes(self) -> tuple[ProcessRecord, ...]:
        return await self._ask("processes")

    async def read_process(self, id: str, after: int = 0) -> ProcessOutput:
        return await self._ask("process", query=ProcessNamed(id, after))

    async def get_loop_status(self, agent: str = "") -> LoopStatus:
        return await self._ask("loop", query=AgentNamed(agent))

    async def plan_rewind(self, op: Rewind) -> RewindPlan:
        return await self._ask("rewind", body=op)

    async def find_files(self, words: str, limit: int = 20) -> tuple[str, ...]:
        return await self._ask("files", query=Words(words, limit))

    # --- what only a program in the process of the session can add ---

    def add_hook(self, hook: CallbackHook) -> None:
        raise UsageError("A callback hook cannot be added to a remote session.", "Configure it where the session runs.")

    def add_tools(self, tools: Sequence[Tool[Any]], agent: str = "") -> None:
        raise UsageError("Tools cannot be added to a remote session.", "Use an MCP server where the session runs.")

    def add_server(self, name: str, exchange: ServerExchange) -> None:
        raise UsageError("A program's own MCP server cannot be connected to a remote session.")

    async def close(self, timeout: float | None = None) -> bool:
        """Leave the session, which goes on."""
        for stream in tuple(self._streams):
            stream.close()
        return True


class EventStream:
    """The events of a session, over as many connections as it takes.

    Raise SessionLeft when it is closed, ConnectionLost if the server cannot be reached any more, or what else it
    answers.
    """

    def __init__(
        self,
        connection: Connection,
        session: str,
        after: int | None,
        observe: Callable[[Envelope], None],
        streams: "set[EventStream]",
        sleep: Callable[[float], Any],
    ) -> None:
        self._connection = connection
        self._session = session
        self._last = after
        self._observe = observe
        self._streams = streams
        self._sleep = sleep
        self._live = LiveEvents()
        self._queue: asyncio.Queue[Envelope | Exception | None] = asyncio.Queue(_QUEUE)
        self._is_open = asyncio.Event()
        self._is_closed = False
        self._task = asyncio.create_task(self._run())

    async def wait_until_open(self) -> None:
        """Return when the server has begun to collect events for it, or that has failed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                await self._is_open.wait()

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        item = None if self._is_closed and self._queue.empty() else await self._queue.get()
        if isinstance(item, Envelope):
            return item
        self._is_closed = True
        if item is None:
            raise StopAsyncIteration
        raise item

    def close(self) -> None:
        """Stop receiving events. Buffered ones can still be read."""
        self._is_closed = True
        self._task.cancel()
        self._is_open.set()
        self._streams.discard(self)
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(None)

    async def _run(self) -> None:
        ending: Exception | None = None
        try:
            await self._follow()
        except Exception as error:  # the reader raises it
            ending = error
        self._is_open.set()
        self._streams.discard(self)
        await self._queue.put(ending)

    async def _follow(self) -> None:
        """Read until the session is closed; connect again whenever the connection breaks."""
        place, again = self._connection.place, f"`odin -r {self._session}` opens it again."
        again = again if self._connection.is_local else "Attach again when the server runs."
        loop = asyncio.get_running_loop()
        lost_at, attempt, is_told = 0.0, 0, False
        limit = _GIVE_UP_LOCAL_S if self._connection.is_local else _GIVE_UP_S
        while True:
            try:
                async with self._connection.stream("events", self._session, EventsFrom(self._last)) as parts:
                    if is_told:
                        await self._put(Warned(f"Connected to {place} again.", "info"))
                    lost_at, is_told, since = 0.0, False, loop.time()
                    if await self._read(parts):
                        raise SessionLeft(f"{place} has closed session {self._session}.", again)
                    # A server that ends each stream at once is not asked again at once.
                    attempt = 0 if loop.time() - since > _PAUSES_S[-1] else attempt
            except ConnectionLost as error:
                now = loop.time()
                lost_at = lost_at or now
                if now - lost_at > limit or (self._last is None and not self._is_open.is_set() and attempt > 2):
                    if self._connection.is_local:
                        raise SessionLeft(
                            f"{place}, which had session {self._session} open, is gone.", again
                        ) from error
                    raise
                if attempt == len(_PAUSES_S) - 2 and not is_told:
                    is_told = True
                    await self._put(Warned(f"{error} Trying again."))
            for agent in self._live.list_writing_agents():
                await self._put(ReplyRolledBack("connection lost"), agent)
            await self._sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
            attempt += 1

    async def _read(self, parts: AsyncIterator[bytes]) -> bool:
        """Queue the events of one connection. Return True if the session was closed."""
        buffer = bytearray()
        async for data in parts:
            searched = max(len(buffer) - 1, 0)
            buffer += data
            if len(buffer) > _MAX_EVENT_BYTES:
                raise self._connection.make_nonsense()
            if buffer.find(b"\n\n", searched) < 0:
                continue
            *events, rest = bytes(buffer).split(b"\n\n")
            buffer = bytearray(rest)
            for event in events:
                fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
                notice = fields.get(b"event", b"")
                if notice == b"closed":
                    return True
                if notice == b"resync":
                    return False
                try:
                    if notice == b"open":
                        seq = _open_decoder.decode(fields[b"data"]).seq
                        self._last = seq if self._last is None else self._last
                        self._is_open.set()
                    envelope = None if notice else _decoder.decode(fields[b"data"])
                except (KeyError, RecursionError, UnicodeDecodeError, msgspec.DecodeError) as error:
                    raise self._connection.make_nonsense() from error
                if envelope is not None:
                    await self._handle(envelope)
        return False

    async def _handle(self, envelope: Envelope) -> None:
        if envelope.event.durable:
            if self._last is not None and envelope.seq <= self._last:
                return
            self._last = envelope.seq
        self._observe(envelope)
        self._live.apply(envelope)
        await self._queue.put(envelope)

    async def _put(self, event: AnyEvent, agent: str = "") -> None:
        seq = -1 if self._last is None else self._last
        envelope = Envelope(seq, self._get_time(), self._session, event, agent)
        self._live.apply(envelope)
        await self._queue.put(envelope)

    def _get_time(self) -> float:
        import time

        return time.time()
