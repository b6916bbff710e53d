"""Memory and time of a command with 100 MB of output, compared with a shell that writes the output to a file; and how
long the event loop looks for what a command has left behind on a machine with many processes, and how long it stands
still while the first command makes its sandbox.

`run.py` calls `rows()`; run directly, this file prints the results. With `--child COMMAND` it is the measured process.
"""

import asyncio
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from row import Row, table

SIZE = 100_000_000
ROUNDS = 3
PROCESSES = 2_000
FIRST_COMMANDS = 20
_MANY = f"for i in $(seq {PROCESSES}); do sleep 1000 & done; echo started; wait"
OUTPUTS = {
    "one line": f"head -c {SIZE} /dev/zero | tr '\\0' x",
    "lines": f"yes 'a line of output that is about as long as lines are' | head -c {SIZE}",
}
_STATUS = Path("/proc/self/status")


def _peak_mb() -> float:
    """Return the peak memory of this process. On Linux `getrusage` includes the parent's before the fork."""
    if _STATUS.exists():
        (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 * 1024)


async def _child(command: str, folder: str) -> dict[str, float]:
    """Run the tool as the engine does; return the growth of the peak memory and the duration."""
    from odin.config.paths import make_environment
    from odin.core.tool import ToolContext
    from odin.sandbox.runner import ProcessRunner
    from odin.tools.commands import ExecuteArgs, ExecuteCommandTool

    runner = ProcessRunner(make_environment(cwd="/"), Path(folder) / "outputs")
    tool = ExecuteCommandTool(runner)
    shown: list[str] = []
    context = ToolContext(folder, folder, "bench", "", "c", "edit_mode", shown.append, make_environment(cwd=folder))
    await tool.run(ExecuteArgs("echo warm"), context)
    before, started = _peak_mb(), time.perf_counter()
    output = await tool.run(ExecuteArgs(command), context)
    took = time.perf_counter() - started
    assert f"{SIZE} bytes in all" in output.text, output.text[-500:]
    await runner.close()
    return {"mb": _peak_mb() - before, "ms": took * 1000, "progress": len(shown)}


def _measured(command: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, __file__, "--child", command, folder]
        return json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)


def _floor_ms(command: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        subprocess.run(["/bin/sh", "-c", f"({command}) | cat >{folder}/out"], check=True, stderr=subprocess.DEVNULL)
        return (time.perf_counter() - started) * 1000


async def _measure_look_us(rounds: int = 50) -> float:
    """Return how long it takes to find that a command has left nothing behind."""
    from odin.config.paths import make_environment
    from odin.core.profile import ProcessProfile
    from odin.sandbox.output import ByteSink
    from odin.sandbox.runner import ProcessRunner

    runner = ProcessRunner(make_environment(cwd="/"))
    times: list[float] = []
    for _ in range(rounds):
        running = await runner.start_detached("true", cwd="/", sink=ByteSink(), profile=ProcessProfile("none"))
        await running.done
        started = time.perf_counter()
        assert not await running.is_alive()
        times.append((time.perf_counter() - started) * 1_000_000)
    await runner.close()
    return statistics.median(times)


def _look_beside_many_us() -> float:
    argv = ["/bin/sh", "-c", _MANY]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as many:
        assert many.stdout is not None
        try:
            many.stdout.readline()
            return asyncio.run(_measure_look_us())
        finally:
            os.killpg(many.pid, signal.SIGKILL)


async def _stand_still_ms() -> float:
    """Return the longest time between two turns of the event loop during the first command of a session."""
    from odin.config.paths import make_environment
    from odin.core.profile import PROJECT
    from odin.sandbox.layout import SandboxSession
    from odin.sandbox.probe import SandboxOptions
    from odin.sandbox.runner import ProcessRunner
    from odin.sandbox.sandbox import Sandbox

    gaps: list[float] = []

    async def look() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gaps.append((now - last) * 1000)
            last = now

    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve() / "project"
        root.mkdir()
        environment = make_environment(cwd=str(root))
        session = SandboxSession(
            root=str(root), home=environment.home, env=environment.variables, views=f"{name}/views"
        )
        longest: list[float] = []
        for _ in range(FIRST_COMMANDS):
            runner = ProcessRunner(environment, sandbox=lambda: Sandbox(session, SandboxOptions()))
            looking = asyncio.create_task(look())
            gaps.clear()
            await runner.run("true", cwd=str(root), timeout=60, profile=PROJECT)
            longest.append(max(gaps))
            looking.cancel()
            await runner.close()
    return statistics.median(longest)


def rows() -> list[Row]:
    still = "event loop stands still during a first command"
    look = f"search for what a command left behind, {PROCESSES:,} processes"
    found = [Row(look, _look_beside_many_us(), None, 100, "µs", False)]
    found.append(Row(still, asyncio.run(_stand_still_ms()), None, 2, "ms", False))
    for name, command in OUTPUTS.items():
        floors: list[float] = []
        runs: list[dict[str, float]] = []
        for _ in range(ROUNDS):
            floors.append(_floor_ms(command))
            runs.append(_measured(command))
        found.append(Row(f"memory for 100 MB of output, {name}", max(run["mb"] for run in runs), None, 30, "MB", False))
        took, floor = statistics.median(run["ms"] for run in runs), statistics.median(floors)
        found.append(Row(f"time for 100 MB of output, {name}", took, floor, 6, "ms", True))
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(asyncio.run(_child(*sys.argv[2:4]))))
    else:
        print(table(rows()))
