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
    PromptInjected,
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
from odin.core.spent import UsageTotals
from odin.ui.tui.panels.agents import AgentList
from odin.ui.tui.panels.amounts import model_name_of
from odin.ui.tui.panels.edited import EditedFiles

LOW_LIMIT = 0.1
"""Which part of a provider's limit has to be left before it is worth a word."""

ACTIVE_LOOP_STATES = ("executing", "verifying", "assessing")
_RUN_EVENTS = (BudgetSet, ModelChanged, PermissionModeChanged, RequestStarted, SessionOpened)


class SessionFacts:
    """`chosen` is the model that was asked for, `running` the one that answers; `context` is None until it was asked.

    `limit_low` says how little is left of a provider's limits, when it is little.
    """

    def __init__(self, info: SessionInfo | None = None) -> None:
        self.info = info
        self.context: ContextReport | None = None
        self.chosen_model = info.model if info else ""
        self.running_model = self.chosen_model
        self.permission_mode = info.permission_mode if info else "default"
        self.budget_usd = info.budget_usd if info else 0.0
        self.title = ""
        self.usage_totals = UsageTotals()
        self.queued: set[str] = set()
        self.processes: dict[str, str] = {}
        self.todos: dict[str, TodosChanged] = {}
        self.loop: LoopChanged | None = None
        self.low_limit = ""
        self.key_note = ""
        self.agents = AgentList()
        self.edited_files = EditedFiles()

    def apply(self, envelope: Envelope, live: bool = True) -> None:
        """What a run of the past was told holds no longer: `info` says what holds in this one."""
        self.agents.apply(envelope)
        self.edited_files.apply(envelope)
        step = _FACT_HANDLERS.get(type(envelope.event))
        if step is not None and (live or not isinstance(envelope.event, _RUN_EVENTS)):
            step(self, envelope.event, envelope.agent)

    def update(self, info: SessionInfo, context: ContextReport) -> None:
        """What the session says of itself, asked now and then."""
        self.info, self.context = info, context
        self.permission_mode, self.budget_usd = info.permission_mode, info.budget_usd

    @property
    def fullness(self) -> float | None:
        """Which part is used of what there may be before the conversation is summarised; of the window without that."""
        report = self.context
        room = (report.threshold or report.limit) if report is not None else 0
        return report.used / room if report is not None and room else None

    def _open_session(self, event: SessionOpened, agent: str) -> None:
        self.permission_mode = event.permission_mode or self.permission_mode

    def _change_model(self, event: ModelChanged, agent: str) -> None:
        self.running_model = event.model
        if not event.reason:
            self.chosen_model = event.model

    def _start_request(self, event: RequestStarted, agent: str) -> None:
        """Requests name a model without its provider."""
        if event.model and not agent:
            known = (
                ref
                for ref in (self.running_model, self.chosen_model)
                if model_name_of(ref) == model_name_of(event.model)
            )
            self.running_model = next(known, event.model)

    def _change_permission_mode(self, event: PermissionModeChanged, agent: str) -> None:
        self.permission_mode = event.mode

    def _set_budget(self, event: BudgetSet, agent: str) -> None:
        self.budget_usd = event.usd

    def _set_title(self, event: TitleSet, agent: str) -> None:
        self.title = event.title

    def _add_usage(self, event: UsageRecorded, agent: str) -> None:
        self.usage_totals = self.usage_totals + UsageTotals.from_event(event)

    def _add_queued(self, event: PromptQueued, agent: str) -> None:
        if not agent:
            self.queued.add(event.id)

    def _remove_queued(self, event: PromptDropped | PromptInjected, agent: str) -> None:
        self.queued.discard(event.id)

    def _start_turn(self, event: TurnStarted, agent: str) -> None:
        self.queued.discard(event.id)
        todos = self.todos.get(agent)
        if todos is not None and all(todo.status in ("completed", "cancelled") for todo in todos.todos):
            del self.todos[agent]

    def _set_todos(self, event: TodosChanged, agent: str) -> None:
        self.todos[agent] = event

    def _end_agent(self, event: AgentEnded, agent: str) -> None:
        self.todos.pop(event.id, None)

    def _change_loop(self, event: LoopChanged, agent: str) -> None:
        self.loop = event if event.state in ACTIVE_LOOP_STATES else None

    def _add_process(self, event: SpawnStarted, agent: str) -> None:
        self.processes[event.id] = event.description or event.command

    def _remove_process(self, event: SpawnFinished, agent: str) -> None:
        self.processes.pop(event.id, None)

    def _update_limits(self, event: RateLimitUpdated, agent: str) -> None:
        low = [
            f"{left:,} of {limit:,} {name} left"
            for left, limit, name in (
                (event.requests_left, event.requests_limit, "requests"),
                (event.tokens_left, event.tokens_limit, "tokens"),
            )
            if left >= 0 and limit > 0 and left <= limit * LOW_LIMIT
        ]
        self.low_limit = low[0] if low else ""


_FACT_HANDLERS: dict[type[Any], Callable[[SessionFacts, Any, str], None]] = {
    SessionOpened: SessionFacts._open_session,
    ModelChanged: SessionFacts._change_model,
    RequestStarted: SessionFacts._start_request,
    PermissionModeChanged: SessionFacts._change_permission_mode,
    BudgetSet: SessionFacts._set_budget,
    TitleSet: SessionFacts._set_title,
    UsageRecorded: SessionFacts._add_usage,
    PromptQueued: SessionFacts._add_queued,
    PromptDropped: SessionFacts._remove_queued,
    PromptInjected: SessionFacts._remove_queued,
    TurnStarted: SessionFacts._start_turn,
    TodosChanged: SessionFacts._set_todos,
    AgentEnded: SessionFacts._end_agent,
    LoopChanged: SessionFacts._change_loop,
    SpawnStarted: SessionFacts._add_process,
    SpawnFinished: SessionFacts._remove_process,
    RateLimitUpdated: SessionFacts._update_limits,
}
