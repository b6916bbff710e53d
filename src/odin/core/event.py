"""What happened, in the past tense: the only thing a session is made of.

A durable event is a line of the log and takes a number. A passing one (deltas, progress) is only broadcast; it carries
the number of the durable event it follows.
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
"""How a prompt that comes while the agent is busy gets in: after the turn and in its own mode, with the next request of
the running turn, or at once, in the place of the calls that have not begun."""

CompactionTrigger = Literal["auto", "manual", "overflow", "cut_off"]

CompactionProfile = Literal["auto", "continuation", "archival"]
"""What a summary is for: going on with the work, or a record of it. `auto` chooses by what is going on."""

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
"""Where loop mode stands: off, at work in three ways, or over for one of three reasons."""


class Todo(Struct, frozen=True, omit_defaults=True):
    id: str
    content: str
    status: TodoStatus
    active_form: str = ""


class CachedFile(Struct, frozen=True, omit_defaults=True):
    """What is known of one file the model has seen; `sha256` tells after a resume whether it is still the same."""

    path: str
    size: int
    cached_at: float
    modified: bool = False
    truncated: bool = False
    sha256: str = ""


FileKind = Literal["file", "link", "folder", "absent", "other"]


class FileState(Struct, frozen=True, omit_defaults=True):
    """One path at one moment. `sha256` names the bytes of a file, `target` is where a link points.

    `saved` says that the bytes are in the checkpoint store; a file too large for it is known but cannot come back.
    """

    path: str
    kind: FileKind
    sha256: str = ""
    mode: int = 0
    target: str = ""
    saved: bool = True


class FileChange(Struct, frozen=True):
    """What a call made of one path."""

    before: FileState
    after: FileState


class SkippedFile(Struct, frozen=True):
    """A path that a rewind left alone, and why."""

    path: str
    reason: str


class Option(Struct, frozen=True, omit_defaults=True):
    """One answer a question offers."""

    label: str
    detail: str = ""


class Question(Struct, frozen=True, omit_defaults=True):
    """One thing a person is asked. With options the first is the default; `multiple` allows several of them."""

    header: str
    text: str
    options: tuple[Option, ...] = ()
    multiple: bool = False


class CallAudit(Struct, frozen=True, omit_defaults=True):
    """What the model asked for and what really ran, when somebody changed it: the person, a program or a hook."""

    original: dict[str, Any]
    effective: dict[str, Any]
    by: str = "user"
    summary: str = ""


class Event(Struct, frozen=True, tag=True):
    """Base of all events; `durable` says whether the log keeps it."""

    durable: ClassVar[bool] = True


# --- the session ---


class SessionOpened(Event, frozen=True):
    """Odin began or resumed work on this session. `config` holds the public settings only, never a key.

    `root` is the project: what a person allows holds as long as it stays the same. `permission_mode` is the one that
    holds from here on; `model_chosen`: somebody named the model for this session, now or in an earlier run of it.
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
    """The project's instructions were written anew; the model reads these from the next prompt on."""

    instructions: str


class ModelChanged(Event, frozen=True):
    """Another model answers from now on. With a `reason` nobody chose it: the one before could not answer."""

    model: str
    reason: str = ""


class PermissionModeChanged(Event, frozen=True):
    mode: str


class BudgetSet(Event, frozen=True):
    """What the session may cost from now on in US dollars; 0 means no limit."""

    usd: float


# --- prompts and turns ---


class PromptQueued(Event, frozen=True, omit_defaults=True):
    """A prompt waits. `shown`, here and in the next ones, is what people see of it where the model reads more.

    It is what was typed when that named a custom command, or what loop mode says in short. What is `attached` is read
    when the prompt is taken; pictures from a clipboard are files by now.
    """

    id: str
    text: str
    mode: Mode
    delivery: Delivery = "queue"
    display_text: str = ""
    attachments: tuple[Attachment, ...] = ()


class PromptChanged(Event, frozen=True, omit_defaults=True):
    """A queued prompt was edited before it was taken."""

    id: str
    text: str
    mode: Mode
    delivery: Delivery = "queue"
    display_text: str = ""
    attachments: tuple[Attachment, ...] = ()


class PromptDropped(Event, frozen=True):
    """A queued prompt was taken back before it ran."""

    id: str


