"""Closes in the log what a process that was killed left open, when its session goes on in another one.

The history would be legal without this: the fold gives every call a result. But whoever reads the log sees each call,
question, turn, sub-agent and background process come to an end, and the model is told in words what happened.
"""

import signal
from collections.abc import Iterator

from msgspec import Struct

from odin.core.event import (
    AgentEnded,
    AnyEvent,
    FileChange,
    PermissionAnswered,
    PermissionAsked,
    QuestionsAnswered,
    SpawnFinished,
    ToolEnded,
    TurnEnded,
)
from odin.core.some import some_of
from odin.session.state import State

CRASHED = "Odin was killed or crashed in the middle of this turn."
_NO_ANSWER = "Odin was killed or crashed before this was answered."
_NAMED = 20

Closing = tuple[AnyEvent, str]
"""An event and the agent it is about."""


class LeftOpen(Struct, frozen=True):
    """What has to be recorded so that nothing is open any more, sub-agents before the main agent."""

    closings: tuple[Closing, ...]
    spawns: tuple[str, ...]

    def told(self, changes: tuple[FileChange, ...]) -> str:
        """What the model must know beside the results of its calls; "" when there is nothing.

        `changes` is how files differ from before the calls that were cut off.
        """
        parts: list[str] = []
        if changes:
            names = [change.before.path for change in changes if change.after.kind != "folder"]
            parts.append(f"Files that differ from before the interrupted calls: {some_of(names, _NAMED)}.")
        if self.spawns:
            parts.append(f"Background processes that ended with the crash: {', '.join(self.spawns)}.")
        return " ".join(parts)


def left_open(state: State) -> LeftOpen:
    unfinished = state.unfinished
    names = sorted({*unfinished.turns, *unfinished.agents, *state.open_threads}, reverse=True)
    endings = (event for name in names for event in _endings(state, name))
    return LeftOpen((*_answers(state), *endings, *_spawns(state)), tuple(unfinished.spawns))


def _answers(state: State) -> Iterator[Closing]:
    for asked, agent in state.unfinished.asks.values():
        if isinstance(asked, PermissionAsked):
            yield PermissionAnswered(asked.ask_id, asked.call_id, False, "shutdown", _NO_ANSWER), agent
        else:
            yield QuestionsAnswered(asked.ask_id, asked.call_id, cancelled=True, by="shutdown"), agent


def _endings(state: State, agent: str) -> Iterator[Closing]:
    thread = state.thread(agent)
    for call in thread.open_calls:
        yield ToolEnded(call.id, call.name, "cancelled", thread.unfinished(call.id)), agent
    if agent in state.unfinished.turns:
        yield TurnEnded(state.unfinished.turns[agent], "aborted", error=CRASHED), agent
    if agent in state.unfinished.agents:
        yield AgentEnded(agent, "aborted"), ""


def _spawns(state: State) -> Iterator[Closing]:
    for started, agent in state.unfinished.spawns.values():
        yield SpawnFinished(started.id, "stopped", -signal.SIGKILL), agent
