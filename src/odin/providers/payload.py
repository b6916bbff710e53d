"""Shared parts of the wire formats: encoding requests and decoding responses."""

import re
from binascii import crc32
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import msgspec

from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage

T = TypeVar("T")

NO_OUTPUT = "(no output)"
"""Stands for a tool result without text, which some APIs reject."""


def encode_body(body: dict[str, Any]) -> bytes:
    """Return the body as JSON. Lone surrogates become U+FFFD, because no API accepts them."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_replace_surrogates(body))


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, (list, tuple)):
        return [_replace_surrogates(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            _replace_surrogates(key): _replace_surrogates(item) for key, item in cast("dict[str, Any]", value).items()
        }
    return value


def decode_event(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """Return one decoded event. Invalid UTF-8 and surrogate escapes are repaired."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        import json

        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            raise msgspec.DecodeError("not JSON") from None
        return decoder.decode(encode_body({"value": value})[9:-1])


def encode_arguments(value: Any) -> str:
    """Return a call's arguments as JSON text; some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode_body({"value": value})[9:-1].decode()


def make_legal_id(call_id: str) -> str:
    """Return a call id every API accepts. Deterministic, and different ids stay different."""
    if _is_legal(call_id) and len(call_id) <= 40:
        return call_id
    return f"{_replace_illegal(call_id)[:31]}_{crc32(call_id.encode('utf-8', 'replace')):08x}"


def make_short_id(call_id: str) -> str:
    """Return nine letters and digits, the only form one API accepts."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return f"{crc32(call_id.encode('utf-8', 'replace')):08x}0"


def make_legal_name(name: str) -> str:
    """Return a tool name the APIs accept; a model may have called something that is not a valid name."""
    return name if _is_legal(name) and len(name) <= 64 else _replace_illegal(name)[:64] or "unknown"


def _is_legal(text: str) -> bool:
    return text.isascii() and text.replace("_", "a").replace("-", "a").isalnum()


def _replace_illegal(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text)


class CallIdMap:
    """The call ids of one request: legal, and each used once.

    A history may contain ids of another API, and some servers restart counting with every reply. An id depends only on
    the messages before it, so bytes already sent never change.
    """

    def __init__(self, legal: Callable[[str], str] = make_legal_id) -> None:
        self._legal = legal
        self._used: set[str] = set()
        self._open: dict[str, list[str]] = {}

    def add_call(self, call_id: str) -> str:
        found, count = self._legal(call_id), 1
        while found in self._used:
            count += 1
            found = self._legal(f"{call_id}_{count}")
        self._used.add(found)
        self._open.setdefault(call_id, []).append(found)
        return found

    def take_result_id(self, call_id: str) -> str:
        """Return the id of the oldest call that has no result yet."""
        waiting = self._open.get(call_id)
        return waiting.pop(0) if waiting else self._legal(call_id)


def format_result(text: str, is_error: bool) -> str:
    """Return the text, marked as an error if needed: the OpenAI APIs have no flag for failed calls."""
    text = text if text.strip() else NO_OUTPUT
    return f"Error: {text}" if is_error and not text.lower().startswith("error") else text


def find_loop_start(messages: tuple[Message, ...]) -> int:
    """Return the index where the running tool loop starts: after the prompt that opened it.

    Only there is thinking sent back. A prompt or note right after tool results does not start a loop: for an API it
    belongs to the same turn, and the calls still need their thinking. An empty reply is never sent, so it ends no loop.
    """
    start, running = 0, False
    for index, message in enumerate(messages):
        if isinstance(message, PromptMessage):
            start = start if running else index + 1
        elif isinstance(message, ToolMessage) or message.calls:
            running = True
        elif message.text.strip():
            running = False
    return start


def may_replay(message: ReplyMessage, provider: str, model: str) -> bool:
    """True if the message's thinking came from the model that is being asked."""
    return message.provider == provider and message.model == model


def model_of_reply(reported: str | None, requested: str) -> str:
    """Return the model of a reply. An API may report the exact version of the requested name."""
    reported = reported or requested
    return requested if reported.startswith(requested.removesuffix("-latest")) else reported


def count_calls(messages: Iterable[Message]) -> int:
    return sum(
        isinstance(part, ToolCall)
        for message in messages
        if isinstance(message, ReplyMessage)
        for part in message.parts
    )


def effort_of(budget: int) -> str:
    """Return a thinking budget as low, medium or high."""
    if budget < 4096:
        return "low"
    return "medium" if budget < 16384 else "high"


def is_reasoning_model(model: str) -> bool:
    """True if an OpenAI model reasons before it answers; such a model takes no temperature."""
    name = model.rpartition("/")[2]
    if name.startswith("gpt-"):
        return name[4:5] in "56789" and "-chat" not in name
    return name.startswith("codex") or (name.startswith("o") and name[1:2].isdigit())


def accepts_effort(model: str) -> bool:
    """True if a model on an OpenAI-compatible server accepts a reasoning effort."""
    return not model.rpartition("/")[2].startswith(("gpt-3", "gpt-4"))
