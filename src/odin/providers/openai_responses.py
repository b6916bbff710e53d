"""The OpenAI Responses API, without server-side state.

Reasoning arrives encrypted. It is stored as the signature of a thinking part and sent back to the model that produced
it: to one that does not keep that of earlier turns, only inside the running tool loop.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from odin.core.errors import BadRequest
from odin.core.message import Message, PromptMessage, ReplyMessage, Text, Thinking, ToolCall, ToolMessage, Usage
from odin.core.provider import CallChunk, Chunk, Request, StopChunk, TextChunk, ThinkingChunk, ToolSpec, UsageChunk
from odin.core.text import to_valid_unicode
from odin.providers import errors
from odin.providers.contracts import get_contract
from odin.providers.errors import ApiErrorInfo, ErrorContext
from odin.providers.payload import (
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
    format_result,
    get_reply_model,
    make_data_url,
    make_legal_name,
    may_replay,
)
from odin.providers.wire import ServerEvent, WireProvider, WireReader, choose_cache_key

_MIN_OUTPUT_TOKENS = 16
"""The API's minimum for max_output_tokens."""


class ResponsesProvider(WireProvider):
    """One server with {base_url}/responses."""

    path = "/responses"
    _summary = "auto"

    def takes_answer_schema(self, request: Request) -> bool:
        return get_contract(request.model).schemas

    def encode(self, request: Request, images: ImageSelection, history: EncodedHistory) -> bytes:
        key = choose_cache_key(request, self.url, self.server, self._options)
        effort = self.get_named_effort(request.model)
        return encode_request(request, self.name, images, history, effort=effort, cache_key=key, summary=self._summary)

    def adapt(self, request: Request, error: BadRequest) -> bool:
        if "prompt_cache_key" in str(error):
            return self._learn_once("prompt_cache_key")
        if self._summary and "reasoning summar" in str(error):  # organizations that are not verified get none
            self._summary = ""
            return True
        return self.learn_effort(request, error)

    def make_reader(self, context: ErrorContext, request: Request) -> WireReader:
        return _ResponsesReader(context, _find_freeform(request))


# --- request ---


class _SealedReasoning(Struct):
    """The parts of a reasoning item that must be sent back unchanged, stored as a signature."""

    id: str
    encrypted_content: str


def encode_request(
    request: Request,
    provider: str,
    selection: ImageSelection | None = None,
    history: EncodedHistory | None = None,
    *,
    effort: str | None = None,
    cache_key: str = "",
    summary: str = "auto",
) -> bytes:
    """Return the body with keys in a fixed order and input last, so each request extends the previous one.

    `effort` is sent instead of what the table says.
    """
    contract = get_contract(request.model)
    asked = bool(request.thinking or request.effort)
    reasons = asked if contract.reasons is None else contract.reasons
    body: dict[str, Any] = {"model": request.model, "stream": True, "store": False}
    if reasons:
        body["include"] = ["reasoning.encrypted_content"]
    body["max_output_tokens"] = max(_MIN_OUTPUT_TOKENS, request.max_tokens) + contract.get_reasoning_room(request)
    if request.temperature is not None and contract.sampling and not reasons:
        body["temperature"] = request.temperature
    shown = {"summary": summary} if summary else {}
    if effort is not None:
        body |= {"reasoning": {"effort": effort, **shown}} if effort else {}
    elif asked and reasons:
        body["reasoning"] = {"effort": contract.choose_effort(request), **shown}
    elif request.brief and contract.efforts:
        body["reasoning"] = {"effort": contract.efforts[0]}
    if request.service_tier:
        body["service_tier"] = request.service_tier
    if cache_key:
        body["prompt_cache_key"] = cache_key
    if request.schema is not None:
        shape = {"type": "json_schema", "name": "reply", "schema": request.schema, "strict": request.strict}
        body["text"] = {"format": shape}
    if request.tools:
        freeform = _find_freeform(request)
        body["tools"] = [_encode_tool(tool, is_freeform=tool.name in freeform) for tool in request.tools]
    system = "\n\n".join(block for block in request.system if block.strip())
    if system:
        body["instructions"] = system
    return append_items(body, "input", _encode_input(request, provider, reasons, selection, history))


def _find_freeform(request: Request) -> dict[str, str]:
    """Return the tools that are called with plain text, and the name of their argument."""
    if not get_contract(request.model).freeform:
        return {}
    return {tool.name: tool.freeform for tool in request.tools if tool.freeform}


def _encode_tool(tool: ToolSpec, *, is_freeform: bool) -> dict[str, Any]:
    if is_freeform:
        return {"type": "custom", "name": tool.name, "description": tool.description}
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
        "strict": False,
    }


