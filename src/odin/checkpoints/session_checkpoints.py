"""The checkpoints of one session. Most of them is loaded with the first call that may change a file."""

import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odin.config import Config
from odin.core.client import RewindPlan
from odin.core.op import Redo, Rewind
from odin.core.tool import Tool, ToolContext
from odin.engine.recorder import Recorder
from odin.engine.speculation import RollbackResult, find_crashed_calls
from odin.session.file_history import SpeculativeChanges

if TYPE_CHECKING:
    from odin.checkpoints.checkpointer import Checkpointer
    from odin.checkpoints.rewind import Rewinder


class SessionCheckpoints:
    """`log` is the session's log: all sessions of one project share a store beside their folder.

    `running` names the calls that have a process in the background, `forget` makes the model read files again.
    """

    def __init__(
        self,
        config: Config,
        recorder: Recorder,
        log: Path,
        home: str,
        *,
        running: Callable[[], Iterable[str]] = tuple,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._recorder = recorder
        self._sessions = log.parent.parent
        self._home = home
        self._running = running
        self._forget = forget
        self._checkpointer: Checkpointer | None = None

    def guard_call(self, tool: Tool[Any], args: Any, context: ToolContext) -> AbstractAsyncContextManager[None]:
        """What surrounds a call, for the gate."""
        if tool.kind not in ("edit", "execute") or not self._config.checkpoints.enabled:
            return nullcontext()
        return self._load_checkpointer().guard_call(tool, args, context)

    async def recover(self) -> None:
        """See to calls that a crash cut off, before anything else happens to their files."""
        if self._recorder.state.file_history.unfinished or find_crashed_calls(self._recorder):
            await self._load_checkpointer().recover()

    @property
    def rollback_files(self) -> Callable[[SpeculativeChanges], Awaitable[RollbackResult]] | None:
        """Puts the files of a call back that was begun early. None when nothing is saved."""
        return self._rollback_files if self._config.checkpoints.enabled else None

    async def _rollback_files(self, early: SpeculativeChanges) -> RollbackResult:
        from odin.checkpoints.rewind import rollback_files

        return await rollback_files(early, self._load_checkpointer().store)

    async def rewind_or_redo(self, op: Rewind | Redo) -> None:
        if isinstance(op, Rewind):
            await self.make_rewinder().rewind(op)
        else:
            await self.make_rewinder().redo(op)

    async def plan(self, op: Rewind) -> RewindPlan:
        """What a rewind would do."""
        plan = await self.make_rewinder().plan(op)
        return RewindPlan(plan.changes, plan.kept)

    def make_rewinder(self) -> "Rewinder":
        from odin.checkpoints.rewind import Rewinder

        return Rewinder(self._recorder, self._load_checkpointer(), self._forget)

    async def close(self) -> None:
        if self._checkpointer is not None:
            from odin.checkpoints.checkpointer import run_in_thread
            from odin.checkpoints.store import prune_if_due

            self._checkpointer.close()
            store, limit = self._checkpointer.store, self._config.checkpoints.max_store_bytes
            await run_in_thread(lambda stopped: prune_if_due(store, self._sessions, limit))

    def _load_checkpointer(self) -> "Checkpointer":
        if self._checkpointer is None:
            from odin.checkpoints.checkpointer import Checkpointer
            from odin.checkpoints.project_listing import ListingLimits
            from odin.checkpoints.store import CheckpointStore

            state, settings = self._sessions.parent.parent, self._config.checkpoints
            self._checkpointer = Checkpointer(
                store=CheckpointStore(state / "checkpoints" / self._sessions.name),
                recorder=self._recorder,
                root=os.path.realpath(self._config.root),
                home=os.path.realpath(self._home),
                state_dir=str(state),
                limits=ListingLimits(settings.max_files, settings.max_bytes, settings.max_file_bytes),
                running=self._running,
            )
        return self._checkpointer
