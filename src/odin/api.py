"""The Python API: `odin.query("…")` runs a prompt in this process and yields its messages as they arrive."""

import asyncio
import concurrent.futures
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from odin.app import build_standard_registry
from odin.config import Options
from odin.core import errors
from odin.core.call_events import (
    ActivityChanged,
    AnswerEvent,
    AskEvent,
    Replied,
    TextStreamed,
    ToolEnded,
    UsageRecorded,
)
from odin.core.client import Client, SessionInfo, close_events
from odin.core.errors import AgentShutdown, EmptyPrompt, OdinError, SessionBusy, UsageError
from odin.core.event import AnyEvent, Envelope, TurnEnded
from odin.core.event_values import ExitReason
from odin.core.message import Usage
from odin.core.op import (
    AddRule,
    CancelCompaction,
    Compact,
    DropPrompt,
    Interrupt,
    Prompt,
    QueuePolicy,
    RemoveRule,
    SetSystemPrompt,
    SetTools,
)
from odin.core.policy import RememberScope, RuleAction, RuleLine
from odin.core.prompt_follower import PromptFollower
from odin.core.provider import Compactor, ModelInfo, NoCompactor, Provider
from odin.core.tool import Registry, Tool
from odin.host.manager import get_manager
from odin.policy.modes import parse_mode, split_plan_alias
from odin.ui.callbacks import (
    Allow,
    Callbacks,
    CanUseTool,
    Deny,
    Hook,
    HookTable,
    decide,
    invoke_callback,
    make_callback_hooks,
)
from odin.ui.exit import describe_ending
from odin.ui.stream_json.agent_messages import list_agent_types
from odin.ui.stream_json.translator import StreamTranslator
from odin.ui.stream_json.types import Message, ResultMessage, to_typed

__all__ = [
    "Allow",
    "Callbacks",
    "CanUseTool",
    "Compactor",
    "Deny",
    "Hook",
    "NoCompactor",
    "Query",
    "Session",
    "default_registry",
    "make_error",
    "new",
    "query",
]

_UNOPENED_INFO = SessionInfo("", "", "", "", "edit_mode", "", ())
"""Stands for a session that was aborted before it was open."""


def query(
    prompt: str,
    options: Options | None = None,
    *,
    provider: Provider | None = None,
    tools: Sequence[Tool[Any]] = (),
    can_use_tool: CanUseTool | None = None,
    hooks: HookTable | None = None,
    callbacks: Callbacks | None = None,
) -> "Query":
    """Start a prompt in its own session and return at once. Requires a running event loop."""
    session = new(provider, options, tools=tools, can_use_tool=can_use_tool, hooks=hooks)
    return Query(session, _make_prompt(prompt), "", callbacks or Callbacks(), owns_session=True)


def new(
    provider: Provider | None = None,
    options: Options | None = None,
    *,
    tools: Sequence[Tool[Any]] = (),
    can_use_tool: CanUseTool | None = None,
    hooks: HookTable | None = None,
    compactor: Compactor | None = None,
) -> "Session":
    """Return a session for several prompts. It is opened with the first one.

    Everything is allowed unless `options` sets a permission mode or `can_use_tool` decides. `provider` replaces the
    configured model; `tools` are added to the standard ones; `hooks` are callbacks for hook events. `compactor`
    replaces the configured compaction of long conversations.
    """
    return Session(provider, options or Options(), tools, can_use_tool, hooks or {}, compactor)


USUAL_MAX_TURNS = 100
"""Model calls per prompt of a program, unless its options or the configuration say otherwise: no user watches it."""


def default_registry(cwd: str = "", *, read_before_edit: bool = True) -> Registry:
    """Return the standard tools, for programs with their own agent loop. Tool names of other agents work, too.

    Without `read_before_edit` the edit tools accept files that were not read.
    """
    return build_standard_registry(cwd, read_before_edit=read_before_edit)


def _make_prompt(text: str, temperature: float | None = None, max_tokens: int = 0) -> Prompt:
    return Prompt(os.urandom(6).hex(), text, delivery="queue", temperature=temperature, max_tokens=max_tokens)


