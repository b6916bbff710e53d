"""Tells the agent that started a background process that it is over: a busy one beside its next request, an idle one
by a turn of its own.

Sub-agents: agents of their own for one task each, with the tools of their mode and never a sub-agent of theirs.
"""

from collections.abc import Callable
from contextlib import suppress

from odin.core.errors import OdinError
from odin.core.event import AgentEnded, AgentStarted, ExitReason, Mode, SpawnFinished, SpawnStarted, TurnEnded
from odin.core.op import Prompt
from odin.core.policy import Redact, redact_nothing
from odin.engine.agent import Agent
from odin.engine.recorder import Recorder
from odin.engine.turn import TurnDeps
from odin.sandbox.background import BackgroundProcess
from odin.sandbox.process import describe_exit


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


REPORTED_CHARS = 2000
"""So much of a sub-agent's answer is told with its end; the whole of it is the result of the call that began it."""


class SubAgentRunner:
    """`kit_for(mode, name)` gives the collaborators of one sub-agent."""

    def __init__(
        self,
        *,
        recorder: Recorder,
        deps_for: Callable[[Mode, str], TurnDeps],
        cwd: str,
        root: str,
        notifier: JobNotifier,
    ) -> None:
        self._recorder = recorder
        self._notifier = notifier
        self._deps_for = deps_for
        self._cwd = cwd
        self._root = root

    async def run(self, task: str, mode: Mode) -> TurnEnded:
        """Run one task to its end and give its answer back. The sub-agent leaves the state whatever happens."""
        name = self._make_name()
        agent = Agent(
            recorder=self._recorder,
            deps_for=lambda chosen: self._deps_for(chosen, name),
            cwd=self._cwd,
            root=self._root,
            name=name,
        )
        reason: ExitReason = "aborted"
        text = ""
        self._recorder.emit(AgentStarted(name, task, mode))
        self._notifier.register(agent)
        try:
            ended = await agent.run_prompt(Prompt(name, task, mode))
            reason, text = ended.reason, ended.text[:REPORTED_CHARS]
            return ended
        finally:
            self._recorder.emit(AgentEnded(name, reason, text))
            self._notifier.unregister(agent)

    def _make_name(self) -> str:
        """A name no agent of this session has had, also after a resume."""
        return f"agent-{self._recorder.state.sub_agents.agent_count + 1}"
