"""A session in this process, with the three verbs every front end speaks."""

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from odin.core.client import AvailableModel, ContextReport, CustomCommand, LoopStatus, RewindPlan, SessionInfo, Snapshot
from odin.core.errors import AgentShutdown, EmptyPrompt, SessionBusy
from odin.core.event import (
    ActivityChanged,
    ContextAdded,
    Envelope,
    MessageRemoved,
    ModelChanged,
    PermissionModeChanged,
    SessionOpened,
    SessionSwitched,
    TitleSet,
)
from odin.core.op import (
    AddContext,
    AddRule,
    AnswerPermission,
    AnswerQuestions,
    CancelCompaction,
    ChangePrompt,
    Compact,
    Continue,
    DropPrompt,
    Interrupt,
    Op,
    Prompt,
    QueuePolicy,
    Redo,
    RemoveLastMessage,
    RemoveRule,
    Rewind,
    RunUserShell,
    SetBudget,
    SetLoop,
    SetModel,
    SetPermissionMode,
    SetTitle,
)
from odin.core.policy import CallbackHook, Redact, RuleLine
from odin.core.text import to_valid_unicode_all
from odin.engine.agent import Agent
from odin.engine.approvals import Approvals, RuleChanges
from odin.engine.budget import CostBudget
from odin.engine.event_bus import Subscription, stream_named, validate_names
from odin.engine.hooks import TurnHooks
from odin.engine.prompts import Attachments, CommandExpander, NoAttachments
from odin.engine.recorder import Recorder
from odin.engine.user_shell import UserShell
from odin.sandbox.background import BackgroundProcesses

if TYPE_CHECKING:
    from odin.engine.loop_mode import LoopMode
    from odin.engine.recovery import DanglingEvents


class Checkpoints(Protocol):
    """Where earlier states of files are. `go` goes back, or forward again."""

    async def recover(self) -> None: ...

    async def rewind_or_redo(self, op: Rewind | Redo) -> None: ...

    async def plan(self, op: Rewind) -> RewindPlan: ...


class ManualCompaction(Protocol):
    """Summaries of the conversation that a person asks for."""

    async def compact(self, op: Compact) -> bool: ...

    def cancel(self) -> bool: ...

    async def close(self) -> None: ...


class ModelList(Protocol):
    """The models that can be used; with `probe_servers`, also those of servers on this machine, which are asked."""

    async def __call__(self, *, probe_servers: bool = False) -> tuple[AvailableModel, ...]: ...


