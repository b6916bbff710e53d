"""What MCP servers cost the first request: ten servers with 200 tools, compared with none configured."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from odin.testing import ScriptedServer, say
from row import Row

PROGRAM = Path(__file__).parent.parent / "tests" / "mcp_client" / "server.py"
SERVERS, TOOLS, ROUNDS = 10, 20, 7


def configure(home: Path) -> None:
    given = json.dumps({"tools": TOOLS})
    entry = {"command": sys.executable, "args": ["-I", "-S", str(PROGRAM), given]}
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    servers = {f"server{number}": entry for number in range(SERVERS)}
    (folder / "odinconfig.json").write_text(json.dumps({"mcp": servers, "mcp_limits": {"wait_s": 60}}))


def first_request(home: Path, work: Path) -> tuple[tuple[float, float], int, list[str]]:
    """Return the time until the first request arrived and of the whole run in ms, its size in bytes, and its tools."""
    with ScriptedServer([say("done")]) as server:
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "ODIN_LOCAL_PORTS": "", **server.env("anthropic")}
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "odin", "-p", "go"], env=env, cwd=work, check=True, capture_output=True)
        seen = server.requests[0]
        times = (seen.at - started) * 1000, (time.monotonic() - started) * 1000
        return times, len(seen.body), [tool["name"] for tool in seen.json["tools"]]


def rows() -> list[Row]:
    """The first run with servers fills the cache of what they offer; later ones wait for none of them."""
    times: dict[str, list[tuple[float, float]]] = {"none": [], "ten": []}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="odin-servers-") as name:
        folder = Path(name).resolve()
        homes = {"none": folder / "none", "ten": folder / "ten"}
        work = folder / "work"
        work.mkdir()
        homes["none"].mkdir()
        configure(homes["ten"])
        first_request(homes["ten"], work)
        for _ in range(ROUNDS):
            for which, home in homes.items():
                taken, sizes[which], tools = first_request(home, work)
                times[which].append(taken)
                if ("ToolSearch" in tools) != (which == "ten"):
                    raise SystemExit(f"bench: the request with {which} servers has the tools {tools}")
    (none, none_run), (ten, ten_run) = (map(statistics.median, zip(*values, strict=True)) for values in times.values())
    return [
        Row("first request with 10 MCP servers, 200 tools", ten, none, 1.3, "ms", True),
        Row("the whole run, which uses none of them", ten_run, none_run, 1.3, "ms", True),
        Row("its size", sizes["ten"], sizes["none"], 16_000, "B", False),
    ]


if __name__ == "__main__":
    from row import table

    print(table(rows()))
