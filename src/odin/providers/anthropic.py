"""The Anthropic Messages API.

A prompt is one text block, followed by a block per note; tool results come first in their message, notes after them. An
assistant message with nothing to send is omitted: the API merges the user messages around it. Prompt caching uses one
top-level `cache_control`, so no marker moves through the messages.

Newer models take their thinking back only behind the system prompt, tools and messages that it was made with, and in an
unbroken run. So the signature of each block is stored with the prefix of its request and the thinking before it, and
thinking whose prefix is another one now is left out. That follows from the messages alone: it is the same after a
restart, in a fork and after a rewind.

What a model says between two calls comes as thinking, too. For everybody else it is text: it streams as text and is
part of a `Text`, and the thinking after that says how many of its last characters it is made of.
"""

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from odin.core import debug
from odin.core.errors import BadRequest
from odin.core.lazy_pattern import compile_lazily
from odin.core.message import (
    Message,
    PromptMessage,
    ReplyMessage,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    Usage,
)
from odin.core.provider import (
    CallChunk,
    Chunk,
    Request,
    StopChunk,
    TextChunk,
    ThinkingChunk,
    ThinkingLosses,
    UsageChunk,
)
from odin.providers import errors
from odin.providers.contracts import REASONING_ROOM, ModelContract, get_contract
from odin.providers.errors import ApiErrorInfo, ErrorContext
from odin.providers.http import HttpClient
from odin.providers.payload import (
    NO_OUTPUT,
    BoundItems,
    CallIdMap,
    EncodedHistory,
    ImageBudget,
    ImageSelection,
    ShownContent,
    append_items,
    choose_history,
    decode_event,
    encode_body,
    get_reply_model,
    make_legal_name,
    may_replay,
    start_hash,
)
from odin.providers.wire import PreparedRequest, ServerEvent, WireProvider, WireReader

API_VERSION = "2023-06-01"
_REDACTED_PREFIX = "redacted:"
_MIN_BUDGET = 1024
_EPHEMERAL = {"type": "ephemeral"}


BINDING_BETA = "thinking-binding-controls-2026-08-01"
UPDATES_BETA = "thinking-display-updates-2026-08-18"
_BETA_PATTERN = compile_lazily(r"anthropic.beta|beta flag|block_binding|thinking\S*display")


class AnthropicProvider(WireProvider):
    """One Anthropic-compatible server. `base_url` may end in /v1 or not."""

    path = "/messages"
    list_path = "/models?limit=1000"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._habits = _HABITS.setdefault(self._http, {}).setdefault(self.url, _ServerHabits())

    def resolve_url(self, base_url: str) -> str:
        return super().resolve_url(base_url if base_url.endswith(("/v1", self.path)) else f"{base_url}/v1")

    def build_headers(self, key: str, bearer: bool) -> dict[str, str]:
        auth = super().build_headers(key, bearer) if bearer or not key else {"x-api-key": key}
        return {"anthropic-version": API_VERSION, **auth}

    def prepare(
        self, context: ErrorContext, request: Request, images: ImageSelection, history: EncodedHistory
    ) -> PreparedRequest:
        found = encode_request(request, self.name, self._options.prompt_caching, images, history, self._habits)
        own = self._own_headers.get("anthropic-beta", "")
        betas = ",".join(filter(None, (own, *found.betas)))
        self.losses.left_out = found.left_out
        if found.left_out and debug.write is not None:
            debug.write("thinking_left_out", {"model": request.model, "replies": found.left_out})
        reader = _AnthropicReader(context, found.mark, self.losses, says=found.says)
        return PreparedRequest(found.body, {"anthropic-beta": betas} if betas else {}, reader)

    def adapt(self, request: Request, error: BadRequest) -> bool:
        sentence = str(error)
        if "`thinking`" in sentence or "`redacted_thinking`" in sentence:
            self.losses.refused = error.request_id or "a request without a number"
        return self._habits.adapt(sentence, request.messages)

    def takes_answer_schema(self, request: Request) -> bool:
        return get_contract(request.model).schemas