def _encode_input(
    request: Request, provider: str, reasons: bool, selection: ImageSelection | None, history: EncodedHistory | None
) -> bytes:
    history = choose_history(request, history)
    first = 0 if get_contract(request.model).keeps_thinking else history.loop_start
    shown = selection or ImageBudget().select_images(request, history.has_images)
    freeform = _find_freeform(request)

    def encode(message: Message, index: int, ids: CallIdMap) -> list[dict[str, Any]]:
        if isinstance(message, ReplyMessage):
            replay = reasons and index >= first and may_replay(message, provider, request.model)
            # The reply's items. Reasoning without a following item is dropped: the API rejects it.
            items: list[dict[str, Any]] = []
            for part in message.parts:
                if isinstance(part, Text):
                    items += (
                        [{"type": "message", "role": "assistant", "content": part.text}] if part.text.strip() else []
                    )
                elif isinstance(part, ToolCall):
                    items.append(_encode_call(part, ids, freeform))
                elif replay:
                    items += _encode_reasoning(part)
            while items and items[-1]["type"] == "reasoning":
                items.pop()
            return items
        return _encode_message(message, ids, shown)

    return history.encode((request.model, request.images, reasons, first, *freeform), encode)


def _encode_message(
    message: PromptMessage | ToolMessage, ids: CallIdMap, selection: ImageSelection
) -> list[dict[str, Any]]:
    if isinstance(message, PromptMessage):
        return _encode_prompt(selection.render(message), message.notes)
    results: list[dict[str, Any]] = []
    for result in message.results:
        call_id = ids.get(result.call_id)
        kind = "custom_tool_call_output" if call_id in ids.freeform else "function_call_output"
        shown = selection.render(result)
        text = format_result(shown.text, result.is_error)
        images = _encode_images(shown)
        output = [{"type": "input_text", "text": text}, *images] if images else text
        results.append({"type": kind, "call_id": call_id, "output": output})
    return results + _encode_texts(*message.notes)


def _encode_images(shown: ShownContent) -> list[dict[str, Any]]:
    return [
        {"type": "input_image", "detail": "auto", "image_url": make_data_url(kind, data)} for kind, data in shown.images
    ]


