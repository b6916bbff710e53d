"""A session in this process, with the three verbs every front end speaks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Protocol

from odin.bus.hub import Subscription
from odin.core.client import SessionInfo, Snapshot
from odin.core.errors import EmptyPrompt, SessionBusy
from odin.core.event import ContextAdded, Envelope, ModelChanged, PermissionModeChanged, SessionOpened
from odin.core.hook import CallbackHook
from odin.core.op import (
    AddContext,
    AddRule,
    Answer,
    AnswerQuestions,
    DropPrompt,
    Interrupt,
    Op,
    Prompt,
    Redo,
    RemoveRule,
    Rewind,
    SetModel,
    SetPermissionMode,
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

    async def submit(self, op: Op) -> None:
        match op:
            case Prompt():
                async with self._moving:
                    await self._prompt(op)
            case Rewind() | Redo():
                await self._move(op)
            case Answer():
                self._asker.answer(op)
            case AnswerQuestions():
                self._asker.answer_questions(op)
            case Interrupt():
                self._agent.interrupt()
            case AddRule():
                self._open()
                await self._rules.add(op.text, op.action, op.scope)
            case RemoveRule():
                self._open()
                await self._rules.remove(op.number)
            case AddContext():
                self._open()
                self._agent.add_context(ContextAdded(self._redact(op.content).text, op.path, op.command))
            case DropPrompt():
                self._agent.drop(op.id)
            case SetModel():
                self._recorder.emit(ModelChanged(await self._set_model(op.model)))
            case SetPermissionMode():
                self._recorder.emit(PermissionModeChanged(self._set_permission_mode(op.mode)))

    async def _prompt(self, op: Prompt) -> None:
        if not op.text.strip():
            raise EmptyPrompt
        self._open()
        await self._checkpoints.recover()
        self._agent.submit(op)

    async def _move(self, op: Rewind | Redo) -> None:
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
