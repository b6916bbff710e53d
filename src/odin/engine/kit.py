"""What a turn works with: its limits, the model it asks and the collaborators it is given."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from odin.core.errors import ContextOverflow, ProviderError
from odin.core.event import CachedFile
from odin.core.message import Usage
from odin.core.provider import ModelInfo, Provider, ToolSpec
from odin.engine.budget import CostBudget
from odin.engine.call.admitted import CallScope
from odin.engine.call.gate import CallPipeline
from odin.engine.recorder import Recorder
from odin.engine.retry import RetryPolicy
from odin.engine.turnhooks import TurnHooks


class TurnLimits(msgspec.Struct, frozen=True):
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

    async def prepare_request(self, planner: Planner, scope: CallScope) -> None:
        """Make sure that the next request fits. Raises CompactionFailed when it cannot be made to."""
        ...

    async def handle_overflow(self, planner: Planner, scope: CallScope, error: ContextOverflow) -> bool:
        """The model refused a request as too long. True when there is less to send now: it can be asked again."""
        ...

    @property
    def expected_tokens(self) -> int:
        """About how many tokens the request takes that is made next; 0 when nobody measures it."""
        ...

    def record_usage(self, planner: Planner, usage: Usage) -> None:
        """What the last request really took."""
        ...

    def reply_room_of(self, planner: Planner) -> int:
        """Tokens a reply may have at most; 0 when nothing is known about it."""
        ...

    async def handle_cut_off(self, planner: Planner, scope: CallScope) -> bool:
        """Replies were cut off by their length limit again and again. True when there is more room for one now."""
        ...


class NoCompaction:
    """The conversation grows until the model refuses it."""

    async def prepare_request(self, planner: Planner, scope: CallScope) -> None:
        return

    async def handle_overflow(self, planner: Planner, scope: CallScope, error: ContextOverflow) -> bool:
        return False

    @property
    def expected_tokens(self) -> int:
        return 0

    def record_usage(self, planner: Planner, usage: Usage) -> None:
        return

    def reply_room_of(self, planner: Planner) -> int:
        return 0

    async def handle_cut_off(self, planner: Planner, scope: CallScope) -> bool:
        return False


async def refuse_fallback(failed: str, error: ProviderError) -> bool:
    return False


class TurnDeps(msgspec.Struct, frozen=True):
    """The collaborators of a turn."""

    recorder: Recorder
    pipeline: CallPipeline
    limits: TurnLimits
    retry: RetryPolicy
    planner: Callable[[], Planner]
    """The planner for the next request: it may change between two requests."""
    take_fresh_files: Callable[[], list[CachedFile]]
    """Files that came into the cache since this was last called."""
    hooks: TurnHooks
    budget: CostBudget
    compaction: Compaction = NoCompaction()
    switch_to_fallback: Callable[[str, ProviderError], Awaitable[bool]] = refuse_fallback
    """Called when a model (`provider/model`) cannot answer: whether there is another one to ask now."""
