"""The stream-json messages of a run as typed objects. Each keeps its original message in `raw`."""

from typing import Any

import msgspec
from msgspec import Struct, field

from odin.core.event_values import ExitReason


class TextBlock(Struct, frozen=True, tag="text"):
    text: str


class ThinkingBlock(Struct, frozen=True, tag="thinking"):
    thinking: str
    signature: str = ""


class ToolUseBlock(Struct, frozen=True, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Struct, frozen=True, tag="tool_result"):
    tool_use_id: str
    content: str
    is_error: bool = False


class _SdkMessage(Struct, frozen=True, kw_only=True):
    session_id: str
    uuid: str
    raw: dict[str, Any]


class SystemMessage(_SdkMessage, frozen=True, kw_only=True):
    """`init` starts every turn; other subtypes are `api_retry`, `warning`, `informational`, … Fields are in `raw`."""

    subtype: str


class AssistantMessage(_SdkMessage, frozen=True, kw_only=True):
    """One complete reply of the model."""

    content: tuple[TextBlock | ThinkingBlock | ToolUseBlock, ...]
    model: str
    stop_reason: str
    usage: dict[str, int]
    parent_tool_use_id: str | None = None

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


class UserMessage(_SdkMessage, frozen=True, kw_only=True):
    """The result of one tool call."""

    content: tuple[ToolResultBlock, ...]
    parent_tool_use_id: str | None = None


class StreamEvent(_SdkMessage, frozen=True, kw_only=True):
    """One raw event of a streaming reply, in the format of the Anthropic Messages API."""

    event: dict[str, Any]

    @property
    def text(self) -> str:
        """The text of this chunk, or ""."""
        return str(self.event.get("delta", {}).get("text", ""))


class ToolProgress(_SdkMessage, frozen=True, kw_only=True):
    """A tool call started, is running or ended; see `status`."""

    tool_name: str
    tool_use_id: str
    elapsed_time_seconds: float
    status: str
    parent_tool_use_id: str | None = None


class ResultMessage(_SdkMessage, frozen=True, kw_only=True):
    """How the turn ended; always the last message."""

    subtype: str
    is_error: bool
    result: str
    exit_reason: ExitReason
    num_turns: int
    total_cost_usd: float | None
    usage: dict[str, int]
    duration_ms: int
    duration_api_ms: int
    errors: tuple[str, ...]
    error_kind: str
    permission_denials: tuple[dict[str, Any], ...]
    model_usage: dict[str, dict[str, Any]] = field(name="modelUsage")
    stop_reason: str | None = None
    structured_output: dict[str, Any] | None = None


Message = SystemMessage | AssistantMessage | UserMessage | StreamEvent | ToolProgress | ResultMessage

_TYPES: dict[str, type[Message]] = {
    "system": SystemMessage,
    "assistant": AssistantMessage,
    "user": UserMessage,
    "stream_event": StreamEvent,
    "tool_progress": ToolProgress,
    "result": ResultMessage,
}


def to_typed(raw: dict[str, Any]) -> Message:
    """Return the typed form of a message. One that fits no type is a SystemMessage with its type as `subtype`."""
    fields: dict[str, Any] = {**raw, "raw": raw}
    try:
        if raw["type"] in ("assistant", "user"):
            fields = {**raw["message"], **fields}
        return msgspec.convert(fields, _TYPES[raw["type"]])
    except (KeyError, TypeError, msgspec.ValidationError):
        session, uuid, kind = (str(raw.get(name, "")) for name in ("session_id", "uuid", "type"))
        return SystemMessage(session_id=session, uuid=uuid, raw=raw, subtype=kind)
