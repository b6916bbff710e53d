"""The protocols front ends use: `Client` for one session, `Sessions` for switching between the sessions of a project.

Everything asked of a session is an op given to `Client.submit`; what happens comes back through three streams. The
other methods only read, except `observe_activity` and `add_hook`, which register callbacks, and `close`. `Client` says
nothing about where the session runs, so that one over HTTP could look the same.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from odin.core.call_events import (
    ActivityChanged,
    KeyPoolChanged,
    RateLimitUpdated,
    UsageGrouping,
    UsageReport,
    UsageTotals,
)
from odin.core.event import Envelope
from odin.core.event_values import (
    DEFAULT_ROLE,
    CachedFile,
    Delivery,
    ExitReason,
    FileChange,
    LanguageServerState,
    LoopState,
    Mode,
    ServerStatus,
    SkippedFile,
    Todo,
)
from odin.core.interaction import Interaction
from odin.core.message import Attachment, Usage
from odin.core.op import Op, Prompt, Rewind
from odin.core.policy import CallbackHook, RuleLine, ServerExchange
from odin.core.profile import WritableFolders
from odin.core.prompt import PromptData, PromptSource
from odin.core.provider import ThinkingLosses
from odin.core.root import Root
from odin.core.schedule import SessionSchedule
from odin.core.team import TaskRecord, TaskState
from odin.core.tool import Tool


class ToolUse(Struct, frozen=True):
    """One line of a turn's tool history."""

    tool: str
    files: tuple[str, ...] = ()
    description: str = ""


class TurnRecord(Struct, frozen=True):
    """A prompt as typed, or mail, and its outcome. `started` is a time, `files` counts those its tool calls changed."""

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
    source: PromptSource = "user"
    attachments: tuple[Attachment, ...] = ()


class QueuedPrompt(PromptData, frozen=True):
    """A queued prompt. `paused`: an earlier run or an interrupt left it, so it starts only when the user sends it."""

    delivery: Delivery = "queue"
    timestamp: float = 0.0
    paused: bool = False
    agent: str = ""


class SubAgentRecord(Struct, frozen=True):
    """A live sub-agent. `owner` is the agent that started it; `state` is that of its task.

    `context_tokens` and `context_limit` say how full its context window is; `unread` counts mail it has not read.
    `model` answers now; `selected_model` is the one that it replaces, or the same.
    """

    id: str
    task: str
    mode: Mode
    todos: tuple[Todo, ...] = ()
    description: str = ""
    owner: str = ""
    type: str = ""
    task_id: str = ""
    call_id: str = ""
    model: str = ""
    state: TaskState = "running"
    state_changed_at: float = 0.0
    context_tokens: int = 0
    context_limit: int = 0
    message_count: int = 0
    unread: int = 0
    urgent: int = 0
    summary: str = ""
    artifact: str = ""
    color: str = ""
    selected_model: str = ""


class ContextItem(Struct, frozen=True):
    content: str
    path: str = ""
    command: str = ""


class Snapshot(Struct, frozen=True):
    """A copy of the whole state at one event number. `used_skills` are by agent, `interactions` wait for answers."""

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
    role: str = DEFAULT_ROLE
    tasks: tuple[TaskRecord, ...] = ()
    unread_messages: int = 0
    team_working: bool = False
    used_skills: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    interactions: tuple[Interaction, ...] = ()
    schedules: tuple[SessionSchedule, ...] = ()

    @property
    def is_working(self) -> bool:
        """True while any agent works, or the result of delegated work waits to be read. `WorkEnded` ends it."""
        return self.executing or self.team_working

    @property
    def running_turn(self) -> str:
        """The turn of the main agent that runs, or ""."""
        last = self.messages[-1] if self.executing and self.messages else None
        return last.id if last is not None and last.reason is None else ""

    @property
    def prompts(self) -> tuple[TurnRecord, ...]:
        """The turns that a prompt has started: the user can go back to them. Mail also starts turns."""
        return tuple(turn for turn in self.messages if turn.source != "mail")


