"""One request and its streamed response, shared by all wire formats.

An adapter encodes the request and provides a `WireReader` that turns its API's events into chunks. Parsing server-sent
events, waiting, error handling and releasing connections happen here.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Literal, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from odin.core.errors import (
    BadReply,
    BadRequest,
    ConfigError,
    ContextOverflow,
    EmptyReply,
    Misconfigured,
    ProviderError,
    RetryableError,
    StreamStalled,
)
from odin.core.message import Message, StopReason
from odin.core.provider import (
    CallChunk,
    Chunk,
    RateLimitChunk,
    Request,
    RollbackChunk,
    TextChunk,
    ThinkingLosses,
    UsageChunk,
    WaitChunk,
)
from odin.core.structured_output import get_output_tool, is_correction
from odin.providers import errors
from odin.providers.address import parse_address
from odin.providers.contracts import get_contract
from odin.providers.errors import ErrorContext, parse_reset_delay
from odin.providers.http import HttpClient, HttpResponse
from odin.providers.payload import (
    EncodedHistory,
    ImageBudget,
    ImageSelection,
    is_about_images,
    is_strict_schema,
)
from odin.providers.settings import DEFAULT_HEADER_TIMEOUT, DEFAULT_IDLE_TIMEOUT

MAX_EVENT = 16 * 1024 * 1024

MAX_HISTORIES = 4
"""Conversations kept in encoded form per provider: the main agent's and those of its latest sub-agents."""


class ServerEvent(Struct, frozen=True):
    name: str
    data: bytes


