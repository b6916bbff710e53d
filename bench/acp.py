"""Time the start of `odin acp` until the editor can send a prompt, compared with `odin -p` until its first request.

`run.py` calls `rows()`; run directly, this file prints the results.
"""

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from agent import ODIN, Server, timed
from row import Row, table

ROUNDS = 9


def time_editor(env: dict[str, str], cwd: Path) -> tuple[float, float]:
    """Return the milliseconds until `initialize` is answered, and until a session is open."""
    started = time.monotonic()
    process = subprocess.Popen([*ODIN, "acp"], env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    times: list[float] = []
    requests: tuple[tuple[str, dict[str, Any]], ...] = (
        ("initialize", {"protocolVersion": 1}),
        ("session/new", {"cwd": str(cwd), "mcpServers": []}),
    )
    for number, (method, params) in enumerate(requests):
        line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        if b'"result"' not in (answer := process.stdout.readline()):
            raise SystemExit(f"bench: {method} was answered with {answer!r}")
        times.append((time.monotonic() - started) * 1000)
    process.stdin.close()
    process.stdout.read()
    process.wait()
    return times[0], times[1]


def rows() -> list[Row]:
    first, opened, floor = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = folder / "work"
        work.mkdir()
        server = Server(folder, turns=0)
        env = server.environment(folder)
        try:
            for _ in range(ROUNDS):
                started, _, _ = timed([*ODIN, "-p", "--yes", "go"], env, work)
                seen = list[float]()
                while not seen:  # the title of an earlier session may have been asked for late
                    seen = [one["at"] for one in server.new_requests(1) if one["at"] > started]
                floor.append((seen[0] - started) * 1000)
                times = time_editor(env, work)
                first.append(times[0])
                opened.append(times[1])
        finally:
            server.stop()
    return [
        Row("odin acp: initialize answered", min(first), min(floor), 1.3, "ms", True),
        Row("odin acp: session open", min(opened), min(floor), 1.3, "ms", True),
    ]


if __name__ == "__main__":
    print(table(rows()))
