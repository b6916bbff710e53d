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

from odin.core.errors import OdinError
from odin.core.event import FileChange, FilesLeft, FilesSaved, FileState, Warned
from odin.core.tool import Subject, Tool, ToolContext
from odin.engine.early.discard import crashed
from odin.engine.recorder import Recorder
from odin.policy.shell import read_only
from odin.session.files.changes import Unended
from odin.session.files.checkpoints import CheckpointStore
from odin.session.files.filestate import missing_folders, place_of, same, since, state_of, unspelled
from odin.session.files.listing import Limits, Lister, Listing, hashed, read_file

EDIT_BYTES = 100_000_000
"""The largest file that is saved before an edit of it."""

_AT_ONCE = 4_000_000
"""Up to this many bytes a file is saved in place; more would hold up everybody else."""

OURS_S = 10.0
"""How long after its files were saved a killed edit may have changed them. What came later is somebody else's."""

T = TypeVar("T")


class _Background(Struct, frozen=True):
    """The project when a call ended whose process goes on, and how much was in the history of changes then."""

    listing: Listing
    mark: int


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
        limits: Limits,
        running: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.store = store
        self._recorder = recorder
        self._root = root
        self._too_broad = Path(home).is_relative_to(root)
        self._lister = Lister(store, limits, outside=(os.path.realpath(state_dir),))
        self._limits = limits
        self._running = running
        self._background: dict[str, _Background] = {}
        self._warned = False
        self._busy: set[str] = set()
        self._clearing = asyncio.Lock()

    # --- before and after a call ---

    @asynccontextmanager
    async def around(self, tool: Tool[Any], args: Any, context: ToolContext) -> AsyncGenerator[None, None]:
        await self.recover()
        subject = tool.subject(args)
        try:
            if tool.kind == "edit" and subject.paths:
                before = await self._save_files(subject, context)
                try:
                    yield
                finally:
                    self._left(context.call_id, _changes(before), context.agent)
            elif self._may_change_anything(tool, subject, context):
                listing = await self._save_project(context)
                try:
                    yield
                finally:
                    if listing is not None:
                        await self._leave_project(listing, context)
            else:
                yield
        finally:
            self._busy.discard(context.call_id)

    def _may_change_anything(self, tool: Tool[Any], subject: Subject, context: ToolContext) -> bool:
        if tool.kind not in ("edit", "execute"):
            return False
        return not subject.command or not read_only(subject.command, context.cwd, context.root)

    async def _save_files(self, subject: Subject, context: ToolContext) -> tuple[FileState, ...]:
        paths = _places(subject.paths, context.cwd)
        if any(_size(path) > _AT_ONCE for path in paths):
            files = await in_thread(lambda stopped: self._states(paths))
        else:
            files = self._states(paths)
        self._saved(FilesSaved(context.call_id, files), context.agent)
        lost = [state.path for state in files if state.kind == "file" and not state.saved]
        if lost:
            self._recorder.emit(Warned(f"It cannot be saved first, so undo cannot bring it back: {', '.join(lost)}."))
        return files

    def _states(self, paths: Iterable[str]) -> tuple[FileState, ...]:
        return tuple(state_of(path, self._keep) for path in paths)

    def _keep(self, path: str, info: os.stat_result) -> str:
        data = read_file(path, EDIT_BYTES)
        return "" if data is None else self.store.keep(data)

    async def _save_project(self, context: ToolContext) -> Listing | None:
        if self._too_broad:
            self._warn(f"{self._root} is too much to be saved before commands: undo covers only edits here.")
            return None
        listing, manifest = await in_thread(self._keep_project)
        self._settle_background(listing)
        self._saved(FilesSaved(context.call_id, manifest=manifest, skipped=listing.skipped), context.agent)
        if listing.skipped:
            limits = self._limits
            self._warn(
                f"At least {listing.skipped} files of this project are not saved before commands, because they are "
                f"large or many or cannot be read (limits: {limits.max_files} files, "
                f"{limits.max_bytes / 1e6:g} MB, {limits.max_file_bytes / 1e6:g} MB each). "
                "If a command changes them, undo cannot bring them back."
            )
        return listing

    def _keep_project(self, stopped: Callable[[], bool]) -> tuple[Listing, str]:
        listing = self._lister.list(self._root, keep=True, stopped=stopped)
        return listing, self.store.keep_manifest(listing.manifest())

    async def _leave_project(self, before: Listing, context: ToolContext) -> None:
        """An interruption in here leaves the call open in the log; `recover` closes it before the next one."""
        spawned = context.call_id in self._running()

        def compare(stopped: Callable[[], bool]) -> tuple[Listing, tuple[FileChange, ...]]:
            after = self._lister.list(self._root, keep=False, like=before, stopped=stopped)
            changes = self._lister.changes(before, after)
            with suppress(OdinError):
                after = self._lister.list(self._root, keep=True, stopped=stopped) if spawned else after
            return after, changes

        after, changes = await in_thread(compare)
        self._left(context.call_id, changes, context.agent)
        if spawned:
            self._background[context.call_id] = _Background(after, self._recorder.state.changes.mark())

    # --- what nobody waited for ---

    async def recover(self) -> None:
        """Record what calls changed whose end was never written: a kill in between, or an impatient person.

        What was begun early and never counted is put back.
        """
        async with self._clearing:
            if early := crashed(self._recorder):
                from odin.engine.early.takeback import clear_up

                await clear_up(early, self._recorder, self.store, self._root)
        for call in self._recorder.state.changes.open:
            name = call.saved.call_id
            if name not in self._busy:
                self._busy.add(name)
                try:
                    changes = await in_thread(lambda stopped, call=call: self._changed_since(call, stopped))
                    self._left(name, changes, "")
                finally:
                    self._busy.discard(name)

    def _changed_since(self, call: Unended, stopped: Callable[[], bool]) -> tuple[FileChange, ...]:
        """An edit takes a moment: what became of its files much later is somebody else's doing. A command may take
        long, and when it was killed nobody knows.
        """
        saved = call.saved
        changes = tuple(item for item in _changes(saved.files) if since(item.after) <= call.at + OURS_S)
        if saved.manifest:
            try:
                before = Listing.of(self.store.manifest(saved.manifest))
            except OdinError:
                return changes
            after = self._lister.list(unspelled(before.root), keep=False, like=before, stopped=stopped)
            changes += self._lister.changes(before, after)
        return changes

    async def settle(self) -> None:
        """Record what is not recorded yet: of calls that were cut off, and of processes in the background."""
        await self.recover()
        if self._background:
            listing = await in_thread(lambda stopped: self._lister.list(self._root, keep=True, stopped=stopped))
            self._settle_background(listing)

    def _settle_background(self, now: Listing) -> None:
        running = set(self._running())
        history = self._recorder.state.changes
        for call_id, was in list(self._background.items()):
            own = {change.before_after.before.path for change in history.since(was.mark)}
            changes = self._lister.changes(was.listing, now)
            changes = tuple(change for change in changes if change.before.path not in own)
            if changes:
                self._recorder.emit(FilesLeft(call_id, changes, shared=True))
            if call_id in running:
                self._background[call_id] = _Background(now, history.mark())
            else:
                del self._background[call_id]

    # --- recording ---

    def _saved(self, event: FilesSaved, agent: str) -> None:
        self._busy.add(event.call_id)
        self._recorder.emit(event, agent)

    def _left(self, call_id: str, changes: tuple[FileChange, ...], agent: str) -> None:
        self._recorder.emit(FilesLeft(call_id, changes), agent)

    def _warn(self, text: str) -> None:
        """Once in a session."""
        if not self._warned:
            self._warned = True
            self._recorder.emit(Warned(text))

    def close(self) -> None:
        self._lister.remember()


def _places(paths: Iterable[str], cwd: str) -> tuple[str, ...]:
    """The paths that a call may touch: what it names, the file behind a link, the folders it may have to make."""
    found: list[str] = []
    for path in paths:
        if not path or "\0" in path:
            continue
        place = place_of(str(Path(cwd, path)))
        behind = os.path.realpath(place)
        for each in (place, behind):
            found += [*reversed(list(missing_folders(each))), each]
    return tuple(dict.fromkeys(found))


def _size(path: str) -> int:
    try:
        return Path(path).lstat().st_size
    except OSError:
        return 0


def _changes(before: Iterable[FileState]) -> tuple[FileChange, ...]:
    """What became of these paths."""
    pairs = ((was, state_of(unspelled(was.path), hashed)) for was in before)
    return tuple(FileChange(was, now) for was, now in pairs if not same(was, now))


async def in_thread(work: Callable[[Callable[[], bool]], T]) -> T:
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
