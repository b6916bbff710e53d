"""Publishes events to subscribers, and gives them stable names for external listeners.

Every event goes to every subscriber; a slow one loses events instead of blocking the agent. The names are coarser than
the events.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from typing import Any, Literal, get_args

import msgspec

from odin.core.call_events import (
    TOOL_EVENTS,
    ActivityChanged,
    AskEvent,
    CallStreamed,
    HookRan,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAsked,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    RetryScheduled,
    SpawnFinished,
    StatusUpdated,
    TextStreamed,
    ThinkingStreamed,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from odin.core.errors import UsageError
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    CompactionChanged,
    ContextAdded,
    EffortChanged,
    Envelope,
    LoopChanged,
    LoopPrompted,
    ModelChanged,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptPaused,
    PromptQueued,
    Redone,
    Rewound,
    RoleChanged,
    RootAdded,
    RootRemoved,
    ServersChanged,
    ServersToggled,
    SessionOpened,
    SessionSwitched,
    SystemPromptChanged,
    TitleSet,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
    Warned,
    WorkEnded,
)
from odin.core.live_events import LiveEvents
from odin.core.op import (
    AddContext,
    AddMessage,
    AnswerPlan,
    CancelTask,
    ChangePrompt,
    CloseAgent,
    Continue,
    ControlServers,
    DropPrompt,
    Interrupt,
    Op,
    Prompt,
    Redo,
    RemoveLastMessage,
    Rewind,
    RunUserShell,
    SetEffort,
    SetLoop,
    SetModel,
    SetRole,
    SetSkills,
    SetSystemPrompt,
    SetTitle,
    SetTools,
)
from odin.core.provider import TimeSlice
from odin.core.team import MailSent, TaskChanged, TaskCreated

BusName = Literal[
    "user_message",
    "append_context",
    "llm_response",
    "tool_result",
    "turn_cancelled",
    "agent_error",
    "execute_plan",
    "session_control",
    "model_pool_switch",
    "mcp_control",
    "mcp_control_done",
    "pending_draft_upsert",
    "pending_draft_remove",
    "agent_done",
    "agent_idle",
    "agent_notify",
    "escalate",
    "subagent_mailbox",
    "subagent_state_changed",
    "subagent_close_requested",
    "subagent_progress_updated",
    "subagent_send_message",
    "subagent_stop",
    "agent_log",
    "reset_nudge",
    "background_object_finished",
    "continue",
    "loop_assessment",
    "compaction_ready",
    "compaction_failed",
    "compaction_oversize_suspend",
]

BUS_NAMES: tuple[BusName, ...] = get_args(BusName)

MAIN_AGENT = "main"
"""What observers read as the name of the main agent."""

_Namer = Callable[[Any, str], BusName | None]


def _name_turn_end(event: TurnEnded, agent: str) -> BusName:
    if event.reason in ("interrupted", "aborted"):
        return "turn_cancelled"
    if event.reason == "error":
        return "agent_error"
    return "subagent_state_changed" if agent else "agent_done"


def _name_activity(event: ActivityChanged, agent: str) -> BusName | None:
    if event.activity == "idle":
        return "agent_idle"
    return "subagent_state_changed" if agent else None


def _name_task_change(event: TaskChanged, agent: str) -> BusName:
    return "escalate" if event.state == "waiting_main" else "subagent_state_changed"


def _name_mail(event: MailSent, agent: str) -> BusName:
    """Name mail by its direction: an owner writes messages, a sub-agent reports."""
    return "subagent_send_message" if event.kind == "message" else "subagent_mailbox"


def _name_compaction(event: CompactionChanged, agent: str) -> BusName | None:
    if event.status == "started":
        return "compaction_oversize_suspend" if event.trigger == "overflow" else None
    return "compaction_ready" if event.status == "succeeded" else "compaction_failed"


EVENT_NAMES: dict[type[AnyEvent], BusName | tuple[_Namer, tuple[BusName, ...]]] = {
    SessionOpened: "session_control",
    SessionSwitched: "session_control",
    TitleSet: "session_control",
    Rewound: "session_control",
    Redone: "session_control",
    RoleChanged: "session_control",
    RootAdded: "session_control",
    RootRemoved: "session_control",
    ModelChanged: "model_pool_switch",
    EffortChanged: "session_control",
    SystemPromptChanged: "session_control",
    ToolsChanged: "session_control",
    ServersToggled: "mcp_control",
    ServersChanged: "mcp_control_done",
    PromptQueued: "pending_draft_upsert",
    PromptChanged: "pending_draft_upsert",
    PromptDropped: "pending_draft_remove",
    PromptInjected: "user_message",
    TurnStarted: (lambda event, agent: "continue" if event.continues else "user_message", ("user_message", "continue")),
    TurnEnded: (_name_turn_end, ("turn_cancelled", "agent_error", "agent_done", "subagent_state_changed")),
    ContextAdded: "append_context",
    LoopChanged: "loop_assessment",
    LoopPrompted: "agent_notify",
    CompactionChanged: (_name_compaction, ("compaction_oversize_suspend", "compaction_ready", "compaction_failed")),
    Replied: "llm_response",
    ToolStarted: (lambda event, agent: "reset_nudge" if agent else None, ("reset_nudge",)),
    ToolEnded: "tool_result",
    ActivityChanged: (_name_activity, ("agent_idle", "subagent_state_changed")),
    StatusUpdated: (
        lambda event, agent: "subagent_progress_updated" if agent else "agent_notify",
        ("agent_notify", "subagent_progress_updated"),
    ),
    ToolProgressed: (
        lambda event, agent: "subagent_progress_updated" if agent else None,
        ("subagent_progress_updated",),
    ),
    AgentStarted: "subagent_state_changed",
    TaskCreated: "subagent_state_changed",
    TaskChanged: (_name_task_change, ("escalate", "subagent_state_changed")),
    MailSent: (_name_mail, ("subagent_send_message", "subagent_mailbox")),
    PermissionAsked: "agent_notify",
    QuestionsAsked: "agent_notify",
    PlanAsked: "agent_notify",
    PlanAnswered: "execute_plan",
    AgentEnded: "agent_done",
    SpawnFinished: "background_object_finished",
    Warned: "agent_log",
    RetryScheduled: "agent_log",
    ReplyDiscarded: "agent_log",
    HookRan: "agent_log",
}
"""The name of each event, or a function that names it with its possible results. Other events have no name."""

OP_NAMES: dict[type[Op], BusName] = {
    Prompt: "user_message",
    ChangePrompt: "pending_draft_upsert",
    DropPrompt: "pending_draft_remove",
    Continue: "continue",
    AddContext: "append_context",
    RunUserShell: "append_context",
    Interrupt: "turn_cancelled",
    CancelTask: "subagent_stop",
    CloseAgent: "subagent_close_requested",
    AnswerPlan: "execute_plan",
    AddMessage: "session_control",
    RemoveLastMessage: "session_control",
    Rewind: "session_control",
    Redo: "session_control",
    SetLoop: "session_control",
    SetModel: "model_pool_switch",
    SetEffort: "session_control",
    SetSystemPrompt: "session_control",
    SetTools: "session_control",
    SetRole: "session_control",
    SetSkills: "session_control",
    SetTitle: "session_control",
    ControlServers: "mcp_control",
}


def validate_names(names: Collection[str]) -> tuple[BusName, ...]:
    """Return these names, or all if none are given. Raise UsageError for an unknown name."""
    unknown = [name for name in names if name not in BUS_NAMES]
    if unknown:
        raise UsageError(f"Unknown event name {unknown[0]!r}.", f"The names are: {', '.join(BUS_NAMES)}.")
    return tuple(name for name in BUS_NAMES if not names or name in names)


def get_bus_name(envelope: Envelope) -> BusName | None:
    """Return the name of an event, or None for events that only Odin's own front ends need."""
    naming = EVENT_NAMES.get(type(envelope.event))
    return naming[0](envelope.event, envelope.agent) if isinstance(naming, tuple) else naming