class PromptInjected(Event, frozen=True, omit_defaults=True):
    """A prompt entered the conversation without a turn of its own, with what was attached to it.

    Into the running one, `turn`; or, after an interrupt and with no `turn`, to be read when the model is next asked.
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
    """A prompt left the queue and is being answered in its own mode; `notes` is what the model is told beside it.

    With `continues` nobody said anything new: the model is asked again with the conversation as it is. `attached` is
    what came beside the text; what was read of it, and of the files that the text mentions, is in `notes` and `images`.
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
    """The one terminal event of a turn, whatever ended it.

    Of an error of a model's API `error_status`, `error_code` and `error_type` are what it said, and `retry_after_s` how
    long it asks to be left alone.
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
    """Loop mode was switched on or off, came a step further or is over; `reason` says why, where that is not plain.

    `iteration` is how many of at most `limit` prompts it has given since it was switched on. `idle` means off.
    """

    state: LoopState
    goal: str = ""
    iteration: int = 0
    limit: int = 0
    reason: str = ""


class LoopPrompted(Event, frozen=True):
    """Loop mode asks the model to go on: `text` is what it reads, in the turn that follows. `reasons` are why."""

    text: str
    iteration: int
    limit: int
    reasons: tuple[str, ...] = ()


class NoteAdded(Event, frozen=True):
    """Something the model is told beside the newest message: a change since the last request."""

    text: str


class ContextAdded(Event, frozen=True):
    """A piece of context kept by itself, from a file or a command; `id` is that of the command the user ran."""

    content: str
    path: str = ""
    command: str = ""
    id: str = ""

    @property
    def source(self) -> str:
        return f"Context from {self.path or (f'`{self.command}`' if self.command else 'the user')}"

    @property
    def note(self) -> str:
        """How the model reads it, beside a prompt."""
        return f"{self.source}:\n{self.content}"


class ContextSummarized(Event, frozen=True):
    """Collected context was condensed: `text` takes the place of all context items and of the results of `calls`."""

    text: str
    calls: tuple[str, ...] = ()


class MessageRemoved(Event, frozen=True):
    """The newest message was taken out of the conversation."""


class ResultsPruned(Event, frozen=True):
    """The results of these calls are shown to the model as one line from now on; `images` are no longer shown at all.

    The log keeps them whole, and so does `archive`, for the model to read.
    """

    calls: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    archive: str = ""


class Compacted(Event, frozen=True):
    """The older part of a conversation was replaced by a summary.

    `text` is the summary. Of the messages so far the last `kept` stay as they are; before them stand `users`, older
    prompts word for word. `archive` is the file that holds everything, for the model to read. Tokens are estimates.
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
    """How a summary of the conversation is getting on; `detail` says why it failed.

    When it is not `final`, the model failed and what is known without it takes the place of its summary.
    """

    durable = False
    status: Literal["started", "succeeded", "failed", "cancelled"]
    trigger: CompactionTrigger = "auto"
    detail: str = ""
    final: bool = True


# --- checkpoints ---


class CheckpointSaved(Event, frozen=True):
    """Recorded before a call that may change files: how they were, with their bytes in the checkpoint store.

    A command may change anything, so before one the whole project is kept as a `manifest` of the store, and `skipped`
    counts the files that did not fit its limits.
    """

    call_id: str
    files: tuple[FileState, ...] = ()
    manifest: str = ""
    skipped: int = 0


class FilesChanged(Event, frozen=True):
    """What a call really changed, as it was when the call was over.

    `shared` marks what changed while the call's process ran on in the background: somebody else may have done it.
    """

    call_id: str
    changes: tuple[FileChange, ...] = ()
    concurrent: bool = False