def _encode_prompt(shown: ShownContent, notes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return a user message with its images."""
    texts = [{"type": "input_text", "text": text} for text in (shown.text, *notes) if text.strip()]
    content = [*texts, *_encode_images(shown)]
    return [{"type": "message", "role": "user", "content": content}] if content else []


def _encode_call(call: ToolCall, ids: CallIdMap, freeform: Mapping[str, str]) -> dict[str, Any]:
    call_id, name = ids.get(call.id), make_legal_name(call.name)
    text = call.args.get(freeform[call.name]) if call.name in freeform else None
    if isinstance(text, str) and len(call.args) == 1:
        ids.freeform.add(call_id)
        return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": text}
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": encode_arguments(call.args)}


def _encode_reasoning(part: Thinking) -> list[dict[str, Any]]:
    try:
        sealed = msgspec.json.decode(part.signature, type=_SealedReasoning)
    except (msgspec.DecodeError, UnicodeError):
        return []
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    return [{"type": "reasoning", "id": sealed.id, "summary": summary, "encrypted_content": sealed.encrypted_content}]


def _encode_texts(*texts: str) -> list[dict[str, Any]]:
    """Return one message with a part per text, or nothing."""
    content = [{"type": "input_text", "text": text} for text in texts if text.strip()]
    return [{"type": "message", "role": "user", "content": content}] if content else []


# --- response ---


class _ResponsesPart(Struct):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class _ResponsesItem(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    input: str | None = None
    content: list[_ResponsesPart] | None = None
    summary: list[_ResponsesPart] | None = None
    encrypted_content: str | None = None


class _ResponsesUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: TokenDetails | None = None
    output_tokens_details: TokenDetails | None = None


class _IncompleteDetails(Struct):
    reason: str | None = None


class _ResponsesError(Struct):
    message: str | None = None
    code: str | None = None
    type: str | None = None


class _ResponsesObject(Struct):
    model: str | None = None
    status: str | None = None
    usage: _ResponsesUsage | None = None
    incomplete_details: _IncompleteDetails | None = None
    error: _ResponsesError | None = None
    output: list[_ResponsesItem] | None = None


class _ResponsesEvent(Struct):
    type: str = ""
    output_index: int = 0
    delta: Any = None
    arguments: Any = None
    item: _ResponsesItem | None = None
    response: _ResponsesObject | None = None
    error: _ResponsesError | None = None
    message: str | None = None
    code: str | None = None


_DELTAS = (
    *("output_text.delta", "refusal.delta", "reasoning_summary_text.delta", "reasoning_text.delta"),
    *("function_call_arguments.delta", "custom_tool_call_input.delta"),
)


class _ResponsesReader(WireReader):
    reads_whole = True

    def __init__(self, context: ErrorContext, freeform: Mapping[str, str]) -> None:
        super().__init__(context)
        self._freeform = freeform
        self._calls: dict[int, int] = {}
        self._received_items: set[int] = set()
        self._summaries: set[int] = set()
        self._usage = Usage()
        self._refused = False

    def feed(self, event: ServerEvent) -> Iterator[Chunk]:
        if event.data.strip() == b"[DONE]":
            return
        found = decode_event(_ResponsesEvent, event.data)
        if not found.type:  # the whole response instead of its events
            yield from self._read_whole(decode_event(_ResponsesObject, event.data))
            return
        kind = found.type.removeprefix("response.")
        if kind in _DELTAS:
            yield from self._handle_delta(kind, found)
        elif kind == "reasoning_summary_part.added":
            if found.output_index in self._summaries:
                yield ThinkingChunk("\n\n")
        elif kind == "output_item.added":
            yield from self._begin_item(found)
        elif kind == "output_item.done":
            yield from self._end_item(found)
        elif kind in ("completed", "incomplete", "failed", "error", "cancelled"):
            self._finish_response(found)

    def _read_whole(self, response: _ResponsesObject) -> Iterator[Chunk]:
        for index, item in enumerate(response.output or ()):
            yield from self._end_item(_ResponsesEvent(output_index=index, item=item))
        status = response.status if response.status in ("failed", "cancelled") else "completed"
        self._finish_response(_ResponsesEvent(f"response.{status}", response=response))

    def finish(self) -> Iterator[Chunk]:
        yield UsageChunk(self._usage)
        yield StopChunk(self._stop, self._model)

    def _handle_delta(self, kind: str, event: _ResponsesEvent) -> Iterator[Chunk]:
        index, text = event.output_index, event.delta if isinstance(event.delta, str) else ""
        number = self._calls.get(index)
        if kind == "function_call_arguments.delta":
            text = encode_arguments(event.delta)
        elif kind == "custom_tool_call_input.delta":
            text = _escape(text)  # the next piece of the only argument of a call without JSON arguments
        if not text:
            return
        if "reasoning" in kind:
            self._summaries.add(index)
            yield ThinkingChunk(text)
        elif "call" not in kind:
            self._refused = self._refused or kind == "refusal.delta"
            self._received_items.add(index)
            yield TextChunk(text)
        elif number is not None:
            self._received_items.add(index)
            yield CallChunk(number, json=text)

    def _begin_item(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        item = event.item or _ResponsesItem()
        if item.type not in ("function_call", "custom_tool_call") or event.output_index in self._calls:
            return
        number = len(self._calls)
        self._calls[event.output_index] = number
        name = item.name or ""
        yield CallChunk(number, id=item.call_id or "", name=name)
        if item.type == "custom_tool_call":
            yield CallChunk(number, json=f'{{"{self._freeform.get(name, "input")}":"')

    def _end_item(self, event: _ResponsesEvent) -> Iterator[Chunk]:
        """Finish an item, adding what no delta contained."""
        item = event.item or _ResponsesItem()
        was_streamed = event.output_index in self._received_items
        if item.type == "function_call":
            yield from self._begin_item(event)
            text = "" if was_streamed else encode_arguments(item.arguments)
            yield CallChunk(self._calls[event.output_index], json=text, done=True)
        elif item.type == "custom_tool_call":
            yield from self._begin_item(event)
            text = "" if was_streamed else _escape(item.input or "")
            yield CallChunk(self._calls[event.output_index], json=f'{text}"}}', done=True)
        elif item.type == "reasoning":
            text = "\n\n".join(part.text for part in (item.summary or item.content or ()) if part.text)
            signature = ""
            if item.encrypted_content:
                signature = msgspec.json.encode(_SealedReasoning(item.id or "", item.encrypted_content)).decode()
            if signature or (text and event.output_index not in self._summaries):
                yield ThinkingChunk(final=text, signature=signature)
        elif item.type == "message" and not was_streamed:
            for part in item.content or ():
                self._refused = self._refused or bool(part.refusal)
                if part.text or part.refusal:
                    yield TextChunk(part.text or part.refusal or "")

    def _finish_response(self, event: _ResponsesEvent) -> None:
        response = event.response or _ResponsesObject()
        if event.type in ("error", "response.failed", "response.error", "response.cancelled"):
            error = event.error or response.error or _ResponsesError(event.message, event.code)
            raise errors.make_reported_error(
                self._context, ApiErrorInfo(error.message or "", error.type or "", error.code or "")
            )
        self.settled = self.done = True
        self._model = get_reply_model(response.model, self._context.model)
        # Usage without overlaps: cached tokens are subtracted from input, reasoning from output.
        usage = response.usage or _ResponsesUsage()
        details = usage.input_tokens_details or TokenDetails()
        read = details.cached_tokens or 0
        write = details.cache_write_tokens or 0
        reasoning = (usage.output_tokens_details or TokenDetails()).reasoning_tokens or 0
        self._usage = Usage(
            input=max(0, (usage.input_tokens or 0) - read - write),
            output=max(0, (usage.output_tokens or 0) - reasoning),
            cache_read=read,
            cache_write=write,
            reasoning=reasoning,
        )
        if event.type == "response.incomplete" or response.status == "incomplete":
            reason = (response.incomplete_details or _IncompleteDetails()).reason
            self._stop = "refusal" if reason == "content_filter" else "max_tokens"
        elif self._calls:
            self._stop = "tool_use"
        else:
            self._stop = "refusal" if self._refused else "end_turn"


def _escape(text: str) -> str:
    """Return the text as it stands inside a JSON string."""
    return msgspec.json.encode(to_valid_unicode(text)).decode()[1:-1]
