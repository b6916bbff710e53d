"""Odin is killed while a call runs early: the next run of the session finds it and puts its files back."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event as Gate
from typing import Any

import msgspec
import pytest

from odin.checkpoints.file_state import state_of
from odin.checkpoints.project_listing import ListingLimits, ProjectLister, hash_file
from odin.checkpoints.rewind import OUT_OF_BOUNDS
from odin.checkpoints.store import CheckpointStore
from odin.core.call_events import CallDiscarded
from odin.core.event import AnyEvent, CheckpointSaved, Envelope, FilesChanged, Warned
from odin.core.event_values import FileChange
from odin.core.op import Rewind
from odin.session.log import read_log
from odin.testing import ScriptedServer, say

from .conftest import Start, Talk
from .speculation import calls, held, picture, reasons, run, until, write
from .test_speculation_rollback import CHANGES

NAME = "early"


def log_of(home: Path) -> Path:
    (found,) = home.rglob("main.jsonl")
    return found


def recorded(home: Path) -> list[Envelope]:
    found = list(home.rglob("main.jsonl"))
    return list(read_log(found[0])) if found else []


def lines(home: Path, kind: str) -> list[int]:
    """Where events of this kind stand in the log."""
    written = log_of(home).read_text().splitlines()
    return [number for number, line in enumerate(written) if json.loads(line).get("event", {}).get("type") == kind]


Kill = Callable[..., Any]


@pytest.fixture
def killed(workspace: Path, home: Path) -> Kill:
    """killed(turn) runs Odin until the turn's call is over, with the reply held open, and kills it."""

    async def kill(turn: Any, wanted: str = "FilesChanged") -> None:
        folder = home / ".config" / "odin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "odinconfig.json").write_text(json.dumps({"read_before_edit": False}))
        with ScriptedServer([held(calls(turn), Gate())]) as server:
            odin = subprocess.Popen(
                [sys.executable, "-I", "-m", "odin", "-p", "go", "--yes", "--session-id", NAME],
                cwd=workspace,
                env={**os.environ, **server.env("anthropic")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                await until(lambda: wanted in [type(line.event).__name__ for line in recorded(home)])
            finally:
                odin.send_signal(signal.SIGKILL)
                odin.wait(timeout=30)

    return kill


async def resumed(start: Start) -> Talk:
    """The next run of the session, after its first prompt."""
    talk = await start([say("hello")], config={"read_before_edit": False}, resume=NAME)
    assert (await talk.say("go on")).text == "hello"
    assert talk.server.rejected == []
    return talk


@pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__)
async def test_every_change_is_put_back(
    start: Start, workspace: Path, home: Path, killed: Kill, make: Callable[[Path], Any]
) -> None:
    turn = make(workspace)
    before = picture(workspace)
    await killed(turn)
    assert picture(workspace) != before
    talk = await resumed(start)
    assert picture(workspace) == before
    (event,) = talk.all(CallDiscarded)
    assert (event.call_id, event.reason, event.completed) == ("w", "crashed", True)
    assert event.restored and not event.skipped_files
    assert [type(item.event).__name__ for item in recorded(home)].count("CallDiscarded") == 1


async def test_once_and_not_again(start: Start, workspace: Path, killed: Kill) -> None:
    await killed(write(workspace / "a", "x\n"))
    await (await resumed(start)).client.close()
    (workspace / "a").write_text("x\n")
    talk = await resumed(start)
    assert (workspace / "a").read_text() == "x\n"
    assert reasons(talk) == []


async def test_a_call_whose_end_was_never_written(start: Start, workspace: Path, home: Path, killed: Kill) -> None:
    (workspace / "a").write_text("old\n")
    await killed(write(workspace / "a", "new\n"))
    (at,) = lines(home, "FilesChanged")
    log = log_of(home)
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:at]))
    talk = await resumed(start)
    assert (workspace / "a").read_text() == "old\n"
    assert [(event.reason, event.completed) for event in talk.all(CallDiscarded)] == [("crashed", False)]


async def test_a_change_long_after_the_kill_is_somebody_elses(
    start: Start, workspace: Path, home: Path, killed: Kill
) -> None:
    """The end of the call is unknown, so only a change right after its files were saved can be its own."""
    (workspace / "a").write_text("old\n")
    await killed(write(workspace / "a", "new\n"))
    (at,) = lines(home, "FilesChanged")
    log = log_of(home)
    kept = [json.loads(line) for line in log.read_text().splitlines()[:at]]
    for line in kept[1:]:
        line["ts"] -= 3600
    log.write_text("".join(json.dumps(line) + "\n" for line in kept))
    (workspace / "a").write_text("theirs\n")
    talk = await resumed(start)
    assert (workspace / "a").read_text() == "theirs\n"
    assert len(talk.all(CallDiscarded)[0].skipped_files) == 1


async def test_what_somebody_else_changed_since_is_left_alone(start: Start, workspace: Path, killed: Kill) -> None:
    (workspace / "a").write_text("old\n")
    await killed(write(workspace / "a", "new\n"))
    (workspace / "a").write_text("theirs\n")
    talk = await resumed(start)
    assert (workspace / "a").read_text() == "theirs\n"
    assert [Path(file.path).name for file in talk.all(CallDiscarded)[0].skipped_files] == ["a"]
    assert any("could not be restored" in event.text for event in talk.all(Warned))


