"""A session in this process, as front ends see it: the implementation of `core.client.Client`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from odin.core.call_events import ActivityChanged
from odin.core.client import (
    AgentSummary,
    AvailableModel,
    ContextReport,
    CustomCommand,
    LoopStatus,
    MemoryFile,
    RewindPlan,
    ServerScope,
    SessionInfo,
    Snapshot,
)
from odin.core.errors import AgentShutdown, EmptyPrompt, UsageError
from odin.core.event import (
    AnyEvent,
    ContextAdded,
    Envelope,
    ModelChanged,
    SessionOpened,
    SessionSwitched,
)
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.op import (
    AddContext,
    AnswerPermission,
    AnswerPlan,
    AnswerQuestions,
    CancelCompaction,
    CancelTask,
    ChangeMemory,
    ChangePrompt,
    CloseAgent,
    Compact,
    Continue,
    ControlServers,
    DropPrompt,
    Interrupt,
    LanguageServerAction,
    Op,
    Prompt,
    Redo,
    Rewind,
    RunUserShell,
)
from odin.core.policy import CallbackHook, Redact, RuleLine, ServerExchange
from odin.core.text import to_valid_unicode_all
from odin.core.tool import Tool
from odin.engine.approvals import Approvals, RuleChanges
from odin.engine.event_bus import replay_log, stream_named, validate_names
from odin.engine.hooks import TurnHooks
from odin.engine.limits import CostBudget
from odin.engine.prompts import Attachments, CommandExpander, NoAttachments
from odin.engine.recorder import Recorder
from odin.engine.team import Team
from odin.engine.user_shell import UserShell
from odin.sandbox.background import BackgroundProcesses

if TYPE_CHECKING:
    from odin.engine.crash_recovery import DanglingEvents
    from odin.engine.loop_mode import LoopMode
    from odin.engine.session_ops import SessionOps


MAX_TEMPERATURE = 2.0


class Checkpoints(Protocol):
    """Saved states of files."""

    async def recover(self) -> None: ...

    async def record_background(self) -> None: ...

    async def rewind_or_redo(self, op: Rewind | Redo) -> None: ...

    async def plan(self, op: Rewind) -> RewindPlan: ...


class ManualCompaction(Protocol):
    """Summaries of the conversation that the user asks for."""

    async def compact(self, op: Compact) -> bool: ...

    def cancel(self, agent: str = "") -> bool: ...

    async def close(self) -> None: ...


class ClientDeps(Struct, frozen=True):
    """The engine's parts of one session."""

    team: Team
    recorder: Recorder
    approvals: Approvals
    rules: RuleChanges
    hooks: TurnHooks
    redact: Redact
    budget: CostBudget
    compaction: ManualCompaction
    checkpoints: Checkpoints
    background: BackgroundProcesses
    user_shell: UserShell
    expander: CommandExpander
    set_effort: Callable[[str, str], AnyEvent]
    attachments: Attachments = NoAttachments()


class SessionHost(Protocol):
    """What the application that composed the session provides for it."""

    def read_past(self) -> Iterator[Envelope]:
        """Yield the events of the session's log from its start."""
        ...

    def describe_session(self) -> SessionInfo: ...

    def get_default_mode(self) -> Mode: ...

    def report_context(self) -> ContextReport: ...

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]: ...

    async def find_files(self, words: str, limit: int) -> tuple[str, ...]: ...

    async def set_model(self, name: str, *, check: bool, agent: str = "") -> ModelChanged:
        """Switch an agent to a model or a pool. With `check`, first find out whether it exists."""
        ...

    def set_permission_mode(self, mode: str) -> str:
        """Switch the permission mode and return its full name."""
        ...

    def set_system_prompt(self, text: str | None, agent: str = "") -> None:
        """Replace the main text of an agent's system prompt; None restores it."""
        ...

    def set_tools(self, names: Collection[str] | None, agent: str = "") -> tuple[str, ...] | None:
        """Offer an agent only these tools, or the usual ones again. Return their full names. Raise UsageError."""
        ...

    def add_tools(self, tools: Sequence[Tool[Any]], agent: str = "") -> None:
        """Add tools to those of an agent, in place of those that have the same name."""
        ...

    async def set_role(self, name: str) -> tuple[str, ModelChanged | None]:
        """Switch the role. Return its full name and the model, None if that stays; ("", None) if nothing changed."""
        ...

    def define_agents(self, agents: dict[str, Any]) -> tuple[str, ...]:
        """Add agent definitions and return the mistakes in them."""
        ...

    def list_agents(self) -> tuple[AgentSummary, ...]: ...

    def set_skills(self, names: Collection[str] | None) -> tuple[str, ...]:
        """Offer only these skills, or all of them. Return the names of those that do not exist."""
        ...

    async def change_memory(self, op: ChangeMemory) -> str:
        """Change the memory as the user asks and return a sentence about it."""
        ...

    async def read_memory(self) -> tuple[MemoryFile, ...]: ...

    def add_hook(self, hook: CallbackHook) -> None: ...

    def add_server(self, name: str, exchange: ServerExchange) -> None: ...

    async def control_servers(self, op: ControlServers) -> tuple[str, ...]:
        """Carry out an op on MCP servers and return those that were enabled or disabled."""
        ...

    async def refresh_surroundings(self) -> None:
        """Called before a prompt starts: bring the git status and the like up to date."""
        ...

    def make_loop_mode(self, agent: str) -> "LoopMode":
        """Make the loop mode of an agent; its model is offered the Done tool while it is on."""
        ...

    def switch_language_server(self, name: str, action: LanguageServerAction) -> bool:
        """Restart, disable or enable a language server, or all. Raise UsageError for an unknown name."""
        ...

    async def close(self) -> None:
        """Release everything the session does not own. The session is closed already."""
        ...


