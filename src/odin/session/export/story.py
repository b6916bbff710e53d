"""The events of a session as what a reader wants to see: prompts, answers, calls with their results, and remarks."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from msgspec import Struct

from odin.core.event import (
    AgentEnded,
    AgentStarted,
    CallStatus,
    Compacted,
    ContextAdded,
    ContextSummarized,
    Envelope,
    LoopChanged,
    LoopPrompted,
    Mode,
    ModelChanged,
    PermissionAnswered,
    PermissionModeChanged,
    PromptInjected,
    QuestionsAnswered,
    Redone,
    Replied,
    ReplyDiscarded,
    RetryScheduled,
    Rewound,
    SessionOpened,
    SpawnFinished,
    SpawnStarted,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Image, Usage
from odin.core.redaction import Redact
from odin.session.export.overview import SessionOverview


class PromptEntry(Struct, frozen=True, tag="prompt"):
    """Something the user said. `number` is 0 when it joined a turn that was running."""

    number: int
    id: str
    text: str
    mode: Mode
    ts: float
    taken_back: bool = False
    continues: bool = False
    images: tuple[Image, ...] = ()


class AnswerEntry(Struct, frozen=True, tag="answer"):
    text: str
    thinking: str
    model: str
    ts: float
    agent: str = ""
    interrupted: bool = False


class CallEntry(Struct, frozen=True, tag="call"):
    """A call and what came of it. `view` is what people saw: a diff, a list."""

    id: str
    name: str
    title: str
    args: dict[str, Any]
    status: CallStatus
    text: str
    ts: float
    view: str = ""
    files: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    duration_ms: int = 0
    agent: str = ""


class TodosEntry(Struct, frozen=True, tag="todos"):
    todos: tuple[Todo, ...]
    ts: float
    agent: str = ""


class RemarkEntry(Struct, frozen=True, tag="remark"):
    """A line beside the conversation; `detail` is what can be unfolded."""

    text: str
    ts: float
    detail: str = ""
    agent: str = ""


class EndEntry(Struct, frozen=True, tag="end"):
    id: str
    reason: str
    usage: Usage
    cost_usd: float
    duration_ms: int
    ts: float
    error: str = ""
    agent: str = ""


TranscriptEntry = PromptEntry | AnswerEntry | CallEntry | TodosEntry | RemarkEntry | EndEntry


def build_entries(envelopes: Iterable[Envelope], about: SessionOverview, redact: Redact) -> Iterator[TranscriptEntry]:
    """One after the other, so that a long session is never held as a whole."""
    return _EntryBuilder(about, redact).build(envelopes)


class _EntryBuilder:
    def __init__(self, about: SessionOverview, redact: Redact) -> None:
        self._lines = {line.seq: line for line in about.turns}
        self._redact = redact
        self._open_calls: dict[str, tuple[dict[str, Any], str]] = {}
        self._number = 0

    def build(self, envelopes: Iterable[Envelope]) -> Iterator[TranscriptEntry]:
        for envelope in envelopes:
            event = envelope.event
            if isinstance(event, ToolStarted):
                self._open_calls[event.call_id] = (event.args, event.description)
            step = _ENTRY_HANDLERS.get(type(event))
            if step is not None:
                yield from step(self, event, envelope)

    def _redact_text(self, text: str) -> str:
        return self._redact(text).text if text else ""

    def _redact_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact_text(value)
        if isinstance(value, list | tuple):
            return [self._redact_value(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {
                self._redact_text(str(key)): self._redact_value(item)
                for key, item in cast("dict[Any, Any]", value).items()
            }
        return value

    def _make_remark(self, envelope: Envelope, text: str, detail: str = "") -> RemarkEntry:
        return RemarkEntry(self._redact_text(text), envelope.ts, self._redact_text(detail), envelope.agent)

    # One small step per kind of event that a reader wants to see.

    def _on_session_opened(self, event: SessionOpened, envelope: Envelope) -> Iterator[TranscriptEntry]:
        if event.resumed:
            yield self._make_remark(envelope, f"Resumed with {event.model}.")

    def _on_turn_started(self, event: TurnStarted, envelope: Envelope) -> Iterator[TranscriptEntry]:
        if envelope.agent:
            return
        self._number += 1
        self._open_calls.clear()
        line = self._lines.get(envelope.seq)
        back = line is not None and line.taken_back
        text = self._redact_text(event.display_text or event.text)
        images = self._filter_images(event.images)
        yield PromptEntry(self._number, event.id, text, event.mode, envelope.ts, back, event.continues, images)

    def _on_prompt_joined(self, event: PromptInjected, envelope: Envelope) -> Iterator[TranscriptEntry]:
        text, images = self._redact_text(event.display_text or event.text), self._filter_images(event.images)
        yield PromptEntry(0, event.id, text, event.mode, envelope.ts, images=images)

    def _filter_images(self, images: tuple[Image, ...]) -> tuple[Image, ...]:
        """Without those whose name or place has a secret in it."""
        return tuple(image for image in images if self._redact_text(whole := f"{image.path} {image.name}") == whole)

    def _on_replied(self, event: Replied, envelope: Envelope) -> Iterator[TranscriptEntry]:
        message = event.message
        for call in message.calls:
            self._open_calls[call.id] = (call.args, "")
        text, thinking = self._redact_text(message.text), self._redact_text(message.thinking)
        if text.strip() or thinking.strip():
            yield AnswerEntry(
                text, thinking, self._redact_text(message.model), envelope.ts, envelope.agent, message.interrupted
            )

    def _on_tool_ended(self, event: ToolEnded, envelope: Envelope) -> Iterator[TranscriptEntry]:
        args, title = self._open_calls.pop(event.call_id, ({}, ""))
        yield CallEntry(
            id=event.call_id,
            name=event.name,
            title=self._redact_text(title or event.note),
            args=self._redact_value(args),
            status=event.status,
            text=self._redact_text(event.text),
            ts=envelope.ts,
            view=self._redact_text(event.display or event.for_user),
            files=event.files,
            images=self._filter_images(event.images),
            duration_ms=event.duration_ms,
            agent=envelope.agent,
        )

    def _on_todos_changed(self, event: TodosChanged, envelope: Envelope) -> Iterator[TranscriptEntry]:
        yield TodosEntry(tuple(self._redact_todo(todo) for todo in event.todos), envelope.ts, envelope.agent)

    def _redact_todo(self, todo: Todo) -> Todo:
        return Todo(todo.id, self._redact_text(todo.content), todo.status)

    def _on_turn_ended(self, event: TurnEnded, envelope: Envelope) -> Iterator[TranscriptEntry]:
        yield EndEntry(
            id=event.id,
            reason=event.reason,
            usage=event.usage,
            cost_usd=event.cost_usd,
            duration_ms=event.duration_ms,
            ts=envelope.ts,
            error=self._redact_text(event.error),
            agent=envelope.agent,
        )

    def _on_context_added(self, event: ContextAdded, envelope: Envelope) -> Iterator[TranscriptEntry]:
        yield self._make_remark(envelope, f"{event.source}.", event.content)

    def _on_permission_answered(self, event: PermissionAnswered, envelope: Envelope) -> Iterator[TranscriptEntry]:
        verb = "Allowed" if event.allowed else "Not allowed"
        why = f": {event.reason}" if event.reason else "."
        yield self._make_remark(envelope, f"{verb} by {event.by}{why}")

    def _on_questions_answered(self, event: QuestionsAnswered, envelope: Envelope) -> Iterator[TranscriptEntry]:
        said = "; ".join(", ".join(answer) for answer in event.answers)
        yield self._make_remark(
            envelope, "The questions were not answered." if event.cancelled else f"Answered: {said}."
        )

    def _on_loop_changed(self, event: LoopChanged, envelope: Envelope) -> Iterator[TranscriptEntry]:
        """How it ended; the way there is told by its iterations."""
        if event.state in ("idle", "completed", "blocked", "budget_exhausted"):
            how = "off" if event.state == "idle" else event.state.replace("_", " ")
            yield self._make_remark(envelope, f"Loop mode: {how}{f'. {event.reason}' if event.reason else '.'}")

    def _on_plain_event(self, event: Any, envelope: Envelope) -> Iterator[TranscriptEntry]:
        text, detail = _SENTENCES[type(event)](event)
        yield self._make_remark(envelope, text, detail)


def _describe_spawn_end(event: SpawnFinished) -> str:
    return f"Background process {event.id} is over: {event.status} (exit code {event.code})."


_SENTENCES: dict[type, Callable[[Any], tuple[str, str]]] = {
    ModelChanged: lambda event: (f"The model is now {event.model}.", ""),
    PermissionModeChanged: lambda event: (f"The permission mode is now {event.mode}.", ""),
    ContextSummarized: lambda event: ("Collected context was condensed.", event.text),
    Compacted: lambda event: ("The older part of the conversation was summarised.", event.text),
    Rewound: lambda event: (f"Went back to before the prompt {event.turn}.", ""),
    Redone: lambda event: ("Went forward again.", ""),
    ReplyDiscarded: lambda event: (f"A reply was discarded: {event.reason}.", ""),
    RetryScheduled: lambda event: (f"Tried again ({event.attempt} of {event.attempts}): {event.error}", ""),
    SpawnStarted: lambda event: (f"Background process {event.id} began: {event.command}", ""),
    SpawnFinished: lambda event: (_describe_spawn_end(event), event.output),
    AgentStarted: lambda event: (f"Sub-agent {event.id} began.", event.task),
    AgentEnded: lambda event: (f"Sub-agent {event.id} is done: {event.reason}.", ""),
    LoopPrompted: lambda event: (f"Loop mode, iteration {event.iteration} of {event.limit}.", event.text),
}

_ENTRY_HANDLERS: dict[type, Callable[[_EntryBuilder, Any, Envelope], Iterator[TranscriptEntry]]] = {
    SessionOpened: _EntryBuilder._on_session_opened,
    TurnStarted: _EntryBuilder._on_turn_started,
    PromptInjected: _EntryBuilder._on_prompt_joined,
    Replied: _EntryBuilder._on_replied,
    ToolEnded: _EntryBuilder._on_tool_ended,
    TodosChanged: _EntryBuilder._on_todos_changed,
    TurnEnded: _EntryBuilder._on_turn_ended,
    ContextAdded: _EntryBuilder._on_context_added,
    PermissionAnswered: _EntryBuilder._on_permission_answered,
    QuestionsAnswered: _EntryBuilder._on_questions_answered,
    LoopChanged: _EntryBuilder._on_loop_changed,
    **dict.fromkeys(_SENTENCES, _EntryBuilder._on_plain_event),
}
