"""The OpenAI Chat Completions API, and the many servers that implement it more or less.

System blocks are joined into one system message. Notes follow the prompt in the same message; after tool results they
are a user message, except for Mistral, which accepts none there. Reasoning is not sent back, except to the one vendor
whose API requires it.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict

from odin.core.errors import BadRequest
from odin.core.message import BilledUsage, Message, PromptMessage, ReplyMessage, StopReason, ToolMessage, Usage
from odin.core.provider import CallChunk, Chunk, Request, StopChunk, TextChunk, ThinkingChunk, UsageChunk
from odin.providers import errors
from odin.providers.contracts import get_contract
from odin.providers.errors import ErrorContext
from odin.providers.payload import (
    IMAGES_INTRO,
    CallIdMap,
    EncodedHistory,
    ImageBudget,
    ImageSelection,
    ShownContent,
    TokenDetails,
    append_items,
    choose_history,
    decode_event,
    encode_arguments,
    encode_body,
    format_result,
    get_reply_model,
    make_data_url,
    make_legal_id,
    make_legal_name,
    make_short_id,
    may_replay,
)
from odin.providers.wire import ServerEvent, WireProvider, WireReader, choose_cache_key, is_openai

_NULL_PATTERN = r"content.{0,60}(null|nil|none)\b|(null|nil)\b.{0,60}content"
"""How servers say that the content beside calls must not be null: Ollama, and several gateways."""


class ChatProvider(WireProvider):
    """One server with {base_url}/chat/completions."""

    path = "/chat/completions"

    def takes_answer_schema(self, request: Request) -> bool:
        return is_openai(self.url)

    def encode(self, request: Request, images: ImageSelection, history: EncodedHistory) -> bytes:
        return encode_request(
            request,
            self.url,
            self.name,
            images,
            history,
            effort=self.get_named_effort(request.model),
            cache_key=choose_cache_key(request, self.url, self.server, self._options),
            no_null=self._options.memory.has_refused(self.server, "null_content"),
        )

    def adapt(self, request: Request, error: BadRequest) -> bool:
        said = str(error)
        if "prompt_cache_key" in said:
            return self._learn_once("prompt_cache_key")
        if re.search(_NULL_PATTERN, said, re.IGNORECASE):
            return self._learn_once("null_content")
        return self.learn_effort(request, error)

    def make_reader(self, context: ErrorContext, request: Request) -> WireReader:
        return _ChatReader(context)


# --- request ---


def encode_request(
    request: Request,
    url: str,
    provider: str = "",
    selection: ImageSelection | None = None,
    history: EncodedHistory | None = None,
    *,
    effort: str | None = None,
    cache_key: str = "",
    no_null: bool = False,
) -> bytes:
    """Return the body with keys in a fixed order and messages last, so each request extends the bytes of the previous
    one.

    `effort` is sent instead of what the table says. `no_null`: the content beside calls is never null.
    """
    contract = get_contract(request.model)
    limit = "max_completion_tokens" if contract.completion_limit or is_openai(url) else "max_tokens"
    body: dict[str, Any] = {
        "model": request.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        limit: request.max_tokens + contract.get_reasoning_room(request),
    }
    if request.temperature is not None and contract.sampling:
        body["temperature"] = request.temperature
    if _is_deepseek(url):
        body["thinking"] = {"type": "enabled" if request.thinking else "disabled"}
    asked = request.thinking or (request.effort and not _is_deepseek(url))
    if effort is not None:
        body |= {"reasoning_effort": effort} if effort else {}
    elif request.tools and contract.chat_tool_effort:
        body["reasoning_effort"] = contract.chat_tool_effort
    elif asked and contract.reasons is not False:
        body["reasoning_effort"] = contract.choose_effort(request, over_chat=True)
    elif request.brief and contract.chat_efforts:
        body["reasoning_effort"] = contract.chat_efforts[0]
    if request.service_tier:
        body["service_tier"] = request.service_tier
    if cache_key:
        body["prompt_cache_key"] = cache_key
    if request.schema is not None:
        shape = {"name": "reply", "schema": request.schema, **({"strict": True} if request.strict else {})}
        body["response_format"] = {"type": "json_schema", "json_schema": shape}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in request.tools
        ]
    messages = _encode_messages(request, url, provider, selection, history, no_null=no_null)
    return append_items(body, "messages", messages)


def _is_deepseek(url: str) -> bool:
    """DeepSeek thinks by default, and requires the thinking behind each call in every later request."""
    return "://api.deepseek.com/" in url


_BRIDGE = ({"role": "assistant", "content": "I have read the results."},)
"""Between tool results and a user message, where Mistral requires a message of the assistant."""


_MISTRAL_MODELS = ("mistral", "ministral", "devstral", "codestral", "magistral", "pixtral")


def _is_after_results(messages: tuple[Message, ...], index: int) -> bool:
    """True if the last thing that is sent before this message is a tool result."""
    for message in reversed(messages[:index]):
        if isinstance(message, ReplyMessage):
            if message.calls or message.text.strip():
                return False
        else:
            return isinstance(message, ToolMessage)
    return False


def _encode_messages(
    request: Request,
    url: str,
    provider: str,
    selection: ImageSelection | None,
    history: EncodedHistory | None,
    *,
    no_null: bool,
) -> bytes:
    system = _join_texts(*request.system)
    strict = "://api.mistral.ai/" in url or any(name in request.model.lower() for name in _MISTRAL_MODELS)
    recalls = request.thinking > 0 and _is_deepseek(url)
    history = choose_history(request, history)
    shown = selection or ImageBudget().select_images(request, history.has_images)

    def encode(message: Message, index: int, ids: CallIdMap) -> list[dict[str, Any]]:
        if isinstance(message, PromptMessage):
            prompt = _encode_user(shown.render(message), *message.notes)
            return [*_BRIDGE, *prompt] if strict and prompt and _is_after_results(request.messages, index) else prompt
        if isinstance(message, ToolMessage):
            return _encode_results(message, ids, shown, strict)
        rendered = _encode_assistant(message, ids, no_null=no_null)
        if recalls and message.calls:
            own = may_replay(message, provider, request.model)
            rendered[0]["reasoning_content"] = message.thinking if own else ""
        return rendered

    legal = make_short_id if "://api.mistral.ai/" in url else make_legal_id
    items = history.encode((request.model, request.images, recalls, no_null), encode, legal)
    if not system:
        return items
    first = encode_body({"role": "system", "content": system})
    return first + b"," + items if items else first


def _join_texts(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _encode_user_texts(*texts: str) -> list[dict[str, Any]]:
    text = _join_texts(*texts)
    return [{"role": "user", "content": text}] if text else []


def _encode_user(shown: ShownContent, *notes: str) -> list[dict[str, Any]]:
    """Return a user message with its images."""
    if not shown.images:
        return _encode_user_texts(shown.text, *notes)
    text = _join_texts(shown.text, *notes)
    texts = [{"type": "text", "text": text}] if text else []
    return [{"role": "user", "content": [*texts, *_encode_images(shown)]}]


def _encode_images(*shown: ShownContent) -> list[dict[str, Any]]:
    return [
        {"type": "image_url", "image_url": {"url": make_data_url(kind, data)}}
        for one in shown
        for kind, data in one.images
    ]


def _encode_assistant(message: ReplyMessage, ids: CallIdMap, *, no_null: bool) -> list[dict[str, Any]]:
    text = message.text if message.text.strip() else None
    calls = [
        {
            "id": ids.get(call.id),
            "type": "function",
            "function": {"name": make_legal_name(call.name), "arguments": encode_arguments(call.args)},
        }
        for call in message.calls
    ]
    if calls:
        return [{"role": "assistant", "content": text or ("" if no_null else None), "tool_calls": calls}]
    return [{"role": "assistant", "content": text}] if text else []


def _encode_results(
    message: ToolMessage, ids: CallIdMap, selection: ImageSelection, strict: bool
) -> list[dict[str, Any]]:
    """Tool messages hold only text, so images follow in a user message before the notes.

    With `strict`, no user message follows a result directly: notes are part of the last one.
    """
    shown = [selection.render(one) for one in message.results]
    found: list[dict[str, Any]] = [
        {
            "role": "tool",
            "tool_call_id": ids.get(one.call_id),
            "content": format_result(what.text, one.is_error),
        }
        for one, what in zip(message.results, shown, strict=True)
    ]
    images = _encode_images(*shown)
    if strict and found and not images:
        found[-1]["content"] = _join_texts(found[-1]["content"], *message.notes)
        return found
    if not images:
        return found + _encode_user_texts(*message.notes)
    texts = [{"type": "text", "text": text} for text in (_join_texts(*message.notes),) if text]
    bridge = _BRIDGE if strict and found else ()
    return [*found, *bridge, {"role": "user", "content": [{"type": "text", "text": IMAGES_INTRO}, *images, *texts]}]


# --- response ---


class _ChatFunction(Struct):
    name: str | None = None
    arguments: Any = None


class _ChatToolCall(Struct):
    index: int | None = None
    id: str | None = None
    function: _ChatFunction | None = None


class _ChatDelta(Struct):
    content: Any = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[_ChatToolCall] | None = None
    function_call: _ChatFunction | None = None


class _ChatChoice(Struct):
    delta: _ChatDelta | None = None
    message: _ChatDelta | None = None
    finish_reason: str | None = None
    usage: "_ChatUsage | None" = None


class _CostDetails(Struct):
    upstream_inference_cost: float | None = None


class _ChatUsage(Struct):
    """`cost` is what OpenRouter bills; with a key of your own for the provider behind it, that bills the rest."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    cost: float | None = None
    is_byok: bool | None = None
    cost_details: _CostDetails | None = None