class SessionStart:
    """The start of a run, which its first op records. A session in which nothing was asked leaves no log.

    `opened` is None from then on. `lock` is held by every op that starts work, or that no work may start during.
    """

    def __init__(self, deps: ClientDeps, opened: SessionOpened) -> None:
        self.opened: SessionOpened | None = opened
        self.lock = asyncio.Lock()
        self._team = deps.team
        self._recorder = deps.recorder
        self._checkpoints = deps.checkpoints
        self._dangling: DanglingEvents | None = None

    def open(self) -> None:
        """Record the start of this run, and the end of everything a killed process left open."""
        if self.opened is not None:
            if self._recorder.state.open_work:
                from odin.engine.crash_recovery import find_dangling

                self._dangling = find_dangling(self._recorder.state)
            self._recorder.emit(self.opened)
            self.opened = None
            if note := self._recorder.state.board.describe_left():
                self._team.main.add_note(note)
            for event, agent in self._dangling.events if self._dangling else ():
                self._recorder.emit(event, agent, past=True)

    async def recover(self) -> None:
        """Record the file changes of calls that were cut off; after a crash, tell the model."""
        changes = self._recorder.state.file_history
        mark = changes.mark()
        await self._checkpoints.recover()
        if self._dangling is not None:
            note = self._dangling.describe(tuple(change.change for change in changes.list_since(mark)))
            self._dangling = None
            if note:
                self._team.main.add_note(note)


