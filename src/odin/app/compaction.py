"""What keeps the conversations of a session within their windows, put together."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from odin.config import Config
from odin.context.files import FileCache
from odin.context.window import Windows
from odin.core.compactor import Compactor, NoCompactor
from odin.core.event import Mode
from odin.core.op import Compact
from odin.core.provider import ModelInfo, Provider
from odin.engine.budget import Budget
from odin.engine.call.admitted import Scope
from odin.engine.call.guard import RepetitionGuard
from odin.engine.call.hooking import Desk
from odin.engine.compact.compaction import Means, WindowKeeper, stop
from odin.engine.kit import Compaction, NoCompaction, Planner
from odin.engine.recorder import Recorder


class Keepers:
    """The keepers of all agents of one session, and what people ask of that of the main agent.

    `connect` gives the model of that name. `own` is the compactor of the program that embeds the session.
    """

    def __init__(
        self,
        config: Config,
        recorder: Recorder,
        budget: Budget,
        folder: Path,
        cwd: str,
        connect: Callable[[str], Awaitable[tuple[Provider, ModelInfo]]],
        own: Compactor | None = None,
    ) -> None:
        self.windows = Windows()
        self._config = config
        self._recorder = recorder
        self._budget = budget
        self._folder = folder
        self._cwd = cwd
        self._connect = connect
        self._own = own
        self._tasks: set[asyncio.Task[None]] = set()
        self._main: WindowKeeper | None = None
        self._planner: Callable[[Mode], Planner] | None = None

    def keeper(self, agent: str, desk: Desk, files: FileCache) -> Compaction:
        if isinstance(self._own, NoCompactor):
            return NoCompaction()

        def forget(in_view: frozenset[str]) -> None:
            for file in files.listing():
                if file.path not in in_view:
                    files.forget(file.path)

        means = Means(
            recorder=self._recorder,
            desk=desk,
            settings=self._config.compaction,
            windows=self.windows,
            folder=self._folder,
            max_tokens=self._config.max_tokens,
            thinking=self._config.thinking,
            budget=self._budget,
            summariser=self._summariser,
            files=files.listing,
            forget=forget,
            tasks=self._tasks,
            own=self._own,
        )
        found = WindowKeeper(means, agent)
        if not agent:
            self._main = found
        return found

    def by_hand(self, planner: Callable[[Mode], Planner]) -> "Keepers":
        """`planner` is that of the main agent in a mode."""
        self._planner = planner
        return self

    async def compact(self, op: Compact) -> bool:
        if self._main is None or self._planner is None:
            return False
        mode = self._recorder.state.mode
        scope = Scope("", mode, self._cwd, self._config.root, RepetitionGuard())
        return await self._main.compact(self._planner(mode), scope, op.focus.strip(), op.profile)

    def sizes(self, planner: Planner) -> tuple[int, int, int]:
        """Tokens: what the window holds, at how many something is done about it, and what a request would take now."""
        window = self.windows.of(planner.info)
        if self._main is None:
            return window, 0, 0
        threshold = self._main.threshold(planner) if self._config.compaction.enabled else 0
        return window, threshold, self._main.size(planner)

    @property
    def running(self) -> bool:
        return self._main is not None and self._main.running

    def cancel(self) -> bool:
        return self._main is not None and self._main.cancel()

    async def close(self) -> None:
        await stop(self._tasks)

    async def _summariser(self, planner: Planner) -> tuple[Provider, ModelInfo]:
        """The model that writes summaries: a named one, else the lesser model, else the planner's own."""
        name = self._config.compaction.model or self._config.small_model
        return await self._connect(name) if name else (planner.provider, planner.info)