class ProcessRecord(Struct, frozen=True):
    """A background process of this run. `agent` started it at `started`, a time.

    `urls` has the ports that it listens on, and where the host reaches them, or "" for one that is not open to it.
    `is_undecided`: what it writes is kept or discarded when it ends, and discarded if the session ends first.
    """

    id: str
    command: str
    status: Literal["running", "finished", "failed", "timed_out", "stopped"]
    description: str = ""
    agent: str = ""
    code: int = 0
    started: float = 0.0
    seconds: float = 0.0
    urls: dict[int, str] = field(default_factory=dict[int, str])
    log: str = ""
    is_undecided: bool = False


class ProcessOutput(Struct, frozen=True):
    """Output of a background process; `end` is where the next part begins."""

    text: str
    end: int = 0


class SkillSummary(Struct, frozen=True):
    """A skill as shown in a list. `source` is project, user, extra or the name of a plugin; `path` its SKILL.md.

    `for_model`: the model may use it by itself; `for_user`: it is also the slash command `/name`.
    """

    name: str
    description: str
    source: str
    path: str
    for_model: bool = True
    for_user: bool = True
    allowed_tools: tuple[str, ...] = ()


class PluginSummary(Struct, frozen=True):
    """A plugin in use. `parts` are what it brings: commands, agents, skills, hooks, MCP servers."""

    name: str
    version: str
    description: str
    folder: str
    parts: tuple[str, ...]


class MemoryFile(Struct, frozen=True):
    """A file of the memory: the long-term file, "" if it does not exist, or a `daily` note of the last days."""

    scope: Literal["project", "user"]
    path: str
    text: str
    daily: bool = False


class SessionInfo(Struct, frozen=True):
    """What a front end shows before the first event. `budget_usd` is the budget; 0 means no limit.

    `model_chosen`: the user chose the model of this session. `branch` is the checked-out branch or short commit, empty
    outside git. `root` is the project, `roots` are the folders besides it. The timeouts limit how long permission
    requests and questions wait; 0 means no limit. `log_file` receives Odin's internal errors. `sees_images`: the model
    accepts images. `role` is the role of the main agent. `model` is the selected model; `running_model` is another one
    while that cannot answer. `pool` is the model pool it is from, one of `pools`. `keys` are the keys of the providers
    in use, if there are several; `thinking_losses` is what they lost of their models' thinking. `effort` is the
    reasoning effort of the model that runs, empty for the model's own. `skills` are those of the main agent, `servers`
    the MCP servers. `language_servers` are those of the project; if there are none, `language_servers_off` says why.
    `writable` is what commands can write, `scratch` a folder that they cannot reach. `has_status_line`: a program
    writes a status line of the user's own.
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
    sees_images: bool = True
    root: str = ""
    roots: tuple[Root, ...] = ()
    role: str = DEFAULT_ROLE
    running_model: str = ""
    pool: str = ""
    pools: tuple[str, ...] = ()
    keys: tuple[KeyPoolChanged, ...] = ()
    rate_limits: tuple[RateLimitUpdated, ...] = ()
    thinking_losses: dict[str, ThinkingLosses] = field(default_factory=dict[str, ThinkingLosses])
    proxy: str = ""
    effort: str = ""
    skills: tuple[SkillSummary, ...] = ()
    plugins: tuple[PluginSummary, ...] = ()
    servers: tuple[ServerStatus, ...] = ()
    language_servers: tuple[LanguageServerState, ...] = ()
    language_servers_off: str = ""
    writable: WritableFolders = WritableFolders()
    scratch: str = ""
    has_status_line: bool = False
    output_style: str = "default"


class ContextPart(Struct, frozen=True):
    """The share of the context window used by one source, such as tool definitions or Read results."""

    source: str
    tokens: int
    count: int = 1


class LoadedInstructions(Struct, frozen=True):
    """An instruction file that the model has, its estimated tokens, and why it was read; "" if always."""

    name: str
    tokens: int
    why: str = ""


class ContextReport(Struct, frozen=True):
    """How full the context window is. `used` is what the last reply reported, or an estimate if not `measured`.

    The parts are estimates that add up to `used`. `limit` is 0 if the window is unknown; `budget` is what of it a
    request may fill. At `threshold` tokens the
    conversation is summarized. `compacting`: a summary is being written or waits to be applied. `instructions` are the
    files in the system prompt, then those that were sent later.
    """

    model: str
    used: int
    limit: int
    threshold: int
    measured: bool
    parts: tuple[ContextPart, ...] = ()
    compacting: bool = False
    budget: int = 0
    instructions: tuple[LoadedInstructions, ...] = ()

    @property
    def room(self) -> int:
        return self.budget or self.limit

    @property
    def fullness(self) -> float | None:
        """The used share of what requests may fill; None if its size is unknown."""
        return self.used / self.room if self.room else None

    @property
    def is_nearly_full(self) -> bool:
        """True if at least four fifths of what fits before the next compaction are used."""
        room = self.threshold or self.room
        return bool(room) and self.used >= room * 0.8


ServerScope = Literal["none", "configured", "all"]
"""Which servers are asked for their models: none, those with a configured address, or also those on this machine."""


class AvailableModel(Struct, frozen=True):
    """A model that can be used now. Prices are USD per million tokens, None if unknown.

    `where` is its URL, `note` how it is reached: with which key, on this machine, or offline. `pool` has the models of
    a model pool, whose name is `ref`.
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
    pool: tuple[str, ...] = ()