class SseParser:
    """Takes bytes and returns the complete events.

    Lines end in LF, CR or CRLF. An event larger than `limit` is rejected to bound memory.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._size = 0
        self._skip_lf = False
        self._first = True
        self._name = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        if self._skip_lf and data:
            self._skip_lf = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._size += len(data)
        if b"\n" not in data:
            self._tail.append(data)
            self._check_size()
            return []
        lines = b"".join((*self._tail, data)).split(b"\n")
        last = lines.pop()
        self._tail = [last]
        events: list[ServerEvent] = []
        for line in lines:
            self._handle_line(line, events)
        self._size = len(last) + sum(map(len, self._data))
        self._check_size()
        return events

    def flush(self) -> list[ServerEvent]:
        """Return the events completed by the end of the stream: some servers omit the last blank line."""
        events: list[ServerEvent] = []
        self._handle_line(b"".join(self._tail), events)
        self._handle_line(b"", events)
        self._tail = []
        return events

    def _handle_line(self, line: bytes, events: list[ServerEvent]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                events.append(ServerEvent(self._name.decode("utf-8", "replace"), b"\n".join(self._data)))
            self._name = b""
            self._data = []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ")

    def _check_size(self) -> None:
        if self._size > self._limit:
            raise BadReply(
                f"The model server sent one event of more than {self._limit // (1024 * 1024)} MB.",
                "Check that the base URL points at a model API.",
            )


_HEADER_FORMS = ("anthropic-ratelimit-{what}-{field}", "x-ratelimit-{field}-{what}")


def parse_rate_limits(headers: Mapping[str, str], now: float) -> RateLimitChunk | None:
    """Return the rate limits in the headers, or None."""
    if not any("ratelimit" in name for name in headers):
        return None

    def number(what: str, field: str) -> int:
        text = _read_limit_header(headers, what, field)
        return int(text) if text.isdecimal() and len(text) < 16 else -1

    resets = [
        parse_reset_delay(text, now)
        for what in ("requests", "tokens")
        if (text := _read_limit_header(headers, what, "reset"))
    ]
    found = RateLimitChunk(
        requests_left=number("requests", "remaining"),
        requests_limit=number("requests", "limit"),
        tokens_left=number("tokens", "remaining"),
        tokens_limit=number("tokens", "limit"),
        reset_s=round(max((wait for wait in resets if wait is not None), default=0.0), 3),
    )
    return None if found == RateLimitChunk(reset_s=found.reset_s) else found


def _read_limit_header(headers: Mapping[str, str], what: str, field: str) -> str:
    return next(
        (text.strip() for form in _HEADER_FORMS if (text := headers.get(form.format(what=what, field=field)))), ""
    )


TRAILER_WAIT = 2.0
"""Seconds to wait for usage and end markers once the stop reason is known."""


class WireReader:
    """Base class of the readers, which turn the events of one response into chunks.

    `settled`: the stop reason is known and only usage can follow. `done`: the response is complete. `patience` is how
    many times the timeout a response may only ping. `finish` returns the last chunks: usage, then the stop.
    `reads_whole`: it also takes a response that is one JSON object, which some servers send whatever was asked for, as
    one event.
    """

    patience = 4
    reads_whole: ClassVar[bool] = False

    def __init__(self, context: ErrorContext) -> None:
        self.settled = False
        self.done = False
        self._context = context
        self._model = context.model
        self._stop: StopReason = "end_turn"

    def feed(self, event: ServerEvent) -> Iterable[Chunk]:
        raise NotImplementedError

    def finish(self) -> Iterable[Chunk]:
        raise NotImplementedError


class WireRequest(Struct, frozen=True):
    """One POST to `peer.url`."""

    context: ErrorContext
    headers: dict[str, str]
    body: bytes
    idle_timeout: float
    header_timeout: float


class PreparedRequest(Struct, frozen=True):
    """A request in the form of its API: the body, headers besides those of the server, and the reader of the reply."""

    body: bytes
    headers: dict[str, str]
    reader: WireReader


class ApiKey(Struct, frozen=True):
    """A key. `bearer` sends it as a bearer token whatever the API prefers."""

    value: str = ""
    bearer: bool = False

    @property
    def tail(self) -> str:
        """The last four characters, or "" for a key that they would give away."""
        return self.value[-4:] if len(self.value) >= _MIN_TAIL_LENGTH else ""


_MIN_TAIL_LENGTH = 12


class KeyAttempts(Struct):
    """The keys that one request has used: those that failed, and what their source knew when it was sent with each."""

    failed: set[ApiKey] = field(default_factory=set[ApiKey])
    marks: dict[ApiKey, Any] = field(default_factory=dict[ApiKey, Any])


class KeySource(Protocol):
    """The keys of one provider. Each request asks for one and reports how it ended."""

    def choose(self, attempts: KeyAttempts | None = None) -> ApiKey:
        """Return the key for the next request, none that it has failed with. Raise AllKeysCooling if there is none."""
        ...

    def record(self, key: ApiKey, error: ProviderError | None, attempts: KeyAttempts) -> bool:
        """Record how a request ended. True if it failed because of its key and another one can be used now.

        Raise AllKeysCooling or NoUsableKeys if it did and it can use no other.
        """
        ...

    def record_limits(self, key: ApiKey, limits: RateLimitChunk) -> None: ...


class FixedKey:
    """One key, or none, about which nothing is remembered."""

    def __init__(self, key: ApiKey) -> None:
        self._key = key

    def choose(self, attempts: KeyAttempts | None = None) -> ApiKey:
        return self._key

    def record(self, key: ApiKey, error: ProviderError | None, attempts: KeyAttempts) -> bool:
        return False

    def record_limits(self, key: ApiKey, limits: RateLimitChunk) -> None:
        return


Refusal = Literal["responses", "null_content", "prompt_cache_key"]
"""What a server has refused: the Responses API, `null` as the content beside calls, the cache key."""


class ServerMemory(Protocol):
    """What servers have refused, each known by its base URL."""

    def has_refused(self, server: str, what: Refusal) -> bool: ...

    def note_refusal(self, server: str, what: Refusal) -> None: ...


class RunMemory:
    """A memory that lasts as long as the process."""

    def __init__(self) -> None:
        self._refusals: set[tuple[str, Refusal]] = set()

    def has_refused(self, server: str, what: Refusal) -> bool:
        return (server, what) in self._refusals

    def note_refusal(self, server: str, what: Refusal) -> None:
        self._refusals.add((server, what))


class WireOptions(Struct, frozen=True, kw_only=True):
    """How an adapter sends requests.

    `key_places` is text for error messages: where the user can set the key. `prompt_cache_key`: whether to send one;
    None decides by the server.
    """

    idle_timeout: float = DEFAULT_IDLE_TIMEOUT
    header_timeout: float = DEFAULT_HEADER_TIMEOUT
    key_places: str = ""
    prompt_caching: bool = True
    prompt_cache_key: bool | None = None
    memory: ServerMemory = field(default_factory=RunMemory)


def is_openai(url: str) -> bool:
    """True for OpenAI's own servers, also the regional ones."""
    host = parse_address(url).host
    return host == "api.openai.com" or host.endswith(".api.openai.com")