def add_to_log(home: Path, *events: AnyEvent) -> None:
    """Record events of another agent, as if they had happened before the kill."""
    last = recorded(home)[-1]
    with log_of(home).open("ab") as log:
        for number, event in enumerate(events, 1):
            line = Envelope(last.seq + number, last.ts, last.session, event, "agent-1")
            log.write(msgspec.json.encode(line) + b"\n")


async def test_what_another_agent_has_built_on_it_is_left_alone(
    start: Start, workspace: Path, home: Path, killed: Kill
) -> None:
    """The end of the call is unknown, but the other agent found its change."""
    file = workspace / "a"
    file.write_text("old\n")
    await killed(write(file, "new\n"))
    (at,) = lines(home, "FilesChanged")
    log = log_of(home)
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:at]))
    found = state_of(str(file), hash_file)
    file.write_text("built on it\n")
    change = FileChange(found, state_of(str(file), hash_file))
    add_to_log(home, CheckpointSaved("other", (found,)), FilesChanged("other", (change,)))
    talk = await resumed(start)
    assert file.read_text() == "built on it\n"
    turns = (await talk.client.snapshot()).messages
    await talk.client.submit(Rewind(turns[0].id))
    assert file.read_text() == "old\n"


async def test_a_killed_command_of_another_agent_has_not_done_the_rollback(
    start: Start, workspace: Path, home: Path, killed: Kill
) -> None:
    file = workspace / "a"
    file.write_text("old\n")
    await killed(write(file, "new\n"))
    (folder,) = (home / ".local/state/odin/checkpoints").iterdir()
    store = CheckpointStore(folder)
    manifest = store.keep_manifest(ProjectLister(store, ListingLimits()).list(str(workspace), keep=True).to_manifest())
    add_to_log(home, CheckpointSaved("command", manifest=manifest))
    talk = await resumed(start)
    assert file.read_text() == "old\n"
    (event,) = talk.all(FilesChanged)
    assert (event.call_id, event.changes) == ("command", ())


async def test_a_command_that_ran_early_is_closed_too(start: Start, workspace: Path, killed: Kill) -> None:
    await killed(run("sleep 30"), "CallSpeculated")
    talk = await resumed(start)
    assert reasons(talk) == [("c", "crashed")]


async def test_a_fork_leaves_the_files_of_the_other_session_alone(start: Start, workspace: Path, killed: Kill) -> None:
    await killed(write(workspace / "a", "x\n"))
    talk = await start([say("hello")], resume=NAME, fork=True)
    await talk.say("go on")
    assert (workspace / "a").read_text() == "x\n"
    assert [event.restored for event in talk.all(CallDiscarded)] == [()]


@pytest.mark.slow
async def test_undo_puts_it_back_as_well(
    start: Start, workspace: Path, home: Path, killed: Kill, run_odin: Callable[..., Any]
) -> None:
    """`odin undo` runs the same recovery first."""
    (workspace / "a").write_text("old\n")
    await killed(write(workspace / "a", "new\n"))
    done = run_odin("undo")
    assert done.returncode == 0, done.stderr
    assert (workspace / "a").read_text() == "old\n"


@pytest.mark.parametrize("completed", [True, False])
async def test_a_log_cannot_make_it_touch_what_is_outside_or_protected(
    start: Start, workspace: Path, home: Path, tmp_path: Path, killed: Kill, completed: bool
) -> None:
    """A log may be forged: paths outside the project and protected files are left alone and reported."""
    outside, settings = tmp_path / "outside", workspace / ".git" / "config"
    settings.parent.mkdir()
    for file in (workspace / "a", outside, settings):
        file.write_text("old\n")
    await killed(write(workspace / "a", "new\n"))
    barred = [str(outside), str(settings)]
    lines_ = [json.loads(line) for line in log_of(home).read_text().splitlines()]
    for line in lines_:
        event = line.get("event", {})
        if event.get("type") == "CheckpointSaved":
            event["files"] += [_renamed(state, path) for state in event["files"] for path in barred]
        if event.get("type") == "FilesChanged":
            event["changes"] += [
                {side: _renamed(state, path) for side, state in change.items()}
                for change in event["changes"]
                for path in barred
            ]
    kept = [line for line in lines_ if completed or line.get("event", {}).get("type") != "FilesChanged"]
    log_of(home).write_text("".join(json.dumps(line) + "\n" for line in kept))
    for file in (outside, settings):
        file.write_text("new\n")
    talk = await resumed(start)
    assert [file.read_text() for file in (workspace / "a", outside, settings)] == ["old\n", "new\n", "new\n"]
    (event,) = talk.all(CallDiscarded)
    assert [change.before.path for change in event.restored] == [str(workspace / "a")]
    assert [(file.path, file.reason) for file in event.skipped_files] == [
        (path, OUT_OF_BOUNDS) for path in sorted(barred)
    ]


def _renamed(state: dict[str, Any], path: str) -> dict[str, Any]:
    return {**state, "path": path}
