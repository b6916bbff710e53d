"""What the wire adapters share when they write requests and read answers."""

import re
from binascii import crc32
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import msgspec

from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage

T = TypeVar("T")

NO_OUTPUT = "(no output)"
"""Stands for a tool result without text: no API takes an empty one everywhere."""


def encode_body(body: dict[str, Any]) -> bytes:
    """The body as JSON. Text that is not Unicode (lone surrogates) becomes U+FFFD: no API accepts it."""
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
    """One event's JSON. Broken UTF-8 and broken surrogate escapes are mended, not refused."""
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
    """A call's arguments as JSON text: some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode_body({"value": value})[9:-1].decode()


def make_legal_id(call_id: str) -> str:
    """The id of a call in a form every API takes. The same id always comes out the same, different ones differ."""
    if _is_legal(call_id) and len(call_id) <= 40:
        return call_id
    return f"{_replace_illegal(call_id)[:31]}_{crc32(call_id.encode('utf-8', 'replace')):08x}"


def make_short_id(call_id: str) -> str:
    """Nine letters and digits, the only form one API takes."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return f"{crc32(call_id.encode('utf-8', 'replace')):08x}0"


def make_legal_name(name: str) -> str:
    """The name of a called tool as the APIs take it; a model may have called something that cannot be a name."""
    return name if _is_legal(name) and len(name) <= 64 else _replace_illegal(name)[:64] or "unknown"


def _is_legal(text: str) -> bool:
    return text.isascii() and text.replace("_", "a").replace("-", "a").isalnum()


def _replace_illegal(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text)


class CallIdMap:
    """Ids of calls as one request has them: legal, and each used once.

    A history may hold ids of another API, and some servers begin to count anew with every reply. What an id becomes
    depends only on the messages before it, so earlier bytes of a request never change.
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
        """The id the oldest call without a result got."""
        waiting = self._open.get(call_id)
        return waiting.pop(0) if waiting else self._legal(call_id)


def format_result(text: str, is_error: bool) -> str:
    """The OpenAI APIs have no flag for a failed call, so the text says it."""
    text = text if text.strip() else NO_OUTPUT
    return f"Error: {text}" if is_error and not text.lower().startswith("error") else text


def find_loop_start(messages: tuple[Message, ...]) -> int:
    """Where the running tool loop begins: after the prompt that opened it. Only there is thinking shown again.

    A prompt or a note that follows the results of tools opens none: to an API it stands in one turn with them, and the
    calls they answer still need the thinking behind them. A reply without a word or a call is never sent, so it ends
    no loop.
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
    """Whether this message's thinking came from the very model that is asked now."""
    return message.provider == provider and message.model == model


def model_of_reply(reported: str | None, requested: str) -> str:
    """The model of a reply. An API tells the exact version of the name it was asked by; that is the same model."""
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
    """A thinking budget in tokens, as the APIs that only know three steps take it."""
    if budget < 4096:
        return "low"
    return "medium" if budget < 16384 else "high"


def is_reasoning_model(model: str) -> bool:
    """Whether an OpenAI model reasons before it answers; such a model takes no temperature."""
    name = model.rpartition("/")[2]
    if name.startswith("gpt-"):
        return name[4:5] in "56789" and "-chat" not in name
    return name.startswith("codex") or (name.startswith("o") and name[1:2].isdigit())


def accepts_effort(model: str) -> bool:
    """Whether a model on an OpenAI-shaped server may be told how much to reason."""
    return not model.rpartition("/")[2].startswith(("gpt-3", "gpt-4"))
