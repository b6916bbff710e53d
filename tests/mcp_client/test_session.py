"""MCP servers in a session: tools in requests, calls through the gate, states, and servers that misbehave."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import PermissionAsked, QuestionsAsked, ToolEnded
from odin.core.event import AnyEvent, TurnEnded, Warned
from odin.core.event_values import ServerStatus
from odin.core.op import AnswerPermission, AnswerQuestions, Prompt
from odin.engine.client import LocalClient
from odin.testing import ScriptedServer, call, say

PROGRAM = str(Path(__file__).with_name("server.py"))


def tiny(**given: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", PROGRAM, json.dumps(given)]}


def configure(home: Path, servers: dict[str, Any], **limits: Any) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"mcp": servers, "mcp_limits": {"connect_s": 5, **limits}}
    (folder / "odinconfig.json").write_text(json.dumps(settings))


class Session:
    """A session with a scripted model. Permission requests are allowed, questions get `answers`."""

    def __init__(self, client: LocalClient, model: ScriptedServer) -> None:
        self.client = client
        self.model = model
        self.events: list[AnyEvent] = []
        self.asked: list[str] = []
        self.answers: tuple[tuple[str, ...], ...] = ()

    async def ask(self, text: str = "Go.", mode: Any = "edit_mode") -> TurnEnded:
        stream = self.client.stream_events()
        await self.client.submit(Prompt(os.urandom(4).hex(), text, mode))
        async with asyncio.timeout(30):
            async for envelope in stream:
                event = envelope.event
                self.events.append(event)
                if isinstance(event, PermissionAsked):
                    self.asked.append(event.name)
                    await self.client.submit(AnswerPermission(event.ask_id, True))
                elif isinstance(event, QuestionsAsked):
                    self.asked.append(event.questions[0].text)
                    await self.client.submit(AnswerQuestions(event.ask_id, self.answers, cancelled=not self.answers))
                elif isinstance(event, TurnEnded):
                    return event
        raise AssertionError

    def tools(self, number: int = 0) -> list[str]:
        """The names of the tools in the Nth request."""
        return [tool["name"] for tool in self.model.requests[number].json["tools"]]

    def results(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, ToolEnded)]

    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Warned)]

    async def state_of(self, name: str) -> ServerStatus:
        info = await self.client.get_info()
        return next(server for server in info.servers if server.name == name)


Open = Callable[..., Awaitable[Session]]


@pytest.fixture
async def opened(workspace: Path, home: Path) -> AsyncIterator[Open]:
    sessions: list[Session] = []

    async def make(script: list[Any], **options: Any) -> Session:
        model = ScriptedServer(script).__enter__()
        env = {**os.environ, **model.env("anthropic")}
        given: dict[str, Any] = {"cwd": str(workspace), "env": env, "can_ask": True, **options}
        client = await open_session(Options(**given))
        sessions.append(Session(client, model))
        return sessions[-1]

    yield make
    for session in sessions:
        await session.client.close()
        session.model.__exit__(None, None, None)


def use(tool: str, number: int = 1, **args: Any) -> Any:
    return call(f"mcp__tiny__{tool}", args, id=f"toolu_{number}")


async def test_a_tool_of_a_server_is_offered_asked_about_and_called(opened: Open, home: Path):
    configure(home, {"tiny": tiny()})
    session = await opened([use("echo", text="hello"), say("done")])
    await session.ask()
    assert {"mcp__tiny__echo", "mcp__tiny__write", "ReadMcpResource"} <= set(session.tools())
    assert session.asked == ["mcp__tiny__echo"]
    assert session.results() == ["echo: hello"]
    assert (await session.state_of("tiny")).state == "ready"