class _ServerHabits:
    """What has been learned about one server: whether it knows the beta features, and which thinking it refused."""

    def __init__(self) -> None:
        self.knows_betas = True
        self.refused: set[str] = set()

    def adapt(self, sentence: str, messages: tuple[Message, ...]) -> bool:
        """Learn from a rejection. False if it says nothing new.

        A server without the beta features names one of them or its field. Of the thinking that is bound to something
        else the API names only the first block: then none of it is sent again.
        """
        if self.knows_betas and _BETA_PATTERN.search(sentence) and "bound to a different conver" not in sentence:
            self.knows_betas = False
            return True
        if "`thinking`" not in sentence and "`redacted_thinking`" not in sentence:
            return False
        replies = (message for message in messages if isinstance(message, ReplyMessage))
        sent = {part.signature for reply in replies for part in reply.parts if isinstance(part, Thinking)}
        is_new = not sent <= self.refused
        self.refused |= sent
        return is_new


_HABITS: WeakKeyDictionary[HttpClient, dict[str, _ServerHabits]] = WeakKeyDictionary()
"""By the connections of a session and URL: all models of a server share what is known about it."""


# --- request ---


class EncodedRequest(Struct, frozen=True):
    """A request. `mark` goes into the signatures of its reply; `says`: thinking with text is what the model says.

    `left_out` replies went without their thinking.
    """

    body: bytes
    betas: tuple[str, ...]
    mark: str
    says: bool
    left_out: int


def encode_request(
    request: Request,
    provider: str,
    cached: bool = True,
    selection: ImageSelection | None = None,
    history: EncodedHistory | None = None,
    habits: _ServerHabits | None = None,
) -> EncodedRequest:
    """Return the body with keys in a fixed order and messages last, so each request extends the bytes of the previous
    one."""
    contract, habits = get_contract(request.model), habits or _ServerHabits()
    body: dict[str, Any] = {"model": request.model, "max_tokens": request.max_tokens, "stream": True}
    if request.temperature is not None and not request.thinking and contract.sampling:
        body["temperature"] = min(request.temperature, 1.0)
    body |= _encode_thinking(request, contract)
    thinking = body.get("thinking", {})
    betas = _ask_for_betas(thinking, contract) if habits.knows_betas else ()
    if request.service_tier:
        body["service_tier"] = request.service_tier
    if request.schema is not None:
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": request.schema}
    if cached:
        body["cache_control"] = _EPHEMERAL
    tools, system = _encode_tools(request), _encode_texts(*request.system)
    head = start_hash(encode_body({"": [tools.get("tools"), system]})).hexdigest()
    body |= tools
    if system:
        system[-1] |= {"cache_control": _EPHEMERAL} if cached else {}
        body["system"] = system
    history = choose_history(request, history)
    messages = _encode_messages(request, provider, contract, selection, history, head, habits.refused)
    says = UPDATES_BETA in betas or thinking.get("type") == "between_tools"
    mark = f"{_combine(head, history.prefix)}.{history.last_thought}"
    return EncodedRequest(append_items(body, "messages", messages), betas, mark, says, history.left_out)


def _ask_for_betas(thinking: dict[str, Any], contract: ModelContract) -> tuple[str, ...]:
    """Add what needs a beta feature to the thinking, and return the features."""
    betas: list[str] = []
    if thinking.get("type") != "adaptive":
        return ()
    if contract.bound:
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
        betas.append(BINDING_BETA)
    if contract.display == "updates":
        thinking["display"] = "updates"
        betas.append(UPDATES_BETA)
    return tuple(betas)


def _encode_tools(request: Request) -> dict[str, Any]:
    """Return the tools. A history with tool calls needs them even if none is offered any more."""
    if request.tools:
        offered = [{"name": t.name, "description": t.description, "input_schema": t.schema} for t in request.tools]
        return {"tools": offered}
    called = dict.fromkeys(make_legal_name(call.name) for message in request.messages for call in _list_calls(message))
    if not called:
        return {}
    return {
        "tools": [{"name": name, "input_schema": {"type": "object"}} for name in called],
        "tool_choice": {"type": "none"},
    }


def _list_calls(message: Message) -> tuple[ToolCall, ...]:
    return message.calls if isinstance(message, ReplyMessage) else ()


