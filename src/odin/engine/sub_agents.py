"""Sub-agents, and notifications about ended background processes.

A sub-agent works on one task with the tools of its mode and cannot start sub-agents. When a background process ends,
the agent that started it is notified: a busy agent with its next request, an idle one by a turn of its own.
"""

from collections.abc import Callable
from contextlib import suppress

from odin.core.call_events import SpawnFinished, SpawnStarted
from odin.core.errors import OdinError
from odin.core.event import AgentEnded, AgentStarted, TurnEnded
from odin.core.event_values import ExitReason, Mode
from odin.core.op import Prompt
from odin.core.policy import Redact, redact_nothing
from odin.core.tool import SubAgentTask
from odin.engine.agent import Agent, AgentDeps
from odin.engine.recorder import Recorder
from odin.engine.turn import TurnDeps
from odin.sandbox.background import BackgroundProcess
from odin.sandbox.process import describe_exit


class JobNotifier:
    """Routes notifications to the running agents. Those a sub-agent did not read go to the main agent."""

    def __init__(self, recorder: Recorder, redact: Redact = redact_nothing) -> None:
        self._recorder = recorder
        self._redact = redact
        self._agents: dict[str, Agent] = {}

    def register(self, agent: Agent) -> None:
        self._agents[agent.name] = agent

    def unregister(self, agent: Agent) -> None:
        self._agents.pop(agent.name, None)
        for notification in agent.take_notifications():
            self._notify("", notification)

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
        """Record the end, and notify the agent unless the process was stopped on purpose."""
        if spawned.status == "running":
            return
        tail = "" if spawned.status in ("finished", "stopped") else spawned.log.read_tail()
        output = self._redact(tail).text
        finished = SpawnFinished(spawned.id, spawned.status, spawned.code, output)
        with suppress(OdinError):  # the next turn reports a log that cannot be written
            self._recorder.emit(finished, spawned.request.agent)
        if spawned.status != "stopped":
            self._notify(
                spawned.request.agent,
                Prompt(f"{spawned.id}-ended", _describe_end(spawned, output), spawned.request.mode),
            )

    def _notify(self, name: str, notification: Prompt) -> None:
        agent = self._agents.get(name)
        if agent is None or (name and not agent.is_busy):
            agent = self._agents.get("")
        if agent is not None:
            agent.notify(notification)


def _describe_end(spawned: BackgroundProcess, output: str) -> str:
    starter = f", started by {spawned.request.agent}," if spawned.request.agent else ""
    if spawned.status == "timed_out":
        outcome = f"was stopped after its time limit of {spawned.request.seconds:g} s"
    else:
        outcome = (
            f"finished with {describe_exit(spawned.code)}"
            if spawned.code >= 0
            else f"was {describe_exit(spawned.code)}"
        )
    if spawned.status == "finished":
        more = "SpawnStatus shows its output."
    else:
        more = f"The end of its output:\n{output}" if output else "It printed nothing."
    return f"Background process {spawned.name}{starter} {outcome}. {more}"


REPORTED_CHARS = 2000
"""Characters of the answer in `AgentEnded`. The whole answer is the result of the call that started the sub-agent."""


class SubAgentRunner:
    """`deps_for(mode, name)` makes the collaborators of one sub-agent."""

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

    async def run(self, task: SubAgentTask) -> TurnEnded:
        """Run one task and return its end. The sub-agent is removed from the state however it ends."""
        name = self._make_name()
        agent = Agent(
            AgentDeps(self._recorder, lambda chosen: self._deps_for(chosen, name), self._cwd, self._root), name
        )
        reason: ExitReason = "aborted"
        text = ""
        self._recorder.emit(AgentStarted(name, task.prompt, task.mode, task.description, task.call_id))
        self._notifier.register(agent)
        try:
            ended = await agent.run_prompt(Prompt(name, task.prompt, task.mode))
            reason, text = ended.reason, ended.text[:REPORTED_CHARS]
            return ended
        finally:
            self._recorder.emit(AgentEnded(name, reason, text))
            self._notifier.unregister(agent)

    def _make_name(self) -> str:
        """Return a name that no agent of this session has had, also before a resume."""
        return f"agent-{self._recorder.state.sub_agents.agent_count + 1}"