class CrossThreadResult:
    """The result of an operation started from any thread: `await` it in the session's loop, or call `result()`."""

    def __init__(self, work: Coroutine[Any, Any, bool], loop: asyncio.AbstractEventLoop | None) -> None:
        self._future: concurrent.futures.Future[bool] = concurrent.futures.Future()
        if loop is None or loop.is_closed():
            work.close()
            self._future.set_result(False)
        else:
            self._future = asyncio.run_coroutine_threadsafe(work, loop)

    def result(self, timeout: float | None = None) -> bool:
        """Wait and return whether there was something to do. Blocks: never call it in the thread of the event loop."""
        return self._future.result(timeout)

    def __await__(self) -> Generator[Any, None, bool]:
        return asyncio.wrap_future(self._future).__await__()


class Session:
    """A conversation: prompts run one after the other, and the model remembers earlier ones."""

    def __init__(
        self,
        provider: Provider | None,
        options: Options,
        tools: Sequence[Tool[Any]],
        can_use_tool: CanUseTool | None,
        hooks: HookTable,
        compactor: Compactor | None = None,
    ) -> None:
        self._provider = provider
        self._compactor = compactor
        self._options = _apply_permission_defaults(options, can_use_tool)
        self._tools = tools
        self._hooks = hooks
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queries: set[Query] = set()
        self._open_lock = asyncio.Lock()
        self.can_use_tool = can_use_tool
        self.include_partial = options.include_partial
        self.output_schema = options.output_schema

    def query(
        self,
        prompt: str,
        *,
        mode: str = "",
        callbacks: Callbacks | None = None,
        temperature: float | None = None,
        max_tokens: int = 0,
    ) -> "Query":
        """Start the next prompt and return at once; it is queued behind running ones.

        `temperature` and `max_tokens`, the most tokens of one reply, are for this prompt only.
        """
        op = _make_prompt(prompt, temperature, max_tokens)
        return Query(self, op, mode, callbacks or Callbacks(), owns_session=False)

    def send(
        self,
        prompt: str,
        *,
        mode: str = "",
        callbacks: Callbacks | None = None,
        temperature: float | None = None,
        max_tokens: int = 0,
    ) -> "Query":
        """Like `query`, but never queued: raise SessionBusy while another prompt runs, or EmptyPrompt."""
        if not prompt.strip():
            raise EmptyPrompt
        if self._queries:
            raise SessionBusy
        op = msgspec.structs.replace(_make_prompt(prompt, temperature, max_tokens), wait=False)
        return Query(self, op, mode, callbacks or Callbacks(), owns_session=False)

    async def steer(self, text: str) -> bool:
        """Send a message to the running turn; tool calls that have not started are skipped. Return False if idle."""
        client = await self.open()
        now = await client.snapshot()
        return now.executing and await client.submit(
            Prompt(os.urandom(6).hex(), text, now.agent_mode, delivery="steer")
        )

    def interrupt(self, queue: QueuePolicy = "drop") -> CrossThreadResult:
        """Interrupt the running turn, from any thread. The result is False if nothing runs.

        Queued prompts are removed, and their queries end as interrupted; with `keep` they run, with `pause` they stay
        queued until they are sent, with `inject` they are added to the conversation without a reply.
        """
        return CrossThreadResult(self._interrupt(queue), self._loop)

    async def _interrupt(self, queue: QueuePolicy) -> bool:
        return self._client is not None and await self._client.submit(Interrupt(queue))

    def track_query(self, query: "Query", task: "asyncio.Task[None]") -> None:
        """Count a query as running until its task ends."""
        self._queries.add(query)
        task.add_done_callback(lambda _: self._queries.discard(query))

    async def open(self) -> Client:
        async with self._open_lock:
            if self._client is None:
                self._loop = asyncio.get_running_loop()
                self._client = await self._open_client()
            return self._client

    async def events(self, *names: str) -> AsyncIterator[tuple[str, Envelope]]:
        """Yield the public events from now on with their names; with `names`, only these."""
        client = await self.open()
        async for event in client.stream_named_events(names):
            yield event

    async def observe_activity(self, observer: Callable[[ActivityChanged], None] | None) -> None:
        """Call a function at once when the activity changes. It must not block; a new one replaces it."""
        (await self.open()).observe_activity(observer)

    async def set_system_prompt(self, text: str | None) -> None:
        """Replace the main text of the system prompt, from the next request on; None restores the usual one."""
        await (await self.open()).submit(SetSystemPrompt(text))

    async def set_tools(self, tools: Sequence[str | Tool[Any]] | None) -> None:
        """Offer the model only these tools, from the next request on; None offers the usual ones again.

        A tool is named, or is one of the program's own, which is added. Raise UsageError for an unknown name.
        """
        client = await self.open()
        client.add_tools([tool for tool in tools or () if not isinstance(tool, str)])
        names = [tool if isinstance(tool, str) else tool.name for tool in tools or ()]
        await client.submit(SetTools(None if tools is None else tuple(names)))

    async def rules(self) -> tuple[RuleLine, ...]:
        """Return the permission rules in display order."""
        return await (await self.open()).list_rules()

    async def add_rule(self, text: str, action: RuleAction = "allow", scope: RememberScope = "session") -> None:
        """Add a rule, effective from the next call. Raise UsageError for an invalid rule."""
        await (await self.open()).submit(AddRule(text, action, scope))

    async def remove_rule(self, number: int) -> None:
        """Remove the rule with this number in `rules()`."""
        await (await self.open()).submit(RemoveRule(number))

    async def compact(self, focus: str = "") -> bool:
        """Start compaction. Return False if there is nothing to compact or it is already running."""
        return await (await self.open()).submit(Compact(focus))

    async def cancel_compaction(self) -> bool:
        """Cancel a running or pending compaction. Return False if there is none."""
        return await (await self.open()).submit(CancelCompaction())

    async def close(self, timeout: float | None = None) -> bool:
        """Close the session. Running prompts are aborted with a result; queued ones end with AgentShutdown.

        Return False if that takes longer than `timeout` seconds; it continues, and another call can wait for it.
        """
        return self._client is None or await self._client.close(timeout)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open_client(self) -> Client:
        options = msgspec.structs.replace(self._options, usual_max_turns=USUAL_MAX_TURNS)
        client = await get_manager().open(
            options, tools=self._tools, provider=self._get_custom_model(), compactor=self._compactor
        )
        try:
            for hook in make_callback_hooks(self._hooks):
                client.add_hook(hook)
        except OdinError:
            await client.close()
            raise
        return client

    def _get_custom_model(self) -> tuple[Provider, ModelInfo] | None:
        if self._provider is None:
            return None
        return self._provider, ModelInfo(self._options.model or self._provider.name, self._provider.name)