def _encode_thinking(request: Request, contract: ModelContract) -> dict[str, Any]:
    """Return the thinking parameters: an effort for models since 4.6, a token budget for older ones.

    Models show their thinking only on request since 4.7, and since 5 they think by default.
    """
    shown = {"display": "summarized"} if contract.display else {}
    if request.effort == "none" or request.brief:
        if not contract.reasons:
            return {}
        if "disabled" in contract.thinking:
            return {"thinking": {"type": "disabled"}}
        least = {"output_config": {"effort": contract.efforts[0]}}
        if "between_tools" in contract.thinking:
            return {"thinking": {"type": "between_tools"}, **least}
        room = {"max_tokens": request.max_tokens + REASONING_ROOM} if request.brief else {}
        return {"thinking": {"type": "adaptive", **shown}, **least, **room}
    if not request.thinking:
        return {"thinking": {"type": "adaptive", **shown}} if contract.reasons else {}
    if "adaptive" in contract.thinking:
        effort = contract.choose_effort(request)
        return {"thinking": {"type": "adaptive", **shown}, "output_config": {"effort": effort}}
    if not contract.thinking:
        return {}
    budget, room = max(_MIN_BUDGET, request.thinking), request.max_tokens
    if room <= budget:  # the limit of the output includes the thinking
        room = min(budget + room, request.max_output or contract.max_output or budget + room)
        budget = min(budget, max(_MIN_BUDGET, room - request.max_tokens))
    if room <= budget:
        return {}
    found: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": budget}}
    return found if room == request.max_tokens else {**found, "max_tokens": room}


def _encode_messages(
    request: Request,
    provider: str,
    contract: ModelContract,
    selection: ImageSelection | None,
    history: EncodedHistory,
    head: str,
    refused: set[str],
) -> bytes:
    thinks = request.thinking > 0 or contract.reasons is True
    first = 0 if contract.keeps_thinking else history.loop_start
    shown = selection or ImageBudget().select_images(request, history.has_images)

    def encode(message: Message, index: int, ids: CallIdMap) -> list[dict[str, Any]] | BoundItems:
        if not isinstance(message, ReplyMessage):
            content = _encode_input(message, ids, shown)
            return [{"role": "user", "content": content}] if content else []
        own = may_replay(message, provider, request.model)
        reads = own or (message.provider == provider and contract.reads_from(message.model))
        prefix = _combine(head, history.prefix) if contract.bound else ""
        if not (thinks and reads and index >= first):
            return _encode_reply(message, ids)
        return _encode_thoughts(message, ids, prefix, refused)

    form = (request.model, request.images, thinks, first, head if contract.bound else "", len(refused))
    return history.encode(form, encode)


def _combine(head: str, messages: str) -> str:
    """Return what thinking is bound to: system prompt and tools, and the messages."""
    return start_hash(f"{head} {messages}".encode()).hexdigest()


class _Mark(Struct, frozen=True):
    """What is stored before a signature: the prefix of the request, the thinking before, and how many of the last
    characters of the text before are this thinking."""

    prefix: str = ""
    previous: str = ""
    said: int = 0


def _read_mark(signature: str) -> tuple[_Mark, str]:
    """Return the mark and the signature of the API. Sessions of earlier versions have no mark."""
    head, _, rest = signature.partition(" ")
    prefix, _, after = head.removeprefix("@").partition(".")
    previous, _, said = after.partition(".")
    if not (signature.startswith("@") and rest and said.isdecimal()):
        return _Mark(), signature
    return _Mark(prefix, previous, int(said)), rest


def _name_thought(signature: str) -> str:
    return start_hash(signature.encode()).hexdigest()[:8]


def _encode_reply(message: ReplyMessage, ids: CallIdMap) -> list[dict[str, Any]]:
    """Return the reply without its thinking; what was said in it is text."""
    blocks: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            blocks += _encode_texts(part.text)
        elif isinstance(part, ToolCall):
            blocks.append(_encode_call(part, ids))
    return _make_reply(blocks)


