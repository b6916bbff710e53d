"""Prompts that wait: first in, first out, each in the mode it was sent in. Until it is taken, one can be changed."""

from collections.abc import Callable, Collection, Iterable

import msgspec

from odin.core.client import QueuedPrompt
from odin.core.errors import QueueFull
from odin.core.event import Delivery, Mode
from odin.core.op import ChangePrompt, Prompt

MAX_STEERING = 10
"""How many prompts may wait to be sent into the running turn."""


class PromptQueue:
    """The drafts of one agent, each with a lane.

    One that rests is not begun by itself: it was left by an earlier run of the session, or by an interrupt. Whoever
    gives it a lane sends it on its way again.
    """

    def __init__(self, left: Iterable[QueuedPrompt] = ()) -> None:
        self._waiting = {item.id: _prompt_of(item) for item in left}
        self._paused_ids = set(self._waiting)

    @property
    def has_due(self) -> bool:
        """Whether one waits that will be begun by itself."""
        return len(self._waiting) > len(self._paused_ids)

    def get(self, prompt_id: str) -> Prompt | None:
        return self._waiting.get(prompt_id)

    def put(self, prompt: Prompt) -> None:
        self._check_room(prompt.delivery)
        self._waiting[prompt.id] = prompt

    def change(self, op: ChangePrompt) -> Prompt | None:
        """The prompt as it is now; None when it is unknown or was taken. It keeps its place."""
        prompt = self._waiting.get(op.id)
        if prompt is None:
            return None
        if prompt.delivery != "steer":
            self._check_room(op.delivery)
        changed = msgspec.structs.replace(
            prompt,
            text=prompt.text if op.text is None else op.text,
            display_text=prompt.display_text if op.text is None else op.display_text,
            mode=op.mode or prompt.mode,
            delivery=op.delivery or prompt.delivery,
            attachments=prompt.attachments if op.attachments is None else op.attachments,
        )
        self._waiting[op.id] = changed
        if op.delivery is not None:
            self._paused_ids.discard(op.id)
        return changed

    def drop(self, prompt_id: str) -> bool:
        """False when it is unknown or was taken."""
        self._paused_ids.discard(prompt_id)
        return self._waiting.pop(prompt_id, None) is not None

    def take(self) -> Prompt | None:
        """The next one to be answered in a turn of its own."""
        for prompt in self._list_due():
            self.drop(prompt.id)
            return prompt
        return None

    def find_injectable(
        self, fits: Callable[[Mode], bool], lanes: tuple[Delivery, ...] = ("merge", "steer")
    ) -> Prompt | None:
        """The next one that goes into a running turn: only where its mode is that of the turn."""
        return next((item for item in self._list_due() if item.delivery in lanes and fits(item.mode)), None)

    @property
    def paused_ids(self) -> frozenset[str]:
        """What waits and is not begun by itself."""
        return frozenset(self._paused_ids)

    def list_due_ids(self) -> frozenset[str]:
        """What waits now and will be begun by itself."""
        return frozenset(prompt.id for prompt in self._list_due())

    def pause_all(self) -> None:
        """Nothing that waits now is begun by itself any more."""
        self._paused_ids = set(self._waiting)

    def pause(self, ids: Collection[str]) -> None:
        """These are not begun by themselves any more, as far as they still wait."""
        self._paused_ids |= self._waiting.keys() & set(ids)

    def take_due(self, ids: Collection[str]) -> list[Prompt]:
        """Those of them that would be begun by themselves, taken out in their order."""
        return [prompt for prompt in self._list_due() if prompt.id in ids and self.drop(prompt.id)]

    def _list_due(self) -> list[Prompt]:
        return [prompt for prompt in self._waiting.values() if prompt.id not in self._paused_ids]

    def _check_room(self, lane: Delivery | None) -> None:
        if lane == "steer" and sum(item.delivery == "steer" for item in self._waiting.values()) >= MAX_STEERING:
            raise QueueFull(MAX_STEERING)


def _prompt_of(item: QueuedPrompt) -> Prompt:
    shown = item.body if item.text else ""
    return Prompt(
        item.id,
        item.text or item.body,
        item.mode,
        delivery=item.delivery,
        display_text=shown,
        attachments=item.attachments,
    )
