"""Time from an interrupt, sent by another thread, until everything has stopped.

That is when the turn has ended and none of its processes runs. The result is the slowest of several rounds.
`run.py` calls `rows()`; run directly, this file prints the results.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from row import Row, table

ROUNDS = 5
BOUND_MS = 1000
PATIENCE_S = 30.0

FAMILIES = """\
trap '' INT TERM HUP QUIT
deaf='trap "" INT TERM HUP QUIT; (while :; do sleep 1000; done) & wait; sleep 1000'
bash -c "$deaf" &
setsid bash -c "$deaf" &
while :; do sleep 1000; done
"""
"""Children and grandchildren that ignore all signals they can ignore; one family runs in its own session."""

PROCESSES = 8
"""The shell and its sleep, and two families of child, grandchild and sleep."""

_PROC = Path("/proc")


def _in(folder: Path) -> int:
    """Count the processes of the families whose working directory is the folder, without zombies."""
    return sum(_works_in(process, folder) for process in _PROC.glob("[0-9]*"))


def _works_in(process: Path, folder: Path) -> bool:
    try:
        if (process / "cwd").readlink() != folder or ") Z " in (process / "stat").read_text():
            return False
        return (process / "comm").read_text().strip() in ("bash", "sleep")
    except OSError:
        return False


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.002)


async def _stopped(script: Any, begun: Callable[[Any, Path], Awaitable[None]]) -> float:
    """Milliseconds from the interrupt by another thread until the turn has ended and its processes are gone."""
    from odin.app import open_session
    from odin.config import Options
    from odin.core.event import TurnEnded
    from odin.core.op import Interrupt, Prompt
    from odin.testing import ScriptedServer

    with tempfile.TemporaryDirectory() as home, ScriptedServer(script) as server:
        project = Path(home, "project").resolve()
        project.mkdir()
        (project / "families.sh").write_text(FAMILIES)
        env = {**os.environ, **server.env("anthropic"), "HOME": home}
        client = await open_session(Options(cwd=str(project), yes=True, env=env))
        events = client.stream_events()
        await client.submit(Prompt("p", "go"))
        await begun(server, project)
        began = time.perf_counter()
        loop = asyncio.get_running_loop()
        interrupt = asyncio.run_coroutine_threadsafe
        assert await asyncio.to_thread(lambda: interrupt(client.submit(Interrupt()), loop).result(PATIENCE_S))
        async for envelope in events:
            if isinstance(envelope.event, TurnEnded):
                assert envelope.event.reason == "interrupted", envelope.event
                break
        if _PROC.is_dir():
            await _until(lambda: _in(project) == 0)
        took = (time.perf_counter() - began) * 1000
        await client.close()
    return took


async def _asked(server: Any, project: Path) -> None:
    await _until(lambda: bool(server.requests))


async def _all_run(server: Any, project: Path) -> None:
    await _until(lambda: _in(project) >= PROCESSES)


def _slowest(script: Callable[[], Any], begun: Callable[[Any, Path], Awaitable[None]]) -> float:
    return max(asyncio.run(_stopped(script(), begun)) for _ in range(ROUNDS))


def rows() -> list[Row]:
    from odin.testing import call, say

    silent = _slowest(lambda: [say("never").stall()], _asked)
    found = [Row("interrupt a model that does not answer", silent, None, BOUND_MS, "ms", False)]
    if _PROC.is_dir():
        deaf = _slowest(lambda: [call("ExecuteCommand", {"command": "bash families.sh"})], _all_run)
        what = "interrupt a command with grandchildren that ignore signals"
        found.append(Row(what, deaf, None, BOUND_MS, "ms", False))
    return found


if __name__ == "__main__":
    print(table(rows()))
