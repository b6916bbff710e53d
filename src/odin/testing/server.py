"""A model server on loopback that plays a script: real HTTP, three wire formats, no model."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable
from io import FileIO
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from odin.testing import anthropic, anthropic_rules, chat, chat_rules, local, responses, responses_rules, strict
from odin.testing.delivery import Answer, deliver
from odin.testing.local import LocalServer
from odin.testing.meter import Meter, Prompt, prompt_of
from odin.testing.script import Player, Script, Turn
from odin.testing.seen import Api, SeenRequest
from odin.testing.spoken import Spoken, spoken, wants_contract
from odin.testing.strict import Memory, Refused
from odin.testing.wire import BadHttp, RawRequest, RequestReader

_APIS: dict[str, Api] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
}
_WIRES: dict[Api, Any] = {"anthropic": anthropic, "chat": chat, "responses": responses, "other": chat}
_RULES = {"anthropic": anthropic_rules.check, "chat": chat_rules.check, "responses": responses_rules.check}
_STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_MAX_BODY = 32 * 1024 * 1024
_START_TIMEOUT = 10.0
_DEFAULT_MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-4.1"}


class ScriptedServer:
    """Plays a list of turns, or asks a function for each, in a thread and event loop of its own.

    `models` are the only models it knows (any, when None). `window` is the context in tokens beyond which it refuses.
    `local` makes it look like one of the local servers. `accepts` are keys it takes beside those of the real API.
    `strict=False` plays the turn whatever the request looks like. `log` is a file that gets a JSON line per request.
    """

    def __init__(
        self,
        script: Iterable[Turn] | Player = (),
        *,
        repeat: bool = False,
        models: Collection[str] | None = None,
        window: int | None = None,
        trained: int = 131072,
        local: LocalServer | None = None,
        tools: bool = True,
        strict: bool = True,
        accepts: Collection[str] = (),
        port: int = 0,
        log: str | Path | None = None,
    ) -> None:
        self.script = Script(script, repeat)
        self.requests: list[SeenRequest] = []
        self.others: list[SeenRequest] = []
        self.rejected: list[tuple[SeenRequest, str]] = []
        self.models = tuple(models) if models is not None else None
        self.window = window
        self.trained = trained
        self.local = local
        self.tools = tools
        self.strict = strict
        self.accepts = frozenset(accepts)
        self.port = port
        self._log_path = log
        self._log: FileIO | None = None
        self._stopping = False
        self._desk = _Desk(self)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lines: set[_Connection] = set()

    @property
    def url(self) -> str:
        """The base address of the Anthropic API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """The base address of the OpenAI APIs."""
        return f"{self.url}/v1"

    def env(self, api: Literal["anthropic", "openai"], model: str | None = None) -> dict[str, str]:
        """The environment that points a new process at this server."""
        name = model or (self.models[0] if self.models else _DEFAULT_MODELS[api])
        base = self.url if api == "anthropic" else self.openai_url
        prefix = api.upper()
        return {f"{prefix}_BASE_URL": base, f"{prefix}_API_KEY": "scripted-key", "ODIN_MODEL": f"{api}/{name}"}

    def __enter__(self) -> "ScriptedServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> "ScriptedServer":
        """Listen. The port is free at once for connections when this returns."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = listener.getsockname()[1]
        ready = threading.Event()
        self._stopping = False
        self._log = FileIO(self._log_path, "a") if self._log_path is not None else None
        self._thread = threading.Thread(target=self._run, args=(listener, ready), name="scripted-model", daemon=True)
        self._thread.start()
        if not ready.wait(_START_TIMEOUT):
            raise TimeoutError("The scripted server did not start.")
        return self

    def stop(self) -> None:
        """Close every connection and wait for the thread to end."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._stopping = True
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        self._loop = self._thread = None
        if self._log is not None:
            self._log.close()

    def wait_for(self, count: int, timeout: float = 10.0) -> SeenRequest:
        """Wait until so many model requests have arrived and give the last of them."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"Only {len(self.requests)} of {count} requests came within {timeout:g} s.")
            return self.requests[count - 1]

    def wait_idle(self, timeout: float = 10.0) -> None:
        """Wait until every request so far is answered or given up by its client."""
        with self._changed:
            if not self._changed.wait_for(self._is_idle, timeout):
                raise TimeoutError(f"A request is still being answered after {timeout:g} s.")

    def _is_idle(self) -> bool:
        return all(seen.finished_at or seen.hung_up for seen in (*self.requests, *self.others))

    def _run(self, listener: socket.socket, ready: threading.Event) -> None:
        loop = asyncio.new_event_loop()
        self._loop = loop
        try:
            server = loop.run_until_complete(loop.create_server(lambda: _Connection(self), sock=listener))
            ready.set()
            loop.run_forever()
            server.close()
            loop.run_until_complete(self._hang_up())
        finally:
            loop.close()

    async def _hang_up(self) -> None:
        tasks = [line.task for line in self._lines if line.task is not None]
        for line in list(self._lines):
            line.abort(reset=False)
        await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)

    def opened(self, line: "_Connection") -> None:
        self._lines.add(line)

    def closed(self, line: "_Connection") -> None:
        self._lines.discard(line)

    def arrived(self, raw: RawRequest) -> SeenRequest:
        """Record a request before anything is done about it."""
        path = raw.path.partition("?")[0]
        api = _APIS.get(path, "other") if raw.method == "POST" else "other"
        seen = SeenRequest(raw.method, raw.path, raw.headers, raw.body, _object(raw.body), api, raw.at)
        with self._changed:
            (self.others if api == "other" else self.requests).append(seen)
            self._changed.notify_all()
        return seen

    def ended(self, seen: SeenRequest, *, complete: bool) -> None:
        """Record how the answer to a request ended."""
        with self._changed:
            if complete:
                seen.finished_at = time.monotonic()
            else:
                seen.hung_up = not self._stopping
            self._changed.notify_all()
        if self._log is not None:
            self._log.write(_log_line(seen, self.rejected))

    def answer(self, seen: SeenRequest) -> tuple[Answer, Turn]:
        return self._desk.answer(seen)


class _Desk:
    """Decides the answer to one request: a page, a refusal, or the next turn of the script in the right format."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._meter = Meter()
        self._memory = Memory()
        self._number = 0
        self._calls = 0

    def answer(self, seen: SeenRequest) -> tuple[Answer, Turn]:
        try:
            if seen.api == "other":
                return self._page(seen), Turn()
            prompt = self._admit(seen)
        except Refused as refused:
            if seen.api == "other":
                return _refusal(_guess(seen), refused), Turn()
            self._server.rejected.append((seen, str(refused)))
            return _refusal(seen.api, refused), Turn()
        turn = self._server.script.next(seen)
        if turn.is_fault:
            return _fault(seen.api, turn), turn
        return self._reply(seen, turn, prompt), turn

    def _page(self, seen: SeenRequest) -> Answer:
        server = self._server
        if server.local is None and server.strict:
            strict.check_key(_guess(seen), seen.headers)
        found = local.page(
            seen, server.local, models=server.models, window=server.window, trained=server.trained, tools=server.tools
        )
        return _json(200, found) if isinstance(found, dict) else _plain(found)

    def _admit(self, seen: SeenRequest) -> Prompt:
        server = self._server
        if server.strict and server.local is None:
            strict.check_headers(seen.api, seen.headers)
        if len(seen.body) > _MAX_BODY:
            raise Refused("Request exceeds the maximum size", status=413, type="request_too_large")
        if not seen.json:
            strict.parse(seen.body)
        prompt = prompt_of(seen.api, seen.json)
        if server.strict:
            _RULES[seen.api](seen.json, self._memory, None if server.local else server.accepts)
        strict.check_model(seen.api, seen.json, server.models)
        strict.check_window(seen.api, seen.json, prompt.tokens, server.window, server.local)
        return prompt

    def _reply(self, seen: SeenRequest, turn: Turn, prompt: Prompt) -> Answer:
        body = seen.json
        said = spoken(
            turn,
            number=self._fresh_number(seen),
            model=seen.model,
            prompt=self._meter.measure(seen.api, seen.model, prompt),
            created=int(time.time()),
            new_id=self._id_maker(seen),
            contract=wants_contract(body),
        )
        self._memory.learn(seen.api, said)
        wire = _WIRES[seen.api]
        if body.get("stream") is not True:
            return _json(200, wire.whole(said, body) if seen.api == "responses" else wire.whole(said))
        frames = _spoiled(_frames(seen.api, said, body), turn, wire)
        return Answer(200, _STREAM_HEADERS, frames, streamed=True, ping=wire.PING)

    def _fresh_number(self, seen: SeenRequest) -> int:
        """A number whose ids are not in the request yet: a resumed conversation may come from another server."""
        self._number += 1
        while f"_{self._number:06d}".encode() in seen.body:
            self._number += 1
        return self._number

    def _id_maker(self, seen: SeenRequest) -> Callable[[], str]:
        prefix = "toolu" if seen.api == "anthropic" else "call"

        def new_id() -> str:
            self._calls += 1
            while f"{prefix}_{self._calls:04d}".encode() in seen.body:
                self._calls += 1
            return f"{prefix}_{self._calls:04d}"

        return new_id


