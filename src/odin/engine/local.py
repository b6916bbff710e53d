"""A session in this process, with the three verbs every front end speaks."""

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from odin.bus.hub import Subscription, named
from odin.bus.names import known_names
from odin.core.client import ContextReport, CustomCommand, LoopStatus, ModelChoice, RewindPlan, SessionInfo, Snapshot
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
from odin.core.hook import CallbackHook
from odin.core.op import (
    AddContext,
    AddRule,
    Answer,
    AnswerQuestions,
    CancelCompaction,
    ChangePrompt,
    Compact,
    Continue,
    DropPrompt,
    Interrupt,
    Leftover,
    Op,
    Prompt,
    Redo,
    RemoveLast,
    RemoveRule,
    Rewind,
    RunCommand,
    SetBudget,
    SetLoop,
    SetModel,
    SetPermissionMode,
    SetTitle,
)
from odin.core.redaction import Redact
from odin.core.rule import RuleLine
from odin.core.text import mended_all
from odin.engine.agent import Agent
from odin.engine.asker import Asker
from odin.engine.attaching import Attachments, NoAttachments
from odin.engine.budget import Budget
from odin.engine.expanding import Expanding
from odin.engine.own_commands import OwnCommands
from odin.engine.recorder import Recorder
from odin.engine.rulenews import RuleNews
from odin.engine.turnhooks import TurnHooks
from odin.policy.process.background import Background

if TYPE_CHECKING:
    from odin.engine.autopilot import Autopilot
    from odin.engine.closing import LeftOpen


class Checkpoints(Protocol):
    """Where earlier states of files are. `go` goes back, or forward again."""

    async def recover(self) -> None: ...

    async def go(self, op: Rewind | Redo) -> None: ...

    async def plan(self, op: Rewind) -> RewindPlan: ...


class Summaries(Protocol):
    """Summaries of the conversation that a person asks for."""

    async def compact(self, op: Compact) -> bool: ...

    def cancel(self) -> bool: ...

    async def close(self) -> None: ...


class ModelList(Protocol):
    """The models that can be used; with `look`, also those of servers on this machine, which are asked."""

    async def __call__(self, *, look: bool = False) -> tuple[ModelChoice, ...]: ...


