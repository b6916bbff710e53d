"""Prompts that wait: first in, first out, each with the mode it was sent in. It can be taken back until it runs."""

from odin.core.op import Prompt


class Inbox:
    def __init__(self) -> None:
        self._waiting: dict[str, Prompt] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, prompt: Prompt) -> None:
        self._waiting[prompt.id] = prompt

    def drop(self, prompt_id: str) -> bool:
        """False when it is unknown or runs already."""
        return self._waiting.pop(prompt_id, None) is not None

    def take(self) -> Prompt | None:
        if not self._waiting:
            return None
        return self._waiting.pop(next(iter(self._waiting)))
