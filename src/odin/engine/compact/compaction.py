"""Keeps the conversation of one agent within the window of its model.

It measures every request, which is cheap. What makes a conversation shorter is in `shrinking` and loaded when needed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from odin.context.settings import CompactionSettings
from odin.context.size import Measure, tokens_of
from odin.context.window import Windows
from odin.core.compactor import Compactor
from odin.core.errors import ContextOverflow
from odin.core.event import CachedFile, CompactionProfile, Warned
from odin.core.message import Usage
from odin.core.provider import ModelInfo, Provider
from odin.engine.budget import Budget
from odin.engine.call.admitted import Scope
from odin.engine.call.hooking import Desk
from odin.engine.kit import Planner
from odin.engine.recorder import Recorder
from odin.session.thread import Thread

if TYPE_CHECKING:
    from odin.engine.compact.shrinking import Shrinking

IMAGES_SHOWN = 20
"""No request shows more images than this; older ones are left out of it."""

_SHARE = 4
"""One part in so many of a small window is room for the reply."""

_THINKING_SHARE = 2
_ROOMY = 32_768
"""In a window of at least so many tokens, a reply with reasoning may have more of it."""

_OVERSIZE_RETRIES = 2
_WORTH_HALF = 0.5


class Means(Struct, frozen=True):
    """What a keeper works with. `summariser` gives the model that writes summaries, beside the planner's own.

    `files` are those the agent has read; `forget` makes it read those again of which the conversation no longer speaks.
    """

    recorder: Recorder
    desk: Desk
    settings: CompactionSettings
    windows: Windows
    folder: Path
    max_tokens: int
    thinking: int
    budget: Budget
    summariser: Callable[[Planner], Awaitable[tuple[Provider, ModelInfo]]]
    files: Callable[[], Sequence[CachedFile]]
    forget: Callable[[frozenset[str]], None]
    tasks: "set[asyncio.Task[None]]"
    own: Compactor | None = None


class WindowKeeper:
    """One for each agent. `compact` and `cancel` are for people; the rest is called by the turn."""

    def __init__(self, means: Means, agent: str = "") -> None:
        self.means = means
        self.agent = agent
        self.measure = Measure()
        self.turn = 0
        self._scope: Scope | None = None
        self._work: Shrinking | None = None
        self._model = ("", "")
        self._raw = 0
        self._oversize = 0
        self._warned = False

    @property
    def thread(self) -> Thread:
        return self.means.recorder.state.thread(self.agent)

    @property
    def running(self) -> bool:
        """Whether a summary is being made or waits to be applied."""
        return self._work is not None and self._work.running

    # --- sizes ---

    def raw(self, planner: Planner) -> int:
        """The request as it is measured, before it is compared with what the model reported."""
        shown = IMAGES_SHOWN if planner.info.images else 0
        summary = self.thread.summary
        fixed = self.measure.fixed(planner.system, planner.tools) + (tokens_of(summary) if summary else 0)
        return fixed + self.measure.messages(self.thread.history(), shown)

    def size(self, planner: Planner) -> int:
        return self.measure.estimate(self.raw(planner))

    def reply_room(self, planner: Planner) -> int:
        """Tokens a reply may take at most, so that a small window is not all reply; 0 when the window is unknown."""
        window = self.means.windows.of(planner.info)
        return window // (_THINKING_SHARE if self._thinking(planner) and window >= _ROOMY else _SHARE)

    def budget(self, planner: Planner) -> int:
        """Tokens a request may take; 0 when the window is unknown."""
        window = self.means.windows.of(planner.info)
        most = self.means.max_tokens
        output = min(most, planner.info.max_output or most) + self._thinking(planner)
        return window - min(output, self.reply_room(planner)) if window else 0

    def _thinking(self, planner: Planner) -> int:
        return self.means.thinking if planner.info.thinking else 0

    def free(self, planner: Planner) -> int:
        """Tokens that are left for the conversation itself. Without a known window, as much as it has now."""
        budget = self.budget(planner) or self.size(planner)
        return max(0, budget - self.measure.fixed(planner.system, planner.tools))

    def threshold(self, planner: Planner) -> int:
        """Tokens at which something is done about it; 0 when the window is unknown."""
        return int(self.budget(planner) * self.means.settings.threshold)

    def crowded(self, planner: Planner, size: int) -> bool:
        own, budget = self.means.own, self.budget(planner)
        if own is not None:
            return own.should_compact(size, self.means.windows.of(planner.info)) or bool(budget and size > budget)
        most = self.means.settings.max_messages
        return bool(budget and size >= self.threshold(planner)) or bool(most and len(self.thread.history()) > most)

    # --- the turn ---

    async def before_request(self, planner: Planner, scope: Scope) -> None:
        self._oversize = 0
        if (planner.info.provider, planner.info.id) != self._model:
            self._model = (planner.info.provider, planner.info.id)
            self.measure.start_over()
        if scope is not self._scope:
            self._scope = scope
            self.turn += 1
        if self._work is not None:
            await self._work.apply(scope)
        if self.means.settings.enabled:
            self._remember(planner)
            self._raw = self.raw(planner)
            size = self.measure.estimate(self._raw)
            if not self.crowded(planner, size):
                return
            await self._shrinking().make_room(planner, scope, size)
        self._raw = self.raw(planner)

    def _remember(self, planner: Planner) -> None:
        """After a resume, what the last reply of the run before reported stands for what was not measured here."""
        known = self.means.recorder.state.context_tokens
        if self.measure.calibrated or self.agent or not known:
            return
        messages = self.thread.history()
        if len(messages) > 1:
            self.measure.reported(self.raw(planner) - self.measure.of(messages[-1]), known)

    @property
    def expected(self) -> int:
        return self.measure.estimate(self._raw)

    def answered(self, planner: Planner, usage: Usage) -> None:
        """What the last request took, for the next estimate."""
        real = usage.input + usage.cache_read + usage.cache_write
        if not real or not self._raw:
            return
        if not self._warned and self.measure.truncated(self._raw, real):
            self._warned = True
            self.means.recorder.emit(Warned(_truncated(planner.info, real)), self.agent)
        self.measure.reported(self._raw, min(real, self._raw * 3 // 2))

    async def overflowed(self, planner: Planner, scope: Scope, error: ContextOverflow) -> bool:
        if not self.means.settings.enabled:
            return False
        self._oversize += 1
        size = self.size(planner)
        if error.size > size and self._raw:
            self.measure.reported(self._raw, error.size)
            size = error.size
        work = self._shrinking()
        self.means.windows.learn(planner.info, error.limit or int(size * (0.9 if self.budget(planner) else 0.75)))
        if self._oversize > _OVERSIZE_RETRIES:
            raise work.given_up(planner, str(error))
        await work.must_fit(planner, scope, "overflow")
        self._raw = self.raw(planner)
        return True

    async def cut_off(self, planner: Planner, scope: Scope) -> bool:
        if not self.means.settings.enabled:
            return False
        size, budget = self.size(planner), self.budget(planner)
        if not self.crowded(planner, size) and not (budget and size >= budget * _WORTH_HALF):
            return False
        done = await self._shrinking().now(planner, scope, "cut_off")
        self._raw = self.raw(planner)
        return done

    # --- people ---

    async def compact(self, planner: Planner, scope: Scope, focus: str, profile: CompactionProfile) -> bool:
        """Begin a summary in the background. False when there is nothing to summarise, or one is made already."""
        return await self._shrinking().begin_by_hand(planner, scope, focus, profile)

    def cancel(self) -> bool:
        return self._work is not None and self._work.cancel()

    def _shrinking(self) -> "Shrinking":
        if self._work is None:
            from odin.engine.compact.shrinking import Shrinking

            self._work = Shrinking(self)
        return self._work


def _truncated(info: ModelInfo, real: int) -> str:
    return (
        f"The server seems to cut requests: it read {real:,} tokens, far fewer than were sent to {info.id}. "
        "Give it a larger window, or set `context` for this model to what it can hold."
    )


async def stop(tasks: "set[asyncio.Task[None]]") -> None:
    """Give up every summary that is being made."""
    running = list(tasks)
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
