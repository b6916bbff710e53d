"""What a whole session comes to, told in one pass: its title, its prompts, its usage, and what was taken back.

The events of a session as what a reader wants to see: prompts, answers, calls with their results, and remarks.

Numbers and moments as every export writes them.

A session as one JSON document: what it is, its prompts, its messages in order, and its usage.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from odin.core.errors import PromptBlocked
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    CallStatus,
    Compacted,
    ContextAdded,
    ContextSummarized,
    Envelope,
    ExitReason,
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
    TitleSet,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
from odin.core.message import Image, Usage
from odin.core.policy import Redact

_FIRST_CHARS = 200


class TurnLine(Struct):
    """One prompt in a line. `seq` is the number of the event that began it; `first` how its text begins."""

    seq: int
    id: str
    mode: Mode
    first: str
    started: float
    reason: ExitReason | None = None
    steps: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    duration_ms: int = 0
    taken_back: bool = False


class SessionOverview(Struct):
    session: str = ""
    title: str = ""
    cwd: str = ""
    model: str = ""
    version: str = ""
    created: float = 0.0
    modified: float = 0.0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    usage_by_model: dict[str, Usage] = field(default_factory=dict[str, Usage])
    turns: list[TurnLine] = field(default_factory=list[TurnLine])

    @property
    def name(self) -> str:
        """The title, or what was said first."""
        return self.title or (self.turns[0].first if self.turns else "") or f"Session {self.session}"


def build_overview(envelopes: Iterable[Envelope]) -> SessionOverview:
    found = SessionOverview()
    told = _RewindTracker(found.turns)
    for envelope in envelopes:
        event = envelope.event
        found.session = envelope.session or found.session
        found.created = found.created or envelope.ts
        found.modified = envelope.ts
        if isinstance(event, SessionOpened):
            found.cwd, found.model, found.version = event.cwd, event.model, event.version
        elif isinstance(event, TitleSet):
            found.title = event.title
        elif isinstance(event, ModelChanged):
            found.model = event.model
        elif isinstance(event, UsageRecorded):
            _add_usage(found, event)
        elif not envelope.agent:
            told.apply(envelope)
    return found


def _add_usage(found: SessionOverview, event: UsageRecorded) -> None:
    found.usage += event.usage
    found.cost_usd += event.cost_usd
    found.usage_by_model[event.model] = found.usage_by_model.get(event.model, Usage()) + event.usage


class _RewindTracker:
    """Which prompts are part of the conversation, and which were taken back."""

    def __init__(self, turns: list[TurnLine]) -> None:
        self._turns = turns
        self._undone: list[list[TurnLine]] = []

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, TurnStarted):
            first = " ".join((event.display_text or event.text).split())[:_FIRST_CHARS]
            self._turns.append(TurnLine(envelope.seq, event.id, event.mode, first, envelope.ts))
            self._undone.clear()
        elif isinstance(event, TurnEnded):
            self._on_turn_ended(event)
        elif isinstance(event, Rewound):
            self._undone.append(self._mark_rewound(event) if event.chat else [])
        elif isinstance(event, Redone) and self._undone:
            for turn in self._undone.pop():
                turn.taken_back = False

    def _on_turn_ended(self, event: TurnEnded) -> None:
        turn = next((turn for turn in reversed(self._turns) if turn.id == event.id), None)
        if turn is not None:
            turn.reason, turn.steps, turn.usage = event.reason, event.steps, event.usage
            turn.cost_usd, turn.duration_ms = event.cost_usd, event.duration_ms
            turn.taken_back = event.error_kind == PromptBlocked.__name__

    def _mark_rewound(self, event: Rewound) -> list[TurnLine]:
        there = [turn for turn in self._turns if not turn.taken_back]
        at = [number for number, turn in enumerate(there) if turn.id == event.turn]
        gone = there[at[-1] :] if at else []
        for turn in gone:
            turn.taken_back = True
        return gone


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


_CONTROL_CODES = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[\x00-\x08\x0b-\x1f\x7f]")


def strip_control_codes(text: str) -> str:
    """Without what would steer a terminal or has no picture."""
    return _CONTROL_CODES.sub("", text.replace("\r\n", "\n"))


def image_name_of(image: Image) -> str:
    """What people call a picture."""
    return image.name or image.path.rpartition("/")[2]


def format_time(ts: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(ts))


def format_tokens(usage: Usage) -> str:
    parts = [f"{usage.input + usage.cache_read + usage.cache_write:,} tokens in", f"{usage.output:,} out"]
    if usage.cache_read:
        parts.append(f"{usage.cache_read:,} of the input cached")
    if usage.reasoning:
        parts.append(f"{usage.reasoning:,} reasoning")
    return ", ".join(parts)


def format_dollars(cost: float) -> str:
    return f"${cost:.4f}" if cost < 1 else f"${cost:.2f}"


def format_duration(ms: int) -> str:
    return f"{ms / 1000:.1f} s" if ms >= 100 else f"{ms} ms"


def describe_end(entry: EndEntry) -> str:
    """One line for the end of a turn."""
    facts = [] if entry.reason == "end_turn" else [f"ended: {entry.reason}"]
    if entry.error:
        facts.append(entry.error)
    facts.append(format_duration(entry.duration_ms))
    if entry.usage.total:
        facts.append(format_tokens(entry.usage))
    if entry.cost_usd:
        facts.append(format_dollars(entry.cost_usd))
    return " · ".join(facts)


def language_of(name: str, view: str) -> str:
    """What a view is written in, for whoever colours it."""
    return "diff" if view.startswith(("--- ", "@@ ", "diff ")) or "\n@@ " in view[:2000] else ""


EXPORT_VERSION = 1


def write_json(
    overview: SessionOverview, entries: Iterable[TranscriptEntry], mark: str, write: Callable[[str], None]
) -> None:
    """`mark` begins the document and says whose it is. Messages are written one by one."""
    facts = msgspec.to_builtins(overview)
    facts["prompts"] = facts.pop("turns")
    head = msgspec.json.encode(facts).decode()
    write(f"{mark}{head[1:-1]},\n")
    write('"messages":[')
    between = "\n"
    for entry in entries:
        write(between + msgspec.json.encode(entry).decode())
        between = ",\n"
    write("\n]}\n")
