"""The names by which the bus calls what happens and what is asked for.

They are a vocabulary for programs that listen: coarser than our events, stable, and complete, so that a name whose
feature does not exist yet is known and simply never heard.
"""

from collections.abc import Callable, Collection
from typing import Any, Literal, get_args

from odin.core.errors import UsageError
from odin.core.event import (
    ActivityChanged,
    AgentEnded,
    AgentStarted,
    AnyEvent,
    CompactionChanged,
    ContextAdded,
    Envelope,
    HookRan,
    LoopChanged,
    LoopPrompted,
    ModelChanged,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    Redone,
    Replied,
    ReplyDiscarded,
    RetryScheduled,
    Rewound,
    SessionOpened,
    SessionSwitched,
    SpawnFinished,
    StatusUpdated,
    TitleSet,
    ToolEnded,
    ToolProgressed,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.core.op import (
    AddContext,
    ChangePrompt,
    Continue,
    DropPrompt,
    Interrupt,
    Op,
    Prompt,
    Redo,
    RemoveLastMessage,
    Rewind,
    RunUserShell,
    SetLoop,
    SetModel,
    SetTitle,
)

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
    ModelChanged: "model_pool_switch",
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
    AgentEnded: "agent_done",
    SpawnFinished: "background_object_finished",
    Warned: "agent_log",
    RetryScheduled: "agent_log",
    ReplyDiscarded: "agent_log",
    HookRan: "agent_log",
}
"""Our events with their name, or with who finds it and which it may be. What is not here has none."""

OP_NAMES: dict[type[Op], BusName] = {
    Prompt: "user_message",
    ChangePrompt: "pending_draft_upsert",
    DropPrompt: "pending_draft_remove",
    Continue: "continue",
    AddContext: "append_context",
    RunUserShell: "append_context",
    Interrupt: "turn_cancelled",
    RemoveLastMessage: "session_control",
    Rewind: "session_control",
    Redo: "session_control",
    SetLoop: "session_control",
    SetModel: "model_pool_switch",
    SetTitle: "session_control",
}


def validate_names(names: Collection[str]) -> tuple[BusName, ...]:
    """These names, or all of them when there are none. Raises UsageError for what is no name."""
    strange = [name for name in names if name not in BUS_NAMES]
    if strange:
        raise UsageError(f"The bus has no name {strange[0]!r}.", f"The names are: {', '.join(BUS_NAMES)}.")
    return tuple(name for name in BUS_NAMES if not names or name in names)


def name_of(envelope: Envelope) -> BusName | None:
    """What the bus calls an event; None for one that only our own front ends need."""
    naming = EVENT_NAMES.get(type(envelope.event))
    return naming[0](envelope.event, envelope.agent) if isinstance(naming, tuple) else naming


def sources_of(name: BusName) -> tuple[list[type[AnyEvent]], list[type[Op]]]:
    """Which of our events and ops go by a name. Both are empty for a feature that is still to come."""
    events = [kind for kind, how in EVENT_NAMES.items() if name == how or (isinstance(how, tuple) and name in how[1])]
    return events, [kind for kind, its_name in OP_NAMES.items() if its_name == name]
