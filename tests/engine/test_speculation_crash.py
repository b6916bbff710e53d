"""Odin is killed while a speculative call runs: the next run of the session restores its files."""

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

from odin.checkpoints.file_state import read_file_state
from odin.checkpoints.project_listing import ListingLimits, ProjectLister, hash_file
from odin.checkpoints.rewind import OUT_OF_BOUNDS
from odin.checkpoints.store import CheckpointStore
from odin.core.call_events import CallDiscarded
from odin.core.event import AnyEvent, CheckpointSaved, Envelope, FilesChanged, Warned
from odin.core.event_values import FileChange
from odin.core.op import Rewind
from odin.session.log import read_log
from odin.testing import ScriptedServer, say
from tests.waiting import LIMIT_S, until

from .conftest import Start, Talk
from .speculation import (
    hold_after_calls,
    list_discard_reasons,
    reply_with_calls,
    run,
    snapshot_folder,
    write,
)
from .test_speculation_rollback import CHANGES

NAME = "early"


LOG = ".local/state/odin/sessions/*/*/main.jsonl"


def find_log(home: Path) -> Path:
    (found,) = home.glob(LOG)
    return found


def read_events(home: Path) -> list[Envelope]:
    found = list(home.glob(LOG))
    return list(read_log(found[0])) if found else []


def list_line_numbers(home: Path, kind: str) -> list[int]:
    """Return the line numbers of the events of this kind in the log."""
    written = find_log(home).read_text().splitlines()
    return [number for number, line in enumerate(written) if json.loads(line).get("event", {}).get("type") == kind]


Kill = Callable[..., Any]


@pytest.fixture
def kill_odin(workspace: Path, home: Path) -> Kill:
    """kill_odin(turn) runs Odin until the call is done, with the reply held open, and kills it."""

    async def kill(turn: Any, wanted: str = "FilesChanged") -> None:
        folder = home / ".config" / "odin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "odinconfig.json").write_text(json.dumps({"read_before_edit": False}))
        with ScriptedServer([hold_after_calls(reply_with_calls(turn), Gate())]) as server:
            odin = subprocess.Popen(
                [sys.executable, "-I", "-m", "odin", "-p", "go", "--yes", "--session-id", NAME],
                cwd=workspace,
                env={**os.environ, **server.env("anthropic")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                await until(lambda: wanted in [type(line.event).__name__ for line in read_events(home)])
            finally:
                odin.send_signal(signal.SIGKILL)
                odin.wait(timeout=LIMIT_S)

    return kill


async def resume_session(start: Start) -> Talk:
    """Resume the session and send one prompt."""
    talk = await start([say("hello")], config={"read_before_edit": False}, resume=NAME)
    assert (await talk.say("go on")).text == "hello"
    assert talk.server.rejected == []
    return talk


@pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__)
async def test_every_change_is_rolled_back(
    start: Start, workspace: Path, home: Path, kill_odin: Kill, make: Callable[[Path], Any]
) -> None:
    turn = make(workspace)
    before = snapshot_folder(workspace)
    await kill_odin(turn)
    assert snapshot_folder(workspace) != before
    talk = await resume_session(start)
    assert snapshot_folder(workspace) == before
    (event,) = talk.all(CallDiscarded)
    assert (event.call_id, event.reason, event.completed) == ("w", "crashed", True)
    assert event.restored and not event.skipped_files
    assert [type(item.event).__name__ for item in read_events(home)].count("CallDiscarded") == 1


async def test_rollback_happens_only_once(start: Start, workspace: Path, kill_odin: Kill) -> None:
    await kill_odin(write(workspace / "a", "x\n"))
    await (await resume_session(start)).client.close()
    (workspace / "a").write_text("x\n")
    talk = await resume_session(start)
    assert (workspace / "a").read_text() == "x\n"
    assert list_discard_reasons(talk) == []


async def test_call_without_an_end_in_the_log_is_rolled_back(
    start: Start, workspace: Path, home: Path, kill_odin: Kill
) -> None:
    (workspace / "a").write_text("old\n")
    await kill_odin(write(workspace / "a", "new\n"))
    (at,) = list_line_numbers(home, "FilesChanged")
    log = find_log(home)
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:at]))
    talk = await resume_session(start)
    assert (workspace / "a").read_text() == "old\n"
    assert [(event.reason, event.completed) for event in talk.all(CallDiscarded)] == [("crashed", False)]


async def test_change_long_after_the_kill_is_left_alone(
    start: Start, workspace: Path, home: Path, kill_odin: Kill
) -> None:
    """The log has no end of the call, so only a change right after its checkpoint can be its own."""
    (workspace / "a").write_text("old\n")
    await kill_odin(write(workspace / "a", "new\n"))
    (at,) = list_line_numbers(home, "FilesChanged")
    log = find_log(home)
    kept = [json.loads(line) for line in log.read_text().splitlines()[:at]]
    for line in kept[1:]:
        line["ts"] -= 3600
    log.write_text("".join(json.dumps(line) + "\n" for line in kept))
    (workspace / "a").write_text("theirs\n")
    talk = await resume_session(start)
    assert (workspace / "a").read_text() == "theirs\n"
    assert len(talk.all(CallDiscarded)[0].skipped_files) == 1


