"""An example of a provider package: its model repeats the prompt.

A real one would import its SDK here, or in `stream`, and convert the messages of the request for its API.
"""

from collections.abc import AsyncGenerator
from typing import ClassVar

from odin.core.errors import ModelNotFound
from odin.core.message import PromptMessage, Usage
from odin.core.provider import Chunk, Request, StopChunk, TextChunk, UsageChunk
from odin.providers.plugins import ProviderSetup
from odin.providers.settings import ModelSettings


class ExampleProvider:
    """Implements `odin.core.provider.Provider`."""

    models: ClassVar = {"echo": ModelSettings(context=8_000, price_input=1.0, price_output=2.0, tools="native")}
    """What Odin should know about the models. Optional; the user's settings win."""

    def __init__(self, setup: ProviderSetup) -> None:
        self.name = setup.name
        self._prefix = str(setup.options.get("prefix", "You said: "))

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        """Yield the reply, the stop last. Failures are subclasses of ProviderError, which say whether to try again."""
        if request.model not in self.models:
            raise ModelNotFound(f"{self.name} has no model {request.model!r}.", "It has echo.")
        prompt = next(message for message in reversed(request.messages) if isinstance(message, PromptMessage))
        yield TextChunk(self._prefix)
        yield TextChunk(prompt.text)
        yield UsageChunk(Usage(input=len(prompt.text), output=len(prompt.text)))
        yield StopChunk("end_turn", request.model)

    async def close(self) -> None:
        """Called once, when the session ends."""
