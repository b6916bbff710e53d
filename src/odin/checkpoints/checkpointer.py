"""Saves files before a tool call may change them, and records the call's changes afterwards.

An edit names its files, so only those are saved. What a command wrote in a view is applied with what it replaces moved
to a stage, so nothing is saved before. Any other command may change anything, so unless it only reads, the whole
project and the other writable roots are listed and every file within the limits is saved. The log records both sides
(`CheckpointSaved`, `FilesChanged`), so undo is a fold over the log. The log may lag behind the disk: after a crash,
files are compared with their checkpoints first.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from odin.checkpoints.command_tracker import CommandTracker, RunningCommand
from odin.checkpoints.file_state import (
    decode_path,
    get_changed_time,
    is_same_state,
    list_missing_folders,
    read_file_state,
)
from odin.checkpoints.project_listing import (
    ProjectLister,
    ProjectListing,
    hash_file,
    read_regular_file,
)
from odin.checkpoints.view_changes import list_view_changes
from odin.config.paths import WORKTREE_FOLDER
from odin.core.effects import FileEffect, ViewLayer
from odin.core.errors import OdinError
from odin.core.event import CheckpointSaved, FilesChanged, Warned
from odin.core.event_values import FileChange, FileState
from odin.core.format import pluralize
from odin.core.text import join_some
from odin.core.timing import run_in_thread
from odin.core.tool import Target, Tool, ToolContext
from odin.engine.recorder import Recorder
from odin.engine.rollback import find_crashed_calls
from odin.policy.command_scope import CommandScope
from odin.policy.commands.analysis import is_plainly_read_only
from odin.policy.paths import resolve_target
from odin.sandbox.views.applier import ApplyResult, apply_effects, resume_apply
from odin.sandbox.views.open_tree import remove_tree
from odin.session.history import SpeculativeChanges, UnfinishedSave

MAX_EDIT_BYTES = 100_000_000
"""The largest file that is saved before an edit."""

_MAX_NAMED = 10

OWN_CHANGE_S = 10.0
"""Changes more than this many seconds after the checkpoint are not attributed to a killed edit."""


class Checkpointer:
    """Guards tool calls: saves files before, records changes after.

    `running` returns the ids of calls with a background process; `rollback_crashed` rolls back speculative calls.
    `can_confine` tells whether a sandbox limits what commands can change.
    """

    def __init__(
        self,
        *,
        lister: ProjectLister,
        recorder: Recorder,
        home: str,
        state_dir: str,
        running: Callable[[], Iterable[str]],
        rollback_crashed: Callable[[Sequence[SpeculativeChanges]], Awaitable[None]],
        can_confine: Callable[[], bool],
        command_turn_s: float,
    ) -> None:
        self._command_turn_s = command_turn_s
        self.store = lister.store
        self._recorder = recorder
        self._home = home
        self._lister = lister
        self._worktrees = f"{os.path.realpath(state_dir)}/{WORKTREE_FOLDER}/"
        self._running = running
        self._rollback_crashed = rollback_crashed
        self._can_confine = can_confine
        self._trackers: dict[str, CommandTracker] = {}
        self._warned = False
        self._busy: set[str] = set()
        self._recovery_lock = asyncio.Lock()

    @asynccontextmanager
    async def guard_call(self, tool: Tool[Any], args: Any, context: ToolContext) -> AsyncGenerator[None, None]:
        """Save files before the call and record its changes after it, even if it fails or is interrupted."""
        await self.recover()
        given = replace(tool.get_target(args), resolved=context.resolved_paths or ())
        target = resolve_target(given, context.cwd, context.environment.home)
        try:
            if tool.kind == "edit" and target.paths:
                before = await self._save_files(target, context)
                for tracker in self._trackers.values():
                    tracker.begin_edit(before)
                try:
                    yield
                finally:
                    changes = _find_changes(before)
                    for tracker in self._trackers.values():
                        tracker.end_edit(before, changes)
                    self._record_changes(context.call_id, changes, context.agent)
            elif self._may_change_anything(tool, target, context):
                command = await self._start_command(target.command, context)
                try:
                    yield
                finally:
                    if command is not None:
                        await self._get_tracker(os.path.realpath(context.root)).end(command)
            else:
                yield
        finally:
            self._busy.discard(context.call_id)

    def _may_change_anything(self, tool: Tool[Any], target: Target, context: ToolContext) -> bool:
        if tool.kind not in ("edit", "execute") or context.profile.view:
            return False
        if context.profile.name == "read" and self._can_confine():
            return False
        return not target.command or not is_plainly_read_only(target.command, _make_scope(context))

    async def apply_view(
        self, call_id: str, agent: str, layer: ViewLayer, effects: Sequence[FileEffect]
    ) -> ApplyResult:
        """Make what a command wrote real and record its changes. On cancellation, that is completed first."""
        await self.recover()
        stage = layer.stage
        self.store.keep(b"")  # raises if the store cannot be written
        await self._record_saved(CheckpointSaved(call_id, stage=stage), agent)

        async def apply() -> ApplyResult:
            try:
                result = await asyncio.to_thread(apply_effects, layer, effects, stage)
            finally:
                self._record_view_changes(call_id, await asyncio.to_thread(self._list_view_changes, stage), agent)
                self._busy.discard(call_id)
            return result

        task = asyncio.create_task(apply())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    def _list_view_changes(self, stage: str) -> tuple[FileChange, ...]:
        left = self._lister.limits.max_bytes

        def keep(path: str, info: os.stat_result) -> str:
            nonlocal left
            if info.st_size > min(left, self._lister.limits.max_file_bytes):
                return ""
            left -= info.st_size
            return self._keep_content(path, info)

        return list_view_changes(stage, keep)

    def _record_view_changes(self, call_id: str, changes: tuple[FileChange, ...], agent: str) -> None:
        self.note_changes(changes)
        self._record_changes(call_id, changes, agent)
        self._warn_about_unsaved(change.before for change in changes)

    def _resume_view(self, stage: str) -> tuple[FileChange, ...]:
        """Complete what a killed process has begun to apply, and return its changes."""
        resume_apply(stage)
        changes = self._list_view_changes(stage)
        remove_tree(os.path.dirname(stage))  # noqa: PTH120
        return changes

    async def _save_files(self, target: Target, context: ToolContext) -> tuple[FileState, ...]:
        # The paths a call may touch: those it acts on, and missing folders it may create. The temporary files of
        # commands go with the session.
        touched: list[str] = []
        for path in [item.path for item in target.resolved if not item.fault and not item.is_private]:
            touched += [*reversed(list(list_missing_folders(path))), path]
        paths = tuple(dict.fromkeys(touched))
        if any(map(_get_size, paths)):  # saving their content waits for the disk
            files = await run_in_thread(lambda stopped: self._save_states(paths))
        else:
            files = self._save_states(paths)
        await self._record_saved(CheckpointSaved(context.call_id, files), context.agent)
        self._warn_about_unsaved(files)
        return files

    def _warn_about_unsaved(self, files: Iterable[FileState]) -> None:
        unsaved = [state.path for state in files if state.kind == "file" and not state.saved]
        if unsaved:
            names = join_some(unsaved, _MAX_NAMED)
            self._recorder.emit(Warned(f"Cannot save a checkpoint, so undo cannot restore: {names}."))

    def _save_states(self, paths: Iterable[str]) -> tuple[FileState, ...]:
        return tuple(read_file_state(path, self._keep_content) for path in paths)

    def _keep_content(self, path: str, info: os.stat_result) -> str:
        data = read_regular_file(path, MAX_EDIT_BYTES)
        return "" if data is None else self.store.keep(data)

    async def _start_command(self, text: str, context: ToolContext) -> RunningCommand | None:
        root = os.path.realpath(context.root)
        if Path(self._home).is_relative_to(root):
            self._warn_once(f"{root} is too large to be saved before commands: undo covers only edits here.")
            return None
        # The only paths that the sandbox lets a command change; None if that is the whole project.
        scope = context.profile.scope
        scope = scope if scope is not None and self._can_confine() else None
        is_confined = scope is not None
        command = RunningCommand(context.call_id, context.agent, scope, is_confined=is_confined)
        saved: list[CheckpointSaved] = []

        def save(listing: ProjectListing) -> None:
            manifest = self.store.keep_manifest(listing.to_manifest())
            saved.append(CheckpointSaved(context.call_id, manifest=manifest, skipped=listing.skipped))

        tracker = self._get_tracker(root)
        tracker.others = tuple(other.path for other in context.roots if other.is_writable)
        await tracker.start(command, context.progress, save)
        await self._record_saved(saved[0], context.agent)
        if saved[0].skipped:
            limits = self._lister.limits
            self._warn_once(
                f"At least {pluralize(saved[0].skipped, 'file')} of this project cannot be saved before commands: "
                f"too large, too many or unreadable (limits: {limits.max_files} files, "
                f"{limits.max_bytes / 1e6:g} MB, {limits.max_file_bytes / 1e6:g} MB each). "
                "If a command changes them, undo cannot restore them."
            )
        return command

    def _get_tracker(self, root: str) -> CommandTracker:
        if root not in self._trackers:
            self._trackers[root] = CommandTracker(
                self._lister, root, self._recorder.emit, self._running, self._command_turn_s
            )
        return self._trackers[root]

    async def recover(self) -> None:
        """Record the changes of calls whose end is not in the log, and roll back speculative calls.

        Both happen after a crash, or after an interrupt while changes were being recorded.
        """
        async with self._recovery_lock:
            if crashed := find_crashed_calls(self._recorder):
                await self._rollback_crashed(crashed)
            for tracker in self._trackers.values():
                if tracker.has_interrupted_end:
                    await tracker.settle()
            calls = [call for call in self._recorder.state.file_history.unfinished if not self._is_busy(call)]
            for call in calls:
                if call.saved.stage:
                    changes = await asyncio.to_thread(self._resume_view, call.saved.stage)
                    self._record_view_changes(call.saved.call_id, changes, call.agent)
                elif not call.saved.manifest:
                    self._record_changes(call.saved.call_id, self._find_late_changes(call), call.agent)
            await self._recover_commands([call for call in calls if call.saved.manifest])

    def _is_busy(self, call: UnfinishedSave) -> bool:
        return call.saved.call_id in self._busy

    def _find_late_changes(self, call: UnfinishedSave) -> tuple[FileChange, ...]:
        """Return the changes of a killed edit. It is quick, so later changes to its files are not its own."""
        changes = _find_changes(call.saved.files)
        return tuple(item for item in changes if get_changed_time(item.after) <= call.at + OWN_CHANGE_S)

    async def _recover_commands(self, calls: Sequence[UnfinishedSave]) -> None:
        """Record the changes of killed commands. Those that ran at the same time in the same folder share them.

        Only changes since the last one's start are missing from the log, so they are recorded for that one.
        """
        by_root: dict[str, list[UnfinishedSave]] = {}
        for call in calls:
            try:
                manifest = await run_in_thread(lambda stopped, call=call: self.store.load_manifest(call.saved.manifest))
            except OdinError:
                self._record_changes(call.saved.call_id, (), call.agent)
            else:
                by_root.setdefault(manifest.root, []).append(call)
        for killed in by_root.values():
            last = killed[-1]
            changes = await run_in_thread(lambda stopped, last=last: self._find_changes_since(last, stopped))
            others = tuple(sorted({call.agent for call in killed} - {last.agent}))
            for call in killed[:-1]:
                self._record_changes(call.saved.call_id, (), call.agent)
            self._recorder.emit(FilesChanged(last.saved.call_id, changes, shared_with=others), last.agent)

    def _find_changes_since(self, call: UnfinishedSave, stopped: Callable[[], bool]) -> tuple[FileChange, ...]:
        """Return the changes since the checkpoint of a command, except those recorded or rolled back since."""
        before = ProjectListing.from_manifest(self.store.load_manifest(call.saved.manifest))
        for state in self._recorder.state.file_history.list_states_since(call.mark):
            before.set_state(state)
        root, *others = map(decode_path, before.roots)
        after = self._lister.list(root, keep=False, others=others, like=before, stopped=stopped)
        return self._lister.find_changes(before, after)

    async def record_pending(self) -> None:
        """Record the outstanding changes of interrupted calls and of background processes."""
        await self.recover()
        for tracker in self._trackers.values():
            await tracker.settle()

    async def record_background(self) -> None:
        """Record the changes of background processes that have ended. If that fails, the next listing does it."""
        for tracker in tuple(self._trackers.values()):
            with suppress(OdinError):
                await tracker.settle_background()

    def is_gone(self, path: str) -> bool:
        """True for a file of a worktree that was removed: there is nothing to restore it in."""
        name = decode_path(path).removeprefix(self._worktrees)
        parts = name.split("/", 2)
        is_inside = len(name) < len(decode_path(path)) and len(parts) == 3
        return is_inside and not os.path.isdir(f"{self._worktrees}{parts[0]}/{parts[1]}")  # noqa: PTH112

    def note_changes(self, changes: Sequence[FileChange]) -> None:
        """Tell the trackers that Odin changed these files, so that no running command is blamed."""
        for tracker in self._trackers.values():
            tracker.note_changes(changes)

    async def _record_saved(self, event: CheckpointSaved, agent: str) -> None:
        self._busy.add(event.call_id)
        self._recorder.emit(event, agent)
        await self._recorder.wait_until_synced()

    def _record_changes(self, call_id: str, changes: tuple[FileChange, ...], agent: str) -> None:
        self._recorder.emit(FilesChanged(call_id, changes), agent)

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self._recorder.emit(Warned(text))

    def close(self) -> None:
        self._lister.save_hashes()


def _make_scope(context: ToolContext) -> CommandScope:
    return CommandScope(context.cwd, context.root, context.environment, context.roots)


def _get_size(path: str) -> int:
    try:
        return Path(path).lstat().st_size
    except OSError:
        return 0


def _find_changes(before: Iterable[FileState]) -> tuple[FileChange, ...]:
    """The changes of these paths since `before`."""
    pairs = ((state, read_file_state(decode_path(state.path), hash_file)) for state in before)
    return tuple(FileChange(state, now) for state, now in pairs if not is_same_state(state, now))
