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


class Unfinished:
    """`turns` and `agents` map the name of an agent to what it is doing, the others an id to how it began."""

    def __init__(self) -> None:
        self.turns: dict[str, str] = {}
        self.agents: dict[str, AgentStarted] = {}
        self.asks: dict[str, tuple[PermissionAsked | QuestionsAsked, str]] = {}
        self.spawns: dict[str, tuple[SpawnStarted, str]] = {}

    def __bool__(self) -> bool:
        return bool(self.turns or self.agents or self.asks or self.spawns)

    def apply(self, event: AnyEvent, agent: str) -> None:
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event, agent)

    def _turn_started(self, event: TurnStarted, agent: str) -> None:
        self.turns[agent] = event.id

    def _turn_ended(self, event: TurnEnded, agent: str) -> None:
        self.turns.pop(agent, None)

    def _agent_started(self, event: AgentStarted, agent: str) -> None:
        self.agents[event.id] = event

    def _agent_ended(self, event: AgentEnded, agent: str) -> None:
        self.agents.pop(event.id, None)

    def _asked(self, event: PermissionAsked | QuestionsAsked, agent: str) -> None:
        self.asks[event.ask_id] = event, agent

    def _answered(self, event: PermissionAnswered | QuestionsAnswered, agent: str) -> None:
        self.asks.pop(event.ask_id, None)

    def _spawn_started(self, event: SpawnStarted, agent: str) -> None:
        self.spawns[event.id] = event, agent

    def _spawn_finished(self, event: SpawnFinished, agent: str) -> None:
        self.spawns.pop(event.id, None)


_STEPS: dict[type[AnyEvent], Callable[[Unfinished, Any, str], None]] = {
    TurnStarted: Unfinished._turn_started,
    TurnEnded: Unfinished._turn_ended,
    AgentStarted: Unfinished._agent_started,
    AgentEnded: Unfinished._agent_ended,
    PermissionAsked: Unfinished._asked,
    PermissionAnswered: Unfinished._answered,
    QuestionsAsked: Unfinished._asked,
    QuestionsAnswered: Unfinished._answered,
    SpawnStarted: Unfinished._spawn_started,
    SpawnFinished: Unfinished._spawn_finished,
}