class _ChatChunk(Struct):
    model: str | None = None
    choices: list[_ChatChoice] | None = None
    usage: _ChatUsage | None = None
    error: Any = None


_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class _CallTracker:
    """Assigns streamed fragments to tool calls, although servers differ in what they send.

    Some omit the index or the id, some give every call the same index or id, some repeat the name in every fragment.
    """

    def __init__(self) -> None:
        self._by_index: dict[int, int] = {}
        self._ids: list[str] = []
        self._done: set[int] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def feed(self, fragment: _ChatToolCall) -> Iterator[CallChunk]:
        function = fragment.function or _ChatFunction()
        call_id = fragment.id or ""
        number = self._find(fragment.index, call_id, bool(function.name))
        text = encode_arguments(function.arguments)
        if number is None:
            yield from self.end()
            number = self._begin(fragment.index, call_id)
            yield CallChunk(number, id=self._ids[number], name=function.name or "", json=text)
        elif text:
            yield CallChunk(number, json=text)

    def end(self) -> Iterator[CallChunk]:
        """Mark all calls so far as complete."""
        for number in range(len(self._ids)):
            if number not in self._done:
                self._done.add(number)
                yield CallChunk(number, done=True)

    def _find(self, index: int | None, call_id: str, named: bool) -> int | None:
        if index is not None:
            number = self._by_index.get(index)
            if number is not None and call_id and named and call_id != self._ids[number]:
                return None
            return number
        if call_id:
            return self._ids.index(call_id) if call_id in self._ids else None
        return len(self._ids) - 1 if self._ids and not named else None

    def _begin(self, index: int | None, call_id: str) -> int:
        number = len(self._ids)
        if index is not None:
            self._by_index[index] = number
        self._ids.append(call_id)
        return number


