"""What must be true of every log, whatever was done: nothing lost, nothing twice, everything ended."""

import gc
import hashlib
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from odin.app.export import export_session
from odin.core.call_events import (
    CallDiscarded,
    CallSpeculated,
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
    Replied,
    SpawnFinished,
    SpawnStarted,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.client import Snapshot
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    AnyEvent,
    Envelope,
    FilesChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    Redone,
    Rewound,
    TurnEnded,
    TurnStarted,
)
from odin.core.event_values import FileChange, FileState
from odin.core.message import ReplyMessage, ToolMessage, Usage
from odin.session.index import IndexEntry, SessionIndex, index_entry_of
from odin.session.log import read_header, read_log
from odin.session.state import SessionState
from tests.team_log import check_prefixes, check_team


def folded(path: Path) -> SessionState:
    return SessionState.fold(read_log(path), read_log=lambda: read_log(path))


def check_log(path: Path, project: Path, last: Snapshot, submitted: Counter[str], touched: set[Path]) -> None:
    """Everything that a log can tell by itself, and that it tells the same story as the session told."""
    log = list(read_log(path))
    state = folded(path)
    _numbered(log, read_header(path).forked_seq)
    _ended(log)
    check_prompts(path, submitted)
    _decided(log)
    _legal_at_any_point(log)
    check_team(log)
    check_prefixes(log)
    _same(last, state.snapshot())
    _paid(log, state)
    _listed(path, state)
    _on_disk(log, state, project, touched)
    for form in ("markdown", "json", "html"):
        written = Path(export_session(path, form, str(path.parent))).read_bytes()
        assert form != "json" or msgspec.json.decode(written)


def _numbered(log: list[Envelope], copied: int) -> None:
    numbers = [envelope.seq for envelope in log]
    assert numbers == sorted(set(numbers)), "numbers that go back or repeat"
    own = [number for number in numbers if number > copied]
    assert own == list(range(copied + 1, copied + 1 + len(own))), "numbers with gaps"


_PAIRS: tuple[tuple[type[AnyEvent], type[AnyEvent], str], ...] = (
    (TurnStarted, TurnEnded, "id"),
    (ToolStarted, ToolEnded, "call_id"),
    (PermissionAsked, PermissionAnswered, "ask_id"),
    (QuestionsAsked, QuestionsAnswered, "ask_id"),
    (PlanAsked, PlanAnswered, "ask_id"),
    (AgentStarted, AgentEnded, "id"),
    (SpawnStarted, SpawnFinished, "id"),
)


def _ended(log: list[Envelope]) -> None:
    """What begins ends once, and nothing ends that did not begin; a call may end without having begun."""
    for first, last, name in _PAIRS:
        open_now: set[tuple[str, str]] = set()
        for envelope in log:
            key = envelope.agent, getattr(envelope.event, name, "")
            if isinstance(envelope.event, first):
                assert key not in open_now, f"{first.__name__} twice: {key}"
                open_now.add(key)
            elif isinstance(envelope.event, last):
                assert key in open_now or last is ToolEnded, f"{last.__name__} of nothing: {key}"
                open_now.discard(key)
        assert not open_now, f"{first.__name__} without an end: {open_now}"
    asked: Counter[tuple[str, str]] = Counter()
    for envelope in log:
        if isinstance(envelope.event, Replied):
            asked.update((envelope.agent, call.id) for call in envelope.event.message.calls)
        elif isinstance(envelope.event, ToolEnded):
            asked[envelope.agent, envelope.event.call_id] -= 1
    assert not any(asked.values()), f"calls without a result, or with two: {[k for k, n in asked.items() if n]}"


def _decided(log: list[Envelope]) -> None:
    """A call that was begun early either counts or was taken back."""
    ahead: set[tuple[str, str]] = set()
    for envelope in log:
        event = envelope.event
        if isinstance(event, CallSpeculated):
            assert (envelope.agent, event.call_id) not in ahead
            ahead.add((envelope.agent, event.call_id))
        elif isinstance(event, ToolStarted | CallDiscarded):
            ahead.discard((envelope.agent, event.call_id))
    assert not ahead, f"begun early and never decided: {ahead}"


def check_prompts(path: Path, submitted: Counter[str]) -> None:
    """Each prompt that was taken was begun, joined, dropped or still waits: none is lost, none comes twice."""
    met = prompts_met(path)
    wrong = {name: (count, met[name]) for name, count in submitted.items() if met[name] != count}
    assert not wrong, f"prompts that were sent and seen a different number of times: {wrong}"


def prompts_met(path: Path) -> Counter[str]:
    """How often a prompt of each id was taken by the session, from what became of it."""
    waiting: set[str] = set()
    met: Counter[str] = Counter()
    for event in (envelope.event for envelope in read_log(path) if not envelope.agent):
        if isinstance(event, PromptQueued):
            assert event.id not in waiting, f"{event.id} was queued twice"
            waiting.add(event.id)
        elif isinstance(event, PromptInjected | PromptDropped):
            assert event.id in waiting, f"{type(event).__name__}: {event.id} did not wait"
            waiting.discard(event.id)
            met[event.id] += 1
        elif isinstance(event, TurnStarted):
            waiting.discard(event.id)
            met[event.id] += 1
    assert waiting == {item.id for item in folded(path).queue}
    met.update(waiting)
    return met