def list_sources(name: BusName) -> tuple[list[type[AnyEvent]], list[type[Op]]]:
    """Return the events and ops with this name."""
    events = [kind for kind, how in EVENT_NAMES.items() if name == how or (isinstance(how, tuple) and name in how[1])]
    return events, [kind for kind, op_name in OP_NAMES.items() if op_name == name]


Topic = Literal["all", "agent", "tool"]
_NEVER_DROPPED = (TurnEnded, WorkEnded, PromptPaused, *get_args(AskEvent), ReplyRolledBack)


class Subscription:
    """The buffer of one subscriber. If it is full, the oldest event that may be lost is dropped and counted.

    With `durable` every durable event is kept, and text chunks are merged before any is dropped. Turn ends and
    permission requests are always kept. Only a subscriber of the `whole` log receives events about the past.
    """

    def __init__(
        self, bus: "EventBus", topic: Topic, size: int, durable: bool, names: Collection[BusName], whole: bool
    ) -> None:
        self.whole = whole
        self._bus = bus
        self._topic = topic
        self._names = frozenset(names)
        self._size = size
        self._durable = durable
        self._buffer: deque[Envelope] = deque()
        self._ready: asyncio.Future[None] | None = None
        self.is_closed = False
        self._droppable = 0
        self.dropped = 0

    def wants(self, envelope: Envelope) -> bool:
        if self._names and get_bus_name(envelope) not in self._names:
            return False
        return self._topic == "all" or isinstance(envelope.event, TOOL_EVENTS) == (self._topic == "tool")

    def offer(self, envelope: Envelope) -> None:
        if len(self._buffer) >= self._size:
            if self._durable and self._merge_into_last(envelope):
                return
            if not self._make_room(envelope):
                self.dropped += 1
                return
        self._buffer.append(envelope)
        self._droppable += not self._is_kept(envelope)
        self._wake()

    def close(self) -> None:
        """Stop receiving events. Buffered ones can still be read."""
        self.is_closed = True
        self._bus.forget(self)
        self._wake()

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        while not self._buffer:
            if self.is_closed:
                raise StopAsyncIteration
            self._ready = asyncio.get_running_loop().create_future()
            await self._ready
        envelope = self._buffer.popleft()
        self._droppable -= not self._is_kept(envelope)
        return envelope

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _is_kept(self, envelope: Envelope) -> bool:
        event = envelope.event
        idle = isinstance(event, ActivityChanged) and event.activity == "idle"
        return idle or isinstance(event, _NEVER_DROPPED) or (self._durable and event.durable)

    def _merge_into_last(self, envelope: Envelope) -> bool:
        """Merge a chunk into the last event if both belong to the same text."""
        last = self._buffer[-1]
        if last.agent != envelope.agent or last.seq != envelope.seq:
            return False
        merged = _merge_deltas(last.event, envelope.event)
        if merged is not None:
            self._buffer[-1] = msgspec.structs.replace(envelope, event=merged)
        return merged is not None

    def _make_room(self, envelope: Envelope) -> bool:
        if not self._is_kept(envelope):
            return False
        if self._droppable and not self._durable:
            index = next(i for i, waiting in enumerate(self._buffer) if not self._is_kept(waiting))
            del self._buffer[index]
            self._droppable -= 1
            self.dropped += 1
        return True


