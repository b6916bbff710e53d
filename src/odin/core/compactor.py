"""The extension point for programs that embed Odin and summarize conversations themselves."""

from typing import Protocol

from odin.core.message import Message


class Compactor(Protocol):
    """Decides when the older part of a conversation is summarized, and writes the summary.

    The session decides which messages stay, keeps the archive, and makes sure every tool call keeps its result.
    """

    def should_compact(self, tokens: int, window: int) -> bool:
        """True if it is time. `tokens` is the size of the next request; `window` is 0 if unknown."""
        ...

    async def compact(self, messages: tuple[Message, ...], earlier: str) -> str:
        """Return a summary of `messages` and of the `earlier` summary. It becomes part of the system prompt."""
        ...


class NoCompactor:
    """Never summarizes: the conversation grows until the model rejects it."""

    def should_compact(self, tokens: int, window: int) -> bool:
        return False

    async def compact(self, messages: tuple[Message, ...], earlier: str) -> str:
        return ""
