"""Tells the agent that started a background process that it is over: a busy one beside its next request, an idle one
by a turn of its own."""

from contextlib import suppress

from odin.core.errors import OdinError
from odin.core.event import SpawnFinished, SpawnStarted
from odin.core.op import Prompt
from odin.core.redaction import Redact, unredacted
from odin.engine.agent import Agent
from odin.engine.recorder import Recorder
from odin.policy.process.background import Spawned
from odin.policy.process.outcome import outcome


class Waker:
    """Knows the agents that live. What one did not read before it ended is told to the main agent."""

    def __init__(self, recorder: Recorder, redact: Redact = unredacted) -> None:
        self._recorder = recorder
        self._redact = redact
        self._agents: dict[str, Agent] = {}

    def enter(self, agent: Agent) -> None:
        self._agents[agent.name] = agent

    def leave(self, agent: Agent) -> None:
        self._agents.pop(agent.name, None)
        for news in agent.take_news():
            self._tell("", news)

    def started(self, spawned: Spawned) -> None:
        order = spawned.order
        self._recorder.emit(
            SpawnStarted(
                id=spawned.id,
                call_id=order.call_id,
                command=self._redact(order.command).text,
                description=order.description,
                max_runtime_s=order.seconds,
                log=spawned.log.path,
            ),
            order.agent,
        )

    def ended(self, spawned: Spawned) -> None:
        """What was stopped on purpose is recorded and no news."""
        if spawned.status == "running":
            return
        said = "" if spawned.status in ("finished", "stopped") else spawned.log.last_words()
        output = self._redact(said).text
        finished = SpawnFinished(spawned.id, spawned.status, spawned.code, output)
        with suppress(OdinError):  # a log that cannot be written is told by the turn that needs it
            self._recorder.emit(finished, spawned.order.agent)
        if spawned.status != "stopped":
            self._tell(
                spawned.order.agent, Prompt(f"{spawned.id}-ended", _sentence(spawned, output), spawned.order.mode)
            )

    def _tell(self, name: str, news: Prompt) -> None:
        agent = self._agents.get(name)
        if agent is None or (name and not agent.busy):
            agent = self._agents.get("")
        if agent is not None:
            agent.tell(news)


def _sentence(spawned: Spawned, output: str) -> str:
    whose = f", started by {spawned.order.agent}," if spawned.order.agent else ""
    if spawned.status == "timed_out":
        how = f"was stopped: its time of {spawned.order.seconds:g} s was over"
    else:
        how = f"finished with {outcome(spawned.code)}" if spawned.code >= 0 else f"was {outcome(spawned.code)}"
    if spawned.status == "finished":
        more = "SpawnStatus shows its output."
    else:
        more = f"The end of its output:\n{output}" if output else "It printed nothing."
    return f"Background process {spawned.name}{whose} {how}. {more}"