_AZURE_DOMAINS = (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")


def choose_cache_key(request: Request, url: str, server: str, options: WireOptions) -> str:
    """Return the key by which the servers of OpenAI find the cache of a prompt, or "".

    It stands for the session and the agent, whose prompts begin alike. Others than OpenAI refuse it, and Azure refuses
    it for the models of other vendors: https://github.com/MoonshotAI/kimi-code/issues/2611.
    """
    sends, is_own = options.prompt_cache_key, is_openai(url)
    if sends is None:
        azure = parse_address(url).host.endswith(_AZURE_DOMAINS)
        sends = is_own or (azure and "responses" in get_contract(request.model).tool_apis)
    if not (sends and request.session) or (not is_own and options.memory.has_refused(server, "prompt_cache_key")):
        return ""
    from hashlib import blake2b

    return blake2b(f"{request.session}\0{request.agent}".encode(), digest_size=16).hexdigest()


class ListedModel(Struct, frozen=True):
    """A model in the list of a server, with its context window if the list says it."""

    id: str
    context: int = 0


class _ListedEntry(Struct):
    id: str = ""
    context_length: Any = None
    context_window: Any = None
    max_model_len: Any = None

    @property
    def context(self) -> int:
        sizes = (self.context_length, self.context_window, self.max_model_len)
        return next((size for size in sizes if isinstance(size, int) and size > 0), 0)


class _ModelList(Struct):
    data: list[_ListedEntry] = field(default_factory=list[_ListedEntry])


def parse_model_list(body: bytes) -> tuple[ListedModel, ...]:
    """Return the models in the answer of `/models`. Raise MsgspecError if it is no such list."""
    entries = msgspec.json.decode(body, type=_ModelList).data
    return tuple(ListedModel(entry.id, entry.context) for entry in entries if entry.id)


class WireProvider:
    """Base class of the adapters: address, keys and timeouts."""

    path: ClassVar[str]
    list_path: ClassVar[str] = "/models"

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        api_key: KeySource | str,
        http: HttpClient,
        headers: Mapping[str, str] | None = None,
        options: WireOptions | None = None,
    ) -> None:
        self.name = name
        self.url = self.resolve_url(base_url.strip().rstrip("/"))
        self._http = http
        self._keys = FixedKey(ApiKey(api_key.strip())) if isinstance(api_key, str) else api_key
        self._options = options or WireOptions()
        self._image_budget = ImageBudget()
        self._histories: list[EncodedHistory] = []
        self._own_headers = {key.lower(): value for key, value in (headers or {}).items()}
        self._headers: dict[ApiKey, dict[str, str]] = {}
        self._rejects_schemas = False
        self.losses = ThinkingLosses()
        self._named_efforts: dict[str, str] = {}

    @property
    def server(self) -> str:
        """The base URL."""
        return self.url.removesuffix(self.path)

    def resolve_url(self, base_url: str) -> str:
        """Return the URL to post to. A base URL that already is the full URL is used as it is."""
        return base_url if base_url.endswith(self.path) else base_url + self.path

    def build_headers(self, key: str, bearer: bool) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    async def list_models(self, timeout: float) -> tuple[ListedModel, ...]:
        """Return the models that the server lists. Raise ProviderError if it gives no list."""
        url, status, body = await self._fetch(self.list_path, timeout)
        try:
            models = self.parse_models(body) if status == 200 else ()
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise BadReply(f"{url} did not answer with a list of models.") from error
        if not models:
            raise BadReply(f"{url} lists no models (HTTP status {status}).")
        return models

    async def check_key(self, timeout: float) -> None:
        """Raise AuthFailed if the server refuses the key, or another ProviderError if it does not say."""
        path = "/key" if self.name == "openrouter" else self.list_path  # openrouter lists its models without a key
        _, status, body = await self._fetch(path, timeout)
        if status != 200:
            raise errors.make_status_error(self.make_error_context("", self._keys.choose()), status, {}, body)

    async def _fetch(self, path: str, timeout: float) -> tuple[str, int, bytes]:
        url = f"{self.server}{path}"
        return url, *await self._http.fetch(url, headers=self._make_headers(self._keys.choose()), timeout=timeout)

    def parse_models(self, body: bytes) -> tuple[ListedModel, ...]:
        return parse_model_list(body)

    def make_error_context(self, model: str, key: ApiKey) -> ErrorContext:
        return ErrorContext(self.name, self.url, model, key.value, self._options.key_places)

    def _make_headers(self, key: ApiKey) -> dict[str, str]:
        if key not in self._headers:
            own = {"content-type": "application/json", **self.build_headers(key.value, key.bearer)}
            self._headers[key] = own | self._own_headers
        return self._headers[key]

    def get_history(self, messages: tuple[Message, ...]) -> EncodedHistory:
        """Return the encoded history that these messages extend, or a new one. Only the latest are kept."""
        history = next((one for one in self._histories if one.extend(messages)), None)
        others = [one for one in self._histories if one is not history]
        history = history or EncodedHistory(messages)
        if messages:
            self._histories = [history, *others[: MAX_HISTORIES - 1]]
        return history

    def encode(self, request: Request, images: ImageSelection, history: EncodedHistory) -> bytes:
        raise NotImplementedError

    def make_reader(self, context: ErrorContext, request: Request) -> WireReader:
        """Return the reader of one response. A call without an id gets one from the session."""
        raise NotImplementedError

    def prepare(
        self, context: ErrorContext, request: Request, images: ImageSelection, history: EncodedHistory
    ) -> PreparedRequest:
        return PreparedRequest(self.encode(request, images, history), {}, self.make_reader(context, request))

    def takes_answer_schema(self, request: Request) -> bool:
        """True if the API is known to enforce the schema of an answer beside the other tools of this request."""
        return False

    def _choose_answer_form(self, request: Request) -> Request:
        """Return the request with the schema of the answer, if the API enforces it, instead of the tool for it.

        The tool stays for a schema that not every API takes, and after a correction: then the schema did not work.
        """
        tool = get_output_tool(request)
        if tool is None or self._rejects_schemas or is_correction(request):
            return request
        if not (self.takes_answer_schema(request) and is_strict_schema(tool.schema)):
            return request
        return replace(request, tools=request.tools[:-1], schema=tool.schema, strict=True)

    def adapt(self, request: Request, error: BadRequest) -> bool:
        """Learn from a rejected request how this server takes it. True if it can be sent in another form now."""
        return False

    def learn_effort(self, request: Request, error: BadRequest) -> bool:
        """Use the lowest effort that the refusal names, from now on: once for each model."""
        named = errors.parse_lowest_effort(str(error))
        if named is None or request.model in self._named_efforts:
            return False
        self._named_efforts[request.model] = named
        return True

    def get_named_effort(self, model: str) -> str | None:
        """Return the effort that the server has named for a model; "" if it takes none, None if it named none."""
        return self._named_efforts.get(model)

    def _learn_once(self, what: Refusal) -> bool:
        if self._options.memory.has_refused(self.server, what):
            return False
        self._options.memory.note_refusal(self.server, what)
        return True

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        """Send the request and yield the reply.

        If the API rejects the images, send it without them: one bad image must not end a conversation. If it rejects
        the schema of the answer, ask with a tool. If only the limit of the reply does not fit, lower it. If it rejects
        something else that `adapt` understands, send it otherwise. If it rejects the key, send it with the next one;
        what has been yielded then no longer counts.
        """
        given, request = request, self._choose_answer_form(request)
        options, attempts, is_lowered = self._options, KeyAttempts(), False
        history = self.get_history(request.messages)
        while True:
            key = self._keys.choose(attempts)
            context = self.make_error_context(request.model, key)
            images, silent, empty = self._image_budget.select_images(request, history.has_images), True, True
            prepared = self.prepare(context, request, images, history)
            headers = self._make_headers(key) | prepared.headers
            call = WireRequest(context, headers, prepared.body, options.idle_timeout, options.header_timeout)
            try:
                async with aclosing(stream_request(self._http, call, prepared.reader)) as chunks:
                    async for chunk in chunks:
                        silent = silent and isinstance(chunk, WaitChunk)
                        empty = empty and not isinstance(chunk, TextChunk | CallChunk)
                        if attempts.failed and chunk == WaitChunk("connecting"):
                            chunk = WaitChunk("retrying_key")
                        if isinstance(chunk, RateLimitChunk):
                            chunk = replace(chunk, key=key.tail)
                            self._keys.record_limits(key, chunk)
                        yield chunk
            except ConfigError as error:
                raise Misconfigured(str(error), error.hint) from error
            except ProviderError as error:
                if silent and not images.is_empty and is_about_images(error):
                    self._forget_images(images, error)
                elif isinstance(error, ContextOverflow) and 0 < error.room < request.max_tokens and not is_lowered:
                    lowered = {"max_tokens": error.room, "brief": False}
                    request, given, is_lowered = replace(request, **lowered), replace(given, **lowered), True
                elif silent and isinstance(error, BadRequest) and self.adapt(request, error):
                    continue
                elif silent and isinstance(error, BadRequest) and request is not given:
                    request, self._rejects_schemas = given, True
                elif not self._keys.record(key, error, attempts):
                    raise
                elif not silent:
                    yield RollbackChunk(error.kind)
            else:
                self._image_budget.accept(images)
                problem = EmptyReply(f"{self.name} returned an empty reply.") if empty else None
                self._keys.record(key, problem, attempts)
                return

    def _forget_images(self, images: ImageSelection, error: ProviderError) -> None:
        if error.status == 413:
            self._image_budget.shrink(images)
        else:
            self._image_budget.refuse(images)

    async def close(self) -> None:
        """Nothing to close: connections belong to the HttpClient."""


