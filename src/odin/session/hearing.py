"""What each kind of event says to the thread of the agent it belongs to."""

from collections.abc import Callable
from typing import Any

from odin.core.event import (
    AnyEvent,
    Compacted,
    ContextSummarized,
    MessageRemoved,
    NoteAdded,
    PromptInjected,
    Replied,
    ReplyDiscarded,
    ResultsPruned,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from odin.session.thread import Thread


def is_thread_event(event: AnyEvent) -> bool:
    """Whether a thread hears of it."""
    return type(event) in _THREAD_HANDLERS


def apply_thread_event(thread: Thread, event: AnyEvent) -> None:
    step = _THREAD_HANDLERS.get(type(event))
    if step is not None:
        step(thread, event)


def _on_turn_ended(thread: Thread, event: TurnEnded) -> None:
    thread._close()


def _on_replied(thread: Thread, event: Replied) -> None:
    thread.add_reply(event.message)


def _on_tool_started(thread: Thread, event: ToolStarted) -> None:
    thread.mark_call_started(event.call_id)


def _on_noted(thread: Thread, event: NoteAdded) -> None:
    thread.add_note(event.text)


def _on_reply_discarded(thread: Thread, event: ReplyDiscarded) -> None:
    thread.seal()


def _on_prompt_joined(thread: Thread, event: PromptInjected) -> None:
    thread.inject(event)


def _on_message_removed(thread: Thread, event: MessageRemoved) -> None:
    thread.remove_last()


def _on_context_summarized(thread: Thread, event: ContextSummarized) -> None:
    """The pieces of context are the main agent's; the thread of another has no notes of them."""
    thread.add_summary(event.calls, ())


_THREAD_HANDLERS: dict[type[AnyEvent], Callable[[Thread, Any], None]] = {
    TurnStarted: Thread.start,
    TurnEnded: _on_turn_ended,
    Replied: _on_replied,
    ToolStarted: _on_tool_started,
    ToolEnded: Thread.add_result,
    NoteAdded: _on_noted,
    ReplyDiscarded: _on_reply_discarded,
    PromptInjected: _on_prompt_joined,
    MessageRemoved: _on_message_removed,
    ContextSummarized: _on_context_summarized,
    ResultsPruned: Thread.prune,
    Compacted: Thread.compact,
}