class Rewound(Event, frozen=True):
    """The session went back to before a prompt: its files, its conversation, or both.

    `changes` is what was done to files; `kept` names those that were left alone, above all because someone else
    changed them.
    """

    id: str
    turn: str
    files: bool
    chat: bool
    changes: tuple[FileChange, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()


class Redone(Event, frozen=True):
    """The rewind of that id was taken back."""

    id: str
    changes: tuple[FileChange, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()


# --- one model call ---


class Replied(Event, frozen=True):
    """The finished reply. It is final: no rollback follows it."""

    message: ReplyMessage


class UsageRecorded(Event, frozen=True):
    """What one call of a model took. A cost of 0 is not known, unless the model is `free`.

    `context` is the model's window, 0 when it is not known; `purpose` is planner, or the small job it was made for.
    """

    model: str
    usage: Usage
    cost_usd: float = 0.0
    context_window: int = 0
    purpose: str = "planner"
    free: bool = False


class ReplyDiscarded(Event, frozen=True):
    """A reply that was not stored: cut off by the token limit, malformed, empty."""

    reason: str


class RetryScheduled(Event, frozen=True):
    attempt: int
    attempts: int
    delay_s: float
    error: str
    error_kind: str


class RequestStarted(Event, frozen=True):
    """The model is about to be asked, for the `step`th time in this turn. `tokens` is an estimate of the request."""

    durable = False
    step: int
    model: str = ""
    tokens: int = 0


class RequestProgressed(Event, frozen=True):
    """How much of a reply has arrived, told now and then."""

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
    """One whole block of reasoning, once, and how long it took."""

    durable = False
    text: str
    seconds: float = 0.0


class CallStreamed(Event, frozen=True):
    """A tool call is being written. With `done` it carries its final arguments and `chars` is 0."""

    durable = False
    call_id: str
    name: str
    json_delta: str = ""
    chars: int = 0
    done: bool = False
    args: dict[str, Any] = field(default_factory=dict[str, Any])


class ReplyRolledBack(Event, frozen=True):
    """Drop the unfinished text and calls on screen: the reply will start again."""

    durable = False
    reason: str


class ActivityChanged(Event, frozen=True):
    durable = False
    activity: Activity
    detail: str = ""


# --- tools ---


class ToolStarted(Event, frozen=True):
    """Recorded before the side effect, with the arguments that really run."""

    call_id: str
    name: str
    args: dict[str, Any]
    description: str = ""


class ToolEnded(Event, frozen=True):
    """`text` is what the model reads, `view` what people see (a diff, a list), `note` the line for the tool history.

    `images` are shown to the model beside the text. `asynchronous` says that work goes on after the call. `audit` tells
    of arguments that a person or a hook changed, `redacted` which secrets were taken out of the result. `error_kind`
    names the error where it has a name, such as `UnreadFile` or `NeedsConfirmation`.
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
    """A call may run and waits for its turn; `ToolStarted` follows when it comes."""

    durable = False
    call_id: str
    name: str


class CallSpeculated(Event, frozen=True):
    """Recorded before a call is begun whose reply is still being written.

    `ToolStarted` of the same call says that it counts; `CallDiscarded` that it does not and its changes are undone.
    """

    call_id: str
    name: str
    args: dict[str, Any]


class CallDiscarded(Event, frozen=True):
    """A call that was begun too early does not count.

    `restored` is what was put back in files; `kept` names what could not be, mostly because somebody else changed it.
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
    """One live progress line for people; all are forgotten when the turn ends."""

    durable = False
    text: str


class TodosChanged(Event, frozen=True):
    todos: tuple[Todo, ...]


class FileCached(Event, frozen=True):
    """A file the model has now seen, wholly or in part, or that Odin has changed."""

    file: CachedFile


class PermissionAsked(Event, frozen=True):
    """A call waits for a yes or a no.

    `rules` are the rules that would answer it from now on, the narrowest first; each is exactly as broad as its text.
    `preview` is what would change. `sandbox` names what the command would run in; with `outside` the question is
    whether it may run again without it. `asked_paths` need this answer, `allowed_paths` of the same call would not.
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
    """`args` is what was approved when it differs from what was asked; `rule` what is remembered, and for how long."""

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
    """A hook was told of something. `outcome` is one word; `detail` is what it said, or what was wrong with it."""

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
    """One tuple of chosen labels or typed words per question; `cancelled` when the person would not answer."""

    ask_id: str
    call_id: str
    answers: tuple[tuple[str, ...], ...] = ()
    cancelled: bool = False
    by: str = "user"


# --- background processes ---


class SpawnStarted(Event, frozen=True):
    """A process began that outlives its call. `max_runtime_s` is 0 for a service without a limit."""

    id: str
    call_id: str
    command: str
    description: str = ""
    max_runtime_s: float = 0.0
    log: str = ""


class SpawnFinished(Event, frozen=True):
    """A background process is over. `output` is the end of what a failed one printed."""

    id: str
    status: Literal["finished", "failed", "timed_out", "stopped"]
    code: int = 0
    output: str = ""


# --- sub-agents and faults ---


class AgentStarted(Event, frozen=True):
    id: str
    task: str
    mode: Mode


class AgentEnded(Event, frozen=True):
    """A sub-agent is done; `text` is the beginning of its answer."""

    id: str
    reason: ExitReason
    text: str = ""


class Warned(Event, frozen=True):
    """Something a person should know that ends nothing."""

    durable = False
    text: str
    level: Literal["info", "warn", "error"] = "warn"


class RateLimitUpdated(Event, frozen=True):
    """What a provider says is left of its limits; -1 for what it did not tell. They are full again in `reset_s`."""

    durable = False
    provider: str
    requests_left: int = -1
    requests_limit: int = -1
    tokens_left: int = -1
    tokens_limit: int = -1
    reset_s: float = 0.0


class SessionSwitched(Event, frozen=True):
    """Told in the session that is left and again in the one that is entered, which is `session`."""

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
    """The log line, the server-sent frame, the JSON line: one event with its number, time, session and agent.

    `agent` is "" for the main agent.
    """

    seq: int
    ts: float
    session: str
    event: AnyEvent
    agent: str = ""
