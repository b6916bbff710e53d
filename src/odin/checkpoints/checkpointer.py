"""Saves files before a tool call may change them, and records the call's changes afterwards.

An edit names its files, so only those are saved. A command may change anything, so unless it is provably read-only, the
whole project is listed and every file within the limits is saved. The log records both sides (`CheckpointSaved`,
`FilesChanged`), so undo is a fold over the log. A log proves nothing about the files themselves: after a crash, files
are compared with their checkpoints first.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from odin.checkpoints.file_state import (
    changed_time_of,
    decode_path,
    is_same_state,
    list_missing_folders,
    state_of,
)
from odin.checkpoints.project_listing import ListingLimits, ProjectLister, ProjectListing, hash_file, read_regular_file
from odin.checkpoints.store import CheckpointStore
from odin.core.errors import OdinError
from odin.core.event import CheckpointSaved, FilesChanged, Warned
from odin.core.event_values import FileChange, FileState
from odin.core.tool import ResolvedPath, Subject, Tool, ToolContext
from odin.engine.recorder import Recorder
from odin.engine.speculation import find_crashed_calls
from odin.policy.commands.analysis import is_read_only
from odin.policy.paths import resolve_subject
from odin.session.history import SpeculativeChanges, UnfinishedSave

MAX_EDIT_BYTES = 100_000_000
"""The largest file that is saved before an edit."""

_INLINE_BYTES = 4_000_000
"""Larger files are saved in a thread, because reading them would block the event loop."""

OWN_CHANGE_S = 10.0
"""Changes more than this many seconds after the checkpoint are not attributed to a killed edit."""

T = TypeVar("T")


class _BackgroundCall(Struct, frozen=True):
    """A call that ended while its process still runs: the project and the position in the file history at its end."""

    listing: ProjectListing
    change_mark: int


class Checkpointer:
    """`running` returns the ids of calls with a background process; `rollback_crashed` rolls back speculative calls."""

    def __init__(
        self,
        *,
        store: CheckpointStore,
        recorder: Recorder,
        root: str,
        home: str,
        state_dir: str,
        limits: ListingLimits,
        running: Callable[[], Iterable[str]],
        rollback_crashed: Callable[[Sequence[SpeculativeChanges]], Awaitable[None]],
    ) -> None:
        self.store = store
        self._recorder = recorder
        self._root = root
        self._is_root_too_broad = Path(home).is_relative_to(root)
        self._lister = ProjectLister(store, limits, excluded=(os.path.realpath(state_dir),))
        self._limits = limits
        self._running = running
        self._rollback_crashed = rollback_crashed
        self._background: dict[str, _BackgroundCall] = {}
        self._warned = False
        self._busy: set[str] = set()
        self._recovery_lock = asyncio.Lock()

    @asynccontextmanager
    async def guard_call(self, tool: Tool[Any], args: Any, context: ToolContext) -> AsyncGenerator[None, None]:
        """Save files before the call and record its changes after it, even if it fails or is interrupted."""
        await self.recover()
        subject = resolve_subject(replace(tool.subject_of(args), resolved=context.judged or ()), context.cwd)
        try:
            if tool.kind == "edit" and subject.paths:
                before = await self._save_files(subject, context)
                try:
                    yield
                finally:
                    self._record_changes(context.call_id, _changes_of(before), context.agent)
            elif self._may_change_anything(tool, subject, context):
                listing = await self._save_project(context)
                try:
                    yield
                finally:
                    if listing is not None:
                        await self._record_project_changes(listing, context)
            else:
                yield
        finally:
            self._busy.discard(context.call_id)

    def _may_change_anything(self, tool: Tool[Any], subject: Subject, context: ToolContext) -> bool:
        if tool.kind not in ("edit", "execute"):
            return False
        return not subject.command or not is_read_only(subject.command, context.cwd, context.root)

    async def _save_files(self, subject: Subject, context: ToolContext) -> tuple[FileState, ...]:
        paths = _touched_paths_of(subject.resolved)
        if any(_size_of(path) > _INLINE_BYTES for path in paths):
            files = await run_in_thread(lambda stopped: self._save_states(paths))
        else:
            files = self._save_states(paths)
        self._record_saved(CheckpointSaved(context.call_id, files), context.agent)
        unsaved = [state.path for state in files if state.kind == "file" and not state.saved]
        if unsaved:
            self._recorder.emit(Warned(f"Cannot save a checkpoint, so undo cannot restore: {', '.join(unsaved)}."))
        return files

    def _save_states(self, paths: Iterable[str]) -> tuple[FileState, ...]:
        return tuple(state_of(path, self._keep_content) for path in paths)

    def _keep_content(self, path: str, info: os.stat_result) -> str:
        data = read_regular_file(path, MAX_EDIT_BYTES)
        return "" if data is None else self.store.keep(data)

    async def _save_project(self, context: ToolContext) -> ProjectListing | None:
        if self._is_root_too_broad:
            self._warn_once(f"{self._root} is too large to be saved before commands: undo covers only edits here.")
            return None
        listing, manifest = await run_in_thread(self._keep_project)
        self._record_background_changes(listing)
        self._record_saved(CheckpointSaved(context.call_id, manifest=manifest, skipped=listing.skipped), context.agent)
        if listing.skipped:
            limits = self._limits
            self._warn_once(
                f"At least {listing.skipped} files of this project are not saved before commands, because they are "
                f"too large, too many or unreadable (limits: {limits.max_files} files, "
                f"{limits.max_bytes / 1e6:g} MB, {limits.max_file_bytes / 1e6:g} MB each). "
                "If a command changes them, undo cannot restore them."
            )
        return listing

    def _keep_project(self, stopped: Callable[[], bool]) -> tuple[ProjectListing, str]:
        listing = self._lister.list(self._root, keep=True, stopped=stopped)
        return listing, self.store.keep_manifest(listing.to_manifest())

    async def _record_project_changes(self, before: ProjectListing, context: ToolContext) -> None:
        """Record what a command changed. If interrupted, the call stays open until `recover` closes it."""
        spawned = context.call_id in self._running()

        def compare(stopped: Callable[[], bool]) -> tuple[ProjectListing, tuple[FileChange, ...]]:
            after = self._lister.list(self._root, keep=False, like=before, stopped=stopped)
            changes = self._lister.find_changes(before, after)
            with suppress(OdinError):
                after = self._lister.list(self._root, keep=True, stopped=stopped) if spawned else after
            return after, changes

        after, changes = await run_in_thread(compare)
        self._record_changes(context.call_id, changes, context.agent)
        if spawned:
            self._background[context.call_id] = _BackgroundCall(after, self._recorder.state.file_history.mark())

    async def recover(self) -> None:
        """Record the changes of calls whose end is not in the log, and roll back speculative calls.

        Both happen after a crash, or after an interrupt while changes were being recorded.
        """
        async with self._recovery_lock:
            if crashed := find_crashed_calls(self._recorder):
                await self._rollback_crashed(crashed)
        for call in self._recorder.state.file_history.unfinished:
            name = call.saved.call_id
            if name not in self._busy:
                self._busy.add(name)
                try:
                    changes = await run_in_thread(lambda stopped, call=call: self._find_changes_since(call, stopped))
                    self._record_changes(name, changes, "")
                finally:
                    self._busy.discard(name)

    def _find_changes_since(self, call: UnfinishedSave, stopped: Callable[[], bool]) -> tuple[FileChange, ...]:
        """Return the changes since the checkpoint of an unfinished call.

        An edit is quick, so later changes to its files are not its own. A command may have run for any time.
        """
        saved = call.saved
        changes = tuple(
            item for item in _changes_of(saved.files) if changed_time_of(item.after) <= call.at + OWN_CHANGE_S
        )
        if saved.manifest:
            try:
                before = ProjectListing.from_manifest(self.store.load_manifest(saved.manifest))
            except OdinError:
                return changes
            after = self._lister.list(decode_path(before.root), keep=False, like=before, stopped=stopped)
            changes += self._lister.find_changes(before, after)
        return changes

    async def record_pending(self) -> None:
        """Record the outstanding changes of interrupted calls and of background processes."""
        await self.recover()
        if self._background:
            listing = await run_in_thread(lambda stopped: self._lister.list(self._root, keep=True, stopped=stopped))
            self._record_background_changes(listing)

    def _record_background_changes(self, now: ProjectListing) -> None:
        running = set(self._running())
        history = self._recorder.state.file_history
        for call_id, call in list(self._background.items()):
            recorded = {change.change.before.path for change in history.list_since(call.change_mark)}
            changes = self._lister.find_changes(call.listing, now)
            changes = tuple(change for change in changes if change.before.path not in recorded)
            if changes:
                self._recorder.emit(FilesChanged(call_id, changes, concurrent=True))
            if call_id in running:
                self._background[call_id] = _BackgroundCall(now, history.mark())
            else:
                del self._background[call_id]

    def _record_saved(self, event: CheckpointSaved, agent: str) -> None:
        self._busy.add(event.call_id)
        self._recorder.emit(event, agent)

    def _record_changes(self, call_id: str, changes: tuple[FileChange, ...], agent: str) -> None:
        self._recorder.emit(FilesChanged(call_id, changes), agent)

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self._recorder.emit(Warned(text))

    def close(self) -> None:
        self._lister.save_hashes()


def _touched_paths_of(paths: Iterable[ResolvedPath]) -> tuple[str, ...]:
    """The paths a call may touch: those it acts on, and missing folders it may create."""
    touched: list[str] = []
    for path in [item.path for item in paths if not item.fault]:
        touched += [*reversed(list(list_missing_folders(path))), path]
    return tuple(dict.fromkeys(touched))


def _size_of(path: str) -> int:
    try:
        return Path(path).lstat().st_size
    except OSError:
        return 0


def _changes_of(before: Iterable[FileState]) -> tuple[FileChange, ...]:
    """The changes of these paths since `before`."""
    pairs = ((state, state_of(decode_path(state.path), hash_file)) for state in before)
    return tuple(FileChange(state, now) for state, now in pairs if not is_same_state(state, now))


async def run_in_thread(work: Callable[[Callable[[], bool]], T]) -> T:
    """Run slow file work in a thread. On cancellation, its `stopped` function returns True, and the work is awaited."""
    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, stop.is_set))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([task])
        task.exception()
        raise