class LocalClient:
    """`opened` is recorded with the first op."""

    def __init__(self, deps: ClientDeps, host: SessionHost, opened: SessionOpened) -> None:
        self._deps = deps
        self._host = host
        self._team = deps.team
        self._agent = deps.team.main
        self._recorder = deps.recorder
        self._user_shell = deps.user_shell
        self._start = SessionStart(deps, opened)
        self._session_ops: SessionOps | None = None
        self._closing: asyncio.Task[None] | None = None
        self._noted_role = deps.recorder.state.role

    # --- ops: each handler returns False if the op had nothing to act on ---

    async def submit(self, op: Op) -> bool:
        if self._closing is not None and not isinstance(op, _ALLOWED_WHILE_CLOSING):
            raise AgentShutdown
        op = _make_op_encodable(op)
        if (handler := _OP_HANDLERS.get(type(op))) is not None:
            return await handler(self, op)
        if self._session_ops is None:
            from odin.engine.session_ops import SessionOps

            self._session_ops = SessionOps(self._deps, self._host, self._start)
        return await self._session_ops.handle(op)

    async def _submit_prompt(self, op: Prompt) -> bool:
        async with self._start.lock:
            if not op.text.strip() and not op.attachments:
                raise EmptyPrompt
            if op.temperature is not None and not 0 <= op.temperature <= MAX_TEMPERATURE:
                raise UsageError(f"The temperature must be from 0 to {MAX_TEMPERATURE:g}, not {op.temperature:g}.")
            if op.max_tokens < 0:
                raise UsageError(f"max_tokens must be positive, not {op.max_tokens}.")
            prompt = await self._deps.expander.expand(op.id, op.text, op.display_text)
            op = msgspec.structs.replace(op, text=prompt.text, display_text=prompt.display_text)
            op = await self._deps.attachments.accept(op)
            self._start.open()
            await self._start.recover()
            await self._host.refresh_surroundings()
            if not op.agent:
                # Tell the model with the next prompt that the role has changed.
                state = self._recorder.state
                if state.role != self._noted_role and state.conversation.turns:
                    self._agent.add_note(f"The role is now {state.role}.")
                self._noted_role = state.role
            self._team.submit(op)
            if prompt.skill is not None:
                self._recorder.emit(prompt.skill, op.agent)
        return True

    async def _change_prompt(self, op: ChangePrompt) -> bool:
        if not self._recorder.state.queue:
            return False
        async with self._start.lock:
            skill = None
            if op.text is not None:
                prompt = await self._deps.expander.expand(op.id, op.text, op.display_text)
                op = msgspec.structs.replace(op, text=prompt.text, display_text=prompt.display_text)
                skill = prompt.skill
            # A changed prompt may mention other files.
            known = next((item for item in self._recorder.state.queue if item.id == op.id), None)
            if known is not None and (op.text is not None or op.attachments is not None):
                attached = known.attachments if op.attachments is None else op.attachments
                text = (known.text or known.body) if op.text is None else op.text
                shown = (known.body if known.text else "") if op.text is None else op.display_text
                prompt = Prompt(op.id, text, attachments=attached, display_text=shown)
                accepted = await self._deps.attachments.accept(prompt)
                op = msgspec.structs.replace(op, attachments=accepted.attachments)
            self._start.open()
            await self._start.recover()
            is_changed = self._team.get(op.agent).change_prompt(op)
            if is_changed and skill is not None:
                self._recorder.emit(skill, op.agent)
            return is_changed

    async def _drop_prompt(self, op: DropPrompt) -> bool:
        if self._recorder.state.queue:
            self._start.open()
        return self._team.get(op.agent).drop_prompt(op.id)

    async def _continue(self, op: Continue) -> bool:
        async with self._start.lock:
            self._start.open()
            await self._start.recover()
            self._team.get(op.agent).continue_turn(op)
            self._team.mark_active(op.agent)
        return True

    async def _interrupt(self, op: Interrupt) -> bool:
        """Stop one agent; for the main agent all of them, with their tasks."""
        if op.agent:
            return self._team.get(op.agent).interrupt(op.queue) | self._user_shell.interrupt(op.agent)
        stopped = self._user_shell.interrupt(alone=op.alone) | self._deps.expander.interrupt()
        interrupted = self._agent.interrupt(op.queue)
        cancelled = not op.alone and await self._team.stop_delegated("You interrupted the main agent.")
        return interrupted or cancelled or stopped

    async def _cancel_task(self, op: CancelTask) -> bool:
        if op.task_id in self._recorder.state.board.tasks:
            self._start.open()
        return await self._team.cancel(op)

    async def _close_agent(self, op: CloseAgent) -> bool:
        await self._team.close_agent(op.agent, op.reason)
        return True

    async def _add_context(self, op: AddContext) -> bool:
        self._start.open()
        added = ContextAdded(self._deps.redact(op.content).text, op.path, op.command)
        self._team.get(op.agent).add_context(added)
        return True

    async def _run_user_shell(self, op: RunUserShell) -> bool:
        self._user_shell.start_command(op)
        self._start.open()
        return True

    async def _cancel_compaction(self, op: CancelCompaction) -> bool:
        return self._deps.compaction.cancel(op.agent)

    async def _answer_permission(self, op: AnswerPermission) -> bool:
        """Give the answer; one with which the user stops the turn also pauses the queue, as an interrupt does.

        It is the queue of the agent that asked; AgentTool's sub-agent belongs to the turn that waits for it.
        """
        agent = self._deps.approvals.find_asking(op.ask_id)
        if not self._deps.approvals.answer(op):
            return False
        if op.interrupt and op.by == "user":
            self._team.get(agent if self._team.find_task(agent) is not None else "").pause_queue()
        return True

    async def _answer_questions(self, op: AnswerQuestions) -> bool:
        return self._deps.approvals.answer_questions(op)

    async def _answer_plan(self, op: AnswerPlan) -> bool:
        return self._deps.approvals.answer_plan(op)

    def record_switch(self, event: SessionSwitched) -> None:
        """Publish that the front end leaves one session for another; this one is either of them."""
        self._recorder.emit(event)

    # --- streams ---

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        live = self._recorder.bus.subscribe(durable=True, size=1024, whole=after is not None)
        seq = self._recorder.state.seq
        if after is None or after >= seq:
            return live
        return replay_log(self._host.read_past(), after, seq, live)

    def stream_named_events(self, names: Collection[str] = ()) -> AsyncIterator[tuple[str, Envelope]]:
        return stream_named(self._recorder.bus.subscribe(durable=True, size=1024, names=validate_names(names)))

    async def stream_snapshots(self) -> AsyncIterator[Snapshot]:
        changes = self._recorder.bus.subscribe(size=1)
        try:
            yield self._take_snapshot()
            seen = self._recorder.state.seq
            async for _ in changes:
                if self._recorder.state.seq != seen:
                    seen = self._recorder.state.seq
                    yield self._take_snapshot()
        finally:
            changes.close()

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        self._recorder.bus.observe_activity(observer)

    # --- queries ---

    async def snapshot(self) -> Snapshot:
        return self._take_snapshot()

    def _take_snapshot(self) -> Snapshot:
        """The state of the log, plus what is not in the log yet: the start of this run, and a prompt just taken."""
        snapshot = self._recorder.state.snapshot()
        if (run := self._start.opened) is not None:
            start = {"cwd": run.cwd, "model": run.model, "permission_mode": run.permission_mode}
            start["role"] = run.role or DEFAULT_ROLE
            snapshot = msgspec.structs.replace(snapshot, **start, sub_agents=())
        paused = self._agent.paused_prompts.union(*(agent.paused_prompts for agent in self._team.list_agents()))
        queue = tuple(
            msgspec.structs.replace(item, paused=True) if item.id in paused else item for item in snapshot.queue
        )
        working = self._team.is_working
        return msgspec.structs.replace(snapshot, executing=self._agent.is_busy, queue=queue, team_working=working)

    def get_default_mode(self) -> Mode:
        """Return the mode of prompts that choose none."""
        return self._host.get_default_mode()

    async def get_info(self) -> SessionInfo:
        return self._host.describe_session()

    async def report_context(self) -> ContextReport:
        return self._host.report_context()

    async def list_rules(self) -> tuple[RuleLine, ...]:
        return self._deps.rules.list_rules()

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        return await self._deps.expander.list_commands()

    async def list_agents(self) -> tuple[AgentSummary, ...]:
        return self._host.list_agents()

    async def read_memory(self) -> tuple[MemoryFile, ...]:
        return await self._host.read_memory()

    async def is_working(self) -> bool:
        return self._team.is_busy

    async def get_loop_status(self, agent: str = "") -> LoopStatus:
        loop = self._session_ops.loop_modes.get(agent) if self._session_ops is not None else None
        return loop.get_status() if loop is not None else self._recorder.state.get_loop(agent).status

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        return await self._host.list_models(servers)

    async def plan_rewind(self, op: Rewind) -> RewindPlan:
        async with self._start.lock:
            return await self._deps.checkpoints.plan(op)

    async def find_files(self, words: str, limit: int = 20) -> tuple[str, ...]:
        return await self._host.find_files(words, limit)

    def add_hook(self, hook: CallbackHook) -> None:
        self._host.add_hook(hook)

    def add_tools(self, tools: Sequence[Tool[Any]], agent: str = "") -> None:
        self._team.get(agent)
        self._host.add_tools(tools, agent)

    def add_server(self, name: str, exchange: ServerExchange) -> None:
        self._host.add_server(name, exchange)

    # --- end ---

    async def close(self, timeout: float | None = None) -> bool:
        if self._closing is None:
            self._closing = asyncio.create_task(self._shut_down())
        done, _ = await asyncio.wait({self._closing}, timeout=timeout)
        if not done:
            return False
        self._closing.result()
        return True

    async def _shut_down(self) -> None:
        self._deps.expander.interrupt()
        async with self._start.lock:  # let a running op finish
            pass
        deps = self._deps
        deps.background.stop_accepting()
        await deps.approvals.close()
        await self._agent.stop()
        await deps.team.close()
        await deps.compaction.close()
        await deps.user_shell.close()
        await deps.background.close()
        await deps.checkpoints.record_background()
        await deps.hooks.end_session()
        deps.recorder.bus.close()
        deps.recorder.close()
        await self._host.close()