def _encode_thoughts(
    message: ReplyMessage, ids: CallIdMap, prefix: str, refused: set[str]
) -> list[dict[str, Any]] | BoundItems:
    """Return the reply with its thinking. If `prefix` is given, thinking with another one is lost."""
    parts = list(message.parts)
    while parts and isinstance(parts[-1], Thinking):  # the API rejects a reply that ends with thinking
        parts.pop()
    thoughts = [part for part in parts if isinstance(part, Thinking) and part.signature]
    if not thoughts:
        return _encode_reply(message, ids)
    marks = [_read_mark(part.signature)[0] for part in thoughts]
    if (prefix and marks[0].prefix != prefix) or not refused.isdisjoint(part.signature for part in thoughts):
        return BoundItems(_encode_reply(message, ids), [])
    full: list[dict[str, Any]] = []
    for at, part in enumerate(parts):
        if isinstance(part, Text):
            following = parts[at + 1] if at + 1 < len(parts) else None
            said = _read_mark(following.signature)[0].said if isinstance(following, Thinking) else 0
            full += _encode_texts(part.text[: max(0, len(part.text) - said)])
        elif isinstance(part, ToolCall):
            full.append(_encode_call(part, ids))
        elif part.signature:
            before = parts[at - 1] if at else None
            full.append(_encode_thought(part, before.text if isinstance(before, Text) else ""))
    plain = [block for block in full if block["type"] not in ("thinking", "redacted_thinking")]
    last = _name_thought(_read_mark(thoughts[-1].signature)[1])
    return BoundItems(_make_reply(plain), _make_reply(full), last, marks[0].previous if prefix else None)


def _encode_thought(part: Thinking, before: str) -> dict[str, Any]:
    mark, signature = _read_mark(part.signature)
    if signature.startswith(_REDACTED_PREFIX):
        return {"type": "redacted_thinking", "data": signature.removeprefix(_REDACTED_PREFIX)}
    text = before[max(0, len(before) - mark.said) :] if mark.said else part.text
    return {"type": "thinking", "thinking": text, "signature": signature}


def _encode_call(call: ToolCall, ids: CallIdMap) -> dict[str, Any]:
    return {"type": "tool_use", "id": ids.get(call.id), "name": make_legal_name(call.name), "input": call.args}


def _make_reply(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": blocks}] if blocks else []


def _encode_input(
    message: PromptMessage | ToolMessage, ids: CallIdMap, selection: ImageSelection
) -> list[dict[str, Any]]:
    if isinstance(message, PromptMessage):
        shown = selection.render(message)
        return [*_encode_images(shown), *_encode_texts(shown.text, *message.notes)]
    results: list[dict[str, Any]] = [
        {
            "type": "tool_result",
            "tool_use_id": ids.get(result.call_id),
            "content": _encode_content(selection.render(result)),
            **({"is_error": True} if result.is_error else {}),
        }
        for result in message.results
    ]
    return results + _encode_texts(*message.notes)


def _encode_content(shown: ShownContent) -> str | list[dict[str, Any]]:
    text = shown.text if shown.text.strip() else NO_OUTPUT
    images = _encode_images(shown)
    return [*_encode_texts(text), *images] if images else text


def _encode_images(shown: ShownContent) -> list[dict[str, Any]]:
    return [
        {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}} for kind, data in shown.images
    ]


def _encode_texts(*texts: str) -> list[dict[str, Any]]:
    """Return text blocks; the API rejects blocks without a visible character."""
    return [{"type": "text", "text": text} for text in texts if text.strip()]


# --- response ---


class _AnthropicUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _AnthropicMessage(Struct):
    model: str | None = None
    usage: _AnthropicUsage | None = None
    input_transformations: list[dict[str, Any]] | None = None


