"""A session as an overview and a stream of transcript entries, which the Markdown, HTML and JSON exports write.

An export reads the log twice: once for the overview, once to write the entries one by one, so that a long session is
never held in memory. All text of the session is redacted on the way.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from odin.core.call_events import (
    PermissionAnswered,
    QuestionsAnswered,
    Replied,
    ReplyDiscarded,
    RetryScheduled,
    SkillUsed,
    SpawnFinished,
    SpawnStarted,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    ChecksRan,
    Compacted,
    ContextAdded,
    ContextSummarized,
    EffortChanged,
    Envelope,
    LoopChanged,
    LoopPrompted,
    ModelChanged,
    PermissionModeChanged,
    PromptInjected,
    Redone,
    Rewound,
    RoleChanged,
    RootAdded,
    RootRemoved,
    ServersToggled,
    SessionOpened,
    SystemPromptChanged,
    TitleSet,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import CallStatus, ExitReason, Mode, Todo
from odin.core.format import format_usd
from odin.core.message import Image, Usage
from odin.core.policy import Redact
from odin.core.team import MailSent, TaskChanged, TaskCreated
from odin.core.timeline import LoggedTurn, follow_turns, get_source

_FIRST_CHARS = 200


class TurnLine(Struct):
    """The summary of one turn. `seq` is the number of its TurnStarted event; `first` is the start of the prompt."""

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
    rewound: bool = False


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
        """The title, or the start of the first prompt."""
        return self.title or (self.turns[0].first if self.turns else "") or f"Session {self.session}"


def build_overview(envelopes: Iterable[Envelope]) -> SessionOverview:
    overview = SessionOverview()
    timeline = follow_turns()
    turns: list[LoggedTurn[None]] = []
    for envelope in envelopes:
        event = envelope.event
        overview.session = envelope.session or overview.session
        overview.created = overview.created or envelope.ts
        overview.modified = envelope.ts
        match event:
            case SessionOpened():
                overview.cwd, overview.model, overview.version = event.cwd, event.model, event.version
            case TitleSet():
                overview.title = event.title
            case ModelChanged() if not envelope.agent:
                overview.model = event.model
            case UsageRecorded():
                overview.usage += event.usage
                overview.cost_usd += event.cost_usd
                by_model = overview.usage_by_model
                by_model[event.model] = by_model.get(event.model, Usage()) + event.usage
            case _:
                pass
        if not envelope.agent:
            changed = timeline.apply(envelope)
            if isinstance(event, TurnStarted) and get_source(event) != "mail":
                turns += changed
                first = " ".join(turns[-1].body.split())[:_FIRST_CHARS]
                overview.turns.append(TurnLine(envelope.seq, event.id, event.mode, first, envelope.ts))
            elif isinstance(event, TurnEnded):
                line = next((line for line in reversed(overview.turns) if line.id == event.id), None)
                if line is not None:
                    line.reason, line.steps, line.usage = event.reason, event.steps, event.usage
                    line.cost_usd, line.duration_ms = event.cost_usd, event.duration_ms
    for turn, line in zip(turns, overview.turns, strict=True):
        line.rewound = turn.status != "current"
    return overview


class PromptEntry(Struct, frozen=True, tag="prompt"):
    """A prompt. `number` is 0 if it was injected into a running turn."""

    number: int
    id: str
    text: str
    mode: Mode
    ts: float
    rewound: bool = False
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
    """A tool call with its result. `view` is what the user saw, such as a diff."""

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
    """A line that is not part of the conversation; `detail` can be unfolded."""

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


def build_entries(
    envelopes: Iterable[Envelope], overview: SessionOverview, redact: Redact
) -> Iterator[TranscriptEntry]:
    """Yield the entries one by one, so that a long session is never held in memory."""
    builder = _EntryBuilder(overview, redact)
    for envelope in envelopes:
        entry = builder.build_entry(envelope)
        if entry is not None:
            yield entry


class _EntryBuilder:
    def __init__(self, overview: SessionOverview, redact: Redact) -> None:
        self._turns = {turn.seq: turn for turn in overview.turns}
        self._redact = redact
        self._open_calls: dict[str, tuple[dict[str, Any], str]] = {}
        self._number = 0

    def build_entry(self, envelope: Envelope) -> TranscriptEntry | None:
        event, ts, agent = envelope.event, envelope.ts, envelope.agent
        match event:
            case TurnStarted():
                return self._build_prompt(event, envelope)
            case PromptInjected():
                text = self._redact_text(event.body)
                images = self._filter_images(event.images)
                return PromptEntry(0, event.id, text, event.mode, ts, images=images)
            case Replied():
                return self._build_answer(event, envelope)
            case ToolStarted():
                self._open_calls[event.call_id] = (event.args, event.description)
                return None
            case ToolEnded():
                args, title = self._open_calls.pop(event.call_id, ({}, ""))
                return CallEntry(
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
            case TodosChanged():
                return TodosEntry(tuple(self._redact_todo(todo) for todo in event.todos), ts, agent)
            case TurnEnded():
                return EndEntry(
                    id=event.id,
                    reason=event.reason,
                    usage=event.usage,
                    cost_usd=event.cost_usd,
                    duration_ms=event.duration_ms,
                    ts=envelope.ts,
                    error=self._redact_text(event.error),
                    agent=envelope.agent,
                )
            case _:
                text, detail = _describe_event(event)
                return RemarkEntry(self._redact_text(text), ts, self._redact_text(detail), agent) if text else None

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

    def _build_prompt(self, event: TurnStarted, envelope: Envelope) -> PromptEntry | RemarkEntry | None:
        if envelope.agent:
            return None
        self._open_calls.clear()
        text = self._redact_text(event.body)
        if get_source(event) == "mail":
            head, _, rest = text.partition("\n")
            return RemarkEntry(f"Mail: {head.rstrip(':')}", envelope.ts, rest)
        self._number += 1
        turn = self._turns.get(envelope.seq)
        rewound = turn is not None and turn.rewound
        images = self._filter_images(event.images)
        return PromptEntry(self._number, event.id, text, event.mode, envelope.ts, rewound, event.continues, images)

    def _filter_images(self, images: tuple[Image, ...]) -> tuple[Image, ...]:
        """Leave out images whose name or path contains a secret."""
        return tuple(image for image in images if self._redact_text(whole := f"{image.path} {image.name}") == whole)

    def _build_answer(self, event: Replied, envelope: Envelope) -> AnswerEntry | None:
        message = event.message
        for call in message.calls:
            self._open_calls[call.id] = (call.args, "")
        text, thinking = self._redact_text(message.text), self._redact_text(message.thinking)
        if not text.strip() and not thinking.strip():
            return None
        model = self._redact_text(message.model)
        return AnswerEntry(text, thinking, model, envelope.ts, envelope.agent, message.interrupted)

    def _redact_todo(self, todo: Todo) -> Todo:
        return Todo(todo.id, self._redact_text(todo.content), todo.status)


def _describe_event(event: AnyEvent) -> tuple[str, str]:
    """The text and detail of a remark; empty for events that an export does not show."""
    match event:
        case SessionOpened() if event.resumed:
            return f"Resumed with {event.model}.", ""
        case SkillUsed():
            return f"Used the skill {event.name}.", ""
        case PermissionAnswered():
            reason = f": {event.reason}" if event.reason else "."
            by = f"{event.by} from {event.client}" if event.client else event.by
            return f"{'Allowed' if event.allowed else 'Denied'} by {by}{reason}", ""
        case QuestionsAnswered():
            answers = "; ".join(", ".join(answer) for answer in event.answers)
            return "The questions were not answered." if event.cancelled else f"Answered: {answers}.", ""
        case ContextAdded():
            return f"{event.source}.", event.content
        case ContextSummarized():
            return "Collected context was summarized.", event.text
        case Compacted():
            return "The older part of the conversation was summarized.", event.text
        case Rewound():
            return f"Rewound to before prompt {event.turn}.", ""
        case Redone():
            return "The rewind was undone.", ""
        case ReplyDiscarded():
            return f"A reply was discarded: {event.reason}.", ""
        case RetryScheduled():
            return f"Retry {event.number}: {event.error}", ""
        case SpawnStarted():
            return f"Background process {event.id} started: {event.command}", ""
        case SpawnFinished():
            return f"Background process {event.id} ended: {event.status} (exit code {event.code}).", event.output
        case AgentStarted():
            return f"Sub-agent {event.id} started.", event.task
        case AgentEnded():
            return f"Sub-agent {event.id} ended: {event.reason}.", ""
        case TaskCreated():
            return f"Task {event.id} was given to a sub-agent of type {event.agent_type}.", event.description
        case TaskChanged() if event.state != "running":
            state = event.state.replace("_", " ")
            return f"Task {event.id}: {state}.", event.mail.text if event.mail else event.reason
        case MailSent():
            return f"Mail from {event.sender or 'main'} to {event.recipient or 'main'} ({event.kind}).", event.text
        case ChecksRan():
            checks = event.verification.checks
            return "Odin ran the checks. " + "; ".join(f"{item.command}: {item.outcome}" for item in checks), ""
        case LoopPrompted():
            return f"Loop mode, iteration {event.iteration} of {event.limit}.", event.text
        case LoopChanged() if event.state in ("idle", "completed", "blocked", "budget_exhausted"):
            state = "off" if event.state == "idle" else event.state.replace("_", " ")
            return f"Loop mode: {state}{f'. {event.reason}' if event.reason else '.'}", ""
        case _:
            return _describe_setting(event)


def _describe_setting(event: AnyEvent) -> tuple[str, str]:
    """The text and detail of a remark about a setting that changed; empty for other events."""
    match event:
        case ModelChanged():
            return f"Model: {event.model}.", ""
        case EffortChanged():
            return f"Effort: {event.effort or 'default'}.", ""
        case SystemPromptChanged():
            return f"System prompt: {'the usual one' if event.text is None else 'replaced'}.", event.text or ""
        case ToolsChanged():
            return f"Tools: {'the usual ones' if event.tools is None else ', '.join(event.tools) or 'none'}.", ""
        case PermissionModeChanged():
            return f"Permission mode: {event.mode}.", ""
        case RootAdded():
            return f"Folder {event.root.path}: {event.root.describe()}.", ""
        case RootRemoved():
            return f"Folder removed: {event.path}.", ""
        case RoleChanged():
            return f"Role: {event.role}.", ""
        case ServersToggled():
            return f"MCP servers {'enabled' if event.enabled else 'disabled'}: {', '.join(event.names)}.", ""
        case _:
            return "", ""


_CONTROL_CODES = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[\x00-\x08\x0b-\x1f\x7f]")


def strip_control_codes(text: str) -> str:
    """Remove terminal escape sequences and other control characters."""
    return _CONTROL_CODES.sub("", text.replace("\r\n", "\n"))


def get_image_name(image: Image) -> str:
    return image.name or image.path.rpartition("/")[2]


def format_tokens(usage: Usage) -> str:
    parts = [f"{usage.input + usage.cache_read + usage.cache_write:,} tokens in", f"{usage.output:,} out"]
    if usage.cache_read:
        parts.append(f"{usage.cache_read:,} of the input cached")
    if usage.reasoning:
        parts.append(f"{usage.reasoning:,} reasoning")
    return ", ".join(parts)


def format_duration(ms: int) -> str:
    return f"{ms / 1000:.1f} s" if ms >= 100 else f"{ms} ms"


def describe_end(entry: EndEntry) -> str:
    """One line with reason, error, duration, tokens and cost of a turn."""
    facts = [] if entry.reason == "end_turn" else [f"ended: {entry.reason}"]
    if entry.error:
        facts.append(entry.error)
    facts.append(format_duration(entry.duration_ms))
    if entry.usage.total:
        facts.append(format_tokens(entry.usage))
    if entry.cost_usd:
        facts.append(format_usd(entry.cost_usd))
    return " · ".join(facts)


def get_language(view: str) -> str:
    """The language for syntax highlighting: "diff" or ""."""
    return "diff" if view.startswith(("--- ", "@@ ", "diff ")) or "\n@@ " in view[:2000] else ""


EXPORT_VERSION = 1


def write_json(
    overview: SessionOverview, entries: Iterable[TranscriptEntry], mark: str, write: Callable[[str], None]
) -> None:
    """Write the document entry by entry. `mark` opens the object and identifies the file as an export."""
    fields = msgspec.to_builtins(overview)
    fields["prompts"] = fields.pop("turns")
    head = msgspec.json.encode(fields).decode()
    write(f"{mark}{head[1:-1]},\n")
    write('"messages":[')
    separator = "\n"
    for entry in entries:
        write(separator + msgspec.json.encode(entry).decode())
        separator = ",\n"
    write("\n]}\n")
