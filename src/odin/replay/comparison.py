"""Compares a recorded with a replayed log: calls, results, files, todos and turn ends, each in order.

What differs in every run (times, process ids, temporary names) is normalized first.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from odin.checkpoints.file_state import UNHASHED_PREFIX
from odin.core.call_events import (
    PermissionAnswered,
    PermissionAsked,
    QuestionsAnswered,
    Replied,
    ReplyDiscarded,
    RetryScheduled,
    TodosChanged,
    ToolEnded,
    ToolStarted,
)
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    Compacted,
    ContextSummarized,
    Envelope,
    FilesChanged,
    MessageRemoved,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    Redone,
    Rewound,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import FileChange
from odin.core.timeline import get_source


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """`seq` is the number of the recorded event. An empty side means that the event did not happen there."""

    seq: int
    what: str
    recorded: str = ""
    replayed: str = ""
    prompt: int = 0


class ReplayFact(NamedTuple):
    """A comparable event. Order matters only among facts of the same stream."""

    stream: str
    what: str
    value: str
    seq: int
    prompt: int
    turn: str


_VOLATILE_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
        (r"\n\nErrors found by language servers after this change:\n[\s\S]*", ""),
        (r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z| ?[+-]\d\d:?\d\d)?", "<time>"),
        (r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +)?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2}"
         r"(?: +\d\d:\d\d(?::\d\d)?(?: \d{4})?| +\d{4})?", "<time>"),
        (r"\b\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?\b", "<time>"),
        (r"\b\d+(?:\.\d+)? ?(?:ms|s|sec|secs|seconds?|min|minutes?|us|\u00b5s)\b", "<duration>"),
        (r"\b(?:pid|PID|process group|process)[ =:]*\d+", "<process>"),
        (r"0x[0-9a-fA-F]{6,}", "<address>"),
        (r"/(?:tmp|var/tmp|dev/shm)/[\w.+-]+", "<temporary>"),
        (r"\b(?:result|output|command)-[0-9a-f]{8,}\b", "<name>"),
        (r"\b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b", "<hash>"),
    )
)  # fmt: skip


def normalize(text: str) -> str:
    for pattern, put in _VOLATILE_PATTERNS:
        text = pattern.sub(put, text)
    return text


def compare_logs(
    recorded: Iterable[Envelope],
    replayed: Iterable[Envelope],
    move: Callable[[str], str],
    *,
    cut_turns: Iterable[str] = (),
    skipped: Iterable[str] = (),
) -> list[Difference]:
    """The differences in the order of the recording. `move` maps paths of both sides to the same names.

    Additional events in `cut_turns`, whose end is not recorded, are no difference. The calls in `skipped` were not
    made, so they changed no files.
    """
    skipped, cut_turns = frozenset(skipped), frozenset(cut_turns)
    then, now = (list(_extract_facts(list(side), move, skipped)) for side in (recorded, replayed))
    differences: list[Difference] = []
    streams: dict[str, deque[ReplayFact]] = {}
    for fact in now:
        streams.setdefault(fact.stream, deque()).append(fact)
    broken: set[str] = set()
    for fact in then:
        replayed_facts = streams.get(fact.stream)
        match = replayed_facts.popleft() if replayed_facts else None
        if fact.stream in broken:
            continue
        if match is None or match.what != fact.what:
            broken.add(fact.stream)
            shown = f"{match.what}: {match.value}" if match is not None else ""
            differences.append(Difference(fact.seq, fact.what, fact.value, shown, fact.prompt))
        elif match.value != fact.value:
            differences.append(Difference(fact.seq, fact.what, fact.value, match.value, fact.prompt))
    last = then[-1].seq if then else 0
    for stream, more in streams.items():
        if more and stream not in broken and more[0].turn not in cut_turns and not stream.startswith("asked"):
            differences.append(Difference(last + 1, more[0].what, "", more[0].value, more[0].prompt))
    return sorted(differences, key=lambda difference: difference.seq)


def _extract_facts(
    envelopes: list[Envelope], move: Callable[[str], str], skipped: frozenset[str]
) -> Iterator[ReplayFact]:
    """Yield the facts of one log.

    Files of cancelled calls are ignored, and what they printed if they had started: how far such a call got is chance.
    So are the files of commands beside which other agents ran commands.
    """
    prompt, turn = 0, ""
    ignored = set(skipped)
    started: set[str] = set()
    for event in (item.event for item in envelopes):
        if isinstance(event, ToolStarted):
            started.add(event.call_id)
        if (isinstance(event, ToolEnded) and event.status == "cancelled") or (
            isinstance(event, FilesChanged) and (event.more or event.shared_with)
        ):
            ignored.add(event.call_id)
    for item in envelopes:
        event = item.event
        if isinstance(event, TurnStarted) and not item.agent:
            prompt, turn = prompt + (get_source(event) != "mail"), event.id
        if isinstance(event, FilesChanged) and (event.concurrent or event.call_id in ignored):
            continue
        if isinstance(event, ToolEnded) and event.status == "cancelled" and event.call_id in started:
            event = msgspec.structs.replace(event, text="")
        for stream, what, value in _describe(event, item.agent):
            exact = isinstance(event, FilesChanged | Rewound | Redone)
            shown = move(value) if exact else normalize(move(value))
            yield ReplayFact(stream, what, shown, item.seq, prompt, turn)


def _describe(event: AnyEvent, agent: str) -> Iterator[tuple[str, str, str]]:
    """Yield stream, name and value of each fact of an event."""
    turns, of_agent = f"turns {agent}", f" of {agent}" if agent else ""
    match event:
        case TurnStarted():
            yield turns, f"prompt{of_agent}", f"{event.mode}: {event.text}"
        case TurnEnded():
            kind = f" ({event.error_kind})" if event.error_kind else ""
            yield turns, f"end of the turn{of_agent}", f"{event.reason}{kind}: {event.text}"
        case Replied():
            calls = "".join(f"\n{call.id} {call.name} {_encode_json(call.args)}" for call in event.message.calls)
            yield turns, f"reply{of_agent}", f"{event.message.text}{calls}"
        case ToolStarted():
            yield f"call {event.call_id}", f"call {event.call_id}", f"{event.name} {_encode_json(event.args)}"
        case ToolEnded():
            yield turns, f"call {event.call_id}", f"{event.name}: {event.status}"
            yield f"call {event.call_id}", f"result of {event.name} ({event.call_id})", f"{event.status}\n{event.text}"
        case FilesChanged() if event.changes:  # only some ways of running a command record that nothing changed
            yield f"files {event.call_id}", f"files changed by call {event.call_id}", _format_changes(event.changes)
        case PermissionAsked():
            yield f"asked {event.call_id}", f"request for call {event.call_id}", f"{event.name}: {event.subject}"
        case PermissionAnswered():
            yield f"asked {event.call_id}", f"answer about call {event.call_id}", "yes" if event.allowed else "no"
        case QuestionsAnswered():
            yield f"asked {event.call_id}", f"answers to call {event.call_id}", _encode_json(event.answers)
        case TodosChanged():
            yield turns, "todos", "\n".join(f"{todo.status}: {todo.content}" for todo in event.todos)
        case PromptQueued() | PromptChanged() | PromptInjected() | PromptDropped():
            value = "" if isinstance(event, PromptDropped) else f"{event.mode}: {event.text}"
            yield f"queue {event.id}", f"{type(event).__name__} {event.id}", value
        case Rewound() | Redone():
            skipped = "".join(f"\nskipped: {file.path}" for file in event.skipped_files)
            yield "turns ", type(event).__name__, f"{_format_changes(event.changes)}{skipped}"
        case AgentStarted():
            yield f"turns {event.id}", f"sub-agent {event.id}", f"{event.mode}: {event.task}"
        case AgentEnded():
            yield f"turns {event.id}", f"end of sub-agent {event.id}", event.reason
        case ReplyDiscarded():
            yield turns, "discarded reply", event.reason
        case RetryScheduled():
            yield turns, "retry", event.error_kind
        case Compacted() if event.trigger == "manual":  # automatic ones depend on the length of the scratch path
            yield f"summaries {agent}", "summary of the conversation", "requested by the user"
        case ContextSummarized():
            yield turns, "summary of the context", event.text
        case MessageRemoved():
            yield turns, "message removed", ""
        case _:
            pass


def _format_changes(changes: Iterable[FileChange]) -> str:
    lines: list[str] = []
    for change in changes:
        after = change.after
        sha256 = "" if after.sha256.startswith(UNHASHED_PREFIX) else f" sha256:{after.sha256}"
        runs = " executable" if after.kind == "file" and after.mode & 0o100 else ""
        lines.append(f"{after.path} {after.kind}{sha256}{runs} {after.target}".rstrip())
    return "\n".join(sorted(lines)) or "none"


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
