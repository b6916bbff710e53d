"""A session in this process, with the three verbs every front end speaks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Protocol

from odin.bus.hub import Subscription
from odin.core.client import ContextReport, SessionInfo, Snapshot
from odin.core.errors import EmptyPrompt, SessionBusy
from odin.core.event import ContextAdded, Envelope, ModelChanged, PermissionModeChanged, SessionOpened, TitleSet
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
    Op,
    Prompt,
    Redo,
    RemoveLast,
    RemoveRule,
    Rewind,
    RunCommand,
    SetModel,
    SetPermissionMode,
    SetTitle,
)
from odin.core.redaction import Redact
from odin.core.rule import RuleLine
from odin.engine.agent import Agent
from odin.engine.asker import Asker
from odin.engine.recorder import Recorder
from odin.engine.rulenews import RuleNews
from odin.engine.turnhooks import TurnHooks
from odin.policy.process.background import Background


class Checkpoints(Protocol):
    """Where earlier states of files are. `go` goes back, or forward again."""

    async def recover(self) -> None: ...

    async def go(self, op: Rewind | Redo) -> None: ...


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
        on_close: Callable[[], Awaitable[None]],
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
        self._moving = asyncio.Lock()
        self._on_close = on_close
        self._closed = False

    async def submit(self, op: Op) -> bool:
        return await _ACTS[type(op)](self, op)

    # One small act per kind of op. False: there was nothing to do it to.

    async def _answer(self, op: Answer) -> bool:
        self._asker.answer(op)
        return True

    async def _answer_questions(self, op: AnswerQuestions) -> bool:
        self._asker.answer_questions(op)
        return True

    async def _interrupt(self, op: Interrupt) -> bool:
        return self._agent.interrupt()

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
        return self._agent.drop(op.id)

    async def _change_model(self, op: SetModel) -> bool:
        self._recorder.emit(ModelChanged(await self._set_model(op.model)))
        return True

    async def _change_permission_mode(self, op: SetPermissionMode) -> bool:
        self._recorder.emit(PermissionModeChanged(self._set_permission_mode(op.mode)))
        return True

    async def _set_title(self, op: SetTitle) -> bool:
        self._open()
        self._recorder.emit(TitleSet(op.title))
        return True

    async def _not_yet(self, op: Op) -> bool:
        return False

    async def _prompt(self, op: Prompt) -> bool:
        async with self._moving:
            if not op.text.strip():
                raise EmptyPrompt
            self._open()
            await self._checkpoints.recover()
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
            self._recorder.emit(self._opened)
            self._opened = None

    def events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        """Everything durable after this number, then what happens. None means: only from now on."""
        live = self._recorder.hub.subscribe(durable=True, size=1024)
        seq = self._recorder.state.seq
        if after is None or after >= seq:
            return live
        return _replay(self._past(), after, seq, live)

    async def snapshot(self) -> Snapshot:
        return self._recorder.state.snapshot()

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """The state now, and again whenever it has changed. A slow reader gets the newest, not every one."""
        changes = self._recorder.hub.subscribe(size=1)
        try:
            yield self._recorder.state.snapshot()
            seen = self._recorder.state.seq
            async for _ in changes:
                if self._recorder.state.seq != seen:
                    seen = self._recorder.state.seq
                    yield self._recorder.state.snapshot()
        finally:
            changes.close()

    async def info(self) -> SessionInfo:
        return self._info()

    async def context(self) -> ContextReport:
        state = self._recorder.state
        return ContextReport(state.model, state.context_tokens, state.context_limit, 0, measured=True)

    async def rules(self) -> tuple[RuleLine, ...]:
        return self._rules.lines()

    def add_hook(self, hook: CallbackHook) -> None:
        self._add_hook(hook)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        async with self._moving:
            pass
        self._background.quiet()
        await self._asker.close()
        await self._agent.stop()
        await self._background.close()
        await self._hooks.over()
        self._recorder.hub.close()
        self._recorder.close()
        await self._on_close()


_ACTS: dict[type[Op], Callable[[LocalClient, Any], Awaitable[bool]]] = {
    Prompt: LocalClient._prompt,
    ChangePrompt: LocalClient._not_yet,
    DropPrompt: LocalClient._drop_prompt,
    Continue: LocalClient._not_yet,
    RemoveLast: LocalClient._not_yet,
    AddContext: LocalClient._add_context,
    RunCommand: LocalClient._not_yet,
    Interrupt: LocalClient._interrupt,
    Compact: LocalClient._not_yet,
    CancelCompaction: LocalClient._not_yet,
    Answer: LocalClient._answer,
    AnswerQuestions: LocalClient._answer_questions,
    AddRule: LocalClient._add_rule,
    RemoveRule: LocalClient._remove_rule,
    Rewind: LocalClient._move,
    Redo: LocalClient._move,
    SetModel: LocalClient._change_model,
    SetPermissionMode: LocalClient._change_permission_mode,
    SetTitle: LocalClient._set_title,
}


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
