"""The three verbs every front end speaks: submit, events, query. Local, HTTP and remote sessions all look like this."""

from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Protocol

from msgspec import Struct, field

from odin.core.event import ActivityChanged, CachedFile, Envelope, ExitReason, Lane, Mode, Todo
from odin.core.hook import CallbackHook
from odin.core.message import Usage
from odin.core.op import Op
from odin.core.rule import RuleLine
from odin.core.spent import Spent


class ToolUse(Struct, frozen=True):
    """One line of a turn's tool history."""

    tool: str
    files: tuple[str, ...] = ()
    description: str = ""


class TurnRecord(Struct, frozen=True):
    """One prompt and what came of it. `started` is when, `files` how many files its calls changed."""

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
    id: str
    body: str
    mode: Mode
    timestamp: float
    lane: Lane = "queue"


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
    spent_by_model: dict[str, Spent]
    spent_by_agent: dict[str, Spent]
    context_tokens: int
    context_limit: int
    message_count: int


class SessionInfo(Struct, frozen=True):
    """What a front end shows before anything has happened. `budget_usd` is what the session may cost; 0: no limit.

    `model_chosen` says that somebody named the model for this session.
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


class Client(Protocol):
    async def submit(self, op: Op) -> bool:
        """Ask for something. Raises only when the request itself is wrong; what comes of it are events.

        False says that there was nothing to do it to: no such prompt, nothing to interrupt.
        """
        ...

    def events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        """What happens from now on, and before it, when `after` is given, everything durable with a higher number.

        The subscription begins with the call itself, not with the first read.
        """
        ...

    def listen(self, names: Collection[str] = ()) -> AsyncIterator[tuple[str, Envelope]]:
        """What happens from now on by the names of the bus, such as `tool_result`; all that have one, or only these.

        Raises UsageError for what is no such name.
        """
        ...

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        """Have one function called in place whenever the activity changes. A new one replaces the old."""
        ...

    async def snapshot(self) -> Snapshot: ...

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """The state now, and again whenever it has changed."""
        ...

    async def info(self) -> SessionInfo: ...

    async def context(self) -> ContextReport:
        """What fills the model's window."""
        ...

    async def rules(self) -> tuple[RuleLine, ...]:
        """The rules that hold, in the order in which they are shown."""
        ...

    def add_hook(self, hook: CallbackHook) -> None:
        """Have a callback of the front end told what happens. Raises UsageError when there is no such event."""
        ...

    async def close(self, timeout: float | None = None) -> bool:
        """End the session: what runs is aborted, what waits stays in the log. False when that is not over in time."""
        ...
