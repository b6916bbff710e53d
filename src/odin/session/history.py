"""The history of a session as a fold over its events: file changes, and the messages that pruning and summaries leave.

Rewinds are computed from the file changes. Changes of a speculative call are kept apart until the call is committed; if
it is discarded, they never count.

Pruning, compaction and context summaries are functions on a list of messages. The result must be a history that every
provider accepts, no matter what the event says: shortened tool results keep their place as one line, so each call keeps
its one result. The originals stay in the log, and a rewind to before the summary brings them back.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, cast

import msgspec
from msgspec import Struct, structs

from odin.core.call_events import CallDiscarded, CallSpeculated, ToolStarted
from odin.core.event import CheckpointSaved, Compacted, Envelope, FilesChanged, Redone, ResultsPruned, Rewound
from odin.core.event_values import FileChange, FileState
from odin.core.lazy_pattern import compile_lazily
from odin.core.message import Image, Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult
from odin.core.tool import CollectedItem


class RecordedChange(Struct, frozen=True):
    """A change and the agents that may have made it: usually one; none for a rewind.

    `is_concurrent`: made while a background process ran, so the change may not be the session's own. `seq` is the
    number of the event that recorded it.
    """

    change: FileChange
    agents: tuple[str, ...] = ()
    is_concurrent: bool = False
    seq: int = 0


class SpeculativeChanges(Struct, frozen=True):
    """A speculative call that is neither committed nor discarded. `seq` is the number of its event.

    `saved` is the checkpoint taken at `saved_at` by the event `saved_seq`; `changes` is None until the event
    `changes_seq` records them.
    """

    agent: str
    call: CallSpeculated
    seq: int
    saved: CheckpointSaved | None = None
    saved_at: float = 0.0
    saved_seq: int = 0
    changes: tuple[FileChange, ...] | None = None
    changes_seq: int = 0


class UnfinishedSave(Struct, frozen=True):
    """A checkpoint saved at `at` for a call of `agent` whose changes are not recorded yet.

    `mark` is the position in the file history at that time.
    """

    saved: CheckpointSaved
    at: float
    agent: str = ""
    mark: int = 0


class FileHistory:
    """All changes, including those made by rewinds, so any earlier state can be reached by reading backwards."""

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (ToolStarted, CheckpointSaved, FilesChanged, CallSpeculated, CallDiscarded, Rewound, Redone)
    )

    def __init__(self) -> None:
        self._open: dict[str, UnfinishedSave] = {}
        self._changes: list[RecordedChange] = []
        self._restored: list[tuple[int, int, FileState]] = []  # by rollbacks: position in `_changes`, event, state
        self._speculative: dict[tuple[str, str], SpeculativeChanges] = {}

    @property
    def unfinished(self) -> tuple[UnfinishedSave, ...]:
        """Checkpoints of calls whose changes were never recorded, because the process running them died."""
        return tuple(self._open.values())

    @property
    def speculative(self) -> tuple[SpeculativeChanges, ...]:
        """The undecided speculative calls, in order."""
        return tuple(self._speculative.values())

    def find_speculative(self, agent: str, call_id: str) -> SpeculativeChanges | None:
        return self._speculative.get((agent, call_id))

    def apply(self, envelope: Envelope) -> tuple[FileChange, ...]:
        """Return the changes that become final with this event."""
        event, agent = envelope.event, envelope.agent
        match event:
            case ToolStarted():
                return self._commit_call(agent, event.call_id)
            case CheckpointSaved():
                self._add_checkpoint(event, envelope)
            case FilesChanged():
                return self._add_changes(event, agent, envelope.seq)
            case CallSpeculated():
                self._speculative[agent, event.call_id] = SpeculativeChanges(agent, event, envelope.seq)
            case CallDiscarded():
                # Record only the changes that could not be rolled back, so that a rewind can still handle them.
                self._restored += ((self.mark(), envelope.seq, change.after) for change in event.restored)
                speculative = self._speculative.pop((envelope.agent, event.call_id), None)
                if speculative is not None:
                    skipped = {file.path for file in event.skipped_files}
                    left = [change for change in speculative.changes or () if change.before.path in skipped]
                    self._add_speculative(speculative, left, speculative.changes_seq)
                    self._add_speculative(speculative, event.kept_changes, speculative.saved_seq)
            case Rewound() | Redone():
                self._open.pop(event.id, None)
                self._changes.extend(RecordedChange(change, seq=envelope.seq) for change in event.changes)
            case _:
                pass
        return ()

    def _add_checkpoint(self, event: CheckpointSaved, envelope: Envelope) -> None:
        agent, at = envelope.agent, envelope.ts
        speculative = self._speculative.get((agent, event.call_id))
        if speculative is None:
            self._open[event.call_id] = UnfinishedSave(event, at, agent, self.mark())
        else:
            updated = structs.replace(speculative, saved=event, saved_at=at, saved_seq=envelope.seq)
            self._speculative[agent, event.call_id] = updated

    def _add_changes(self, event: FilesChanged, agent: str, seq: int) -> tuple[FileChange, ...]:
        speculative = self._speculative.get((agent, event.call_id))
        if speculative is not None:
            updated = structs.replace(speculative, changes=event.changes, changes_seq=seq)
            self._speculative[agent, event.call_id] = updated
            return ()
        if not event.more:
            self._open.pop(event.call_id, None)
        agents = (agent, *event.shared_with)
        self._changes.extend(RecordedChange(change, agents, event.concurrent, seq) for change in event.changes)
        return event.changes

    def _commit_call(self, agent: str, call_id: str) -> tuple[FileChange, ...]:
        speculative = self._speculative.pop((agent, call_id), None)
        if speculative is None or speculative.saved is None:
            return ()
        if speculative.changes is None:
            self._open[call_id] = UnfinishedSave(speculative.saved, speculative.saved_at, agent, self.mark())
            return ()
        self._add_speculative(speculative, speculative.changes, speculative.changes_seq)
        return speculative.changes

    def _add_speculative(self, call: SpeculativeChanges, changes: Iterable[FileChange], seq: int) -> None:
        self._changes.extend(RecordedChange(change, (call.agent,), seq=seq) for change in changes)

    def mark(self) -> int:
        """Return the current position, for `list_since`."""
        return len(self._changes)

    def list_since(self, mark: int) -> tuple[RecordedChange, ...]:
        """Return the changes that counted since `mark`, in the order in which they were made.

        A speculative change counts later than it was made, and another agent may have changed the file in between.
        """
        return tuple(sorted(self._changes[mark:], key=lambda change: change.seq))

    def list_states_since(self, mark: int) -> list[FileState]:
        """Return the states that recorded changes and rollbacks have given to files since `mark`, in order."""
        states = [(change.seq, change.change.after) for change in self._changes[mark:]]
        states += ((seq, state) for position, seq, state in self._restored if position >= mark)
        return [state for _, state in sorted(states, key=lambda item: item[0])]

    def find_later_states(self, call: SpeculativeChanges) -> dict[str, FileState]:
        """Return the state in which the first call after the checkpoint of `call` found each file it edited."""
        later: dict[str, FileState] = {}
        for change in self.list_since(0):
            if change.seq > call.saved_seq:
                later.setdefault(change.change.before.path, change.change.before)
        for other in self._open.values():
            if other.at >= call.saved_at:
                later.update((state.path, state) for state in other.saved.files if state.path not in later)
        return later

    def list_made_by(self, agent: str, mark: int) -> tuple[RecordedChange, ...]:
        """Return the changes since `mark` that this agent made, or may have made."""
        return tuple(change for change in self._changes[mark:] if agent in change.agents)


SUMMARY_OPENING = "(The conversation before this point was summarized.)"
IMAGE_REMOVED = "(image removed to save room; read its file again to see it)"
SUMMARIZED_RESULT = "(summarized by ContextSummarizer)"
_PRUNED_PREFIX = "[Output of "
_ATTACHED_FILE = compile_lazily(r"Context from ([^\n]+?)(?::\d+-\d+)?:\n")
"""The first line of a note that contains a file or a range of its lines."""

_TITLE_ARGUMENT_CHARS = 80
_MAX_PATH_CHARS = 4096


def prune_results(messages: Sequence[Message], event: ResultsPruned) -> list[Message]:
    """Replace the event's results by one line each and remove its images."""
    calls, images = frozenset(event.calls), frozenset(event.images)
    titles = make_call_titles(messages) if calls else {}
    return [_prune_message(message, calls, images, titles, event.archive) for message in messages]


