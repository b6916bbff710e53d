"""Saves files before a call may change them and records what the call made of them, whatever becomes of the call.

An edit names its files, so only those are saved. A command may change anything, so before one that does not provably
only look, the whole project is listed and every file of it that fits the limits is kept.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from odin.checkpoints.file_state import (
    changed_time_of,
    decode_path,
    is_same_state,
    list_missing_folders,
    resolved_path_of,
    state_of,
)
from odin.checkpoints.project_listing import ListingLimits, ProjectLister, ProjectListing, hash_file, read_regular_file
from odin.checkpoints.store import CheckpointStore
from odin.core.errors import OdinError
from odin.core.event import CheckpointSaved, FileChange, FilesChanged, FileState, Warned
from odin.core.tool import Subject, Tool, ToolContext
from odin.engine.recorder import Recorder
from odin.engine.speculation import find_crashed_calls
from odin.policy.commands.analysis import is_read_only
from odin.session.file_history import UnfinishedSave

MAX_EDIT_BYTES = 100_000_000
"""The largest file that is saved before an edit of it."""

_INLINE_BYTES = 4_000_000
"""Up to this many bytes a file is saved in place; more would hold up everybody else."""

OWN_CHANGE_S = 10.0
"""How long after its files were saved a killed edit may have changed them. What came later is somebody else's."""

T = TypeVar("T")


class _BackgroundCall(Struct, frozen=True):
    """The project when a call ended whose process goes on, and how much was in the history of changes then."""

    listing: ProjectListing
    change_mark: int


