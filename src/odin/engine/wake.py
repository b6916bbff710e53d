"""Tells the agent that started a background process that it is over: a busy one beside its next request, an idle one
by a turn of its own."""

from contextlib import suppress

from odin.core.errors import OdinError
from odin.core.event import SpawnFinished, SpawnStarted
from odin.core.op import Prompt
from odin.core.redaction import Redact, redact_nothing
from odin.engine.agent import Agent
from odin.engine.recorder import Recorder
from odin.policy.process.background import BackgroundProcess
from odin.policy.process.outcome import describe_exit


class JobNotifier:
    """Knows the agents that live. What one did not read before it ended is told to the main agent."""

    def __init__(self, recorder: Recorder, redact: Redact = redact_nothing) -> None:
        self._recorder = recorder
        self._redact = redact
        self._agents: dict[str, Agent] = {}

    def register(self, agent: Agent) -> None:
        self._agents[agent.name] = agent

    def unregister(self, agent: Agent) -> None:
        self._agents.pop(agent.name, None)
        for news in agent.take_notifications():
            self._notify("", news)

    def on_started(self, spawned: BackgroundProcess) -> None:
        order = spawned.request
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

    def on_ended(self, spawned: BackgroundProcess) -> None:
        """What was stopped on purpose is recorded and no news."""
        if spawned.status == "running":
            return
        said = "" if spawned.status in ("finished", "stopped") else spawned.log.read_tail()
        output = self._redact(said).text
        finished = SpawnFinished(spawned.id, spawned.status, spawned.code, output)
        with suppress(OdinError):  # a log that cannot be written is told by the turn that needs it
            self._recorder.emit(finished, spawned.request.agent)
        if spawned.status != "stopped":
            self._notify(
                spawned.request.agent,
                Prompt(f"{spawned.id}-ended", _describe_end(spawned, output), spawned.request.mode),
            )

    def _notify(self, name: str, news: Prompt) -> None:
        agent = self._agents.get(name)
        if agent is None or (name and not agent.is_busy):
            agent = self._agents.get("")
        if agent is not None:
            agent.notify(news)


def _describe_end(spawned: BackgroundProcess, output: str) -> str:
    whose = f", started by {spawned.request.agent}," if spawned.request.agent else ""
    if spawned.status == "timed_out":
        how = f"was stopped: its time of {spawned.request.seconds:g} s was over"
    else:
        how = (
            f"finished with {describe_exit(spawned.code)}"
            if spawned.code >= 0
            else f"was {describe_exit(spawned.code)}"
        )
    if spawned.status == "finished":
        more = "SpawnStatus shows its output."
    else:
        more = f"The end of its output:\n{output}" if output else "It printed nothing."
    return f"Background process {spawned.name}{whose} {how}. {more}"
