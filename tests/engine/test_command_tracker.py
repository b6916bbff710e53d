"""CommandTracker: attribution of file changes to the agents whose commands ran at that time."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from odin.checkpoints.command_tracker import CommandTracker, RunningCommand
from odin.checkpoints.file_state import read_file_state
from odin.checkpoints.project_listing import ListingLimits, ProjectLister, hash_file
from odin.checkpoints.store import CheckpointStore
from odin.core.event import FilesChanged
from odin.core.event_values import FileChange
from tests.waiting import LIMIT_S


class TrackerHarness:
    """A tracker of a real folder. `recorded` lists the changes: (agent, sharing agents, in the background, names)."""

    def __init__(self, folder: Path, wait_s: float = 0.0) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.background: set[str] = set()
        self.recorded: list[tuple[str, tuple[str, ...], bool, tuple[str, ...]]] = []
        lister = ProjectLister(CheckpointStore(folder / "store"), ListingLimits())
        self.tracker = CommandTracker(lister, str(self.root), self._record, lambda: self.background, wait_s)
        self.messages: list[str] = []

    def _record(self, event: FilesChanged, agent: str) -> None:
        names = tuple(str(Path(change.after.path).relative_to(self.root)) for change in event.changes)
        if names:
            self.recorded.append((agent, event.shared_with, event.concurrent, names))

    async def start(
        self, agent: str, scope: tuple[str, ...] | None = None, *, is_confined: bool = True
    ) -> RunningCommand:
        paths = None if scope is None else tuple(str(self.root / name) for name in scope)
        command = RunningCommand(f"call-{agent}", agent, paths, is_confined=is_confined)
        await self.tracker.start(command, self.messages.append, lambda listing: None)
        return command

    def put(self, name: str, text: str = "x") -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def edit(self, name: str, text: str, meanwhile: Callable[[], None] = lambda: None) -> FileChange:
        """Edit a file between `begin_edit` and `end_edit`, as the checkpointer does."""
        path = str(self.root / name)
        before = read_file_state(path, hash_file)
        self.tracker.begin_edit([before])
        self.put(name, text)
        meanwhile()
        change = FileChange(before, read_file_state(path, hash_file))
        self.tracker.end_edit([before], [change])
        return change


@pytest.fixture
def harness(tmp_path: Path) -> TrackerHarness:
    return TrackerHarness(tmp_path)


async def test_change_is_attributed_to_the_commands_running_at_that_time(harness: TrackerHarness) -> None:
    one = await harness.start("a")
    harness.put("early")
    two = await harness.start("b")
    harness.put("between")
    await harness.tracker.end(one)
    harness.put("late")
    await harness.tracker.end(two)
    assert harness.recorded == [
        ("a", (), False, ("early",)),
        ("a", ("b",), False, ("between",)),
        ("b", (), False, ("late",)),
    ]
    assert harness.messages == ["Waiting for a command of a in the same folder"]


async def test_edit_is_not_attributed_to_a_running_command(harness: TrackerHarness) -> None:
    harness.put("a", "old")
    command = await harness.start("a")
    harness.edit("a", "edited")
    harness.edit("new", "edited")
    harness.put("own")
    await harness.tracker.end(command)
    assert harness.recorded == [("a", (), False, ("own",))]


async def test_change_of_a_command_is_recorded_before_an_edit_of_the_same_file(harness: TrackerHarness) -> None:
    harness.put("f", "old")
    command = await harness.start("a")
    harness.put("f", "by the command")
    harness.put("g", "by the command")
    assert harness.recorded == []
    harness.edit("f", "edited")
    harness.edit("g", "edited")
    assert harness.recorded == [("a", (), False, ("f",)), ("a", (), False, ("g",))]
    harness.put("f", "by the command again")
    await harness.tracker.end(command)
    assert harness.recorded[2:] == [("a", (), False, ("f",))]


async def test_edit_during_a_listing_is_not_attributed_to_a_command(harness: TrackerHarness) -> None:
    harness.put("f", "old")
    one = await harness.start("a")
    path = str(harness.root / "f")
    before = read_file_state(path, hash_file)
    harness.tracker.begin_edit([before])
    harness.put("f", "half done")
    two = await harness.start("b")
    harness.put("f", "edited")
    ending = asyncio.ensure_future(harness.tracker.end(one))
    await asyncio.sleep(0)
    harness.tracker.end_edit([before], [FileChange(before, read_file_state(path, hash_file))])
    harness.edit("g", "edited while the files are listed")
    await ending
    await harness.tracker.end(two)
    assert harness.recorded == []


async def test_rolled_back_edit_is_not_attributed_to_a_command(harness: TrackerHarness) -> None:
    command = await harness.start("a")
    change = harness.edit("f", "speculative")
    (harness.root / "f").unlink()
    harness.tracker.note_changes([FileChange(change.after, change.before)])
    await harness.tracker.end(command)
    assert harness.recorded == []


async def test_background_process_shares_changes_only_with_other_agents(harness: TrackerHarness) -> None:
    harness.background.add("call-a")
    spawned = await harness.start("a")
    await harness.tracker.end(spawned)
    harness.put("alone")
    own = RunningCommand("call-2", "a")
    await harness.tracker.start(own, harness.messages.append, lambda listing: None)
    harness.put("own")
    await harness.tracker.end(own)
    other = await harness.start("b")
    harness.put("beside")
    await harness.tracker.end(other)
    harness.put("last")
    harness.background.clear()
    await harness.tracker.settle()
    harness.put("after")
    await harness.tracker.settle()
    assert harness.messages == []  # no command waits for a background process
    assert harness.recorded == [
        ("a", (), True, ("alone",)),
        ("a", (), False, ("own",)),
        ("b", ("a",), False, ("beside",)),
        ("a", (), True, ("last",)),
    ]


async def test_commands_with_separate_write_scopes_neither_wait_nor_share(harness: TrackerHarness) -> None:
    harness.put("src/x")
    harness.put("docs/x")
    one = await harness.start("a", ("src",))
    two = await harness.start("b", ("docs", "README"))
    reader = await harness.start("c", ())
    assert harness.messages == []
    harness.put("src/one")
    harness.put("docs/two")
    harness.put("elsewhere")
    for command in (one, two, reader):
        await harness.tracker.end(command)
    assert sorted(harness.recorded) == [("a", (), False, ("src/one",)), ("b", (), False, ("docs/two",))]


async def test_change_outside_all_scopes_is_shared_by_unconfined_commands(harness: TrackerHarness) -> None:
    one = await harness.start("a", ("x",), is_confined=False)
    two = await harness.start("b", ("y",), is_confined=False)
    confined = await harness.start("c", ("z",))
    assert harness.messages == []
    harness.put("x")
    harness.put("y")
    harness.put("other")
    for command in (one, two, confined):
        await harness.tracker.end(command)
    assert sorted(harness.recorded) == [
        ("a", (), False, ("x",)),
        ("a", ("b",), False, ("other",)),
        ("b", (), False, ("y",)),
    ]


async def test_command_that_ends_during_a_listing_keeps_its_changes(harness: TrackerHarness) -> None:
    one = await harness.start("a", ("early", "late"))
    harness.put("early")
    listed, gate = threading.Event(), threading.Event()

    def save(listing: object) -> None:
        harness.put("late")
        listed.set()
        gate.wait(LIMIT_S)

    other = RunningCommand("call-b", "b", (str(harness.root / "own"),))
    starting = asyncio.ensure_future(harness.tracker.start(other, harness.messages.append, save))
    await asyncio.to_thread(listed.wait, 30)
    ending = asyncio.ensure_future(harness.tracker.end(one))
    await asyncio.sleep(0)
    gate.set()
    await starting
    harness.put("own")
    await ending
    await harness.tracker.end(other)
    assert sorted(harness.recorded) == [
        ("a", (), False, ("early",)),
        ("a", (), False, ("late",)),
        ("b", (), False, ("own",)),
    ]


async def test_background_process_that_ends_during_a_listing_keeps_its_changes(harness: TrackerHarness) -> None:
    spawned = await harness.start("a")
    harness.background.add("call-a")
    await harness.tracker.end(spawned)
    listed, gate = threading.Event(), threading.Event()

    def save(listing: object) -> None:
        harness.put("late")
        listed.set()
        gate.wait(LIMIT_S)

    starting = asyncio.ensure_future(
        harness.tracker.start(RunningCommand("call-b", "b", ()), harness.messages.append, save)
    )
    await asyncio.to_thread(listed.wait, 30)
    harness.background.clear()
    recording = asyncio.ensure_future(harness.tracker.settle_background())
    gate.set()
    await starting
    await recording
    harness.put("after")
    await harness.tracker.settle_background()
    assert harness.recorded == [("a", (), True, ("late",))]


async def test_interrupted_end_is_recorded_when_the_tracker_settles(harness: TrackerHarness) -> None:
    command = await harness.start("a")
    harness.put("f")
    ending = asyncio.ensure_future(harness.tracker.end(command))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    assert (harness.tracker.has_interrupted_end, harness.recorded) == (True, [])
    await harness.tracker.settle()
    assert (harness.tracker.has_interrupted_end, harness.recorded) == (False, [("a", (), False, ("f",))])


async def test_commands_of_several_agents_take_turns(tmp_path: Path) -> None:
    harness = TrackerHarness(tmp_path, wait_s=30.0)
    first = await harness.start("a")
    waiting = [asyncio.ensure_future(harness.start(agent)) for agent in ("b", "c", "d")]
    await asyncio.sleep(0)
    waiting[1].cancel()  # a cancelled command does not block the others
    harness.put("of a")
    await harness.tracker.end(first)
    second = await waiting[0]
    assert not waiting[2].done()
    harness.put("of b")
    await harness.tracker.end(second)
    third = await waiting[2]
    harness.put("of d")
    await harness.tracker.end(third)
    assert [(agent, names) for agent, shared, _, names in harness.recorded if not shared] == [
        ("a", ("of a",)),
        ("b", ("of b",)),
        ("d", ("of d",)),
    ]


async def test_edit_during_a_cancelled_listing_is_not_attributed_to_a_command(harness: TrackerHarness) -> None:
    command = await harness.start("a")
    starting = asyncio.ensure_future(harness.start("b"))
    await asyncio.sleep(0)
    while not harness.tracker._is_listing:
        await asyncio.sleep(0)
    harness.edit("f", "edited")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    harness.put("own")
    await harness.tracker.end(command)
    assert harness.recorded == [("a", (), False, ("own",))]
