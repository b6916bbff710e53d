"""What a turn works with: its limits, the model it asks and the collaborators it is given."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from odin.core.errors import ContextOverflow, ProviderError
from odin.core.event import CachedFile
from odin.core.message import Usage
from odin.core.provider import ModelInfo, Provider, ToolSpec
from odin.engine.budget import Budget
from odin.engine.call.admitted import Scope
from odin.engine.call.gate import Gate
from odin.engine.recorder import Recorder
from odin.engine.retry import RetryPolicy
from odin.engine.turnhooks import TurnHooks


class Limits(msgspec.Struct, frozen=True):
    """What bounds one turn. 0 means no limit for `max_turns`."""

    max_turns: int = 100
    max_tokens: int = 8192
    temperature: float | None = None
    thinking: int = 0
    default_response: str = "I have completed processing but have no response to give."


class Planner(msgspec.Struct, frozen=True):
    """The model in use, with the system blocks and tools it is given in one mode."""

    provider: Provider
    info: ModelInfo
    system: tuple[str, ...]
    tools: tuple[ToolSpec, ...]


class Compaction(Protocol):
    """Keeps the conversation of one agent within the window of its model. It is called when no tool call is open."""

    async def before_request(self, planner: Planner, scope: Scope) -> None:
        """Make sure that the next request fits. Raises CompactionFailed when it cannot be made to."""
        ...

    async def overflowed(self, planner: Planner, scope: Scope, error: ContextOverflow) -> bool:
        """The model refused a request as too long. True when there is less to send now: it can be asked again."""
        ...

    @property
    def expected(self) -> int:
        """About how many tokens the request takes that is made next; 0 when nobody measures it."""
        ...

    def answered(self, planner: Planner, usage: Usage) -> None:
        """What the last request really took."""
        ...

    def reply_room(self, planner: Planner) -> int:
        """Tokens a reply may have at most; 0 when nothing is known about it."""
        ...

    async def cut_off(self, planner: Planner, scope: Scope) -> bool:
        """Replies were cut off by their length limit again and again. True when there is more room for one now."""
        ...


class NoCompaction:
    """The conversation grows until the model refuses it."""

    async def before_request(self, planner: Planner, scope: Scope) -> None:
        return

    async def overflowed(self, planner: Planner, scope: Scope, error: ContextOverflow) -> bool:
        return False

    @property
    def expected(self) -> int:
        return 0

    def answered(self, planner: Planner, usage: Usage) -> None:
        return

    def reply_room(self, planner: Planner) -> int:
        return 0

    async def cut_off(self, planner: Planner, scope: Scope) -> bool:
        return False


async def no_other_model(failed: str, error: ProviderError) -> bool:
    return False


class Kit(msgspec.Struct, frozen=True):
    """The collaborators of a turn."""

    recorder: Recorder
    gate: Gate
    limits: Limits
    retry: RetryPolicy
    planner: Callable[[], Planner]
    """The planner for the next request: it may change between two requests."""
    fresh_files: Callable[[], list[CachedFile]]
    """Files that came into the cache since this was last called."""
    hooks: TurnHooks
    budget: Budget
    compaction: Compaction = NoCompaction()
    other_model: Callable[[str, ProviderError], Awaitable[bool]] = no_other_model
    """Called when a model (`provider/model`) cannot answer: whether there is another one to ask now."""
