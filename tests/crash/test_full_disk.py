"""A full disk or a read-only folder leads to an error with a hint, and to no loss of recorded events."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.checkpoints.store import CheckpointStore
from odin.core.call_events import ToolStarted
from odin.core.errors import StateUnwritable
from odin.core.event import AnyEvent, CheckpointSaved, Envelope, NoteAdded, TurnEnded, TurnStarted
from odin.engine.event_bus import EventBus
from odin.engine.recorder import Recorder
from odin.session.log import LOG_FORMAT, LogHeader, SessionLog, read_log
from odin.session.state import SessionState
from odin.testing import ScriptedServer, Turn, call, say
from odin.testing.script import SeenRequest
from tests.waiting import LIMIT_S

from ..conftest import Run
from .full_disk_session import PromptPlan

ROOT = Path(__file__).parent.parent.parent
HINT = "Free some space, or set ODIN_STATE_DIR"


class WritingModel:
    """A model that writes a file in every turn."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0

    def __call__(self, seen: SeenRequest) -> Turn:
        if not seen.tool_names:
            return say("A title.")
        last: dict[str, Any] = seen.json["messages"][-1]
        if "tool_result" in json.dumps(last):
            return say("Written. " * 20)
        self.count += 1
        return call("WriteFile", {"file_path": str(self.root / f"{self.count}.txt"), "content": "new\n" * 50})


def limit_file_size(room: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))


def find_log(home: Path) -> Path:
    return next((home / ".local/state/odin/sessions").glob("*/*/main.jsonl"))


@pytest.mark.parametrize(
    "room",
    [
        *(0, 700, 2400),
        *(pytest.param(room, marks=pytest.mark.slow) for room in (1, 150, 1100, 1600, 1900, 2800, 3200, 4200, 5000)),
    ],
)
def test_disk_that_fills_up_is_reported_and_nothing_is_lost(
    room: int, run_odin_process: Run, workspace: Path, home: Path
) -> None:
    """Wherever the space runs out, Odin reports it, the log keeps its earlier lines, and a later run continues it."""
    with ScriptedServer(WritingModel(workspace)) as server:
        env = server.env("anthropic")
        assert run_odin_process("-p", "first", "--yes", env=env).returncode == 0
        kept = find_log(home).read_bytes()
        limited_run = run_limited_odin(["-p", "second", "--yes", "--continue"], workspace, len(kept) + room, env)
        now = find_log(home).read_bytes()
        assert now.startswith(kept)
        if limited_run.returncode:
            assert HINT in limited_run.stderr + limited_run.stdout
            assert "File too large" in limited_run.stderr + limited_run.stdout
        else:
            assert len(now) < len(kept) + room
        assert_files_are_recorded(list(read_log(find_log(home))), workspace)
        again = run_odin_process("-p", "third", "--yes", "--continue", env=env)
        assert again.returncode == 0, again.stderr
        assert find_log(home).read_bytes().startswith(now)
        assert server.rejected == []
        assert "first" in json.dumps(server.requests[-1].json)


def assert_files_are_recorded(events: list[Envelope], workspace: Path) -> None:
    """Check that every file was announced by a checkpoint in the log, and that it is complete."""
    announced = {state.path for item in events if isinstance(item.event, CheckpointSaved) for state in item.event.files}
    for path in workspace.glob("*"):
        assert str(path) in announced
        assert path.read_text() == "new\n" * 50


