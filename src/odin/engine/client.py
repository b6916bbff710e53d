"""A session in this process, and its clients: the implementation of `core.client.Client`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from odin.core.call_events import ActivityChanged
from odin.core.client import (
    AgentSummary,
    AvailableModel,
    ContextReport,
    CustomCommand,
    LoopStatus,
    MemoryFile,
    ProcessOutput,
    ProcessRecord,
    RewindPlan,
    ServerScope,
    SessionInfo,
    Snapshot,
)
from odin.core.errors import AgentShutdown, EmptyPrompt, OdinError, UnknownMode, UsageError
from odin.core.event import ContextAdded, Envelope, SessionOpened, SessionSwitched
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.interaction import read_answer
from odin.core.op import (
    AddContext,
    AddSchedule,
    Answer,
    AnswerPermission,
    AnswerPlan,
    AnswerQuestions,
    CancelCompaction,
    CancelTask,
    ChangePrompt,
    CloseAgent,
    Continue,
    DropPrompt,
    Interrupt,
    Op,
    Prompt,
    RemoveSchedule,
    Rewind,
    RunUserShell,
    SetLoop,
    SetMode,
)
from odin.core.policy import CallbackHook, RuleLine, ServerExchange
from odin.core.prompt import copy_prompt
from odin.core.structured_output import check_schema
from odin.core.text import to_valid_unicode, to_valid_unicode_all
from odin.core.tool import Tool
from odin.engine.event_bus import Subscription, replay_log, stream_named, validate_names
from odin.engine.prompts import change_prompt
from odin.engine.session_deps import SessionDeps, SessionStart

if TYPE_CHECKING:
    from odin.engine.controls import FileSearch
    from odin.engine.session_ops import SessionOps
    from odin.engine.session_schedules import SessionSchedules

MAX_TEMPERATURE = 2.0
_OPS_WITH_MODE = Prompt, ChangePrompt, Continue, SetLoop, AddSchedule, SetMode


class OpenSession:
    """A session in this process. It carries out the ops of its clients. `opened` is recorded with the first op.

    `log` is the path of its log. It is closed with its last client, unless `is_kept`; guests do not count. `finish` is
    awaited when everything is recorded, before `on_closed` is called.
    """

    def __init__(self, deps: SessionDeps, opened: SessionOpened, log: str) -> None:
        self.deps = deps
        self.log = log
        self.clients: set[LocalClient] = set()
        self.is_kept = False
        self.on_closed: Callable[[], object] = lambda: None
        self.finish: Callable[[], Awaitable[object]] | None = None
        self._deps = deps
        self._team = deps.team
        self._agent = deps.team.main
        self._recorder = deps.recorder
        self._user_shell = deps.user_shell
        self._start = SessionStart(deps, opened)
        self._session_ops: SessionOps | None = None
        self._closing: asyncio.Task[None] | None = None
        self._noted_role = deps.recorder.state.role
        self._schedules: SessionSchedules | None = None
        if deps.recorder.state.schedules:
            self._get_schedules().start()

    @property
    def id(self) -> str:
        return self._recorder.state.session

    @property
    def is_closing(self) -> bool:
        return self._closing is not None

    def attach(self, *, answers: bool = True, guest: bool = False) -> "LocalClient":
        """Return a new client. Only one that `answers` may answer interactions; a guest does not keep it open."""
        if self._closing is not None:
            raise AgentShutdown
        client = LocalClient(self, answers=answers)
        if not guest:
            self.clients.add(client)
        return client

    # --- ops: each handler returns False if the op had nothing to act on ---

    async def submit(self, op: Op) -> bool:
        if self._closing is not None and not isinstance(op, _ALLOWED_WHILE_CLOSING):
            raise AgentShutdown
        if isinstance(op, _OPS_WITH_MODE) and op.mode not in (None, *get_args(Mode)):
            raise UnknownMode(str(op.mode))
        op = _make_op_encodable(op)
        if (handler := _OP_HANDLERS.get(type(op))) is not None:
            return await handler(self, op)
        if self._session_ops is None:
            from odin.engine.session_ops import SessionOps

            self._session_ops = SessionOps(self._deps, self._start)
        return await self._session_ops.handle(op)

    async def _submit_prompt(self, op: Prompt) -> bool:
        async with self._start.lock:
            if not op.text.strip() and not op.attachments:
                raise EmptyPrompt
            if op.temperature is not None and not 0 <= op.temperature <= MAX_TEMPERATURE:
                raise UsageError(f"The temperature must be from 0 to {MAX_TEMPERATURE:g}, not {op.temperature:g}.")
            if op.max_tokens < 0:
                raise UsageError(f"max_tokens must be positive, not {op.max_tokens}.")
            if op.output_schema is not None:
                op = msgspec.structs.replace(op, output_schema=check_schema(op.output_schema))
            prompt = await self._deps.expander.expand(op.id, op.text, op.display_text)
            attachments = (*op.attachments, *prompt.attachments)
            op = msgspec.structs.replace(
                op, text=prompt.text, display_text=prompt.display_text, attachments=attachments
            )
            op = await self._deps.attachments.accept(op)
            self._start.open()
            await self._start.recover()
            await self._deps.surroundings.refresh()
            if not op.agent:
                # Tell the model with the next prompt that the role has changed.
                state = self._recorder.state
                if state.role != self._noted_role and state.conversation.turns:
                    self._agent.add_note(f"The role is now {state.role}.")
                self._noted_role = state.role
            op = await self._deps.delegation.continue_for_user(op)
            self._team.submit(op)
            if prompt.skill is not None:
                self._recorder.emit(prompt.skill, op.agent)
        return True

    def _get_schedules(self) -> "SessionSchedules":
        if self._schedules is None:
            from odin.engine.session_schedules import SessionSchedules

            self._schedules = SessionSchedules(
                self._recorder,
                self._deps.timing,
                self._submit_prompt,
                is_busy=lambda: self._team.is_busy,
                is_lost=lambda number: number in self._start.lost_schedules,
            )
        return self._schedules

    async def _add_schedule(self, op: AddSchedule) -> bool:
        async with self._start.lock:
            self._start.open()
            self._get_schedules().add(op)
        return True

    async def _remove_schedule(self, op: RemoveSchedule) -> bool:
        async with self._start.lock:
            if not self._recorder.state.schedules:
                return False
            self._start.open()
            return self._get_schedules().remove(op.id)

    async def _change_prompt(self, op: ChangePrompt) -> bool:
        if not self._recorder.state.queue:
            return False
        async with self._start.lock:
            skill = None
            known = next((item for item in self._recorder.state.queue if item.id == op.id), None)
            if op.text is not None:
                prompt = await self._deps.expander.expand(op.id, op.text, op.display_text)
                op = msgspec.structs.replace(op, text=prompt.text, display_text=prompt.display_text)
                if prompt.attachments and known is not None:
                    kept = known.attachments if op.attachments is None else op.attachments
                    op = msgspec.structs.replace(op, attachments=(*kept, *prompt.attachments))
                skill = prompt.skill
            # A changed prompt may mention other files.
            if known is not None and (op.text is not None or op.attachments is not None):
                accepted = await self._deps.attachments.accept(copy_prompt(Prompt, change_prompt(known, op)))
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

    async def _answer(self, op: Answer | AnswerPermission | AnswerQuestions | AnswerPlan) -> bool:
        """Give the answer; one with which the user stops the turn also pauses the queue, as an interrupt does.

        It is the queue of the agent that asked; AgentTool's sub-agent belongs to the turn that waits for it.
        """
        answer = op if isinstance(op, Answer) else read_answer(op)
        interaction = self._deps.interactions.get(answer.id)
        if interaction is None or not self._deps.interactions.answer(answer):
            return False
        if (answer.interrupt or answer.choice == "stop") and answer.by == "user":
            agent = interaction.agent
            self._team.get(agent if self._team.find_task(agent) is not None else "").pause_queue()
        return True

    def record_switch(self, event: SessionSwitched) -> None:
        """Publish that the front end leaves one session for another; this one is either of them."""
        self._recorder.emit(event)

    # --- queries ---

    def take_snapshot(self) -> Snapshot:
        """The state of the log, plus what is not in the log yet: the start of this run, and a prompt just taken."""
        snapshot = self._recorder.state.snapshot()
        if (run := self._start.opened) is not None:
            start = {"cwd": run.cwd, "model": run.model, "permission_mode": run.permission_mode}
            start["role"] = run.role or DEFAULT_ROLE
            ahead = tuple(item for item in snapshot.schedules if item.id not in self._start.lost_schedules)
            snapshot = msgspec.structs.replace(snapshot, **start, sub_agents=(), schedules=ahead)
        paused = self._agent.paused_prompts.union(*(agent.paused_prompts for agent in self._team.list_agents()))
        queue = tuple(
            msgspec.structs.replace(item, paused=True) if item.id in paused else item for item in snapshot.queue
        )
        working = self._team.is_working
        # The log of a run that was killed has questions that nobody waits for.
        asked = tuple(item for item in snapshot.interactions if self._deps.interactions.get(item.id) is not None)
        return msgspec.structs.replace(
            snapshot, executing=self._agent.is_busy, queue=queue, team_working=working, interactions=asked
        )

    def get_loop_status(self, agent: str) -> LoopStatus:
        loop = self._session_ops.loop_modes.get(agent) if self._session_ops is not None else None
        return loop.get_status() if loop is not None else self._recorder.state.get_loop(agent).status

    async def plan_rewind(self, op: Rewind) -> RewindPlan:
        async with self._start.lock:
            return await self._deps.checkpoints.plan(op)

    # --- end ---

    async def close(self, timeout: float | None = None) -> bool:
        """Close the session for all clients. Return False if that takes longer than `timeout`; it goes on then."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._shut_down())
        done, _ = await asyncio.wait({self._closing}, timeout=timeout)
        if not done:
            return False
        self._closing.result()
        return True

    async def _shut_down(self) -> None:
        self._deps.expander.interrupt()
        if self._schedules is not None:
            await self._schedules.close()
        async with self._start.lock:  # let a running op finish
            pass
        deps = self._deps
        deps.team.is_closing = True
        deps.background.stop_accepting()
        await deps.interactions.close()
        await self._agent.stop()
        await deps.team.close()
        await deps.compaction.close()
        await deps.user_shell.close()
        await deps.job_notifier.close()
        await deps.background.close()
        await deps.checkpoints.record_background()
        await deps.hooks.end_session()
        with suppress(OdinError):  # the end of the turn has reported it
            await deps.recorder.wait_until_synced()
        deps.recorder.bus.close()
        deps.recorder.close()
        await deps.surroundings.close()
        if self.finish is not None:
            await self.finish()
        self.on_closed()


