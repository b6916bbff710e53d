"""A model server on loopback that plays a script: real HTTP, four wire formats, no model."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable
from io import FileIO
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from odin.testing import (
    anthropic_api,
    anthropic_rules,
    chat_api,
    gemini_api,
    odd_servers,
    responses_api,
    strict,
)
from odin.testing.anthropic_rules import BoundRequest
from odin.testing.prompt_cache import MeteredPrompt, PromptCache, extract_prompt
from odin.testing.render import render_reply, wants_contract
from odin.testing.script import Api, EmulatedLocal, EmulatedServer, Oddity, Player, Script, SeenRequest, Turn
from odin.testing.strict import IssuedIds, RequestRefused
from odin.testing.transport import ClientConnection, RawRequest, ServerAnswer

_DEFAULT_WINDOW = {"ollama": 4096, "llamacpp": 8192, "lmstudio": 4096, "vllm": 32768}
_CREATED = 1_750_000_000
_CREATED_AT = "2025-06-15T00:00:00Z"


def find_page(
    seen: SeenRequest, local: EmulatedLocal | None, *, models: Collection[str] | None, window: int | None
) -> dict[str, Any] | str:
    """Return the page at this URL as JSON or text: model lists and local server info. Unknown URLs get a 404."""
    names = tuple(models or ("scripted-model",))
    path = seen.path.partition("?")[0]
    kind = local.kind if local else ""
    size = window or _DEFAULT_WINDOW.get(kind, 0)
    if seen.method == "GET" and path in ("/v1beta/models", "/v1/models") and _guess_api(seen) == "gemini":
        return {"models": [_build_gemini_entry(name, size) for name in names]}
    if (seen.method, path) == ("GET", "/v1/models"):
        if local is None and "anthropic-version" in seen.headers:
            entries = [{"type": "model", "id": name, "display_name": name, "created_at": _CREATED_AT} for name in names]
            return {"data": entries, "has_more": False, "first_id": names[0], "last_id": names[-1]}
        entries = [_build_model_entry(name, local, size) for name in names]
        return {"object": "list", "data": entries}
    if local and kind == "ollama":
        found = _build_ollama_page(seen, path, names, size, local)
    elif kind == "llamacpp":
        found = _build_llamacpp_page(path, names, size)
    elif local and kind == "lmstudio":
        found = _build_lmstudio_page(path, names, size, local)
    elif kind == "vllm" and path == "/health":
        found = ""
    else:
        found = None
    if found is None:
        raise RequestRefused(
            f"Invalid URL ({seen.method} {path})", status=404, type="invalid_request_error", code="unknown_url"
        )
    return found


def _build_gemini_entry(name: str, size: int) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name,
        "inputTokenLimit": size or 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }


def _build_model_entry(name: str, local: EmulatedLocal | None, size: int) -> dict[str, Any]:
    kind = local.kind if local else ""
    entry: dict[str, Any] = {"id": name, "object": "model", "created": _CREATED, "owned_by": kind or "scripted"}
    if kind == "vllm":
        entry |= {"root": name, "parent": None, "max_model_len": size, "permission": []}
    elif local and kind == "llamacpp":
        entry["meta"] = {"vocab_type": 2, "n_vocab": 128256, "n_ctx_train": local.trained, "n_embd": 4096}
    return entry


def _build_ollama_page(
    seen: SeenRequest, path: str, names: tuple[str, ...], size: int, local: EmulatedLocal
) -> dict[str, Any] | str | None:
    details = {"format": "gguf", "family": "llama", "parameter_size": "8B", "quantization_level": "Q4_K_M"}
    listed = [
        {"name": n, "model": n, "modified_at": _CREATED_AT, "size": 4, "digest": "0", "details": details} for n in names
    ]
    if path == "/":
        return "Ollama is running"
    if path == "/api/version":
        return {"version": "0.12.0"}
    if path == "/api/tags":
        return {"models": listed}
    if path == "/api/ps":
        return {"models": [{**entry, "context_length": size} for entry in listed]}
    if (seen.method, path) != ("POST", "/api/show"):
        return None
    wanted = _get_requested_model(seen.body)
    if wanted not in names:
        raise RequestRefused(f"model '{wanted}' not found", status=404)
    return {
        "modelfile": "",
        "parameters": f"num_ctx                        {size}",
        "template": "{{ .Prompt }}",
        "details": details,
        "model_info": {"general.architecture": "llama", "llama.context_length": local.trained},
        "capabilities": ["completion", "tools"] if local.tools else ["completion"],
    }


def _get_requested_model(body: bytes) -> str:
    try:
        asked: Any = msgspec.json.decode(body)
        return str(asked.get("model") or asked.get("name"))
    except (msgspec.DecodeError, AttributeError) as error:
        raise RequestRefused("invalid request", status=400) from error


def _build_llamacpp_page(path: str, names: tuple[str, ...], size: int) -> dict[str, Any] | str | None:
    if path == "/health":
        return {"status": "ok"}
    if path == "/props":
        return {
            "default_generation_settings": {"id": 0, "n_ctx": size, "params": {"n_predict": -1}},
            "total_slots": 1,
            "model_path": f"/models/{names[0]}.gguf",
            "chat_template": "{{ messages }}",
            "build_info": "b6000-scripted",
        }
    return None


def _build_lmstudio_page(
    path: str, names: tuple[str, ...], size: int, local: EmulatedLocal
) -> dict[str, Any] | str | None:
    if path != "/api/v0/models":
        return None
    entries = [
        {
            "id": name,
            "object": "model",
            "type": "llm",
            "publisher": "scripted",
            "arch": "llama",
            "compatibility_type": "gguf",
            "quantization": "Q4_K_M",
            "state": "loaded",
            "max_context_length": local.trained,
            "loaded_context_length": size,
            "capabilities": ["tool_use"] if local.tools else [],
        }
        for name in names
    ]
    return {"object": "list", "data": entries}


_WIRE_FORMATS: dict[Api, Any] = {
    "anthropic": anthropic_api,
    "chat": chat_api,
    "responses": responses_api,
    "gemini": gemini_api,
    "other": chat_api,
}
_STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_MAX_BODY = 32 * 1024 * 1024


class ServerBehavior(Struct, frozen=True):
    """The kind of server; see `ScriptedServer` for the fields."""

    models: tuple[str, ...] | None = None
    window: int | None = None
    local: EmulatedLocal | None = None
    strict: bool = True
    accepts: frozenset[str] = frozenset()
    betas: frozenset[str] = anthropic_rules.KNOWN_BETAS
    odd: frozenset[Oddity] = frozenset()


class Router:
    def __init__(
        self,
        script: Script,
        behavior: ServerBehavior,
        rejected: list[tuple[SeenRequest, str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._script = script
        self._behavior = behavior
        self._rejected = rejected
        self.dropped: list[tuple[SeenRequest, dict[str, str]]] = []
        self._cache = PromptCache(clock)
        self._memory = IssuedIds()
        self._number = 0
        self._calls = 0

    def answer(self, seen: SeenRequest) -> tuple[ServerAnswer, Turn]:
        """Return the response, and the turn that says how to deliver it."""
        try:
            return self._decide(seen)
        except Exception as error:  # a bug here must not leave the client waiting forever
            refused = RequestRefused(f"The scripted server failed: {type(error).__name__}: {error}", status=500)
            return _make_refusal(seen.api, refused), Turn()

    def _decide(self, seen: SeenRequest) -> tuple[ServerAnswer, Turn]:
        try:
            if seen.api == "other":
                behavior = self._behavior
                if behavior.local is None and behavior.strict:
                    strict.check_key(_guess_api(seen), seen.headers)
                found = find_page(seen, behavior.local, models=behavior.models, window=behavior.window)
                return _make_json_answer(200, found) if isinstance(found, dict) else _make_text_answer(found), Turn()
            prompt, bound = self._admit(seen)
        except RequestRefused as refused:
            if seen.api == "other":
                return _make_refusal(_guess_api(seen), refused), Turn()
            self._rejected.append((seen, str(refused)))
            return _make_refusal(seen.api, refused), Turn()
        turn = self._script.take_turn(seen)
        if turn.is_fault:
            return _make_fault(seen, turn), turn
        return self._answer_turn(seen, turn, prompt, bound), turn

    def _admit(self, seen: SeenRequest) -> tuple[MeteredPrompt, BoundRequest | None]:
        behavior, bound = self._behavior, None
        if behavior.strict and behavior.local is None:
            strict.check_headers(seen.api, seen.headers)
        if len(seen.body) > _MAX_BODY:
            raise RequestRefused("Request exceeds the maximum size", status=413)
        if not seen.json:
            strict.parse_body(seen.body)
        odd_servers.check_request(seen.api, seen.json, behavior.odd)
        if behavior.strict:
            _WIRE_FORMATS[seen.api].check_request(seen.json, self._memory, None if behavior.local else behavior.accepts)
            if seen.api == "anthropic" and behavior.local is None:
                bound = anthropic_rules.check_model(seen.json, seen.headers, behavior.betas)
                self.dropped += [(seen, entry) for entry in bound.dropped]
        prompt = extract_prompt(seen.api, seen.json)
        strict.check_model(seen.api, seen.json, behavior.models)
        strict.check_window(
            seen.api, seen.json, prompt.tokens, behavior.window, behavior.local.kind if behavior.local else None
        )
        return prompt, bound

    def _answer_turn(
        self, seen: SeenRequest, turn: Turn, prompt: MeteredPrompt, bound: BoundRequest | None
    ) -> ServerAnswer:
        body = seen.json
        if bound is None:
            turn = structs.replace(turn, text=turn.update + turn.text, update="")
        # A number whose ids are not in the request: a resumed conversation may come from another server.
        self._number += 1
        while f"_{self._number:06d}".encode() in seen.body:
            self._number += 1
        prefix = "toolu" if seen.api == "anthropic" else "call"

        def new_id() -> str:
            self._calls += 1
            while f"{prefix}_{self._calls:04d}".encode() in seen.body:
                self._calls += 1
            return f"{prefix}_{self._calls:04d}"

        rendered = render_reply(
            turn,
            number=self._number,
            model=seen.model,
            prompt=self._cache.measure(prompt),
            created=int(time.time()),
            new_id=new_id,
            contract=wants_contract(body),
        )
        if bound is not None:
            rendered = anthropic_rules.bind_reply(rendered, bound)
        self._memory.learn(seen.api, rendered)
        wire = _WIRE_FORMATS[seen.api]
        found = gemini_api.parse_path(seen.path) if seen.api == "gemini" else None
        is_streamed = found[1] if found else seen.json.get("stream") is True
        if not is_streamed or "not_streamed" in self._behavior.odd:
            return _make_json_answer(200, wire.build_reply(rendered, body))
        # The events with the turn's faults applied: no end, a malformed event, or a final error.
        frames = odd_servers.alter_frames(wire.encode_frames(rendered, body), self._behavior.odd)
        if turn.missing:
            frames = frames[: -turn.missing]
        if turn.garbled_after is not None:
            frames.insert(turn.garbled_after, wire.GARBLED)
        if turn.fails is not None:
            frames = [*frames[: turn.fails.after], *wire.encode_error_frames(turn.fails, turn.fails.after)]
        return ServerAnswer(200, dict(_STREAM_HEADERS), frames, is_stream=True, ping=wire.PING)


def _make_json_answer(status: int, value: dict[str, Any]) -> ServerAnswer:
    return ServerAnswer(status, {"content-type": "application/json"}, [msgspec.json.encode(value)])


def _make_text_answer(text: str) -> ServerAnswer:
    return ServerAnswer(200, {"content-type": "text/plain; charset=utf-8"}, [text.encode()])


def _make_refusal(api: Api, refused: RequestRefused) -> ServerAnswer:
    body = _WIRE_FORMATS[api].build_error_body(refused.status, str(refused), refused.type, refused.code, refused.param)
    return _make_json_answer(refused.status, body)


def _make_fault(seen: SeenRequest, turn: Turn) -> ServerAnswer:
    api, body = seen.api, turn.body
    if body is None and turn.status == 401 and api == "gemini" and "x-goog-api-key" in seen.headers:
        return _make_refusal(api, gemini_api.INVALID_KEY)
    if body is None:
        return _make_json_answer(
            turn.status, _WIRE_FORMATS[api].build_error_body(turn.status, turn.message, turn.type, turn.code, None)
        )
    if isinstance(body, bytes):
        raw, kind = body, "application/octet-stream"
    elif isinstance(body, str):
        raw, kind = body.encode(), "text/html" if body.lstrip().startswith("<") else "application/json"
    else:
        raw, kind = msgspec.json.encode(body), "application/json"
    return ServerAnswer(turn.status, {"content-type": kind}, [raw])


def _guess_api(seen: SeenRequest) -> Api:
    """Return the API whose format fits a request to an unknown URL."""
    if "x-goog-api-key" in seen.headers or seen.path.startswith("/v1beta/"):
        return "gemini"
    return "anthropic" if "x-api-key" in seen.headers or "anthropic-version" in seen.headers else "chat"


_APIS: dict[str, Api] = {"/v1/messages": "anthropic", "/v1/chat/completions": "chat", "/v1/responses": "responses"}
_SECRET_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key"})
_TIMEOUT_S = 60.0
"""Limit of every wait, also on a busy machine."""
_DEFAULT_MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-4.1", "google": "gemini-3.8-flash"}


class ScriptedServer:
    """Plays a list of turns, or asks a function for each, in its own thread and event loop.

    `repeat` starts over when the list is used up. `models` are the only known models (any if None). `window` is the
    context window in tokens beyond which requests are rejected. `local` makes it look like a local server. `accepts`
    are additional keys to accept; `strict=False` plays the turn for any JSON. `betas` are the values of
    `anthropic-beta` that it knows, all of the vendor's if None: with `()` it is an older gateway. `odd` is what it does
    otherwise than OpenAI. `clock` returns the seconds by which the prompt cache of the API expires.

    `requests` are the model requests received, `others` everything else, `rejected` the rejected requests and why.
    `dropped` are the blocks of thinking that the model was not shown, as the Anthropic API reports them.
    """

    def __init__(
        self,
        script: Iterable[Turn] | Player = (),
        *,
        repeat: bool = False,
        models: Collection[str] | None = None,
        window: int | None = None,
        local: EmulatedServer | EmulatedLocal | None = None,
        strict: bool = True,
        accepts: Collection[str] = (),
        odd: Collection[Oddity] = (),
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
        betas: Collection[str] | None = None,
    ) -> None:
        self.script = Script(script, repeat)
        self.models = tuple(models) if models is not None else None
        self.port = port
        self.requests: list[SeenRequest] = []
        self.others: list[SeenRequest] = []
        self.rejected: list[tuple[SeenRequest, str]] = []
        self.connections: set[ClientConnection] = set()
        emulated = EmulatedLocal(local) if isinstance(local, str) else local
        known = frozenset(anthropic_rules.KNOWN_BETAS if betas is None else betas)
        behavior = ServerBehavior(self.models, window, emulated, strict, frozenset(accepts), known, frozenset(odd))
        self._router = Router(self.script, behavior, self.rejected, clock)
        self.dropped = self._router.dropped
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log: FileIO | None = None
        self._stopping = False

    @property
    def url(self) -> str:
        """The base URL of the Anthropic and the Gemini API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """The base URL of the OpenAI APIs."""
        return f"{self.url}/v1"

    def env(self, api: Literal["anthropic", "openai", "google"], model: str | None = None) -> dict[str, str]:
        """Return the environment that points a new process at this server."""
        name = model or (self.models[0] if self.models else _DEFAULT_MODELS[api])
        if api == "google":
            key = {"GOOGLE_GEMINI_BASE_URL": self.url, "GEMINI_API_KEY": "scripted-key"}
            return {**key, "ODIN_MODEL": f"google/{name}"}
        base = self.url if api == "anthropic" else self.openai_url
        prefix = api.upper()
        return {f"{prefix}_BASE_URL": base, f"{prefix}_API_KEY": "scripted-key", "ODIN_MODEL": f"{api}/{name}"}

    def __enter__(self) -> "ScriptedServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, log: str | Path | None = None) -> "ScriptedServer":
        """Start listening. When this returns, clients can connect. `log` is a file that gets one line per request."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = listener.getsockname()[1]
        self._stopping = False
        self._log = FileIO(log, "a") if log is not None else None
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listener, ready), name="scripted-model", daemon=True)
        self._thread.start()
        if not ready.wait(_TIMEOUT_S):
            raise TimeoutError("The scripted server did not start.")
        return self

    def stop(self) -> None:
        """Close every connection and wait for the thread. `start` can open the same port again."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._stopping = True
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        self._loop = self._thread = None
        if self._log is not None:
            self._log.close()

    def wait_for(self, count: int, timeout: float = _TIMEOUT_S) -> SeenRequest:
        """Wait until this many model requests have arrived and return the last one."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"Only {len(self.requests)} of {count} requests came within {timeout:g} s.")
            return self.requests[count - 1]

    def wait_idle(self, timeout: float = _TIMEOUT_S) -> None:
        """Wait until every request so far is answered or abandoned by its client."""
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
        """Close every connection, including one that is just being accepted."""
        while accepting := asyncio.all_tasks() - {asyncio.current_task(), *(line.task for line in self.connections)}:
            await asyncio.wait(accepting)
        server.close()
        answering = [line.task for line in self.connections if line.task is not None]
        for line in list(self.connections):
            line.abort(reset=False)
        await asyncio.sleep(0)
        await asyncio.gather(*answering, return_exceptions=True)

    # --- callbacks of connections ---

    def record_request(self, raw: RawRequest) -> SeenRequest:
        """Record a request before handling it."""
        seen = read_request(raw)
        with self._changed:
            (self.others if seen.api == "other" else self.requests).append(seen)
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
        """Record how the response ended."""
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


def read_request(raw: RawRequest) -> SeenRequest:
    """Return a request as a script sees it."""
    body, api = _parse_object(raw.body), _find_api(raw)
    if api == "gemini" and body and (found := gemini_api.parse_path(raw.path)):
        body = {"model": found[0], **body}
    return SeenRequest(raw.method, raw.path, raw.headers, raw.body, body, api, raw.at)


def _find_api(raw: RawRequest) -> Api:
    if raw.method != "POST":
        return "other"
    return "gemini" if gemini_api.parse_path(raw.path) else _APIS.get(raw.path.partition("?")[0], "other")


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
