"""What has begun and not ended: after a crash, what the dead process left open."""

from collections.abc import Callable
from typing import Any

from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    PermissionAnswered,
    PermissionAsked,
    QuestionsAnswered,
    QuestionsAsked,
    SpawnFinished,
    SpawnStarted,
    TurnEnded,
    TurnStarted,
)


class OpenWork:
    """`turns` and `agents` map the name of an agent to what it is doing, the others an id to how it began."""

    def __init__(self) -> None:
        self.turns: dict[str, str] = {}
        self.agents: dict[str, AgentStarted] = {}
        self.questions: dict[str, tuple[PermissionAsked | QuestionsAsked, str]] = {}
        self.spawns: dict[str, tuple[SpawnStarted, str]] = {}

    def __bool__(self) -> bool:
        return bool(self.turns or self.agents or self.questions or self.spawns)

    def apply(self, event: AnyEvent, agent: str) -> None:
        step = _OPEN_WORK_HANDLERS.get(type(event))
        if step is not None:
            step(self, event, agent)

    def _on_turn_started(self, event: TurnStarted, agent: str) -> None:
        self.turns[agent] = event.id

    def _on_turn_ended(self, event: TurnEnded, agent: str) -> None:
        self.turns.pop(agent, None)

    def _on_agent_started(self, event: AgentStarted, agent: str) -> None:
        self.agents[event.id] = event

    def _on_agent_ended(self, event: AgentEnded, agent: str) -> None:
        self.agents.pop(event.id, None)

    def _on_asked(self, event: PermissionAsked | QuestionsAsked, agent: str) -> None:
        self.questions[event.ask_id] = event, agent

    def _on_answered(self, event: PermissionAnswered | QuestionsAnswered, agent: str) -> None:
        self.questions.pop(event.ask_id, None)

    def _on_spawn_started(self, event: SpawnStarted, agent: str) -> None:
        self.spawns[event.id] = event, agent

    def _on_spawn_finished(self, event: SpawnFinished, agent: str) -> None:
        self.spawns.pop(event.id, None)


_OPEN_WORK_HANDLERS: dict[type[AnyEvent], Callable[[OpenWork, Any, str], None]] = {
    TurnStarted: OpenWork._on_turn_started,
    TurnEnded: OpenWork._on_turn_ended,
    AgentStarted: OpenWork._on_agent_started,
    AgentEnded: OpenWork._on_agent_ended,
    PermissionAsked: OpenWork._on_asked,
    PermissionAnswered: OpenWork._on_answered,
    QuestionsAsked: OpenWork._on_asked,
    QuestionsAnswered: OpenWork._on_answered,
    SpawnStarted: OpenWork._on_spawn_started,
    SpawnFinished: OpenWork._on_spawn_finished,
}