class Query:
    """One running prompt. Iterate over it for its messages, or `wait()` for its result.

    Cancelling a task that waits for it, or the task that started it, aborts the run; it still has a result.
    """

    def __init__(
        self, session: Session, prompt: Prompt, mode: str, callbacks: Callbacks, *, owns_session: bool
    ) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("A query needs a running event loop.", "Call it from async code.") from None
        self._session = session
        self._loop = loop
        self._prompt = prompt
        self._follower = PromptFollower()
        self._followed = self._follower.follow(self._prompt.id)
        self._mode = parse_mode(mode) if mode else None
        self._callbacks = callbacks
        self._owns_session = owns_session
        self._client: Client | None = None
        self._messages: deque[Message] = deque()
        self._changed = asyncio.Event()
        self._task_started = self._aborted = False
        self._interrupted = False
        self._substitute_end: TurnEnded | None = None
        self._decisions: dict[str, asyncio.Task[None]] = {}
        self.session_id = ""
        self.total_usage = Usage()
        self.total_cost_usd = 0.0
        self.turn_count = 0
        self.exit_reason: ExitReason | None = None
        self.last_error: OdinError | None = None
        self.result: ResultMessage | None = None
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(lambda _: self._changed.set())
        session.track_query(self, self._task)
        self._watch_parent(asyncio.current_task())

    # --- public interface ---

    async def messages(self) -> AsyncIterator[Message]:
        """Yield every message once, in order; the last is the result. Unread messages are buffered."""
        while True:
            while self._messages:
                yield self._messages.popleft()
            if self._task.done():
                self._task.result()
                return
            self._changed.clear()
            await self._wait_or_abort(self._changed.wait())

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def wait(self) -> ResultMessage:
        """Wait for the result. Raise OdinError if the session could not be opened."""
        await self._wait_or_abort(asyncio.shield(self._task))
        assert self.result is not None
        return self.result

    def interrupt(self) -> CrossThreadResult:
        """Interrupt the run, from any thread. It ends with the reason `interrupted` and still has a result.

        The result is False if the run is already over. Queued prompts still run.
        """
        return CrossThreadResult(self._stop(), self._loop)

    async def _stop(self) -> bool:
        if self._task.done():
            return False
        self._interrupted = True
        if self._followed.turn and self._client is not None:
            await self._client.submit(Interrupt("keep"))
        return True

    async def abort(self) -> None:
        """Abort the run and wait for its end. Does nothing if it is already over."""
        self._mark_aborted()
        await asyncio.wait({self._task})

    async def rules(self) -> tuple[RuleLine, ...]:
        """Return the permission rules of the session."""
        return await self._session.rules()

    async def add_rule(self, text: str, action: RuleAction = "allow", scope: RememberScope = "session") -> None:
        await self._session.add_rule(text, action, scope)

    async def remove_rule(self, number: int) -> None:
        await self._session.remove_rule(number)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()

    # --- running ---

    async def _wait_or_abort(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            await self.abort()
            raise

    def _watch_parent(self, parent: "asyncio.Task[Any] | None") -> None:
        """Abort the run if the task that started it is cancelled."""
        if parent is None:
            return

        def follow(ended: "asyncio.Task[Any]") -> None:
            if ended.cancelled():
                self._mark_aborted()

        parent.add_done_callback(follow)
        self._task.add_done_callback(lambda _: parent.remove_done_callback(follow))

    def _mark_aborted(self) -> None:
        """Abort the task, but not before its first step: it could not produce a result then."""
        self._aborted = True
        if self._task_started:
            self._task.cancel()

    async def _run(self) -> None:
        self._task_started = True
        try:
            if not self._aborted:
                await self._run_turn()
        except asyncio.CancelledError:
            self._aborted = True
        except OdinError as error:
            self.exit_reason, self.last_error = "error", error
            await invoke_callback(self._callbacks.on_error, error)
            raise
        await self._ensure_result(StreamTranslator(_UNOPENED_INFO))

    async def _run_turn(self) -> None:
        """Follow the turn to its end. After a cancel, keep reading until the session has reported the end."""
        client = self._client = await self._session.open()
        info = await client.get_info()
        self.session_id = info.session
        translator = StreamTranslator(info, partial=self._session.include_partial)
        translator.agent_types = await list_agent_types(client)
        events = client.stream_events()
        reading = asyncio.get_running_loop().create_task(self._read_events(events, translator))
        try:
            options = {"mode": self._mode or info.mode, "output_schema": self._session.output_schema}
            await client.submit(msgspec.structs.replace(self._prompt, **options))
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            await self._cancel_turn(client)
            await reading
        finally:
            if self._owns_session:
                await client.close()
            reading.cancel()
            for task in self._decisions.values():
                task.cancel()
            close_events(events)
        await self._ensure_result(translator)

    async def _cancel_turn(self, client: Client) -> None:
        """Close an owned session; in a shared one only interrupt or drop this prompt."""
        if self._owns_session:
            await client.close()
            return
        await self._stop()
        if not self._followed.turn:
            await client.submit(DropPrompt(self._prompt.id))

    async def _ensure_result(self, translator: StreamTranslator) -> None:
        """Create a result for a run that was aborted before its turn started."""
        if self.result is None:
            ended = self._substitute_end or TurnEnded(self._prompt.id, "aborted")
            await self._handle_envelope(Envelope(-1, 0.0, self.session_id, ended), translator)

    async def _read_events(self, events: AsyncIterator[Envelope], translator: StreamTranslator) -> None:
        async for envelope in events:
            had_turn = bool(self._followed.turn)
            self._follower.apply(envelope)
            if self._followed.turn:
                if self._interrupted and not had_turn:
                    await self._stop()
                await self._handle_envelope(envelope, translator)
            elif self._followed.loss:
                aborted = self._aborted and self._followed.state == "dropped"
                self._substitute_end = TurnEnded(self._prompt.id, "aborted" if aborted else "interrupted")
                return
            if self.result is not None:
                return
        if not self._aborted:
            shutdown = AgentShutdown()
            self._substitute_end = TurnEnded(
                self._prompt.id, "aborted", error=str(shutdown), error_kind=shutdown.kind, hint=shutdown.hint
            )

    async def _handle_envelope(self, envelope: Envelope, translator: StreamTranslator) -> None:
        for raw in translator.translate(envelope):
            message = to_typed(raw)
            self._messages.append(message)
            self._changed.set()
            if isinstance(message, ResultMessage):
                self.result = message
        event = envelope.event
        if isinstance(event, AskEvent):
            self._decisions[event.ask_id] = asyncio.get_running_loop().create_task(self._decide(event, envelope.agent))
        elif isinstance(event, AnswerEvent):
            if task := self._decisions.pop(event.ask_id, None):
                task.cancel()
        elif isinstance(event, UsageRecorded):
            self.total_usage += event.usage
            self.total_cost_usd += event.cost_usd
            await invoke_callback(self._callbacks.on_usage, event)
        elif not envelope.agent:
            await self._handle_event(event)

    async def _handle_event(self, event: AnyEvent) -> None:
        calls = self._callbacks
        if isinstance(event, TextStreamed):
            await invoke_callback(calls.on_text_delta, event.text)
        elif isinstance(event, Replied):
            self.turn_count += 1
            for call in event.message.calls:
                await invoke_callback(calls.on_tool_call, call)
        elif isinstance(event, ToolEnded):
            await invoke_callback(calls.on_tool_result, event)
        elif isinstance(event, TurnEnded) and event.id in (self._followed.turn, self._prompt.id):
            await self._finish(event)

    async def _finish(self, ended: TurnEnded) -> None:
        self.exit_reason, self.turn_count = ended.reason, ended.steps
        if ended.reason == "end_turn":
            await invoke_callback(self._callbacks.on_complete, self.result)
        else:
            self.last_error = make_error(ended)
            await invoke_callback(self._callbacks.on_error, self.last_error)

    async def _decide(self, ask: AskEvent, agent: str) -> None:
        """Answer in a separate task: the reader must keep running to see when a request is answered elsewhere."""
        assert self._client is not None
        await self._client.submit(await decide(self._session.can_use_tool, ask, agent))


def make_error(ended: TurnEnded) -> OdinError:
    """Return the error that a turn ended with."""
    if ended.reason == "interrupted":
        return errors.Interrupted(describe_ending(ended))
    if ended.error_kind == AgentShutdown.__name__:
        return AgentShutdown()
    kind = getattr(errors, ended.error_kind, OdinError) if ended.error_kind else OdinError
    if ended.reason == "error" and issubclass(kind, errors.ProviderError):
        return kind(
            ended.error,
            ended.hint,
            status=ended.error_status,
            code=ended.error_code,
            type=ended.error_type,
            retry_after=ended.retry_after_s,
        )
    return OdinError(describe_ending(ended))


def _apply_permission_defaults(options: Options, can_use_tool: CanUseTool | None) -> Options:
    mode, permission_mode = split_plan_alias(options.mode, options.permission_mode)
    options = msgspec.structs.replace(options, mode=mode, permission_mode=permission_mode)
    if can_use_tool is not None:
        return msgspec.structs.replace(options, can_ask=True, commands_ask=options.commands_ask or "before")
    if not options.permission_mode and not options.yes:
        return msgspec.structs.replace(options, permission_mode="bypassPermissions")
    return options
