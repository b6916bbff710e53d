"""Odin from Python: `odin.query("…")` runs a prompt in this process and gives its messages as they come."""

import asyncio
import inspect
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct

from odin.app import open_session, standard_registry
from odin.config import Options
from odin.core import errors
from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError, UsageError
from odin.core.event import (
    AnyEvent,
    Envelope,
    ExitReason,
    PermissionAsked,
    PromptDropped,
    QuestionsAsked,
    Replied,
    TextStreamed,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
from odin.core.message import ToolCall, Usage
from odin.core.op import Answer, AnswerQuestions, DropPrompt, Interrupt, Op, Prompt
from odin.core.provider import ModelInfo, Provider
from odin.core.registry import Registry
from odin.core.tool import Tool
from odin.policy.modes import mode_of
from odin.ui.ending import sentence
from odin.ui.messages import Translator
from odin.ui.questions import SDK_TOOL, sdk_answers, sdk_input
from odin.ui.typed import Message, ResultMessage, typed

_NOTHING = SessionInfo("", "", "", "", "edit_mode", "", ())
"""What is known of a session that was given up before it was open."""


class Allow(Struct, frozen=True):
    """The call may run; `updated_input` replaces its arguments, which are then judged again."""

    updated_input: dict[str, Any] | None = None


class Deny(Struct, frozen=True):
    """The call may not run. The model reads `message`; `interrupt` ends the turn as well."""

    message: str = ""
    interrupt: bool = False


Permission = Allow | Deny | bool
CanUseTool = Callable[[str, dict[str, Any]], Permission | Awaitable[Permission]]


class Callbacks(Struct, frozen=True, kw_only=True):
    """Functions, plain or async, that are called in the order of the stream while a prompt runs.

    `on_complete` is called exactly once after a success and `on_error` exactly once otherwise.
    """

    on_text_delta: Callable[[str], Any] | None = None
    on_tool_call: Callable[[ToolCall], Any] | None = None
    on_tool_result: Callable[[ToolEnded], Any] | None = None
    on_usage: Callable[[UsageRecorded], Any] | None = None
    on_complete: Callable[[ResultMessage], Any] | None = None
    on_error: Callable[[OdinError], Any] | None = None


def query(
    prompt: str,
    options: Options | None = None,
    *,
    provider: Provider | None = None,
    tools: Sequence[Tool[Any]] = (),
    can_use_tool: CanUseTool | None = None,
    callbacks: Callbacks | None = None,
) -> "Query":
    """Start a prompt in a session of its own and return at once. Call it where an event loop runs."""
    session = new(provider, options, tools=tools, can_use_tool=can_use_tool)
    return Query(session, prompt, "", callbacks or Callbacks(), closes=True)


def new(
    provider: Provider | None = None,
    options: Options | None = None,
    *,
    tools: Sequence[Tool[Any]] = (),
    can_use_tool: CanUseTool | None = None,
) -> "Session":
    """A session for several prompts. Nothing is opened before the first one.

    Everything is allowed unless `options` names a permission mode or `can_use_tool` decides. `provider` replaces the
    configured model; `tools` are added to the standard ones.
    """
    return Session(provider, options or Options(), tools, can_use_tool)


def default_registry(cwd: str = "") -> Registry:
    """The standard tools by themselves, for programs that bring their own loop. Other agents' names find them too."""
    return standard_registry(cwd)


class Session:
    """A conversation: its prompts run one after the other and the model remembers the earlier ones."""

    def __init__(
        self,
        provider: Provider | None,
        options: Options,
        tools: Sequence[Tool[Any]],
        can_use_tool: CanUseTool | None,
    ) -> None:
        self._provider = provider
        self._options = _with_permissions(options, can_use_tool)
        self._tools = tools
        self._client: Client | None = None
        self._opening = asyncio.Lock()
        self.can_use_tool = can_use_tool
        self.include_partial = options.include_partial

    def query(self, prompt: str, *, mode: str = "", callbacks: Callbacks | None = None) -> "Query":
        """Start the next prompt, in a mode of its own if one is named, and return at once."""
        return Query(self, prompt, mode, callbacks or Callbacks(), closes=False)

    async def open(self) -> Client:
        async with self._opening:
            if self._client is None:
                self._client = await open_session(self._options, tools=self._tools, provider=self._model())
            return self._client

    async def close(self) -> None:
        """End the session. What still runs is aborted and has its result."""
        if self._client is not None:
            await self._client.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _model(self) -> tuple[Provider, ModelInfo] | None:
        if self._provider is None:
            return None
        return self._provider, ModelInfo(self._options.model or self._provider.name, self._provider.name)


class Query:
    """One running prompt. Iterate over it for its messages, or `wait()` for its result; neither needs the other.

    Cancelling whoever waits for it, or the task that started it, aborts the run; it still has its result.
    """

    def __init__(self, session: Session, prompt: str, mode: str, callbacks: Callbacks, *, closes: bool) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("A query needs a running event loop.", "Call it in async code.") from None
        self._session = session
        self._prompt = Prompt(os.urandom(6).hex(), prompt)
        self._mode = mode_of(mode) if mode else None
        self._callbacks = callbacks
        self._closes = closes
        self._client: Client | None = None
        self._messages: deque[Message] = deque()
        self._news = asyncio.Event()
        self._begun = self._given_up = False
        self._started = self._interrupted = False
        self.session_id = ""
        self.total_usage = Usage()
        self.total_cost_usd = 0.0
        self.turn_count = 0
        self.exit_reason: ExitReason | None = None
        self.last_error: OdinError | None = None
        self.result: ResultMessage | None = None
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(lambda _: self._news.set())
        self._mind(asyncio.current_task())

    # --- what a user does with it ---

    async def messages(self) -> AsyncIterator[Message]:
        """Every message once, in order. The last one is the result. What is not read is kept and blocks nothing."""
        while True:
            while self._messages:
                yield self._messages.popleft()
            if self._task.done():
                self._task.result()
                return
            self._news.clear()
            await self._until(self._news.wait())

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def wait(self) -> ResultMessage:
        """The result, when the prompt is done. Raises OdinError when the session could not even begin."""
        await self._until(asyncio.shield(self._task))
        assert self.result is not None
        return self.result

    async def interrupt(self) -> None:
        """Stop the run. It ends with the reason `interrupted` and still has its result."""
        self._interrupted = True
        if self._started and self._client is not None:
            await self._client.submit(Interrupt())

    async def abort(self) -> None:
        """Give the run up and wait until it is over. Nothing happens when it is over already."""
        self._give_up()
        await asyncio.wait({self._task})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()

    # --- how it runs ---

    async def _until(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            await self.abort()
            raise

    def _mind(self, parent: "asyncio.Task[Any] | None") -> None:
        """The run does not outlive a task that started it and was cancelled."""
        if parent is None:
            return

        def follow(ended: "asyncio.Task[Any]") -> None:
            if ended.cancelled():
                self._give_up()

        parent.add_done_callback(follow)
        self._task.add_done_callback(lambda _: parent.remove_done_callback(follow))

    def _give_up(self) -> None:
        """A task that is cancelled before its first step would never tell how it ended."""
        self._given_up = True
        if self._begun:
            self._task.cancel()

    async def _run(self) -> None:
        self._begun = True
        try:
            if not self._given_up:
                await self._converse()
        except asyncio.CancelledError:
            self._given_up = True
        except OdinError as error:
            self.exit_reason, self.last_error = "error", error
            await _call(self._callbacks.on_error, error)
            raise
        await self._see_the_end(Translator(_NOTHING))

    async def _converse(self) -> None:
        """Follow the turn to its end. The reading goes on while a cancel closes the session, to see how it ended."""
        client = self._client = await self._session.open()
        info = await client.info()
        self.session_id = info.session
        translator = Translator(info, partial=self._session.include_partial)
        events = client.events()
        reading = asyncio.get_running_loop().create_task(self._read(events, translator))
        try:
            await client.submit(msgspec.structs.replace(self._prompt, mode=self._mode or info.mode))
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            await self._wind_up(client)
            await reading
        finally:
            if self._closes:
                await client.close()
            reading.cancel()
            _let_go(events)
        await self._see_the_end(translator)

    async def _wind_up(self, client: Client) -> None:
        """Given up: a session of our own is closed, in a shared one only this prompt is stopped or taken back."""
        if self._closes:
            await client.close()
            return
        await self.interrupt()
        if not self._started:
            await client.submit(DropPrompt(self._prompt.id))

    async def _see_the_end(self, translator: Translator) -> None:
        """A run that was given up before it became a turn has a result too."""
        if self.result is None:
            ended = TurnEnded(self._prompt.id, "aborted")
            await self._take(Envelope(-1, 0.0, self.session_id, ended), translator)

    async def _read(self, events: AsyncIterator[Envelope], translator: Translator) -> None:
        async for envelope in events:
            event = envelope.event
            if isinstance(event, TurnStarted) and event.id == self._prompt.id:
                self._started = True
                if self._interrupted:
                    await self.interrupt()
            if self._started:
                await self._take(envelope, translator)
            if self.result is not None or (isinstance(event, PromptDropped) and event.id == self._prompt.id):
                return

    async def _take(self, envelope: Envelope, translator: Translator) -> None:
        for raw in translator.messages(envelope):
            message = typed(raw)
            self._messages.append(message)
            self._news.set()
            if isinstance(message, ResultMessage):
                self.result = message
        event = envelope.event
        if isinstance(event, PermissionAsked | QuestionsAsked):
            await self._decide(event)
        elif isinstance(event, UsageRecorded):
            self.total_usage += event.usage
            self.total_cost_usd += event.cost_usd
            await _call(self._callbacks.on_usage, event)
        elif not envelope.agent:
            await self._follow(event)

    async def _follow(self, event: AnyEvent) -> None:
        calls = self._callbacks
        if isinstance(event, TextStreamed):
            await _call(calls.on_text_delta, event.text)
        elif isinstance(event, Replied):
            self.turn_count += 1
            for call in event.message.calls:
                await _call(calls.on_tool_call, call)
        elif isinstance(event, ToolEnded):
            await _call(calls.on_tool_result, event)
        elif isinstance(event, TurnEnded) and event.id == self._prompt.id:
            await self._finish(event)

    async def _finish(self, ended: TurnEnded) -> None:
        self.exit_reason, self.turn_count = ended.reason, ended.steps
        if ended.reason == "end_turn":
            await _call(self._callbacks.on_complete, self.result)
        else:
            self.last_error = error_of(ended)
            await _call(self._callbacks.on_error, self.last_error)

    async def _decide(self, ask: PermissionAsked | QuestionsAsked) -> None:
        assert self._client is not None
        checker = self._session.can_use_tool
        if isinstance(ask, QuestionsAsked):
            op = _choice(ask, await _verdict(checker, SDK_TOOL, sdk_input(ask.questions)))
        else:
            op = _answer(ask, await _verdict(checker, ask.name, dict(ask.args)))
        await self._client.submit(op)


def error_of(ended: TurnEnded) -> OdinError:
    """The error a turn ended with, as one of the named errors."""
    if ended.reason == "interrupted":
        return errors.Interrupted(sentence(ended))
    kind = getattr(errors, ended.error_kind, OdinError) if ended.error_kind else OdinError
    if ended.reason == "error" and issubclass(kind, errors.ProviderError):
        return kind(ended.error, ended.hint)
    return OdinError(sentence(ended))


def _with_permissions(options: Options, can_use_tool: CanUseTool | None) -> Options:
    if can_use_tool is not None:
        return msgspec.structs.replace(options, can_ask=True)
    if not options.permission_mode and not options.yes:
        return msgspec.structs.replace(options, permission_mode="bypassPermissions")
    return options


async def _verdict(can_use_tool: CanUseTool | None, name: str, args: dict[str, Any]) -> Permission:
    """What the checker says. One that fails has not allowed anything."""
    if can_use_tool is None:
        return Deny("Nobody can be asked.")
    try:
        said = can_use_tool(name, args)
        return await said if inspect.isawaitable(said) else said
    except Exception as error:  # the checker is the user's code: whatever it raises means no
        return Deny(f"The permission check failed: {error}")


def _answer(ask: PermissionAsked, verdict: Permission) -> Op:
    if isinstance(verdict, Allow):
        return Answer(ask.ask_id, allow=True, args=verdict.updated_input, by="api")
    if isinstance(verdict, Deny):
        return Answer(ask.ask_id, allow=False, reason=verdict.message, by="api", interrupt=verdict.interrupt)
    return Answer(ask.ask_id, allow=verdict is True, by="api")


def _choice(ask: QuestionsAsked, verdict: Permission) -> Op:
    """Allowed with changed input that holds answers; allowed without takes every default."""
    if isinstance(verdict, Deny) and verdict.interrupt:
        return Interrupt()
    changed = verdict.updated_input if isinstance(verdict, Allow) else None
    cancelled = not isinstance(verdict, Allow) and verdict is not True
    return AnswerQuestions(ask.ask_id, sdk_answers(ask.questions, changed), cancelled, by="api")


def _let_go(events: AsyncIterator[Envelope]) -> None:
    """A session that lives on must not keep every event for a reader that has left."""
    close = getattr(events, "close", None)
    if close is not None:
        close()


async def _call(callback: Callable[[Any], Any] | None, value: Any) -> None:
    if callback is not None:
        done = callback(value)
        if inspect.isawaitable(done):
            await done
