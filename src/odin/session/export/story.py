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
    LoopNoted,
    Mode,
    ModelChanged,
    PermissionAnswered,
    PermissionModeChanged,
    PromptJoined,
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
from odin.session.export.overview import Overview


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


Entry = PromptEntry | AnswerEntry | CallEntry | TodosEntry | RemarkEntry | EndEntry


def entries(envelopes: Iterable[Envelope], about: Overview, redact: Redact) -> Iterator[Entry]:
    """One after the other, so that a long session is never held as a whole."""
    return _Teller(about, redact).tell(envelopes)


class _Teller:
    def __init__(self, about: Overview, redact: Redact) -> None:
        self._lines = {line.seq: line for line in about.turns}
        self._redact = redact
        self._open: dict[str, tuple[dict[str, Any], str]] = {}
        self._number = 0

    def tell(self, envelopes: Iterable[Envelope]) -> Iterator[Entry]:
        for envelope in envelopes:
            event = envelope.event
            if isinstance(event, ToolStarted):
                self._open[event.call_id] = (event.args, event.description)
            step = _STEPS.get(type(event))
            if step is not None:
                yield from step(self, event, envelope)

    def _clean(self, text: str) -> str:
        return self._redact(text).text if text else ""

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._clean(value)
        if isinstance(value, list | tuple):
            return [self._cleaned(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {self._clean(str(key)): self._cleaned(item) for key, item in cast("dict[Any, Any]", value).items()}
        return value

    def _remark(self, envelope: Envelope, text: str, detail: str = "") -> RemarkEntry:
        return RemarkEntry(self._clean(text), envelope.ts, self._clean(detail), envelope.agent)

    # One small step per kind of event that a reader wants to see.

    def _opened(self, event: SessionOpened, envelope: Envelope) -> Iterator[Entry]:
        if event.resumed:
            yield self._remark(envelope, f"Resumed with {event.model}.")

    def _turn(self, event: TurnStarted, envelope: Envelope) -> Iterator[Entry]:
        if envelope.agent:
            return
        self._number += 1
        self._open.clear()
        line = self._lines.get(envelope.seq)
        back = line is not None and line.taken_back
        text = self._clean(event.shown or event.text)
        images = self._images(event.images)
        yield PromptEntry(self._number, event.id, text, event.mode, envelope.ts, back, event.continues, images)

    def _joined(self, event: PromptJoined, envelope: Envelope) -> Iterator[Entry]:
        text, images = self._clean(event.shown or event.text), self._images(event.images)
        yield PromptEntry(0, event.id, text, event.mode, envelope.ts, images=images)

    def _images(self, images: tuple[Image, ...]) -> tuple[Image, ...]:
        """Without those whose name or place has a secret in it."""
        return tuple(image for image in images if self._clean(whole := f"{image.path} {image.name}") == whole)

    def _replied(self, event: Replied, envelope: Envelope) -> Iterator[Entry]:
        message = event.message
        for call in message.calls:
            self._open[call.id] = (call.args, "")
        text, thinking = self._clean(message.text), self._clean(message.thinking)
        if text.strip() or thinking.strip():
            yield AnswerEntry(
                text, thinking, self._clean(message.model), envelope.ts, envelope.agent, message.interrupted
            )

    def _ended(self, event: ToolEnded, envelope: Envelope) -> Iterator[Entry]:
        args, title = self._open.pop(event.call_id, ({}, ""))
        yield CallEntry(
            id=event.call_id,
            name=event.name,
            title=self._clean(title or event.note),
            args=self._cleaned(args),
            status=event.status,
            text=self._clean(event.text),
            ts=envelope.ts,
            view=self._clean(event.view or event.for_user),
            files=event.files,
            images=self._images(event.images),
            duration_ms=event.duration_ms,
            agent=envelope.agent,
        )

    def _todos(self, event: TodosChanged, envelope: Envelope) -> Iterator[Entry]:
        yield TodosEntry(tuple(self._todo(todo) for todo in event.todos), envelope.ts, envelope.agent)

    def _todo(self, todo: Todo) -> Todo:
        return Todo(todo.id, self._clean(todo.content), todo.status)

    def _over(self, event: TurnEnded, envelope: Envelope) -> Iterator[Entry]:
        yield EndEntry(
            id=event.id,
            reason=event.reason,
            usage=event.usage,
            cost_usd=event.cost_usd,
            duration_ms=event.duration_ms,
            ts=envelope.ts,
            error=self._clean(event.error),
            agent=envelope.agent,
        )

    def _context(self, event: ContextAdded, envelope: Envelope) -> Iterator[Entry]:
        yield self._remark(envelope, f"{event.source}.", event.content)

    def _answered(self, event: PermissionAnswered, envelope: Envelope) -> Iterator[Entry]:
        verb = "Allowed" if event.allowed else "Not allowed"
        why = f": {event.reason}" if event.reason else "."
        yield self._remark(envelope, f"{verb} by {event.by}{why}")

    def _questions(self, event: QuestionsAnswered, envelope: Envelope) -> Iterator[Entry]:
        said = "; ".join(", ".join(answer) for answer in event.answers)
        yield self._remark(envelope, "The questions were not answered." if event.cancelled else f"Answered: {said}.")

    def _loop(self, event: LoopChanged, envelope: Envelope) -> Iterator[Entry]:
        """How it ended; the way there is told by its iterations."""
        if event.state in ("idle", "completed", "blocked", "budget_exhausted"):
            how = "off" if event.state == "idle" else event.state.replace("_", " ")
            yield self._remark(envelope, f"Loop mode: {how}{f'. {event.reason}' if event.reason else '.'}")

    def _plain(self, event: Any, envelope: Envelope) -> Iterator[Entry]:
        text, detail = _SENTENCES[type(event)](event)
        yield self._remark(envelope, text, detail)


def _spawn_over(event: SpawnFinished) -> str:
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
    SpawnFinished: lambda event: (_spawn_over(event), event.output),
    AgentStarted: lambda event: (f"Sub-agent {event.id} began.", event.task),
    AgentEnded: lambda event: (f"Sub-agent {event.id} is done: {event.reason}.", ""),
    LoopNoted: lambda event: (f"Loop mode, iteration {event.iteration} of {event.limit}.", event.text),
}

_STEPS: dict[type, Callable[[_Teller, Any, Envelope], Iterator[Entry]]] = {
    SessionOpened: _Teller._opened,
    TurnStarted: _Teller._turn,
    PromptJoined: _Teller._joined,
    Replied: _Teller._replied,
    ToolEnded: _Teller._ended,
    TodosChanged: _Teller._todos,
    TurnEnded: _Teller._over,
    ContextAdded: _Teller._context,
    PermissionAnswered: _Teller._answered,
    QuestionsAnswered: _Teller._questions,
    LoopChanged: _Teller._loop,
    **dict.fromkeys(_SENTENCES, _Teller._plain),
}