def _frames(api: Api, said: Spoken, body: dict[str, Any]) -> list[bytes]:
    if api == "anthropic":
        return anthropic.frames(said)
    if api == "responses":
        return responses.frames(said, body)
    options = cast("dict[str, Any]", body.get("stream_options") or {})
    return chat.frames(said, options.get("include_usage") is True)


def _spoiled(frames: list[bytes], turn: Turn, wire: Any) -> list[bytes]:
    """The events as the turn wants them: without an end, with a broken one among them, or ending in an error."""
    if turn.missing:
        frames = frames[: -turn.missing]
    if turn.garbled_after is not None:
        frames.insert(turn.garbled_after, wire.GARBLED)
    if turn.fails is not None:
        frames = [*frames[: turn.fails.after], *wire.error_frames(turn.fails, turn.fails.after)]
    return frames


def _json(status: int, value: dict[str, Any]) -> Answer:
    return Answer(status, {"content-type": "application/json"}, [msgspec.json.encode(value)])


def _plain(text: str) -> Answer:
    return Answer(200, {"content-type": "text/plain; charset=utf-8"}, [text.encode()])


def _refusal(api: Api, refused: Refused) -> Answer:
    body = _WIRES[api].error_body(refused.status, str(refused), refused.type, refused.code, refused.param)
    return _json(refused.status, body)


