"""A model server on loopback that plays a script: real HTTP, three wire formats, no model."""

import asyncio
import socket
import threading
import time
from collections.abc import Collection, Iterable
from io import FileIO
from pathlib import Path
from typing import Any, Literal

import msgspec

from odin.testing import strict
from odin.testing.connection import ClientConnection
from odin.testing.delivery import ServerAnswer
from odin.testing.desk import Router, ServerBehavior
from odin.testing.script import EmulatedServer, Player, Script, Turn
from odin.testing.seen import Api, SeenRequest
from odin.testing.wire import RawRequest

_APIS: dict[str, Api] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
}
_SECRET_HEADERS = frozenset({"authorization", "x-api-key"})
_START_TIMEOUT = 10.0
_DEFAULT_MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-4.1"}


class ScriptedServer:
    """Plays a list of turns, or asks a function for each, in a thread and event loop of its own.

    `repeat` begins again when the list is used up. `models` are the only models it knows (any, when None). `window` is
    the context in tokens beyond which it refuses. `local` makes it look like one of the local servers, whose models
    were `trained` for a longer window and can call `tools` or not. `accepts` are keys it takes beside those of the
    real API; `strict=False` plays the turn for anything that is JSON. `log` is a file that gets a line per request.

    `requests` are the model calls it saw, `others` everything else, `rejected` the calls it refused and why.
    """

    def __init__(
        self,
        script: Iterable[Turn] | Player = (),
        *,
        repeat: bool = False,
        models: Collection[str] | None = None,
        window: int | None = None,
        trained: int = 131072,
        local: EmulatedServer | None = None,
        tools: bool = True,
        strict: bool = True,
        accepts: Collection[str] = (),
        port: int = 0,
        log: str | Path | None = None,
    ) -> None:
        self.script = Script(script, repeat)
        self.models = tuple(models) if models is not None else None
        self.port = port
        self.requests: list[SeenRequest] = []
        self.others: list[SeenRequest] = []
        self.rejected: list[tuple[SeenRequest, str]] = []
        self.connections: set[ClientConnection] = set()
        manners = ServerBehavior(self.models, window, trained, local, tools, strict, frozenset(accepts))
        self._router = Router(self.script, manners, self.rejected)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log_path = log
        self._log: FileIO | None = None
        self._stopping = False

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
        """Listen. When this returns, clients can connect."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = listener.getsockname()[1]
        self._stopping = False
        self._log = FileIO(self._log_path, "a") if self._log_path is not None else None
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listener, ready), name="scripted-model", daemon=True)
        self._thread.start()
        if not ready.wait(_START_TIMEOUT):
            raise TimeoutError("The scripted server did not start.")
        return self

    def stop(self) -> None:
        """Close every connection and wait for the thread to end. The same port can be opened again with start."""
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
        """Wait until so many model calls have arrived and give the last of them."""
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
            server = loop.run_until_complete(loop.create_server(lambda: ClientConnection(self), sock=listener))
            ready.set()
            loop.run_forever()
            loop.run_until_complete(self._close_connections(server))
        finally:
            loop.close()

    async def _close_connections(self, server: asyncio.Server) -> None:
        """End every connection. One that is just being accepted becomes a line first: a closed server would lose it."""
        while accepting := asyncio.all_tasks() - {asyncio.current_task(), *(line.task for line in self.connections)}:
            await asyncio.wait(accepting)
        server.close()
        answering = [line.task for line in self.connections if line.task is not None]
        for line in list(self.connections):
            line.abort(reset=False)
        await asyncio.sleep(0)
        await asyncio.gather(*answering, return_exceptions=True)

    # --- what a connection asks of the server ---

    def record_request(self, raw: RawRequest) -> SeenRequest:
        """Record a request before anything is done about it."""
        api = _APIS.get(raw.path.partition("?")[0], "other") if raw.method == "POST" else "other"
        seen = SeenRequest(raw.method, raw.path, raw.headers, raw.body, _parse_object(raw.body), api, raw.at)
        with self._changed:
            (self.others if api == "other" else self.requests).append(seen)
            self._changed.notify_all()
        return seen

    def answer(self, seen: SeenRequest) -> tuple[ServerAnswer, Turn]:
        answer, turn = self._router.answer(seen)
        name = "request-id" if seen.api == "anthropic" else "x-request-id"
        answer.headers[name] = f"req_{len(self.requests):06d}"
        if seen.method == "HEAD":
            answer.frames = []
        return answer, turn

    def record_end(self, seen: SeenRequest, *, complete: bool) -> None:
        """Record how the answer to a request ended."""
        now = time.monotonic()
        with self._changed:
            if complete:
                seen.finished_at = now
            else:
                seen.hung_up = not self._stopping
            self._changed.notify_all()
        if self._log is not None:
            why = next((sentence for other, sentence in reversed(self.rejected) if other is seen), None)
            self._log.write(_format_log_line(seen, why))


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        return strict.parse_body(body)
    except strict.RequestRefused:
        return {}


def _format_log_line(seen: SeenRequest, rejected: str | None) -> bytes:
    line = {
        "at": seen.at,
        "finished_at": seen.finished_at,
        "hung_up": seen.hung_up,
        "method": seen.method,
        "path": seen.path,
        "api": seen.api,
        "status": seen.status,
        "rejected": rejected,
        "bytes": len(seen.body),
        "headers": {name: "(hidden)" if name in _SECRET_HEADERS else value for name, value in seen.headers.items()},
        "body": seen.json if seen.json or not seen.body else seen.body.decode(errors="replace"),
    }
    return msgspec.json.encode(line) + b"\n"