async def stream_request(http: HttpClient, call: WireRequest, reader: WireReader) -> AsyncGenerator[Chunk]:
    """Send the request and yield the chunks of the response, the stop last. Raise a named error on failure."""
    address = parse_address(call.context.url)
    yield WaitChunk("connecting")
    connection = await http.acquire(address)
    try:
        yield WaitChunk("waiting_headers")
        response = await http.send(
            connection, "POST", address, call.headers, call.body, header_timeout=call.header_timeout
        )
    except BaseException:
        connection.abort()
        raise
    try:
        await _check_status(call, response)
        from odin.providers.sent_prompt import hash_prompt  # when the request is on its way

        yield WaitChunk("waiting_token", hash_prompt(call.body))
        events, error_in_text = _EventStream(response, call, reader), _ErrorInText()
        while not (reader.done or events.ended):
            for event in await events.read_more():
                for chunk in _feed_event(call.context, reader, event, events.ended):
                    error_in_text.add(chunk)
                    yield chunk
    except BaseException:
        response.discard()
        raise
    response.release()
    if not (reader.done or reader.settled):
        raise errors.make_incomplete_error(call.context)
    error_in_text.check(call.context)
    if limits := parse_rate_limits(response.headers, time.time()):
        yield limits
    for chunk in reader.finish():
        yield chunk