def _fault(api: Api, turn: Turn) -> Answer:
    body = turn.body
    if body is None:
        return _json(turn.status, _WIRES[api].error_body(turn.status, turn.message, turn.type, turn.code, None))
    if isinstance(body, bytes):
        raw, kind = body, "application/octet-stream"
    elif isinstance(body, str):
        raw, kind = body.encode(), "text/html" if body.lstrip().startswith("<") else "application/json"
    else:
        raw, kind = msgspec.json.encode(body), "application/json"
    return Answer(turn.status, {"content-type": kind}, [raw])


def _object(body: bytes) -> dict[str, Any]:
    try:
        return strict.parse(body)
    except Refused:
        return {}


def _guess(seen: SeenRequest) -> Api:
    """Which API's manners a request without an API of its own expects."""
    return "anthropic" if "x-api-key" in seen.headers or "anthropic-version" in seen.headers else "chat"


def _log_line(seen: SeenRequest, rejected: list[tuple[SeenRequest, str]]) -> bytes:
    sentence = next((why for other, why in reversed(rejected) if other is seen), None)
    line = {
        "at": seen.at,
        "finished_at": seen.finished_at,
        "hung_up": seen.hung_up,
        "method": seen.method,
        "path": seen.path,
        "api": seen.api,
        "status": seen.status,
        "rejected": sentence,
        "bytes": len(seen.body),
        "headers": seen.headers,
        "body": seen.json if seen.json or not seen.body else seen.body.decode(errors="replace"),
    }
    return msgspec.json.encode(line) + b"\n"


class _Connection(asyncio.Protocol):
    """One kept connection: requests are answered one after another."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._reader = RequestReader()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self._writable.set()
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._next()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def drained(self) -> None:
        await self._writable.wait()

    def abort(self, reset: bool) -> None:
        """Close without a word. A reset also throws away what the client has not read yet."""
        transport = self._transport
        if transport is None:
            return
        if reset:
            raw: socket.socket = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _next(self) -> None:
        if self.task is not None:
            return
        try:
            raw = self._reader.take(time.monotonic())
        except BadHttp:
            self.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self._close()
            return
        if raw is not None:
            self.task = asyncio.get_running_loop().create_task(self._answer(raw))
        elif self._reader.expects_continue():
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _answer(self, raw: RawRequest) -> None:
        seen = self._server.arrived(raw)
        usable = False
        complete = False
        try:
            answer, turn = self._decide(seen)
            if raw.method == "HEAD":
                answer.frames = []
            seen.status = answer.status
            ident = "request-id" if seen.api == "anthropic" else "x-request-id"
            answer.headers = {**answer.headers, ident: f"req_{len(self._server.requests):06d}"}
            usable = await deliver(answer, turn, self)
            complete = True
        finally:
            self._server.ended(seen, complete=complete)
            self.task = None
        if usable and raw.keep_alive:
            self._next()
        else:
            self._close()

    def _decide(self, seen: SeenRequest) -> tuple[Answer, Turn]:
        try:
            return self._server.answer(seen)
        except Exception as error:  # a defect here must not leave the client waiting for ever
            refused = Refused(f"The scripted server failed: {type(error).__name__}: {error}", status=500)
            return _refusal(seen.api, refused), Turn()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
