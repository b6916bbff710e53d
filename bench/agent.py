"""Compare Odin with a minimal agent on one prompt with twenty tool turns, against the same scripted server."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from memory import Memory, measure_memory
from row import Row

HERE = Path(__file__).resolve().parent
TURNS = 20
PYTHON = sys.executable
ODIN = [str(HERE.parent / "odin")]
"""The launcher that users run."""


def launch_environment() -> dict[str, str]:
    """Return the environment in which the launcher uses this interpreter's packages."""
    return {"PATH": os.environ["PATH"], "ODIN_VENV": str(Path(PYTHON).parent.parent)}


class Run(NamedTuple):
    """One run of an agent: start and end time, and the requests the server saw."""

    started: float
    ended: float
    requests: list[dict[str, Any]]


class Server:
    """The scripted server. It runs in its own process so that its work is not measured."""

    def __init__(self, folder: Path, turns: int = TURNS, delay_s: float = 0.0, strict: bool = True) -> None:
        calls = [
            {"text": "", "delay_s": delay_s, "calls": [{"name": "bash", "args": {"command": f"echo {number}"}}]}
            for number in range(turns)
        ]
        script = folder / "script.json"
        script.write_text(json.dumps({"turns": [*calls, {"text": "done"}], "repeat": True, "strict": strict}))
        self.log = folder / "seen.jsonl"
        self.process = subprocess.Popen(
            [PYTHON, "-m", "odin.testing", str(script), "--port", "0", "--log", str(self.log)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1].rstrip("/")
        self._read = 0

    def new_requests(self, count: int) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            lines = self.log.read_text().splitlines()[self._read :] if self.log.exists() else []
            if len(lines) >= count:
                self._read += len(lines)
                return [json.loads(line) for line in lines]
            time.sleep(0.02)
        raise SystemExit(f"bench: the server saw too few requests (see {self.log})")

    def environment(self, home: Path) -> dict[str, str]:
        settings = {"OPENAI_API_KEY": "bench", "OPENAI_BASE_URL": f"{self.url}/v1", "ODIN_MODEL": "openai/bench"}
        return {**launch_environment(), "HOME": str(home), **settings}

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def timed(argv: list[str], env: dict[str, str], cwd: Path) -> tuple[float, float, float]:
    """Run a program; return its start time, its end time and the peak memory of its first process alone in MB."""
    started = time.monotonic()
    process = subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    ended = time.monotonic()
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        raise SystemExit(f"bench: {argv[-1]} ended with {process.returncode}")
    return started, ended, used.ru_maxrss / (1024 if sys.platform != "darwin" else 1024 * 1024)


def agent_runs(floor: Path, rounds: int) -> tuple[list[Run], list[Run]]:
    odin: list[Run] = []
    bare: list[Run] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = folder / "work"
        work.mkdir()
        server = Server(folder)
        env = server.environment(folder)
        try:
            for _ in range(rounds):
                for runs, argv in (
                    (bare, [PYTHON, str(floor), server.url, "go"]),
                    (odin, [*ODIN, "-p", "--yes", "go"]),
                ):
                    started, ended, _ = timed(argv, env, work)
                    runs.append(Run(started, ended, server.new_requests(TURNS + 1)))
        finally:
            server.stop()
    return odin, bare


def memory_of_runs(floor: Path, rounds: int = 3) -> tuple[Memory, Memory]:
    """Return the memory of Odin and of the floor in a git repository, each with all of its processes: medians.

    These are runs of their own: looking at the processes takes time.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = folder / "work"
        subprocess.run(["git", "init", "-q", str(work)], check=True)
        server = Server(folder)
        env = server.environment(folder)
        programs = ([*ODIN, "-p", "--yes", "go"], [PYTHON, str(floor), server.url, "go"])
        try:
            runs = [[measure_memory(argv, env, work) for argv in programs] for _ in range(rounds)]
        finally:
            server.stop()
    odin, bare = (Memory(*map(statistics.median, zip(*each, strict=True))) for each in zip(*runs, strict=True))
    return odin, bare


def gaps_ms(turns: int = 320) -> tuple[float, float]:
    """Return the time between a reply and the next request around the 300th and around the 20th tool turn.

    The server takes as long for late requests as for early ones: it waits, and does not check the conversation.
    """
    late: list[float] = []
    early: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = folder / "work"
        work.mkdir()
        server = Server(folder, turns, delay_s=0.02, strict=False)
        try:
            for _ in range(4):
                timed([*ODIN, "-p", "--yes", "--max-turns", "0", "go"], server.environment(folder), work)
                seen = server.new_requests(turns + 1)
                gaps = [(after["at"] - before["finished_at"]) * 1000 for before, after in pairwise(seen)]
                early += gaps[10:50]
                late += gaps[270:310]
        finally:
            server.stop()
    return statistics.median(late), statistics.median(early)


def median(runs: list[Run], measure: Callable[[Run], float]) -> float:
    return statistics.median(measure(run) for run in runs)


def first_request_ms(run: Run) -> float:
    return (run.requests[0]["at"] - run.started) * 1000


def between_ms(run: Run) -> float:
    pairs = zip(run.requests, run.requests[1:], strict=False)
    return statistics.median((later["at"] - earlier["finished_at"]) * 1000 for earlier, later in pairs)


def whole_ms(run: Run) -> float:
    return (run.ended - run.started) * 1000


def exit_ms(run: Run) -> float:
    return (run.ended - run.requests[-1]["finished_at"]) * 1000


def version_ms(rounds: int) -> tuple[float, float]:
    """Time `odin --version` and an empty Python program in alternating runs."""
    env = launch_environment()
    samples: dict[str, list[float]] = {"odin": [], "python": []}
    for _ in range(rounds * 3):
        for name, argv in (("python", [PYTHON, "-I", "-c", "pass"]), ("odin", [*ODIN, "--version"])):
            started, ended, _ = timed(argv, env, HERE)
            samples[name].append((ended - started) * 1000)
    return statistics.median(samples["odin"]), statistics.median(samples["python"])


def fold_ms(events: int = 2000) -> float:
    """Time reading a log with this many events and folding it into a state."""
    from odin.core.call_events import Replied, ToolEnded, ToolStarted, UsageRecorded
    from odin.core.event import Envelope, TurnEnded, TurnStarted
    from odin.core.message import ReplyMessage, Text, ToolCall, Usage
    from odin.session.log import LOG_FORMAT, LogHeader, SessionLog, read_log
    from odin.session.state import SessionState

    with tempfile.TemporaryDirectory() as name:
        log = SessionLog(Path(name) / "main.jsonl", LogHeader(LOG_FORMAT, "bench", "/", 0.0))
        for number in range(events // 6):
            call = ToolCall(f"c{number}", "Read", {"file_path": "/a"})
            for offset, event in enumerate(
                (
                    TurnStarted(f"t{number}", "read it", "edit_mode"),
                    UsageRecorded("m", Usage(10, 10), 0.01),
                    Replied(ReplyMessage((Text("reading"), call))),
                    ToolStarted(call.id, "Read", call.args),
                    ToolEnded(call.id, "Read", "success", "line\n" * 50),
                    TurnEnded(f"t{number}", "end_turn", "done"),
                )
            ):
                log.append(Envelope(number * 6 + offset, 0.0, "bench", event))
        log.close()
        samples: list[float] = []
        for _ in range(5):
            started = time.perf_counter()
            SessionState.fold(read_log(log.path))
            samples.append((time.perf_counter() - started) * 1000)
    return statistics.median(samples)


def rows(rounds: int = 9, floor: Path = HERE / "floor.py") -> list[Row]:
    odin, bare = agent_runs(floor, rounds)
    memory, least = memory_of_runs(floor)
    version, python = version_ms(rounds)
    return [
        Row(
            "process start to first request",
            median(odin, first_request_ms),
            median(bare, first_request_ms),
            2.3,
            "ms",
            True,
        ),
        Row(
            "reply to next request, one echo between", median(odin, between_ms), median(bare, between_ms), 3, "ms", True
        ),
        Row("the same after 300 turns, beside that after 20", *gaps_ms(), 1.15, "ms", True),
        Row(f"whole run of {TURNS} tool turns", median(odin, whole_ms), median(bare, whole_ms), 4, "ms", True),
        Row(f"memory of that run, {memory.processes:g} processes, PSS", memory.pss_mb, least.pss_mb, 45, "MB", False),
        Row("the same, RSS", memory.rss_mb, least.rss_mb, 65, "MB", False),
        Row("last reply to exit", median(odin, exit_ms), median(bare, exit_ms), 25, "ms", False),
        Row("odin --version over bare Python", version - python, None, 15, "ms", False),
        Row(
            "first request, edit mode",
            odin[0].requests[0]["bytes"] / 1000,
            bare[0].requests[0]["bytes"] / 1000,
            10,
            "kB",
            False,
        ),
        Row("fold of 2,000 events", fold_ms(), None, 50, "ms", False),
    ]
