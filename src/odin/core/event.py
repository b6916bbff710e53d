"""Events: what happened in a session, in the past tense.

A durable event is a numbered line of the session's log. A transient event (chunks, progress) is only published; it
carries the number of the last durable event before it.
"""

from typing import Any, Literal

from msgspec import Struct, field

from odin.core.call_events import (
    ActivityChanged,
    CallDiscarded,
    CallQueued,
    CallSpeculated,
    CallStreamed,
    FileCached,
    HookRan,
    KeyPoolChanged,
    MemoryChanged,
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
    RateLimitUpdated,
    Replied,
    ReplyDiscarded,
    ReplyDrafted,
    ReplyRolledBack,
    RequestProgressed,
    RequestStarted,
    RetryScheduled,
    RuleAdded,
    RuleRemoved,
    SkillUsed,
    SpawnFinished,
    SpawnListening,
    SpawnStarted,
    StatusUpdated,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
    TodosChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    UsageRecorded,
)
from odin.core.errors import PromptBlocked
from odin.core.event_values import (
    CompactionProfile,
    CompactionTrigger,
    Delivery,
    Event,
    ExitReason,
    FileChange,
    FileState,
    LanguageServerState,
    LoopState,
    Mode,
    ServerStatus,
    SkippedFile,
    Verification,
)
from odin.core.message import Image, Usage
from odin.core.prompt import PromptData
from odin.core.root import Root
from odin.core.schedule import SessionSchedule
from odin.core.team import MailSent, TaskChanged, TaskCreated

# --- the session ---


class SessionOpened(Event, frozen=True):
    """Odin started or resumed this session.

    `config` holds the public settings, never a key. `root` is the project; approvals apply while it stays the same.
    `roots` are the folders besides it. A path in the log lies in the project if it is relative, else in the root that
    contains it.
    `permission_mode` and `role` are in force from here on; "" is the default role. `model_chosen`: the user chose the
    model in this or an earlier run.
    `headless`: this run answers prompts of the command line or a program (`odin -p`). `pool` is the model pool.
    `commands_ask` is when the user is asked about a command: `before` it runs, or about its `effects`.
    """

    cwd: str
    model: str
    version: str
    resumed: bool = False
    instructions: str = ""
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    root: str = ""
    model_chosen: bool = False
    headless: bool = False
    permission_mode: str = ""
    role: str = ""
    pool: str = ""
    commands_ask: str = "before"
    roots: tuple[Root, ...] = ()


class TitleSet(Event, frozen=True):
    title: str


class InstructionsChanged(Event, frozen=True):
    """The project's instructions were rewritten. The model sees them from the next prompt on."""

    instructions: str


class ModelChanged(Event, frozen=True):
    """An agent has another model. `reason` is set if it replaces, or gives way to, the `selected` one.

    `pool` is the model pool it was selected from.
    """

    model: str
    reason: str = ""
    selected: str = ""
    pool: str = ""


class EffortChanged(Event, frozen=True):
    """An agent has another reasoning effort, from its next request on; "" for the usual one."""

    effort: str


class SystemPromptChanged(Event, frozen=True):
    """The main text of an agent's system prompt was replaced, from its next request on; None: the usual one."""

    text: str | None


class ToolsChanged(Event, frozen=True):
    """An agent is offered only these tools, from its next request on; None: the usual ones."""

    tools: tuple[str, ...] | None


class PermissionModeChanged(Event, frozen=True):
    mode: str


class RootAdded(Event, frozen=True):
    """The session works in another folder besides the project, or has other access to it, from here on."""

    root: Root


class RootRemoved(Event, frozen=True):
    """The session does not work in this folder any more."""

    path: str


class RoleChanged(Event, frozen=True):
    """The main agent has another role, from its next request on."""

    role: str


class BudgetSet(Event, frozen=True):
    """The session's budget in US dollars changed; 0 means no limit."""

    usd: float


# --- prompts and turns ---


class PromptQueued(PromptData, Event, frozen=True):
    """A prompt was queued. Clipboard images among its attachments have been saved to files."""

    delivery: Delivery = "queue"


class PromptChanged(PromptData, Event, frozen=True):
    """A queued prompt was edited."""

    delivery: Delivery = "queue"


class PromptDropped(Event, frozen=True):
    """A queued prompt was removed."""

    id: str


class PromptPaused(Event, frozen=True):
    """A queued prompt waits until the user sends it: an interrupt or an earlier run has left it. Or it waits no longer.

    A client that joins later gets it after the log.
    """

    durable = False

    id: str
    paused: bool = True


class PromptInjected(PromptData, Event, frozen=True):
    """A queued prompt entered the conversation without a turn of its own.

    `turn` is the running turn it joined. It is empty after an interrupt; then the model reads the prompt with the next
    request.
    """

    turn: str = ""
    notes: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()


class TurnStarted(PromptData, Event, frozen=True):
    """A prompt left the queue and its turn began.

    `notes` and `images` are what the model reads besides the text, including the attached and mentioned files.
    `continues`: no new prompt; the model is asked again with the conversation as it is. `mail` are the ids of the mail
    that the text and the notes deliver.
    """

    notes: tuple[str, ...] = ()
    continues: bool = False
    images: tuple[Image, ...] = ()
    mail: tuple[str, ...] = ()


