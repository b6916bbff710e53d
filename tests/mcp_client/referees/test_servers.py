"""Servers of others, as their authors wrote them: the reference server with everything, and one made with fastmcp."""

import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from odin.testing import call, say
from tests.mcp_client.referees.install import Referees
from tests.mcp_client.referees.test_conformance import referees
from tests.mcp_client.test_session import StartSession, call_tiny, configure, start_session
from tests.waiting import wait_until

__all__ = ["referees", "start_session"]

pytestmark = pytest.mark.slow
FAST = str(Path(__file__).with_name("fastmcp_server.py"))


async def test_the_server_with_everything(start_session: StartSession, home: Path, referees: Referees):
    script = referees.get_script("@modelcontextprotocol/server-everything")
    configure(home, {"tiny": {"command": referees.node, "args": [script, "stdio"]}}, wait_s=100, connect_s=100)
    calls: list[Any] = [
        call_tiny("echo", 1, message="hello"),
        call_tiny("get-sum", 2, a=2, b=3),
        call_tiny("get-tiny-image", 3),
        call_tiny("get-structured-content", 4, location="Chicago"),
        call_tiny("trigger-long-running-operation", 5, duration=1, steps=2),
        call("ListMcpResources", {}, id="toolu_6"),
    ]
    session = await start_session([*calls, say("done")], allowed_tools=("mcp__tiny",))
    await session.prompt()
    echo, total, image, structured, slow, resources = session.results()
    assert (echo, "5" in total, "(image: " in image) == ("Echo: hello", True, True)
    assert '"temperature"' in structured
    assert "completed" in slow
    assert "{" in resources, "its templates are listed"
    offered = [name for name in session.tools() if name.startswith("mcp__tiny__")]
    assert "mcp__tiny__simulate-research-query" not in offered, "it can only be called as a task"
    assert session.warnings() == []


@contextmanager
def serve_fast(transport: str, referees: Referees) -> Generator[dict[str, Any]]:
    """Serve with fastmcp; yields the settings."""
    if transport == "stdio":
        yield {"command": referees.python, "args": [FAST]}
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with subprocess.Popen([referees.python, FAST, str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: is_served(port), "the server made with fastmcp")
            yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        finally:
            process.kill()


def is_served(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.parametrize(
    ("transport", "answer"),
    [("stdio", "accept: Ada"), ("http", "elicitation via server-initiated requests is unavailable on 2026-07-28")],
)
async def test_a_server_made_with_fastmcp(
    start_session: StartSession, home: Path, referees: Referees, transport: str, answer: str
):
    """Over HTTP it speaks the newest revision, in which it asks no user."""
    calls: list[Any] = [
        call_tiny("find_rows"),
        call_tiny("ask_name", 2),
        call("ListMcpResources", {}, id="toolu_3"),
        call("ReadMcpResource", {"server": "tiny", "uri": "mem://item/7"}, id="toolu_4"),
    ]
    with serve_fast(transport, referees) as settings:
        configure(home, {"tiny": settings}, wait_s=100, connect_s=100)
        session = await start_session([*calls, say("done")], allowed_tools=("mcp__tiny",))
        session.answers = (("Ada",),)
        await session.prompt()
        rows, name, resources, item = session.results()
    assert rows == 'Found 2 rows.\n{"rows":[{"id":17}]}'
    assert name.startswith(answer)
    assert ("mem://item/{n}" in resources, item) == (True, "item 7")
