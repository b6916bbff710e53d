"""Delegated tasks as one agent sees them: it gives out tasks, writes to their agents, and ends its own task.

Only the direct owner of a task may write to it or cancel it. Refusals are answers the model can act on: a status such
as `scope_conflict` with a sentence, or a UsageError.
"""

import asyncio
from typing import Protocol

from msgspec.structs import replace

from odin.core.errors import UsageError
from odin.core.event_values import Mode, get_strictest_mode
from odin.core.op import Prompt
from odin.core.team import (
    AgentSpec,
    DelegationLimits,
    MailPriority,
    MailSent,
    ReportKind,
    TaskChanged,
    TaskCreated,
    TaskHandle,
    TaskRecord,
    TaskReport,
    TaskRequest,
)
from odin.core.text import join_some
from odin.core.write_scope import WriteScope
from odin.engine.recorder import Recorder
from odin.engine.team import Team
from odin.policy.write_scope import parse_write_scope

_MAX_NAMED = 10

_REPORT_PRIORITIES: dict[ReportKind, MailPriority] = {
    "progress": "notify",
    "blocked": "urgent",
    "decision_required": "urgent",
    "risk_alert": "urgent",
    "direction_change_request": "urgent",
}


class AgentTypes(Protocol):
    """The types of sub-agents."""

    def describe_types(self) -> str: ...

    def check_type(self, name: str) -> str:
        """Return the name of the type; "" is the default type. Raise UsageError that lists the types."""
        ...

    def get_write_scope(self, name: str) -> WriteScope:
        """Return what agents of this type may change. Raise UsageError if the type's own scope is invalid."""
        ...

    def get_isolation(self, name: str) -> str:
        """Return `worktree` if agents of this type work in a worktree of their own, else ""."""
        ...

    def get_delegation_limits(self, agent: str) -> DelegationLimits:
        """Return how this agent may delegate."""
        ...