class _ChatReader(WireReader):
    reads_whole = True

    def __init__(self, context: ErrorContext) -> None:
        super().__init__(context)
        self._calls = _CallTracker()
        self._usage: _ChatUsage | None = None
        self._has_received = False
        self._refused = False

    def feed(self, event: ServerEvent) -> Iterator[Chunk]:
        if event.data.strip() == b"[DONE]":
            self.done = self._has_received
            return
        self._has_received = True
        chunk = decode_event(_ChatChunk, event.data)
        if chunk.error or event.name == "error":
            raise errors.make_reported_error(self._context, errors.parse_error_body(event.data))
        self._model = get_reply_model(chunk.model, self._context.model) if chunk.model else self._model
        usage = chunk.usage or next((choice.usage for choice in chunk.choices or () if choice.usage), None)
        if usage is not None:
            self._usage = usage
        for choice in (chunk.choices or ())[:1]:
            yield from self._handle_delta(choice.delta or choice.message or _ChatDelta())
            if choice.finish_reason:
                yield from self._settle(choice.finish_reason)
        if self.settled and self._usage is not None and not chunk.choices:
            self.done = True
        elif chunk.choices and chunk.choices[0].message is not None:  # the whole reply
            self.settled = self.done = True
        elif usage is not None and not self.settled:  # some servers send it with every chunk
            yield UsageChunk(_build_usage(usage))

    def finish(self) -> Iterator[Chunk]:
        if self._stop != "max_tokens":
            yield from self._calls.end()
        yield UsageChunk(_build_usage(self._usage or _ChatUsage()))
        reason = self._stop
        if len(self._calls) and reason == "end_turn":
            reason = "tool_use"
        yield StopChunk("refusal" if self._refused and reason == "end_turn" else reason, self._model)

    def _handle_delta(self, delta: _ChatDelta) -> Iterator[Chunk]:
        thought = _get_text(delta.reasoning_content) or _get_text(delta.reasoning)
        if thought:
            yield ThinkingChunk(thought)
        if isinstance(delta.content, str):
            if delta.content:
                yield TextChunk(delta.content)
        elif delta.content:
            yield from _read_parts(delta.content)
        if delta.refusal:
            self._refused = True
            yield TextChunk(delta.refusal)
        for fragment in delta.tool_calls or ():
            yield from self._calls.feed(fragment)
        if delta.function_call is not None:
            yield from self._calls.feed(_ChatToolCall(index=0, function=delta.function_call))

    def _settle(self, reason: str) -> Iterator[Chunk]:
        if reason == "error":
            raise errors.make_reported_error(self._context, errors.ApiErrorInfo("the model failed", "server_error"))
        self.settled = True
        self._stop = _STOP_REASONS.get(reason, "end_turn")
        if self._stop != "max_tokens":
            yield from self._calls.end()