FindFiles = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""Paths that some letters may mean, at most so many."""


class LocalClient:
    def __init__(
        self,
        *,
        agent: Agent,
        approvals: Approvals,
        recorder: Recorder,
        opened: SessionOpened,
        info: Callable[[], SessionInfo],
        read_log: Callable[[], Iterator[Envelope]],
        set_model: Callable[[str], Awaitable[str]],
        set_permission_mode: Callable[[str], str],
        background: BackgroundProcesses,
        checkpoints: Checkpoints,
        rules: RuleChanges,
        hooks: TurnHooks,
        add_hook: Callable[[CallbackHook], None],
        redact: Redact,
        user_shell: UserShell,
        budget: CostBudget,
        context: Callable[[], ContextReport],
        models: ModelList,
        refresh_surroundings: Callable[[], Awaitable[None]],
        expander: CommandExpander,
        make_loop_mode: "Callable[[], LoopMode]",
        compaction: ManualCompaction,
        on_close: Callable[[], Awaitable[None]],
        attachments: Attachments | None = None,
        find_files: FindFiles,
    ) -> None:
        self._agent = agent
        self._approvals = approvals
        self._recorder = recorder
        self._opened: SessionOpened | None = opened
        self._info = info
        self._read_log = read_log
        self._set_model = set_model
        self._set_permission_mode = set_permission_mode
        self._background = background
        self._checkpoints = checkpoints
        self._rules = rules
        self._hooks = hooks
        self._add_hook = add_hook
        self._redact = redact
        self._user_shell = user_shell
        self._loop = asyncio.get_running_loop()
        self._op_lock = asyncio.Lock()
        self._dangling: DanglingEvents | None = None
        self._budget = budget
        self._context = context
        self._models = models
        self._refresh_surroundings = refresh_surroundings
        self._expander = expander
        self._make_loop_mode = make_loop_mode
        self._loop_mode: LoopMode | None = None
        self._compaction = compaction
        self._on_close = on_close
        self._attachments = attachments or NoAttachments()
        self._find_files = find_files
        self._closing: asyncio.Task[None] | None = None

    async def submit(self, op: Op) -> bool:
        if self._closing is not None and not isinstance(op, _ALLOWED_WHILE_CLOSING):
            raise AgentShutdown
        return await _OP_HANDLERS[type(op)](self, _make_op_encodable(op))

    # One small act per kind of op. False: there was nothing to do it to.

    async def _answer(self, op: AnswerPermission) -> bool:
        self._approvals.answer(op)
        return True

    async def _answer_questions(self, op: AnswerQuestions) -> bool:
        self._approvals.answer_questions(op)
        return True

    async def _interrupt(self, op: Interrupt) -> bool:
        stopped = self._user_shell.interrupt()
        return self._agent.interrupt(op.queue) or stopped

    def interrupt(self, queue: QueuePolicy = "join") -> "concurrent.futures.Future[bool]":
        """`Interrupt` for callers in any thread; the outcome can be waited for there, too."""
        return asyncio.run_coroutine_threadsafe(self.submit(Interrupt(queue)), self._loop)

    async def _run_command(self, op: RunUserShell) -> bool:
        self._user_shell.start_command(op)
        self._open_session()
        return True

    async def _add_rule(self, op: AddRule) -> bool:
        self._open_session()
        await self._rules.add(op.text, op.action, op.scope)
        return True

    async def _remove_rule(self, op: RemoveRule) -> bool:
        self._open_session()
        await self._rules.remove(op.number)
        return True

    async def _add_context(self, op: AddContext) -> bool:
        self._open_session()
        self._agent.add_context(ContextAdded(self._redact(op.content).text, op.path, op.command))
        return True

    async def _drop_prompt(self, op: DropPrompt) -> bool:
        if self._recorder.state.queue:
            self._open_session()
        return self._agent.drop_prompt(op.id)

    async def _change_prompt(self, op: ChangePrompt) -> bool:
        if not self._recorder.state.queue:
            return False
        async with self._op_lock:
            if op.text is not None:
                text, shown = await self._expander.expand(op.text, op.display_text)
                op = msgspec.structs.replace(op, text=text, display_text=shown)
            op = await self._accept_attachments(op)
            self._open_session()
            await self._recover()
            return self._agent.change_prompt(op)

    async def _accept_attachments(self, op: ChangePrompt) -> ChangePrompt:
        """A changed prompt may bring other files along."""
        known = next((item for item in self._recorder.state.queue if item.id == op.id), None)
        if known is None or (op.text is None and op.attachments is None):
            return op
        attached = known.attachments if op.attachments is None else op.attachments
        text = (known.text or known.body) if op.text is None else op.text
        shown = (known.body if known.text else "") if op.text is None else op.display_text
        taken = await self._attachments.accept(Prompt(op.id, text, attachments=attached, display_text=shown))
        return msgspec.structs.replace(op, attachments=taken.attachments)

    async def _continue(self, op: Continue) -> bool:
        async with self._op_lock:
            self._open_session()
            await self._recover()
            self._agent.continue_turn(op)
        return True

    async def _set_loop(self, op: SetLoop) -> bool:
        if not op.enabled:
            return self._agent.stop_loop()
        async with self._op_lock:
            self._open_session()
            await self._recover()
            await self._refresh_surroundings()
            if self._loop_mode is None:
                self._loop_mode = self._make_loop_mode()
            self._loop_mode.switch_on(op.goal, op.mode)
            self._agent.start_loop(self._loop_mode)
        return True

    async def _remove_last(self, op: RemoveLastMessage) -> bool:
        async with self._op_lock:
            if self._agent.is_busy:
                raise SessionBusy("Wait for it or interrupt it, then take the message out.")
            state = self._recorder.state
            if not state.build_history():
                return False
            self._open_session()
            self._recorder.emit(MessageRemoved())
            self._agent.reset_context(state.conversation.unsent_context)
        return True

    async def _compact(self, op: Compact) -> bool:
        async with self._op_lock:
            if not self._recorder.state.build_history():
                return False
            self._open_session()
            return await self._compaction.compact(op)

    async def _cancel_compaction(self, op: CancelCompaction) -> bool:
        return self._compaction.cancel()

    async def _change_model(self, op: SetModel) -> bool:
        model = await self._set_model(op.model)
        self._open_session()
        self._recorder.emit(ModelChanged(model))
        return True

    async def _change_permission_mode(self, op: SetPermissionMode) -> bool:
        mode = self._set_permission_mode(op.mode)
        self._open_session()
        self._recorder.emit(PermissionModeChanged(mode))
        return True

    async def _set_budget(self, op: SetBudget) -> bool:
        self._open_session()
        self._budget.set(op.usd)
        return True

    async def _set_title(self, op: SetTitle) -> bool:
        self._open_session()
        self._recorder.emit(TitleSet(op.title))
        return True

    async def _submit_prompt(self, op: Prompt) -> bool:
        async with self._op_lock:
            if not op.text.strip() and not op.attachments:
                raise EmptyPrompt
            text, shown = await self._expander.expand(op.text, op.display_text)
            op = await self._attachments.accept(msgspec.structs.replace(op, text=text, display_text=shown))
            self._open_session()
            await self._recover()
            await self._refresh_surroundings()
            self._agent.submit(op)
        return True

    async def _rewind_or_redo(self, op: Rewind | Redo) -> bool:
        """Back to before a prompt, or forward again. No turn begins meanwhile, and none may be running."""
        async with self._op_lock:
            if self._agent.is_busy:
                raise SessionBusy("Wait for it or interrupt it, then go back.")
            if self._recorder.state.seq >= 0:
                self._open_session()
            self._agent.is_held = True
            try:
                await self._checkpoints.rewind_or_redo(op)
            finally:
                self._agent.is_held = False
            self._agent.reset_context(self._recorder.state.conversation.unsent_context)
        return True

    def _open_session(self) -> None:
        """The session begins with the first thing said, so that one in which nothing was said leaves no trace."""
        if self._opened is not None:
            if self._recorder.state.open_work:
                from odin.engine.recovery import find_dangling

                self._dangling = find_dangling(self._recorder.state)
            self._recorder.emit(self._opened)
            self._opened = None
            for event, agent in self._dangling.events if self._dangling else ():
                self._recorder.emit(event, agent, past=True)

    async def _recover(self) -> None:
        """Record what calls that were cut off did to files. After a crash the model hears of it."""
        changes = self._recorder.state.file_history
        mark = changes.mark()
        await self._checkpoints.recover()
        if self._dangling is not None:
            told = self._dangling.describe(tuple(change.change for change in changes.list_since(mark)))
            self._dangling = None
            if told:
                self._agent.add_note(told)

    def record_switch(self, event: SessionSwitched) -> None:
        """Tell whoever listens that the front end goes from one session to another, which may be this one."""
        self._recorder.emit(event)

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        """Everything durable after this number, then what happens. None means: only from now on."""
        live = self._recorder.hub.subscribe(durable=True, size=1024, whole=after is not None)
        seq = self._recorder.state.seq
        if after is None or after >= seq:
            return live
        return _replay_log(self._read_log(), after, seq, live)

    def stream_named_events(self, names: Collection[str] = ()) -> AsyncIterator[tuple[str, Envelope]]:
        return stream_named(self._recorder.hub.subscribe(durable=True, size=1024, names=validate_names(names)))

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        self._recorder.hub.observe_activity(observer)

    async def snapshot(self) -> Snapshot:
        return self._take_snapshot()

    def _take_snapshot(self) -> Snapshot:
        """What the log says, and what it does not say yet: what this run begins with, and a prompt just taken."""
        shot = self._recorder.state.snapshot()
        if (run := self._opened) is not None:
            begins = {"cwd": run.cwd, "model": run.model, "permission_mode": run.permission_mode}
            shot = msgspec.structs.replace(shot, **begins, sub_agents=())
        resting = self._agent.paused_prompts
        queue = tuple(msgspec.structs.replace(item, paused=True) if item.id in resting else item for item in shot.queue)
        return msgspec.structs.replace(shot, executing=self._agent.is_busy, queue=queue)

    async def stream_snapshots(self) -> AsyncIterator[Snapshot]:
        """The state now, and again whenever it has changed. A slow reader gets the newest, not every one."""
        changes = self._recorder.hub.subscribe(size=1)
        try:
            yield self._take_snapshot()
            seen = self._recorder.state.seq
            async for _ in changes:
                if self._recorder.state.seq != seen:
                    seen = self._recorder.state.seq
                    yield self._take_snapshot()
        finally:
            changes.close()

    async def get_info(self) -> SessionInfo:
        return self._info()

    async def report_context(self) -> ContextReport:
        return self._context()

    async def list_rules(self) -> tuple[RuleLine, ...]:
        return self._rules.list_rules()

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        return await self._expander.list_commands()

    async def get_loop_status(self) -> LoopStatus:
        return self._loop_mode.get_status() if self._loop_mode is not None else self._recorder.state.loop.status

    async def list_models(self, *, probe_servers: bool = False) -> tuple[AvailableModel, ...]:
        return await self._models(probe_servers=probe_servers)

    async def plan_rewind(self, op: Rewind) -> RewindPlan:
        async with self._op_lock:
            return await self._checkpoints.plan(op)

    async def find_files(self, words: str, limit: int = 20) -> tuple[str, ...]:
        return await self._find_files(words, limit)

    def add_hook(self, hook: CallbackHook) -> None:
        self._add_hook(hook)

    async def close(self, timeout: float | None = None) -> bool:
        """End the session: what runs is aborted, what waits stays in the log. True when all of it is over.

        False when that takes longer than `timeout` seconds; it goes on, and can be waited for by another call.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._shut_down())
        done, _ = await asyncio.wait({self._closing}, timeout=timeout)
        if not done:
            return False
        self._closing.result()
        return True

    async def _shut_down(self) -> None:
        async with self._op_lock:
            pass
        self._background.stop_accepting()
        await self._approvals.close()
        await self._agent.stop()
        await self._compaction.close()
        await self._user_shell.close()
        await self._background.close()
        await self._hooks.end_session()
        self._recorder.hub.close()
        self._recorder.close()
        await self._on_close()