FindFiles = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""Paths that some letters may mean, at most so many."""


class LocalClient:
    def __init__(
        self,
        *,
        agent: Agent,
        asker: Asker,
        recorder: Recorder,
        opened: SessionOpened,
        info: Callable[[], SessionInfo],
        past: Callable[[], Iterator[Envelope]],
        set_model: Callable[[str], Awaitable[str]],
        set_permission_mode: Callable[[str], str],
        background: Background,
        checkpoints: Checkpoints,
        rules: RuleNews,
        hooks: TurnHooks,
        add_hook: Callable[[CallbackHook], None],
        redact: Redact,
        commands: OwnCommands,
        budget: Budget,
        context: Callable[[], ContextReport],
        models: ModelList,
        look_around: Callable[[], Awaitable[None]],
        expanding: Expanding,
        make_pilot: "Callable[[], Autopilot]",
        summaries: Summaries,
        on_close: Callable[[], Awaitable[None]],
        attachments: Attachments | None = None,
        find_files: FindFiles,
    ) -> None:
        self._agent = agent
        self._asker = asker
        self._recorder = recorder
        self._opened: SessionOpened | None = opened
        self._info = info
        self._past = past
        self._set_model = set_model
        self._set_permission_mode = set_permission_mode
        self._background = background
        self._checkpoints = checkpoints
        self._rules = rules
        self._hooks = hooks
        self._add_hook = add_hook
        self._redact = redact
        self._commands = commands
        self._loop = asyncio.get_running_loop()
        self._moving = asyncio.Lock()
        self._left_open: LeftOpen | None = None
        self._budget = budget
        self._context = context
        self._models = models
        self._look_around = look_around
        self._expanding = expanding
        self._make_pilot = make_pilot
        self._pilot: Autopilot | None = None
        self._summaries = summaries
        self._on_close = on_close
        self._attachments = attachments or NoAttachments()
        self._find_files = find_files
        self._closing: asyncio.Task[None] | None = None

    async def submit(self, op: Op) -> bool:
        if self._closing is not None and not isinstance(op, _UNTIL_THE_END):
            raise AgentShutdown
        return await _ACTS[type(op)](self, _mended(op))

    # One small act per kind of op. False: there was nothing to do it to.

    async def _answer(self, op: Answer) -> bool:
        self._asker.answer(op)
        return True

    async def _answer_questions(self, op: AnswerQuestions) -> bool:
        self._asker.answer_questions(op)
        return True

    async def _interrupt(self, op: Interrupt) -> bool:
        stopped = self._commands.interrupt()
        return self._agent.interrupt(op.queue) or stopped

    def interrupt(self, queue: Leftover = "join") -> "concurrent.futures.Future[bool]":
        """`Interrupt` for callers in any thread; the outcome can be waited for there, too."""
        return asyncio.run_coroutine_threadsafe(self.submit(Interrupt(queue)), self._loop)

    async def _run_command(self, op: RunCommand) -> bool:
        self._commands.start(op)
        self._open()
        return True

    async def _add_rule(self, op: AddRule) -> bool:
        self._open()
        await self._rules.add(op.text, op.action, op.scope)
        return True

    async def _remove_rule(self, op: RemoveRule) -> bool:
        self._open()
        await self._rules.remove(op.number)
        return True

    async def _add_context(self, op: AddContext) -> bool:
        self._open()
        self._agent.add_context(ContextAdded(self._redact(op.content).text, op.path, op.command))
        return True

    async def _drop_prompt(self, op: DropPrompt) -> bool:
        if self._recorder.state.queue:
            self._open()
        return self._agent.drop(op.id)

    async def _change_prompt(self, op: ChangePrompt) -> bool:
        if not self._recorder.state.queue:
            return False
        async with self._moving:
            if op.text is not None:
                text, shown = await self._expanding.expand(op.text, op.shown)
                op = msgspec.structs.replace(op, text=text, shown=shown)
            op = await self._accepted(op)
            self._open()
            await self._recover()
            return self._agent.change(op)

    async def _accepted(self, op: ChangePrompt) -> ChangePrompt:
        """A changed prompt may bring other files along."""
        known = next((item for item in self._recorder.state.queue if item.id == op.id), None)
        if known is None or (op.text is None and op.attached is None):
            return op
        attached = known.attached if op.attached is None else op.attached
        text = (known.text or known.body) if op.text is None else op.text
        shown = (known.body if known.text else "") if op.text is None else op.shown
        taken = await self._attachments.accept(Prompt(op.id, text, attached=attached, shown=shown))
        return msgspec.structs.replace(op, attached=taken.attached)

    async def _continue(self, op: Continue) -> bool:
        async with self._moving:
            self._open()
            await self._recover()
            self._agent.go_on(op)
        return True

    async def _set_loop(self, op: SetLoop) -> bool:
        if not op.on:
            return self._agent.leave_loop()
        async with self._moving:
            self._open()
            await self._recover()
            await self._look_around()
            if self._pilot is None:
                self._pilot = self._make_pilot()
            self._pilot.switch_on(op.target, op.mode)
            self._agent.follow(self._pilot)
        return True

    async def _remove_last(self, op: RemoveLast) -> bool:
        async with self._moving:
            if self._agent.busy:
                raise SessionBusy("Wait for it or interrupt it, then take the message out.")
            state = self._recorder.state
            if not state.history():
                return False
            self._open()
            self._recorder.emit(MessageRemoved())
            self._agent.start_over(state.untold)
        return True

    async def _compact(self, op: Compact) -> bool:
        async with self._moving:
            if not self._recorder.state.history():
                return False
            self._open()
            return await self._summaries.compact(op)

    async def _cancel_compaction(self, op: CancelCompaction) -> bool:
        return self._summaries.cancel()

    async def _change_model(self, op: SetModel) -> bool:
        model = await self._set_model(op.model)
        self._open()
        self._recorder.emit(ModelChanged(model))
        return True

    async def _change_permission_mode(self, op: SetPermissionMode) -> bool:
        mode = self._set_permission_mode(op.mode)
        self._open()
        self._recorder.emit(PermissionModeChanged(mode))
        return True

    async def _set_budget(self, op: SetBudget) -> bool:
        self._open()
        self._budget.set(op.usd)
        return True

    async def _set_title(self, op: SetTitle) -> bool:
        self._open()
        self._recorder.emit(TitleSet(op.title))
        return True

    async def _prompt(self, op: Prompt) -> bool:
        async with self._moving:
            if not op.text.strip() and not op.attached:
                raise EmptyPrompt
            text, shown = await self._expanding.expand(op.text, op.shown)
            op = await self._attachments.accept(msgspec.structs.replace(op, text=text, shown=shown))
            self._open()
            await self._recover()
            await self._look_around()
            self._agent.submit(op)
        return True

    async def _move(self, op: Rewind | Redo) -> bool:
        """Back to before a prompt, or forward again. No turn begins meanwhile, and none may be running."""
        async with self._moving:
            if self._agent.busy:
                raise SessionBusy("Wait for it or interrupt it, then go back.")
            if self._recorder.state.seq >= 0:
                self._open()
            self._agent.held = True
            try:
                await self._checkpoints.go(op)
            finally:
                self._agent.held = False
            self._agent.start_over(self._recorder.state.untold)
        return True

    def _open(self) -> None:
        """The session begins with the first thing said, so that one in which nothing was said leaves no trace."""
        if self._opened is not None:
            if self._recorder.state.unfinished:
                from odin.engine.closing import left_open

                self._left_open = left_open(self._recorder.state)
            self._recorder.emit(self._opened)
            self._opened = None
            for event, agent in self._left_open.closings if self._left_open else ():
                self._recorder.emit(event, agent, past=True)

    async def _recover(self) -> None:
        """Record what calls that were cut off did to files. After a crash the model hears of it."""
        changes = self._recorder.state.changes
        mark = changes.mark()
        await self._checkpoints.recover()
        if self._left_open is not None:
            told = self._left_open.told(tuple(change.before_after for change in changes.since(mark)))
            self._left_open = None
            if told:
                self._agent.remark(told)

    def switched(self, event: SessionSwitched) -> None:
        """Tell whoever listens that the front end goes from one session to another, which may be this one."""
        self._recorder.emit(event)

    def events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        """Everything durable after this number, then what happens. None means: only from now on."""
        live = self._recorder.hub.subscribe(durable=True, size=1024, whole=after is not None)
        seq = self._recorder.state.seq
        if after is None or after >= seq:
            return live
        return _replay(self._past(), after, seq, live)

    def listen(self, names: Collection[str] = ()) -> AsyncIterator[tuple[str, Envelope]]:
        return named(self._recorder.hub.subscribe(durable=True, size=1024, names=known_names(names)))

    def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        self._recorder.hub.observe_activity(observer)

    async def snapshot(self) -> Snapshot:
        return self._shot()

    def _shot(self) -> Snapshot:
        """What the log says, and what it does not say yet: what this run begins with, and a prompt just taken."""
        shot = self._recorder.state.snapshot()
        if (run := self._opened) is not None:
            begins = {"cwd": run.cwd, "model": run.model, "permission_mode": run.permission_mode}
            shot = msgspec.structs.replace(shot, **begins, sub_agents=())
        resting = self._agent.resting
        queue = tuple(msgspec.structs.replace(item, rests=True) if item.id in resting else item for item in shot.queue)
        return msgspec.structs.replace(shot, executing=self._agent.busy, queue=queue)

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """The state now, and again whenever it has changed. A slow reader gets the newest, not every one."""
        changes = self._recorder.hub.subscribe(size=1)
        try:
            yield self._shot()
            seen = self._recorder.state.seq
            async for _ in changes:
                if self._recorder.state.seq != seen:
                    seen = self._recorder.state.seq
                    yield self._shot()
        finally:
            changes.close()

    async def info(self) -> SessionInfo:
        return self._info()

    async def context(self) -> ContextReport:
        return self._context()

    async def rules(self) -> tuple[RuleLine, ...]:
        return self._rules.lines()

    async def commands(self) -> tuple[CustomCommand, ...]:
        return await self._expanding.commands()

    async def loop(self) -> LoopStatus:
        return self._pilot.status() if self._pilot is not None else self._recorder.state.loop.status

    async def models(self, *, look: bool = False) -> tuple[ModelChoice, ...]:
        return await self._models(look=look)

    async def rewind_plan(self, op: Rewind) -> RewindPlan:
        async with self._moving:
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
            self._closing = asyncio.create_task(self._wind_up())
        done, _ = await asyncio.wait({self._closing}, timeout=timeout)
        if not done:
            return False
        self._closing.result()
        return True

    async def _wind_up(self) -> None:
        async with self._moving:
            pass
        self._background.quiet()
        await self._asker.close()
        await self._agent.stop()
        await self._summaries.close()
        await self._commands.close()
        await self._background.close()
        await self._hooks.over()
        self._recorder.hub.close()
        self._recorder.close()
        await self._on_close()


_ACTS: dict[type[Op], Callable[[LocalClient, Any], Awaitable[bool]]] = {
    Prompt: LocalClient._prompt,
    ChangePrompt: LocalClient._change_prompt,
    DropPrompt: LocalClient._drop_prompt,
    Continue: LocalClient._continue,
    SetLoop: LocalClient._set_loop,
    RemoveLast: LocalClient._remove_last,
    AddContext: LocalClient._add_context,
    RunCommand: LocalClient._run_command,
    Interrupt: LocalClient._interrupt,
    Compact: LocalClient._compact,
    CancelCompaction: LocalClient._cancel_compaction,
    Answer: LocalClient._answer,
    AnswerQuestions: LocalClient._answer_questions,
    AddRule: LocalClient._add_rule,
    RemoveRule: LocalClient._remove_rule,
    Rewind: LocalClient._move,
    Redo: LocalClient._move,
    SetModel: LocalClient._change_model,
    SetPermissionMode: LocalClient._change_permission_mode,
    SetBudget: LocalClient._set_budget,
    SetTitle: LocalClient._set_title,
}


_VERBATIM = (Answer, RunCommand)
"""Their words name files, whose bytes need not be text. What is recorded of them is mended where that is done."""


def _mended(op: Op) -> Op:
    """What is said to a session is text that its log and every front end can hold, so all of them know the same."""
    if isinstance(op, _VERBATIM):
        return op
    try:
        msgspec.json.encode(op)
    except UnicodeEncodeError:
        return msgspec.convert(mended_all(msgspec.to_builtins(op)), type(op))
    return op


_UNTIL_THE_END = (Answer, AnswerQuestions, Interrupt, CancelCompaction)
"""What may be said to a session that is ending: nothing else is begun or recorded any more."""


async def _replay(past: Iterator[Envelope], after: int, until: int, live: Subscription) -> AsyncIterator[Envelope]:
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
