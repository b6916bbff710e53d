"""Notifications about ended background processes.

When one ends, the agent that started it is notified: a busy agent with its next request, an idle one by a turn of its
own. Notifications that a sub-agent did not read go to the main agent.
"""

from collections.abc import Callable
from contextlib import suppress

from odin.core.call_events import SpawnFinished, SpawnStarted
from odin.core.errors import OdinError
from odin.core.op import Prompt
from odin.core.policy import Redact, redact_nothing
from odin.core.timeline import PROCESS_END_SUFFIX
from odin.engine.agent import Agent
from odin.engine.recorder import Recorder
from odin.sandbox.background import BackgroundProcess
from odin.sandbox.process import describe_exit


class JobNotifier:
    """Routes notifications to the running agents. `on_end` is called after each process that has ended."""

    def __init__(
        self, recorder: Recorder, redact: Redact = redact_nothing, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._recorder = recorder
        self._redact = redact
        self._on_end = on_end
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
        self._on_end()
        if spawned.status != "stopped":
            self._notify(
                spawned.request.agent,
                Prompt(
                    f"{spawned.id}{PROCESS_END_SUFFIX}",
                    _describe_end(spawned, output),
                    spawned.request.mode,
                    source="mail",
                ),
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
