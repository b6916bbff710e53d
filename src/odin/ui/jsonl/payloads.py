"""What `odin headless --format jsonl` prints: lines `{"type": …, "payload": {…}}`. The docs are made of these structs.

The type is the name of the struct, `local_shell_result` for `LocalShellResultPayload`.
"""

import re
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from odin.core.client import AvailableModel, QueuedPrompt, SessionSummary, SubAgentRecord
from odin.core.event_values import Activity, CallStatus, ExitReason, Mode, Todo, Verification
from odin.core.interaction import Interaction
from odin.core.message import StopReason, ToolCall, Usage
from odin.core.prompt import PromptSource
from odin.core.team import MailKind, MailPriority
from odin.ui.agent_tracker import EndStatus
from odin.ui.line_server import Outcome

PROTOCOL = 1
"""Raised when a line changes its meaning or goes away. Lines and fields may be added."""


def make_type(name: str) -> str:
    """Return `local_shell_result` for `LocalShellResultPayload`, and so for a command."""
    return re.sub(r"\B[A-Z]", r"_\g<0>", name.removesuffix("Payload").removesuffix("Command")).lower()


class Payload(Struct, frozen=True, kw_only=True):
    """`agent` is the agent that a line is about, "" for the main agent; `seq` is the number of a durable event."""

    session: str = ""
    agent: str = ""
    seq: int | UnsetType = UNSET

    @classmethod
    def get_type(cls) -> str:
        return make_type(cls.__name__)

    def encode(self) -> bytes:
        return msgspec.json.encode({"type": self.get_type(), "payload": self})


# --- what happens ---


class ReadyPayload(Payload, frozen=True, kw_only=True):
    """The first line. `seq` is the number of the last event so far; `working`: the session is at work already."""

    protocol: int
    version: str
    cwd: str
    model: str
    mode: Mode
    permission_mode: str
    role: str
    roles: tuple[str, ...]
    working: bool
    commands: tuple[str, ...]
    events: tuple[str, ...]
    slash_commands: tuple[str, ...]
    notice: str
    warnings: tuple[str, ...]


class UserMessagePayload(Payload, frozen=True, kw_only=True):
    """A prompt enters the conversation, of this client or another. `turn` is the running turn that it joins."""

    id: str
    text: str
    mode: Mode
    source: PromptSource
    turn: str = ""


class ActivityPayload(Payload, frozen=True, kw_only=True):
    """An agent does something else now; `detail` is for example `3 tools` or `retry 2/6`."""

    activity: Activity
    detail: str


class TextDeltaPayload(Payload, frozen=True, kw_only=True):
    """Text of a reply while it streams. Only sent if subscribed to."""

    text: str


class AssistantMessagePayload(Payload, frozen=True, kw_only=True):
    """A complete reply of the model with its tool calls."""

    text: str
    thinking: str
    calls: tuple[ToolCall, ...]
    model: str
    stop: StopReason
    interrupted: bool


class AssistantRollbackPayload(Payload, frozen=True, kw_only=True):
    """The reply that streams is dropped and starts again, or the conversation went back to before the prompt `turn`."""

    reason: str
    turn: str = ""


class ToolResultPayload(Payload, frozen=True, kw_only=True):
    """A tool call has ended. `text` is for the model, `display` for people."""

    call_id: str
    tool: str
    status: CallStatus
    text: str
    display: str
    files: tuple[str, ...]
    duration_ms: int
    error_kind: str


class TodosPayload(Payload, frozen=True, kw_only=True):
    """The whole list of to-dos, after a change."""

    todos: tuple[Todo, ...]


class ContextUsagePayload(Payload, frozen=True, kw_only=True):
    """After each model request: the tokens in the context window, its size (0: unknown), and what the request cost."""

    model: str
    used: int
    limit: int
    usage: Usage
    cost_usd: float


class DoneCompletionPayload(Payload, frozen=True, kw_only=True):
    """The turn of a prompt has ended. If the outcome is `error`, an `error` line follows."""

    turn: str
    outcome: Outcome
    reason: ExitReason
    text: str
    steps: int
    usage: Usage
    cost_usd: float
    duration_ms: int
    verification: Verification | None
    structured_output: dict[str, Any] | None
    all_denied: bool
    plan_path: str


class IdlePayload(Payload, frozen=True, kw_only=True):
    """Nothing works any more, sub-agents and their unread results included. The outcome is that of the last turn."""

    last_outcome: Outcome


class RequestPayload(Payload, frozen=True, kw_only=True):
    """The session waits for an answer. `id` is that of the request."""

    id: str
    request: Interaction


class ConfirmRequestPayload(RequestPayload, frozen=True, kw_only=True):
    """A tool call waits for your permission; answer with `confirm`."""


class QuestionRequestPayload(RequestPayload, frozen=True, kw_only=True):
    """The model or an MCP server asks questions; answer with `question`."""


