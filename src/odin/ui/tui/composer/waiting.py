"""The prompts that wait, as the events tell it."""

from collections.abc import Iterable

from odin.core.client import QueuedPrompt
from odin.core.event import Envelope, PromptChanged, PromptDropped, PromptJoined, PromptQueued, TurnEnded, TurnStarted


class Waiting:
    """In the order in which they are taken. One that rests was left by an earlier run or an interrupt.

    Those of an earlier run are `resting`: they follow the next prompt. What an interrupt laid down has to be sent by
    somebody. Of a session that was at work when the app came to it none rests.
    """

    def __init__(self) -> None:
        self._prompts: dict[str, QueuedPrompt] = {}
        self._resting: set[str] = set()
        self._laid_down: set[str] = set()
        self._running = False
        self._lived = False

    def __len__(self) -> int:
        return len(self._prompts)

    @property
    def prompts(self) -> tuple[QueuedPrompt, ...]:
        return tuple(self._prompts.values())

    @property
    def resting(self) -> tuple[QueuedPrompt, ...]:
        return tuple(prompt for prompt in self._prompts.values() if prompt.id in self._resting)

    def rests(self, prompt: str) -> bool:
        return prompt in self._resting or prompt in self._laid_down

    def lay_down(self, prompts: Iterable[str]) -> None:
        """The session says that these are not begun by themselves."""
        self._laid_down = set(prompts) & self._prompts.keys()

    def find(self, prompt: str) -> QueuedPrompt | None:
        return self._prompts.get(prompt)

    def see(self, envelope: Envelope, live: bool) -> bool:
        """Whether this event changed anything."""
        event = envelope.event
        if envelope.agent:
            return False
        if live and self._running and not self._lived:
            self._resting.clear()
        self._lived = self._lived or live
        if isinstance(event, TurnStarted | TurnEnded):
            self._running = isinstance(event, TurnStarted)
        if isinstance(event, PromptQueued):
            self._prompts[event.id] = _waiting(event, envelope.ts)
            if not live:
                self._resting.add(event.id)
        elif isinstance(event, PromptChanged):
            if event.id not in self._prompts:
                return False
            self._prompts[event.id] = _waiting(event, self._prompts[event.id].timestamp)
            if live:
                self._awake(event.id)
        elif isinstance(event, PromptDropped | PromptJoined | TurnStarted):
            self._awake(event.id)
            return self._prompts.pop(event.id, None) is not None
        else:
            return False
        return True

    def _awake(self, prompt: str) -> None:
        self._resting.discard(prompt)
        self._laid_down.discard(prompt)


def _waiting(event: PromptQueued | PromptChanged, since: float) -> QueuedPrompt:
    read = event.text if event.shown else ""
    return QueuedPrompt(event.id, event.shown or event.text, event.mode, since, event.lane, read, event.attached)
