"""Whether the same things happened: calls, results, files, todos, endings, each in its order.

What differs from run to run whatever anybody does (times, process ids, temporary names) is taken out first.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from odin.core.event import (
    AgentEnded,
    AgentStarted,
    Compacted,
    ContextSummarized,
    Envelope,
    FileChange,
    FilesLeft,
    MessageRemoved,
    PermissionAnswered,
    PermissionAsked,
    PromptChanged,
    PromptDropped,
    PromptJoined,
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
from odin.session.files.filestate import UNHASHED


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """`seq` is the number of the recorded event. What is empty did not happen on that side."""

    seq: int
    what: str
    recorded: str = ""
    replayed: str = ""
    prompt: int = 0


class Fact(msgspec.Struct, frozen=True):
    """One thing that happened, in the stream of things whose order matters among themselves."""

    stream: str
    what: str
    value: str
    seq: int
    prompt: int
    turn: str


_VOLATILE: tuple[tuple[re.Pattern[str], str], ...] = tuple(
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


def normal(text: str) -> str:
    for pattern, put in _VOLATILE:
        text = pattern.sub(put, text)
    return text


def compare(
    recorded: Iterable[Envelope],
    replayed: Iterable[Envelope],
    move: Callable[[str], str],
    *,
    cut: Iterable[str] = (),
    left_out: Iterable[str] = (),
) -> list[Difference]:
    """What is different, in the order of the recording. `move` gives paths one name on both sides.

    Of the turns in `cut`, whose end is not recorded, what the replay has more is no difference. The calls in `left_out`
    were not made, so they left no files.
    """
    spared = frozenset(left_out)
    then, now = (list(_facts(list(side), move, spared)) for side in (recorded, replayed))
    found = list(_unequal(then, now, frozenset(cut)))
    return sorted(found, key=lambda difference: difference.seq)


def _unequal(then: list[Fact], now: list[Fact], cut: frozenset[str]) -> Iterator[Difference]:
    streams: dict[str, list[Fact]] = {}
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
            yield Difference(fact.seq, fact.what, fact.value, _shown(match), fact.prompt)
        elif match.value != fact.value:
            yield Difference(fact.seq, fact.what, fact.value, match.value, fact.prompt)
    last = then[-1].seq if then else 0
    for stream, facts in streams.items():
        more = facts[at.get(stream, 0) :]
        if more and stream not in broken and more[0].turn not in cut and not stream.startswith("asked"):
            yield Difference(last + 1, more[0].what, "", more[0].value, more[0].prompt)


def _shown(fact: Fact | None) -> str:
    return f"{fact.what}: {fact.value}" if fact is not None else ""


def _facts(envelopes: list[Envelope], move: Callable[[str], str], left_out: frozenset[str]) -> Iterator[Fact]:
    """How far a call got that was cancelled is chance, so its files are not compared.

    That a session was opened counts once something comes of it: a run in which somebody only gave it another name, or
    another model, is not played.
    """
    prompt, turn = 0, ""
    opened: Fact | None = None
    results = (item.event for item in envelopes if isinstance(item.event, ToolEnded))
    spared = left_out | {event.call_id for event in results if event.status == "cancelled"}
    for item in envelopes:
        event = item.event
        if isinstance(event, TurnStarted) and not item.agent:
            prompt, turn = prompt + 1, event.id
        if isinstance(event, FilesLeft) and (event.shared or event.call_id in spared):
            continue
        told = _TOLD.get(type(event))
        if told is None:
            continue
        for stream, what, value in told(event, item):
            exact = isinstance(event, FilesLeft | Rewound | Redone)
            fact = Fact(stream, what, move(value) if exact else normal(move(value)), item.seq, prompt, turn)
            if isinstance(event, SessionOpened):
                opened = fact
                continue
            if opened is not None:
                yield opened
                opened = None
            yield fact


Told = Iterator[tuple[str, str, str]]


def _who(agent: str) -> str:
    return f" of {agent}" if agent else ""


def _turn(event: TurnStarted, item: Envelope) -> Told:
    yield f"turns {item.agent}", f"prompt{_who(item.agent)}", f"{event.mode}: {event.text}"


def _ended(event: TurnEnded, item: Envelope) -> Told:
    kind = f" ({event.error_kind})" if event.error_kind else ""
    yield f"turns {item.agent}", f"end of the turn{_who(item.agent)}", f"{event.reason}{kind}: {event.text}"


def _replied(event: Replied, item: Envelope) -> Told:
    calls = "".join(f"\n{call.id} {call.name} {_json(call.args)}" for call in event.message.calls)
    yield f"turns {item.agent}", f"reply{_who(item.agent)}", f"{event.message.text}{calls}"


def _started(event: ToolStarted, item: Envelope) -> Told:
    yield f"call {event.call_id}", f"call {event.call_id}", f"{event.name} {_json(event.args)}"


def _result(event: ToolEnded, item: Envelope) -> Told:
    yield f"turns {item.agent}", f"call {event.call_id}", f"{event.name}: {event.status}"
    yield f"call {event.call_id}", f"result of {event.name} ({event.call_id})", f"{event.status}\n{event.text}"
    if event.view:
        yield f"view {event.call_id}", f"what people saw of {event.name} ({event.call_id})", event.view


def _files(event: FilesLeft, item: Envelope) -> Told:
    yield f"files {event.call_id}", f"files changed by call {event.call_id}", _changes(event.changes)


def _asked(event: PermissionAsked, item: Envelope) -> Told:
    yield f"asked {event.call_id}", f"question about call {event.call_id}", f"{event.name}: {event.subject}"


def _answered(event: PermissionAnswered, item: Envelope) -> Told:
    yield f"asked {event.call_id}", f"answer about call {event.call_id}", "yes" if event.allowed else "no"


def _questions(event: QuestionsAnswered, item: Envelope) -> Told:
    yield f"asked {event.call_id}", f"answers to call {event.call_id}", _json(event.answers)


def _todos(event: TodosChanged, item: Envelope) -> Told:
    yield f"turns {item.agent}", "todos", "\n".join(f"{todo.status}: {todo.content}" for todo in event.todos)


def _prompt(event: PromptQueued | PromptChanged | PromptJoined, item: Envelope) -> Told:
    yield f"queue {event.id}", f"{type(event).__name__} {event.id}", f"{event.mode}: {event.text}"


def _dropped(event: PromptDropped, item: Envelope) -> Told:
    yield f"queue {event.id}", f"PromptDropped {event.id}", ""


def _went(event: Rewound | Redone, item: Envelope) -> Told:
    kept = "".join(f"\nleft alone: {file.path}" for file in event.kept)
    yield "turns ", type(event).__name__, f"{_changes(event.changes)}{kept}"


def _agent(event: AgentStarted, item: Envelope) -> Told:
    yield f"turns {event.id}", f"sub-agent {event.id}", f"{event.mode}: {event.task}"


def _agent_ended(event: AgentEnded, item: Envelope) -> Told:
    yield f"turns {event.id}", f"end of sub-agent {event.id}", event.reason


def _compacted(event: Compacted, item: Envelope) -> Told:
    """When a conversation is summarised by itself depends on its size, and that on the length of the copy's path."""
    if event.trigger == "manual":
        yield f"summaries {item.agent}", "summary of the conversation", "made because somebody asked for it"


