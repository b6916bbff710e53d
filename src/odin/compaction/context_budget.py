"""Keeps the conversation of one agent within the window of its model.

It measures every request, which is cheap. What makes a conversation shorter is in `shrinking` and loaded when needed.

What keeps the conversations of a session within their windows, put together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from odin.compaction.measure import ContextWindows, TokenEstimator, tokens_of
from odin.config import Config
from odin.context.file_cache import FileCache
from odin.context.settings import CompactionSettings
from odin.core.compactor import Compactor, NoCompactor
from odin.core.errors import ContextOverflow
from odin.core.event import CachedFile, CompactionProfile, Mode, Warned
from odin.core.message import Usage
from odin.core.op import Compact
from odin.core.provider import ModelInfo, Provider
from odin.engine.budget import CostBudget
from odin.engine.call import CallScope
from odin.engine.hooks import HookInbox
from odin.engine.recorder import Recorder
from odin.engine.repetition import RepetitionGuard
from odin.engine.turn import Compaction, NoCompaction, Planner
from odin.session.thread import Thread

if TYPE_CHECKING:
    from odin.compaction.worker import CompactionWorker


MAX_IMAGES = 20
"""No request shows more images than this; older ones are left out of it."""

_REPLY_SHARE = 4
"""One part in so many of a small window is room for the reply."""

_THINKING_SHARE = 2
_ROOMY_WINDOW = 32_768
"""In a window of at least so many tokens, a reply with reasoning may have more of it."""

_OVERSIZE_RETRIES = 2
_CUT_OFF_SHARE = 0.5


class CompactionDeps(Struct, frozen=True):
    """What a keeper works with. `summariser` gives the model that writes summaries, beside the planner's own.

    `files` are those the agent has read; `forget` makes it read those again of which the conversation no longer speaks.
    """

    recorder: Recorder
    hook_inbox: HookInbox
    settings: CompactionSettings
    windows: ContextWindows
    folder: Path
    max_tokens: int
    thinking: int
    budget: CostBudget
    connect_summarizer: Callable[[Planner], Awaitable[tuple[Provider, ModelInfo]]]
    files: Callable[[], Sequence[CachedFile]]
    forget: Callable[[frozenset[str]], None]
    tasks: "set[asyncio.Task[None]]"
    custom_compactor: Compactor | None = None


class ContextBudget:
    """One for each agent. `compact` and `cancel` are for people; the rest is called by the turn."""

    def __init__(self, means: CompactionDeps, agent: str = "") -> None:
        self.deps = means
        self.agent = agent
        self.estimator = TokenEstimator()
        self.turn_number = 0
        self._scope: CallScope | None = None
        self._worker: CompactionWorker | None = None
        self._model = ("", "")
        self._raw = 0
        self._oversize = 0
        self._warned = False

    @property
    def thread(self) -> Thread:
        return self.deps.recorder.state.thread_of(self.agent)

    @property
    def is_running(self) -> bool:
        """Whether a summary is being made or waits to be applied."""
        return self._worker is not None and self._worker.is_running

    # --- sizes ---

    def measure_request(self, planner: Planner) -> int:
        """The request as it is measured, before it is compared with what the model reported."""
        shown = MAX_IMAGES if planner.info.images else 0
        summary = self.thread.summary
        fixed = self.estimator.measure_fixed(planner.system, planner.tools) + (tokens_of(summary) if summary else 0)
        return fixed + self.estimator.measure_messages(self.thread.build_history(), shown)

    def estimate_size(self, planner: Planner) -> int:
        return self.estimator.estimate(self.measure_request(planner))

    def reply_room_of(self, planner: Planner) -> int:
        """Tokens a reply may take at most, so that a small window is not all reply; 0 when the window is unknown."""
        window = self.deps.windows.window_of(planner.info)
        return window // (_THINKING_SHARE if self._thinking_of(planner) and window >= _ROOMY_WINDOW else _REPLY_SHARE)

    def budget_of(self, planner: Planner) -> int:
        """Tokens a request may take; 0 when the window is unknown."""
        window = self.deps.windows.window_of(planner.info)
        most = self.deps.max_tokens
        output = min(most, planner.info.max_output or most) + self._thinking_of(planner)
        return window - min(output, self.reply_room_of(planner)) if window else 0

    def _thinking_of(self, planner: Planner) -> int:
        return self.deps.thinking if planner.info.thinking else 0

    def free_tokens_of(self, planner: Planner) -> int:
        """Tokens that are left for the conversation itself. Without a known window, as much as it has now."""
        budget = self.budget_of(planner) or self.estimate_size(planner)
        return max(0, budget - self.estimator.measure_fixed(planner.system, planner.tools))

    def threshold_of(self, planner: Planner) -> int:
        """Tokens at which something is done about it; 0 when the window is unknown."""
        return int(self.budget_of(planner) * self.deps.settings.threshold)

    def is_crowded(self, planner: Planner, size: int) -> bool:
        own, budget = self.deps.custom_compactor, self.budget_of(planner)
        if own is not None:
            return own.should_compact(size, self.deps.windows.window_of(planner.info)) or bool(budget and size > budget)
        most = self.deps.settings.max_messages
        return bool(budget and size >= self.threshold_of(planner)) or bool(
            most and len(self.thread.build_history()) > most
        )

    # --- the turn ---

    async def prepare_request(self, planner: Planner, scope: CallScope) -> None:
        self._oversize = 0
        if (planner.info.provider, planner.info.id) != self._model:
            self._model = (planner.info.provider, planner.info.id)
            self.estimator.reset()
        if scope is not self._scope:
            self._scope = scope
            self.turn_number += 1
        if self._worker is not None:
            await self._worker.apply(scope)
        if self.deps.settings.enabled:
            self._calibrate_after_resume(planner)
            self._raw = self.measure_request(planner)
            size = self.estimator.estimate(self._raw)
            if not self.is_crowded(planner, size):
                return
            await self._get_worker().make_room(planner, scope, size)
        self._raw = self.measure_request(planner)

    def _calibrate_after_resume(self, planner: Planner) -> None:
        """After a resume, what the last reply of the run before reported stands for what was not measured here."""
        known = self.deps.recorder.state.conversation.tokens
        if self.estimator.is_calibrated or self.agent or not known:
            return
        messages = self.thread.build_history()
        if len(messages) > 1:
            self.estimator.calibrate(
                self.measure_request(planner) - self.estimator.measure_message(messages[-1]), known
            )

    @property
    def expected_tokens(self) -> int:
        return self.estimator.estimate(self._raw)

    def record_usage(self, planner: Planner, usage: Usage) -> None:
        """What the last request took, for the next estimate."""
        real = usage.input + usage.cache_read + usage.cache_write
        if not real or not self._raw:
            return
        if not self._warned and self.estimator.is_truncated(self._raw, real):
            self._warned = True
            self.deps.recorder.emit(Warned(_truncation_warning_of(planner.info, real)), self.agent)
        self.estimator.calibrate(self._raw, min(real, self._raw * 3 // 2))

    async def handle_overflow(self, planner: Planner, scope: CallScope, error: ContextOverflow) -> bool:
        if not self.deps.settings.enabled:
            return False
        self._oversize += 1
        size = self.estimate_size(planner)
        if error.size > size and self._raw:
            self.estimator.calibrate(self._raw, error.size)
            size = error.size
        work = self._get_worker()
        self.deps.windows.learn(planner.info, error.limit or int(size * (0.9 if self.budget_of(planner) else 0.75)))
        if self._oversize > _OVERSIZE_RETRIES:
            raise work.build_failure(planner, str(error))
        await work.ensure_fit(planner, scope, "overflow")
        self._raw = self.measure_request(planner)
        return True

    async def handle_cut_off(self, planner: Planner, scope: CallScope) -> bool:
        if not self.deps.settings.enabled:
            return False
        size, budget = self.estimate_size(planner), self.budget_of(planner)
        if not self.is_crowded(planner, size) and not (budget and size >= budget * _CUT_OFF_SHARE):
            return False
        done = await self._get_worker().compact_now(planner, scope, "cut_off")
        self._raw = self.measure_request(planner)
        return done

    # --- people ---

    async def compact(self, planner: Planner, scope: CallScope, focus: str, profile: CompactionProfile) -> bool:
        """Begin a summary in the background. False when there is nothing to summarise, or one is made already."""
        return await self._get_worker().begin_manual(planner, scope, focus, profile)

    def cancel(self) -> bool:
        return self._worker is not None and self._worker.cancel()

    def _get_worker(self) -> "CompactionWorker":
        if self._worker is None:
            from odin.compaction.worker import CompactionWorker

            self._worker = CompactionWorker(self)
        return self._worker


def _truncation_warning_of(info: ModelInfo, real: int) -> str:
    return (
        f"The server seems to cut requests: it read {real:,} tokens, far fewer than were sent to {info.id}. "
        "Give it a larger window, or set `context` for this model to what it can hold."
    )


async def cancel_tasks(tasks: "set[asyncio.Task[None]]") -> None:
    """Give up every summary that is being made."""
    running = list(tasks)
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


class ContextBudgets:
    """The keepers of all agents of one session, and what people ask of that of the main agent.

    `connect` gives the model of that name. `own` is the compactor of the program that embeds the session.
    """

    def __init__(
        self,
        config: Config,
        recorder: Recorder,
        budget: CostBudget,
        folder: Path,
        cwd: str,
        connect: Callable[[str], Awaitable[tuple[Provider, ModelInfo]]],
        own: Compactor | None = None,
    ) -> None:
        self.windows = ContextWindows()
        self._config = config
        self._recorder = recorder
        self._budget = budget
        self._folder = folder
        self._cwd = cwd
        self._connect = connect
        self._custom_compactor = own
        self._tasks: set[asyncio.Task[None]] = set()
        self._main: ContextBudget | None = None
        self._planner: Callable[[Mode], Planner] | None = None

    def make_budget(self, agent: str, desk: HookInbox, files: FileCache) -> Compaction:
        if isinstance(self._custom_compactor, NoCompactor):
            return NoCompaction()

        def forget(in_view: frozenset[str]) -> None:
            for file in files.list_files():
                if file.path not in in_view:
                    files.forget(file.path)

        means = CompactionDeps(
            recorder=self._recorder,
            hook_inbox=desk,
            settings=self._config.compaction,
            windows=self.windows,
            folder=self._folder,
            max_tokens=self._config.max_tokens,
            thinking=self._config.thinking,
            budget=self._budget,
            connect_summarizer=self._connect_summarizer,
            files=files.list_files,
            forget=forget,
            tasks=self._tasks,
            custom_compactor=self._custom_compactor,
        )
        found = ContextBudget(means, agent)
        if not agent:
            self._main = found
        return found

    def with_planner(self, planner: Callable[[Mode], Planner]) -> "ContextBudgets":
        """`planner` is that of the main agent in a mode."""
        self._planner = planner
        return self

    async def compact(self, op: Compact) -> bool:
        if self._main is None or self._planner is None:
            return False
        mode = self._recorder.state.mode
        scope = CallScope("", mode, self._cwd, self._config.root, RepetitionGuard())
        return await self._main.compact(self._planner(mode), scope, op.focus.strip(), op.profile)

    def measure_sizes(self, planner: Planner) -> tuple[int, int, int]:
        """Tokens: what the window holds, at how many something is done about it, and what a request would take now."""
        window = self.windows.window_of(planner.info)
        if self._main is None:
            return window, 0, 0
        threshold = self._main.threshold_of(planner) if self._config.compaction.enabled else 0
        return window, threshold, self._main.estimate_size(planner)

    @property
    def is_running(self) -> bool:
        return self._main is not None and self._main.is_running

    def cancel(self) -> bool:
        return self._main is not None and self._main.cancel()

    async def close(self) -> None:
        await cancel_tasks(self._tasks)

    async def _connect_summarizer(self, planner: Planner) -> tuple[Provider, ModelInfo]:
        """The model that writes summaries: a named one, else the lesser model, else the planner's own."""
        name = self._config.compaction.model or self._config.small_model
        return await self._connect(name) if name else (planner.provider, planner.info)
