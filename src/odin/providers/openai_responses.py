"""The OpenAI Responses API, without anything kept on the server.

Reasoning comes encrypted. It is kept as the signature of a thinking part and goes back only inside the running tool
loop, to the very model that had it.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from odin.core.message import AssistantMessage, StopReason, Text, Thinking, ToolCall, ToolMessage, Usage, UserMessage
from odin.core.provider import CallPiece, Piece, Request, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from odin.providers import faults
from odin.providers.exchange import WireProvider
from odin.providers.faults import Peer, Said
from odin.providers.payload import (
    CallIds,
    answered_by,
    arguments_json,
    count_calls,
    decode,
    effort,
    encode,
    is_reasoner,
    legal_name,
    may_replay,
    result_text,
    running_loop,
    takes_effort,
)
from odin.providers.pictures import Album, Pictures, Shown, data_url
from odin.providers.sse import ServerEvent

_FEWEST = 16
"""The API refuses to be limited to fewer tokens than this."""


class ResponsesProvider(WireProvider):
    """Asks one server that has {base_url}/responses."""

    path = "/responses"

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        calls = count_calls(request.messages)
        return self.ask(
            request, lambda album: encode_request(request, self.name, album), lambda peer: _Reader(peer, calls)
        )


# --- the request ---


class _Sealed(Struct):
    """What must come back unchanged of a reasoning item; it is kept as the signature of a thinking part."""

    id: str
    encrypted_content: str


def encode_request(request: Request, provider: str, album: Album | None = None) -> bytes:
    """Keys in a fixed order, input last, so that each request continues the bytes of the one before."""
    reasons = is_reasoner(request.model) or (request.thinking > 0 and takes_effort(request.model))
    body: dict[str, Any] = {"model": request.model, "stream": True, "store": False}
    if reasons:
        body["include"] = ["reasoning.encrypted_content"]
    body["max_output_tokens"] = max(_FEWEST, request.max_tokens)
    if request.temperature is not None and not reasons:
        body["temperature"] = request.temperature
    if request.thinking and reasons:
        body["reasoning"] = {"effort": effort(request.thinking), "summary": "auto"}
    if request.schema is not None:
        shape = {"type": "json_schema", "name": "reply", "schema": request.schema, "strict": False}
        body["text"] = {"format": shape}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": False,
            }
            for tool in request.tools
        ]
    system = "\n\n".join(block for block in request.system if block.strip())
    if system:
        body["instructions"] = system
    body["input"] = _input(request, provider, reasons, album or Pictures().album(request))
    return encode(body)


def _input(request: Request, provider: str, reasons: bool, album: Album) -> list[dict[str, Any]]:
    loop = running_loop(request.messages)
    ids = CallIds()
    items: list[dict[str, Any]] = []
    for index, message in enumerate(request.messages):
        if isinstance(message, AssistantMessage):
            replay = reasons and index >= loop and may_replay(message, provider, request.model)
            items += _reply(message, replay, ids)
        else:
            items += _told(message, ids, album)
    return items


def _told(message: UserMessage | ToolMessage, ids: CallIds, album: Album) -> list[dict[str, Any]]:
    if isinstance(message, UserMessage):
        return _prompt(album.of(message), message.notes)
    results: list[dict[str, Any]] = [
        {
            "type": "function_call_output",
            "call_id": ids.result(result.call_id),
            "output": _output(album.of(result), result.is_error),
        }
        for result in message.results
    ]
    return results + _said("user", "input_text", *message.notes)


def _output(shown: Shown, is_error: bool) -> str | list[dict[str, Any]]:
    text = result_text(shown.text, is_error)
    images = _images(shown)
    return [{"type": "input_text", "text": text}, *images] if images else text


def _images(shown: Shown) -> list[dict[str, Any]]:
    return [{"type": "input_image", "image_url": data_url(kind, data)} for kind, data in shown.images]


def _prompt(shown: Shown, notes: tuple[str, ...]) -> list[dict[str, Any]]:
    """What a person said, with the images beside it."""
    texts = [{"type": "input_text", "text": text} for text in (shown.text, *notes) if text.strip()]
    content = [*texts, *_images(shown)]
    return [{"type": "message", "role": "user", "content": content}] if content else []


def _reply(message: AssistantMessage, replay: bool, ids: CallIds) -> list[dict[str, Any]]:
    """What the model said and called. Reasoning that led to nothing is left out: the API wants what followed it."""
    items: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            items += _said("assistant", "output_text", part.text)
        elif isinstance(part, ToolCall):
            items.append(
                {
                    "type": "function_call",
                    "call_id": ids.call(part.id),
                    "name": legal_name(part.name),
                    "arguments": arguments_json(part.args),
                }
            )
        elif replay:
            items += _reasoning(part)
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items


def _reasoning(part: Thinking) -> list[dict[str, Any]]:
    try:
        sealed = msgspec.json.decode(part.signature, type=_Sealed)
    except (msgspec.DecodeError, UnicodeError):
        return []
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    return [{"type": "reasoning", "id": sealed.id, "summary": summary, "encrypted_content": sealed.encrypted_content}]


def _said(role: str, kind: str, *texts: str) -> list[dict[str, Any]]:
    """One message with a part for each text; nothing when there is nothing to say."""
    content = [{"type": kind, "text": text} for text in texts if text.strip()]
    return [{"type": "message", "role": role, "content": content}] if content else []


# --- the answer ---


class _Part(Struct):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class _Item(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Error(Struct):
    message: str | None = None
    code: str | None = None
    type: str | None = None


class _Response(Struct):
    model: str | None = None
    status: str | None = None
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: _Error | None = None


class _Event(Struct):
    type: str = ""
    output_index: int = 0
    delta: Any = None
    arguments: Any = None
    item: _Item | None = None
    response: _Response | None = None
    error: _Error | None = None
    message: str | None = None
    code: str | None = None


_DECODER = msgspec.json.Decoder(_Event)


class _Reader:
    def __init__(self, peer: Peer, earlier_calls: int) -> None:
        self.settled = False
        self.done = False
        self._peer = peer
        self._earlier = earlier_calls
        self._calls: dict[int, int] = {}
        self._heard: set[int] = set()
        self._summaries: set[int] = set()
        self._model = peer.model
        self._usage = Usage()
        self._stop: StopReason = "end_turn"
        self._refused = False

    def feed(self, event: ServerEvent) -> Iterator[Piece]:
        if event.data.strip() == b"[DONE]":
            return
        found = decode(_DECODER, event.data)
        kind = found.type.removeprefix("response.")
        if kind in ("output_text.delta", "refusal.delta"):
            self._refused = self._refused or kind == "refusal.delta"
            yield from self._text(found)
        elif kind == "function_call_arguments.delta":
            yield from self._arguments(found)
        elif kind in ("reasoning_summary_text.delta", "reasoning_text.delta"):
            yield from self._thought(found)
        elif kind == "reasoning_summary_part.added":
            if found.output_index in self._summaries:
                yield ThinkingPiece("\n\n")
        elif kind == "output_item.added":
            yield from self._begin(found)
        elif kind == "output_item.done":
            yield from self._end(found)
        elif kind in ("completed", "incomplete", "failed", "error", "cancelled"):
            self._conclude(found)

    def finish(self) -> Iterator[Piece]:
        yield UsagePiece(self._usage)
        yield StopPiece(self._stop, self._model)

    def _text(self, event: _Event) -> Iterator[Piece]:
        if isinstance(event.delta, str) and event.delta:
            self._heard.add(event.output_index)
            yield TextPiece(event.delta)

    def _thought(self, event: _Event) -> Iterator[Piece]:
        if isinstance(event.delta, str) and event.delta:
            self._summaries.add(event.output_index)
            yield ThinkingPiece(event.delta)

    def _arguments(self, event: _Event) -> Iterator[Piece]:
        number = self._calls.get(event.output_index)
        text = arguments_json(event.delta)
        if number is not None and text:
            self._heard.add(event.output_index)
            yield CallPiece(number, json=text)

    def _begin(self, event: _Event) -> Iterator[Piece]:
        item = event.item or _Item()
        if item.type != "function_call" or event.output_index in self._calls:
            return
        number = len(self._calls)
        self._calls[event.output_index] = number
        yield CallPiece(number, id=item.call_id or f"call_{self._earlier + number}", name=item.name or "")

    def _end(self, event: _Event) -> Iterator[Piece]:
        """An item is complete. What no delta brought is in it."""
        item = event.item or _Item()
        heard = event.output_index in self._heard
        if item.type == "function_call":
            yield from self._begin(event)
            text = "" if heard else arguments_json(item.arguments)
            yield CallPiece(self._calls[event.output_index], json=text, done=True)
        elif item.type == "reasoning":
            yield from self._seal(item, event.output_index in self._summaries)
        elif item.type == "message" and not heard:
            for part in item.content or ():
                self._refused = self._refused or bool(part.refusal)
                if part.text or part.refusal:
                    yield TextPiece(part.text or part.refusal or "")

    def _seal(self, item: _Item, heard: bool) -> Iterator[Piece]:
        text = "\n\n".join(part.text for part in (item.summary or item.content or ()) if part.text)
        signature = ""
        if item.encrypted_content:
            signature = msgspec.json.encode(_Sealed(item.id or "", item.encrypted_content)).decode()
        if signature or (text and not heard):
            yield ThinkingPiece(final=text, signature=signature)

    def _conclude(self, event: _Event) -> None:
        response = event.response or _Response()
        if event.type in ("error", "response.failed", "response.error", "response.cancelled"):
            error = event.error or response.error or _Error(event.message, event.code)
            raise faults.reported(self._peer, Said(error.message or "", error.type or "", error.code or ""))
        self.settled = self.done = True
        self._model = answered_by(response.model, self._peer.model)
        self._usage = _total(response.usage or _Usage())
        self._stop = self._reason(event, response)

    def _reason(self, event: _Event, response: _Response) -> StopReason:
        if event.type == "response.incomplete" or response.status == "incomplete":
            reason = (response.incomplete_details or _Incomplete()).reason
            return "refusal" if reason == "content_filter" else "max_tokens"
        if self._calls:
            return "tool_use"
        return "refusal" if self._refused else "end_turn"


def _total(usage: _Usage) -> Usage:
    """Our kinds do not overlap: cached input is taken out of the input, reasoning out of the output."""
    details = usage.input_tokens_details or _InputDetails()
    read = details.cached_tokens or 0
    write = details.cache_write_tokens or 0
    reasoning = (usage.output_tokens_details or _OutputDetails()).reasoning_tokens or 0
    return Usage(
        input=max(0, (usage.input_tokens or 0) - read - write),
        output=max(0, (usage.output_tokens or 0) - reasoning),
        cache_read=read,
        cache_write=write,
        reasoning=reasoning,
    )
