"""Who changed a file: the agent whose command ran, or several agents together, and never another one."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from odin.checkpoints.command_tracker import CommandTracker, RunningCommand
from odin.checkpoints.file_state import state_of
from odin.checkpoints.project_listing import ListingLimits, ProjectLister, hash_file
from odin.checkpoints.store import CheckpointStore
from odin.core.event import FilesChanged
from odin.core.event_values import FileChange


class Bench:
    """A tracker over a real folder. `charged` lists (agent, sharing agents, background, names) of what was recorded."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.background: set[str] = set()
        self.charged: list[tuple[str, tuple[str, ...], bool, tuple[str, ...]]] = []
        lister = ProjectLister(CheckpointStore(folder / "store"), ListingLimits())
        self.tracker = CommandTracker(lister, str(self.root), self._record, lambda: self.background)
        self.said: list[str] = []

    def _record(self, event: FilesChanged, agent: str) -> None:
        names = tuple(str(Path(change.after.path).relative_to(self.root)) for change in event.changes)
        if names:
            self.charged.append((agent, event.shared_with, event.concurrent, names))

    async def start(
        self, agent: str, scope: tuple[str, ...] | None = None, *, is_confined: bool = True
    ) -> RunningCommand:
        places = None if scope is None else tuple(str(self.root / name) for name in scope)
        command = RunningCommand(f"call-{agent}", agent, places, is_confined=is_confined)
        await self.tracker.start(command, self.said.append, lambda listing: None)
        return command

    def put(self, name: str, text: str = "x") -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def edit(self, name: str, text: str, meanwhile: Callable[[], None] = lambda: None) -> FileChange:
        """Edit a file as the checkpointer guards it."""
        path = str(self.root / name)
        before = state_of(path, hash_file)
        self.tracker.begin_edit([before])
        self.put(name, text)
        meanwhile()
        change = FileChange(before, state_of(path, hash_file))
        self.tracker.end_edit([before], [change])
        return change


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(CommandTracker, "wait_s", 0.0)
    return Bench(tmp_path)


async def test_every_stretch_of_time_has_its_own_suspects(bench: Bench) -> None:
    one = await bench.start("a")
    bench.put("early")
    two = await bench.start("b")
    bench.put("between")
    await bench.tracker.end(one)
    bench.put("late")
    await bench.tracker.end(two)
    assert bench.charged == [
        ("a", (), False, ("early",)),
        ("a", ("b",), False, ("between",)),
        ("b", (), False, ("late",)),
    ]
    assert bench.said == ["Waiting for a command of a in the same folder"]


async def test_an_edit_beside_a_command_is_not_the_commands_work(bench: Bench) -> None:
    bench.put("a", "old")
    command = await bench.start("a")
    bench.edit("a", "edited")
    bench.edit("new", "edited")
    bench.put("own")
    await bench.tracker.end(command)
    assert bench.charged == [("a", (), False, ("own",))]


async def test_what_a_command_changed_before_an_edit_is_recorded_before_the_edit(bench: Bench) -> None:
    bench.put("f", "old")
    command = await bench.start("a")
    bench.put("f", "by the command")
    bench.put("g", "by the command")
    assert bench.charged == []
    bench.edit("f", "edited")
    bench.edit("g", "edited")
    assert bench.charged == [("a", (), False, ("f",)), ("a", (), False, ("g",))]
    bench.put("f", "by the command again")
    await bench.tracker.end(command)
    assert bench.charged[2:] == [("a", (), False, ("f",))]


async def test_an_edit_under_way_while_the_project_is_listed(bench: Bench) -> None:
    bench.put("f", "old")
    one = await bench.start("a")
    path = str(bench.root / "f")
    before = state_of(path, hash_file)
    bench.tracker.begin_edit([before])
    bench.put("f", "half done")
    two = await bench.start("b")
    bench.put("f", "edited")
    ending = asyncio.ensure_future(bench.tracker.end(one))
    await asyncio.sleep(0)
    bench.tracker.end_edit([before], [FileChange(before, state_of(path, hash_file))])
    bench.edit("g", "edited while the files are listed")
    await ending
    await bench.tracker.end(two)
    assert bench.charged == []


async def test_what_odin_takes_back_itself_is_no_commands_work(bench: Bench) -> None:
    command = await bench.start("a")
    change = bench.edit("f", "speculative")
    (bench.root / "f").unlink()
    bench.tracker.note_changes([FileChange(change.after, change.before)])
    await bench.tracker.end(command)
    assert bench.charged == []


async def test_a_background_process_of_another_agent_is_a_suspect_and_ones_own_is_not(bench: Bench) -> None:
    bench.background.add("call-a")
    spawned = await bench.start("a")
    await bench.tracker.end(spawned)
    bench.put("alone")
    own = RunningCommand("call-2", "a")
    await bench.tracker.start(own, bench.said.append, lambda listing: None)
    bench.put("own")
    await bench.tracker.end(own)
    other = await bench.start("b")
    bench.put("beside")
    await bench.tracker.end(other)
    bench.put("last")
    bench.background.clear()
    await bench.tracker.settle()
    bench.put("after")
    await bench.tracker.settle()
    assert bench.said == []  # nobody waits for a background process
    assert bench.charged == [
        ("a", (), True, ("alone",)),
        ("a", (), False, ("own",)),
        ("b", ("a",), False, ("beside",)),
        ("a", (), True, ("last",)),
    ]


