"""A conversation that grows too long, left to the program that embeds Odin."""

from typing import Protocol

from odin.core.message import Message


class Compactor(Protocol):
    """Decides when the older part of a conversation becomes a summary, and writes it.

    What stays as it is, where the whole is kept and that no call loses its result is seen to by the session.
    """

    def should_compact(self, tokens: int, window: int) -> bool:
        """Whether it is time. `tokens` is what the next request will take; `window` is 0 when it is not known."""
        ...

    async def compact(self, messages: tuple[Message, ...], earlier: str) -> str:
        """A summary of these messages and of the `earlier` one. It stands in the system prompt from then on."""
        ...


class NoCompactor:
    """Never: the conversation grows until the model refuses it."""

    def should_compact(self, tokens: int, window: int) -> bool:
        return False

    async def compact(self, messages: tuple[Message, ...], earlier: str) -> str:
        return ""
