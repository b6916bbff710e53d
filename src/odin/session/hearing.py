"""What each kind of event says to the thread of the agent it belongs to."""

from collections.abc import Callable
from typing import Any

from odin.core.event import (
    AnyEvent,
    Compacted,
    ContextSummarized,
    MessageRemoved,
    Noted,
    PromptJoined,
    Replied,
    ReplyDiscarded,
    ResultsPruned,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from odin.session.thread import Thread


def heard(event: AnyEvent) -> bool:
    """Whether a thread hears of it."""
    return type(event) in _STEPS


def hear(thread: Thread, event: AnyEvent) -> None:
    step = _STEPS.get(type(event))
    if step is not None:
        step(thread, event)


def _turn_ended(thread: Thread, event: TurnEnded) -> None:
    thread._close()


def _replied(thread: Thread, event: Replied) -> None:
    thread.reply(event.message)


def _tool_started(thread: Thread, event: ToolStarted) -> None:
    thread.begin(event.call_id)


def _noted(thread: Thread, event: Noted) -> None:
    thread.note(event.text)


def _reply_discarded(thread: Thread, event: ReplyDiscarded) -> None:
    thread.seal()


def _prompt_joined(thread: Thread, event: PromptJoined) -> None:
    thread.join(event)


def _message_removed(thread: Thread, event: MessageRemoved) -> None:
    thread.remove_last()


def _context_summarized(thread: Thread, event: ContextSummarized) -> None:
    """The pieces of context are the main agent's; the thread of another has no notes of them."""
    thread.summarise(event.calls, ())


_STEPS: dict[type[AnyEvent], Callable[[Thread, Any], None]] = {
    TurnStarted: Thread.start,
    TurnEnded: _turn_ended,
    Replied: _replied,
    ToolStarted: _tool_started,
    ToolEnded: Thread.result,
    Noted: _noted,
    ReplyDiscarded: _reply_discarded,
    PromptJoined: _prompt_joined,
    MessageRemoved: _message_removed,
    ContextSummarized: _context_summarized,
    ResultsPruned: Thread.prune,
    Compacted: Thread.compact,
}
