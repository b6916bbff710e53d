"""Types of event fields: named choices, value types, and the base class of all events."""

from typing import Any, ClassVar, Literal, get_args

from msgspec import Struct

Mode = Literal["ask_mode", "plan_mode", "edit_mode"]
"""Strictest first. Plan mode can lead to edit mode, if the user approves the plan; ask mode cannot."""


def get_strictest_mode(mode: Mode, *others: Mode | None) -> Mode:
    """Return the mode that allows the least. None is no limit."""
    modes: list[Mode] = [mode, *(other for other in others if other is not None)]
    return min(modes, key=get_args(Mode).index)


DEFAULT_ROLE = "builder"

ExitReason = Literal[
    "end_turn",
    "max_turns",
    "error_max_budget_usd",
    "error_max_structured_output_retries",
    "interrupted",
    "max_tokens",
    "aborted",
    "error",
    "loop_detected",
]

Activity = Literal[
    "idle",
    "connecting",
    "waiting_headers",
    "waiting_token",
    "streaming",
    "executing",
    "compacting",
    "retrying",
    "retrying_key",
    "cooling",
    "verifying",
]

CallStatus = Literal["success", "error", "cancelled", "denied"]

Delivery = Literal["queue", "merge", "steer"]
"""How a prompt reaches a busy agent: `queue` waits for its own turn, `merge` goes out with the next request of the
running turn, `steer` replaces the tool calls that have not started."""

CompactionTrigger = Literal["auto", "manual", "overflow", "cut_off"]

CompactionProfile = Literal["auto", "continuation", "archival"]
"""The purpose of a summary: to continue the work (`auto` while a turn runs), or to archive it (`auto` otherwise)."""

DiscardReason = Literal[
    "filtered",
    "args_invalid",
    "args_drift",
    "length_recovery",
    "hook_block",
    "repetition",
    "rollback",
    "interrupted",
    "not_run",
    "crashed",
]

LanguageServerStatus = Literal["idle", "starting", "ready", "slow", "failed", "disabled"]
"""`idle`: not started yet. `slow`: it runs, but its last answer did not come in time."""

TodoStatus = Literal["pending", "in_progress", "completed", "cancelled"]

PlanDecision = Literal["approve", "approve_new_session", "revise", "keep_planning"]
"""The user's answer to a plan: carry it out here or in a new session, change it, or decide later."""

LoopState = Literal["idle", "executing", "verifying", "assessing", "completed", "blocked", "budget_exhausted"]
"""The state of loop mode: off, one of three active states, or finished for one of three reasons."""


CheckOutcome = Literal["passed", "unknown", "not_run", "timed_out", "failed"]
"""The outcome of a check, from best to worst. `unknown`: it ran, but something else decided its exit status."""


class CheckResult(Struct, frozen=True, omit_defaults=True):
    """One check of the project, such as `make test`. `detail` says why it was not run."""

    command: str
    outcome: CheckOutcome
    detail: str = ""


class Verification(Struct, frozen=True):
    """Whether the project's checks ran after the last file change of a turn. `outcome` is the worst of the `checks`.

    `by` is who ran them, or should have: the model, or Odin (`verify.mode` is `run`). `rounds` counts how often Odin
    ran them.
    """

    outcome: CheckOutcome
    checks: tuple[CheckResult, ...] = ()
    by: Literal["model", "odin"] = "model"
    rounds: int = 0

    @property
    def is_failed(self) -> bool:
        """True unless the checks passed. The model may have run them so that the outcome is unknown."""
        return self.outcome != "passed" and (self.outcome != "unknown" or self.by == "odin")


class LanguageServerState(Struct, frozen=True):
    """A language server of the project. `errors` and `warnings` are those in the files it was asked about.

    `detail` says why it failed. `start_ms` is how long it took to start.
    """

    name: str
    status: LanguageServerStatus
    detail: str = ""
    file_types: tuple[str, ...] = ()
    errors: int = 0
    warnings: int = 0
    start_ms: int = 0


class Todo(Struct, frozen=True, omit_defaults=True):
    id: str
    content: str
    status: TodoStatus
    active_form: str = ""


class CachedFile(Struct, frozen=True, omit_defaults=True):
    """A file the model has seen. After a resume `sha256` shows whether it still has the same content."""

    path: str
    size: int
    cached_at: float
    modified: bool = False
    truncated: bool = False
    sha256: str = ""


FileKind = Literal["file", "link", "folder", "absent", "other"]


class FileState(Struct, frozen=True, omit_defaults=True):
    """A path at one moment. `sha256` identifies a file's content, `target` is what a link points to.

    `saved`: the content is in the checkpoint store. A file too large for the store is recorded but cannot be restored.
    """

    path: str
    kind: FileKind
    sha256: str = ""
    mode: int = 0
    target: str = ""
    saved: bool = True


class FileChange(Struct, frozen=True):
    """One path before and after a tool call."""

    before: FileState
    after: FileState


class SkippedFile(Struct, frozen=True):
    """A path that a rewind or rollback skipped, and why."""

    path: str
    reason: str


class Option(Struct, frozen=True, omit_defaults=True):
    """One answer a question offers."""

    label: str
    detail: str = ""


AnswerType = Literal["text", "number", "integer", "choice", "email", "date", "date-time", "uri"]
"""What can be typed; `choice`: only the options."""


class Question(Struct, frozen=True, omit_defaults=True):
    """A question to the user. The first option is the default; `multiple` allows several options.

    The limits are for a number, the length of a text, or how many options are chosen.
    """

    header: str
    text: str
    options: tuple[Option, ...] = ()
    multiple: bool = False
    type: AnswerType = "text"
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None


class CallAudit(Struct, frozen=True, omit_defaults=True):
    """The arguments the model asked for and those that ran, after a user, program or hook changed them."""

    original: dict[str, Any]
    effective: dict[str, Any]
    by: str = "user"
    summary: str = ""


ServerState = Literal["disabled", "pending", "connecting", "ready", "failed"]
"""`pending`: the server connects when it is needed. `disabled`: it is manual, and the user has not enabled it."""


class ServerStatus(Struct, frozen=True, omit_defaults=True):
    """An MCP server. `source` is where it is configured; `detail` says why it failed.

    `attempt` counts the attempts to connect, up to `attempts`. `seconds` is how long connecting took.
    """

    name: str
    state: ServerState
    transport: str = "stdio"
    source: str = ""
    manual: bool = False
    detail: str = ""
    tools: int = 0
    prompts: int = 0
    resources: int = 0
    attempt: int = 0
    attempts: int = 0
    seconds: float = 0.0
    version: str = ""


class Event(Struct, frozen=True, tag=True):
    """Base class of all events. `durable`: the log keeps it."""

    durable: ClassVar[bool] = True
