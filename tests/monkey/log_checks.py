"""Checks of a session log that must hold after any actions: nothing lost, nothing twice, everything ended."""

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
from odin.session.index import IndexEntry, SessionIndex, read_index_entry
from odin.session.log import read_header, read_log
from odin.session.state import SessionState
from tests.team_log import check_prefixes, check_team


def fold_log(path: Path) -> SessionState:
    return SessionState.fold(read_log(path), read_log=lambda: read_log(path))


def check_log(path: Path, project: Path, last: Snapshot, submitted: Counter[str], edited_files: set[Path]) -> None:
    """Assert that the log is consistent and that folding it gives the last snapshot of the session."""
    log = list(read_log(path))
    state = fold_log(path)
    _check_numbers(log, read_header(path).forked_seq)
    _check_pairs(log)
    check_prompts(path, submitted)
    _check_speculative_calls(log)
    _check_history_at_every_point(log)
    check_team(log)
    check_prefixes(log)
    _check_snapshot(last, state.snapshot())
    _check_usage(log, state)
    _check_index(path, state)
    _check_files(log, state, project, edited_files)
    for form in ("markdown", "json", "html"):
        written = Path(export_session(path, form, str(path.parent))).read_bytes()
        assert form != "json" or msgspec.json.decode(written)


def _check_numbers(log: list[Envelope], copied: int) -> None:
    numbers = [envelope.seq for envelope in log]
    assert numbers == sorted(set(numbers)), "sequence numbers decrease or repeat"
    own = [number for number in numbers if number > copied]
    assert own == list(range(copied + 1, copied + 1 + len(own))), "sequence numbers have gaps"


_PAIRS: tuple[tuple[type[AnyEvent], type[AnyEvent], str], ...] = (
    (TurnStarted, TurnEnded, "id"),
    (ToolStarted, ToolEnded, "call_id"),
    (PermissionAsked, PermissionAnswered, "ask_id"),
    (QuestionsAsked, QuestionsAnswered, "ask_id"),
    (PlanAsked, PlanAnswered, "ask_id"),
    (AgentStarted, AgentEnded, "id"),
    (SpawnStarted, SpawnFinished, "id"),
)


def _check_pairs(log: list[Envelope]) -> None:
    """Assert that everything started ends once. Only a tool call may end without having started."""
    for first, last, name in _PAIRS:
        open_now: set[tuple[str, str]] = set()
        for envelope in log:
            key = envelope.agent, getattr(envelope.event, name, "")
            if isinstance(envelope.event, first):
                assert key not in open_now, f"{first.__name__} twice: {key}"
                open_now.add(key)
            elif isinstance(envelope.event, last):
                assert key in open_now or last is ToolEnded, f"{last.__name__} without a start: {key}"
                open_now.discard(key)
        assert not open_now, f"{first.__name__} without an end: {open_now}"
    asked: Counter[tuple[str, str]] = Counter()
    for envelope in log:
        if isinstance(envelope.event, Replied):
            asked.update((envelope.agent, call.id) for call in envelope.event.message.calls)
        elif isinstance(envelope.event, ToolEnded):
            asked[envelope.agent, envelope.event.call_id] -= 1
    assert not any(asked.values()), f"calls without a result, or with two: {[k for k, n in asked.items() if n]}"


def _check_speculative_calls(log: list[Envelope]) -> None:
    """Assert that every speculative call was started or discarded."""
    speculative: set[tuple[str, str]] = set()
    for envelope in log:
        event = envelope.event
        if isinstance(event, CallSpeculated):
            assert (envelope.agent, event.call_id) not in speculative
            speculative.add((envelope.agent, event.call_id))
        elif isinstance(event, ToolStarted | CallDiscarded):
            speculative.discard((envelope.agent, event.call_id))
    assert not speculative, f"speculative calls that were neither started nor discarded: {speculative}"


def check_prompts(path: Path, submitted: Counter[str]) -> None:
    """Assert that each accepted prompt was started, injected, dropped or is queued, exactly once."""
    counts = count_prompts(path)
    wrong = {name: (count, counts[name]) for name, count in submitted.items() if counts[name] != count}
    assert not wrong, f"prompts whose numbers of submissions and of occurrences in the log differ: {wrong}"


def count_prompts(path: Path) -> Counter[str]:
    """Return how often the log starts, injects, drops or queues a prompt of each id."""
    waiting: set[str] = set()
    counts: Counter[str] = Counter()
    for event in (envelope.event for envelope in read_log(path) if not envelope.agent):
        if isinstance(event, PromptQueued):
            assert event.id not in waiting, f"{event.id} was queued twice"
            waiting.add(event.id)
        elif isinstance(event, PromptInjected | PromptDropped):
            assert event.id in waiting, f"{type(event).__name__}: {event.id} was not queued"
            waiting.discard(event.id)
            counts[event.id] += 1
        elif isinstance(event, TurnStarted):
            waiting.discard(event.id)
            counts[event.id] += 1
    assert waiting == {item.id for item in fold_log(path).queue}
    counts.update(waiting)
    return counts


