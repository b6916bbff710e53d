"""One reply as a stream of raw events in the shape of the Anthropic Messages API, whatever model wrote it."""

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from odin.core.event import CallStreamed
from odin.core.message import ReplyMessage, StopReason, Text, Thinking, Usage

Raw = dict[str, Any]


def to_usage_fields(usage: Usage) -> Raw:
    """Token counts under the names SDK users know. Reasoning is a part of the output there."""
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output + usage.reasoning,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
    }


def to_content_blocks(message: ReplyMessage) -> list[Raw]:
    """The parts of a reply as SDK content blocks."""
    blocks: list[Raw] = []
    for part in message.parts:
        if isinstance(part, Text):
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Thinking):
            blocks.append({"type": "thinking", "thinking": part.text, "signature": part.signature})
        else:
            blocks.append({"type": "tool_use", "id": part.id, "name": part.name, "input": part.args})
    return blocks


def make_message_id() -> str:
    return f"msg_{os.urandom(12).hex()}"


class PartialReply:
    """A reply while it is being written.

    Text and thinking blocks follow each other. Blocks of tool calls stay open until their call is complete, because
    some models write several at once.
    """

    def __init__(self, model: str) -> None:
        self.id = make_message_id()
        self._model = model
        self._started = False
        self._count = 0
        self._open_block: tuple[str, int] | None = None
        self._calls: dict[str, int] = {}
        self._written: set[str] = set()

    @property
    def has_started(self) -> bool:
        return self._started

    def add_text(self, text: str) -> Iterator[Raw]:
        yield from self._enter_block("text", {"type": "text", "text": ""})
        yield self._make_delta({"type": "text_delta", "text": text})

    def add_thinking(self, text: str) -> Iterator[Raw]:
        yield from self._enter_block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        yield self._make_delta({"type": "thinking_delta", "thinking": text})

    def add_call(self, event: CallStreamed) -> Iterator[Raw]:
        """A piece of a call. One that arrives whole is written in one piece."""
        index = self._calls.get(event.call_id)
        if index is None:
            if event.call_id in self._written:
                return
            yield from self._leave_block()
            index = self._calls[event.call_id] = self._take_index()
            block: Raw = {"type": "tool_use", "id": event.call_id, "name": event.name, "input": {}}
            yield from self._start_block(index, block)
        fragment = event.json_delta
        if event.done and not fragment and event.call_id not in self._written:
            fragment = msgspec.json.encode(event.args).decode()
        if fragment:
            self._written.add(event.call_id)
            delta = {"type": "input_json_delta", "partial_json": fragment}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        if event.done:
            self._written.add(event.call_id)
            del self._calls[event.call_id]
            yield {"type": "content_block_stop", "index": index}

    def add_whole(self, message: ReplyMessage) -> Iterator[Raw]:
        """A finished reply of which nothing was streamed."""
        for part in message.parts:
            if isinstance(part, Text):
                yield from self.add_text(part.text)
            elif isinstance(part, Thinking):
                yield from self.add_thinking(part.text)
            else:
                yield from self.add_call(CallStreamed(part.id, part.name, done=True, args=part.args))

    def finish(self, stop: StopReason, usage: Usage) -> Iterator[Raw]:
        yield from self._leave_block()
        for index in self._calls.values():
            yield {"type": "content_block_stop", "index": index}
        self._calls.clear()
        yield from self._start_message()
        delta = {"stop_reason": stop, "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": to_usage_fields(usage)}
        yield {"type": "message_stop"}

    def _start_message(self) -> Iterator[Raw]:
        if self._started:
            return
        self._started = True
        yield {
            "type": "message_start",
            "message": {
                "id": self.id,
                "type": "message",
                "role": "assistant",
                "model": self._model,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": to_usage_fields(Usage()),
            },
        }

    def _enter_block(self, kind: str, block: Raw) -> Iterator[Raw]:
        """Be in a text or thinking block of this kind, opening one if need be."""
        if self._open_block is not None and self._open_block[0] == kind:
            return
        yield from self._leave_block()
        self._open_block = (kind, self._take_index())
        yield from self._start_block(self._open_block[1], block)

    def _leave_block(self) -> Iterator[Raw]:
        if self._open_block is not None:
            yield {"type": "content_block_stop", "index": self._open_block[1]}
            self._open_block = None

    def _start_block(self, index: int, block: Raw) -> Iterator[Raw]:
        yield from self._start_message()
        yield {"type": "content_block_start", "index": index, "content_block": block}

    def _take_index(self) -> int:
        self._count += 1
        return self._count - 1

    def _make_delta(self, delta: Raw) -> Raw:
        assert self._open_block is not None
        return {"type": "content_block_delta", "index": self._open_block[1], "delta": delta}