_OP_HANDLERS: dict[type[Op], Callable[[LocalClient, Any], Awaitable[bool]]] = {
    Prompt: LocalClient._submit_prompt,
    ChangePrompt: LocalClient._change_prompt,
    DropPrompt: LocalClient._drop_prompt,
    Continue: LocalClient._continue,
    Interrupt: LocalClient._interrupt,
    CancelTask: LocalClient._cancel_task,
    CloseAgent: LocalClient._close_agent,
    AddContext: LocalClient._add_context,
    RunUserShell: LocalClient._run_user_shell,
    CancelCompaction: LocalClient._cancel_compaction,
    AnswerPermission: LocalClient._answer_permission,
    AnswerQuestions: LocalClient._answer_questions,
    AnswerPlan: LocalClient._answer_plan,
}

_ALLOWED_WHILE_CLOSING = (AnswerPermission, AnswerQuestions, AnswerPlan, Interrupt, CancelCompaction)
"""Ops a closing session accepts. They start and record nothing new."""

_VERBATIM_OPS = (AnswerPermission, RunUserShell)
"""Ops that name files, whose bytes need not be valid text. Recording them makes the text valid."""


def _make_op_encodable(op: Op) -> Op:
    """Replace characters that the log and front ends cannot encode, so that all of them see the same text."""
    if isinstance(op, _VERBATIM_OPS):
        return op
    try:
        msgspec.json.encode(op)
    except UnicodeEncodeError:
        return msgspec.convert(to_valid_unicode_all(msgspec.to_builtins(op)), type(op))
    return op
