"""The state of a session: a fold over its events and nothing else.

Any prefix of any log folds, and at every point the history it gives is one that every provider accepts: each tool call
is followed by exactly one result, in the order of the calls.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from odin.core.client import ContextItem, QueuedPrompt, Snapshot, SubAgentRecord, ToolUse, TurnRecord
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    CachedFile,
    ContextAdded,
    Envelope,
    ExitReason,
    FileCached,
    Mode,
    ModelChanged,
    Noted,
    PermissionModeChanged,
    PromptDropped,
    PromptQueued,
    Replied,
    ReplyDiscarded,
    SessionOpened,
    TitleSet,
    Todo,
    TodosChanged,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    Updated,
    UsageRecorded,
)
from odin.core.message import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult, Usage, UserMessage

INTERRUPTED = "Interrupted: this call did not finish, and what it changed before that is not known."


class Thread:
    """The conversation of one agent with its model."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._open: tuple[ToolCall, ...] = ()
        self._results: dict[str, ToolResult] = {}
        self._sealed = False

    def history(self) -> tuple[Message, ...]:
        if not self._open:
            return tuple(self._messages)
        return (*self._messages, self._tool_message())

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the newest reply that have no result yet."""
        return tuple(call for call in self._open if call.id not in self._results)

    def start(self, event: TurnStarted) -> None:
        self._close()
        self._messages.append(UserMessage(event.text, event.notes))
        self._sealed = False

    def reply(self, message: AssistantMessage) -> None:
        self._close()
        if not message.text.strip() and not message.calls:
            return
        self._messages.append(message)
        self._open = message.calls
        self._sealed = False

    def result(self, event: ToolEnded) -> None:
        if any(call.id == event.call_id for call in self._open) and event.call_id not in self._results:
            self._results[event.call_id] = ToolResult(event.call_id, event.text, event.status != "success")
            if len(self._results) == len(self._open):
                self._close()

    def note(self, text: str) -> None:
        """Tell the model something beside the newest message, or after it when that message has been sent already."""
        self._close()
        last = self._messages[-1] if self._messages else None
        if self._sealed or last is None or isinstance(last, AssistantMessage):
            self._messages.append(UserMessage(text))
        elif isinstance(last, UserMessage):
            self._messages[-1] = UserMessage(last.text, (*last.notes, text))
        else:
            self._messages[-1] = ToolMessage(last.results, (*last.notes, text))
        self._sealed = False

    def seal(self) -> None:
        self._sealed = True

    def _close(self) -> None:
        if self._open:
            self._messages.append(self._tool_message())
            self._open = ()
            self._results = {}

    def _tool_message(self) -> ToolMessage:
        return ToolMessage(
            tuple(self._results.get(call.id) or ToolResult(call.id, INTERRUPTED, True) for call in self._open)
        )


class _Turn:
    def __init__(self, event: TurnStarted) -> None:
        self.id = event.id
        self.body = event.text
        self.mode: Mode = event.mode
        self.answer = ""
        self.todos: tuple[Todo, ...] = ()
        self.tools: list[ToolUse] = []
        self.updates: list[str] = []
        self.reason: ExitReason | None = None

    def record(self) -> TurnRecord:
        return TurnRecord(
            self.id,
            self.body,
            self.mode,
            self.answer,
            self.todos,
            tuple(self.tools),
            tuple(self.updates),
            self.reason,
        )


class State:
    """Everything a front end or the engine may know of a session. Only `apply` changes it."""

    def __init__(self, session: str = "") -> None:
        self.session = session
        self.seq = -1
        self.cwd = ""
        self.model = ""
        self.title = ""
        self.mode: Mode = "edit_mode"
        self.permission_mode = "default"
        self.instructions = ""
        self.config: dict[str, Any] = {}
        self.usage = Usage()
        self.cost_usd = 0.0
        self.context_tokens = 0
        self.context_limit = 0
        self.executing = False
        self.todos: tuple[Todo, ...] = ()
        self.agent_count = 0
        self._threads: dict[str, Thread] = {}
        self._turns: list[_Turn] = []
        self._queue: dict[str, QueuedPrompt] = {}
        self._agents: dict[str, SubAgentRecord] = {}
        self._context: list[ContextItem] = []
        self._files: dict[str, CachedFile] = {}
        self._by_model: dict[str, Usage] = {}
        self._by_agent: dict[str, Usage] = {}

    @classmethod
    def fold(cls, envelopes: Iterable[Envelope], session: str = "") -> "State":
        state = cls(session)
        for envelope in envelopes:
            state.apply(envelope)
        return state

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if event.durable:
            self.seq = max(self.seq, envelope.seq)
        self.session = self.session or envelope.session
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event, envelope)

    def thread(self, agent: str = "") -> Thread:
        return self._threads.setdefault(agent, Thread())

    def history(self, agent: str = "") -> tuple[Message, ...]:
        """The messages to send to the model: a copy, valid for every provider."""
        return self.thread(agent).history()

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        return tuple(turn.record() for turn in self._turns)

    @property
    def turn_count(self) -> int:
        return len(self._turns)

    @property
    def queue(self) -> tuple[QueuedPrompt, ...]:
        return tuple(self._queue.values())

    @property
    def files(self) -> tuple[CachedFile, ...]:
        return tuple(self._files.values())

    def snapshot(self) -> Snapshot:
        return Snapshot(
            session=self.session,
            seq=self.seq,
            cwd=self.cwd,
            model=self.model,
            title=self.title or _first_line(self._turns[0].body if self._turns else ""),
            agent_mode=self.mode,
            permission_mode=self.permission_mode,
            executing=self.executing,
            messages=self.turns,
            queue=self.queue,
            sub_agents=tuple(self._agents.values()),
            context=tuple(self._context),
            custom_instructions=self.instructions,
            config=msgspec.to_builtins(self.config),
            files=self.files,
            todos=self.todos,
            usage=self.usage,
            cost_usd=self.cost_usd,
            usage_by_model=dict(self._by_model),
            usage_by_agent=dict(self._by_agent),
            context_tokens=self.context_tokens,
            context_limit=self.context_limit,
            message_count=len(self.history()) if self._turns else -1,
        )

    # One small step per kind of event.

    def _session_opened(self, event: SessionOpened, envelope: Envelope) -> None:
        self.cwd = event.cwd
        self.model = event.model
        self.instructions = event.instructions
        self.config = dict(event.config)
        self.executing = False
        self._agents.clear()
        self._queue.clear()

    def _turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        self.thread(envelope.agent).start(event)
        if envelope.agent:
            return
        self._queue.pop(event.id, None)
        self.executing = True
        self.mode = event.mode
        self._turns.append(_Turn(event))

    def _turn_ended(self, event: TurnEnded, envelope: Envelope) -> None:
        self.thread(envelope.agent)._close()
        if envelope.agent:
            return
        self.executing = False
        if self._turns:
            turn = self._turns[-1]
            turn.answer = event.text
            turn.reason = event.reason
            turn.updates.clear()

    def _replied(self, event: Replied, envelope: Envelope) -> None:
        self.thread(envelope.agent).reply(event.message)

    def _tool_ended(self, event: ToolEnded, envelope: Envelope) -> None:
        self.thread(envelope.agent).result(event)
        if self._turns and not envelope.agent:
            self._turns[-1].tools.append(ToolUse(event.name, event.files, event.note))

    def _noted(self, event: Noted, envelope: Envelope) -> None:
        self.thread(envelope.agent).note(event.text)

    def _reply_discarded(self, event: ReplyDiscarded, envelope: Envelope) -> None:
        self.thread(envelope.agent).seal()

    def _usage_recorded(self, event: UsageRecorded, envelope: Envelope) -> None:
        self.usage += event.usage
        self.cost_usd += event.cost_usd
        self._by_model[event.model] = self._by_model.get(event.model, Usage()) + event.usage
        self._by_agent[envelope.agent] = self._by_agent.get(envelope.agent, Usage()) + event.usage
        if event.purpose == "planner" and not envelope.agent:
            self.context_tokens = event.usage.total
            self.context_limit = event.context

    def _todos_changed(self, event: TodosChanged, envelope: Envelope) -> None:
        if envelope.agent:
            known = self._agents.get(envelope.agent)
            if known is not None:
                self._agents[envelope.agent] = SubAgentRecord(known.id, known.task, known.mode, event.todos)
            return
        self.todos = event.todos
        if self._turns:
            self._turns[-1].todos = event.todos

    def _updated(self, event: Updated, envelope: Envelope) -> None:
        if self._turns and self.executing and not envelope.agent:
            self._turns[-1].updates.append(event.text)

    def _prompt_queued(self, event: PromptQueued, envelope: Envelope) -> None:
        self._queue[event.id] = QueuedPrompt(event.id, event.text, event.mode, envelope.ts)

    def _prompt_dropped(self, event: PromptDropped, envelope: Envelope) -> None:
        self._queue.pop(event.id, None)

    def _context_added(self, event: ContextAdded, envelope: Envelope) -> None:
        self._context.append(ContextItem(event.content, event.path, event.command))

    def _file_cached(self, event: FileCached, envelope: Envelope) -> None:
        self._files[event.file.path] = event.file

    def _agent_started(self, event: AgentStarted, envelope: Envelope) -> None:
        self.agent_count += 1
        self._agents[event.id] = SubAgentRecord(event.id, event.task, event.mode)

    def _agent_ended(self, event: AgentEnded, envelope: Envelope) -> None:
        self._agents.pop(event.id, None)

    def _title_set(self, event: TitleSet, envelope: Envelope) -> None:
        self.title = event.title

    def _model_changed(self, event: ModelChanged, envelope: Envelope) -> None:
        self.model = event.model

    def _permission_mode_changed(self, event: PermissionModeChanged, envelope: Envelope) -> None:
        self.permission_mode = event.mode


_STEPS: dict[type[AnyEvent], Callable[[State, Any, Envelope], None]] = {
    SessionOpened: State._session_opened,
    TurnStarted: State._turn_started,
    TurnEnded: State._turn_ended,
    Replied: State._replied,
    ToolEnded: State._tool_ended,
    Noted: State._noted,
    ReplyDiscarded: State._reply_discarded,
    UsageRecorded: State._usage_recorded,
    TodosChanged: State._todos_changed,
    Updated: State._updated,
    PromptQueued: State._prompt_queued,
    PromptDropped: State._prompt_dropped,
    ContextAdded: State._context_added,
    FileCached: State._file_cached,
    AgentStarted: State._agent_started,
    AgentEnded: State._agent_ended,
    TitleSet: State._title_set,
    ModelChanged: State._model_changed,
    PermissionModeChanged: State._permission_mode_changed,
}


def _first_line(text: str, limit: int = 60) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= limit else line[: limit - 1] + "…"
