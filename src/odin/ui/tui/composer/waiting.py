"""The prompts that wait, as the events tell it."""

from collections.abc import Iterable

from odin.core.client import QueuedPrompt
from odin.core.event import Envelope, PromptChanged, PromptDropped, PromptInjected, PromptQueued, TurnEnded, TurnStarted


class QueuedPrompts:
    """In the order in which they are taken. One that rests was left by an earlier run or an interrupt.

    Those of an earlier run are `resting`: they follow the next prompt. What an interrupt laid down has to be sent by
    somebody. Of a session that was at work when the app came to it none rests.
    """

    def __init__(self) -> None:
        self._prompts: dict[str, QueuedPrompt] = {}
        self._left_over: set[str] = set()
        self._paused: set[str] = set()
        self._running = False
        self._is_live = False

    def __len__(self) -> int:
        return len(self._prompts)

    @property
    def prompts(self) -> tuple[QueuedPrompt, ...]:
        return tuple(self._prompts.values())

    @property
    def left_over(self) -> tuple[QueuedPrompt, ...]:
        return tuple(prompt for prompt in self._prompts.values() if prompt.id in self._left_over)

    def is_paused(self, prompt: str) -> bool:
        return prompt in self._left_over or prompt in self._paused

    def pause(self, prompts: Iterable[str]) -> None:
        """The session says that these are not begun by themselves."""
        self._paused = set(prompts) & self._prompts.keys()

    def find(self, prompt: str) -> QueuedPrompt | None:
        return self._prompts.get(prompt)

    def apply(self, envelope: Envelope, live: bool) -> bool:
        """Whether this event changed anything."""
        event = envelope.event
        if envelope.agent:
            return False
        if live and self._running and not self._is_live:
            self._left_over.clear()
        self._is_live = self._is_live or live
        if isinstance(event, TurnStarted | TurnEnded):
            self._running = isinstance(event, TurnStarted)
        if isinstance(event, PromptQueued):
            self._prompts[event.id] = _make_queued(event, envelope.ts)
            if not live:
                self._left_over.add(event.id)
        elif isinstance(event, PromptChanged):
            if event.id not in self._prompts:
                return False
            self._prompts[event.id] = _make_queued(event, self._prompts[event.id].timestamp)
            if live:
                self._clear_pause(event.id)
        elif isinstance(event, PromptDropped | PromptInjected | TurnStarted):
            self._clear_pause(event.id)
            return self._prompts.pop(event.id, None) is not None
        else:
            return False
        return True

    def _clear_pause(self, prompt: str) -> None:
        self._left_over.discard(prompt)
        self._paused.discard(prompt)


def _make_queued(event: PromptQueued | PromptChanged, since: float) -> QueuedPrompt:
    read = event.text if event.display_text else ""
    return QueuedPrompt(
        event.id, event.display_text or event.text, event.mode, since, event.delivery, read, event.attachments
    )
