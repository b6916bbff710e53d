"""The prompts of a session that wait, in the order in which they came."""

from collections.abc import Callable
from typing import Any

from odin.core.client import QueuedPrompt
from odin.core.event import AnyEvent, Envelope, PromptChanged, PromptDropped, PromptJoined, PromptQueued, TurnStarted


class Waiting:
    def __init__(self) -> None:
        self._prompts: dict[str, QueuedPrompt] = {}

    @property
    def prompts(self) -> tuple[QueuedPrompt, ...]:
        return tuple(self._prompts.values())

    def apply(self, envelope: Envelope) -> None:
        step = _STEPS.get(type(envelope.event))
        if step is not None:
            step(self, envelope.event, envelope)

    def _queued(self, event: PromptQueued, envelope: Envelope) -> None:
        self._prompts[event.id] = _waiting(event, envelope.ts)

    def _changed(self, event: PromptChanged, envelope: Envelope) -> None:
        if (known := self._prompts.get(event.id)) is not None:
            self._prompts[event.id] = _waiting(event, known.timestamp)

    def _left(self, event: PromptDropped | PromptJoined, envelope: Envelope) -> None:
        self._prompts.pop(event.id, None)

    def _turn_started(self, event: TurnStarted, envelope: Envelope) -> None:
        if not envelope.agent:
            self._prompts.pop(event.id, None)


_STEPS: dict[type[AnyEvent], Callable[[Waiting, Any, Envelope], None]] = {
    PromptQueued: Waiting._queued,
    PromptChanged: Waiting._changed,
    PromptDropped: Waiting._left,
    PromptJoined: Waiting._left,
    TurnStarted: Waiting._turn_started,
}


def _waiting(event: PromptQueued | PromptChanged, since: float) -> QueuedPrompt:
    """People see and change what was typed; what it stands for is kept beside it."""
    read = event.text if event.shown else ""
    return QueuedPrompt(event.id, event.shown or event.text, event.mode, since, event.lane, read, event.attached)