async def test_file_changed_since_the_kill_is_left_alone(start: Start, workspace: Path, kill_odin: Kill) -> None:
    (workspace / "a").write_text("old\n")
    await kill_odin(write(workspace / "a", "new\n"))
    (workspace / "a").write_text("theirs\n")
    talk = await resume_session(start)
    assert (workspace / "a").read_text() == "theirs\n"
    assert [Path(file.path).name for file in talk.all(CallDiscarded)[0].skipped_files] == ["a"]
    assert any("could not be restored" in event.text for event in talk.all(Warned))


def add_to_log(home: Path, *events: AnyEvent) -> None:
    """Append events of another agent to the log, as if they had happened before the kill."""
    last = read_events(home)[-1]
    with find_log(home).open("ab") as log:
        for number, event in enumerate(events, 1):
            line = Envelope(last.seq + number, last.ts, last.session, event, "agent-1")
            log.write(msgspec.json.encode(line) + b"\n")


async def test_file_changed_further_by_another_agent_is_left_alone(
    start: Start, workspace: Path, home: Path, kill_odin: Kill
) -> None:
    """The log has no end of the call, but the other agent found its change."""
    file = workspace / "a"
    file.write_text("old\n")
    await kill_odin(write(file, "new\n"))
    (at,) = list_line_numbers(home, "FilesChanged")
    log = find_log(home)
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:at]))
    found = read_file_state(str(file), hash_file)
    file.write_text("built on it\n")
    change = FileChange(found, read_file_state(str(file), hash_file))
    add_to_log(home, CheckpointSaved("other", (found,)), FilesChanged("other", (change,)))
    talk = await resume_session(start)
    assert file.read_text() == "built on it\n"
    turns = (await talk.client.snapshot()).messages
    await talk.client.submit(Rewind(turns[0].id))
    assert file.read_text() == "old\n"


async def test_rollback_is_not_recorded_as_a_change_of_another_agents_command(
    start: Start, workspace: Path, home: Path, kill_odin: Kill
) -> None:
    file = workspace / "a"
    file.write_text("old\n")
    await kill_odin(write(file, "new\n"))
    (folder,) = (home / ".local/state/odin/checkpoints").iterdir()
    store = CheckpointStore(folder)
    manifest = store.keep_manifest(ProjectLister(store, ListingLimits()).list(str(workspace), keep=True).to_manifest())
    add_to_log(home, CheckpointSaved("command", manifest=manifest))
    talk = await resume_session(start)
    assert file.read_text() == "old\n"
    (event,) = talk.all(FilesChanged)
    assert (event.call_id, event.changes) == ("command", ())


async def test_speculative_command_is_recorded_as_discarded(start: Start, workspace: Path, kill_odin: Kill) -> None:
    await kill_odin(run("sleep 30"), "CallSpeculated")
    talk = await resume_session(start)
    assert list_discard_reasons(talk) == [("c", "crashed")]


async def test_a_fork_leaves_the_files_of_the_other_session_alone(
    start: Start, workspace: Path, kill_odin: Kill
) -> None:
    await kill_odin(write(workspace / "a", "x\n"))
    talk = await start([say("hello")], resume=NAME, fork=True)
    await talk.say("go on")
    assert (workspace / "a").read_text() == "x\n"
    assert [event.restored for event in talk.all(CallDiscarded)] == [()]


async def test_undo_rolls_the_call_back_first(
    start: Start, workspace: Path, home: Path, kill_odin: Kill, run_odin: Callable[..., Any]
) -> None:
    """`odin undo` runs the same recovery first."""
    (workspace / "a").write_text("old\n")
    await kill_odin(write(workspace / "a", "new\n"))
    done = run_odin("undo")
    assert done.returncode == 0, done.stderr
    assert (workspace / "a").read_text() == "old\n"


@pytest.mark.parametrize("completed", [True, False])
async def test_forged_log_cannot_change_files_outside_or_protected(
    start: Start, workspace: Path, home: Path, tmp_path: Path, kill_odin: Kill, completed: bool
) -> None:
    """A log may be forged: paths outside the project and protected files are left alone and reported."""
    outside, settings = tmp_path / "outside", workspace / ".git" / "config"
    settings.parent.mkdir()
    for file in (workspace / "a", outside, settings):
        file.write_text("old\n")
    await kill_odin(write(workspace / "a", "new\n"))
    barred = [str(outside), str(settings)]
    lines_ = [json.loads(line) for line in find_log(home).read_text().splitlines()]
    for line in lines_:
        event = line.get("event", {})
        if event.get("type") == "CheckpointSaved":
            event["files"] += [_with_path(state, path) for state in event["files"] for path in barred]
        if event.get("type") == "FilesChanged":
            event["changes"] += [
                {side: _with_path(state, path) for side, state in change.items()}
                for change in event["changes"]
                for path in barred
            ]
    kept = [line for line in lines_ if completed or line.get("event", {}).get("type") != "FilesChanged"]
    find_log(home).write_text("".join(json.dumps(line) + "\n" for line in kept))
    for file in (outside, settings):
        file.write_text("new\n")
    talk = await resume_session(start)
    assert [file.read_text() for file in (workspace / "a", outside, settings)] == ["old\n", "new\n", "new\n"]
    (event,) = talk.all(CallDiscarded)
    assert [change.before.path for change in event.restored] == [str(workspace / "a")]
    assert [(file.path, file.reason) for file in event.skipped_files] == [
        (path, OUT_OF_BOUNDS) for path in sorted(barred)
    ]


def _with_path(state: dict[str, Any], path: str) -> dict[str, Any]:
    return {**state, "path": path}
