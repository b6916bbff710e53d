"""The agents of a session: the main agent, and sub-agents that work on tasks.

A sub-agent is an agent like the main one: it has its own queue, can be prompted, steered and interrupted, and ends when
its task does. AgentTool waits for its sub-agent. Delegate returns at once; the result comes later as mail. A delegated
task ends when its agent calls Complete. An agent that stops without it is reminded after a while, and fails after some
reminders.
"""

import asyncio
from collections.abc import Callable, Container, Coroutine
from typing import Any, Protocol

from msgspec.structs import replace

from odin.core.errors import AgentShutdown, OdinError, UsageError
from odin.core.event import AgentEnded, AgentStarted, PromptDropped, TurnEnded, Warned, WorkEnded
from odin.core.event_values import ExitReason
from odin.core.format import pluralize
from odin.core.op import CancelTask, Prompt
from odin.core.team import (
    ACTIVE_STATES,
    AgentSpec,
    MailKind,
    MailPriority,
    MailSent,
    TaskChanged,
    TaskRecord,
    TaskReport,
    TaskState,
    TeamLimits,
)
from odin.core.text import join_some
from odin.core.tool import SubAgentTask
from odin.engine.agent import SETTLE_S, Agent
from odin.engine.job_notifier import JobNotifier
from odin.engine.message_router import MessageRouter
from odin.engine.recorder import Recorder

REPORTED_CHARS = 2000
"""Characters of the answer in `AgentEnded`. The whole answer is the result of the call that started the sub-agent."""

REMINDER = (
    "You stopped without calling Complete or Escalate. If the task is done, call Complete with a summary. If you need "
    "a decision of your owner, call Escalate. Otherwise go on."
)

_MAX_NAMED = 10


class _Member:
    """A live sub-agent. `done` is for the call that waits for it; a delegated agent has none.

    `completion` and `question` are what it said last with Complete or Escalate, in the turn `said_in`.
    """

    def __init__(self, spec: AgentSpec, agent: Agent, done: "asyncio.Future[TurnEnded] | None") -> None:
        self.spec = spec
        self.agent = agent
        self.done = done
        self.completion: TaskReport | None = None
        self.question = ""
        self.said_in = ""
        self.reminders = 0
        self.timer: asyncio.TimerHandle | None = None


class AgentFactory(Protocol):
    async def make_agent(self, spec: AgentSpec, on_idle: Callable[[TurnEnded], None]) -> Agent:
        """Make a sub-agent; `on_idle` is called when it has nothing more to do."""
        ...

    async def release(self, name: str) -> None:
        """Release what was made for an agent that has ended."""
        ...

    def get_idle_time(self, name: str) -> float | None:
        """Return the seconds until an agent of this type is reminded, or None for the session's setting."""
        ...

    def get_model(self, agent: str) -> str:
        """Return the model of an agent that was made."""
        ...

    def get_color(self, name: str) -> str:
        """Return the color of agents of this type, or ""."""
        ...

    async def report_work(self, task: TaskRecord) -> tuple[str, tuple[str, ...]]:
        """Return what the agent of a task has changed in its own worktree: a text for its owner, and the files."""
        ...

    def list_work(self, task: TaskRecord) -> tuple[str, ...]:
        """Return the files of the project that the reported work of a task changes, as absolute paths."""
        ...

    async def preview_work(self, task: TaskRecord) -> str:
        """Return the diff of a task's worktree, for the permission request."""
        ...

    async def apply_work(self, task: TaskRecord) -> str:
        """Merge the reported work of a task into the project; return the result."""
        ...