class TurnEnded(Event, frozen=True):
    """The turn is over. Every turn ends with exactly one of these.

    `duration_ms` leaves out the time that the user took to answer.
    `plan_path` is the file of the plan that the model presented last.
    `error_status`, `error_code` and `error_type` repeat what the model's API reported; `retry_after_s` is the delay it
    asked for. `verification` is set if the turn changed files of a project whose checks are known. `all_denied`: every
    call that would have changed something was denied, in a mode in which changes are allowed. `structured_output` is
    the answer as JSON, if the prompt has an `output_schema`; `text` is the same.
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
    verification: Verification | None = None
    plan_path: str = ""
    all_denied: bool = False
    structured_output: dict[str, Any] | None = None

    @property
    def is_blocked(self) -> bool:
        """True if a hook blocked the prompt."""
        return self.error_kind == PromptBlocked.__name__


class WorkEnded(Event, frozen=True):
    """Nothing works any more: no agent has a turn or is about to start one.

    It comes after everything that the work has caused. A client that joins later gets it again as what is so now.
    """

    durable = False


CHECK_ID_PREFIX = "check-"
"""The start of the ids of Odin's own calls and questions about checks."""


class ChecksRan(Event, frozen=True):
    """Odin ran the project's checks after the model's answer. `continues`: the model was told what failed."""

    verification: Verification
    continues: bool = False


class ModeChanged(Event, frozen=True):
    """The rest of the turn runs in this mode.

    The user approved a plan, a program switched the mode, or a turn in a stricter mode wrote to a sub-agent.
    """

    mode: Mode


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


class ScheduleChanged(Event, frozen=True):
    """A schedule of the session was added, has run or was put off, or has ended (`is_on` is False) for a `reason`."""

    schedule: SessionSchedule
    is_on: bool
    reason: str = ""


class LoopPrompted(Event, frozen=True):
    """Loop mode prompted the model with `text` because of `reasons`; the turn follows."""

    text: str
    iteration: int
    limit: int
    reasons: tuple[str, ...] = ()


class NoteAdded(Event, frozen=True, omit_defaults=True):
    """A note for the model was added to the newest message: something changed since the last request.

    `mail` are the ids of the mail that it delivers.
    """

    text: str
    mail: tuple[str, ...] = ()


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
    limits. What a command wrote in a view is applied after it has run: `stage` is the folder that holds the plan, and
    the files as they were.
    """

    call_id: str
    files: tuple[FileState, ...] = ()
    manifest: str = ""
    skipped: int = 0
    stage: str = ""


class FilesChanged(Event, frozen=True):
    """The files a tool call changed.

    `concurrent`: they changed while the call's process ran in the background, so something else may have changed them.
    `more`: the call still runs, and another event follows. `shared_with`: other agents whose commands ran at the same
    time; one of them or this call's agent made the changes.
    """

    call_id: str
    changes: tuple[FileChange, ...] = ()
    concurrent: bool = False
    more: bool = False
    shared_with: tuple[str, ...] = ()


class Rewound(Event, frozen=True):
    """The session went back to before the prompt `turn`: files, conversation, or both.

    `changes` were made to files; `skipped_files` were left alone, usually because something else changed them.
    `stopped` names the agents and background processes of undone prompts that were stopped.
    """

    id: str
    turn: str
    files: bool
    chat: bool
    changes: tuple[FileChange, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()
    stopped: tuple[str, ...] = ()


class Redone(Event, frozen=True):
    """The rewind with this id was reversed."""

    id: str
    changes: tuple[FileChange, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()


# --- sub-agents and warnings ---


class AgentStarted(Event, frozen=True):
    """A sub-agent began to work on `task`; `description` is its short name. `call_id` is the call that started it.

    `owner` is the agent that made the call; "" is the main agent. `task_id` is the delegated task, if it is one.
    `continues` is an ended agent whose conversation this one continues. `color` is that of its type, if it has one.
    """

    id: str
    task: str
    mode: Mode
    description: str = ""
    call_id: str = ""
    owner: str = ""
    agent_type: str = ""
    task_id: str = ""
    model: str = ""
    continues: str = ""
    color: str = ""


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


class ServersToggled(Event, frozen=True):
    """The user enabled or disabled manual MCP servers, from the next request on."""

    names: tuple[str, ...]
    enabled: bool


class ServersChanged(Event, frozen=True):
    """The state of MCP servers changed: all of them, as they are now."""

    durable = False
    servers: tuple[ServerStatus, ...]


class LanguageServersChanged(Event, frozen=True):
    """The language servers of the project, after one of them started, ended or found other problems."""

    durable = False
    servers: tuple[LanguageServerState, ...] = ()


class SessionSwitched(Event, frozen=True):
    """The front end switched to `session`. Published in the old and in the new session."""

    durable = False
    kind: Literal["resume", "new", "fork"]
    session: str


AnyEvent = (
    SessionOpened
    | TitleSet
    | InstructionsChanged
    | ModelChanged
    | EffortChanged
    | SystemPromptChanged
    | ToolsChanged
    | PermissionModeChanged
    | RootAdded
    | RootRemoved
    | RoleChanged
    | BudgetSet
    | PromptQueued
    | PromptChanged
    | PromptDropped
    | PromptPaused
    | PromptInjected
    | TurnStarted
    | TurnEnded
    | WorkEnded
    | ChecksRan
    | ModeChanged
    | LoopChanged
    | LoopPrompted
    | ScheduleChanged
    | NoteAdded
    | ContextAdded
    | SkillUsed
    | MemoryChanged
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
    | ReplyDrafted
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
    | PlanAsked
    | PlanAnswered
    | SpawnStarted
    | SpawnListening
    | SpawnFinished
    | AgentStarted
    | AgentEnded
    | TaskCreated
    | TaskChanged
    | MailSent
    | Warned
    | RateLimitUpdated
    | KeyPoolChanged
    | ServersToggled
    | ServersChanged
    | LanguageServersChanged
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
