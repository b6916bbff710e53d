"""The `start` fixture: opens a session in this process whose requests the scripted model server answers."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from odin.app import open_session
from odin.app.session_parts import SessionParts
from odin.config import Options
from odin.core.call_events import PermissionAsked
from odin.core.client import Client
from odin.core.event import AnyEvent, Envelope, TurnEnded, WorkEnded
from odin.core.event_values import Mode
from odin.core.op import AnswerPermission, Interrupt, Prompt
from odin.core.tool import Tool
from odin.engine.client import LocalClient
from odin.testing import ScriptedServer
from tests.waiting import TimeLimit

WITHOUT_VIEWS: dict[str, Any] = {"sandbox": {"backend": "landlock"}}
"""User settings with which commands change the project directly, for tests that look at it while a command runs."""

FAST = {"retry": {"base_s": 0.01}}
"""User settings of the tests: real retries with short waits."""


class Talk:
    """Drives one open session.

    `heard` keeps every event that was read. `answers` are given to permission requests in order, and `interrupt_on`
    is the type of event at which the turn is interrupted once.
    """

    def __init__(self, client: Client, server: ScriptedServer) -> None:
        self.client = client
        self.server = server
        self.heard: list[Envelope] = []
        self.interrupt_on: type[AnyEvent] | None = None
        self.answers: list[AnswerPermission] = []
        self._count = 0
        self._events = client.stream_events()

    @property
    def events(self) -> list[AnyEvent]:
        return [envelope.event for envelope in self.heard]

    def all(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def _list_kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    async def say(self, text: str, mode: Mode = "edit_mode") -> TurnEnded:
        """Send a prompt and return the end of its turn."""
        prompt_id = await self.submit(text, mode)
        return await self.until_end(prompt_id)

    async def submit(self, text: str, mode: Mode = "edit_mode") -> str:
        self._count += 1
        await self.client.submit(Prompt(f"p{self._count}", text, mode))
        return f"p{self._count}"

    def remaining(self) -> AsyncIterator[Envelope]:
        """Return the stream of events that were not read yet."""
        return self._events

    async def until(self, kind: type[AnyEvent]) -> None:
        """Wait for an event of this type; one that is already in the log counts."""
        async with TimeLimit(f"{kind.__name__} in the log"):
            async for envelope in self.client.stream_events(after=-1):
                if isinstance(envelope.event, kind):
                    return

    async def recorded_events(self, kind: type[Any]) -> list[Any]:
        """Return all events of this type that were recorded so far."""
        last = (await self.client.snapshot()).seq
        found: list[Any] = []
        async for envelope in self.client.stream_events(after=-1):
            if isinstance(envelope.event, kind):
                found.append(envelope.event)
            if envelope.seq >= last:
                break
        return found

    async def until_work_ended(self) -> None:
        """Wait until nothing works any more, and nothing is about to. What it has caused is recorded then."""
        async with TimeLimit("the end of all work"):
            async for envelope in self.client.stream_events(after=(await self.client.snapshot()).seq):
                if isinstance(envelope.event, WorkEnded):
                    return

    async def until_live(self, kind: type[AnyEvent]) -> None:
        """Read events up to the next one of this type."""
        async with TimeLimit(lambda: f"{kind.__name__}; heard so far: {self._list_kinds()}"):
            async for envelope in self._events:
                self.heard.append(envelope)
                if isinstance(envelope.event, kind):
                    return

    async def until_end(self, prompt_id: str) -> TurnEnded:
        """Read events until the turn of a prompt ends. Fail when no event comes within the limit."""
        async with TimeLimit(lambda: f"the end of {prompt_id}; heard so far: {self._list_kinds()}") as limit:
            async for envelope in self._events:
                limit.extend()
                self.heard.append(envelope)
                event = envelope.event
                if self.interrupt_on is not None and isinstance(event, self.interrupt_on):
                    self.interrupt_on = None
                    await self.client.submit(Interrupt())
                if isinstance(event, PermissionAsked):
                    await self.client.submit(replace(self.answers.pop(0), ask_id=event.ask_id))
                if isinstance(event, TurnEnded) and event.id == prompt_id:
                    return event
        raise AssertionError("the events ended before the turn did")


Start = Callable[..., Awaitable[Talk]]


@pytest.fixture
async def start(workspace: Path, home: Path) -> AsyncIterator[Start]:
    """start(script, api="anthropic", config={…}, **options) opens a session; the script answers its requests."""
    talks: list[Talk] = []

    async def open_talk(
        script: Any,
        api: Literal["anthropic", "openai", "google"] = "anthropic",
        *,
        env: dict[str, str] | None = None,
        server: Any = None,
        config: dict[str, Any] | None = None,
        own_tools: Sequence[Tool[Any]] = (),
        **options: Any,
    ) -> Talk:
        folder = home / ".config" / "odin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "odinconfig.json").write_text(json.dumps({**FAST, **(config or {})}))
        scripted_server = server or ScriptedServer(script)
        if server is None:
            scripted_server.start()
        settings: dict[str, Any] = {"cwd": str(workspace), "yes": True, **options}
        environ = {**os.environ, **scripted_server.env(api), **(env or {})}
        client = await open_session(Options(env=environ, **settings), tools=own_tools)
        talk = Talk(client, scripted_server)
        talks.append(talk)
        return talk

    yield open_talk
    for talk in talks:
        await talk.client.close()
        talk.server.stop()


def get_parts(client: Client) -> SessionParts:
    """Return the parts of an open session."""
    assert isinstance(client, LocalClient)
    return vars(client.session.deps.surroundings)["_parts"]
