"""Finds the events that close what a killed process left open, when its session is resumed.

The history is valid without them, because folding gives every call a result. They end each call, request, turn,
sub-agent and background process for readers of the log, and `describe` tells the model what happened. Live subscribers
do not receive them: a client that waits for its own result must not see the end of a dead turn.
"""

import signal
from collections.abc import Iterator

from msgspec import Struct

from odin.core.call_events import Replied, SpawnFinished, ToolEnded
from odin.core.event import AgentEnded, AnyEvent, PromptDropped, TurnEnded, Warned
from odin.core.event_values import FileChange
from odin.core.interaction import make_interaction, record_answer
from odin.core.message import ReplyMessage, Text
from odin.core.op import Answer
from odin.core.text import join_some
from odin.session.state import SessionState

CRASH_ERROR = "Odin was killed or crashed in the middle of this turn."
_NO_ANSWER = "Odin was killed or crashed before this was answered."
_MAX_NAMED_FILES = 20

ClosingEvent = tuple[AnyEvent, str]
"""An event and the agent it is about."""


class DanglingEvents(Struct, frozen=True):
    """The closing events, sub-agents before the main agent, and the ids of background processes that ended."""

    events: tuple[ClosingEvent, ...]
    spawns: tuple[str, ...]

    def describe(self, changes: tuple[FileChange, ...]) -> str:
        """Return the note for the model, or "". `changes` are the file changes of the calls that were cut off."""
        parts: list[str] = []
        if changes:
            names = [change.before.path for change in changes if change.after.kind != "folder"]
            parts.append(f"Files that differ from before the interrupted calls: {join_some(names, _MAX_NAMED_FILES)}.")
        if self.spawns:
            parts.append(f"Background processes that ended with the crash: {', '.join(self.spawns)}.")
        return " ".join(parts)


def find_dangling(state: SessionState) -> DanglingEvents:
    unfinished = state.open_work
    names = sorted({*unfinished.turns, *unfinished.agents, *state.open_threads}, reverse=True)
    endings = (event for name in names for event in _end_agent(state, name))
    return DanglingEvents((*_answer_requests(state), *endings, *_end_spawns(state)), tuple(unfinished.spawns))


def _answer_requests(state: SessionState) -> Iterator[ClosingEvent]:
    for asked, agent in state.open_work.asks.values():
        interaction = make_interaction(asked, agent)
        text = _NO_ANSWER if interaction.kind == "permission" else ""
        yield record_answer(asked, Answer(asked.ask_id, interaction.default, text, by="shutdown")), agent


def _end_agent(state: SessionState, agent: str) -> Iterator[ClosingEvent]:
    thread = state.get_thread(agent)
    for call in thread.open_calls:
        yield ToolEnded(call.id, call.name, "cancelled", thread.get_interruption_text(call.id)), agent
    if text := state.open_work.drafts.get(agent):
        yield Replied(ReplyMessage((Text(text),), interrupted=True)), agent
    if agent in state.open_work.turns:
        yield TurnEnded(state.open_work.turns[agent], "aborted", error=CRASH_ERROR), agent
    if agent in state.open_work.agents:
        for item in [item for item in state.queue if item.agent == agent]:
            yield PromptDropped(item.id), agent
            yield Warned(f"{agent} has ended and did not answer: {item.body}"), ""
        yield AgentEnded(agent, "aborted"), ""


def _end_spawns(state: SessionState) -> Iterator[ClosingEvent]:
    for started, agent in state.open_work.spawns.values():
        yield SpawnFinished(started.id, "stopped", -signal.SIGKILL), agent
