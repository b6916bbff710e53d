"""The conversation of one agent as the messages its model receives.

A thread is a fold over the agent's events. At any prefix of the log its history is valid for every provider: each tool
call is followed by exactly one result, in the order of the calls.
"""

from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct

from odin.core.call_events import Replied, ReplyDiscarded, ToolEnded, ToolStarted
from odin.core.event import (
    AnyEvent,
    ChecksRan,
    Compacted,
    ContextSummarized,
    MessageRemoved,
    NoteAdded,
    PromptInjected,
    ResultsPruned,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Message, PromptMessage, PromptOrigin, ReplyMessage, ToolCall, ToolMessage, ToolResult
from odin.session.history import ContextSummary, apply_summaries, compact_messages, make_context_summary, prune_results

CONTINUE_PROMPT = "Go on from where you stopped."
"""Sent when a conversation that ends with a reply is continued: not every API accepts a reply as the last message."""

INTERRUPTED = "Interrupted: this call did not finish, and what it changed before that is not known."
NOT_STARTED = "Not run: the turn was interrupted before this call began."
LOST_MESSAGE = "(A message was lost here.)"
"""Placeholder for a prompt missing from the log: not every API accepts a reply first or directly after another."""


class ThreadMark(Struct, frozen=True, gc=False):
    """A point to rewind to: the number of messages and the thread's `generation`.

    A mark references no messages, so the ones a summary replaces can be garbage-collected.
    """

    count: int
    generation: int


class Thread:
    """The conversation of one agent with its model.

    `summary` covers everything before the first message; `prompt` is the latest prompt. `generation` counts how often
    messages already sent were rewritten. `lineage` changes when message positions change, which invalidates a summary
    prepared for the old positions.
    """

    EVENTS: ClassVar[frozenset[type]] = frozenset(
        (
            Replied,
            ToolStarted,
            ToolEnded,
            NoteAdded,
            ChecksRan,
            TurnStarted,
            TurnEnded,
            ReplyDiscarded,
            PromptInjected,
            MessageRemoved,
            ContextSummarized,
            ResultsPruned,
            Compacted,
        )
    )

    def __init__(self) -> None:
        self.summary = ""
        self.archive = ""
        self.prompt = ""
        self.generation = 0
        self.lineage = 0
        self._messages: list[Message] = []
        self._calls_of_reply: tuple[ToolCall, ...] = ()
        self._results: dict[str, ToolResult] = {}
        self._started_calls: set[str] = set()
        self._is_sealed = False
        self._note_origin: PromptOrigin = "odin"
        """What the next note is about."""
        self._summaries: list[ContextSummary] = []

    def apply(self, event: AnyEvent) -> None:
        match event:
            case Replied():
                self.add_reply(event.message)
            case ToolStarted():
                self._started_calls.add(event.call_id)
            case ToolEnded():
                self.add_result(event)
            case NoteAdded():
                self.add_note(event.text)
            case ChecksRan(continues=True):
                self._note_origin = "checks"
            case TurnStarted():
                if event.continues:
                    self._close_calls()
                    self._continue(event.notes)
                else:
                    self._add_prompt(event)
            case TurnEnded():
                self._close_calls()
            case ReplyDiscarded():
                self._is_sealed = True
            case PromptInjected():
                self._add_prompt(event)
            case MessageRemoved():
                self.remove_last()
            case ContextSummarized():
                self.add_summary(event.calls, ())
            case ResultsPruned():
                self.prune(event)
            case Compacted():
                self.compact(event)
            case _:
                pass

    def build_history(self) -> tuple[Message, ...]:
        closed = apply_summaries(self._messages, self._summaries)
        return (*closed, self._build_tool_message()) if self._calls_of_reply else closed

    def build_finished_history(self) -> tuple[Message, ...]:
        """The history without calls that are still running."""
        return apply_summaries(self._messages, self._summaries)

    def add_summary(self, calls: Iterable[str], notes: Iterable[str]) -> None:
        """Replace these results and notes by the summary that the latest reply requested."""
        summary = make_context_summary(self._messages, calls, notes)
        if summary is not None:
            self._summaries.append(summary)

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the latest reply without a result."""
        return tuple(call for call in self._calls_of_reply if call.id not in self._results)

    def mark(self) -> ThreadMark:
        """Return the current point, for `rewind_to`."""
        self._close_calls()
        return ThreadMark(len(self._messages), self.generation)

    def rewind_to(self, mark: ThreadMark) -> bool:
        """Drop the messages after `mark`. False if messages were rewritten since; only the log has the old ones."""
        if mark.generation != self.generation or mark.count > len(self._messages):
            return False
        self._messages = self._messages[: mark.count]
        self._calls_of_reply, self._results, self._started_calls, self._is_sealed = (), {}, set(), False
        self.lineage += 1
        self.prompt = next((item.text for item in reversed(self._messages) if isinstance(item, PromptMessage)), "")
        return True

    def copy(self) -> "Thread":
        other = Thread()
        other.__dict__.update(self.__dict__)
        other._messages = list(self._messages)
        other._results, other._started_calls = dict(self._results), set(self._started_calls)
        other._summaries = list(self._summaries)
        return other

    def remove_last(self) -> bool:
        """Remove the latest message; tool results go together with their calls. False if the thread is empty."""
        self._close_calls()
        if not self._messages:
            return False
        removed = self._messages.pop()
        if isinstance(removed, ToolMessage) and self._messages:
            self._messages.pop()
        self._is_sealed = False
        self.generation += 1
        self.lineage += 1
        return True

    def prune(self, event: ResultsPruned) -> None:
        """Shorten the event's results to one line each."""
        self._close_calls()
        self._rewrite(prune_results(apply_summaries(self._messages, self._summaries), event))

    def compact(self, event: Compacted) -> None:
        """Replace the older messages by a summary. The originals remain in the log only."""
        self._close_calls()
        self._rewrite(compact_messages(apply_summaries(self._messages, self._summaries), event))
        self.summary, self.archive = event.text, event.archive
        self.lineage += 1

    def _rewrite(self, messages: list[Message]) -> None:
        self._messages = messages
        self._summaries = []
        self.generation += 1

    def _continue(self, notes: Iterable[str]) -> None:
        """Continue without a prompt. Messages already sent stay unchanged, so notes become a message of their own."""
        if not self._messages or isinstance(self._messages[-1], ReplyMessage):
            self._messages.append(PromptMessage(CONTINUE_PROMPT, tuple(notes), origin="odin"))
            self._is_sealed = False
            return
        self._is_sealed = True
        for note in notes:
            self.add_note(note)

    def _add_prompt(self, event: TurnStarted | PromptInjected) -> None:
        self._close_calls()
        self._messages.append(PromptMessage(event.text, event.notes, event.images))
        self.prompt = event.text
        self._is_sealed = False

    def add_reply(self, message: ReplyMessage) -> None:
        self._close_calls()
        if not message.text.strip() and not message.calls:
            return
        if not self._messages or isinstance(self._messages[-1], ReplyMessage):
            self._messages.append(PromptMessage(LOST_MESSAGE))
        self._messages.append(message)
        self._calls_of_reply = message.calls
        self._is_sealed = False

    def add_result(self, event: ToolEnded) -> None:
        if any(call.id == event.call_id for call in self._calls_of_reply) and event.call_id not in self._results:
            self._results[event.call_id] = ToolResult(
                event.call_id,
                event.text,
                event.status != "success",
                event.images,
                event.status == "denied",
                event.error_kind,
            )
            if len(self._results) == len(self._calls_of_reply):
                self._close_calls()

    def add_note(self, text: str) -> None:
        """Attach a note to the latest message, or append it as a message if that one was already sent."""
        self._close_calls()
        origin, self._note_origin = self._note_origin, "odin"
        last = self._messages[-1] if self._messages else None
        if self._is_sealed or last is None or isinstance(last, ReplyMessage):
            self._messages.append(PromptMessage(text, origin=origin))
        elif isinstance(last, PromptMessage):
            self._messages[-1] = PromptMessage(last.text, (*last.notes, text), last.images, last.origin)
        else:
            self._messages[-1] = ToolMessage(last.results, (*last.notes, text))
        self._is_sealed = False

    def _close_calls(self) -> None:
        if self._calls_of_reply:
            self._messages.append(self._build_tool_message())
            self._calls_of_reply = ()
            self._results = {}
            self._started_calls = set()

    def _build_tool_message(self) -> ToolMessage:
        return ToolMessage(
            tuple(
                self._results.get(call.id) or ToolResult(call.id, self.get_interruption_text(call.id), True)
                for call in self._calls_of_reply
            )
        )

    def get_interruption_text(self, call_id: str) -> str:
        """The result text for an open call whose turn is over."""
        return INTERRUPTED if call_id in self._started_calls else NOT_STARTED