async def test_commands_confined_to_other_files_neither_wait_nor_share(bench: Bench) -> None:
    bench.put("src/x")
    bench.put("docs/x")
    one = await bench.start("a", ("src",))
    two = await bench.start("b", ("docs", "README"))
    reader = await bench.start("c", ())
    assert bench.said == []
    bench.put("src/one")
    bench.put("docs/two")
    bench.put("elsewhere")
    for command in (one, two, reader):
        await bench.tracker.end(command)
    assert sorted(bench.charged) == [("a", (), False, ("src/one",)), ("b", (), False, ("docs/two",))]


async def test_a_change_that_no_command_named_is_not_lost(bench: Bench) -> None:
    one = await bench.start("a", ("x",), is_confined=False)
    two = await bench.start("b", ("y",), is_confined=False)
    confined = await bench.start("c", ("z",))
    assert bench.said == []
    bench.put("x")
    bench.put("y")
    bench.put("other")
    for command in (one, two, confined):
        await bench.tracker.end(command)
    assert sorted(bench.charged) == [
        ("a", (), False, ("x",)),
        ("a", ("b",), False, ("other",)),
        ("b", (), False, ("y",)),
    ]


async def test_a_command_that_ends_while_the_files_are_listed_has_not_ended_before(bench: Bench) -> None:
    one = await bench.start("a", ("early", "late"))
    bench.put("early")
    listed, gate = threading.Event(), threading.Event()

    def save(listing: object) -> None:
        bench.put("late")
        listed.set()
        gate.wait(30)

    other = RunningCommand("call-b", "b", (str(bench.root / "own"),))
    starting = asyncio.ensure_future(bench.tracker.start(other, bench.said.append, save))
    await asyncio.to_thread(listed.wait, 30)
    ending = asyncio.ensure_future(bench.tracker.end(one))
    await asyncio.sleep(0)
    gate.set()
    await starting
    bench.put("own")
    await ending
    await bench.tracker.end(other)
    assert sorted(bench.charged) == [
        ("a", (), False, ("early",)),
        ("a", (), False, ("late",)),
        ("b", (), False, ("own",)),
    ]


async def test_a_background_process_that_ends_while_the_files_are_listed_has_not_ended_before(bench: Bench) -> None:
    spawned = await bench.start("a")
    bench.background.add("call-a")
    await bench.tracker.end(spawned)
    listed, gate = threading.Event(), threading.Event()

    def save(listing: object) -> None:
        bench.put("late")
        listed.set()
        gate.wait(30)

    starting = asyncio.ensure_future(bench.tracker.start(RunningCommand("call-b", "b", ()), bench.said.append, save))
    await asyncio.to_thread(listed.wait, 30)
    bench.background.clear()
    recording = asyncio.ensure_future(bench.tracker.settle_background())
    gate.set()
    await starting
    await recording
    bench.put("after")
    await bench.tracker.settle_background()
    assert bench.charged == [("a", (), True, ("late",))]


async def test_an_interrupted_end_is_made_up_for(bench: Bench) -> None:
    command = await bench.start("a")
    bench.put("f")
    ending = asyncio.ensure_future(bench.tracker.end(command))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    assert (bench.tracker.has_interrupted_end, bench.charged) == (True, [])
    await bench.tracker.settle()
    assert (bench.tracker.has_interrupted_end, bench.charged) == (False, [("a", (), False, ("f",))])


async def test_commands_of_several_agents_take_turns(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommandTracker, "wait_s", 30.0)
    first = await bench.start("a")
    waiting = [asyncio.ensure_future(bench.start(agent)) for agent in ("b", "c", "d")]
    await asyncio.sleep(0)
    waiting[1].cancel()  # one that gives up holds nobody up
    bench.put("of a")
    await bench.tracker.end(first)
    second = await waiting[0]
    assert not waiting[2].done()
    bench.put("of b")
    await bench.tracker.end(second)
    third = await waiting[2]
    bench.put("of d")
    await bench.tracker.end(third)
    assert [(agent, names) for agent, shared, _, names in bench.charged if not shared] == [
        ("a", ("of a",)),
        ("b", ("of b",)),
        ("d", ("of d",)),
    ]


async def test_an_edit_during_a_listing_that_is_interrupted_is_not_the_commands_work(bench: Bench) -> None:
    command = await bench.start("a")
    starting = asyncio.ensure_future(bench.start("b"))
    await asyncio.sleep(0)
    while not bench.tracker._is_listing:
        await asyncio.sleep(0)
    bench.edit("f", "edited")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    bench.put("own")
    await bench.tracker.end(command)
    assert bench.charged == [("a", (), False, ("own",))]
