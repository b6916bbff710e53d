"""Time what warm language servers add to an edit: ruff and basedpyright review a file of 500 lines after each one."""

import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import ToolEnded, ToolStarted
from odin.core.event import TurnEnded
from odin.core.op import Prompt
from odin.testing import ScriptedServer, Turn, call, say
from row import Row

ROUNDS = 12
WARM_UP = 4
"""The first edits, which may come before the servers are warm, are not counted."""

SOURCE = Path(__file__).parent.parent / "src/odin/commands/doctor.py"


def script(path: Path) -> list[Turn]:
    """A script that reads the file and then edits its first line repeatedly, each time with one more error in it."""
    turns = [call("Read", {"file_path": str(path)})]
    old = path.read_text().partition("\n")[0]
    for number in range(ROUNDS + WARM_UP):
        new = f"{old}\nprint(undefined_{number})" if number else f"{old}\nimport os"
        turns.append(call("EditTool", {"file_path": str(path), "old_string": old, "new_string": new}))
        old = new
    return [*turns, say("done")]


async def edits_ms(folder: Path, *, trust: bool) -> tuple[list[float], int]:
    """Return the time from ToolStarted to ToolEnded of each edit, and how many of their results have errors."""
    path = folder / "work" / "doctor.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SOURCE.read_text())
    with ScriptedServer(script(path)) as server:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {"PATH": programs, "HOME": str(folder), "ODIN_LOCAL_PORTS": "", **server.env("anthropic")}
        client = await open_session(Options(cwd=str(path.parent), env=env, yes=True, max_turns=0, trust=trust))
        started: dict[str, float] = {}
        times: list[float] = []
        reviewed = 0
        events = client.stream_events()
        await client.submit(Prompt("go", "edit it", "edit_mode"))
        async for envelope in events:
            event = envelope.event
            if isinstance(event, ToolStarted):
                started[event.call_id] = envelope.ts
            elif isinstance(event, ToolEnded) and event.name == "EditTool":
                times.append((envelope.ts - started[event.call_id]) * 1000)
                reviewed += "language servers" in event.text
            elif isinstance(event, TurnEnded):
                break
        await client.close()
    return times[WARM_UP:], reviewed


def rows() -> list[Row]:
    """The floor is the same edit without servers, as in an untrusted folder."""
    with tempfile.TemporaryDirectory(prefix="odin-lsp-") as name:
        folder = Path(name).resolve()
        floor, _ = asyncio.run(edits_ms(folder, trust=False))
        times, reviewed = asyncio.run(edits_ms(folder, trust=True))
    if reviewed < ROUNDS:
        raise SystemExit(f"bench: only {reviewed} of {ROUNDS + WARM_UP} edits were reviewed")
    usual, bare = statistics.median(times), statistics.median(floor)
    return [Row("edit with warm language servers", usual, bare, round(bare) + 300, "ms", False)]


if __name__ == "__main__":
    from row import table

    print(table(rows()))