class Checkpointer:
    """`around` is the gate's. `running` names the calls that have a process in the background."""

    def __init__(
        self,
        *,
        store: CheckpointStore,
        recorder: Recorder,
        root: str,
        home: str,
        state_dir: str,
        limits: ListingLimits,
        running: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.store = store
        self._recorder = recorder
        self._root = root
        self._is_root_too_broad = Path(home).is_relative_to(root)
        self._lister = ProjectLister(store, limits, excluded=(os.path.realpath(state_dir),))
        self._limits = limits
        self._running = running
        self._background: dict[str, _BackgroundCall] = {}
        self._warned = False
        self._busy: set[str] = set()
        self._recovery_lock = asyncio.Lock()

    # --- before and after a call ---

    @asynccontextmanager
    async def guard_call(self, tool: Tool[Any], args: Any, context: ToolContext) -> AsyncGenerator[None, None]:
        await self.recover()
        subject = tool.subject_of(args)
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
        paths = _touched_paths_of(subject.paths, context.cwd)
        if any(_size_of(path) > _INLINE_BYTES for path in paths):
            files = await run_in_thread(lambda stopped: self._save_states(paths))
        else:
            files = self._save_states(paths)
        self._record_saved(CheckpointSaved(context.call_id, files), context.agent)
        lost = [state.path for state in files if state.kind == "file" and not state.saved]
        if lost:
            self._recorder.emit(Warned(f"It cannot be saved first, so undo cannot bring it back: {', '.join(lost)}."))
        return files

    def _save_states(self, paths: Iterable[str]) -> tuple[FileState, ...]:
        return tuple(state_of(path, self._keep_content) for path in paths)

    def _keep_content(self, path: str, info: os.stat_result) -> str:
        data = read_regular_file(path, MAX_EDIT_BYTES)
        return "" if data is None else self.store.keep(data)

    async def _save_project(self, context: ToolContext) -> ProjectListing | None:
        if self._is_root_too_broad:
            self._warn_once(f"{self._root} is too much to be saved before commands: undo covers only edits here.")
            return None
        listing, manifest = await run_in_thread(self._keep_project)
        self._record_background_changes(listing)
        self._record_saved(CheckpointSaved(context.call_id, manifest=manifest, skipped=listing.skipped), context.agent)
        if listing.skipped:
            limits = self._limits
            self._warn_once(
                f"At least {listing.skipped} files of this project are not saved before commands, because they are "
                f"large or many or cannot be read (limits: {limits.max_files} files, "
                f"{limits.max_bytes / 1e6:g} MB, {limits.max_file_bytes / 1e6:g} MB each). "
                "If a command changes them, undo cannot bring them back."
            )
        return listing

    def _keep_project(self, stopped: Callable[[], bool]) -> tuple[ProjectListing, str]:
        listing = self._lister.list(self._root, keep=True, stopped=stopped)
        return listing, self.store.keep_manifest(listing.to_manifest())

    async def _record_project_changes(self, before: ProjectListing, context: ToolContext) -> None:
        """An interruption in here leaves the call open in the log; `recover` closes it before the next one."""
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

    # --- what nobody waited for ---

    async def recover(self) -> None:
        """Record what calls changed whose end was never written: a kill in between, or an impatient person.

        What was begun early and never counted is put back.
        """
        async with self._recovery_lock:
            if early := find_crashed_calls(self._recorder):
                from odin.checkpoints.rewind import rollback_crashed_calls

                await rollback_crashed_calls(early, self._recorder, self.store, self._root)
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
        """An edit takes a moment: what became of its files much later is somebody else's doing. A command may take
        long, and when it was killed nobody knows.
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
        """Record what is not recorded yet: of calls that were cut off, and of processes in the background."""
        await self.recover()
        if self._background:
            listing = await run_in_thread(lambda stopped: self._lister.list(self._root, keep=True, stopped=stopped))
            self._record_background_changes(listing)

    def _record_background_changes(self, now: ProjectListing) -> None:
        running = set(self._running())
        history = self._recorder.state.file_history
        for call_id, was in list(self._background.items()):
            own = {change.change.before.path for change in history.list_since(was.change_mark)}
            changes = self._lister.find_changes(was.listing, now)
            changes = tuple(change for change in changes if change.before.path not in own)
            if changes:
                self._recorder.emit(FilesChanged(call_id, changes, concurrent=True))
            if call_id in running:
                self._background[call_id] = _BackgroundCall(now, history.mark())
            else:
                del self._background[call_id]

    # --- recording ---

    def _record_saved(self, event: CheckpointSaved, agent: str) -> None:
        self._busy.add(event.call_id)
        self._recorder.emit(event, agent)

    def _record_changes(self, call_id: str, changes: tuple[FileChange, ...], agent: str) -> None:
        self._recorder.emit(FilesChanged(call_id, changes), agent)

    def _warn_once(self, text: str) -> None:
        """Once in a session."""
        if not self._warned:
            self._warned = True
            self._recorder.emit(Warned(text))

    def close(self) -> None:
        self._lister.save_hashes()


def _touched_paths_of(paths: Iterable[str], cwd: str) -> tuple[str, ...]:
    """The paths that a call may touch: what it names, the file behind a link, the folders it may have to make."""
    found: list[str] = []
    for path in paths:
        if not path or "\0" in path:
            continue
        place = resolved_path_of(str(Path(cwd, path)))
        behind = os.path.realpath(place)
        for each in (place, behind):
            found += [*reversed(list(list_missing_folders(each))), each]
    return tuple(dict.fromkeys(found))


def _size_of(path: str) -> int:
    try:
        return Path(path).lstat().st_size
    except OSError:
        return 0


def _changes_of(before: Iterable[FileState]) -> tuple[FileChange, ...]:
    """What became of these paths."""
    pairs = ((was, state_of(decode_path(was.path), hash_file)) for was in before)
    return tuple(FileChange(was, now) for was, now in pairs if not is_same_state(was, now))


async def run_in_thread(work: Callable[[Callable[[], bool]], T]) -> T:
    """Do slow file work beside the event loop. The work is told to stop by the function it is given, and waited for."""
    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, stop.is_set))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([task])
        task.exception()
        raise
