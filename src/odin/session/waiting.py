"""The prompts of a session that wait, in the order in which they came."""

from collections.abc import Callable
from typing import Any

from odin.core.client import QueuedPrompt
from odin.core.event import AnyEvent, Envelope, PromptChanged, PromptDropped, PromptInjected, PromptQueued, TurnStarted


class PromptQueueState:
    def __init__(self) -> None:
        self._prompts: dict[str, QueuedPrompt] = {}

    @property
    def prompts(self) -> tuple[QueuedPrompt, ...]:
        return tuple(self._prompts.values())

    def apply(self, envelope: Envelope) -> None:
        step = _QUEUE_HANDLERS.get(type(envelope.event))
        if step is not None:
            step(self, envelope.event, envelope)

    def _on_prompt_queued(self, event: PromptQueued, envelope: Envelope) -> None:
        self._prompts[event.id] = _queued_prompt_of(event, envelope.ts)

    def _on_prompt_changed(self, event: PromptChanged, envelope: Envelope) -> None:
        if (known := self._prompts.get(event.id)) is not None:
            self._prompts[event.id] = _queued_prompt_of(event, known.timestamp)

    def _on_prompt_removed(self, event: PromptDropped | PromptInjected, envelope: Envelope) -> None:
        self._prompts.pop(event.id, None)

    def _on_turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        if not envelope.agent:
            self._prompts.pop(event.id, None)


_QUEUE_HANDLERS: dict[type[AnyEvent], Callable[[PromptQueueState, Any, Envelope], None]] = {
    PromptQueued: PromptQueueState._on_prompt_queued,
    PromptChanged: PromptQueueState._on_prompt_changed,
    PromptDropped: PromptQueueState._on_prompt_removed,
    PromptInjected: PromptQueueState._on_prompt_removed,
    TurnStarted: PromptQueueState._on_turn_started,
}


def _queued_prompt_of(event: PromptQueued | PromptChanged, since: float) -> QueuedPrompt:
    """People see and change what was typed; what it stands for is kept beside it."""
    read = event.text if event.display_text else ""
    return QueuedPrompt(
        event.id, event.display_text or event.text, event.mode, since, event.delivery, read, event.attachments
    )
