"""A conversation made smaller: results that are shown as one line, and older messages in whose place a summary stands.

Everything here is part of the fold, so what comes out of it must be a history that every provider accepts, whatever
the event says.

Summaries in a conversation: what there is to summarise, and the history with a summary in its place.

What was summarised stays where it was, shortened to one line, so that each call keeps its one result. The originals are
not lost: they are in the log, and come into view again when the conversation is taken back to before the summary.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from odin.core.event import Compacted, ResultsPruned
from odin.core.message import Image, Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult
from odin.core.tool import CollectedItem

SUMMARY_OPENING = "(The conversation before this point was summarised.)"
IMAGE_REMOVED = "(image removed to save room; read its file again to see it)"
SUMMARIZED_RESULT = "(summarised by ContextSummarizer)"
_PRUNED_PREFIX = "[Output of "
_ATTACHED_FILE = re.compile(r"Context from ([^\n]+?)(?::\d+-\d+)?:\n")
"""How a note begins that holds a file, or some lines of one."""

_TITLE_ARGUMENT_CHARS = 80
_MAX_PATH_CHARS = 4096


def prune_results(messages: Sequence[Message], event: ResultsPruned) -> list[Message]:
    """The messages with one line in the place of these results, and without these images."""
    calls, images = frozenset(event.calls), frozenset(event.images)
    titles = titles_of(messages) if calls else {}
    return [_prune_message(message, calls, images, titles, event.archive) for message in messages]


def _prune_message(
    message: Message, calls: Collection[str], images: Collection[str], titles: dict[str, str], archive: str
) -> Message:
    if isinstance(message, PromptMessage):
        return _remove_prompt_images(message, images)
    if not isinstance(message, ToolMessage):
        return message
    results = tuple(
        _make_pruned_result(result, titles.get(result.call_id, ""), archive)
        if result.call_id in calls
        else _remove_result_images(result, images)
        for result in message.results
    )
    same = all(old is new for old, new in zip(message.results, results, strict=True))
    return message if same else ToolMessage(results, message.notes)


def _make_pruned_result(result: ToolResult, title: str, archive: str) -> ToolResult:
    size = f"{len(result.text):,} characters"
    where = f"the whole is in {archive} under {result.call_id}" if archive else "run the call again if you need it"
    return ToolResult(
        result.call_id, f"{_PRUNED_PREFIX}{title or 'this call'} removed to save room ({size}): {where}.]"
    )


def _remove_prompt_images(message: PromptMessage, gone: Collection[str]) -> PromptMessage:
    kept = tuple(image for image in message.images if image.path not in gone)
    if len(kept) == len(message.images):
        return message
    return PromptMessage(message.text, (*message.notes, IMAGE_REMOVED), kept)


def _remove_result_images(result: ToolResult, gone: Collection[str]) -> ToolResult:
    kept: tuple[Image, ...] = tuple(image for image in result.images if image.path not in gone)
    if len(kept) == len(result.images):
        return result
    return ToolResult(result.call_id, f"{result.text}\n{IMAGE_REMOVED}", result.is_error, kept)


def titles_of(messages: Iterable[Message]) -> dict[str, str]:
    """For every call its tool and the first of its arguments, in a few words."""
    return {
        call.id: call_title_of(call)
        for message in messages
        if isinstance(message, ReplyMessage)
        for call in message.calls
    }


def call_title_of(call: ToolCall) -> str:
    first = next((value for value in call.args.values() if isinstance(value, str)), "")
    line = " ".join(first.split())
    return (
        f"{call.name} {line[: _TITLE_ARGUMENT_CHARS - 1]}…"
        if len(line) > _TITLE_ARGUMENT_CHARS
        else f"{call.name} {line}".strip()
    )


def compact_messages(messages: Sequence[Message], event: Compacted) -> list[Message]:
    """The older prompts that are kept word for word, then the newest messages. No call is parted from its results."""
    start = find_kept_start(messages, event.kept_messages)
    found: list[Message] = [PromptMessage(text) for text in event.user_prompts]
    found += messages[start:]
    if not found or not isinstance(found[0], PromptMessage):
        found.insert(0, PromptMessage(SUMMARY_OPENING))
    return found


def find_kept_start(messages: Sequence[Message], kept: int) -> int:
    """Where the newest `kept` messages begin; with results, the calls they answer are kept as well."""
    start = len(messages) - min(max(kept, 0), len(messages))
    while 0 < start < len(messages) and isinstance(messages[start], ToolMessage):
        start -= 1
    return start


def find_paths_in_view(messages: Sequence[Message], paths: Iterable[str]) -> frozenset[str]:
    """Those of the files that a call of the conversation names whose result is still whole, or that were attached."""
    gone = {
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
        if call.id not in gone
        for value in _walk_strings(call.args)
    }
    named.update(_find_attached_paths(messages))
    return frozenset(path for path in paths if any(end in named for end in _path_suffixes_of(path)))


def _find_attached_paths(messages: Iterable[Message]) -> Iterator[str]:
    """The files that stand in notes beside a prompt."""
    for message in messages:
        for note in message.notes if isinstance(message, PromptMessage) else ():
            if found := _ATTACHED_FILE.match(note):
                yield found[1]


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


def _path_suffixes_of(path: str) -> Iterator[str]:
    """The path as it may be written: whole, or from any folder above it."""
    yield path
    at = path.find("/")
    while at >= 0:
        yield path[at + 1 :]
        at = path.find("/", at + 1)


_TITLE_CHARS = 300


class ContextSummary(Struct, frozen=True):
    """One summary: the reply that asked for it and its place, and the results and notes it stands for."""

    at: int
    reply: Message
    calls: frozenset[str]
    notes: frozenset[str] = frozenset()

    def is_part_of(self, messages: Sequence[Message]) -> bool:
        """Whether the summary is still part of the conversation."""
        return self.at < len(messages) and messages[self.at] is self.reply


def make_context_summary(
    messages: Sequence[Message], calls: Iterable[str], notes: Iterable[str]
) -> ContextSummary | None:
    """A summary that the newest reply asked for."""
    for at in range(len(messages) - 1, -1, -1):
        if isinstance(messages[at], ReplyMessage):
            return ContextSummary(at, messages[at], frozenset(calls), frozenset(notes))
    return None


def apply_summaries(messages: Sequence[Message], covers: Iterable[ContextSummary]) -> tuple[Message, ...]:
    """The messages with one line in the place of everything that was summarised."""
    held = [cover for cover in covers if cover.is_part_of(messages)]
    if not held:
        return tuple(messages)
    return tuple(
        _apply_to_message(message, [cover for cover in held if at < cover.at]) for at, message in enumerate(messages)
    )


def _apply_to_message(message: Message, covers: Sequence[ContextSummary]) -> Message:
    if isinstance(message, ToolMessage):
        calls = {call for cover in covers for call in cover.calls}
        if not any(result.call_id in calls for result in message.results):
            return message
        results = tuple(
            _make_summarized_result(result) if result.call_id in calls else result for result in message.results
        )
        return ToolMessage(results, message.notes)
    if isinstance(message, PromptMessage):
        gone = {note for cover in covers for note in cover.notes}
        kept = tuple(note for note in message.notes if note not in gone)
        return message if len(kept) == len(message.notes) else PromptMessage(message.text, kept, message.images)
    return message


def _make_summarized_result(result: ToolResult) -> ToolResult:
    return ToolResult(result.call_id, SUMMARIZED_RESULT, result.is_error)


def results_of(messages: Iterable[Message]) -> Iterator[CollectedItem]:
    """The results of finished calls, oldest first, each with the call it answers."""
    titles: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ReplyMessage):
            for call in message.calls:
                written = msgspec.json.encode(call.args).decode()
                titles[call.id] = f"{call.name} {written[:_TITLE_CHARS]}"
        elif isinstance(message, ToolMessage):
            for result in message.results:
                yield CollectedItem(titles.get(result.call_id, ""), result.text, result.call_id)
