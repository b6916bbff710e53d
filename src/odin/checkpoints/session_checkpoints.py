"""The checkpoints of one session. The rest of the package is loaded by the first call that may change files."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odin.config import Config
from odin.config.paths import WORKTREE_FOLDER
from odin.config.settings import CheckpointSettings
from odin.core.client import RewindPlan
from odin.core.effects import FileEffect, ViewLayer
from odin.core.environment import ExecutionEnvironment
from odin.core.op import Redo, Rewind
from odin.core.timing import run_in_thread
from odin.core.tool import Tool, ToolContext
from odin.engine.call import ApplyStep
from odin.engine.recorder import Recorder
from odin.engine.rollback import RollbackResult, find_crashed_calls
from odin.session.history import SpeculativeChanges

if TYPE_CHECKING:
    from odin.checkpoints.checkpointer import Checkpointer
    from odin.checkpoints.project_listing import ProjectLister
    from odin.checkpoints.rewind import Rewinder
    from odin.checkpoints.store import CheckpointStore
    from odin.sandbox.views.applier import ApplyResult


def make_lister(settings: CheckpointSettings, sessions: Path) -> "ProjectLister":
    """Return what lists a project and saves its files in the checkpoint store that belongs to this session folder."""
    from odin.checkpoints.project_listing import ListingLimits, ProjectLister
    from odin.checkpoints.store import CheckpointStore

    state = sessions.parent.parent
    limits = ListingLimits(settings.max_files, settings.max_bytes, settings.max_file_bytes)
    store = CheckpointStore(state / "checkpoints" / sessions.name)
    return ProjectLister(store, limits, excluded=(os.path.realpath(state),))


class SessionCheckpoints:
    """`log` is the path of the session's log; all sessions of a project share one checkpoint store.

    `get_lister` returns the lister for a session folder that the sessions of a workspace share. `running` returns the
    ids of calls with a background process. `forget` drops the agent's file cache. `can_confine` tells whether commands
    run in a sandbox.
    """

    def __init__(
        self,
        config: Config,
        recorder: Recorder,
        log: Path,
        environment: ExecutionEnvironment,
        *,
        get_lister: "Callable[[Path], ProjectLister] | None" = None,
        running: Callable[[], Iterable[str]] = tuple,
        forget: Callable[[], None] = lambda: None,
        can_confine: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._recorder = recorder
        self._sessions = log.parent.parent
        self._environment = environment
        self._get_lister = get_lister or partial(make_lister, config.checkpoints)
        self._running = running
        self._forget = forget
        self._can_confine = can_confine
        self._checkpointer: Checkpointer | None = None
        self._recordings: set[asyncio.Task[None]] = set()

    def guard_call(self, tool: Tool[Any], args: Any, context: ToolContext) -> AbstractAsyncContextManager[None]:
        """The context manager that saves files before a call and records its changes after it."""
        if tool.kind not in ("edit", "execute") or not self._config.checkpoints.enabled:
            return nullcontext()
        return self._load_checkpointer().guard_call(tool, args, context)

    @property
    def apply_view(self) -> ApplyStep | None:
        """Makes what a command wrote in its view real, and records its changes; None if checkpoints are disabled."""
        return self._apply_view if self._config.checkpoints.enabled else None

    async def _apply_view(
        self, call_id: str, agent: str, layer: ViewLayer, effects: Sequence[FileEffect]
    ) -> "ApplyResult":
        return await self._load_checkpointer().apply_view(call_id, agent, layer, effects)

    async def recover(self) -> None:
        """Recover calls that a crash interrupted, before anything else changes their files."""
        if self._recorder.state.file_history.unfinished or find_crashed_calls(self._recorder):
            await self._load_checkpointer().recover()

    def note_process_end(self) -> None:
        """Record the changes of a background process that has ended, in a task."""
        if self._checkpointer is not None:
            task = asyncio.get_running_loop().create_task(self._checkpointer.record_background())
            self._recordings.add(task)
            task.add_done_callback(self._recordings.discard)

    async def record_background(self) -> None:
        """Wait until the changes of all ended background processes are recorded."""
        if self._recordings:
            await asyncio.wait(self._recordings)

    @property
    def rollback_files(self) -> Callable[[SpeculativeChanges], Awaitable[RollbackResult]] | None:
        """Rolls back the files of a speculative call; None if checkpoints are disabled."""
        return self._rollback_files if self._config.checkpoints.enabled else None

    async def _rollback_files(self, call: SpeculativeChanges) -> RollbackResult:
        from odin.checkpoints.rewind import rollback_files

        checkpointer = self._load_checkpointer()
        result = await rollback_files(call, checkpointer.store, self._recorder.state.file_history)
        checkpointer.note_changes(result.changes)
        return result

    async def _rollback_crashed(self, calls: Sequence[SpeculativeChanges]) -> None:
        from odin.checkpoints.rewind import rollback_crashed_calls

        state = Path(os.path.realpath(self._sessions.parent.parent))
        trees = (state / WORKTREE_FOLDER).glob(f"*/{self._recorder.state.session}-*")
        others = [root.path for root in self._recorder.state.permissions.roots if root.is_writable]
        roots = [os.path.realpath(self._config.root), *map(str, trees), *others]
        store = self._load_checkpointer().store
        await rollback_crashed_calls(calls, self._recorder, store, roots, self._environment)

    async def rewind_or_redo(self, op: Rewind | Redo, stopped: tuple[str, ...]) -> None:
        if isinstance(op, Rewind):
            await self.make_rewinder().rewind(op, stopped)
        else:
            await self.make_rewinder().redo(op)

    async def plan(self, op: Rewind) -> RewindPlan:
        """The changes a rewind would make, without making them."""
        plan = await self.make_rewinder().plan(op)
        return RewindPlan(plan.changes, plan.kept)

    @property
    def store(self) -> "CheckpointStore":
        """The store of file contents, shared by all sessions of the project."""
        return self._load_checkpointer().store

    def make_rewinder(self) -> "Rewinder":
        from odin.checkpoints.rewind import Rewinder

        return Rewinder(self._recorder, self._load_checkpointer(), self._forget)

    async def close(self) -> None:
        if self._checkpointer is not None:
            from odin.checkpoints.store import prune_if_due

            self._checkpointer.close()
            store, limit = self._checkpointer.store, self._config.checkpoints.max_store_bytes
            await run_in_thread(lambda stopped: prune_if_due(store, self._sessions, limit))

    def _load_checkpointer(self) -> "Checkpointer":
        if self._checkpointer is None:
            from odin.checkpoints.checkpointer import Checkpointer

            self._checkpointer = Checkpointer(
                lister=self._get_lister(self._sessions),
                recorder=self._recorder,
                home=os.path.realpath(self._environment.home),
                state_dir=str(self._sessions.parent.parent),
                running=self._running,
                rollback_crashed=self._rollback_crashed,
                can_confine=self._can_confine,
                command_turn_s=self._environment.timing.command_turn_s,
            )
        return self._checkpointer
