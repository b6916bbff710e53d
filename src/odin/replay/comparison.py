"""Whether the same things happened: calls, results, files, todos, endings, each in its order.

What differs from run to run whatever anybody does (times, process ids, temporary names) is taken out first.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from odin.checkpoints.file_state import UNHASHED_PREFIX
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    Compacted,
    ContextSummarized,
    Envelope,
    FileChange,
    FilesChanged,
    MessageRemoved,
    PermissionAnswered,
    PermissionAsked,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    QuestionsAnswered,
    Redone,
    Replied,
    ReplyDiscarded,
    RetryScheduled,
    Rewound,
    SessionOpened,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """`seq` is the number of the recorded event. What is empty did not happen on that side."""

    seq: int
    what: str
    recorded: str = ""
    replayed: str = ""
    prompt: int = 0


class ReplayFact(msgspec.Struct, frozen=True):
    """One thing that happened, in the stream of things whose order matters among themselves."""

    stream: str
    what: str
    value: str
    seq: int
    prompt: int
    turn: str


_VOLATILE_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
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
    """What is different, in the order of the recording. `move` gives paths one name on both sides.

    Of the turns in `cut`, whose end is not recorded, what the replay has more is no difference. The calls in `left_out`
    were not made, so they left no files.
    """
    spared = frozenset(skipped)
    then, now = (list(_extract_facts(list(side), move, spared)) for side in (recorded, replayed))
    found = list(_find_differences(then, now, frozenset(cut_turns)))
    return sorted(found, key=lambda difference: difference.seq)


def _find_differences(then: list[ReplayFact], now: list[ReplayFact], cut_turns: frozenset[str]) -> Iterator[Difference]:
    streams: dict[str, list[ReplayFact]] = {}
    for fact in now:
        streams.setdefault(fact.stream, []).append(fact)
    at: dict[str, int] = {}
    broken: set[str] = set()
    for fact in then:
        number = at.get(fact.stream, 0)
        at[fact.stream] = number + 1
        other = streams.get(fact.stream, [])
        if fact.stream in broken:
            continue
        match = other[number] if number < len(other) else None
        if match is None or match.what != fact.what:
            broken.add(fact.stream)
            yield Difference(fact.seq, fact.what, fact.value, _format_fact(match), fact.prompt)
        elif match.value != fact.value:
            yield Difference(fact.seq, fact.what, fact.value, match.value, fact.prompt)
    last = then[-1].seq if then else 0
    for stream, facts in streams.items():
        more = facts[at.get(stream, 0) :]
        if more and stream not in broken and more[0].turn not in cut_turns and not stream.startswith("asked"):
            yield Difference(last + 1, more[0].what, "", more[0].value, more[0].prompt)


def _format_fact(fact: ReplayFact | None) -> str:
    return f"{fact.what}: {fact.value}" if fact is not None else ""


def _extract_facts(
    envelopes: list[Envelope], move: Callable[[str], str], skipped: frozenset[str]
) -> Iterator[ReplayFact]:
    """How far a call got that was cancelled is chance, so its files are not compared.

    That a session was opened counts once something comes of it: a run in which somebody only gave it another name, or
    another model, is not played.
    """
    prompt, turn = 0, ""
    opened: ReplayFact | None = None
    results = (item.event for item in envelopes if isinstance(item.event, ToolEnded))
    spared = skipped | {event.call_id for event in results if event.status == "cancelled"}
    for item in envelopes:
        event = item.event
        if isinstance(event, TurnStarted) and not item.agent:
            prompt, turn = prompt + 1, event.id
        if isinstance(event, FilesChanged) and (event.concurrent or event.call_id in spared):
            continue
        told = _DESCRIBERS.get(type(event))
        if told is None:
            continue
        for stream, what, value in told(event, item):
            exact = isinstance(event, FilesChanged | Rewound | Redone)
            fact = ReplayFact(stream, what, move(value) if exact else normalize(move(value)), item.seq, prompt, turn)
            if isinstance(event, SessionOpened):
                opened = fact
                continue
            if opened is not None:
                yield opened
                opened = None
            yield fact


FactParts = Iterator[tuple[str, str, str]]


def _suffix_of(agent: str) -> str:
    return f" of {agent}" if agent else ""


def _describe_turn_start(event: TurnStarted, item: Envelope) -> FactParts:
    yield f"turns {item.agent}", f"prompt{_suffix_of(item.agent)}", f"{event.mode}: {event.text}"


def _describe_turn_end(event: TurnEnded, item: Envelope) -> FactParts:
    kind = f" ({event.error_kind})" if event.error_kind else ""
    yield f"turns {item.agent}", f"end of the turn{_suffix_of(item.agent)}", f"{event.reason}{kind}: {event.text}"


def _describe_reply(event: Replied, item: Envelope) -> FactParts:
    calls = "".join(f"\n{call.id} {call.name} {_encode_json(call.args)}" for call in event.message.calls)
    yield f"turns {item.agent}", f"reply{_suffix_of(item.agent)}", f"{event.message.text}{calls}"


def _describe_call_start(event: ToolStarted, item: Envelope) -> FactParts:
    yield f"call {event.call_id}", f"call {event.call_id}", f"{event.name} {_encode_json(event.args)}"


def _describe_result(event: ToolEnded, item: Envelope) -> FactParts:
    yield f"turns {item.agent}", f"call {event.call_id}", f"{event.name}: {event.status}"
    yield f"call {event.call_id}", f"result of {event.name} ({event.call_id})", f"{event.status}\n{event.text}"
    if event.display:
        yield f"view {event.call_id}", f"what people saw of {event.name} ({event.call_id})", event.display


def _describe_files(event: FilesChanged, item: Envelope) -> FactParts:
    yield f"files {event.call_id}", f"files changed by call {event.call_id}", _format_changes(event.changes)


def _describe_approval(event: PermissionAsked, item: Envelope) -> FactParts:
    yield f"asked {event.call_id}", f"question about call {event.call_id}", f"{event.name}: {event.subject}"


def _describe_answer(event: PermissionAnswered, item: Envelope) -> FactParts:
    yield f"asked {event.call_id}", f"answer about call {event.call_id}", "yes" if event.allowed else "no"


def _describe_questions(event: QuestionsAnswered, item: Envelope) -> FactParts:
    yield f"asked {event.call_id}", f"answers to call {event.call_id}", _encode_json(event.answers)


def _describe_todos(event: TodosChanged, item: Envelope) -> FactParts:
    yield f"turns {item.agent}", "todos", "\n".join(f"{todo.status}: {todo.content}" for todo in event.todos)


def _describe_prompt(event: PromptQueued | PromptChanged | PromptInjected, item: Envelope) -> FactParts:
    yield f"queue {event.id}", f"{type(event).__name__} {event.id}", f"{event.mode}: {event.text}"


def _describe_drop(event: PromptDropped, item: Envelope) -> FactParts:
    yield f"queue {event.id}", f"PromptDropped {event.id}", ""


def _describe_rewind(event: Rewound | Redone, item: Envelope) -> FactParts:
    kept = "".join(f"\nleft alone: {file.path}" for file in event.skipped_files)
    yield "turns ", type(event).__name__, f"{_format_changes(event.changes)}{kept}"


def _describe_agent_start(event: AgentStarted, item: Envelope) -> FactParts:
    yield f"turns {event.id}", f"sub-agent {event.id}", f"{event.mode}: {event.task}"


def _describe_agent_end(event: AgentEnded, item: Envelope) -> FactParts:
    yield f"turns {event.id}", f"end of sub-agent {event.id}", event.reason


def _describe_compaction(event: Compacted, item: Envelope) -> FactParts:
    """When a conversation is summarised by itself depends on its size, and that on the length of the copy's path."""
    if event.trigger == "manual":
        yield f"summaries {item.agent}", "summary of the conversation", "made because somebody asked for it"


