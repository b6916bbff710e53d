"""Summaries in a conversation: what there is to summarise, and the history with a summary in its place.

What was summarised stays where it was, shortened to one line, so that each call keeps its one result. The originals are
not lost: they are in the log, and come into view again when the conversation is taken back to before the summary.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from odin.core.message import Message, PromptMessage, ReplyMessage, ToolMessage, ToolResult
from odin.core.tool import CollectedItem
from odin.session.shrink import SUMMARIZED_RESULT

__all__ = ["SUMMARIZED_RESULT", "ContextSummary", "apply_summaries", "make_context_summary", "results_of"]

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