class _ErrorInText:
    """Some gateways report a failure as text of the model: the whole reply is an API's error JSON."""

    _MAX_CHARS = 4000

    def __init__(self) -> None:
        self._text = ""
        self._possible = True

    def add(self, chunk: Chunk) -> None:
        if not self._possible or isinstance(chunk, WaitChunk | UsageChunk):
            return
        if isinstance(chunk, TextChunk) and len(self._text) < self._MAX_CHARS:
            self._text += chunk.text
        else:
            self._possible = False
        self._possible = self._possible and self._text.lstrip()[:1] in ("", "{")

    def check(self, context: ErrorContext) -> None:
        if self._possible and self._text and (rendered := errors.parse_error_text(self._text)):
            raise errors.make_reported_error(context, rendered)


async def _check_status(call: WireRequest, response: HttpResponse) -> None:
    if response.status == 200:
        return
    try:
        body = await response.read_all(call.idle_timeout)
    except ProviderError:
        body = b""
    error = errors.make_status_error(call.context, response.status, response.headers, body)
    error.request_id = response.headers.get("request-id") or response.headers.get("x-request-id", "")
    raise error


def _feed_event(context: ErrorContext, reader: WireReader, event: ServerEvent, ended: bool) -> Iterator[Chunk]:
    try:
        yield from reader.feed(event)
    except msgspec.MsgspecError:
        if ended:
            raise errors.make_incomplete_error(context) from None
        raise errors.make_bad_event_error(context, event.data) from None