class HandoffRequestPayload(RequestPayload, frozen=True, kw_only=True):
    """The model presents a plan and would hand it over to be carried out; answer with `handoff`."""


class RequestAnsweredPayload(Payload, frozen=True, kw_only=True):
    """A request is answered, so do not show it any more.

    `by` is `user` (also at another client), `rule`, `hook`, `timeout`, `interrupt` or `steer`.
    """

    id: str
    choice: str
    text: str
    by: str


class AgentStartedPayload(Payload, frozen=True, kw_only=True):
    """A sub-agent begins to work. `owner` is the agent that started it with the call `call_id`."""

    task_id: str
    call_id: str
    description: str
    agent_type: str
    owner: str


class AgentNotifyPayload(Payload, frozen=True, kw_only=True):
    """A sub-agent reports something to its owner, the `recipient`."""

    task_id: str
    call_id: str
    kind: MailKind
    priority: MailPriority
    text: str
    recipient: str
    needs_reply: bool


class AgentDonePayload(Payload, frozen=True, kw_only=True):
    """A sub-agent has ended. `state` is that of its task, `summary` the start of its answer."""

    task_id: str
    call_id: str
    status: EndStatus
    state: str
    summary: str


class LocalShellResultPayload(Payload, frozen=True, kw_only=True):
    """A command of `local_shell` has ended. The model reads the output with its next request."""

    shell: str
    command: str
    output: str


class InfoPayload(Payload, frozen=True, kw_only=True):
    """A line that needs no attention: a retry, a hook, a denied call, another model, a new rule, a compaction."""

    text: str


class ToastPayload(Payload, frozen=True, kw_only=True):
    """A message that you should see."""

    text: str
    level: Literal["warn", "error"]


# --- answers to commands ---


class AnswerPayload(Payload, frozen=True, kw_only=True):
    """`id` is that of the command, if it had one."""

    id: str | int | UnsetType = UNSET
    command: str | UnsetType = UNSET


class ErrorPayload(AnswerPayload, frozen=True, kw_only=True):
    """A command was refused (`command`, input `line`), or a turn has failed (`turn`)."""

    message: str
    kind: str
    line: int | UnsetType = UNSET
    turn: str | UnsetType = UNSET


class OkPayload(AnswerPayload, frozen=True, kw_only=True):
    """A command was carried out. `done` is false if there was nothing to do, for example nothing to cancel.

    `prompt` is the id of a sent prompt, `shell` that of a command, `denied` are requests that a prompt dismissed,
    `text` is what a slash command says.
    """

    done: bool = True
    prompt: str | UnsetType = UNSET
    shell: str | UnsetType = UNSET
    denied: tuple[str, ...] | UnsetType = UNSET
    events: tuple[str, ...] | UnsetType = UNSET
    model: str | UnsetType = UNSET
    text: str | UnsetType = UNSET


class StatusPayload(AnswerPayload, frozen=True, kw_only=True):
    """The state of the session now. `requests` wait for answers; `seq` is the number of the last event."""

    title: str
    cwd: str
    model: str
    running_model: str
    mode: Mode
    permission_mode: str
    role: str
    turn: str
    working: bool
    queue: tuple[QueuedPrompt, ...]
    agents: tuple[SubAgentRecord, ...]
    todos: tuple[Todo, ...]
    requests: tuple[Interaction, ...]
    context_used: int
    context_limit: int
    usage: Usage
    cost_usd: float
    events: tuple[str, ...]


class ModelsPayload(AnswerPayload, frozen=True, kw_only=True):
    """The models that can be used."""

    model: str
    models: tuple[AvailableModel, ...]


class SessionListPayload(AnswerPayload, frozen=True, kw_only=True):
    """The sessions of the project, newest first. `--resume ID` continues one."""

    sessions: tuple[SessionSummary, ...]


EVENTS: tuple[type[Payload], ...] = (
    ReadyPayload,
    UserMessagePayload,
    ActivityPayload,
    TextDeltaPayload,
    AssistantMessagePayload,
    AssistantRollbackPayload,
    ToolResultPayload,
    TodosPayload,
    ContextUsagePayload,
    DoneCompletionPayload,
    IdlePayload,
    ConfirmRequestPayload,
    QuestionRequestPayload,
    HandoffRequestPayload,
    RequestAnsweredPayload,
    AgentStartedPayload,
    AgentNotifyPayload,
    AgentDonePayload,
    LocalShellResultPayload,
    InfoPayload,
    ToastPayload,
    ErrorPayload,
)
ANSWERS: tuple[type[AnswerPayload], ...] = (OkPayload, ErrorPayload, StatusPayload, ModelsPayload, SessionListPayload)

EVENT_TYPES = tuple(kind.get_type() for kind in EVENTS)
DEFAULT_TYPES = tuple(name for name in EVENT_TYPES if name != TextDeltaPayload.get_type())
"""The types that are sent without a subscription."""
