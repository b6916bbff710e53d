"""Summaries in a conversation: what there is to summarise, and the history with a summary in its place.

What was summarised stays where it was, shortened to one line, so that each call keeps its one result. The originals are
not lost: they are in the log, and come into view again when the conversation is taken back to before the summary.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from odin.core.message import AssistantMessage, Message, ToolMessage, ToolResult, UserMessage
from odin.core.tool import Collected
from odin.session.shrink import SUMMARISED

__all__ = ["SUMMARISED", "Cover", "new_cover", "results_of", "shortened"]

_TITLE = 300


class Cover(Struct, frozen=True):
    """One summary: the reply that asked for it and its place, and the results and notes it stands for."""

    at: int
    reply: Message
    calls: frozenset[str]
    notes: frozenset[str] = frozenset()

    def holds(self, messages: Sequence[Message]) -> bool:
        """Whether the summary is still part of the conversation."""
        return self.at < len(messages) and messages[self.at] is self.reply


def new_cover(messages: Sequence[Message], calls: Iterable[str], notes: Iterable[str]) -> Cover | None:
    """A summary that the newest reply asked for."""
    for at in range(len(messages) - 1, -1, -1):
        if isinstance(messages[at], AssistantMessage):
            return Cover(at, messages[at], frozenset(calls), frozenset(notes))
    return None


def shortened(messages: Sequence[Message], covers: Iterable[Cover]) -> tuple[Message, ...]:
    """The messages with one line in the place of everything that was summarised."""
    held = [cover for cover in covers if cover.holds(messages)]
    if not held:
        return tuple(messages)
    return tuple(_shortened(message, [cover for cover in held if at < cover.at]) for at, message in enumerate(messages))


def _shortened(message: Message, covers: Sequence[Cover]) -> Message:
    if isinstance(message, ToolMessage):
        calls = {call for cover in covers for call in cover.calls}
        if not any(result.call_id in calls for result in message.results):
            return message
        results = tuple(_one_line(result) if result.call_id in calls else result for result in message.results)
        return ToolMessage(results, message.notes)
    if isinstance(message, UserMessage):
        gone = {note for cover in covers for note in cover.notes}
        kept = tuple(note for note in message.notes if note not in gone)
        return message if len(kept) == len(message.notes) else UserMessage(message.text, kept, message.images)
    return message


def _one_line(result: ToolResult) -> ToolResult:
    return ToolResult(result.call_id, SUMMARISED, result.is_error)


def results_of(messages: Iterable[Message]) -> Iterator[Collected]:
    """The results of finished calls, oldest first, each with the call it answers."""
    titles: dict[str, str] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.calls:
                written = msgspec.json.encode(call.args).decode()
                titles[call.id] = f"{call.name} {written[:_TITLE]}"
        elif isinstance(message, ToolMessage):
            for result in message.results:
                yield Collected(titles.get(result.call_id, ""), result.text, result.call_id)
