"""What the wire adapters share when they write requests and read answers."""

import re
from binascii import crc32
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec

from odin.core.message import AssistantMessage, Message, ToolCall, UserMessage

T = TypeVar("T")

NO_OUTPUT = "(no output)"
"""Stands for a tool result without text: no API takes an empty one everywhere."""


def encode(body: dict[str, Any]) -> bytes:
    """The body as JSON. Text that is not Unicode (lone surrogates) becomes U+FFFD: no API accepts it."""
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, OverflowError):
        return msgspec.json.encode(_cleaned(body))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 2**1000 else str(value)
    return value


def decode(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """One event's JSON. Broken UTF-8 and broken surrogate escapes are mended, not refused."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        import json

        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            raise msgspec.DecodeError("not JSON") from None
        return decoder.decode(encode({"value": value})[9:-1])


def arguments_json(value: Any) -> str:
    """A call's arguments as JSON text: some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode({"value": value})[9:-1].decode()


def legal_id(call_id: str) -> str:
    """The id of a call in a form every API takes. The same id always comes out the same, different ones differ."""
    if len(call_id) <= 40 and call_id.isascii() and call_id.replace("_", "a").replace("-", "a").isalnum():
        return call_id
    clean = re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)[:31]
    return f"{clean}_{crc32(call_id.encode('utf-8', 'replace')):08x}"


def short_id(call_id: str) -> str:
    """Nine letters and digits, the only form one API takes."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return f"{crc32(call_id.encode('utf-8', 'replace')):08x}0"


def running_loop(messages: tuple[Message, ...]) -> int:
    """Where the running tool loop begins: after the newest prompt. Only there may a model see its thinking again."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], UserMessage):
            return index + 1
    return 0


def may_replay(message: AssistantMessage, provider: str, model: str) -> bool:
    """Whether this message's thinking came from the very model that is asked now."""
    return message.provider == provider and _same_model(message.model, model)


def _same_model(told: str, asked: str) -> bool:
    """A reply names its model exactly (claude-x-20250101) where the request may use its short name (claude-x)."""
    return told == asked or told.startswith(f"{asked}-") or asked.startswith(f"{told}-") or told.endswith(f"/{asked}")


def count_calls(messages: Iterable[Message]) -> int:
    return sum(
        isinstance(part, ToolCall)
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.parts
    )


def effort(budget: int) -> str:
    """A thinking budget in tokens, as the APIs that only know three steps take it."""
    if budget < 4096:
        return "low"
    return "medium" if budget < 16384 else "high"


def is_reasoner(model: str) -> bool:
    """Whether an OpenAI model reasons before it answers; such a model takes no temperature."""
    name = model.rpartition("/")[2]
    if name.startswith("gpt-"):
        return name[4:5] in "56789" and "-chat" not in name
    return name.startswith("codex") or (name.startswith("o") and name[1:2].isdigit())
