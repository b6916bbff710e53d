"""The three verbs every front end speaks: submit, events, query. Local, HTTP and remote sessions all look like this.

The sessions of a project, as a front end sees them: which there are, and going from one to another.
"""

from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from odin.core.event import (
    ActivityChanged,
    CachedFile,
    Delivery,
    Envelope,
    ExitReason,
    FileChange,
    LoopState,
    Mode,
    SkippedFile,
    Todo,
)
from odin.core.message import Attachment, Usage
from odin.core.op import Op, Rewind
from odin.core.policy import CallbackHook, RuleLine
from odin.core.usage import UsageGrouping, UsageReport, UsageTotals


class ToolUse(Struct, frozen=True):
    """One line of a turn's tool history."""

    tool: str
    files: tuple[str, ...] = ()
    description: str = ""


class TurnRecord(Struct, frozen=True):
    """One prompt, as it was typed, and what came of it. `started` is when, `files` how many files its calls changed."""

    id: str
    body: str
    mode: Mode
    answer_summary: str = ""
    todos: tuple[Todo, ...] = ()
    tool_history: tuple[ToolUse, ...] = ()
    updates: tuple[str, ...] = ()
    reason: ExitReason | None = None
    started: float = 0.0
    files: int = 0


class QueuedPrompt(Struct, frozen=True):
    """A prompt that waits. `body` is what was typed; `text` is what the model will read, where that is another.

    One that `rests` is not begun by itself: an earlier run or an interrupt left it.
    """

    id: str
    body: str
    mode: Mode
    timestamp: float
    delivery: Delivery = "queue"
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    paused: bool = False


class SubAgentRecord(Struct, frozen=True):
    id: str
    task: str
    mode: Mode
    todos: tuple[Todo, ...] = ()


class ContextItem(Struct, frozen=True):
    content: str
    path: str = ""
    command: str = ""


class Snapshot(Struct, frozen=True):
    """A copy of the whole state at one event number; changing it changes nothing."""

    session: str
    seq: int
    cwd: str
    model: str
    title: str
    agent_mode: Mode
    permission_mode: str
    executing: bool
    messages: tuple[TurnRecord, ...]
    queue: tuple[QueuedPrompt, ...]
    sub_agents: tuple[SubAgentRecord, ...]
    context: tuple[ContextItem, ...]
    custom_instructions: str
    config: dict[str, Any]
    files: tuple[CachedFile, ...]
    todos: tuple[Todo, ...]
    usage: Usage
    cost_usd: float
    usage_by_model: dict[str, Usage]
    usage_by_agent: dict[str, Usage]
    spent_by_model: dict[str, UsageTotals]
    spent_by_agent: dict[str, UsageTotals]
    context_tokens: int
    context_limit: int
    message_count: int


class SessionInfo(Struct, frozen=True):
    """What a front end shows before anything has happened. `budget_usd` is what the session may cost; 0: no limit.

    `model_chosen` says that somebody named the model for this session. `branch` is the one that is checked out now, or
    the beginning of the commit; empty outside of git. The timeouts are how long a permission question and a question of
    the model wait for an answer; 0: as long as it takes. `log_file` is where failures inside Odin are written down.
    """

    session: str
    cwd: str
    model: str
    version: str
    mode: Mode
    permission_mode: str
    tools: tuple[str, ...]
    notice: str = ""
    sandbox: str = ""
    budget_usd: float = 0.0
    warnings: tuple[str, ...] = field(default_factory=tuple[str, ...])
    model_chosen: bool = False
    branch: str = ""
    confirm_timeout_s: float = 0.0
    question_timeout_s: float = 0.0
    log_file: str = ""


class ContextPart(Struct, frozen=True):
    """What one source takes of the window, such as the tools or the results of Read: `count` things of `tokens`."""

    source: str
    tokens: int
    count: int = 1


class ContextReport(Struct, frozen=True):
    """How full the window is. `used` is what the last reply reported; with `measured` false it is an estimate.

    The parts are estimates that add up to `used`. `limit` is 0 when the window is unknown; at `threshold` tokens the
    conversation is summarised; `compacting` says that a summary is being made, or waits to take its place.
    """

    model: str
    used: int
    limit: int
    threshold: int
    measured: bool
    parts: tuple[ContextPart, ...] = ()
    compacting: bool = False


class AvailableModel(Struct, frozen=True):
    """A model that can be used from here. Prices are USD per million tokens, None when they are not known.

    `where` is its address, `note` how it is reached: by which key, on this machine, or without any network.
    """

    ref: str = field(name="model")
    context: int
    tools: str
    address: str
    price_input: float | None = None
    price_output: float | None = None
    price_cache_read: float | None = None
    price_cache_write: float | None = None
    note: str = ""


class RewindPlan(Struct, frozen=True):
    """What a rewind would do to files, and which it would leave alone and why."""

    changes: tuple[FileChange, ...] = ()
    kept: tuple[SkippedFile, ...] = ()


CommandSource = Literal["project", "user", "project config", "user config"]
"""Where a custom command is written. Of two with one name the first in this order counts."""


class CustomCommand(Struct, frozen=True):
    """A text somebody wrote once to be sent by its name: `/name`, or `/folder/name`; `name` is without the slash.

    `description` and `hint` (of its arguments) are one plain line each.
    """

    name: str
    description: str = ""
    hint: str = ""
    source: CommandSource = "project"


