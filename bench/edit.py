"""Time an edit of a 1 MB file in the engine, from the permission check to the result, including the sync to disk."""

import asyncio
import hashlib
import os
import statistics
import tempfile
import time
from pathlib import Path

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import ToolEnded, ToolStarted
from odin.core.event import TurnEnded
from odin.core.op import Prompt
from odin.testing import ScriptedServer, Turn, call, say
from row import Row

ROUNDS = 15
SIZE = 1_000_000


def text(size: int = SIZE) -> str:
    lines = (f"line {number}: value = compute({number}, name='something')\n" for number in range(size))
    out: list[str] = []
    length = 0
    for line in lines:
        out.append(line)
        length += len(line)
        if length >= size:
            break
    return "".join(out)


def script(path: Path, rounds: int) -> list[Turn]:
    """A script that reads a few lines in the middle of the file and then edits one of them repeatedly."""
    middle = path.read_text().count("\n") // 2
    turns = [call("Read", {"file_path": str(path), "offset": middle, "limit": 20})]
    old = f"line {middle + 3}: value"
    for number in range(rounds):
        new = f"line {middle + 3}, edited {number}: value"
        turns.append(call("EditTool", {"file_path": str(path), "old_string": old, "new_string": new}))
        old = new
    return [*turns, say("done")]


async def edits_ms(folder: Path, rounds: int = ROUNDS) -> list[float]:
    """Return the time from ToolStarted to ToolEnded of each edit."""
    path = folder / "work" / "large.py"
    path.parent.mkdir()
    path.write_text(text())
    with ScriptedServer(script(path, rounds)) as server:
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "ODIN_LOCAL_PORTS": "", **server.env("anthropic")}
        client = await open_session(Options(cwd=str(path.parent), env=env, yes=True, max_turns=0))
        started: dict[str, float] = {}
        times: list[float] = []
        events = client.stream_events()
        await client.submit(Prompt("go", "edit it", "edit_mode"))
        async for envelope in events:
            event = envelope.event
            if isinstance(event, ToolStarted):
                started[event.call_id] = envelope.ts
            elif isinstance(event, ToolEnded) and event.name == "EditTool":
                if event.status != "success":
                    raise SystemExit(f"bench: the edit was refused: {event.text}")
                times.append((envelope.ts - started[event.call_id]) * 1000)
            elif isinstance(event, TurnEnded):
                break
        await client.close()
    if len(times) != rounds:
        raise SystemExit(f"bench: {len(times)} of {rounds} edits were made")
    return times


def floor_ms(folder: Path, rounds: int = ROUNDS) -> tuple[float, float]:
    """Time a minimal safe edit: read, check the hash, replace once, write a temporary file, sync, rename.

    Also return the time of the sync alone.
    """
    path, beside = folder / "floor.py", folder / "floor.new"
    path.write_text(text())
    known = hashlib.sha256(path.read_bytes()).digest()
    old = "line 8003: value"
    whole: list[float] = []
    syncs: list[float] = []
    for number in range(rounds):
        started = time.perf_counter()
        data = path.read_bytes()
        if hashlib.sha256(data).digest() != known:
            raise SystemExit("bench: the file changed")
        found = data.decode()
        if found.count(old) != 1:
            raise SystemExit("bench: the text is not unique")
        new = f"line 8003, edited {number}: value"
        after = found.replace(old, new).encode()
        old, known = new, hashlib.sha256(after).digest()
        syncs.append(_put(beside, path, after))
        whole.append((time.perf_counter() - started) * 1000)
    return statistics.median(whole), statistics.median(syncs)


def _put(beside: Path, path: Path, data: bytes) -> float:
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        before = time.perf_counter()
        os.fsync(file.fileno())
        took = (time.perf_counter() - before) * 1000
    beside.rename(path)
    return took


def rows() -> list[Row]:
    """The bound is 20 ms under any load. The floor shows whether the machine or the edit is slow."""
    with tempfile.TemporaryDirectory(prefix="odin-edit-") as name:
        folder = Path(name).resolve()
        times = asyncio.run(edits_ms(folder))
        floor, sync = floor_ms(folder)
    return [
        Row(
            f"edit of a 1 MB file, gate to result (a sync: {sync:.1f} ms)",
            statistics.median(times),
            floor,
            20,
            "ms",
            False,
        )
    ]


if __name__ == "__main__":
    from row import table

    print(table(rows()))
