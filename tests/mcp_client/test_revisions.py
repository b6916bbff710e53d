"""Both revisions of the protocol: servers with a handshake, servers without, and programs that end at the wrong one."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from odin.testing import say
from tests.mcp_client.test_http import FaultyHttpServer, serve_app
from tests.mcp_client.test_session import (
    NO_PAUSES,
    StartSession,
    call_tiny,
    configure,
    describe_tool,
    make_server_settings,
    start_session,
    wait_for_state,
)
from tests.waiting import until

__all__ = ["start_session"]

MODERN = "2026-07-28"
UNSUPPORTED = {"code": -32022, "data": {"supported": [MODERN]}}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("refusal", [UNSUPPORTED, {"code": -32601}, {"code": -32600}, {"code": -32020}])
async def test_a_program_without_a_handshake_is_used_and_remembered(
    start_session: StartSession, home: Path, tmp_path: Path, refusal: dict[str, Any], known: bool
):
    era, log = tmp_path / "era", tmp_path / "log"
    settings = make_server_settings(era_file=str(era), log=str(log), refusal=refusal)
    configure(home, {"tiny": settings})
    if known:  # as a server that wants a handshake, until it was updated
        era.write_text("")
        before = await start_session([say("done")])
        await before.prompt()
        assert (await before.get_state("tiny")).state == "ready"
        await before.client.close()
        log.unlink()
    era.write_text(MODERN)
    for _ in range(2):
        session = await start_session([call_tiny("echo", text="hello"), say("done")], allowed_tools=("mcp__tiny",))
        await session.prompt()
        assert session.results() == ["echo: hello"], session.warnings()
        assert (await session.get_state("tiny")).version == "tiny 1"
        await session.client.close()
    methods = log.read_text().split()
    assert methods.count("initialize") == 1, "then it is known to have no handshake"
    assert methods.count("server/discover") == 2


async def test_a_known_server_with_a_handshake_is_asked_nothing_before_it(start_session: StartSession, home: Path):
    asked: list[str] = []

    class Listening(FaultyHttpServer):
        async def handle(self, send: Any, request: Any, headers: dict[str, str]) -> None:
            asked.append(request["method"])
            if request["method"] == "server/discover":
                await self.reply(send, 400, b"No session")
            else:
                await super().handle(send, request, headers)

    with serve_app(Listening([describe_tool("echo")])) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        for _ in range(2):
            session = await start_session([call_tiny("echo"), say("done")], allowed_tools=("mcp__tiny",))
            await session.prompt()
            assert session.results() == ["x"]
            await session.client.close()
    assert (asked.count("server/discover"), asked.count("initialize")) == (1, 2)


async def test_a_program_that_knows_both_gets_the_handshake(start_session: StartSession, home: Path):
    """Made with the official package, whose `elicit` works only after one."""
    program = Path(__file__).with_name("official_server.py")
    configure(home, {"tiny": {"command": sys.executable, "args": [str(program)]}}, wait_s=60, connect_s=60)
    session = await start_session([call_tiny("ask_name"), say("done")], allowed_tools=("mcp__tiny",))
    session.answers = (("Ada",),)
    await session.prompt()
    assert session.results() == ["accept: Ada"]


async def test_changes_are_announced_without_a_handshake(start_session: StartSession, home: Path, tmp_path: Path):
    log = tmp_path / "log"
    configure(home, {"tiny": make_server_settings(era=MODERN, log=str(log))})
    session = await start_session([say("ready"), call_tiny("change"), say("done")], allowed_tools=("mcp__tiny",))
    await session.prompt()
    await until(lambda: "subscriptions/listen" in log.read_text())
    await session.prompt()
    assert [name for name in session.tools(2) if name.startswith("mcp__")] == ["mcp__tiny__fresh"]


async def test_a_program_that_ends_before_a_handshake_gets_one(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(era="handshake only")})
    session = await start_session([call_tiny("echo", text="hello"), say("done")], timing=NO_PAUSES)
    await session.prompt()
    assert (session.results(), session.warnings()) == (["echo: hello"], [])


async def test_questions_of_a_call_are_answered_by_repeating_it(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(era=MODERN)})
    session = await start_session([call_tiny("ask"), call_tiny("roots", 2), say("done")], allowed_tools=("mcp__tiny",))
    session.answers = (("Ada",),)
    await session.prompt()
    answered, roots = session.results()
    assert json.loads(answered) == {"action": "accept", "content": {"name": "Ada"}}
    assert json.loads(roots)["roots"][0]["uri"].startswith("file://")
    assert "The MCP server tiny asks this" in session.asked[0]


@pytest.mark.parametrize(("ttl", "is_used"), [(3_600_000, True), (0, False)])
async def test_stored_tools_live_as_long_as_the_server_says(
    start_session: StartSession, home: Path, tmp_path: Path, ttl: int, is_used: bool
):
    """https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching"""
    log = tmp_path / "log"
    configure(home, {"tiny": make_server_settings(era=MODERN, ttl=ttl, log=str(log))})
    await (await start_session([say("done")])).prompt()
    log.unlink()
    again = await start_session([say("done")], headless=True)  # which starts a known server with its first call
    await again.prompt()
    assert "mcp__tiny__echo" in again.tools()
    assert log.exists() != is_used
    (stored,) = (home / ".cache/odin/mcp").glob("*.json")
    if is_used:  # until it has expired
        entry = json.loads(stored.read_bytes())
        stored.write_text(json.dumps({**entry, "expires_at": entry["expires_at"] - 3600}))
        late = await start_session([say("done")], headless=True)
        await late.prompt()
        assert "tools/list" in log.read_text()


async def test_expired_tools_are_used_if_the_server_does_not_answer(
    start_session: StartSession, home: Path, tmp_path: Path
):
    era = tmp_path / "era"
    era.write_text(MODERN)
    configure(home, {"tiny": make_server_settings(era_file=str(era))}, connect_s=60, wait_s=0.1)
    first = await start_session([say("done")])
    await first.prompt()
    await wait_for_state(first, "tiny", "ready")
    await first.client.close()
    era.unlink()
    os.mkfifo(era)  # opening it waits for ever
    session = await start_session([say("done")], headless=True)
    await session.prompt()
    assert "mcp__tiny__echo" in session.tools()
    assert session.warnings() == []
    await session.client.close()


class StatelessHttpServer(FaultyHttpServer):
    """A server of 2026-07-28 over HTTP, which refuses a handshake in one of several ways."""

    def __init__(self, refusal: tuple[int, bytes, bytes]) -> None:
        super().__init__([describe_tool("echo")])
        self.refusal = refusal

    async def handle(self, send: Any, request: Any, headers: dict[str, str]) -> None:
        params: dict[str, Any] = request.get("params") or {}
        meta: dict[str, Any] = params.get("_meta") or {}
        version = meta.get("io.modelcontextprotocol/protocolVersion")
        # https://modelcontextprotocol.io/specification/2026-07-28/basic/transports: the headers say what the body says
        is_valid = headers.get("mcp-protocol-version") == version == MODERN and (
            headers.get("mcp-method") == request["method"]
        )
        if request["method"] == "initialize" or not is_valid:
            await self.reply(send, *self.refusal)
        elif request["method"] == "server/discover":
            found: dict[str, Any] = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
            await self.answer(send, request, {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **found})
        elif request["method"] == "tools/list":
            hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            await self.answer(send, request, {"tools": self.tools, **hints})
        else:
            text = {"type": "text", "text": "hello"}
            await self.answer(send, request, {"resultType": "complete", "content": [text]})


def make_error(code: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "No."}}).encode()


@pytest.mark.parametrize(
    "refusal",
    [
        (400, b"Missing MCP-Protocol-Version header", b"text/plain"),
        (400, make_error(-32020), b"application/json"),
        (404, b"", b"text/plain"),
        (405, b"", b"text/plain"),
    ],
    ids=["text", "error", "404", "405"],
)
async def test_a_server_without_a_handshake_is_used_over_http(
    start_session: StartSession, home: Path, refusal: tuple[int, bytes, bytes]
):
    with serve_app(StatelessHttpServer(refusal)) as url:
        configure(home, {"tiny": {"url": f"{url}/mcp"}})
        session = await start_session([call_tiny("echo"), say("done")], allowed_tools=("mcp__tiny",))
        await session.prompt()
        assert session.results() == ["hello"], session.warnings()
        await session.client.close()