class RewindPlan(Struct, frozen=True):
    """What a rewind would do to files, and which files it would skip."""

    changes: tuple[FileChange, ...] = ()
    kept: tuple[SkippedFile, ...] = ()


CommandSource = Literal["project", "user", "project config", "user config", "skill", "plugin", "mcp", "built-in"]
"""Where a custom command is defined, strongest first; `built-in` ones are part of Odin."""


class CustomCommand(Struct, frozen=True):
    """A custom slash command, `/name` or `/folder/name`, also `/folder:name`; `name` has no slash before it.

    `description` and `hint` (for its arguments) are one line each. A command of a `plugin` is also `/plugin:name`.
    """

    name: str
    description: str = ""
    hint: str = ""
    source: CommandSource = "project"
    plugin: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it can be called."""
        qualified = f"{self.plugin}:{self.name}" if self.plugin and ":" not in self.name else self.name
        return tuple(dict.fromkeys((self.name, self.name.replace("/", ":"), qualified)))


class AgentSummary(Struct, frozen=True):
    """An agent definition as shown in a list. `use` is `main` (a role), `subagent` or `all`; `source` its file."""

    name: str
    use: Literal["main", "subagent", "all"]
    description: str = ""
    model: str = ""
    source: str = ""
    color: str = ""

    @property
    def is_role(self) -> bool:
        return self.use != "subagent"


class LoopStatus(Struct, frozen=True):
    """The state of loop mode. While it is off, only `reason` may be set: why it was turned off.

    `cost_usd` is the cost since it was enabled.
    """

    state: LoopState = "idle"
    goal: str = ""
    iteration: int = 0
    limit: int = 0
    reason: str = ""
    cost_usd: float = 0.0

    @property
    def is_active(self) -> bool:
        """True while loop mode keeps the session busy, also between two turns."""
        return self.state in ("executing", "verifying", "assessing")


async def is_session_busy(client: "Client") -> bool:
    """Return True while something goes on in the session that closing it would stop."""
    shot = await client.snapshot()
    if shot.is_working or shot.interactions or shot.schedules:
        return True
    return any(process.status == "running" for process in await client.list_processes())


def close_events(events: AsyncIterator[Envelope]) -> None:
    """Stop an event stream, so that a session that lives on does not buffer events for it."""
    if (close := getattr(events, "close", None)) is not None:
        close()


class Client(Protocol):
    async def submit(self, op: Op) -> bool:
        """Submit an op. Raise only if the op itself is invalid; its outcome arrives as events.

        Return False if there was nothing to act on: an unknown prompt, nothing to interrupt.
        """
        ...

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        """Yield events from now on; with `after`, first all durable events with a higher number.

        The subscription starts with the call, not with the first read.
        """
        ...

    def stream_named_events(self, names: Collection[str] = ()) -> AsyncIterator[tuple[str, Envelope]]:
        """Yield events from now on by bus name, such as `tool_result`: all, or only `names`.

        Raise UsageError for an unknown name.
        """
        ...

    def set_answering(self, answers: bool, reason: str = "") -> None:
        """Say whether this front end answers interactions from now on; `reason` tells the model why not."""
        ...

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        """Call this function synchronously whenever the activity of an agent changes. It replaces the previous one."""
        ...

    async def snapshot(self) -> Snapshot: ...

    def stream_snapshots(self) -> AsyncIterator[Snapshot]:
        """Yield the state now and after every change."""
        ...

    async def get_info(self) -> SessionInfo: ...

    async def report_context(self) -> ContextReport:
        """Return the content of the context window, by source."""
        ...

    async def read_status_line(self, facts: dict[str, Any]) -> str:
        """Return what the program of the status line prints for these facts; "" if there is none or it fails."""
        ...

    async def list_rules(self) -> tuple[RuleLine, ...]:
        """Return the permission rules in force, in display order."""
        ...

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        """Return the models that can be used, with the lists of the servers that are asked."""
        ...

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        """Return the custom commands, by name."""
        ...

    async def list_agents(self) -> tuple[AgentSummary, ...]:
        """Return the agent definitions: the roles, the default one first, then the other types of sub-agents."""
        ...

    async def read_memory(self) -> tuple[MemoryFile, ...]:
        """Return the memory of the user and of the project."""
        ...

    async def list_processes(self) -> tuple[ProcessRecord, ...]:
        """Return the background processes, those that have ended included."""
        ...

    async def read_process(self, id: str, after: int = 0) -> ProcessOutput:
        """Return the recent output of a background process after the place `after`: whole lines while it runs.

        Raise UsageError if there is no such process.
        """
        ...

    async def get_loop_status(self, agent: str = "") -> LoopStatus: ...

    async def plan_rewind(self, op: Rewind) -> RewindPlan:
        """Return what this rewind would do to files now. Raise UsageError for an unknown prompt."""
        ...

    async def find_files(self, words: str, limit: int = 20) -> tuple[str, ...]:
        """Return project paths that match the letters, best first; a folder ends with `/`.

        The project is indexed in the background, so a repeated call may find more. Without letters: recently used
        files, then top-level entries. A new call cancels the previous one.
        """
        ...

    def add_hook(self, hook: CallbackHook) -> None:
        """Register a callback hook. Raise UsageError for an unknown event."""
        ...

    def add_tools(self, tools: Sequence[Tool[Any]], agent: str = "") -> None:
        """Add a program's own tools, in place of those that have the same name. Raise UsageError for no such agent."""
        ...

    def add_server(self, name: str, exchange: ServerExchange) -> None:
        """Connect a configured MCP server of the type `sdk`, which the front end hosts."""
        ...

    async def close(self, timeout: float | None = None) -> bool:
        """Close the session: running work is aborted, the queue stays in the log. False if that takes longer than
        `timeout`."""
        ...