def _prune_message(
    message: Message, calls: Collection[str], images: Collection[str], titles: dict[str, str], archive: str
) -> Message:
    if isinstance(message, PromptMessage):
        kept = tuple(image for image in message.images if image.path not in images)
        if len(kept) == len(message.images):
            return message
        return PromptMessage(message.text, (*message.notes, IMAGE_REMOVED), kept, message.origin)
    if not isinstance(message, ToolMessage):
        return message
    results = tuple(
        _make_pruned_result(result, titles.get(result.call_id, ""), archive)
        if result.call_id in calls
        else _remove_result_images(result, images)
        for result in message.results
    )
    unchanged = all(old is new for old, new in zip(message.results, results, strict=True))
    return message if unchanged else ToolMessage(results, message.notes)


def _make_pruned_result(result: ToolResult, title: str, archive: str) -> ToolResult:
    size = f"{len(result.text):,} characters"
    where = f"the whole is in {archive} under {result.call_id}" if archive else "run the call again if you need it"
    return ToolResult(
        result.call_id, f"{_PRUNED_PREFIX}{title or 'this call'} removed to save room ({size}): {where}.]"
    )


def _remove_result_images(result: ToolResult, gone: Collection[str]) -> ToolResult:
    kept: tuple[Image, ...] = tuple(image for image in result.images if image.path not in gone)
    if len(kept) == len(result.images):
        return result
    return msgspec.structs.replace(result, text=f"{result.text}\n{IMAGE_REMOVED}", images=kept)