class LocalClient:
    """One client of a session, with its own event streams, observer of activity, file search and right to answer."""

    def __init__(self, session: OpenSession, *, answers: bool) -> None:
        self.session = session
        self._attached = session.deps.interactions.attach(answers=answers)
        self._deps = session.deps
        self._recorder = session.deps.recorder
        self._streams: list[Subscription] = []
        self._observer: Callable[[ActivityChanged], None] | None = None
        self._file_search: FileSearch | None = None
        self._is_detached = False

    async def submit(self, op: Op) -> bool:
        if self._is_detached and not self.session.is_closing:
            raise AgentShutdown
        if isinstance(op, _ANSWERS) and not self._attached.answers:
            raise UsageError("This client may watch the session, but not answer for its user.")
        return await self.session.submit(op)

    def set_answering(self, answers: bool, reason: str = "") -> None:
        self._attached.set_answering(answers, reason)

    # --- streams ---

    def _subscribe(self, **options: Any) -> Subscription:
        """Return a subscription that ends with this client."""
        self._streams = [stream for stream in self._streams if not stream.is_closed]
        self._streams.append(stream := self._recorder.bus.subscribe(**options))
        return stream

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        live = self._subscribe(durable=True, size=1024, whole=after is not None)
        seq = self._recorder.state.seq
        now = self._recorder.bus.live.list_current(seq)
        if after is None or (after >= seq and not now):
            return live
        past = self._deps.surroundings.read_past() if after < seq else iter(())
        return replay_log(past, after, seq, now, live)

    def stream_named_events(self, names: Collection[str] = ()) -> AsyncIterator[tuple[str, Envelope]]:
        return stream_named(self._subscribe(durable=True, size=1024, names=validate_names(names)))

    async def stream_snapshots(self) -> AsyncIterator[Snapshot]:
        changes = self._subscribe(size=1)
        try:
            yield self.session.take_snapshot()
            seen = self._recorder.state.seq
            async for _ in changes:
                if self._recorder.state.seq != seen:
                    seen = self._recorder.state.seq
                    yield self.session.take_snapshot()
        finally:
            changes.close()

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        self._recorder.bus.replace_observer(self._observer, observer)
        self._observer = observer

    # --- queries ---

    async def snapshot(self) -> Snapshot:
        return self.session.take_snapshot()

    def get_default_mode(self) -> Mode:
        """Return the mode of prompts that choose none."""
        return self._deps.agents.get_default_mode()

    async def get_info(self) -> SessionInfo:
        return self._deps.surroundings.describe()

    async def report_context(self) -> ContextReport:
        return self._deps.surroundings.report_context()

    async def read_status_line(self, facts: dict[str, Any]) -> str:
        return await self._deps.surroundings.read_status_line(facts)

    async def list_rules(self) -> tuple[RuleLine, ...]:
        return self._deps.rules.list_rules()

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        return await self._deps.expander.list_commands()

    async def list_agents(self) -> tuple[AgentSummary, ...]:
        return self._deps.agents.list_agents()

    async def read_memory(self) -> tuple[MemoryFile, ...]:
        return await self._deps.memory.read()

    async def list_processes(self) -> tuple[ProcessRecord, ...]:
        await self._deps.background.look_for_ports()
        return tuple(
            ProcessRecord(
                id=item.id,
                command=to_valid_unicode(self._deps.redact(item.request.command).text),
                status=item.status,
                description=item.request.description,
                agent=item.request.agent,
                code=item.code,
                started=item.started,
                seconds=item.seconds,
                urls=dict(item.urls),
                log=to_valid_unicode(item.log.path),
                is_undecided=item.settler is not None,
            )
            for item in self._deps.background.list_all()
        )

    async def read_process(self, id: str, after: int = 0) -> ProcessOutput:
        spawned = self._deps.background.find(id)
        text, end = spawned.log.read_recent(after, whole_lines=spawned.status == "running")
        return ProcessOutput(to_valid_unicode(self._deps.redact(text).text), end)

    async def get_loop_status(self, agent: str = "") -> LoopStatus:
        return self.session.get_loop_status(agent)

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        return await self._deps.models.list_models(servers)

    async def plan_rewind(self, op: Rewind) -> RewindPlan:
        return await self.session.plan_rewind(op)

    async def find_files(self, words: str, limit: int = 20) -> tuple[str, ...]:
        if self._file_search is None:
            self._file_search = self._deps.surroundings.make_file_search()
        return await self._file_search(words, limit)

    # --- what a program adds ---

    def add_hook(self, hook: CallbackHook) -> None:
        self._deps.add_hook(hook)

    def add_tools(self, tools: Sequence[Tool[Any]], agent: str = "") -> None:
        self._deps.team.get(agent)
        self._deps.agents.add_tools(tools, agent)

    def add_server(self, name: str, exchange: ServerExchange) -> None:
        self._deps.servers.add_server(name, exchange)

    # --- end ---

    async def detach(self) -> None:
        """Leave the session, which goes on."""
        if self._is_detached:
            return
        self._is_detached = True
        self.session.clients.discard(self)
        self._attached.detach()
        self.observe_activity(None)
        for stream in self._streams:
            stream.close()
        if self._file_search is not None:
            await self._file_search.close()

    async def close(self, timeout: float | None = None) -> bool:
        is_last = self.session.clients <= {self} and not self.session.is_kept
        if (is_last or self.session.is_closing) and not await self.session.close(timeout):
            return False
        await self.detach()
        return True