def _describe_opening(event: SessionOpened, item: Envelope) -> FactParts:
    yield "turns ", "session", "resumed" if event.resumed else "opened"


def _make_describer(name: str, value: Callable[[Any], str]) -> Callable[[Any, Envelope], FactParts]:
    def tell(event: Any, item: Envelope) -> FactParts:
        yield f"turns {item.agent}", name, value(event)

    return tell


_DESCRIBERS: dict[type, Callable[[Any, Envelope], FactParts]] = {
    SessionOpened: _describe_opening,
    TurnStarted: _describe_turn_start,
    TurnEnded: _describe_turn_end,
    Replied: _describe_reply,
    ToolStarted: _describe_call_start,
    ToolEnded: _describe_result,
    FilesChanged: _describe_files,
    PermissionAsked: _describe_approval,
    PermissionAnswered: _describe_answer,
    QuestionsAnswered: _describe_questions,
    TodosChanged: _describe_todos,
    PromptQueued: _describe_prompt,
    PromptChanged: _describe_prompt,
    PromptInjected: _describe_prompt,
    PromptDropped: _describe_drop,
    Rewound: _describe_rewind,
    Redone: _describe_rewind,
    AgentStarted: _describe_agent_start,
    AgentEnded: _describe_agent_end,
    ReplyDiscarded: _make_describer("discarded reply", lambda event: event.reason),
    RetryScheduled: _make_describer("retry", lambda event: event.error_kind),
    Compacted: _describe_compaction,
    ContextSummarized: _make_describer("summary of the context", lambda event: event.text),
    MessageRemoved: _make_describer("message removed", lambda event: ""),
}


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