def make_call_titles(messages: Iterable[Message]) -> dict[str, str]:
    """Map each call id to a short title: the tool and its first text argument."""
    return {
        call.id: make_call_title(call)
        for message in messages
        if isinstance(message, ReplyMessage)
        for call in message.calls
    }


def make_call_title(call: ToolCall) -> str:
    first = next((value for value in call.args.values() if isinstance(value, str)), "")
    line = " ".join(first.split())
    return (
        f"{call.name} {line[: _TITLE_ARGUMENT_CHARS - 1]}…"
        if len(line) > _TITLE_ARGUMENT_CHARS
        else f"{call.name} {line}".strip()
    )


def compact_messages(messages: Sequence[Message], event: Compacted) -> list[Message]:
    """Return the older prompts kept verbatim, followed by the latest messages. Calls stay with their results."""
    start = find_kept_start(messages, event.kept_messages)
    kept: list[Message] = [PromptMessage(text) for text in event.user_prompts]
    kept += messages[start:]
    if not kept or not isinstance(kept[0], PromptMessage):
        kept.insert(0, PromptMessage(SUMMARY_OPENING))
    return kept


def find_kept_start(messages: Sequence[Message], kept: int) -> int:
    """Index of the first of the latest `kept` messages, moved back so that results stay with their calls."""
    start = len(messages) - min(max(kept, 0), len(messages))
    while 0 < start < len(messages) and isinstance(messages[start], ToolMessage):
        start -= 1
    return start


