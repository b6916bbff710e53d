"""Builds one reply message from streamed chunks."""

import json
import re
from typing import Any, cast

import msgspec

from odin.core.message import ReplyMessage, StopReason, Text, Thinking, ToolCall, Usage
from odin.core.provider import CallChunk, Chunk, RollbackChunk, StopChunk, TextChunk, ThinkingChunk, UsageChunk


class MalformedCall(msgspec.Struct, frozen=True):
    """A tool call whose arguments are not a JSON object. It never runs."""

    name: str
    json: str


class Reply(msgspec.Struct, frozen=True):
    message: ReplyMessage
    usage: Usage
    malformed_calls: tuple[MalformedCall, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.message.text.strip() and not self.message.calls and not self.malformed_calls


class _PartialCall:
    __slots__ = ("fragments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.fragments: list[str] = []


class ReplyBuilder:
    """Collects chunks. Blocks keep the order of their first chunk."""

    def __init__(self, provider: str = "", model: str = "") -> None:
        self._provider = provider
        self._model = model
        self.reset()

    def reset(self) -> None:
        self._order: list[tuple[str, int]] = []
        self._texts: dict[int, list[str]] = {}
        self._thinking_blocks: dict[int, tuple[list[str], str]] = {}
        self._calls: dict[int, _PartialCall] = {}
        self.usage = Usage()
        self.stop: StopReason | None = None

    @property
    def has_started(self) -> bool:
        return bool(self._order)

    def add(self, chunk: Chunk) -> None:
        if isinstance(chunk, TextChunk):
            self._add_text(chunk.text)
        elif isinstance(chunk, CallChunk):
            self._add_call(chunk)
        elif isinstance(chunk, ThinkingChunk):
            self._add_thinking(chunk)
        elif isinstance(chunk, UsageChunk):
            self.usage = chunk.usage
        elif isinstance(chunk, StopChunk):
            self.stop = chunk.reason
            self._model = chunk.model or self._model
        elif isinstance(chunk, RollbackChunk):
            self.reset()

    def arguments_of(self, index: int) -> str:
        return "".join(self._calls[index].fragments)

    def name_of_call(self, index: int) -> str:
        return self._calls[index].name

    def finish(self, *, interrupted: bool = False) -> Reply:
        """Return the complete reply. After an interrupt keep only the text: a half-received call never runs."""
        parts: list[Text | Thinking | ToolCall] = []
        bad: list[MalformedCall] = []
        for kind, index in self._order:
            if kind == "text":
                text = "".join(self._texts[index])
                if text:
                    parts.append(Text(text))
            elif kind == "thinking":
                fragments, signature = self._thinking_blocks[index]
                parts.append(Thinking("".join(fragments), signature))
            elif kind == "call" and not interrupted:
                self._finish_call(self._calls[index], parts, bad)
        stop = self.stop or "end_turn"
        message = ReplyMessage(tuple(parts), self._provider, self._model, stop, interrupted)
        return Reply(message, self.usage, tuple(bad))

    def _finish_call(
        self, call: _PartialCall, parts: list[Text | Thinking | ToolCall], bad: list[MalformedCall]
    ) -> None:
        raw = "".join(call.fragments)
        args = parse_arguments(raw)
        if args is None or not call.name or (self.stop == "max_tokens" and not raw.strip()):
            bad.append(MalformedCall(call.name, raw))
        else:
            parts.append(ToolCall(call.id, call.name, args))

    def _add_text(self, text: str) -> None:
        if not text:
            return
        if not self._order or self._order[-1][0] != "text":
            self._order.append(("text", len(self._texts)))
            self._texts[len(self._texts)] = []
        self._texts[self._order[-1][1]].append(text)

    def _add_thinking(self, chunk: ThinkingChunk) -> None:
        if not self._order or self._order[-1][0] != "thinking":
            if not (chunk.text or chunk.final or chunk.signature):
                return
            self._order.append(("thinking", len(self._thinking_blocks)))
            self._thinking_blocks[len(self._thinking_blocks)] = ([], "")
        index = self._order[-1][1]
        fragments, signature = self._thinking_blocks[index]
        if chunk.text:
            fragments.append(chunk.text)
        if chunk.final:
            fragments[:] = [chunk.final]
        self._thinking_blocks[index] = (fragments, chunk.signature or signature)
        if chunk.signature:
            self._order.append(("closed", index))

    def _add_call(self, chunk: CallChunk) -> None:
        call = self._calls.get(chunk.index)
        if call is None:
            call = self._calls[chunk.index] = _PartialCall()
            self._order.append(("call", chunk.index))
        call.id = call.id or chunk.id
        call.name = call.name or chunk.name
        if chunk.json:
            call.fragments.append(chunk.json)


_SURROGATE = re.compile("[\ud800-\udfff]")


_MAX_DEPTH = 100
"""Maximum nesting of JSON arguments. Deeper values can be decoded here but not written to the log."""


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Return the arguments as a dict, or None if they are not a JSON object.

    An empty string means no arguments. Lone surrogates become U+FFFD and NaN becomes null.
    """
    if not raw.strip():
        return {}
    if _is_too_deep(raw):
        return None
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        try:
            value = _replace_surrogates(json.loads(raw, parse_constant=lambda name: None))
        except ValueError:
            return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _is_too_deep(raw: str) -> bool:
    if raw.count("[") + raw.count("{") <= _MAX_DEPTH:
        return False
    depth, quoted = 0, False
    for found in re.finditer(r'(?s)\\.|["\[\]{}]', raw):
        mark = found[0]
        if mark == '"':
            quoted = not quoted
        elif not quoted and len(mark) == 1:
            depth += 1 if mark in "[{" else -1
            if depth > _MAX_DEPTH:
                return True
    return False


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            _replace_surrogates(key): _replace_surrogates(item) for key, item in cast("dict[str, Any]", value).items()
        }
    return value