def _check_history_at_every_point(log: list[Envelope]) -> None:
    """Assert that at every point of the log the results follow their calls."""
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


def _check_snapshot(last: Snapshot, from_log: Snapshot) -> None:
    expected = _get_comparable_fields(last)
    different = {
        name: (expected[name], value)
        for name, value in _get_comparable_fields(from_log).items()
        if expected[name] != value
    }
    assert not different, different


def _get_comparable_fields(shot: Snapshot) -> dict[str, Any]:
    """Return the fields of a snapshot that the log determines."""
    turns = tuple(msgspec.structs.replace(turn, updates=()) for turn in shot.messages)
    queue = tuple(msgspec.structs.replace(item, paused=False) for item in shot.queue)
    return msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(shot, messages=turns, queue=queue)))


def _check_usage(log: list[Envelope], state: SessionState) -> None:
    records = [envelope.event for envelope in log if isinstance(envelope.event, UsageRecorded)]
    assert state.totals.usage == sum((record.usage for record in records), Usage())
    assert abs(state.totals.cost_usd - sum(record.cost_usd for record in records)) < 1e-9
    assert sum((spent.usage for spent in state.snapshot().spent_by_model.values()), Usage()) == state.totals.usage


def _check_index(path: Path, state: SessionState) -> None:
    """Assert that the incrementally updated index equals one made from the log and the folded state."""
    session = path.parent.name
    index = SessionIndex(path.parent.parent)
    assert [summary.id for summary in index.list_summaries() if summary.locked] == []
    row = next(row for row in index.list_entries() if row.id == session)
    fresh = read_index_entry(session, path, row.size, row.mtime_ns)
    assert _get_comparable_row(row) == _get_comparable_row(fresh)
    assert (row.model, row.title, row.cwd, row.spent.usage) == (state.model, state.title, state.cwd, state.totals.usage)


def _get_comparable_row(entry: IndexEntry) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(entry).items() if name != "cost_usd"}


_EXPECTED_NAMES = re.compile(r"(file|made)\d\.txt|(log|mine|spawned)\.txt|picture\.png|\.odin")


def _check_files(log: list[Envelope], state: SessionState, project: Path, edited_files: set[Path]) -> None:
    """Assert that the files on disk are in the state that undo expects, except those edited outside the session."""
    assert not state.file_history.unfinished and not state.file_history.speculative, (
        "calls whose file changes are unknown"
    )
    unexpected = [path.name for path in project.iterdir() if not _EXPECTED_NAMES.fullmatch(path.name)]
    assert not unexpected, f"unexpected files: {unexpected}"
    for name, after in _list_expected_files(log).items():
        path = Path(name)
        if path in edited_files or after is None or not path.is_relative_to(project):
            continue
        assert path.is_file() == (after.kind == "file"), f"{name}: {after}"
        if after.kind == "file":
            assert hashlib.sha256(path.read_bytes()).hexdigest() == after.sha256, (
                f"{name} is not in the state that undo expects"
            )


def _list_expected_files(log: list[Envelope]) -> dict[str, FileState | None]:
    """Return the last state of each file by the events, or None if something else may have changed it."""
    files: dict[str, FileState | None] = {}
    speculative: dict[tuple[str, str], tuple[FileChange, ...]] = {}
    for envelope in log:
        event = envelope.event
        if isinstance(event, CallSpeculated):
            speculative[envelope.agent, event.call_id] = ()
        elif isinstance(event, ToolStarted):
            speculative.pop((envelope.agent, event.call_id), None)
        elif isinstance(event, CallDiscarded):
            skipped = {file.path for file in event.skipped_files}
            for change in reversed(speculative.pop((envelope.agent, event.call_id), ())):
                files[change.before.path] = None if change.before.path in skipped else change.before
        elif isinstance(event, FilesChanged | Rewound | Redone):
            shared = isinstance(event, FilesChanged) and event.concurrent
            files.update((change.after.path, None if shared else change.after) for change in event.changes)
            if isinstance(event, FilesChanged) and (envelope.agent, event.call_id) in speculative:
                speculative[envelope.agent, event.call_id] = event.changes
    return files


def processes_in(project: Path) -> list[str]:
    """Return the processes whose working directory is in the project."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(entry / "cwd")).is_relative_to(project):
                found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes()!r}")
        except OSError:
            continue
    return found


class LoopErrors:
    """Collects errors reported by the event loop: exceptions never retrieved, and pending tasks that were destroyed."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def __call__(self, loop: Any, context: dict[str, Any]) -> None:
        self.messages.append(f"{context.get('message')}: {context.get('exception')!r} {context.get('task')}")

    def collect(self) -> list[str]:
        gc.collect()
        return self.messages
