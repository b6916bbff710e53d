"""Print the parts of the first request in edit mode with their size in bytes, largest first."""

import json
import tempfile
from pathlib import Path
from typing import Any

from agent import ODIN, Server, timed


def table() -> str:
    request = _first_request()
    body: dict[str, Any] = request["body"]
    parts = {tool["function"]["name"]: _size(tool) for tool in body.get("tools", [])}
    for message in body.get("messages", []):
        name = f"({message['role']} message)"
        parts[name] = parts.get(name, 0) + _size(message)
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return "\n".join(f"{name:24}{size:6}" for name, size in [*ordered, ("whole request", request["bytes"])])


def _first_request() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        server = Server(folder, turns=0)
        try:
            timed([*ODIN, "-p", "--yes", "go"], server.environment(folder), folder / "work")
            return server.new_requests(1)[0]
        finally:
            server.stop()


def _size(part: Any) -> int:
    return len(json.dumps(part, separators=(",", ":"), ensure_ascii=False).encode())
