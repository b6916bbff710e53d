"""What is known of the session beside its conversation, folded from events. The panels only show it."""

from collections.abc import Callable
from typing import Any

from odin.core.client import ContextReport, SessionInfo
from odin.core.event import (
    AgentEnded,
    BudgetSet,
    Envelope,
    LoopChanged,
    ModelChanged,
    PermissionModeChanged,
    PromptDropped,
    PromptJoined,
    PromptQueued,
    RateLimitUpdated,
    RequestStarted,
    SessionOpened,
    SpawnFinished,
    SpawnStarted,
    TitleSet,
    TodosChanged,
    TurnStarted,
    UsageRecorded,
)
from odin.core.spent import Spent
from odin.ui.tui.panels.agents import Agents
from odin.ui.tui.panels.amounts import model_name
from odin.ui.tui.panels.edited import Edited

LOW = 0.1
"""Which part of a provider's limit has to be left before it is worth a word."""

LOOPING = ("executing", "verifying", "assessing")
_OF_THIS_RUN = (BudgetSet, ModelChanged, PermissionModeChanged, RequestStarted, SessionOpened)


class Facts:
    """`chosen` is the model that was asked for, `running` the one that answers; `context` is None until it was asked.

    `limit_low` says how little is left of a provider's limits, when it is little.
    """

    def __init__(self, info: SessionInfo | None = None) -> None:
        self.info = info
        self.context: ContextReport | None = None
        self.chosen = info.model if info else ""
        self.running = self.chosen
        self.permission_mode = info.permission_mode if info else "default"
        self.budget_usd = info.budget_usd if info else 0.0
        self.title = ""
        self.spent = Spent()
        self.queued: set[str] = set()
        self.processes: dict[str, str] = {}
        self.todos: dict[str, TodosChanged] = {}
        self.loop: LoopChanged | None = None
        self.limit_low = ""
        self.key = ""
        self.agents = Agents()
        self.edited = Edited()

    def see(self, envelope: Envelope, live: bool = True) -> None:
        """What a run of the past was told holds no longer: `info` says what holds in this one."""
        self.agents.see(envelope)
        self.edited.see(envelope)
        step = _STEPS.get(type(envelope.event))
        if step is not None and (live or not isinstance(envelope.event, _OF_THIS_RUN)):
            step(self, envelope.event, envelope.agent)

    def answered(self, info: SessionInfo, context: ContextReport) -> None:
        """What the session says of itself, asked now and then."""
        self.info, self.context = info, context
        self.permission_mode, self.budget_usd = info.permission_mode, info.budget_usd

    @property
    def fullness(self) -> float | None:
        """Which part is used of what there may be before the conversation is summarised; of the window without that."""
        report = self.context
        room = (report.threshold or report.limit) if report is not None else 0
        return report.used / room if report is not None and room else None

    def _opened(self, event: SessionOpened, agent: str) -> None:
        self.permission_mode = event.permission_mode or self.permission_mode

    def _model(self, event: ModelChanged, agent: str) -> None:
        self.running = event.model
        if not event.reason:
            self.chosen = event.model

    def _request(self, event: RequestStarted, agent: str) -> None:
        """Requests name a model without its provider."""
        if event.model and not agent:
            known = (ref for ref in (self.running, self.chosen) if model_name(ref) == model_name(event.model))
            self.running = next(known, event.model)

    def _permission_mode(self, event: PermissionModeChanged, agent: str) -> None:
        self.permission_mode = event.mode

    def _budget(self, event: BudgetSet, agent: str) -> None:
        self.budget_usd = event.usd

    def _titled(self, event: TitleSet, agent: str) -> None:
        self.title = event.title

    def _usage(self, event: UsageRecorded, agent: str) -> None:
        self.spent = self.spent + Spent.on(event)

    def _prompt_queued(self, event: PromptQueued, agent: str) -> None:
        if not agent:
            self.queued.add(event.id)

    def _prompt_left(self, event: PromptDropped | PromptJoined, agent: str) -> None:
        self.queued.discard(event.id)

    def _turn(self, event: TurnStarted, agent: str) -> None:
        self.queued.discard(event.id)
        todos = self.todos.get(agent)
        if todos is not None and all(todo.status in ("completed", "cancelled") for todo in todos.todos):
            del self.todos[agent]

    def _todos(self, event: TodosChanged, agent: str) -> None:
        self.todos[agent] = event

    def _agent_over(self, event: AgentEnded, agent: str) -> None:
        self.todos.pop(event.id, None)

    def _loop(self, event: LoopChanged, agent: str) -> None:
        self.loop = event if event.state in LOOPING else None

    def _spawned(self, event: SpawnStarted, agent: str) -> None:
        self.processes[event.id] = event.description or event.command

    def _despawned(self, event: SpawnFinished, agent: str) -> None:
        self.processes.pop(event.id, None)

    def _limits(self, event: RateLimitUpdated, agent: str) -> None:
        low = [
            f"{left:,} of {limit:,} {name} left"
            for left, limit, name in (
                (event.requests_left, event.requests_limit, "requests"),
                (event.tokens_left, event.tokens_limit, "tokens"),
            )
            if left >= 0 and limit > 0 and left <= limit * LOW
        ]
        self.limit_low = low[0] if low else ""


_STEPS: dict[type[Any], Callable[[Facts, Any, str], None]] = {
    SessionOpened: Facts._opened,
    ModelChanged: Facts._model,
    RequestStarted: Facts._request,
    PermissionModeChanged: Facts._permission_mode,
    BudgetSet: Facts._budget,
    TitleSet: Facts._titled,
    UsageRecorded: Facts._usage,
    PromptQueued: Facts._prompt_queued,
    PromptDropped: Facts._prompt_left,
    PromptJoined: Facts._prompt_left,
    TurnStarted: Facts._turn,
    TodosChanged: Facts._todos,
    AgentEnded: Facts._agent_over,
    LoopChanged: Facts._loop,
    SpawnStarted: Facts._spawned,
    SpawnFinished: Facts._despawned,
    RateLimitUpdated: Facts._limits,
}
