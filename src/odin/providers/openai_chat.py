"""The OpenAI Chat Completions API, and the many servers that speak it more or less.

System blocks are joined to one system message. Notes follow the prompt in the same message; after tool results they
are a user message of their own. Reasoning is read but not sent back, except to the one vendor whose API demands it.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.core.message import AssistantMessage, StopReason, ToolMessage, Usage, UserMessage
from odin.core.provider import CallPiece, Piece, Request, StopPiece, TextPiece, ThinkingPiece, UsagePiece
from odin.providers import faults
from odin.providers.exchange import WireProvider
from odin.providers.faults import Peer
from odin.providers.payload import (
    CallIds,
    answered_by,
    arguments_json,
    count_calls,
    decode,
    effort,
    encode,
    is_reasoner,
    legal_id,
    legal_name,
    may_replay,
    result_text,
    short_id,
    takes_effort,
)
from odin.providers.pictures import Album, Pictures, Shown, data_url
from odin.providers.sse import ServerEvent

_IMAGES = "Images of the results above:"


class ChatProvider(WireProvider):
    """Asks one server that has {base_url}/chat/completions."""

    path = "/chat/completions"

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        calls = count_calls(request.messages)
        return self.ask(
            request,
            lambda album: encode_request(request, self.url, self.name, album),
            lambda peer: _Reader(peer, calls),
        )


# --- the request ---


def encode_request(request: Request, url: str, provider: str = "", album: Album | None = None) -> bytes:
    """Keys in a fixed order, messages last, so that each request continues the bytes of the one before."""
    reasoner = is_reasoner(request.model)
    limit = "max_completion_tokens" if reasoner or "://api.openai.com/" in url else "max_tokens"
    body: dict[str, Any] = {
        "model": request.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        limit: request.max_tokens,
    }
    if request.temperature is not None and not reasoner:
        body["temperature"] = request.temperature
    if _is_deepseek(url):
        body["thinking"] = {"type": "enabled" if request.thinking else "disabled"}
    if request.thinking and takes_effort(request.model):
        body["reasoning_effort"] = effort(request.thinking)
    if request.schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": request.schema}}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in request.tools
        ]
    body["messages"] = _messages(request, url, provider, album or Pictures().album(request))
    return encode(body)


def _is_deepseek(url: str) -> bool:
    """DeepSeek thinks unless told not to, and wants the thoughts behind each call back in every later request."""
    return "://api.deepseek.com/" in url


def _messages(request: Request, url: str, provider: str, album: Album) -> list[dict[str, Any]]:
    system = _joined(*request.system)
    found: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    ids = CallIds(short_id if "://api.mistral.ai/" in url else legal_id)
    recalls = request.thinking > 0 and _is_deepseek(url)
    for message in request.messages:
        if isinstance(message, UserMessage):
            found += _said(album.of(message), *message.notes)
        elif isinstance(message, ToolMessage):
            found += _results(message, ids, album)
        else:
            said = _assistant(message, ids)
            if recalls and message.calls:
                own = may_replay(message, provider, request.model)
                said[0]["reasoning_content"] = message.thinking if own else ""
            found += said
    return found


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _user(*texts: str) -> list[dict[str, Any]]:
    text = _joined(*texts)
    return [{"role": "user", "content": text}] if text else []


def _said(shown: Shown, *notes: str) -> list[dict[str, Any]]:
    """What a person said, with the images beside it."""
    if not shown.images:
        return _user(shown.text, *notes)
    text = _joined(shown.text, *notes)
    told = [{"type": "text", "text": text}] if text else []
    return [{"role": "user", "content": [*told, *_images(shown)]}]


def _images(*shown: Shown) -> list[dict[str, Any]]:
    return [
        {"type": "image_url", "image_url": {"url": data_url(kind, data)}} for one in shown for kind, data in one.images
    ]


def _assistant(message: AssistantMessage, ids: CallIds) -> list[dict[str, Any]]:
    text = message.text if message.text.strip() else None
    calls = [
        {
            "id": ids.call(call.id),
            "type": "function",
            "function": {"name": legal_name(call.name), "arguments": arguments_json(call.args)},
        }
        for call in message.calls
    ]
    if calls:
        return [{"role": "assistant", "content": text, "tool_calls": calls}]
    return [{"role": "assistant", "content": text}] if text else []


def _results(message: ToolMessage, ids: CallIds, album: Album) -> list[dict[str, Any]]:
    """Messages of results hold text only, so their images follow in a message of the user, before the notes."""
    shown = [album.of(one) for one in message.results]
    found: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": ids.result(one.call_id), "content": result_text(what.text, one.is_error)}
        for one, what in zip(message.results, shown, strict=True)
    ]
    images = _images(*shown)
    if not images:
        return found + _user(*message.notes)
    told = [{"type": "text", "text": text} for text in (_joined(*message.notes),) if text]
    return [*found, {"role": "user", "content": [{"type": "text", "text": _IMAGES}, *images, *told]}]


# --- the answer ---


class _Function(Struct):
    name: str | None = None
    arguments: Any = None


class _ToolCall(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: Any = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Chunk(Struct):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class _Calls:
    """Finds out which call a fragment belongs to, though servers differ in what they tell.

    Some leave out the index, some the id, some give every call the same index or the same id, some repeat the name in
    every fragment. `earlier` counts the calls of the conversation so far, so that an invented id is used only once.
    """

    def __init__(self, earlier: int) -> None:
        self._earlier = earlier
        self._by_index: dict[int, int] = {}
        self._told_ids: list[str] = []
        self._ids: list[str] = []
        self._done: set[int] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def feed(self, fragment: _ToolCall) -> Iterator[CallPiece]:
        function = fragment.function or _Function()
        told = fragment.id or ""
        number = self._find(fragment.index, told, bool(function.name))
        text = arguments_json(function.arguments)
        if number is None:
            yield from self.end()
            number = self._begin(fragment.index, told)
            yield CallPiece(number, id=self._ids[number], name=function.name or "", json=text)
        elif text:
            yield CallPiece(number, json=text)

    def end(self) -> Iterator[CallPiece]:
        """Mark the calls so far as complete."""
        for number in range(len(self._ids)):
            if number not in self._done:
                self._done.add(number)
                yield CallPiece(number, done=True)

    def _find(self, index: int | None, told: str, named: bool) -> int | None:
        if index is not None:
            number = self._by_index.get(index)
            if number is not None and told and named and told != self._told_ids[number]:
                return None
            return number
        if told:
            return self._told_ids.index(told) if told in self._told_ids else None
        return len(self._ids) - 1 if self._ids and not named else None

    def _begin(self, index: int | None, told: str) -> int:
        number = len(self._ids)
        if index is not None:
            self._by_index[index] = number
        self._told_ids.append(told)
        self._ids.append(told if told and told not in self._ids else f"call_{self._earlier + number}")
        return number


class _Reader:
    def __init__(self, peer: Peer, earlier_calls: int) -> None:
        self.settled = False
        self.done = False
        self._peer = peer
        self._calls = _Calls(earlier_calls)
        self._usage: _Usage | None = None
        self._model = peer.model
        self._heard = False
        self._stop: StopReason = "end_turn"
        self._refused = False

    def feed(self, event: ServerEvent) -> Iterator[Piece]:
        if event.data.strip() == b"[DONE]":
            self.done = self._heard
            return
        self._heard = True
        chunk = decode(_DECODER, event.data)
        if chunk.error or event.name == "error":
            raise faults.reported(self._peer, faults.parse_said(event.data))
        self._model = answered_by(chunk.model, self._peer.model) if chunk.model else self._model
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in (chunk.choices or ())[:1]:
            yield from self._delta(choice.delta or choice.message or _Delta())
            if choice.finish_reason:
                yield from self._settle(choice.finish_reason)
        if self.settled and self._usage is not None and not chunk.choices:
            self.done = True

    def finish(self) -> Iterator[Piece]:
        if self._stop != "max_tokens":
            yield from self._calls.end()
        yield UsagePiece(_total(self._usage or _Usage()))
        reason = self._stop
        if len(self._calls) and reason == "end_turn":
            reason = "tool_use"
        yield StopPiece("refusal" if self._refused and reason == "end_turn" else reason, self._model)

    def _delta(self, delta: _Delta) -> Iterator[Piece]:
        thought = _plain(delta.reasoning_content) or _plain(delta.reasoning)
        if thought:
            yield ThinkingPiece(thought)
        if isinstance(delta.content, str):
            if delta.content:
                yield TextPiece(delta.content)
        elif delta.content:
            yield from _parts(delta.content)
        if delta.refusal:
            self._refused = True
            yield TextPiece(delta.refusal)
        for fragment in delta.tool_calls or ():
            yield from self._calls.feed(fragment)
        if delta.function_call is not None:
            yield from self._calls.feed(_ToolCall(index=0, function=delta.function_call))

    def _settle(self, reason: str) -> Iterator[Piece]:
        if reason == "error":
            raise faults.reported(self._peer, faults.Said("the model failed", "server_error"))
        self.settled = True
        self._stop = _STOPS.get(reason, "end_turn")
        if self._stop != "max_tokens":
            yield from self._calls.end()


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _parts(content: Any) -> Iterator[Piece]:
    """Content as a list of parts: text, and thinking that is itself a list of text."""
    for part in cast("list[Any]", content) if isinstance(content, list) else []:
        if not isinstance(part, dict):
            continue
        found = cast("dict[str, Any]", part)
        thinking = found.get("thinking")
        if isinstance(found.get("text"), str) and found["text"]:
            yield TextPiece(found["text"])
        elif isinstance(thinking, str) and thinking:
            yield ThinkingPiece(thinking)
        elif isinstance(thinking, list):
            for piece in _parts(cast("list[Any]", thinking)):
                if isinstance(piece, TextPiece):
                    yield ThinkingPiece(piece.text)


def _total(usage: _Usage) -> Usage:
    """Our kinds do not overlap: cached input is taken out of the input, reasoning out of the output.

    One vendor counts reasoning beside the output instead of inside it; the total tells.
    """
    details = usage.prompt_tokens_details or _PromptDetails()
    read = details.cached_tokens or usage.prompt_cache_hit_tokens or 0
    write = details.cache_write_tokens or 0
    prompt = usage.prompt_tokens or 0
    output = usage.completion_tokens or 0
    reasoning = (usage.completion_tokens_details or _OutputDetails()).reasoning_tokens or 0
    beside = reasoning > output or (usage.total_tokens or 0) == prompt + output + reasoning
    return Usage(
        input=max(0, prompt - read - write),
        output=output if beside else output - reasoning,
        cache_read=read,
        cache_write=write,
        reasoning=reasoning,
    )
