"""Attributes the changes that commands make in one working folder to the agents that ran them.

An edit names its files, so its changes are known exactly. A command may change anything, and nothing tells who wrote a
file, so the project is listed whenever a command starts or ends. What changed between two listings was made by the
commands that ran in between:

- Only one agent's command ran: the changes are that command's.
- Commands of several agents ran: the author is unknown, so the changes are recorded as shared by these agents.
  Going back to before a prompt restores them, undoing one agent's work leaves them alone.

To make the second case rare, a command waits some seconds for the running commands of other agents in the same
folder. Read-only commands, edits, and commands that can only change other files never wait: the sandbox confines them,
or every path they change is written out in them (`mkdir a && echo b > a/b`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from odin.checkpoints.file_state import decode_path, make_absent_state
from odin.checkpoints.project_listing import (
    ProjectLister,
    ProjectListing,
    has_changed,
    is_unhashed,
    was_absent,
)
from odin.core.errors import OdinError
from odin.core.event import FilesChanged
from odin.core.event_values import FileChange, FileState
from odin.core.path_names import contains
from odin.core.timing import run_in_thread


class RunningCommand(Struct, eq=False):
    """A call whose process may change files. `scope` are the only paths that it can change, if they are known.

    `is_confined`: the sandbox enforces that; otherwise the command says so. `is_background`: the call has ended, and
    its process still runs. `is_ended`: the process has ended too, but its changes are not recorded yet;
    `is_interrupted`: because recording them was interrupted.
    """

    call_id: str
    agent: str
    scope: tuple[str, ...] | None = None
    is_confined: bool = False
    is_background: bool = False
    is_ended: bool = False
    is_interrupted: bool = False

    def may_change(self, path: str) -> bool:
        return self.scope is None or any(contains(place, path) for place in self.scope)

    def overlaps(self, other: "RunningCommand") -> bool:
        if self.scope is None or other.scope is None:
            return () not in (self.scope, other.scope)
        return any(contains(one, two) or contains(two, one) for one in self.scope for two in other.scope)


class CommandTracker:
    """The commands that run in one working folder. `running` returns the ids of calls with a background process.
    `others` are the writable roots besides that folder.

    A command waits `wait_s` for the commands of other agents, then runs beside them.
    """

    def __init__(
        self,
        lister: ProjectLister,
        root: str,
        record: Callable[[FilesChanged, str], object],
        running: Callable[[], Iterable[str]],
        wait_s: float,
    ) -> None:
        self._wait_s = wait_s
        self._lister = lister
        self._root = root
        self.others: tuple[str, ...] = ()
        self._record = record
        self._running = running
        self._queue: list[RunningCommand] = []  # foreground commands, waiting or running, in the order of their calls
        self._commands: dict[str, RunningCommand] = {}
        self._listing: ProjectListing | None = None
        self._lock = asyncio.Lock()
        self._is_listing = False
        self._open_edits: dict[str, FileState] = {}
        self._edited: dict[str, FileState] = {}  # by edits that ended while the project was being listed
        self._freed = asyncio.Event()

    # --- commands ---

    async def start(
        self, command: RunningCommand, announce: Callable[[str], None], save: Callable[[ProjectListing], None]
    ) -> None:
        """Wait for the commands of other agents, then list the project and call `save` with the listing in a thread."""
        self._queue.append(command)
        try:
            await self._wait_for_others(command, announce)
            async with self._lock:
                listing = await self._settle(keep=True, save=save)
                self._commands[command.call_id] = command
                self._listing = listing
        except BaseException:
            self._leave_queue(command)
            raise

    async def end(self, command: RunningCommand) -> None:
        """Record the changes of a command that has ended. If interrupted, the next listing does it."""
        self._leave_queue(command)
        command.is_ended = True
        try:
            await self.settle()
        except BaseException:
            command.is_interrupted = True
            raise

    async def settle(self) -> None:
        """Record the changes up to now of all commands."""
        async with self._lock:
            if self._commands:
                await self._settle(keep=self._is_needed_later())

    async def settle_background(self) -> None:
        """Record the changes of background processes that have ended."""
        async with self._lock:
            running = set(self._running())
            if any(command.is_background and command.call_id not in running for command in self._commands.values()):
                await self._settle(keep=self._is_needed_later())

    @property
    def has_interrupted_end(self) -> bool:
        """True if a command has ended, and recording its changes was interrupted."""
        return any(command.is_interrupted for command in self._commands.values())

    async def _wait_for_others(self, command: RunningCommand, announce: Callable[[str], None]) -> None:
        deadline = asyncio.get_running_loop().time() + self._wait_s
        is_announced = False
        while others := self._find_blocking(command):
            if not is_announced:
                is_announced = True
                announce(f"Waiting for a command of {others[0].agent or 'the main agent'} in the same folder")
            try:
                async with asyncio.timeout_at(deadline):
                    await self._freed.wait()
            except TimeoutError:
                return

    def _find_blocking(self, command: RunningCommand) -> list[RunningCommand]:
        earlier = self._queue[: self._queue.index(command)]
        return [other for other in earlier if other.agent != command.agent and other.overlaps(command)]

    def _leave_queue(self, command: RunningCommand) -> None:
        if command in self._queue:
            self._queue.remove(command)
            self._freed.set()
            self._freed = asyncio.Event()

    def _is_needed_later(self) -> bool:
        """True if a process goes on after the next listing, so that the listing must save what it may change."""
        running = set(self._running())
        return any(not command.is_ended or command.call_id in running for command in self._commands.values())

    async def _settle(
        self, *, keep: bool, save: Callable[[ProjectListing], None] = lambda listing: None
    ) -> ProjectListing:
        """List the project, attribute what changed since the last listing, and drop the commands that have ended.

        A process that ends while the files are being listed counts as running: they may show only a part of its work.
        """
        earlier = self._listing
        running = set(self._running())
        ended = [command for command in self._commands.values() if command.is_ended]
        self._edited.clear()
        self._is_listing = True
        try:
            now, changes = await run_in_thread(lambda stopped: self._compare(earlier, keep, save, stopped))
        except BaseException:
            if earlier is not None:
                for state in self._edited.values():
                    earlier.set_state(state)
            raise
        finally:
            self._is_listing = False
        touched = {**self._edited, **self._open_edits}
        for state in touched.values():
            now.set_state(state)
        self._listing = now
        self._record_changes([change for change in changes if change.before.path not in touched], ended)
        for call_id, command in list(self._commands.items()):
            if command in ended and call_id in running:
                command.is_ended = command.is_interrupted = False
                command.is_background = True
            elif command in ended or (command.is_background and call_id not in running):
                del self._commands[call_id]
        if not self._commands:
            self._listing = None
        return now

    def _compare(
        self,
        earlier: ProjectListing | None,
        keep: bool,
        save: Callable[[ProjectListing], None],
        stopped: Callable[[], bool],
    ) -> tuple[ProjectListing, tuple[FileChange, ...]]:
        try:
            now = self._lister.list(self._root, keep=keep, others=self.others, like=earlier, stopped=stopped)
        except OdinError:
            if not keep or stopped() or not any(command.is_ended for command in self._commands.values()):
                raise
            now = self._lister.list(self._root, keep=False, others=self.others, like=earlier, stopped=stopped)
        save(now)
        changes = () if earlier is None else self._lister.find_changes(earlier, now)
        for change in changes:  # a path that was created again after it was listed
            now.set_state(change.after)
        return now, changes

    def _record_changes(self, changes: Sequence[FileChange], ended: Sequence[RunningCommand] = ()) -> None:
        """Record changes for the commands that can have made them, and the end of those that have ended."""
        by_owner: dict[tuple[str, tuple[str, ...]], list[FileChange]] = {}
        for change in changes:
            # The commands that can have changed a path, the likeliest first. Beside a command, background processes of
            # the same agent are not suspected; those of other agents are.
            path = decode_path(change.before.path)
            able = [command for command in self._commands.values() if command.may_change(path)]
            able = able or [command for command in self._commands.values() if not command.is_confined]
            front = [command for command in able if not command.is_background]
            agents = {command.agent for command in front}
            suspects = [*front, *(command for command in able if command.is_background and command.agent not in agents)]
            if suspects:
                owner = suspects[0]
                others = tuple(sorted({item.agent for item in suspects} - {owner.agent}))
                by_owner.setdefault((owner.call_id, others), []).append(change)
        for (call_id, others), owned in by_owner.items():
            owner = self._commands[call_id]
            is_open = not owner.is_background
            if others or owner not in ended:
                self._record(FilesChanged(call_id, tuple(owned), not is_open, is_open, others), owner.agent)
        for command in ended:
            own = by_owner.get((command.call_id, ()), ())
            self._record(FilesChanged(command.call_id, tuple(own)), command.agent)

    # --- changes with a known author ---

    def begin_edit(self, states: Iterable[FileState]) -> None:
        """An edit tool is about to change these files. What running commands changed in them before is recorded."""
        states = list(states)
        if self._listing is not None:
            found = [change for state in states if (change := self._find_earlier_change(state))]
            self._record_changes(found)
        for state in states:
            self._open_edits[state.path] = state

    def _find_earlier_change(self, now: FileState) -> FileChange | None:
        if now.path in self._open_edits or self._listing is None:
            return None
        before = self._edited.get(now.path) if self._is_listing else None
        before = before or self._listing.states.get(now.path)
        if before is None:
            if now.kind in ("absent", "other") or not was_absent(now.path, self._listing, set()):
                return None
            before = make_absent_state(decode_path(now.path))
        if is_unhashed(before) or is_unhashed(now) or not has_changed(before, now):
            return None
        return FileChange(before, now)

    def end_edit(self, before: Iterable[FileState], changes: Iterable[FileChange]) -> None:
        """An edit tool has ended; the tracker's caller records its changes."""
        known = {state.path: state for state in before}
        for path in known:
            self._open_edits.pop(path, None)
        known.update((change.after.path, change.after) for change in changes)
        self._note_states(known.values())

    def note_changes(self, changes: Iterable[FileChange]) -> None:
        """Odin itself has changed files, by a rollback or a rewind."""
        self._note_states(change.after for change in changes)

    def _note_states(self, states: Iterable[FileState]) -> None:
        for state in states:
            if self._is_listing:
                self._edited[state.path] = state
            elif self._listing is not None:
                self._listing.set_state(state)