class _AnthropicBlock(Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: Any = None


class _AnthropicDelta(Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _AnthropicError(Struct):
    type: str | None = None
    message: str | None = None


class _AnthropicEvent(Struct):
    type: str = ""
    index: int = 0
    message: _AnthropicMessage | None = None
    content_block: _AnthropicBlock | None = None
    delta: _AnthropicDelta | None = None
    usage: _AnthropicUsage | None = None
    error: _AnthropicError | None = None


_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
}


class _OpenBlock(Struct):
    """A content block that is being received."""

    kind: str
    call: int = -1
    given: Any = None
    signature: str = ""
    said: int = 0
    received: bool = False


class _AnthropicReader(WireReader):
    """Reads a reply. `mark` is stored with its thinking; `says`: thinking with text is what the model says."""

    def __init__(self, context: ErrorContext, mark: str, losses: ThinkingLosses, *, says: bool) -> None:
        super().__init__(context)
        self._mark = mark
        self._losses = losses
        self._says = says
        if says:  # what it thinks is not shown: a long thought only pings
            self.patience = 10
        self._open: dict[int, _OpenBlock] = {}
        self._calls = 0
        self._usage = _AnthropicUsage()

    def feed(self, event: ServerEvent) -> Iterator[Chunk]:
        found = decode_event(_AnthropicEvent, event.data)
        if found.type == "content_block_delta":
            yield from self._handle_delta(found)
        elif found.type == "content_block_start":
            yield from self._start_block(found)
        elif found.type == "content_block_stop":
            yield from self._end_block(found.index)
        elif found.type == "message_start":
            if found.message is not None:
                self._model = get_reply_model(found.message.model, self._context.model)
                self._add_usage(found.message.usage)
                self._note_changes(found.message.input_transformations)
                yield UsageChunk(self._build_usage())
        elif found.type == "message_delta":
            self._add_usage(found.usage)
            if not (found.delta is None or not found.delta.stop_reason):
                self.settled = True
                self._stop = _STOP_REASONS.get(found.delta.stop_reason, "end_turn")
                if self._stop == "end_turn" and self._calls:
                    self._stop = "tool_use"
        elif found.type == "message_stop":
            self.settled = self.done = True
        elif found.type == "error" or found.error is not None:
            error = found.error or _AnthropicError()
            raise errors.make_reported_error(self._context, ApiErrorInfo(error.message or "", error.type or ""))

    def finish(self) -> Iterator[Chunk]:
        yield UsageChunk(self._build_usage())
        yield StopChunk(self._stop, self._model)

    def _start_block(self, event: _AnthropicEvent) -> Iterator[Chunk]:
        block = event.content_block or _AnthropicBlock()
        if block.type == "tool_use":
            self._open[event.index] = _OpenBlock("tool_use", self._calls, block.input)
            yield CallChunk(self._calls, id=block.id or f"call_{self._calls}", name=block.name or "")
            self._calls += 1
        elif block.type == "redacted_thinking":
            yield ThinkingChunk(signature=self._seal(_REDACTED_PREFIX + (block.data or "")))
        else:
            self._open[event.index] = _OpenBlock(block.type, signature=block.signature or "")
            if block.type == "text" and block.text:
                yield TextChunk(block.text)
            elif block.type == "thinking" and block.thinking:
                yield self._read_thinking(event.index, block.thinking)

    def _handle_delta(self, event: _AnthropicEvent) -> Iterator[Chunk]:
        delta = event.delta or _AnthropicDelta()
        if delta.text:
            yield TextChunk(delta.text)
        elif delta.partial_json:
            block = self._open.get(event.index)
            if block is not None and block.call >= 0:
                block.received = True
                yield CallChunk(block.call, json=delta.partial_json)
        elif delta.thinking:
            yield self._read_thinking(event.index, delta.thinking)
        elif delta.signature:
            block = self._open.setdefault(event.index, _OpenBlock("thinking"))
            block.signature += delta.signature

    def _end_block(self, index: int) -> Iterator[Chunk]:
        block = self._open.pop(index, None)
        if block is None:
            return
        if block.kind == "thinking" and block.signature:
            yield ThinkingChunk(signature=self._seal(block.signature, block.said))
        elif block.call >= 0:
            given = encode_body(block.given).decode() if block.given and not block.received else ""
            yield CallChunk(block.call, json=given, done=True)

    def _note_changes(self, changes: list[dict[str, Any]] | None) -> None:
        """Count what the API has not shown the model."""
        self._losses.dropped += sum(one.get("type") == "thinking_dropped" for one in changes or ())
        if changes and debug.write is not None:
            debug.write("input_transformations", {"model": self._context.model, "changes": changes})

    def _read_thinking(self, index: int, text: str) -> Chunk:
        if not self._says:
            return ThinkingChunk(text)
        self._open.setdefault(index, _OpenBlock("thinking")).said += len(text)
        return TextChunk(text)

    def _seal(self, signature: str, said: int = 0) -> str:
        return f"@{self._mark}.{said} {signature}"

    def _add_usage(self, usage: _AnthropicUsage | None) -> None:
        """Later events override earlier ones, field by field."""
        if usage is None:
            return
        for name in usage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                setattr(self._usage, name, value)

    def _build_usage(self) -> Usage:
        usage = self._usage
        return Usage(
            input=usage.input_tokens or 0,
            output=usage.output_tokens or 0,
            cache_read=usage.cache_read_input_tokens or 0,
            cache_write=usage.cache_creation_input_tokens or 0,
        )