ExportFormat = Literal["markdown", "json", "html"]


class SessionSummary(Struct, frozen=True):
    """One line of the session list. `first` is the first prompt still in the conversation, `original` the first ever.

    `locked` names the process that has the session open, or is empty. `forked_from` is the session it was copied from.
    `headless`: only `odin -p` has used it, so lists leave it out unless asked for all. `cost_usd` is None if a price is
    unknown.
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
    cost_usd: float | None = 0.0
    bytes: int = 0
    headless: bool = False


class SessionMatch(Struct, frozen=True):
    """A search result: the session, who said it, and the text around the match."""

    session: SessionSummary
    where: Literal["title", "prompt", "answer", "tool", "summary"]
    snippet: str
    seq: int = -1


class Exchange(Struct, frozen=True):
    """A prompt and the end of its answer, both shortened. `started` is when it was sent."""

    prompt: str
    answer: str = ""
    started: float = 0.0


class SessionPreview(Struct, frozen=True):
    """The end of a conversation. `earlier`: there is more before it."""

    session: str
    exchanges: tuple[Exchange, ...] = ()
    earlier: bool = False


class ChangedFile(Struct, frozen=True):
    """A file that differs from the last commit. `diff` is its unified diff; "" for binary files and pure renames."""

    path: str
    status: str
    added: int = 0
    removed: int = 0
    diff: str = ""


class SavedSetting(Struct, frozen=True):
    """Where a setting was saved, and what overrides it here: a variable or another file."""

    path: str
    overridden_by: str = ""


class Sessions(Protocol):
    """The open session, and access to the others of the project.

    Switching opens and locks the other session first; if that fails, the open one stays open.
    """

    @property
    def client(self) -> Client:
        """The client of the open session."""
        ...

    async def open_new(self) -> Client: ...

    async def resume(self, session: str) -> Client: ...

    async def fork(self, turn: str = "") -> tuple[Client, str]:
        """Copy the open session up to before the prompt `turn`, and return that prompt's text for editing.

        Without a turn the whole session is copied and the text is empty.
        """
        ...

    async def execute_plan(self, plan: str = "", role: str = "") -> tuple[Client, Prompt]:
        """Open a new session that carries out a plan, and return its first prompt, which is not sent yet.

        `plan` is the name or path of a plan in `.odin/plans`; "" is the newest. `role` is the role of the session; ""
        is builder. Raise UsageError if the plan is missing or empty; then the open session stays open.
        """
        ...

    async def list_sessions(self) -> tuple[SessionSummary, ...]: ...

    async def search(self, words: str) -> tuple[SessionMatch, ...]: ...

    async def list_prompts(self, limit: int = 200) -> tuple[str, ...]:
        """Return recent prompts of the project as typed, newest first, without duplicates."""
        ...

    async def preview(self, session: str) -> SessionPreview:
        """Return the end of a conversation. Reads only the end of its log, so long sessions are fast."""
        ...

    async def report_usage(self, by: UsageGrouping = "day", *, days: int = 0, session: str = "") -> UsageReport:
        """Return the usage of the project or one session over the last `days` days; 0 means all time."""
        ...

    async def list_changes(self, paths: Sequence[str] = ()) -> tuple[ChangedFile, ...]:
        """Return the uncommitted changes in git, new files included, in all files or in these.

        Raise UsageError outside a git repository.
        """
        ...

    async def add_server(self, url: str) -> tuple[str, ...]:
        """Add an OpenAI-compatible server to the user's settings; return the full names of its models.

        Raise UsageError or ConfigError, with nothing written, if it cannot be used.
        """
        ...

    async def save_setting(self, key: str, value: str) -> SavedSetting:
        """Write a key, such as `tui.theme`, into the user's configuration file. Everything else in it stays."""
        ...

    async def rename(self, session: str, title: str) -> None: ...

    async def delete(self, session: str) -> None: ...

    async def export(self, session: str, form: ExportFormat, path: str = "") -> str:
        """Write a session to a file and return its path. Without `path` it is written to the session's directory."""
        ...

    async def close(self) -> None: ...
