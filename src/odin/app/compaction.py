"""What keeps the conversations of a session within their windows, put together."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from odin.config import Config
from odin.context.files import FileCache
from odin.context.window import ContextWindows
from odin.core.compactor import Compactor, NoCompactor
from odin.core.event import Mode
from odin.core.op import Compact
from odin.core.provider import ModelInfo, Provider
from odin.engine.budget import CostBudget
from odin.engine.call.admitted import CallScope
from odin.engine.call.guard import RepetitionGuard
from odin.engine.call.hooking import HookInbox
from odin.engine.compact.compaction import CompactionDeps, ContextBudget, cancel_tasks
from odin.engine.kit import Compaction, NoCompaction, Planner
from odin.engine.recorder import Recorder


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
