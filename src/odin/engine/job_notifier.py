"""Notifications about background processes.

When one ends, or prints a line that it waits for, the agent that started it is notified: a busy agent with its next
request, an idle one by a turn of its own. Notifications that a sub-agent did not read go to the main agent. What the
user does with one is only noted for the next prompt. When one listens on a port of the sandbox, the user is asked
whether to open it to the host.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from odin.core.call_events import SpawnFinished, SpawnListening, SpawnStarted
from odin.core.errors import OdinError
from odin.core.event import ContextAdded, Warned
from odin.core.event_values import Option, Question
from odin.core.op import Prompt
from odin.core.policy import Redact, redact_nothing
from odin.core.timeline import PROCESS_END_SUFFIX
from odin.core.tool import ToolOutput
from odin.engine.agent import Agent
from odin.engine.interactions import Interactions
from odin.engine.recorder import Recorder
from odin.sandbox.background import BackgroundProcess, Settle
from odin.sandbox.process import describe_exit

PROCESS_LINES = "-line-"
"""Marks the ids of prompts that tell about lines of output."""

_DISCARDED = "[What it had changed was discarded, because the session ended.]"


class JobNotifier:
    """Routes notifications to the running agents. `on_end` is called after each process that has ended."""

    def __init__(
        self,
        recorder: Recorder,
        interactions: Interactions,
        redact: Redact = redact_nothing,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._recorder = recorder
        self._interactions = interactions
        self._opened: dict[tuple[str, int], bool] = {}
        """By command and port: whether the user, who is asked once, wants it open."""
        self._offers: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._redact = redact
        self._on_end = on_end
        self._agents: dict[str, Agent] = {}
        self._settling: dict[asyncio.Task[None], asyncio.Future[Settle]] = {}
        self._withdrawn: set[str] = set()

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

    def on_listening(self, spawned: BackgroundProcess, port: int) -> None:
        """Record the port. If only the sandbox reaches it, ask whether to open it."""
        with suppress(OdinError):  # the next turn reports a log that cannot be written
            self._recorder.emit(SpawnListening(spawned.id, port, spawned.urls[port]), spawned.request.agent)
        if not spawned.urls[port]:
            offer = asyncio.get_running_loop().create_task(self._offer_port(spawned, port))
            self._offers[spawned.id, port] = offer
            spawned.tasks.add(offer)

    async def _offer_port(self, spawned: BackgroundProcess, port: int) -> None:
        key = spawned.request.command, port
        if key not in self._opened and self._interactions.can_ask:
            about = self._redact(spawned.name).text
            question = Question(  # the default is the first: Enter may have been meant for a prompt
                "Port",
                f"{about} listens on port {port} in its sandbox. Open it, so that your browser can reach it?",
                (
                    Option("Keep it closed", f"/ps {spawned.id} open opens it"),
                    Option("Open it", "on this machine only"),
                ),
                type="choice",
            )
            agent, call_id = spawned.request.agent, spawned.request.call_id
            with suppress(OdinError, TimeoutError):
                answers = await self._interactions.ask_questions(call_id, (question,), agent, turn=spawned.id)
                self._opened.setdefault(key, bool(answers) and answers[0] == ("Open it",))
        if self._opened.get(key):
            await self.open_port(spawned, port)

    async def open_port(self, spawned: BackgroundProcess, port: int) -> None:
        """Open a port to the host, because the user wants it."""
        self._opened[spawned.request.command, port] = True
        offer = self._offers.pop((spawned.id, port), None)
        if offer is not None and offer is not asyncio.current_task():
            offer.cancel()  # the question is answered
        try:
            url = await spawned.open_port(port)
        except OSError as error:
            self._recorder.emit(Warned(f"Port {port} of {spawned.id} could not be opened: {error}."))
            return
        if not url:
            return
        self._recorder.emit(SpawnListening(spawned.id, port, url), spawned.request.agent)
        self._note(spawned, f"The user opened port {port} of {spawned.name}: it is {url} for the user's browser.")

    def _note(self, spawned: BackgroundProcess, text: str) -> None:
        agent = self._agents.get(spawned.request.agent) or self._agents.get("")
        if agent is not None:
            agent.add_note(self._redact(text).text)

    def on_lines(self, spawned: BackgroundProcess, lines: list[str], *, is_last: bool) -> None:
        """Tell the agent about lines of output that it waits for."""
        order, printed = spawned.request, self._redact("\n".join(lines)).text
        end = "\nFurther lines are not reported." if is_last else ""
        text = f"Background process {spawned.name} printed:\n{printed}{end}"
        mail = Prompt(f"{spawned.id}{PROCESS_LINES}{spawned.log.total}", text, order.mode, source="mail")
        self._notify(order.agent, mail)

    def on_ended(self, spawned: BackgroundProcess) -> None:
        """Record the end, and notify the agent unless the process was stopped on purpose."""
        if spawned.status == "running":
            return
        output = self._redact(spawned.log.read_tail()).text
        is_late = spawned.settler is not None and self._interactions.is_closed
        if is_late:
            output = f"{output}\n{_DISCARDED}".lstrip()
        finished = SpawnFinished(spawned.id, spawned.status, spawned.code, output)
        with suppress(OdinError):  # the next turn reports a log that cannot be written
            self._recorder.emit(finished, spawned.request.agent)
            if is_late:  # the model was told that it goes on
                told = self._redact(f"{_describe_end(spawned, output)} {_DISCARDED}").text
                command = self._redact(spawned.request.command).text
                self._recorder.emit(ContextAdded(told, command=command), spawned.request.agent)
        self._on_end()
        if spawned.id in self._withdrawn:
            return
        if spawned.settler is None or is_late:
            self._report_end(spawned, output)
        else:
            task = asyncio.get_running_loop().create_task(self._settle(spawned, spawned.settler, output))
            self._settling[task] = spawned.settler
            task.add_done_callback(self._settling.pop)

    async def _settle(self, spawned: BackgroundProcess, settler: "asyncio.Future[Settle]", output: str) -> None:
        """Decide about what a command wrote in its view, as at the end of one in the foreground, and report it."""
        settle = await settler
        try:
            settled = await settle("" if spawned.status in ("finished", "failed") else "It was stopped.")
        except Exception as error:  # as for a command in the foreground, it is the result
            settled = ToolOutput(f"[What it changed could not be kept: {error}]")
        text = "\n".join(filter(None, (settled.text.strip(), spawned.running.excess)))
        if settled.for_user:
            self._recorder.emit(Warned(self._redact(settled.for_user).text), spawned.request.agent)
        if not self._interactions.is_closed:
            self._report_end(spawned, output, self._redact(text).text)

    async def withdraw(self, spawned: BackgroundProcess) -> bool:
        """Decide and report nothing about what a command wrote in its view, whether it has ended or still runs.

        Return False if that is decided already, or if it has no view.
        """
        if spawned.id not in self._withdrawn:
            task = next((task for task, settler in self._settling.items() if settler is spawned.settler), None)
            if task is None and (spawned.settler is None or spawned.status != "running"):
                return False
            self._withdrawn.add(spawned.id)
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        return True

    async def close(self) -> None:
        """Wait until what ended commands wrote is decided."""
        for settler in self._settling.values():
            settler.cancel()  # of a call that did not get that far
        if self._settling:
            await asyncio.wait(self._settling)

    def _report_end(self, spawned: BackgroundProcess, output: str, settled: str = "") -> None:
        text = f"{_describe_end(spawned, output)}\n{settled}".rstrip()
        if spawned.is_stopped_by_user or (not spawned.request.call_id and spawned.status != "stopped"):
            self._note(spawned, text)
        elif spawned.status != "stopped" or settled:
            mail = Prompt(f"{spawned.id}{PROCESS_END_SUFFIX}", text, spawned.request.mode, source="mail")
            self._notify(spawned.request.agent, mail)

    def _notify(self, name: str, notification: Prompt) -> None:
        agent = self._agents.get(name)
        if agent is None or (name and not agent.is_busy):
            agent = self._agents.get("")
        if agent is not None:
            agent.notify(notification)


def _describe_end(spawned: BackgroundProcess, output: str) -> str:
    if spawned.status == "stopped":
        who = "The user stopped" if spawned.is_stopped_by_user else "Stopped:"
        return f"{who} the background process {spawned.name}."
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