class _EventStream:
    """The events of a response, in batches.

    A response is abandoned if it is idle (sends no bytes) for `idle_timeout`, or quiet (sends only pings) for
    `patience` times as long.
    """

    def __init__(self, response: HttpResponse, call: WireRequest, reader: WireReader) -> None:
        self.ended = False
        self._response = response
        self._call = call
        self._reader = reader
        self._parser = SseParser()
        self._first = True
        self._clock = asyncio.get_running_loop().time
        self._progress = self._clock()

    async def read_more(self) -> list[ServerEvent]:
        data = await self._read()
        if not data:
            self.ended = True
            return self._parser.flush()
        if self._first:
            self._first = False
            if not _may_begin_events(data):
                return await self._read_whole(data)
        events = self._parser.feed(data)
        if any(event.name != "ping" for event in events):
            self._progress = self._clock()
        return events

    async def _read(self) -> bytes:
        idle = self._call.idle_timeout
        quiet = self._progress + self._reader.patience * idle - self._clock()
        if not self._reader.settled:
            return await self._read_until(idle, quiet)
        try:
            return await self._response.read(min(idle, TRAILER_WAIT))
        except RetryableError:
            return b""

    async def _read_until(self, idle: float, quiet: float) -> bytes:
        """Wait for bytes until the response has been idle or quiet for too long, in seconds from now."""
        try:
            return await self._response.read(max(0.0, min(idle, quiet)))
        except StreamStalled:
            if quiet >= idle:
                raise
            seconds = self._reader.patience * idle
            raise errors.make_idle_timeout_error(parse_address(self._call.context.url), seconds) from None

    async def _read_whole(self, data: bytes) -> list[ServerEvent]:
        """Return a response that does not start like an event stream as one event.

        Reject what is no reply: a page, an error, a sentence.
        """
        if not errors.is_web_page(data):
            data += await self._response.read_all(self._call.idle_timeout)
        if errors.is_web_page(data):
            raise errors.make_web_page_error(self._call.context, self._response.status)
        if not (self._reader.reads_whole and errors.is_reply_object(data)):
            raise errors.make_not_streamed_error(self._call.context, data)
        self.ended = True
        return [ServerEvent("", data)]


_SSE_FIELDS = (b"data", b"event", b"id", b"retry", b":")


def _may_begin_events(data: bytes) -> bool:
    """True if an event stream may start with these bytes."""
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    return not start or any(start.startswith(field) or field.startswith(start) for field in _SSE_FIELDS)
