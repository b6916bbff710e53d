"""One session that is resumed and killed again and again, with the checks after every kill."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from odin.checkpoints.store import CheckpointStore
from odin.core.call_events import Replied, ToolEnded, UsageRecorded
from odin.core.client import Snapshot
from odin.core.event import (
    Envelope,
    PermissionModeChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    TitleSet,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Usage
from odin.engine.crash_recovery import find_dangling
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.testing import ScriptedServer
from tests.waiting import LIMIT_S, wait_until

from ..sandbox.processes import is_alive, is_running
from .api_checks import find_refusals
from .file_checks import FileChecker
from .model import Model
from .worker import KillPoint, WorkPlan
from .worker_server import ROOT, WorkerProcess, get_worker_server

PYTHON_PATH = f"{ROOT}{os.pathsep}{ROOT / 'src'}"

Process = WorkerProcess | subprocess.Popen[bytes]

KillMethod = Literal["step", "torn", "size", "piece", "time", "program", "fork", "full"]
KILL_METHODS: list[KillMethod] = ["step", "step", "torn", "size", "piece", "piece", "time", "program", "fork", "full"]
MODELS: list[tuple[Literal["anthropic", "openai"], str]] = [
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-5"),
    ("openai", "gpt-4.1"),
]
"""Every run of the session uses one of these models."""

EDITS = ["WriteFile", "EditTool", "AppendFile", "Delete"]


class RestoredState(msgspec.Struct, frozen=True):
    """What a resume must restore, read from the log without `SessionState.fold`; "" for what was never set."""

    waiting: tuple[str, ...]
    title: str
    permission_mode: str
    usage: Usage

    @classmethod
    def of(cls, events: list[Envelope]) -> "RestoredState":
        waiting: dict[str, None] = {}
        title, mode, usage = "", "", Usage()
        for event in (envelope.event for envelope in events):
            if isinstance(event, PromptQueued):
                waiting[event.id] = None
            elif isinstance(event, TurnStarted | PromptInjected | PromptDropped):
                waiting.pop(event.id, None)
            elif isinstance(event, TitleSet):
                title = event.title
            elif isinstance(event, PermissionModeChanged):
                mode = event.mode
            elif isinstance(event, UsageRecorded):
                usage += event.usage
        return cls(tuple(waiting), title, mode, usage)


class CrashingSession:
    """Runs processes one after the other, all in the same session, and kills each."""

    make_model: Callable[[int, Path, str], Model] = Model
    has_team = False

    def __init__(self, seed: int, root: Path, home: Path) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.session = f"chain-{seed}"
        self.root = root
        self.home = home
        self.mark = f"4{seed % 100_000:05d}.{os.getpid()}"
        self.model = type(self).make_model(seed, root, self.mark)
        self.files = FileChecker(root)
        self.server = ScriptedServer(self.model)
        self.runs: int = 0
        self.torn_writes = 0
        self._process: Process | None = None
        self._out = home / "printed"
        self._log: Path | None = None
        self._known_log = b""
        self._inode = 0
        self._last_seq = -1

    @property
    def log(self) -> Path:
        if self._log is None:
            self._log = next(self.home.glob(f".local/state/odin/sessions/*/{self.session}/main.jsonl"), None)
        return self._log or self.home / "nothing"

    def describe_run(self) -> str:
        return f"seed {self.seed}, run {self.runs}"

    # --- running and killing ---

    def run_and_kill(self) -> bool:
        """Run one more process and kill it. Return False if it ended before the kill."""
        self.runs += 1
        method = self.random.choice(KILL_METHODS)
        if method == "fork" and self._known_log:
            with self.files.record_external_changes(self._last_seq, self.model):
                return self._kill_by(method)
        return self._kill_by(method)

    def _kill_by(self, method: KillMethod) -> bool:
        group = self.random.random() < 0.3
        kill_point = self._choose_kill_point(method)
        if method == "piece":
            self.model.schedule(self.random.randrange(1, 4), lambda: self._kill(group), self.random.randrange(12))
        max_file_size = len(self._known_log) + self.random.randrange(8000) if method == "full" else -1
        if method in ("program", "fork"):
            self._process = process = self._start_odin(method)
        else:
            self._process = process = self._start_worker(kill_point, prompts=3, max_file_size=max_file_size)
        if method == "size":
            self._wait_until(process, self._make_growth_check(self.random.randrange(1, 12_000)))
            self._kill(group)
        elif method in ("time", "program", "fork"):
            end = time.monotonic() + 0.15 + self.random.random() * 0.5
            self._wait_until(process, lambda: time.monotonic() > end)
            self._kill(group)
        out = self._wait_for_output(process)
        self.model.cancel_schedule()
        assert b"TimeoutError" not in out, (self.describe_run(), out[-3000:])
        if isinstance(process, WorkerProcess) and method != "full":
            assert process.returncode in (0, -signal.SIGKILL), (self.describe_run(), out[-3000:])
        is_killed = process.returncode == -signal.SIGKILL
        # The kernel may stop a long write between two pages.
        self.torn_writes += is_killed or method in ("torn", "full")
        self.check(process.pid)
        return is_killed

    def run_to_end(self) -> None:
        """Run a last process to its end. Check that it restores the queue, the title, the mode and the usage."""
        self.runs += 1
        expected = RestoredState.of(list(read_log(self.log)))
        self._process = process = self._start_worker(KillPoint(), prompts=2, random_ops=False)
        out = self._wait_for_output(process)
        assert process.returncode == 0, (self.describe_run(), process.returncode, out[-2000:])
        self.check(process.pid)
        found = msgspec.json.decode(out.splitlines()[0], type=Snapshot)
        waiting = tuple(item.id for item in found.queue)
        title = found.title if expected.title else ""
        mode = found.permission_mode if expected.permission_mode else ""
        assert expected == RestoredState(waiting, title, mode, found.usage), self.describe_run()

    def _choose_kill_point(self, method: KillMethod) -> KillPoint:
        if method in ("step", "full"):
            return KillPoint("step", self.random.randrange(1, 700))
        if method == "torn":
            return KillPoint("torn", self.random.randrange(2, 40), self.random.choice([0, 1, 10, 100, 100_000]))
        return KillPoint()

    def _start_worker(
        self, kill_point: KillPoint, prompts: int, *, random_ops: bool = True, max_file_size: int = -1
    ) -> WorkerProcess:
        resume = bool(self._known_log)
        plan = WorkPlan(self.session, resume, str(self.root), self.random.randrange(10**9), prompts, kill_point)
        plan = msgspec.structs.replace(plan, random_ops=random_ops, max_file_size=max_file_size, team=self.has_team)
        plan_file = self.home / "life.json"
        plan_file.write_bytes(msgspec.json.encode(plan))
        return get_worker_server(PYTHON_PATH).start(plan_file, self._prepare_environment(), self._out)

    def _start_odin(self, method: KillMethod) -> "subprocess.Popen[bytes]":
        """Start Odin as a user does, in the session or in a fork of it."""
        which = ["--resume" if self._known_log else "--session-id", self.session]
        which += ["--fork-session"] if method == "fork" and self._known_log else []
        prompt = f"prompt of life {self.runs}"
        argv = [sys.executable, "-m", "odin", "-p", prompt, "--yes", *which, "--output-format", "json"]
        with self._out.open("wb") as out:
            return subprocess.Popen(
                argv,
                cwd=self.root,
                env=self._prepare_environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _prepare_environment(self) -> dict[str, str]:
        """Write the configuration of the next process, and return its environment."""
        api, model = self.random.choice(MODELS)
        config: dict[str, Any] = {"retry": {"base_s": 0.01}, "allowed_tools": EDITS if self.seed % 2 else []}
        config |= {"max_context": 9000, "max_tokens": 500} if self.seed % 3 and not self.has_team else {}
        config |= {"team": {"idle_s": 0.05}} if self.has_team else {}
        folder = self.home / ".config" / "odin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "odinconfig.json").write_text(json.dumps(config))
        return {**os.environ, **self.server.env(api, model), "PYTHONPATH": PYTHON_PATH}

    def _kill(self, group: bool) -> None:
        process = self._process
        if process is None:
            return
        try:
            if group:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _make_growth_check(self, count: int) -> Callable[[], bool]:
        size = len(self._known_log)

        def has_grown() -> bool:
            try:
                return self.log.stat().st_size >= size + count
            except OSError:
                return False

        return has_grown

    def _wait_until(self, process: Process, condition: Callable[[], bool]) -> None:
        def pause(_: float) -> None:
            time.sleep(0.0005)  # kills are as exact as that

        wait_until(lambda: process.poll() is not None or condition(), self.describe_run, pause=pause)

    def _wait_for_output(self, process: Process) -> bytes:
        """Wait for the end of the process, and return what it printed."""
        process.wait(LIMIT_S)
        return self._out.read_bytes()

    # --- checks after every kill ---

    def check(self, pid: int) -> None:
        self._check_processes(pid)
        assert self.server.rejected == [], (self.describe_run(), [why for _, why in self.server.rejected])
        self._check_forks()
        if not self.log.exists():
            return
        self._check_growth()
        events = self._check_lines()
        self._last_seq = events[-1].seq if events else -1
        self._check_next_request(events)

    def _check_processes(self, pid: int) -> None:
        """Check that no process is left that the killed one had started."""
        wait_until(lambda: not is_running(f"sleep {self.mark}") and not _has_running_commands(pid))

    def _check_forks(self) -> None:
        """Check that forks of the session can be read, even incomplete ones."""
        for log in self.home.glob(".local/state/odin/sessions/*/2*/main.jsonl"):
            if log.stat().st_size:
                events = list(read_log(log))
                SessionState.fold(events)
                assert [item.seq for item in events] == sorted({item.seq for item in events}), self.describe_run()

    def _check_growth(self) -> None:
        data = self.log.read_bytes()
        assert data.startswith(self._known_log), f"{self.describe_run()}: earlier bytes of the log have changed"
        inode: int = self.log.stat().st_ino
        assert inode == (self._inode or inode), self.describe_run()
        self._known_log = data
        self._inode = inode

    def _check_lines(self) -> list[Envelope]:
        """Check that every line except torn ones is an event, and that the event numbers rise."""
        events = list(read_log(self.log))
        lines = [line for line in self._known_log.split(b"\n")[1:] if line]
        assert len(lines) - len(events) <= self.torn_writes, self.describe_run()
        numbers = [envelope.seq for envelope in events]
        assert numbers == sorted(set(numbers)), self.describe_run()
        faults = [envelope.event.error for envelope in events if isinstance(envelope.event, TurnEnded)]
        assert [fault for fault in faults if "failed inside" in fault] == [], self.describe_run()
        return events

    def _check_next_request(self, events: list[Envelope]) -> None:
        """Check that every API accepts the next request, with and without crash recovery before it."""
        state = SessionState.fold(events)
        number = state.seq + 1
        for event, agent in find_dangling(state).events:
            state.apply(Envelope(number, 0.0, self.session, event, agent))
            number += 1
        for each in (SessionState.fold(events), state):
            each.apply(Envelope(number, 0.0, self.session, TurnStarted("next", "go on", "edit_mode")))
            found = find_refusals(each.build_history(), self.server._router._memory)
            assert found == [], (self.describe_run(), found)
        assert not state.open_work.agents
        assert not state.open_threads

    def check_end(self) -> None:
        """Check after a normal exit: all calls and turns have ended, the files match the log, and undo works."""
        events = list(read_log(self.log))
        self._check_all_closed(events)
        self.files.check(events, self.describe_run())
        project = self.log.parent.parent
        store = CheckpointStore(project.parent.parent / "checkpoints" / project.name)
        self.files.check_undo(events, store, self.describe_run())

    def _check_all_closed(self, events: list[Envelope]) -> None:
        calls: dict[tuple[str, str], int] = {}
        turns: dict[tuple[str, str], int] = {}
        for envelope in events:
            event = envelope.event
            if isinstance(event, Replied):
                calls |= {(envelope.agent, call.id): 0 for call in event.message.calls}
            elif isinstance(event, ToolEnded):
                calls[envelope.agent, event.call_id] += 1
            elif isinstance(event, TurnStarted):
                turns[envelope.agent, event.id] = 0
            elif isinstance(event, TurnEnded):
                turns[envelope.agent, event.id] += 1
        assert [name for name, count in calls.items() if count != 1] == [], self.describe_run()
        assert [name for name, count in turns.items() if count != 1] == [], self.describe_run()
        assert not SessionState.fold(events).open_work, self.describe_run()


def _has_running_commands(pid: int) -> bool:
    """Return whether a command runs that this process started."""
    mark = f"ODIN_COMMAND={pid}-".encode()
    for found in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in found.read_bytes() and is_alive(int(found.parent.name)):
                return True
        except OSError:
            continue
    return False