class LoopStatus(Struct, frozen=True):
    """Where loop mode stands. Everything is empty while it is off, but for why it was switched off, if it was.

    `cost_usd` is what was spent since it was switched on.
    """

    state: LoopState = "idle"
    goal: str = ""
    iteration: int = 0
    limit: int = 0
    reason: str = ""
    cost_usd: float = 0.0

    @property
    def is_active(self) -> bool:
        """Whether the session is kept busy by it, also between two turns."""
        return self.state in ("executing", "verifying", "assessing")


class Client(Protocol):
    async def submit(self, op: Op) -> bool:
        """Ask for something. Raises only when the request itself is wrong; what comes of it are events.

        False says that there was nothing to do it to: no such prompt, nothing to interrupt.
        """
        ...

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        """What happens from now on, and before it, when `after` is given, everything durable with a higher number.

        The subscription begins with the call itself, not with the first read.
        """
        ...

    def stream_named_events(self, names: Collection[str] = ()) -> AsyncIterator[tuple[str, Envelope]]:
        """What happens from now on by the names of the bus, such as `tool_result`; all that have one, or only these.

        Raises UsageError for what is no such name.
        """
        ...

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        """Have one function called in place whenever the activity changes. A new one replaces the old."""
        ...

    async def snapshot(self) -> Snapshot: ...

    def stream_snapshots(self) -> AsyncIterator[Snapshot]:
        """The state now, and again whenever it has changed."""
        ...

    async def get_info(self) -> SessionInfo: ...

    async def report_context(self) -> ContextReport:
        """What fills the model's window."""
        ...

    async def list_rules(self) -> tuple[RuleLine, ...]:
        """The rules that hold, in the order in which they are shown."""
        ...

    async def list_models(self, *, probe_servers: bool = False) -> tuple[AvailableModel, ...]:
        """Return the models that can be used from here; `probe_servers` also asks the servers on this machine."""
        ...

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        """The custom commands there are now, by name."""
        ...

    async def get_loop_status(self) -> LoopStatus:
        """Where loop mode stands."""
        ...

    async def plan_rewind(self, op: Rewind) -> RewindPlan:
        """What this rewind would do to files if it were asked for now. Raises UsageError for an unknown prompt."""
        ...

    async def find_files(self, words: str, limit: int = 20) -> tuple[str, ...]:
        """Paths of the project that these letters may mean, the likeliest first; a folder ends with `/`.

        The project is looked through in the background, so the same question may find more a moment later. Without
        words: what was used last, then what lies at the top. A newer question ends an older one.
        """
        ...

    def add_hook(self, hook: CallbackHook) -> None:
        """Have a callback of the front end told what happens. Raises UsageError when there is no such event."""
        ...

    async def close(self, timeout: float | None = None) -> bool:
        """End the session: what runs is aborted, what waits stays in the log. False when that is not over in time."""
        ...


ExportFormat = Literal["markdown", "json", "html"]


class SessionSummary(Struct, frozen=True):
    """One line of the list. `first` is the first prompt still in the conversation, `original` the first there ever was.

    `locked` names whoever has it open, or is empty. `forked_from` is the session it was copied from.
    """

    id: str
    modified: float
    created: float = 0.0
    title: str = ""
    first: str = ""
    original: str = ""
    turns: int = 0
    model: str = ""
    cwd: str = ""
    forked_from: str = ""
    locked: str = ""
    usage: Usage = Usage()
    cost_usd: float = 0.0
    bytes: int = 0


class SessionMatch(Struct, frozen=True):
    """A place where a search found its words: in which session, in whose words, and the words around them."""

    session: SessionSummary
    where: Literal["title", "prompt", "answer", "tool", "summary"]
    snippet: str
    seq: int = -1


class Exchange(Struct, frozen=True):
    """A prompt and the last words of its answer, both shortened. `started` is when it was asked."""

    prompt: str
    answer: str = ""
    started: float = 0.0


class SessionPreview(Struct, frozen=True):
    """The end of a conversation, at a glance. `earlier` says that there is more before it."""

    session: str
    exchanges: tuple[Exchange, ...] = ()
    earlier: bool = False


class Sessions(Protocol):
    """Holds the one session that is open, and knows the others.

    Whatever goes to another session opens and locks it first; when that fails, the open one stays as it is.
    """

    @property
    def client(self) -> Client:
        """The session that is open now."""
        ...

    async def open_new(self) -> Client: ...

    async def resume(self, session: str) -> Client: ...

    async def fork(self, turn: str = "") -> tuple[Client, str]:
        """A copy of the open session up to before the prompt `turn`, and that prompt's text to be edited.

        Without a turn everything is copied and there is no text.
        """
        ...

    async def list_sessions(self) -> tuple[SessionSummary, ...]: ...

    async def search(self, words: str) -> tuple[SessionMatch, ...]: ...

    async def list_prompts(self, limit: int = 200) -> tuple[str, ...]:
        """What was asked lately in the sessions of the project, as it was typed, the newest first and each once."""
        ...

    async def preview(self, session: str) -> SessionPreview:
        """How the conversation ended. Only the end of its log is read, so that a long one is shown at once."""
        ...

    async def report_usage(self, by: UsageGrouping = "day", *, days: int = 0, session: str = "") -> UsageReport:
        """What this project, or one session, has spent today and in the days before, `days` in all; 0 for ever."""
        ...

    async def rename(self, session: str, title: str) -> None: ...

    async def delete(self, session: str) -> None: ...

    async def export(self, session: str, form: ExportFormat, path: str = "") -> str:
        """Write a session to a file and say which. Without a path it is put beside the session."""
        ...

    async def close(self) -> None: ...
