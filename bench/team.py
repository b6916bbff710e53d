"""Ten sub-agents with twenty tool turns each in one process, beside ten `odin -p` with twenty turns each.

`run.py` calls `rows()`; `team.py --serve` is the scripted server, in a process of its own so that its work is not
measured as Odin's.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

from agent import ODIN, PYTHON, launch_environment, timed
from row import Row, table

AGENTS = 10
TURNS = 20
ROUNDS = 3
WATCHED_S = 5.0
PATIENCE_S = 60.0
TEAM = "Lead the team."


def _answer(seen: Any) -> Any:
    """The main agent of a team delegates everything; everybody else runs twenty commands and ends."""
    from odin.testing import call, reply, say

    done = len(seen.results)
    if "Complete" in seen.tool_names:
        return _run(done) if done < TURNS else call("Complete", {"summary": "done"})
    if TEAM not in str(seen.messages):
        return _run(done) if done < TURNS else say("done")
    if done:
        return say("I see.")
    return reply(calls=[call("Delegate", {"description": f"Part {number}."}) for number in range(AGENTS)])


def _run(number: int) -> Any:
    from odin.testing import call

    return call("bash", {"command": f"echo {number}"})


def serve() -> None:
    from odin.testing import ScriptedServer

    with ScriptedServer(_answer, strict=False) as server:
        print(server.url, flush=True)
        sys.stdin.read()


def _environment(home: Path, url: str) -> dict[str, str]:
    settings = {"OPENAI_API_KEY": "bench", "OPENAI_BASE_URL": f"{url}/v1", "ODIN_MODEL": "openai/bench"}
    return {**launch_environment(), "HOME": str(home), **settings}


def _measure(env: dict[str, str], work: Path) -> tuple[float, float, float, float]:
    """Return the seconds of the team and of the separate processes, and the peak memory of the team and of one."""
    alone, team = [*ODIN, "-p", "--yes", "go"], [*ODIN, "-p", "--yes", TEAM]
    started, ended, team_mb = timed(team, env, work)
    begin = time.monotonic()
    with ThreadPoolExecutor(AGENTS) as pool:
        runs = [pool.submit(timed, alone, env, work) for _ in range(AGENTS)]
        one_mb = statistics.median(run.result()[2] for run in runs)
    return ended - started, time.monotonic() - begin, team_mb, one_mb


def _idle_percent(folder: Path) -> float:
    """Return the CPU time of a process whose ten sub-agents wait for their models, in percent."""
    from odin.testing import ScriptedServer, say

    gate, waiting = Event(), set[int]()

    def answer(seen: Any) -> Any:
        if "Complete" not in seen.tool_names:
            return _answer(seen)
        waiting.add(id(seen))
        return say("one two three").hold(gate, after=2)

    with ScriptedServer(answer, strict=False) as server:
        argv = [*ODIN, "-p", "--yes", TEAM]
        process = subprocess.Popen(
            argv, env=_environment(folder, server.url), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + PATIENCE_S
            while len(waiting) < AGENTS and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(waiting) == AGENTS, f"bench: only {len(waiting)} agents have started"
            time.sleep(1.0)
            before = _processor_s(process.pid)
            time.sleep(WATCHED_S)
            return (_processor_s(process.pid) - before) / WATCHED_S * 100
        finally:
            gate.set()
            process.send_signal(signal.SIGKILL)
            process.wait()


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = folder / "work"
        work.mkdir()
        server = subprocess.Popen(
            [PYTHON, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        try:
            env = _environment(folder, server.stdout.readline().strip())
            runs = [_measure(env, work) for _ in range(ROUNDS)]
        finally:
            server.communicate()
        together, apart, team_mb, one_mb = (statistics.median(column) for column in zip(*runs, strict=True))
        idle = _idle_percent(folder)
    return [
        Row(f"{AGENTS} sub-agents of {TURNS} tool turns, beside processes", together, apart, 0.8, "s", True),
        Row("memory of each live sub-agent", (team_mb - one_mb) / AGENTS, None, 4, "MB", False),
        Row(f"processor while {AGENTS} sub-agents wait", idle, None, 0.5, "%", False),
    ]


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve()
    else:
        print(table(rows()))
