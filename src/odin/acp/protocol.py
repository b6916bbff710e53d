"""The messages of the Agent Client Protocol, version 1, as far as Odin reads or writes them.

What the editor sends is lenient: fields that are not needed are not read, and null stands for absent.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from odin.core.errors import OdinError

PROTOCOL_VERSION = 1

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CANCELLED = -32800
AUTH_REQUIRED = -32000
NOT_FOUND = -32002


class RpcError(OdinError):
    """An error that a request is answered with."""

    def __init__(self, code: int, message: str, hint: str = "", data: Any = UNSET) -> None:
        super().__init__(message, hint)
        self.code = code
        self.data = data


# --- what an editor sends ---


class Params(Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class InitializeParams(Params, frozen=True, kw_only=True):
    protocol_version: int
    client_capabilities: dict[str, Any] | None = None


class AuthenticateParams(Params, frozen=True, kw_only=True):
    method_id: str


class NameValue(Params, frozen=True, kw_only=True):
    """A variable or a header."""

    name: str
    value: str


class McpServer(Params, frozen=True, kw_only=True):
    """An MCP server of the editor; without a type it is a program."""

    name: str
    type: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[str, ...] | None = ()
    env: tuple[NameValue, ...] | None = ()
    url: str = ""
    headers: tuple[NameValue, ...] | None = ()


class NewSessionParams(Params, frozen=True, kw_only=True):
    cwd: str
    mcp_servers: tuple[McpServer, ...] | None = ()
    additional_directories: tuple[str, ...] | None = ()


class SessionParams(Params, frozen=True, kw_only=True):
    session_id: str


class OpenSessionParams(NewSessionParams, frozen=True, kw_only=True):
    session_id: str


class ListParams(Params, frozen=True, kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class SetOptionParams(SessionParams, frozen=True, kw_only=True):
    config_id: str
    value: str


class CancelRequestParams(Params, frozen=True, kw_only=True):
    request_id: str | int | None


class PromptText(Params, frozen=True, kw_only=True, tag="text"):
    text: str


class PromptImage(Params, frozen=True, kw_only=True, tag="image"):
    data: str
    mime_type: str
    uri: str | None = None


class PromptAudio(Params, frozen=True, kw_only=True, tag="audio"):
    pass


class ResourceLink(Params, frozen=True, kw_only=True, tag="resource_link"):
    uri: str
    name: str = ""


class ResourceContents(Params, frozen=True, kw_only=True):
    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class EmbeddedResource(Params, frozen=True, kw_only=True, tag="resource"):
    resource: ResourceContents


ContentBlock = PromptText | PromptImage | PromptAudio | ResourceLink | EmbeddedResource


class PromptParams(SessionParams, frozen=True, kw_only=True):
    prompt: tuple[ContentBlock, ...]


# --- what Odin sends ---


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class TextContent(Wire, frozen=True, kw_only=True, tag="text"):
    text: str


class ImageContent(Wire, frozen=True, kw_only=True, tag="image"):
    data: str
    mime_type: str


class CallText(Wire, frozen=True, kw_only=True, tag="content"):
    """Content of a tool call besides diffs."""

    content: TextContent | ImageContent


class CallDiff(Wire, frozen=True, kw_only=True, tag="diff"):
    """A part of a file before and after a change, in whole lines. A new file has no `old_text`."""

    path: str
    new_text: str
    old_text: str | UnsetType = UNSET


CallContent = CallText | CallDiff


class Location(Wire, frozen=True, kw_only=True):
    path: str
    line: int | UnsetType = UNSET


ToolKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]
CallStatus = Literal["pending", "in_progress", "completed", "failed"]


class CallFields(Wire, frozen=True, kw_only=True):
    """A tool call, or what of it has changed: what is unset stays as it was."""

    tool_call_id: str
    title: str | UnsetType = UNSET
    kind: ToolKind | UnsetType = UNSET
    status: CallStatus | UnsetType = UNSET
    content: tuple[CallContent, ...] | UnsetType = UNSET
    locations: tuple[Location, ...] | UnsetType = UNSET
    raw_input: dict[str, Any] | UnsetType = UNSET


class Update(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate"):
    """What of the state of a session has changed."""


class Chunk(Update, frozen=True, kw_only=True):
    content: TextContent | ImageContent
    message_id: str


class UserChunk(Chunk, frozen=True, kw_only=True, tag="user_message_chunk"):
    pass


class AnswerChunk(Chunk, frozen=True, kw_only=True, tag="agent_message_chunk"):
    pass


class ThoughtChunk(Chunk, frozen=True, kw_only=True, tag="agent_thought_chunk"):
    pass


class NewCall(CallFields, Update, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call"):
    pass


class ChangedCall(CallFields, Update, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_update"):
    pass


class PlanEntry(Wire, frozen=True, kw_only=True, omit_defaults=False):
    content: str
    status: Literal["pending", "in_progress", "completed"]
    priority: Literal["medium"] = "medium"


class PlanUpdate(Update, frozen=True, kw_only=True, tag="plan"):
    entries: tuple[PlanEntry, ...]


class CommandInput(Wire, frozen=True, kw_only=True):
    hint: str


class Command(Wire, frozen=True, kw_only=True):
    name: str
    description: str
    input: CommandInput | UnsetType = UNSET


class CommandsUpdate(Update, frozen=True, kw_only=True, tag="available_commands_update"):
    available_commands: tuple[Command, ...]


class OptionValue(Wire, frozen=True, kw_only=True):
    value: str
    name: str
    description: str = ""


class ConfigOption(Wire, frozen=True, kw_only=True, tag="select"):
    id: str
    name: str
    current_value: str
    options: tuple[OptionValue, ...]
    description: str = ""
    category: str = ""


class OptionsUpdate(Update, frozen=True, kw_only=True, tag="config_option_update"):
    config_options: tuple[ConfigOption, ...]


class InfoUpdate(Update, frozen=True, kw_only=True, tag="session_info_update"):
    title: str | UnsetType = UNSET
    updated_at: str | UnsetType = UNSET


class Cost(Wire, frozen=True, kw_only=True):
    amount: float
    currency: str


class UsageUpdate(Update, frozen=True, kw_only=True, tag="usage_update"):
    used: int
    size: int
    cost: Cost | UnsetType = UNSET


class Notice(Update, frozen=True, kw_only=True, tag="notice"):
    """Only for editors that show notices."""

    severity: Literal["info", "warning", "error"]
    title: str


class PermissionOption(Wire, frozen=True, kw_only=True):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class ToolPermissionRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    tool_call: CallFields
    options: tuple[PermissionOption, ...]


class FormRequest(Wire, frozen=True, kw_only=True, tag_field="mode", tag="form"):
    """Asks the user to fill in a form; `requested_schema` is a JSON schema of flat fields."""

    session_id: str
    message: str
    requested_schema: dict[str, Any]
    tool_call_id: str | UnsetType = UNSET


class ListedSession(Wire, frozen=True, kw_only=True):
    session_id: str
    cwd: str
    title: str = ""
    updated_at: str = ""


StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


def read_params(kind: "type[Params]", method: str, raw: Any) -> Any:
    """Return the parameters of a request. Raise RpcError if they are not valid."""
    try:
        return msgspec.convert({} if raw is None else raw, kind)
    except msgspec.ValidationError as error:
        needed = ", ".join(field.encode_name for field in msgspec.structs.fields(kind) if field.required)
        hint = f"It needs {needed}." if needed else ""
        raise RpcError(INVALID_PARAMS, f"{method}: {error}.", hint) from None


def read_flag(raw: Any, *names: str) -> bool:
    """Return whether a capability is there: true, or an object, below these names."""
    for name in names:
        raw = raw.get(name) if isinstance(raw, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return raw is True or isinstance(raw, dict)