def test_session_continues_after_space_was_freed(workspace: Path, home: Path) -> None:
    """Prompts fail while the log cannot be written; events that waited are written after space was freed."""
    steps = (("first", -1), ("second", 300), ("context of no use", 5), ("third", 5), ("fourth", -1))
    plan = PromptPlan(str(workspace), "cramped", steps)
    with ScriptedServer(WritingModel(workspace)) as server:
        done = subprocess.run(
            [sys.executable, "-B", "-m", "tests.crash.full_disk_session", msgspec.json.encode(plan).decode()],
            cwd=ROOT,
            env={**os.environ, **server.env("anthropic"), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert server.rejected == []
    first, second, context, third, fourth = json.loads(done.stdout)
    assert (first["error"], fourth["error"]) == ("", "")
    for refused in (second, context, third):
        assert HINT in refused["error"]
    events = list(read_log(find_log(home)))
    assert [item.event.text for item in events if isinstance(item.event, TurnStarted)] == [
        "first",
        "second",
        "third",
        "fourth",
    ]
    ends = {item.event.id: item.event.reason for item in events if isinstance(item.event, TurnEnded)}
    assert ends == {"p0": "end_turn", "p1": "error", "p3": "error", "p4": "end_turn"}
    numbers = [item.seq for item in events]
    assert numbers == sorted(set(numbers))
    assert_files_are_recorded(events, workspace)


def run_limited_odin(args: list[str], cwd: Path, room: int, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run Odin with a limit on the file size."""
    return subprocess.run(
        [sys.executable, "-I", "-B", "-m", "odin", *args],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        preexec_fn=lambda: limit_file_size(room),
    )


def test_output_that_cannot_be_saved_whole_is_truncated(workspace: Path, home: Path) -> None:
    """The model gets the start and the end of the output, and the reason why the rest was not saved."""
    flood = call("ExecuteCommand", {"command": "head -c 300000 /dev/zero | tr '\\0' x"})
    with ScriptedServer([flood, say("Much.")]) as server:
        done = run_limited_odin(["-p", "print", "--yes"], workspace, 100_000, server.env("anthropic"))
        assert (done.returncode, done.stdout) == (0, "Much.\n")
        assert "could not be saved: File too large" in json.dumps(server.requests[-1].json)
        assert server.rejected == []
    assert isinstance(list(read_log(find_log(home)))[-1].event, TurnEnded)


@pytest.mark.slow
def test_sessions_can_be_listed_on_a_full_disk(run_odin_process: Run, workspace: Path) -> None:
    with ScriptedServer([say("hello")]) as server:
        assert run_odin_process("-p", "a first question", env=server.env("anthropic")).returncode == 0
    shown = run_limited_odin(["sessions"], workspace, 0, {})
    assert shown.returncode == 0
    assert "a first question" in shown.stdout.casefold()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/proc/odin", "a file"])
def test_state_folder_that_cannot_be_created_is_reported(place: str, run_odin_process: Run, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    state = str(blocked / "odin") if place == "a file" else place
    with ScriptedServer([say("hello")]) as server:
        refused = run_odin_process("-p", "hi", env={**server.env("anthropic"), "ODIN_STATE_DIR": state})
        assert refused.returncode == 1
        assert "ODIN_STATE_DIR" in refused.stderr
        assert "Traceback" not in refused.stderr
        elsewhere = run_odin_process(
            "-p", "hi", env={**server.env("anthropic"), "ODIN_STATE_DIR": str(tmp_path / "new")}
        )
        assert (elsewhere.returncode, elsewhere.stdout) == (0, "hello\n")
    assert blocked.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_read_only_session_folder_is_reported(run_odin_process: Run, home: Path) -> None:
    with ScriptedServer([say("hello"), say("again")]) as server:
        env = server.env("anthropic")
        assert run_odin_process("-p", "hi", env=env).returncode == 0
        log = find_log(home)
        kept = log.read_bytes()
        log.chmod(0o400)
        log.parent.chmod(0o500)
        log.parent.parent.chmod(0o500)
        refused = run_odin_process("-p", "more", "--continue", env=env)
        assert refused.returncode == 1
        assert HINT in refused.stderr
        log.parent.parent.chmod(0o700)
        log.parent.chmod(0o700)
        log.chmod(0o600)
        assert log.read_bytes() == kept
        assert run_odin_process("-p", "more", "--continue", env=env).returncode == 0


class FullDiskLog:
    """A session log whose disk is full while `has_space` is False."""

    def __init__(self) -> None:
        self.has_space = True
        self.kept: list[AnyEvent] = []

    def append(self, envelope: Envelope) -> None:
        if not self.has_space:
            raise StateUnwritable("There is no room.")
        self.kept.append(envelope.event)

    def sync(self) -> None:
        return

    def close(self) -> None:
        return


def test_changes_are_refused_while_their_events_cannot_be_written() -> None:
    log = FullDiskLog()
    recorder = Recorder(log, SessionState("s"), EventBus())
    start = TurnStarted("t", "hi", "edit_mode")
    recorder.emit(start)
    log.has_space = False
    with pytest.raises(StateUnwritable):
        recorder.emit(NoteAdded("one"))
    recorder.emit(NoteAdded("two"))
    for announced in (ToolStarted("c", "WriteFile", {}), CheckpointSaved("c")):
        with pytest.raises(StateUnwritable):
            recorder.emit(announced)
    assert not recorder.state.file_history.unfinished
    log.has_space = True
    started = ToolStarted("c", "WriteFile", {})
    recorder.emit(started)
    assert log.kept == [start, NoteAdded("one"), NoteAdded("two"), started]
    assert recorder.state.seq == 3


def test_turn_whose_end_cannot_be_written_ends_with_an_error() -> None:
    log = FullDiskLog()
    recorder = Recorder(log, SessionState("s"), EventBus())
    recorder.emit(TurnStarted("t", "hi", "edit_mode"))
    log.has_space = False
    with pytest.raises(StateUnwritable):
        recorder.emit(NoteAdded("one"))
    with pytest.raises(StateUnwritable):
        recorder.emit(TurnEnded("t", "end_turn", "done"))
    turn = recorder.state.turns[-1]
    assert (turn.answer_summary, turn.reason) == ("done", "error")
    with pytest.raises(StateUnwritable):
        recorder.emit(TurnStarted("u", "more", "edit_mode"))
    log.has_space = True
    recorder.close()
    assert [type(event).__name__ for event in log.kept] == ["TurnStarted", "NoteAdded", "TurnEnded", "TurnStarted"]


def test_event_after_a_torn_line_starts_on_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "s" / "main.jsonl"
    log = SessionLog(path, LogHeader(LOG_FORMAT, "s", "/w", 1.0))
    first, lost, last = (Envelope(number, 1.0, "s", NoteAdded(str(number))) for number in range(3))
    log.append(first)
    fd = log._fd
    assert fd is not None
    kept = os.dup(fd)
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), fd)
        with pytest.raises(StateUnwritable):
            log.append(lost)
    os.dup2(kept, fd)
    os.close(kept)
    os.write(fd, b'{"seq":1,"ts":1.0,"sess')
    log.append(last)
    log.close()
    assert list(read_log(path)) == [first, last]


def test_checkpoint_that_cannot_be_saved_leaves_no_files(tmp_path: Path) -> None:
    """Runs in another process, because the limit applies to everything the process writes."""
    program = (
        "import resource, sys\n"
        "sys.dont_write_bytecode = True\n"
        "from pathlib import Path\n"
        "from odin.core.errors import StateUnwritable\n"
        "from odin.checkpoints.store import CheckpointStore\n"
        "store = CheckpointStore(Path(sys.argv[1]))\n"
        "small = store.keep(b'small')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "for attempt in ('keep', 'many'):\n"
        "    try:\n"
        "        if attempt == 'keep':\n"
        "            store.keep(b'x' * 5000)\n"
        "        else:\n"
        "            with store.keep_many() as keep:\n"
        "                for number in range(40):\n"
        "                    keep(b'%d ' % number * 200)\n"
        "    except StateUnwritable as error:\n"
        "        print(error.describe())\n"
        "assert store.fetch(small) == b'small'\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(tmp_path / "store")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("A checkpoint cannot be saved, so nothing was changed (") == 2
    assert done.stdout.count("). Free some space, or set ODIN_STATE_DIR") == 2
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in files] == [b"small"]
    assert CheckpointStore(tmp_path / "store").list_names() == {files[0].name}
