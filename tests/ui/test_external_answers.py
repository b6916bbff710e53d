"""A permission request in a terminal that another client of the session answers."""

import asyncio
import os
import pty
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import PermissionAsked
from odin.core.client import Client
from odin.core.event import TurnEnded
from odin.core.op import AnswerPermission, Prompt
from odin.testing import ScriptedServer, call, say
from odin.ui.plain.dialog_queue import TerminalDialogs
from odin.ui.plain.tty import Tty
from odin.ui.progress import ProgressLine
from tests.waiting import TimeLimit, within_limit


class SessionTerminal:
    """A session whose permission requests appear on a pseudo-terminal of this process."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._keyboard, terminal = pty.openpty()
        self._terminal = os.fdopen(terminal, "r+b", buffering=0)
        tty = Tty(self._terminal, None)  # pyright: ignore[reportArgumentType]
        self.questions = TerminalDialogs(client, tty, ProgressLine(None))
        self.asked: asyncio.Queue[PermissionAsked] = asyncio.Queue()
        self._events = client.stream_events()
        self.turn = asyncio.create_task(self._follow())
        self.shown = ""
        os.set_blocking(self._keyboard, False)

    async def _follow(self) -> TurnEnded:
        async for envelope in self._events:
            self.questions.handle_event(envelope)
            if isinstance(envelope.event, PermissionAsked):
                self.asked.put_nowait(envelope.event)
            if isinstance(envelope.event, TurnEnded):
                return envelope.event
        raise AssertionError("the session is over")

    async def see(self, text: str) -> None:
        async with TimeLimit():
            while text not in self.shown:
                try:
                    self.shown += os.read(self._keyboard, 65536).decode()
                except BlockingIOError:
                    await asyncio.sleep(0.01)

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    async def close(self) -> None:
        self.turn.cancel()
        await self.questions.end()
        self._terminal.close()
        os.close(self._keyboard)


@asynccontextmanager
async def open_session_terminal(server: ScriptedServer, workspace: Path) -> AsyncGenerator[SessionTerminal]:
    env = {**os.environ, **server.env("anthropic")}
    client = await open_session(Options(cwd=str(workspace), env=env, can_ask=True))
    found = SessionTerminal(client)
    try:
        await client.submit(Prompt("p1", "Go."))
        yield found
    finally:
        await found.close()
        await client.close()


async def test_first_answer_counts_and_the_terminal_names_who_gave_it(workspace: Path) -> None:
    script = [
        call("ExecuteCommand", {"command": "touch one"}, id="c1"),
        call("ExecuteCommand", {"command": "touch two"}, id="c2"),
        say("Done."),
    ]
    with ScriptedServer(script) as server:
        async with open_session_terminal(server, workspace) as terminal:
            first = await within_limit(terminal.asked.get())
            await terminal.see("say why not: ")
            await terminal.client.submit(AnswerPermission(first.ask_id, allow=True, by="phone"))
            await terminal.see("This was answered elsewhere: allowed by phone.\r\n")
            second = await within_limit(terminal.asked.get())
            await terminal.see("touch two")
            await terminal.see(
                "This was answered elsewhere: allowed by phone.\r\nOdin asks: Keep what this command changed?"
            )
            terminal.type("n\n")
            ended = await within_limit(terminal.turn)
            assert ended.text == "Done."
            await terminal.client.submit(AnswerPermission(second.ask_id, allow=True, by="phone"))
        assert "The user discarded: created two." in server.requests[2].results["c2"]
    assert (workspace / "one").exists()
    assert not (workspace / "two").exists()