_OP_HANDLERS: dict[type[Op], Callable[[LocalClient, Any], Awaitable[bool]]] = {
    Prompt: LocalClient._submit_prompt,
    ChangePrompt: LocalClient._change_prompt,
    DropPrompt: LocalClient._drop_prompt,
    Continue: LocalClient._continue,
    SetLoop: LocalClient._set_loop,
    RemoveLastMessage: LocalClient._remove_last,
    AddContext: LocalClient._add_context,
    RunUserShell: LocalClient._run_command,
    Interrupt: LocalClient._interrupt,
    Compact: LocalClient._compact,
    CancelCompaction: LocalClient._cancel_compaction,
    AnswerPermission: LocalClient._answer,
    AnswerQuestions: LocalClient._answer_questions,
    AddRule: LocalClient._add_rule,
    RemoveRule: LocalClient._remove_rule,
    Rewind: LocalClient._rewind_or_redo,
    Redo: LocalClient._rewind_or_redo,
    SetModel: LocalClient._change_model,
    SetPermissionMode: LocalClient._change_permission_mode,
    SetBudget: LocalClient._set_budget,
    SetTitle: LocalClient._set_title,
}


_VERBATIM_OPS = (AnswerPermission, RunUserShell)
"""Their words name files, whose bytes need not be text. What is recorded of them is mended where that is done."""


def _make_op_encodable(op: Op) -> Op:
    """What is said to a session is text that its log and every front end can hold, so all of them know the same."""
    if isinstance(op, _VERBATIM_OPS):
        return op
    try:
        msgspec.json.encode(op)
    except UnicodeEncodeError:
        return msgspec.convert(to_valid_unicode_all(msgspec.to_builtins(op)), type(op))
    return op


_ALLOWED_WHILE_CLOSING = (AnswerPermission, AnswerQuestions, Interrupt, CancelCompaction)
"""What may be said to a session that is ending: nothing else is begun or recorded any more."""


async def _replay_log(past: Iterator[Envelope], after: int, until: int, live: Subscription) -> AsyncIterator[Envelope]:
    try:
        for count, envelope in enumerate(past):
            if after < envelope.seq <= until:
                yield envelope
            if count % 256 == 255:
                await asyncio.sleep(0)
        async for envelope in live:
            yield envelope
    finally:
        live.close()