def _opened(event: SessionOpened, item: Envelope) -> Told:
    yield "turns ", "session", "resumed" if event.resumed else "opened"


def _plain(name: str, value: Callable[[Any], str]) -> Callable[[Any, Envelope], Told]:
    def tell(event: Any, item: Envelope) -> Told:
        yield f"turns {item.agent}", name, value(event)

    return tell


_TOLD: dict[type, Callable[[Any, Envelope], Told]] = {
    SessionOpened: _opened,
    TurnStarted: _turn,
    TurnEnded: _ended,
    Replied: _replied,
    ToolStarted: _started,
    ToolEnded: _result,
    FilesLeft: _files,
    PermissionAsked: _asked,
    PermissionAnswered: _answered,
    QuestionsAnswered: _questions,
    TodosChanged: _todos,
    PromptQueued: _prompt,
    PromptChanged: _prompt,
    PromptJoined: _prompt,
    PromptDropped: _dropped,
    Rewound: _went,
    Redone: _went,
    AgentStarted: _agent,
    AgentEnded: _agent_ended,
    ReplyDiscarded: _plain("discarded reply", lambda event: event.reason),
    RetryScheduled: _plain("retry", lambda event: event.error_kind),
    Compacted: _compacted,
    ContextSummarized: _plain("summary of the context", lambda event: event.text),
    MessageRemoved: _plain("message removed", lambda event: ""),
}


def _changes(changes: Iterable[FileChange]) -> str:
    lines: list[str] = []
    for change in changes:
        after = change.after
        sha256 = "" if after.sha256.startswith(UNHASHED) else f" sha256:{after.sha256}"
        runs = " executable" if after.kind == "file" and after.mode & 0o100 else ""
        lines.append(f"{after.path} {after.kind}{sha256}{runs} {after.target}".rstrip())
    return "\n".join(sorted(lines)) or "none"


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