def _get_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _read_parts(content: Any) -> Iterator[Chunk]:
    """Yield chunks from content given as a list of parts: text, and thinking as a list of texts."""
    for part in cast("list[Any]", content) if isinstance(content, list) else []:
        if not isinstance(part, dict):
            continue
        found = cast("dict[str, Any]", part)
        thinking = found.get("thinking")
        if isinstance(found.get("text"), str) and found["text"]:
            yield TextChunk(found["text"])
        elif isinstance(thinking, str) and thinking:
            yield ThinkingChunk(thinking)
        elif isinstance(thinking, list):
            for piece in _read_parts(cast("list[Any]", thinking)):
                if isinstance(piece, TextChunk):
                    yield ThinkingChunk(piece.text)


def _build_usage(usage: _ChatUsage) -> Usage:
    """Return usage without overlaps: cached tokens are subtracted from input, reasoning from output.

    One vendor counts reasoning in addition to output; the total shows which.
    """
    details = usage.prompt_tokens_details or TokenDetails()
    read = details.cached_tokens or usage.prompt_cache_hit_tokens or 0
    write = details.cache_write_tokens or 0
    prompt = usage.prompt_tokens or 0
    output = usage.completion_tokens or 0
    reasoning = (usage.completion_tokens_details or TokenDetails()).reasoning_tokens or 0
    is_separate = reasoning > output or (usage.total_tokens or 0) == prompt + output + reasoning
    tokens = Usage(
        input=max(0, prompt - read - write),
        output=output if is_separate else output - reasoning,
        cache_read=read,
        cache_write=write,
        reasoning=reasoning,
    )
    if usage.cost is None:
        return tokens
    upstream = (usage.cost_details or _CostDetails()).upstream_inference_cost or 0.0
    return BilledUsage(**asdict(tokens), billed_usd=usage.cost + (upstream if usage.is_byok else 0.0))