def _legal_at_any_point(log: list[Envelope]) -> None:
    """At every point every call is followed by its results."""
    state = SessionState.fold([], read_log=lambda: log)
    for number, envelope in enumerate(log):
        state.apply(envelope)
        if number % 7 == 0 or number == len(log) - 1:
            history = state.build_history()
            for index, message in enumerate(history):
                calls = [call.id for call in message.calls] if isinstance(message, ReplyMessage) else []
                after = history[index + 1] if index + 1 < len(history) else None
                results = [result.call_id for result in after.results] if isinstance(after, ToolMessage) else []
                assert calls == results, f"at event {envelope.seq}: {calls} were answered by {results}"


def _same(last: Snapshot, kept: Snapshot) -> None:
    told = _told(last)
    different = {name: (told[name], value) for name, value in _told(kept).items() if told[name] != value}
    assert not different, different


def _told(shot: Snapshot) -> dict[str, Any]:
    """What the log must tell, field by field."""
    turns = tuple(msgspec.structs.replace(turn, updates=()) for turn in shot.messages)
    queue = tuple(msgspec.structs.replace(item, paused=False) for item in shot.queue)
    return msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(shot, messages=turns, queue=queue)))


def _paid(log: list[Envelope], state: SessionState) -> None:
    records = [envelope.event for envelope in log if isinstance(envelope.event, UsageRecorded)]
    assert state.totals.usage == sum((record.usage for record in records), Usage())
    assert abs(state.totals.cost_usd - sum(record.cost_usd for record in records)) < 1e-9
    assert sum((spent.usage for spent in state.snapshot().spent_by_model.values()), Usage()) == state.totals.usage


def _listed(path: Path, state: SessionState) -> None:
    """The list of sessions, which was made step by step, knows what a fresh look at the log and the fold know."""
    session = path.parent.name
    index = SessionIndex(path.parent.parent)
    assert [summary.id for summary in index.list_summaries() if summary.locked] == []
    row = next(row for row in index.list_entries() if row.id == session)
    fresh = index_entry_of(session, path, row.size, row.mtime_ns)
    assert _row(row) == _row(fresh)
    assert (row.model, row.title, row.cwd, row.usage) == (state.model, state.title, state.cwd, state.totals.usage)


def _row(digest: IndexEntry) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(digest).items() if name != "cost_usd"}


_KNOWN_NAMES = re.compile(r"(file|made)\d\.txt|(log|mine|spawned)\.txt|picture\.png|\.odin")


def _on_disk(log: list[Envelope], state: SessionState, project: Path, touched: set[Path]) -> None:
    """The newest state that undo knows of a file is how it is, unless somebody else was there too."""
    assert not state.file_history.unfinished and not state.file_history.speculative, (
        "calls of which nobody knows what they did to files"
    )
    strange = [path.name for path in project.iterdir() if not _KNOWN_NAMES.fullmatch(path.name)]
    assert not strange, f"files that nobody has asked for: {strange}"
    for name, after in _expected(log).items():
        path = Path(name)
        if path in touched or after is None or not path.is_relative_to(project):
            continue
        assert path.is_file() == (after.kind == "file"), f"{name}: {after}"
        if after.kind == "file":
            assert hashlib.sha256(path.read_bytes()).hexdigest() == after.sha256, f"{name} is not as undo knows it"


def _expected(log: list[Envelope]) -> dict[str, FileState | None]:
    """How each file was left, by the events alone; None when somebody else may have changed it."""
    files: dict[str, FileState | None] = {}
    ahead: dict[tuple[str, str], tuple[FileChange, ...]] = {}
    for envelope in log:
        event = envelope.event
        if isinstance(event, CallSpeculated):
            ahead[envelope.agent, event.call_id] = ()
        elif isinstance(event, ToolStarted):
            ahead.pop((envelope.agent, event.call_id), None)
        elif isinstance(event, CallDiscarded):
            kept = {file.path for file in event.skipped_files}
            for change in reversed(ahead.pop((envelope.agent, event.call_id), ())):
                files[change.before.path] = None if change.before.path in kept else change.before
        elif isinstance(event, FilesChanged | Rewound | Redone):
            shared = isinstance(event, FilesChanged) and event.concurrent
            files.update((change.after.path, None if shared else change.after) for change in event.changes)
            if isinstance(event, FilesChanged) and (envelope.agent, event.call_id) in ahead:
                ahead[envelope.agent, event.call_id] = event.changes
    return files


def running_in(project: Path) -> list[str]:
    """The processes that work in this folder."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(entry / "cwd")).is_relative_to(project):
                found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes()!r}")
        except OSError:
            continue
    return found


class Complaints:
    """What asyncio complains of: tasks whose failure nobody has seen, or that were forgotten while they ran."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, loop: Any, context: dict[str, Any]) -> None:
        self.heard.append(f"{context.get('message')}: {context.get('exception')!r} {context.get('task')}")

    def all(self) -> list[str]:
        gc.collect()
        return self.heard
