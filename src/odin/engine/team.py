"""Sub-agents: agents of their own for one task each, with the tools of their mode and never a sub-agent of theirs."""

from collections.abc import Callable

from odin.core.event import AgentEnded, AgentStarted, ExitReason, Mode, TurnEnded
from odin.core.op import Prompt
from odin.engine.agent import Agent
from odin.engine.kit import TurnDeps
from odin.engine.recorder import Recorder
from odin.engine.wake import JobNotifier

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
        return f"agent-{self._recorder.state.agent_count + 1}"
