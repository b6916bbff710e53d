"""One session that is killed again and again, and what must be true of it after each time."""

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

from ..sandbox.processes import alive, running, wait_until
from .files import Files
from .model import Model
from .nursery import ROOT, Child, nursery
from .victim import Death, Life
from .wires import refusals

PATIENCE = 90.0
PATHS = f"{ROOT}{os.pathsep}{ROOT / 'src'}"

Process = Child | subprocess.Popen[bytes]

How = Literal["step", "torn", "size", "piece", "time", "program", "fork", "full"]
HOWS: list[How] = ["step", "step", "torn", "size", "piece", "piece", "time", "program", "fork", "full"]
MODELS: list[tuple[Literal["anthropic", "openai"], str]] = [
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-5"),
    ("openai", "gpt-4.1"),
]
"""The session goes on with another model each time."""

EDITS = ["WriteFile", "EditTool", "AppendFile", "Delete"]


class Restored(msgspec.Struct, frozen=True):
    """What must be there again, read from the log without the help of the fold; "" when nothing was chosen."""

    waiting: tuple[str, ...]
    title: str
    permission_mode: str
    usage: Usage

    @classmethod
    def of(cls, events: list[Envelope]) -> "Restored":
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


class Chain:
    """Lives one after the other, all of them in the same session."""

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
        self.files = Files(root)
        self.server = ScriptedServer(self.model)
        self.lives: int = 0
        self.torn = 0
        self._process: Process | None = None
        self._out = home / "printed"
        self._log: Path | None = None
        self._seen = b""
        self._inode = 0
        self._seq = -1

    @property
    def log(self) -> Path:
        if self._log is None:
            self._log = next(self.home.glob(f".local/state/odin/sessions/*/{self.session}/main.jsonl"), None)
        return self._log or self.home / "nothing"

    def where(self) -> str:
        return f"seed {self.seed}, life {self.lives}"

    # --- living and dying ---

    def kill_one(self) -> bool:
        """One more life, ended somewhere in the middle. False when it was over before."""
        self.lives += 1
        how = self.random.choice(HOWS)
        if how == "fork" and self._seen:
            with self.files.by_somebody_else(self._seq, self.model):
                return self._die(how)
        return self._die(how)

    def _die(self, how: How) -> bool:
        group = self.random.random() < 0.3
        death = self._own_death(how)
        if how == "piece":
            self.model.strike(self.random.randrange(1, 4), lambda: self._kill(group), self.random.randrange(12))
        room = len(self._seen) + self.random.randrange(8000) if how == "full" else -1
        if how in ("program", "fork"):
            self._process = process = self._begin_program(how)
        else:
            self._process = process = self._begin_victim(death, prompts=3, room=room)
        if how == "size":
            self._await(process, self._grown(self.random.randrange(1, 12_000)))
            self._kill(group)
        elif how in ("time", "program", "fork"):
            end = time.monotonic() + 0.15 + self.random.random() * 0.5
            self._await(process, lambda: time.monotonic() > end)
            self._kill(group)
        out = self._wait(process)
        self.model.spare()
        assert b"TimeoutError" not in out, (self.where(), out[-3000:])
        if isinstance(process, Child) and how != "full":
            assert process.returncode in (0, -signal.SIGKILL), (self.where(), out[-3000:])
        is_killed = process.returncode == -signal.SIGKILL
        self.torn += is_killed or how in ("torn", "full")  # the kernel may stop a long write between two pages
        self.check(process.pid)
        return is_killed

    def live_on(self) -> None:
        """A last life that nobody ends. What was there before is there when it begins."""
        self.lives += 1
        expected = Restored.of(list(read_log(self.log)))
        self._process = process = self._begin_victim(Death(), prompts=2, lively=False)
        out = self._wait(process)
        assert process.returncode == 0, (self.where(), process.returncode, out[-2000:])
        self.check(process.pid)
        found = msgspec.json.decode(out.splitlines()[0], type=Snapshot)
        waiting = tuple(item.id for item in found.queue)
        title = found.title if expected.title else ""
        mode = found.permission_mode if expected.permission_mode else ""
        assert expected == Restored(waiting, title, mode, found.usage), self.where()

    def _own_death(self, how: How) -> Death:
        if how in ("step", "full"):
            return Death("step", self.random.randrange(1, 700))
        if how == "torn":
            return Death("torn", self.random.randrange(2, 40), self.random.choice([0, 1, 10, 100, 100_000]))
        return Death()

    def _begin_victim(self, death: Death, prompts: int, *, lively: bool = True, room: int = -1) -> Child:
        resume = bool(self._seen)
        life = Life(self.session, resume, str(self.root), self.random.randrange(10**9), prompts, death)
        life = msgspec.structs.replace(life, lively=lively, room=room, team=self.has_team)
        told = self.home / "life.json"
        told.write_bytes(msgspec.json.encode(life))
        return nursery(PATHS).begin(told, self._surroundings(), self._out)

    def _begin_program(self, how: How) -> "subprocess.Popen[bytes]":
        """Odin as a user starts it, in the session or in a copy of it."""
        which = ["--resume" if self._seen else "--session-id", self.session]
        which += ["--fork-session"] if how == "fork" and self._seen else []
        prompt = f"prompt of life {self.lives}"
        argv = [sys.executable, "-m", "odin", "-p", prompt, "--yes", *which, "--output-format", "json"]
        with self._out.open("wb") as out:
            return subprocess.Popen(
                argv,
                cwd=self.root,
                env=self._surroundings(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _surroundings(self) -> dict[str, str]:
        """The settings and the environment of a life."""
        api, model = self.random.choice(MODELS)
        config: dict[str, Any] = {"retry": {"base_s": 0.01}, "allowed_tools": EDITS if self.seed % 2 else []}
        config |= {"max_context": 9000, "max_tokens": 500} if self.seed % 3 and not self.has_team else {}
        config |= {"team": {"idle_s": 0.05}} if self.has_team else {}
        folder = self.home / ".config" / "odin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "odinconfig.json").write_text(json.dumps(config))
        return {**os.environ, **self.server.env(api, model), "PYTHONPATH": PATHS}

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

    def _grown(self, count: int) -> Callable[[], bool]:
        size = len(self._seen)

        def grown() -> bool:
            try:
                return self.log.stat().st_size >= size + count
            except OSError:
                return False

        return grown

    def _await(self, process: Process, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and not condition():
            assert time.monotonic() < deadline, self.where()
            time.sleep(0.0005)

    def _wait(self, process: Process) -> bytes:
        """Its end, and what it printed."""
        process.wait(PATIENCE)
        return self._out.read_bytes()

    # --- what must be true ---

    def check(self, pid: int) -> None:
        self._check_processes(pid)
        assert self.server.rejected == [], (self.where(), [why for _, why in self.server.rejected])
        self._check_copies()
        if not self.log.exists():
            return
        self._check_growth()
        events = self._check_lines()
        self._seq = events[-1].seq if events else -1
        self._check_next_request(events)

    def _check_processes(self, pid: int) -> None:
        """Nothing that this life started is left."""
        wait_until(lambda: not running(f"sleep {self.mark}") and not _marked(pid))

    def _check_copies(self) -> None:
        """A copy that was begun can be read, however far it came."""
        for log in self.home.glob(".local/state/odin/sessions/*/2*/main.jsonl"):
            if log.stat().st_size:
                events = list(read_log(log))
                SessionState.fold(events)
                assert [item.seq for item in events] == sorted({item.seq for item in events}), self.where()

    def _check_growth(self) -> None:
        data = self.log.read_bytes()
        assert data.startswith(self._seen), f"{self.where()}: what was written before is not there any more"
        inode: int = self.log.stat().st_ino
        assert inode == (self._inode or inode), self.where()
        self._seen = data
        self._inode = inode

    def _check_lines(self) -> list[Envelope]:
        """Every line but those that were torn is an event, and their numbers rise."""
        events = list(read_log(self.log))
        lines = [line for line in self._seen.split(b"\n")[1:] if line]
        assert len(lines) - len(events) <= self.torn, self.where()
        numbers = [envelope.seq for envelope in events]
        assert numbers == sorted(set(numbers)), self.where()
        faults = [envelope.event.error for envelope in events if isinstance(envelope.event, TurnEnded)]
        assert [fault for fault in faults if "failed inside" in fault] == [], self.where()
        return events

    def _check_next_request(self, events: list[Envelope]) -> None:
        """Whatever comes next, every API takes it; also when what is open is closed first."""
        state = SessionState.fold(events)
        number = state.seq + 1
        for event, agent in find_dangling(state).events:
            state.apply(Envelope(number, 0.0, self.session, event, agent))
            number += 1
        for each in (SessionState.fold(events), state):
            each.apply(Envelope(number, 0.0, self.session, TurnStarted("next", "go on", "edit_mode")))
            found = refusals(each.build_history(), self.server._router._memory)
            assert found == [], (self.where(), found)
        assert not state.open_work.agents
        assert not state.open_threads

    def check_end(self) -> None:
        """After a life that ended in order nothing is open, the files are what the log says, and undo works."""
        events = list(read_log(self.log))
        self._check_all_closed(events)
        self.files.check(events, self.where())
        project = self.log.parent.parent
        store = CheckpointStore(project.parent.parent / "checkpoints" / project.name)
        self.files.check_undo(events, store, self.where())

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
        assert [name for name, count in calls.items() if count != 1] == [], self.where()
        assert [name for name, count in turns.items() if count != 1] == [], self.where()
        assert not SessionState.fold(events).open_work, self.where()


def _marked(pid: int) -> bool:
    """Whether something runs that this process started."""
    mark = f"ODIN_COMMAND={pid}-".encode()
    for found in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in found.read_bytes() and alive(int(found.parent.name)):
                return True
        except OSError:
            continue
    return False