def find_paths_in_view(messages: Sequence[Message], paths: Iterable[str]) -> frozenset[str]:
    """The files among `paths` whose content the conversation still shows: attached, or named by an unpruned call."""
    pruned = {
        result.call_id
        for message in messages
        if isinstance(message, ToolMessage)
        for result in message.results
        if is_pruned(result)
    }
    named = {
        value.removeprefix("./")
        for message in messages
        if isinstance(message, ReplyMessage)
        for call in message.calls
        if call.id not in pruned
        for value in _walk_strings(call.args)
    }
    named.update(_find_attached_paths(messages))
    return frozenset(path for path in paths if any(end in named for end in _list_path_suffixes(path)))


def _find_attached_paths(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        for note in message.notes if isinstance(message, PromptMessage) else ():
            if match := _ATTACHED_FILE.match(note):
                yield match[1]


def is_pruned(result: ToolResult) -> bool:
    return result.text == SUMMARIZED_RESULT or (
        result.text.startswith(_PRUNED_PREFIX) and " removed to save room " in result.text
    )


def _walk_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) <= _MAX_PATH_CHARS:
            yield value
    elif isinstance(value, list | tuple):
        for item in cast("list[Any]", value):
            yield from _walk_strings(item)
    elif isinstance(value, dict):
        for item in cast("dict[str, Any]", value).values():
            yield from _walk_strings(item)


def _list_path_suffixes(path: str) -> Iterator[str]:
    """All forms in which a call may name the path: absolute, or relative to any folder above it."""
    yield path
    slash = path.find("/")
    while slash >= 0:
        yield path[slash + 1 :]
        slash = path.find("/", slash + 1)


_TITLE_CHARS = 300


class ContextSummary(Struct, frozen=True):
    """A summary of `calls` and `notes`, requested by the reply at position `index`.

    It applies for as long as that reply is in the conversation, so a rewind reverses it without touching the log.
    """

    index: int
    reply: Message
    calls: frozenset[str]
    notes: frozenset[str] = frozenset()

    def is_part_of(self, messages: Sequence[Message]) -> bool:
        return self.index < len(messages) and messages[self.index] is self.reply


def make_context_summary(
    messages: Sequence[Message], calls: Iterable[str], notes: Iterable[str]
) -> ContextSummary | None:
    """Make the summary that the latest reply requested; None if there is no reply."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], ReplyMessage):
            return ContextSummary(index, messages[index], frozenset(calls), frozenset(notes))
    return None


def apply_summaries(messages: Sequence[Message], summaries: Iterable[ContextSummary]) -> tuple[Message, ...]:
    """Shorten the summarized results to one line and remove the summarized notes."""
    current = [summary for summary in summaries if summary.is_part_of(messages)]
    if not current:
        return tuple(messages)
    return tuple(
        _apply_to_message(message, [summary for summary in current if index < summary.index])
        for index, message in enumerate(messages)
    )


def _apply_to_message(message: Message, summaries: Sequence[ContextSummary]) -> Message:
    if isinstance(message, ToolMessage):
        calls = {call for summary in summaries for call in summary.calls}
        if not any(result.call_id in calls for result in message.results):
            return message
        results = tuple(
            ToolResult(result.call_id, SUMMARIZED_RESULT, result.is_error) if result.call_id in calls else result
            for result in message.results
        )
        return ToolMessage(results, message.notes)
    if isinstance(message, PromptMessage):
        removed = {note for summary in summaries for note in summary.notes}
        kept = tuple(note for note in message.notes if note not in removed)
        if len(kept) == len(message.notes):
            return message
        return PromptMessage(message.text, kept, message.images, message.origin)
    return message


def list_results(messages: Iterable[Message]) -> Iterator[CollectedItem]:
    """The results of finished calls with their call titles, oldest first."""
    titles: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ReplyMessage):
            for call in message.calls:
                arguments = msgspec.json.encode(call.args).decode()
                titles[call.id] = f"{call.name} {arguments[:_TITLE_CHARS]}"
        elif isinstance(message, ToolMessage):
            for result in message.results:
                yield CollectedItem(titles.get(result.call_id, ""), result.text, result.call_id)
