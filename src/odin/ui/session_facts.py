"""State of the session shown by the panels, folded from events: model, context, cost, todos, edited files."""

import time

from msgspec.structs import replace

from odin.core.call_events import (
    KeyPoolChanged,
    RateLimitUpdated,
    RequestStarted,
    SkillUsed,
    SpawnFinished,
    SpawnListening,
    SpawnStarted,
    TodosChanged,
    UsageRecorded,
    UsageTotals,
)
from odin.core.client import ContextReport, SessionInfo
from odin.core.event import (
    AgentEnded,
    AnyEvent,
    BudgetSet,
    EffortChanged,
    Envelope,
    LanguageServersChanged,
    LoopChanged,
    ModelChanged,
    PermissionModeChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    RoleChanged,
    ServersChanged,
    SessionOpened,
    TitleSet,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import DEFAULT_ROLE
from odin.core.message import Usage
from odin.core.timeline import Timeline
from odin.ui.agent_activity import AgentList
from odin.ui.edited_files import EditedFiles

LOW_LIMIT = 0.1
"""Rate limits are shown when at most this share of them is left."""

ACTIVE_LOOP_STATES = ("executing", "verifying", "assessing")


class TodoLists:
    """The task lists by agent. The main agent's list goes back and forth with its conversation.

    A turn starts without the list that the turn before it completed. A list that an interrupted turn left open goes
    with the end of the next turn, if that has not changed it.
    """

    def __init__(self) -> None:
        self.by_agent: dict[str, TodosChanged] = {}
        self._left_open: set[str] = set()
        self._timeline = Timeline(lambda _: self.by_agent.get(""), self._swap)

    def apply(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        if not agent:
            self._timeline.apply(envelope)
        match event:
            case TodosChanged():
                self.by_agent[agent] = event
                self._left_open.discard(agent)
            case TurnEnded(reason="interrupted"):
                self._left_open.add(agent)
            case TurnEnded() if agent in self._left_open:
                self._left_open.discard(agent)
                self.by_agent.pop(agent, None)
            case AgentEnded():
                self.by_agent.pop(event.id, None)
            case TurnStarted():
                todos = self.by_agent.get(agent)
                if todos is not None and all(todo.status in ("completed", "cancelled") for todo in todos.todos):
                    del self.by_agent[agent]
            case _:
                pass

    def _swap(self, todos: TodosChanged | None) -> TodosChanged | None:
        left = self.by_agent.pop("", None)
        if todos is not None:
            self.by_agent[""] = todos
        return left


class SessionFacts:
    """`chosen_model` is the configured model, `running_model` the one that answers (a fallback may differ).

    `context` is None until the first report. `low_limit` describes a nearly exhausted rate limit. `todos` and
    `used_skills` are by agent.
    """

    def __init__(self, info: SessionInfo | None = None) -> None:
        self.info = info
        self.context: ContextReport | None = None
        self.chosen_model = info.model if info else ""
        self.running_model = self.chosen_model
        self.permission_mode = info.permission_mode if info else "default"
        self.role = info.role if info else DEFAULT_ROLE
        self.budget_usd = info.budget_usd if info else 0.0
        self.title = ""
        self._usage_totals = UsageTotals()
        self._usage_by_agent: dict[str, UsageTotals] = {}
        self._efforts: dict[str, str] = {}
        self._agent_contexts: dict[str, ContextReport] = {}
        self._queued: dict[str, str] = {}
        self.has_prompts = False
        self.processes: dict[str, str] = {}
        self.ports: dict[str, dict[int, str]] = {}
        self._todo_lists = TodoLists()
        self.todos = self._todo_lists.by_agent
        self._loops: dict[str, LoopChanged] = {}
        self.low_limit = ""
        self.key_note = ""
        self.status_text = ""
        """What the user's own program for the status line printed last."""
        self.last_usage = Usage()
        """Of the last request of the main agent."""
        self.started = 0.0
        self.pool = info.pool if info else ""
        self._keys = _list_keys(info)
        self.used_skills: dict[str, set[str]] = {}
        self.language_servers = info.language_servers if info else ()
        self.servers = info.servers if info else ()
        self.agents = AgentList()
        self.edited_files = EditedFiles()

    def apply(self, envelope: Envelope, live: bool = True) -> None:
        """Apply one event. Settings of an earlier run are ignored: `info` has the current ones."""
        event, agent = envelope.event, envelope.agent
        self.started = self.started or envelope.ts
        self.agents.apply(envelope)
        self.edited_files.apply(envelope)
        self._todo_lists.apply(envelope)
        if live:
            self._apply_setting(event, agent)
        self._apply_progress(event, agent, envelope.ts)

    def _apply_setting(self, event: AnyEvent, agent: str) -> None:
        match event:
            case SessionOpened():
                self.permission_mode = event.permission_mode or self.permission_mode
            case PermissionModeChanged():
                self.permission_mode = event.mode
            case RoleChanged():
                self.role = event.role
            case BudgetSet():
                self.budget_usd = event.usd
            case EffortChanged():
                self._efforts[agent] = event.effort
            case ServersChanged():
                self.servers = event.servers
            case ModelChanged() if not agent:
                self.running_model = event.model
                if not event.reason:
                    self.chosen_model, self.pool = event.model, event.pool
            case RequestStarted():
                if event.model and not agent:
                    # The model of a request comes without its provider: find its known `provider/model` ref.
                    model = event.model
                    known = (self.running_model, self.chosen_model)
                    self.running_model = next((ref for ref in known if _is_model_of(ref, model)), model)
            case _:
                pass

    def _apply_progress(self, event: AnyEvent, agent: str, ts: float) -> None:
        match event:
            case TitleSet():
                self.title = event.title
            case UsageRecorded():
                spent = UsageTotals.from_event(event)
                self._usage_totals = self._usage_totals + spent
                self._usage_by_agent[agent] = self._usage_by_agent.get(agent, UsageTotals()) + spent
                if not agent and event.purpose == "main":
                    self.last_usage = event.usage
                if agent and event.purpose == "main":
                    window, used = event.context_window, event.usage.total
                    self._agent_contexts[agent] = ContextReport(event.model, used, window, 0, not event.estimated)
            case PromptQueued():
                self._queued[event.id] = agent
            case PromptDropped() | PromptInjected():
                self._queued.pop(event.id, None)
            case TurnStarted():
                self.has_prompts = True
                self._queued.pop(event.id, None)
            case LanguageServersChanged():
                self.language_servers = event.servers
            case KeyPoolChanged():
                self._keys[event.provider] = event, ts
            case RateLimitUpdated():
                low = [
                    f"{left:,} of {limit:,} {name} left"
                    for left, limit, name in (
                        (event.requests_left, event.requests_limit, "requests"),
                        (event.tokens_left, event.tokens_limit, "tokens"),
                    )
                    if left >= 0 and limit > 0 and left <= limit * LOW_LIMIT
                ]
                self.low_limit = low[0] if low else ""
            case LoopChanged():
                self._loops[agent] = event
            case SkillUsed():
                self.used_skills.setdefault(agent, set()).add(event.name)
            case SpawnStarted():
                self.processes[event.id] = event.description or event.command
            case SpawnListening():
                self.ports.setdefault(event.id, {})[event.port] = event.url
            case SpawnFinished():
                self.processes.pop(event.id, None)
                self.ports.pop(event.id, None)
            case _:
                pass

    def update(self, info: SessionInfo, context: ContextReport) -> None:
        """Apply a fresh report of the session."""
        self.info, self.context = info, context
        self.permission_mode, self.budget_usd = info.permission_mode, info.budget_usd
        self.role, self._keys = info.role, _list_keys(info)
        self.language_servers = info.language_servers

    @property
    def budget_left(self) -> float:
        """What all agents together may still spend, in US dollars; 0 without a budget."""
        return max(self.budget_usd - self._usage_totals.cost_usd, 0.0)

    def get_loop(self, agent: str) -> LoopChanged | None:
        """Return where the loop mode of this agent stands; None if it is off."""
        last = self._loops.get(agent)
        return last if last is not None and last.state in ACTIVE_LOOP_STATES else None

    def count_queued(self, agent: str) -> int:
        """Return how many prompts wait for this agent."""
        return sum(recipient == agent for recipient in self._queued.values())

    def get_model(self, agent: str) -> str:
        """Return the model that answers a sub-agent, or "" if it is not known; for the main agent the running one."""
        if not agent:
            return self.running_model
        return self.agents.all[agent].model if agent in self.agents.all else ""

    def get_effort(self, agent: str) -> str:
        """Return the reasoning effort of the main agent, or the one that was chosen for a sub-agent; "" if unknown."""
        if agent:
            return self._efforts.get(agent, "")
        return self.info.effort if self.info is not None else ""

    def get_keys(self, ref: str, now: float) -> KeyPoolChanged | None:
        """Return the state of the keys that a model is used with, or None if nothing is known about them."""
        found = self._keys.get(ref.partition("/")[0])
        if found is None:
            return None
        keys, reported_at = found
        return replace(keys, next_s=max(0.0, keys.next_s - (now - reported_at)))

    def get_usage(self, agent: str) -> UsageTotals:
        """Return the usage of a sub-agent; for the main agent that of the whole session."""
        return self._usage_by_agent.get(agent, UsageTotals()) if agent else self._usage_totals

    def get_context(self, agent: str) -> ContextReport | None:
        """Return the context of the main agent as reported, of a sub-agent by its last request; None if unknown."""
        return self._agent_contexts.get(agent) if agent else self.context


def _list_keys(info: SessionInfo | None) -> dict[str, tuple[KeyPoolChanged, float]]:
    """Return the keys by provider, and when that was reported."""
    return {keys.provider: (keys, time.time()) for keys in (info.keys if info else ())}


def _is_model_of(ref: str, model: str) -> bool:
    """True if a ref names this model, whichever variant of it."""
    name = ref.rpartition("/")[2]
    return model.rpartition("/")[2] in (name, name.rpartition("@")[0])
