"""Events: what happened in a session, in the past tense.

A durable event is a numbered line of the session's log. A transient event (chunks, progress) is only published; it
carries the number of the last durable event before it.
"""

from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from odin.core.message import Attachment, Image, ReplyMessage, Usage
from odin.core.policy import HookPoint, RememberScope, RuleAction

Mode = Literal["ask_mode", "plan_mode", "edit_mode"]

ExitReason = Literal[
    "end_turn", "max_turns", "error_max_budget_usd", "interrupted", "max_tokens", "aborted", "error", "loop_detected"
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
"""What a summary is for: continuing the work, or archiving it. `auto` decides by what the session is doing."""

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

TodoStatus = Literal["pending", "in_progress", "completed", "cancelled"]

LoopState = Literal["idle", "executing", "verifying", "assessing", "completed", "blocked", "budget_exhausted"]
"""The state of loop mode: off, one of three active states, or finished for one of three reasons."""


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
    """A path that a rewind or rollback left alone, and why."""

    path: str
    reason: str


class Option(Struct, frozen=True, omit_defaults=True):
    """One answer a question offers."""

    label: str
    detail: str = ""


class Question(Struct, frozen=True, omit_defaults=True):
    """A question to the user. The first option is the default; `multiple` allows several options."""

    header: str
    text: str
    options: tuple[Option, ...] = ()
    multiple: bool = False


class CallAudit(Struct, frozen=True, omit_defaults=True):
    """The arguments the model asked for and those that ran, after a user, program or hook changed them."""

    original: dict[str, Any]
    effective: dict[str, Any]
    by: str = "user"
    summary: str = ""


class Event(Struct, frozen=True, tag=True):
    """Base class of all events. `durable`: the log keeps it."""

    durable: ClassVar[bool] = True


# --- the session ---


class SessionOpened(Event, frozen=True):
    """Odin started or resumed this session.

    `config` holds the public settings, never a key. `root` is the project; approvals apply while it stays the same.
    `permission_mode` is in force from here on. `model_chosen`: the user chose the model in this or an earlier run.
    """

    cwd: str
    model: str
    version: str
    resumed: bool = False
    instructions: str = ""
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    root: str = ""
    model_chosen: bool = False
    permission_mode: str = ""


class TitleSet(Event, frozen=True):
    title: str


class InstructionsChanged(Event, frozen=True):
    """The project's instructions were rewritten. The model sees them from the next prompt on."""

    instructions: str


class ModelChanged(Event, frozen=True):
    """The session switched models. `reason` is set if a fallback replaced a model that could not answer."""

    model: str
    reason: str = ""


class PermissionModeChanged(Event, frozen=True):
    mode: str


class BudgetSet(Event, frozen=True):
    """The session's budget in US dollars changed; 0 means no limit."""

    usd: float


# --- prompts and turns ---


class PromptQueued(Event, frozen=True, omit_defaults=True):
    """A prompt was queued.

    `display_text` is what people see if the model reads something else: the custom command as typed, or a short form of
    a loop-mode prompt. `attachments` are read when the prompt starts; clipboard images have been saved to files.
    """

    id: str
    text: str
    mode: Mode
    delivery: Delivery = "queue"
    display_text: str = ""
    attachments: tuple[Attachment, ...] = ()


class PromptChanged(Event, frozen=True, omit_defaults=True):
    """A queued prompt was edited."""

    id: str
    text: str
    mode: Mode
    delivery: Delivery = "queue"
    display_text: str = ""
    attachments: tuple[Attachment, ...] = ()


class PromptDropped(Event, frozen=True):
    """A queued prompt was removed."""

    id: str


class PromptInjected(Event, frozen=True, omit_defaults=True):
    """A queued prompt entered the conversation without a turn of its own.

    `turn` is the running turn it joined. It is empty after an interrupt; then the model reads the prompt with the next
    request.
    """

    id: str
    text: str
    mode: Mode
    turn: str = ""
    display_text: str = ""
    notes: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    attachments: tuple[Attachment, ...] = ()


class TurnStarted(Event, frozen=True, omit_defaults=True):
    """A prompt left the queue and its turn began.

    `notes` and `images` are what the model reads besides the text, including the attached and mentioned files.
    `continues`: no new prompt; the model is asked again with the conversation as it is.
    """

    id: str
    text: str
    mode: Mode
    notes: tuple[str, ...] = ()
    continues: bool = False
    display_text: str = ""
    images: tuple[Image, ...] = ()
    attachments: tuple[Attachment, ...] = ()


class TurnEnded(Event, frozen=True):
    """The turn is over. Every turn ends with exactly one of these.

    `error_status`, `error_code` and `error_type` repeat what the model's API reported; `retry_after_s` is the delay it
    asked for.
    """

    id: str
    reason: ExitReason
    text: str = ""
    steps: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    duration_ms: int = 0
    api_ms: int = 0
    error: str = ""
    error_kind: str = ""
    hint: str = ""
    error_status: int = 0
    error_code: str = ""
    error_type: str = ""
    retry_after_s: float | None = None


class LoopChanged(Event, frozen=True):
    """Loop mode changed state; `idle` means off.

    `iteration` counts the prompts sent since it was enabled, `limit` is their maximum. `reason` explains a state that
    needs it.
    """

    state: LoopState
    goal: str = ""
    iteration: int = 0
    limit: int = 0
    reason: str = ""


class LoopPrompted(Event, frozen=True):
    """Loop mode prompted the model with `text` because of `reasons`; the turn follows."""

    text: str
    iteration: int
    limit: int
    reasons: tuple[str, ...] = ()


class NoteAdded(Event, frozen=True):
    """A note for the model was added to the newest message: something changed since the last request."""

    text: str


class ContextAdded(Event, frozen=True):
    """Context was added from a file or command. `id` is that of the user's shell command, if there was one."""

    content: str
    path: str = ""
    command: str = ""
    id: str = ""

    @property
    def source(self) -> str:
        return f"Context from {self.path or (f'`{self.command}`' if self.command else 'the user')}"

    @property
    def note(self) -> str:
        """The text the model reads next to a prompt."""
        return f"{self.source}:\n{self.content}"


class ContextSummarized(Event, frozen=True):
    """A summary replaced all context items and the results of `calls`."""

    text: str
    calls: tuple[str, ...] = ()


class MessageRemoved(Event, frozen=True):
    """The newest message was removed from the conversation."""


class ResultsPruned(Event, frozen=True):
    """From now on the model sees the results of `calls` as one line each, and `images` not at all.

    The log and the file `archive`, which the model can read, keep them in full.
    """

    calls: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    archive: str = ""


class Compacted(Event, frozen=True):
    """A summary replaced the older part of the conversation.

    `text` is the summary. The last `kept_messages` messages stay; before them stand `user_prompts`, older prompts
    verbatim. The model can read the full conversation in the file `archive`. Token counts are estimates.
    """

    text: str
    kept_messages: int
    user_prompts: tuple[str, ...] = ()
    archive: str = ""
    trigger: CompactionTrigger = "auto"
    profile: CompactionProfile = "auto"
    tokens_before: int = 0
    tokens_after: int = 0


class CompactionChanged(Event, frozen=True):
    """The progress of a summary; `detail` says why it failed.

    Not `final`: the model failed, and Odin builds the summary without it.
    """

    durable = False
    status: Literal["started", "succeeded", "failed", "cancelled"]
    trigger: CompactionTrigger = "auto"
    detail: str = ""
    final: bool = True


# --- checkpoints ---


class CheckpointSaved(Event, frozen=True):
    """The files a tool call may change were saved to the checkpoint store, before the call runs.

    A shell command may change anything, so the whole project is saved as a `manifest`; `skipped` counts files over the
    limits.
    """

    call_id: str
    files: tuple[FileState, ...] = ()
    manifest: str = ""
    skipped: int = 0


class FilesChanged(Event, frozen=True):
    """The files a tool call changed.

    `concurrent`: they changed while the call's process ran in the background, so something else may have changed them.
    """

    call_id: str
    changes: tuple[FileChange, ...] = ()
    concurrent: bool = False


class Rewound(Event, frozen=True):
    """The session went back to before the prompt `turn`: files, conversation, or both.

    `changes` were made to files; `skipped_files` were left alone, usually because something else changed them.
    """

    id: str
    turn: str
    files: bool
    chat: bool
    changes: tuple[FileChange, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()


class Redone(Event, frozen=True):
    """The rewind with this id was reversed."""

    id: str
    changes: tuple[FileChange, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()


# --- one model request ---


class Replied(Event, frozen=True):
    """The model's complete reply. It is final: no rollback follows."""

    message: ReplyMessage


class UsageRecorded(Event, frozen=True):
    """Tokens and cost of one model request. A cost of 0 means unknown, unless the model is `free`.

    `context_window` is 0 if unknown; `purpose` is `planner` for the main model, or the name of the small job.
    """

    model: str
    usage: Usage
    cost_usd: float = 0.0
    context_window: int = 0
    purpose: str = "planner"
    free: bool = False


class ReplyDiscarded(Event, frozen=True):
    """A reply was dropped because it was cut off, malformed or empty."""

    reason: str


class RetryScheduled(Event, frozen=True):
    attempt: int
    attempts: int
    delay_s: float
    error: str
    error_kind: str


class RequestStarted(Event, frozen=True):
    """A model request is about to be sent: number `step` of this turn, with about `tokens` tokens."""

    durable = False
    step: int
    model: str = ""
    tokens: int = 0


class RequestProgressed(Event, frozen=True):
    """How much of the reply has arrived; published a few times per second."""

    durable = False
    chunks: int
    chars: int


class TextStreamed(Event, frozen=True):
    durable = False
    text: str


class ThinkingStarted(Event, frozen=True):
    durable = False


class ThinkingStreamed(Event, frozen=True):
    durable = False
    text: str


class ThinkingEnded(Event, frozen=True):
    """One complete thinking block and its duration."""

    durable = False
    text: str
    seconds: float = 0.0


class CallStreamed(Event, frozen=True):
    """A tool call is streaming in. With `done` it carries the final arguments and `chars` is 0."""

    durable = False
    call_id: str
    name: str
    json_delta: str = ""
    chars: int = 0
    done: bool = False
    args: dict[str, Any] = field(default_factory=dict[str, Any])


class ReplyRolledBack(Event, frozen=True):
    """Front ends drop the unfinished text and calls: the reply starts again."""

    durable = False
    reason: str


class ActivityChanged(Event, frozen=True):
    durable = False
    activity: Activity
    detail: str = ""


# --- tools ---


class ToolStarted(Event, frozen=True):
    """A tool call starts. Recorded before any side effect, with the arguments that run."""

    call_id: str
    name: str
    args: dict[str, Any]
    description: str = ""


class ToolEnded(Event, frozen=True):
    """A tool call finished.

    `text` is for the model, `display` for people (a diff, a list), `note` for the tool history, `images` for the model.
    `asynchronous`: work continues after the call. `audit` records changed arguments, `redacted` the names of removed
    secrets, `error_kind` the class of the error, such as `UnreadFile` or `NeedsConfirmation`.
    """

    call_id: str
    name: str
    status: CallStatus
    text: str
    note: str = ""
    display: str = ""
    for_user: str = ""
    files: tuple[str, ...] = ()
    duration_ms: int = 0
    images: tuple[Image, ...] = ()
    asynchronous: bool = False
    audit: CallAudit | None = None
    redacted: tuple[str, ...] = ()
    error_kind: str = ""


class CallQueued(Event, frozen=True):
    """A call is admitted and waits for a free slot; `ToolStarted` follows."""

    durable = False
    call_id: str
    name: str


class CallSpeculated(Event, frozen=True):
    """A tool call starts while its reply is still streaming. Recorded before the call runs.

    `ToolStarted` with the same id commits it; `CallDiscarded` rolls it back.
    """

    call_id: str
    name: str
    args: dict[str, Any]


class CallDiscarded(Event, frozen=True):
    """A speculative call was rolled back.

    `restored` lists the file changes undone; `skipped_files` could not be, usually because something else changed them.
    """

    call_id: str
    name: str
    args: dict[str, Any]
    reason: DiscardReason
    started: bool = True
    completed: bool = False
    restored: tuple[FileChange, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()


class ToolProgressed(Event, frozen=True):
    durable = False
    call_id: str
    name: str
    text: str = ""
    elapsed_s: float = 0.0


class StatusUpdated(Event, frozen=True):
    """A live progress line for people, dropped when the turn ends."""

    durable = False
    text: str


class TodosChanged(Event, frozen=True):
    todos: tuple[Todo, ...]


class FileCached(Event, frozen=True):
    """The model has now seen this file, fully or in part, or Odin has changed it."""

    file: CachedFile


class PermissionAsked(Event, frozen=True):
    """A tool call waits for approval.

    `rules` are the rules that would answer it from now on, narrowest first. `preview` shows what would change.
    `sandbox` names the sandbox the command would run in; `unsandboxed`: the request is to run it again without one.
    `asked_paths` need this approval, `allowed_paths` of the same call do not.
    """

    ask_id: str
    call_id: str
    name: str
    args: dict[str, Any]
    reason: str
    subject: str = ""
    rules: tuple[str, ...] = ()
    preview: str = ""
    sandbox: str = ""
    unsandboxed: bool = False
    asked_paths: tuple[str, ...] = ()
    allowed_paths: tuple[str, ...] = ()


class PermissionAnswered(Event, frozen=True):
    """The answer. `args` are the approved arguments if they were edited; `rule` is remembered for `remember`."""

    ask_id: str
    call_id: str
    allowed: bool
    by: str = "user"
    reason: str = ""
    args: dict[str, Any] | None = None
    summary: str = ""
    rule: str = ""
    remember: RememberScope | None = None


class RuleAdded(Event, frozen=True):
    text: str
    action: RuleAction
    scope: RememberScope = "session"


class RuleRemoved(Event, frozen=True):
    text: str
    action: RuleAction
    scope: RememberScope = "session"


class HookRan(Event, frozen=True):
    """A hook ran. `outcome` is one word; `detail` is its message or what went wrong."""

    point: HookPoint
    hook: str
    outcome: Literal["silent", "allowed", "asked", "denied", "modified", "context", "halted", "failed", "timed_out"]
    detail: str = ""
    call_id: str = ""
    duration_ms: int = 0


class QuestionsAsked(Event, frozen=True):
    ask_id: str
    call_id: str
    questions: tuple[Question, ...]


class QuestionsAnswered(Event, frozen=True):
    """The chosen labels or typed text per question. `cancelled`: the user declined to answer."""

    ask_id: str
    call_id: str
    answers: tuple[tuple[str, ...], ...] = ()
    cancelled: bool = False
    by: str = "user"


# --- background processes ---


class SpawnStarted(Event, frozen=True):
    """A background process started. `max_runtime_s` is 0 for a service without a time limit."""

    id: str
    call_id: str
    command: str
    description: str = ""
    max_runtime_s: float = 0.0
    log: str = ""


class SpawnFinished(Event, frozen=True):
    """A background process ended. `output` is the tail of a failed process's output."""

    id: str
    status: Literal["finished", "failed", "timed_out", "stopped"]
    code: int = 0
    output: str = ""


# --- sub-agents and warnings ---


class AgentStarted(Event, frozen=True):
    id: str
    task: str
    mode: Mode


class AgentEnded(Event, frozen=True):
    """A sub-agent finished; `text` is the start of its answer."""

    id: str
    reason: ExitReason
    text: str = ""


class Warned(Event, frozen=True):
    """A message the user should see."""

    durable = False
    text: str
    level: Literal["info", "warn", "error"] = "warn"


class RateLimitUpdated(Event, frozen=True):
    """The provider's remaining rate limits; -1 if not reported. They reset in `reset_s` seconds."""

    durable = False
    provider: str
    requests_left: int = -1
    requests_limit: int = -1
    tokens_left: int = -1
    tokens_limit: int = -1
    reset_s: float = 0.0


class SessionSwitched(Event, frozen=True):
    """Published in the session that is left and in the one that is entered, `session`."""

    durable = False
    kind: Literal["resume", "new", "fork"]
    session: str


AnyEvent = (
    SessionOpened
    | TitleSet
    | InstructionsChanged
    | ModelChanged
    | PermissionModeChanged
    | BudgetSet
    | PromptQueued
    | PromptChanged
    | PromptDropped
    | PromptInjected
    | TurnStarted
    | TurnEnded
    | LoopChanged
    | LoopPrompted
    | NoteAdded
    | ContextAdded
    | ContextSummarized
    | MessageRemoved
    | ResultsPruned
    | Compacted
    | CompactionChanged
    | CheckpointSaved
    | FilesChanged
    | Rewound
    | Redone
    | Replied
    | UsageRecorded
    | ReplyDiscarded
    | RetryScheduled
    | RequestStarted
    | RequestProgressed
    | TextStreamed
    | ThinkingStarted
    | ThinkingStreamed
    | ThinkingEnded
    | CallStreamed
    | ReplyRolledBack
    | ActivityChanged
    | CallQueued
    | CallSpeculated
    | CallDiscarded
    | ToolStarted
    | ToolEnded
    | ToolProgressed
    | StatusUpdated
    | TodosChanged
    | FileCached
    | PermissionAsked
    | PermissionAnswered
    | RuleAdded
    | RuleRemoved
    | HookRan
    | QuestionsAsked
    | QuestionsAnswered
    | SpawnStarted
    | SpawnFinished
    | AgentStarted
    | AgentEnded
    | Warned
    | RateLimitUpdated
    | SessionSwitched
)


class Envelope(Struct, frozen=True):
    """One event with its number, time, session and agent: a log line, a JSON line, a server-sent event.

    `agent` is "" for the main agent.
    """

    seq: int
    ts: float
    session: str
    event: AnyEvent
    agent: str = ""