_OP_HANDLERS: dict[type[Op], Callable[[OpenSession, Any], Awaitable[bool]]] = {
    Prompt: OpenSession._submit_prompt,
    ChangePrompt: OpenSession._change_prompt,
    DropPrompt: OpenSession._drop_prompt,
    Continue: OpenSession._continue,
    AddSchedule: OpenSession._add_schedule,
    RemoveSchedule: OpenSession._remove_schedule,
    Interrupt: OpenSession._interrupt,
    CancelTask: OpenSession._cancel_task,
    CloseAgent: OpenSession._close_agent,
    AddContext: OpenSession._add_context,
    RunUserShell: OpenSession._run_user_shell,
    CancelCompaction: OpenSession._cancel_compaction,
    Answer: OpenSession._answer,
    AnswerPermission: OpenSession._answer,
    AnswerQuestions: OpenSession._answer,
    AnswerPlan: OpenSession._answer,
}

_ANSWERS = (Answer, AnswerPermission, AnswerQuestions, AnswerPlan)

_ALLOWED_WHILE_CLOSING = (*_ANSWERS, Interrupt, CancelCompaction)
"""Ops a closing session accepts. They start and record nothing new."""

_VERBATIM_OPS = (AnswerPermission, RunUserShell)
"""Ops that name files, whose bytes need not be valid text. Recording them makes the text valid."""


def _make_op_encodable(op: Op) -> Op:
    """Replace characters that the log and front ends cannot encode, so that all of them see the same text."""
    if isinstance(op, _VERBATIM_OPS) or (isinstance(op, Answer) and op.args is not None):
        return op
    try:
        msgspec.json.encode(op)
    except UnicodeEncodeError:
        return msgspec.convert(to_valid_unicode_all(msgspec.to_builtins(op)), type(op))
    return op