class Team:
    """The live agents. `save` writes an artifact (see `MessageRouter`)."""

    def __init__(
        self,
        recorder: Recorder,
        maker: AgentFactory,
        notifier: JobNotifier,
        save: Callable[[str, str], str],
        limits: TeamLimits,
    ) -> None:
        self.limits = limits
        self.router = MessageRouter(recorder, save, self._wake)
        self._recorder = recorder
        self.maker = maker
        self._notifier = notifier
        self._main: Agent | None = None
        self._members: dict[str, _Member] = {}
        self._last_number = 0
        self._starting = 0
        self._stopping = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._end_check: asyncio.Handle | None = None
        self.is_closing = False
        """While True, that nothing works is no news: prompts stay in the queue for the next run."""
        self.continuing = asyncio.Lock()
        """Held while a task gets a new agent, so that it gets only one."""

    # --- agents by name ---

    def set_main(self, agent: Agent) -> None:
        self._main = agent
        agent.on_stopped = self._check_end
        self._notifier.register(agent)

    @property
    def main(self) -> Agent:
        assert self._main is not None
        return self._main

    def get(self, name: str) -> Agent:
        """Return the live agent with this name; "" is the main agent. Raise UsageError if there is none."""
        if not name:
            return self.main
        member = self._members.get(name)
        if member is None:
            running = join_some(self._members, _MAX_NAMED)
            hint = f"Running agents: {running}." if running else "No sub-agent is running."
            raise UsageError(f"There is no running agent {name!r}.", hint)
        return member.agent

    def list_agents(self) -> tuple[Agent, ...]:
        """Return the live sub-agents."""
        return tuple(member.agent for member in self._members.values())

    def find_task(self, agent: str) -> TaskRecord | None:
        """Return the task that this live agent works on."""
        member = self._members.get(agent)
        return None if member is None else self._recorder.state.board.tasks.get(member.spec.task_id)

    def get_type(self, agent: str) -> str:
        """Return the type of a live sub-agent; "" for the main agent."""
        return self._members[agent].spec.type if agent in self._members else ""

    def get_depth(self, agent: str) -> int:
        return self._members[agent].spec.depth if agent in self._members else 0

    def count_running(self) -> int:
        """Return how many sub-agents work: those of active tasks, and those that a call waits for or starts."""
        active = sum(task.state in ACTIVE_STATES for task in self._recorder.state.board.tasks.values())
        return active + self._starting + sum(member.done is not None for member in self._members.values())

    def is_staffed(self, task: TaskRecord) -> bool:
        """True if an agent works on a task or may start to: an idle task without a live agent has none."""
        return not task.is_ended and (task.state != "idle" or task.agent in self._members)

    @property
    def is_busy(self) -> bool:
        """True if any agent works, main or not."""
        return self.main.is_busy or self.is_working

    @property
    def is_working(self) -> bool:
        """True while delegated work goes on, or while its results wait for the main agent."""
        working = any(member.agent.is_active or member.timer is not None for member in self._members.values())
        has_messages_to_read = self.main.is_active and self.router.should_wake("")
        return working or has_messages_to_read or self.router.is_waking or bool(self._stopping or self._ending)

    def _check_end(self) -> None:
        """Tell all clients if nothing works any more. Called when anything has ended that `is_working` knows."""
        if self._end_check is None:  # what follows the end begins in the same step
            self._end_check = asyncio.get_running_loop().call_soon(self._tell_end)

    def _tell_end(self) -> None:
        self._end_check = None
        if not self.is_closing and not self.main.is_active and not self.is_working:
            self._recorder.emit(WorkEnded())

    def _stop_timer(self, member: _Member) -> None:
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None
            self._check_end()

    def pause(self, undone: Container[str]) -> list[str]:
        """Send no reminders to idle agents any more; their tasks stay idle. If agents have a turn, return them instead.

        Those of `undone` tasks do not count, nor does AgentTool's sub-agent: its owner has a turn, too.
        """
        others = [item for item in self._members.values() if item.done is None and item.spec.task_id not in undone]
        names = [item.spec.name for item in others if item.agent.is_busy or self.router.should_wake(item.spec.name)]
        busy = [""] if self.main.is_busy else names
        if not busy:
            for member in others:
                self._stop_timer(member)
        return busy

    async def settle(self) -> None:
        """Wait until what follows the end of a turn or of an agent is done."""
        for agent in (self.main, *self.list_agents()):
            await agent.settle()
        if self._ending:
            await asyncio.wait(self._ending, timeout=SETTLE_S)

    def submit(self, prompt: Prompt) -> None:
        """Give a prompt to the agent it names."""
        self.get(prompt.agent).submit(prompt)
        self.mark_active(prompt.agent)

    def mark_active(self, name: str) -> None:
        """Note that an agent got something new to do."""
        member = self._members.get(name)
        if member is None:
            return
        self._stop_timer(member)
        member.reminders = 0
        self._set_running(member)

    def _set_running(self, member: _Member) -> None:
        task = self._recorder.state.board.tasks.get(member.spec.task_id)
        if task is not None and task.state != "running":
            self._recorder.emit(TaskChanged(task.id, "running", member.spec.name), member.spec.name)

    def _wake(self, name: str) -> None:
        agent = self._main if not name else (self._members[name].agent if name in self._members else None)
        if agent is not None:
            agent.wake()
        self._check_end()

    # --- starting and ending sub-agents ---

    def make_name(self, kind: str = "") -> str:
        """Return a name that no agent of this session has had, also before a resume."""
        self._last_number = max(self._last_number, self._recorder.state.sub_agents.agent_count) + 1
        return f"{kind or 'agent'}-{self._last_number}"

    async def run(self, task: SubAgentTask) -> TurnEnded:
        """Run one task to its end. The sub-agent ends with the call, however that ends. (For AgentTool.)

        Raise UsageError if too many agents are running.
        """
        if self.count_running() >= self.limits.agents:
            most = pluralize(self.limits.agents, "running sub-agent")
            raise UsageError(f"The limit of {most} is reached.", "Wait until one ends.")
        spec = AgentSpec(
            self.make_name(task.type),
            task.prompt,
            task.mode,
            task.description,
            task.type,
            owner=task.owner,
            call_id=task.call_id,
            depth=self.get_depth(task.owner) + 1,
        )
        self._starting += 1
        try:
            member = await self.start(spec, asyncio.get_running_loop().create_future())
        finally:
            self._starting -= 1
        assert member.done is not None
        reason: ExitReason = "aborted"
        text = ""
        try:
            member.agent.submit(Prompt(spec.name, task.prompt, task.mode, agent=spec.name, source="mail"))
            ended = await member.done
            reason, text = ended.reason, ended.text
            return ended
        finally:
            try:
                await member.agent.stop()
            finally:
                self._remove(member, reason, text)

    async def start(self, spec: AgentSpec, done: "asyncio.Future[TurnEnded] | None" = None) -> _Member:
        """Make a sub-agent and record that it started. It has no prompt yet."""
        try:
            agent = await self.maker.make_agent(spec, lambda ended: self._on_idle(spec.name, ended))
        except BaseException:
            await self.maker.release(spec.name)
            raise
        agent.on_stopped = self._check_end
        member = self._members[spec.name] = _Member(spec, agent, done)
        self._recorder.emit(
            AgentStarted(
                spec.name,
                spec.task,
                spec.mode,
                spec.description,
                spec.call_id,
                owner=spec.owner,
                agent_type=spec.type,
                task_id=spec.task_id,
                model=self.maker.get_model(spec.name),
                continues=spec.continues,
                color=self.maker.get_color(spec.type),
            )
        )
        self._notifier.register(agent)
        return member

    def _remove(self, member: _Member, reason: ExitReason, text: str) -> None:
        """Record the end of a sub-agent and forget it. Its thread stays in the log."""
        name = member.spec.name
        if self._members.pop(name, None) is None:
            return
        self._stop_timer(member)
        # Report prompts that the ended agent did not answer.
        for item in [item for item in self._recorder.state.queue if item.agent == name]:
            self._recorder.emit(PromptDropped(item.id), name)
            self._recorder.emit(Warned(f"{name} has ended and did not answer: {item.body}"))
        self._end_later(self.maker.release(name))
        unread = self._recorder.state.board.list_messages(name)
        self._recorder.emit(AgentEnded(name, reason, text[:REPORTED_CHARS]))
        self._notifier.unregister(member.agent)
        for mail in unread:
            passed_on = self._recorder.state.board.messages[mail.id]
            if passed_on.recipient != name:
                self.router.announce(passed_on)

    async def dismiss(self, name: str, why: str) -> None:
        """End an agent that has not started to work."""
        member = self._members.get(name)
        if member is not None:
            await member.agent.stop()
            self._remove(member, "aborted", why)

    # --- what a delegated agent does when it stops ---

    def _on_idle(self, name: str, ended: TurnEnded) -> None:
        member = self._members.get(name)
        if member is None:
            return
        if member.done is not None:
            if not member.done.done():
                member.done.set_result(ended)
            return
        task = self.find_task(name)
        if task is None or task.is_ended:
            return
        if task.state in ("waiting_main", "idle") and ended.reason != "aborted":
            self._set_running(member)  # mail of its own tasks has started this turn
        is_last_word = member.said_in == ended.id or task.state == "waiting_descendant"
        if member.completion is not None and is_last_word:
            self._settle_completion(member, task)
        elif member.question:
            question, member.question = member.question, ""
            mail = self.router.write(
                member.spec.name,
                self._find_owner(task),
                "decision_required",
                question,
                task_id=task.id,
                priority="interrupt",
                needs_reply=True,
            )
            self._change(member, task, "waiting_main", reason=question, mail=mail)
        else:
            self._handle_stop(member, task, ended)

    def _handle_stop(self, member: _Member, task: TaskRecord, ended: TurnEnded) -> None:
        """The agent stopped without Complete or Escalate: send a reminder later, or give up."""
        if ended.reason == "aborted":
            return
        if ended.steps > 1:
            member.reminders = 0
        if ended.reason == "interrupted":
            mail = self._write_report(member, task, "The user interrupted it. Notify continues it.", "blocked")
            # What the user has stopped starts no turn of its owner.
            self._change(member, task, "idle", reason="The user interrupted it.", mail=mail, wakes=False)
        elif ended.reason != "end_turn":
            why = f"It stopped early ({ended.reason}): {ended.error}".strip()
            self._fail(member, task, why)
        elif member.reminders >= self.limits.reminders:
            self._fail(
                member, task, f"It stopped without Complete and ignored {member.reminders} reminders.", ended.text
            )
        else:
            self._change(member, task, "idle", summary=ended.text, stall="It stopped without calling Complete.")
            own = self.maker.get_idle_time(member.spec.type)
            delay = self.limits.idle_s if own is None else own
            member.timer = asyncio.get_running_loop().call_later(delay, self._send_reminder, member)

    def _send_reminder(self, member: _Member) -> None:
        member.timer = None
        self._check_end()
        if member.agent.is_busy or member.spec.name not in self._members:
            return
        member.reminders += 1
        self._set_running(member)
        member.agent.notify(Prompt(f"{member.spec.name}-reminder-{member.reminders}", REMINDER, source="mail"))
        if not member.agent.is_busy and (task := self.find_task(member.spec.name)) is not None:
            self._fail(member, task, "It stopped without Complete too often.")

    def _settle_completion(self, member: _Member, task: TaskRecord) -> None:
        """End the task, or wait for the joined tasks that the agent has delegated itself."""
        completion = member.completion
        assert completion is not None
        open_tasks = [child for child in self._list_children(task) if child.joined and self.is_staffed(child)]
        if open_tasks:
            if task.state != "waiting_descendant":
                waits = f"It waits for {join_some((child.id for child in open_tasks), _MAX_NAMED)}."
                self._change(member, task, "waiting_descendant", summary=completion.summary, reason=waits)
            return
        if task.isolation:
            self._end_later(self._complete_isolated(member, task, completion))
        else:
            self._complete(member, task, completion, completion.describe())

    async def _complete_isolated(self, member: _Member, task: TaskRecord, completion: TaskReport) -> None:
        """Complete a task with a worktree, unless it was cancelled or its agent got mail in the meantime."""
        try:
            work, files = await self.maker.report_work(task)
        except OdinError as error:
            work, files = f"Its worktree could not be compared with the project: {error.describe()}", ()
        name = member.spec.name
        task = self.find_task(name) or task
        has_changed = task.is_ended or member.completion is not completion
        if name in self._members and not (has_changed or member.agent.is_busy or self.router.should_wake(name)):
            completion = replace(completion, files_changed=files)
            self._complete(member, task, completion, f"{completion.describe()}\n{work}")

    def _complete(self, member: _Member, task: TaskRecord, completion: TaskReport, text: str) -> None:
        mail = self._write_report(member, task, text, "completed")
        self._change(
            member, task, "completed", summary=completion.summary, reason="Completed.", completion=completion, mail=mail
        )
        self._finish(member, "end_turn", completion.summary)

    def _fail(self, member: _Member, task: TaskRecord, why: str, said: str = "") -> None:
        text = f"{why}\nIt said last: {said}" if said else why
        mail = self._write_report(member, task, f"The task failed. {text}", "blocked", urgent=True)
        self._change(member, task, "failed", reason=why, mail=mail)
        self._finish(member, "error", why)

    def _write_report(
        self, member: _Member, task: TaskRecord, text: str, kind: MailKind, *, urgent: bool = False
    ) -> MailSent:
        return self.router.write(
            member.spec.name,
            self._find_owner(task),
            kind,
            text,
            task_id=task.id,
            priority="urgent" if urgent else "notify",
        )

    def _change(
        self,
        member: _Member,
        task: TaskRecord,
        state: TaskState,
        *,
        summary: str = "",
        reason: str = "",
        stall: str = "",
        completion: TaskReport | None = None,
        mail: MailSent | None = None,
        wakes: bool = True,
    ) -> None:
        changed = TaskChanged(task.id, state, member.spec.name, summary, reason, stall, completion, mail)
        self._recorder.emit(changed, member.spec.name)
        if mail is not None:
            self.router.announce(mail, wakes=wakes)

    def _finish(self, member: _Member, reason: ExitReason, text: str) -> None:
        """End an agent whose task has ended, and its owner's task if that was waiting only for this one."""
        self._remove(member, reason, text)
        self._end_later(self._settle_owner(member))

    async def _settle_owner(self, member: _Member) -> None:
        await member.agent.stop()
        owner = self._members.get(member.spec.owner)
        task = None if owner is None else self.find_task(member.spec.owner)
        if owner is None or task is None or task.state != "waiting_descendant":
            return
        if not owner.agent.is_busy and not self.router.should_wake(member.spec.owner):
            self._settle_completion(owner, task)

    def _end_later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._forget_ending)

    def _forget_ending(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        self._check_end()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, AgentShutdown):
            self._recorder.emit(Warned(f"Cannot clean up after a sub-agent: {error}"))

    def _find_owner(self, task: TaskRecord) -> str:
        """Return the agent that mail about this task goes to: its owner, or the nearest above that is live."""
        tasks = self._recorder.state.board.tasks
        while (above := tasks.get(task.owner_task)) is not None and above.agent not in self._members:
            task = above
        return above.agent if above is not None else ""

    def _list_children(self, task: TaskRecord) -> list[TaskRecord]:
        return self._recorder.state.board.list_children(task.agent, task.id)

    # --- for the delegation of tasks ---

    def set_completion(self, agent: str, completion: TaskReport) -> None:
        """Remember what the agent says about its finished task. The task ends with the agent's turn."""
        member = self._require_member(agent)
        self._forget_outcome(member, bool(member.question))
        member.completion = completion

    def set_question(self, agent: str, question: str) -> None:
        """Remember the agent's question to its owner. It is sent when the agent's turn ends."""
        member = self._require_member(agent)
        self._forget_outcome(member, member.completion is not None)
        member.question = question

    def _forget_outcome(self, member: _Member, has_said_other: bool) -> None:
        """Forget an earlier Complete or Escalate; raise UsageError if the other was called in this turn."""
        before, member.said_in = member.said_in, self._recorder.state.open_work.turns.get(member.spec.name, "")
        member.completion, member.question = None, ""
        if has_said_other and before == member.said_in:
            raise UsageError("Complete and Escalate exclude each other.", "Call only one of them.")

    def _require_member(self, agent: str) -> _Member:
        member = self._members.get(agent)
        if member is None or not member.spec.task_id:
            raise UsageError("Only a sub-agent with a delegated task can do this.", "Answer with text instead.")
        member.reminders = 0
        return member

    def report(self, task: TaskRecord, agent: str, text: str, kind: MailKind, priority: MailPriority) -> None:
        """Send what an agent reports while it works to its owner."""
        mail = self.router.write(agent, self._find_owner(task), kind, text, task_id=task.id, priority=priority)
        self.router.send(mail)

    def write_to(self, task: TaskRecord, mail: MailSent) -> None:
        """Send mail to the live agent of this task."""
        self.router.send(mail)
        self.mark_active(task.agent)

    async def cancel_task(self, task: TaskRecord, reason: str, said: str = "") -> None:
        """Stop the agent of this task and those of the tasks below it. The task can not be continued.

        `said` tells its owner who ended it, if that was not the owner itself.
        """
        for child in self._list_children(task):
            if not child.is_ended:
                await self.cancel_task(child, reason)
        await self._end_task(task, "cancelled", reason, said)

    async def cancel(self, op: CancelTask) -> bool:
        """Cancel a task for the user. False if it has ended already."""
        tasks = self._recorder.state.board.tasks
        task = tasks.get(op.task_id)
        if task is None:
            names = join_some(tasks, _MAX_NAMED)
            hint = f"Tasks of this session: {names}." if names else "No task was delegated in this session."
            raise UsageError(f"There is no task {op.task_id!r}.", hint)
        if not task.is_ended:
            said = _describe_end("The user cancelled it", op.reason)
            await self.cancel_task(task, op.reason or said, said)
        return not task.is_ended  # `task` is the record from before

    async def close_agent(self, name: str, reason: str = "") -> None:
        """End a live sub-agent. Its task stays and can be continued. An agent without a task is only interrupted."""
        if not name:
            raise UsageError("The main agent cannot be closed.", "Name a sub-agent.")
        task = self.find_task(name)
        if task is None:
            self.get(name).interrupt("drop")
            return
        said = _describe_end("The user closed its agent; Notify continues it", reason)
        await self._end_task(task, "idle", reason or "The user closed it.", said)

    async def _end_task(self, task: TaskRecord, state: TaskState, reason: str, said: str) -> None:
        member, owner = self._members.get(task.agent), self._find_owner(task)
        mail = self.router.write(task.agent, owner, "blocked", said, task_id=task.id) if said else None
        self._recorder.emit(TaskChanged(task.id, state, reason=reason, mail=mail), task.agent)
        if member is not None:
            self._stop_timer(member)
            self._stopping += 1
            try:
                await member.agent.stop(reason)
                self._remove(member, "interrupted", reason)
            finally:
                self._stopping -= 1
                self._check_end()
        if mail is not None:
            self.router.announce(mail)

    async def stop_delegated(self, reason: str) -> bool:
        """Cancel every task that a live agent works on. Idle ones stay, without a reminder. False if there is none."""
        tasks: list[TaskRecord] = []
        for member in tuple(self._members.values()):
            self._stop_timer(member)
            task = self.find_task(member.spec.name)
            if task is not None and not task.is_ended and task.state != "idle":
                tasks.append(task)
        for task in tasks:
            current = self._recorder.state.board.tasks[task.id]
            if not current.is_ended:
                await self.cancel_task(current, reason)
        return bool(tasks)

    async def close(self) -> None:
        """Stop all sub-agents because the session is closed. Their tasks can be continued in the next run."""
        self.router.close()
        for member in tuple(self._members.values()):
            self._stop_timer(member)
            if member.done is None:
                await member.agent.stop()
                try:
                    self._remove(member, "aborted", "")
                except AgentShutdown:
                    break
        if self._ending:
            await asyncio.wait(self._ending)


def _describe_end(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else f"{what}."
