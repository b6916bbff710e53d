"""Servers of others, as their authors wrote them: the reference server with everything, and one made with fastmcp."""

from pathlib import Path
from typing import Any

import pytest

from odin.testing import call, say
from tests.mcp_client.referees.install import Referees
from tests.mcp_client.referees.test_conformance import referees
from tests.mcp_client.test_session import StartSession, call_tiny, configure, start_session

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


async def test_a_server_made_with_fastmcp(start_session: StartSession, home: Path, referees: Referees):
    configure(home, {"tiny": {"command": referees.python, "args": [FAST]}}, wait_s=100, connect_s=100)
    calls: list[Any] = [
        call_tiny("find_rows"),
        call_tiny("ask_name", 2),
        call("ListMcpResources", {}, id="toolu_3"),
        call("ReadMcpResource", {"server": "tiny", "uri": "mem://item/7"}, id="toolu_4"),
    ]
    session = await start_session([*calls, say("done")], allowed_tools=("mcp__tiny",))
    session.answers = (("Ada",),)
    await session.prompt()
    rows, name, resources, item = session.results()
    assert rows == 'Found 2 rows.\n{"rows":[{"id":17}]}'
    assert name == "accept: Ada"
    assert ("mem://item/{n}" in resources, item) == (True, "item 7")