def _merge_deltas(first: AnyEvent, second: AnyEvent) -> AnyEvent | None:
    if isinstance(first, TextStreamed) and isinstance(second, TextStreamed):
        return TextStreamed(first.text + second.text)
    if isinstance(first, ThinkingStreamed) and isinstance(second, ThinkingStreamed):
        return ThinkingStreamed(first.text + second.text)
    if isinstance(first, CallStreamed) and isinstance(second, CallStreamed) and first.call_id == second.call_id:
        return msgspec.structs.replace(second, json_delta=first.json_delta + second.json_delta)
    return None


async def stream_named(subscription: Subscription) -> AsyncIterator[tuple[str, Envelope]]:
    """Yield the events of a subscription with their names; leave out those without one."""
    try:
        async for envelope in subscription:
            if name := get_bus_name(envelope):
                yield name, envelope
    finally:
        subscription.close()


class EventBus:
    def __init__(self) -> None:
        self.live = LiveEvents()
        self._subscriptions: list[Subscription] = []
        self._observers: list[Callable[[ActivityChanged], None]] = []

    def subscribe(
        self,
        topic: Topic = "all",
        *,
        size: int = 64,
        durable: bool = False,
        names: Collection[BusName] = (),
        whole: bool = False,
    ) -> Subscription:
        """Subscribe to a topic; with `names`, only to events with one of these names."""
        subscription = Subscription(self, topic, size, durable, names, whole)
        self._subscriptions.append(subscription)
        return subscription

    def replace_observer(
        self, old: Callable[[ActivityChanged], None] | None, new: Callable[[ActivityChanged], None] | None
    ) -> None:
        """Call `new` synchronously for each change of activity, and `old` no longer."""
        if old is not None and old in self._observers:
            self._observers.remove(old)
        if new is not None:
            self._observers.append(new)

    def publish(self, envelope: Envelope, *, past: bool = False) -> None:
        """Give the event to its subscribers; if `past`, only to those of the whole log."""
        self.live.apply(envelope)
        if self._observers and isinstance(envelope.event, ActivityChanged):
            for observer in tuple(self._observers):
                try:
                    observer(msgspec.structs.replace(envelope.event, agent=envelope.agent or MAIN_AGENT))
                except Exception:  # foreign code: drop an observer that fails
                    self._observers.remove(observer)
        for subscription in tuple(self._subscriptions):
            if (subscription.whole or not past) and subscription.wants(envelope):
                subscription.offer(envelope)

    def forget(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def close(self) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.close()


async def replay_log(
    past: Iterator[Envelope], after: int, until: int, now: Sequence[Envelope], live: Subscription
) -> AsyncIterator[Envelope]:
    """Yield the events of a log after one number and up to another, what is going on `now`, then the live ones."""
    try:
        time_slice = TimeSlice()
        for envelope in past:
            if after < envelope.seq <= until:
                yield envelope
            await time_slice.maybe_yield()
        for envelope in now:
            yield envelope
        async for envelope in live:
            yield envelope
    finally:
        live.close()