class DelegationService:
    """Delegation for one agent (see `core.team.Delegation`) in the project at `root`."""

    def __init__(self, team: Team, recorder: Recorder, agent: str, types: AgentTypes, root: str) -> None:
        self._team = team
        self._recorder = recorder
        self._agent = agent
        self._types = types
        self._root = root

    def describe_types(self) -> str:
        return self._types.describe_types()

    # --- as an owner ---

    def can_delegate(self) -> bool:
        limits = self._types.get_delegation_limits(self._agent)
        return self._team.get_depth(self._agent) < limits.max_depth and bool(self._types.describe_types())

    async def delegate(self, request: TaskRequest) -> TaskHandle:
        """Start a sub-agent for a new task and return at once."""
        if not request.description.strip():
            raise UsageError("The task has no description.", "Say what the sub-agent should do and report.")
        kind = self._types.check_type(request.type)
        # The write scope of a new task: what was asked for, within that of its type and of this agent.
        asked = parse_write_scope(
            self._root,
            files=request.files,
            path_prefixes=request.path_prefixes,
            modules=request.modules,
            read_only=request.read_only,
        )
        own = self._team.find_task(self._agent)
        limits = [self._types.get_write_scope(kind), *([own.scope] if own is not None else [])]
        scope = asked
        for limit in limits:
            scope = scope.restrict_to(limit)
        if scope.read_only and not any(item.read_only for item in (asked, *limits)):
            allowed = " and ".join(dict.fromkeys(item.describe() for item in limits if item.is_limited))
            hint = "Name files in it, leave the write scope out, or use another type."
            raise UsageError(f"Its write scope has nothing in common with what it may change: {allowed}.", hint)
        if (refusal := self._find_refusal(scope, request.key)) is not None:
            return refusal
        own = self._team.find_task(self._agent)
        number = self._recorder.state.board.task_count + 1
        created = TaskCreated(
            f"adhoc-{number}",
            kind,
            request.description,
            request.mode,
            owner=self._agent,
            owner_task=own.id if own is not None else "",
            call_id=request.call_id,
            plan_task=request.plan_task,
            key=request.key,
            scope=scope,
            depth=self._team.get_depth(self._agent) + 1,
            joined=self._types.get_delegation_limits(self._agent).child_join,
            isolation=self._types.get_isolation(kind),
        )
        self._recorder.emit(created, self._agent)
        task = self._recorder.state.board.tasks[created.id]
        agent = await self._start_agent(task, request.description, request.mode)
        return TaskHandle("running", created.id, agent, "Its result arrives later as mail. Go on with other work.")

    def _find_refusal(self, scope: WriteScope, key: str, task: TaskRecord | None = None) -> TaskHandle | None:
        """Return why a new task, or one that is continued, may not start now."""
        task_id = task.id if task is not None else ""
        if task is None and not self.can_delegate():
            return TaskHandle("depth_limit_reached", message="Agents of this depth may not delegate. Do it yourself.")
        if (refusal := self._find_agent_limit(task_id)) is not None:
            return refusal
        most = self._types.get_delegation_limits(self._agent).max_children
        others = [other for other in self._list_own_tasks() if not other.is_ended and other.id != task_id]
        if len(others) >= most:
            count = "1 open task" if most == 1 else f"{most or 'no'} open tasks"
            why = f"You may have {count} at a time. " + ("Wait for one, or cancel one." if most else "Do it yourself.")
            return TaskHandle("child_limit_reached", task_id, message=why)
        return self._find_conflict(scope, key, task_id)

    def _find_agent_limit(self, task_id: str) -> TaskHandle | None:
        most = self._team.limits.agents
        if self._team.count_running() < most:
            return None
        agents = "1 agent is" if most == 1 else f"{most} agents are"
        why = f"{agents} running. Wait until one of them is done."
        return TaskHandle("agent_limit_reached", task_id, message=why)

    def _find_conflict(self, scope: WriteScope, key: str, task_id: str) -> TaskHandle | None:
        """Return which other open task has this key, or has an agent that may change the same files.

        The tasks above this agent share their scopes with it.
        """
        above = self._list_above()
        for task in self._recorder.state.board.tasks.values():
            if task.is_ended or task.id == task_id:
                continue
            if key and task.key == key:
                return TaskHandle(
                    "already_exists", task.id, task.agent, f"{task.id} does this already. Use Notify to change it."
                )
            if task.id not in above and self._team.is_staffed(task) and task.scope.conflicts_with(scope):
                return TaskHandle(
                    "scope_conflict",
                    task.id,
                    task.agent,
                    f"{task.id} may change the same files. Wait for it, or narrow the write scope.",
                )
        return None

    def _list_above(self) -> set[str]:
        """Return the ids of the task of this agent and of its owners."""
        tasks, task = self._recorder.state.board.tasks, self._team.find_task(self._agent)
        above: set[str] = set()
        while task is not None and task.id not in above:
            above.add(task.id)
            task = tasks.get(task.owner_task)
        return above

    def has_tasks(self) -> bool:
        return bool(self._list_own_tasks())

    async def notify(self, task_id: str, message: str, mode: Mode) -> TaskHandle:
        _require_text(message)
        task = self._get_own_task(task_id)
        if task.state in ("failed", "cancelled"):
            raise UsageError(f"{task.id} is {task.state} and cannot be continued.", "Delegate a new task.")
        async with self._team.continuing:
            task = self._get_own_task(task_id)
            if task.agent not in {agent.name for agent in self._team.list_agents()}:
                return await self._continue_task(task, message, mode)
        if task.state == "waiting_main" and (refusal := self._find_agent_limit(task.id)) is not None:
            return refusal
        self._team.write_to(task, self._write(task, task.agent, message, mode))
        said = f"It reads the message with its next request.{_describe_limit(task, mode)}"
        return TaskHandle("running", task.id, task.agent, said)

    async def _continue_task(self, task: TaskRecord, message: str, mode: Mode) -> TaskHandle:
        """Start a new agent that takes over the conversation of the last one."""
        if (refusal := self._find_refusal(task.scope, task.key, task)) is not None:
            return refusal
        text = message if task.agent else f"{task.description}\n\n{message}"
        agent = await self._start_agent(task, text, mode, continues=task.agent)
        return TaskHandle("running", task.id, agent, f"A new agent continues the task.{_describe_limit(task, mode)}")

    async def continue_for_user(self, prompt: Prompt) -> Prompt:
        """Return the prompt for its agent, or for a new one if that has ended and its task has not.

        Raise UsageError if the task may not go on now.
        """
        if not prompt.agent:
            return prompt
        async with self._team.continuing:
            live = {agent.name for agent in self._team.list_agents()}
            tasks = self._recorder.state.board.tasks.values()
            task = next((task for task in tasks if task.agent == prompt.agent and not task.is_ended), None)
            if prompt.agent in live or task is None:
                return prompt
            owner = DelegationService(self._team, self._recorder, task.owner, self._types, self._root)
            refusal = owner._find_agent_limit(task.id) or owner._find_conflict(task.scope, task.key, task.id)
            if refusal is not None:
                raise UsageError(f"{task.id} cannot go on now: {refusal.message}")
            name = await owner._start_agent(task, prompt.text, prompt.mode, task.agent, by_user=True)
        return replace(prompt, agent=name)

    async def cancel(self, task_id: str, reason: str) -> TaskHandle:
        task = self._get_own_task(task_id)
        if task.is_ended:
            return TaskHandle(task.state, task.id, task.agent, f"{task.id} had already ended.")
        await self._team.cancel_task(task, reason or "Its owner cancelled it.")
        return TaskHandle("cancelled", task.id, task.agent)

    def has_worktrees(self) -> bool:
        return any(task.isolation for task in self._list_own_tasks())

    def find_apply_problem(self, task_id: str) -> str:
        try:
            task = self._get_own_task(task_id)
        except UsageError as error:
            return error.describe()
        if not task.isolation:
            return f"{task.id} has no worktree: its changes are in the project already."
        if task.state != "completed":
            return f"{task.id} is {task.state.replace('_', ' ')}. Only the work of a completed task can be applied."
        return "" if self._team.maker.list_work(task) else f"{task.id} has changed no files in its worktree."

    def list_work(self, task_id: str) -> tuple[str, ...]:
        return () if self.find_apply_problem(task_id) else self._team.maker.list_work(self._get_own_task(task_id))

    async def preview_work(self, task_id: str) -> str:
        return await self._team.maker.preview_work(self._get_own_task(task_id))

    async def apply_work(self, task_id: str) -> str:
        return await self._team.maker.apply_work(self._get_own_task(task_id))

    async def _start_agent(
        self, task: TaskRecord, message: str, mode: Mode, continues: str = "", *, by_user: bool = False
    ) -> str:
        """Start an agent for the task. It gets the message as mail, unless the user sends it as a prompt."""
        name = self._team.make_name(task.type)
        spec = AgentSpec(
            name,
            message,
            get_strictest_mode(task.mode, mode),
            task.description,
            task.type,
            task.id,
            task.owner,
            task.call_id,
            task.depth,
            task.scope,
            task.isolation,
            continues,
        )
        try:
            await self._team.start(spec)
        except BaseException as error:
            if not continues and not self._is_over(task):
                cancelled = isinstance(error, asyncio.CancelledError)
                why = "It was interrupted before it started." if cancelled else f"Its agent could not start: {error}"
                self._recorder.emit(TaskChanged(task.id, "cancelled" if cancelled else "failed", reason=why), "")
            raise
        if self._is_over(task):
            await self._team.dismiss(name, "Its task was cancelled before it started.")
            raise UsageError(f"{task.id} was cancelled before its agent started.")
        mail = None if by_user else self._write(task, name, message, mode)
        self._recorder.emit(TaskChanged(task.id, "running", name, mail=mail), name)
        if mail is not None:
            self._team.router.announce(mail)
        return name

    def _is_over(self, task: TaskRecord) -> bool:
        """True if the task has failed or was cancelled in the meantime."""
        return self._recorder.state.board.tasks[task.id].resume_policy == "never"

    def _write(self, task: TaskRecord, recipient: str, message: str, mode: Mode) -> MailSent:
        return self._team.router.write(
            self._agent,
            recipient,
            "message",
            message,
            task_id=task.id,
            priority="urgent",
            in_reply_to=task.last_mail if task.state == "waiting_main" else "",
            mode=get_strictest_mode(task.mode, mode),
        )

    def _list_own_tasks(self) -> list[TaskRecord]:
        own = self._team.find_task(self._agent)
        return self._recorder.state.board.list_owned(self._agent, own.id if own is not None else "")

    def _get_own_task(self, task_id: str) -> TaskRecord:
        task = self._recorder.state.board.tasks.get(task_id)
        own = self._list_own_tasks()
        if task is not None and any(item.id == task.id for item in own):
            return task
        names = join_some((item.id for item in own), _MAX_NAMED)
        hint = f"Your tasks: {names}." if names else "You have no tasks."
        if task is None:
            raise UsageError(f"There is no task {task_id!r}.", hint)
        raise UsageError(f"{task_id} belongs to {task.owner or 'the main agent'}; only its owner may do this.", hint)

    # --- as a sub-agent ---

    def report(self, message: str, kind: ReportKind) -> TaskHandle:
        _require_text(message)
        task = self._team.find_task(self._agent)
        if task is None:
            raise UsageError("You have no delegated task to report about.", "Answer with text instead.")
        self._team.report(task, self._agent, message, kind, _REPORT_PRIORITIES[kind])
        return TaskHandle(task.state, task.id, self._agent, "Your owner gets the message.")

    def complete(self, completion: TaskReport) -> TaskHandle:
        if not completion.summary.strip():
            raise UsageError("Complete needs a summary.", "Say what was done.")
        self._team.set_completion(self._agent, completion)
        return TaskHandle("completed", self._own_task_id)

    def ask_owner(self, question: str) -> TaskHandle:
        if not question.strip():
            raise UsageError("Escalate needs a question.", "Say what your owner should decide.")
        self._team.set_question(self._agent, question)
        return TaskHandle("waiting_main", self._own_task_id, message="Your owner's answer continues your work.")

    @property
    def _own_task_id(self) -> str:
        task = self._team.find_task(self._agent)
        return task.id if task is not None else ""


def _require_text(message: str) -> None:
    if not message.strip():
        raise UsageError("The message is empty.", "Write what the other agent should know.")


def _describe_limit(task: TaskRecord, mode: Mode) -> str:
    """Return that the task goes on in a stricter mode than its own, or ""."""
    strictest = get_strictest_mode(task.mode, mode)
    return "" if strictest == task.mode else f" It works on it in {strictest}, as this turn does."
