"""The app reports a session that is slow to open, fails, ends elsewhere or cannot write, and keeps running."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.app.sessions import open_switcher
from odin.config import Options
from odin.core.call_events import Replied, TextStreamed
from odin.core.client import Sessions
from odin.core.errors import OdinError
from odin.core.event import Envelope, SessionOpened, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text
from odin.core.op import Prompt
from odin.core.tui_settings import TuiSettings
from odin.testing import ScriptedServer, say
from odin.ui.slash_commands.reports import ErrorLog
from odin.ui.tui.app import OdinApp
from odin.ui.tui.keys import KEYS
from tests.tui.conftest import OpenApp, Stage, play
from tests.tui.played import PlayedClient, PlayedSessions

QUIET = TuiSettings(bell=False, title=False)


class Cut(PlayedClient):
    """A session whose event stream ends, optionally with an error."""

    def __init__(self, *past: Any, error: OdinError | None = None) -> None:
        super().__init__(past)
        self.error = error
        self.ended = asyncio.Event()

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        return self._until_the_end(super().stream_events(after))

    async def _until_the_end(self, events: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
        ending = asyncio.ensure_future(self.ended.wait())
        while True:
            coming = asyncio.ensure_future(anext(events))
            await asyncio.wait((ending, coming), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                break
            yield coming.result()
        if self.error is not None:
            raise self.error


PAST = (
    SessionOpened("~/project", "anthropic/claude-sonnet-4-5", "0.1.0"),
    TurnStarted("p1", "What is it?", "edit_mode"),
    Replied(ReplyMessage((Text("It is a parser."),))),
    TurnEnded("p1", "end_turn"),
)


async def test_the_session_ends_elsewhere_in_the_middle_of_a_turn() -> None:
    client = Cut(*PAST)
    async with play(PlayedSessions(client)) as stage:
        client.play(TurnStarted("p2", "And?", "edit_mode"), TextStreamed("And there is"))
        await stage.shows("And there is")
        client.ended.set()
        await stage.shows("The session was closed elsewhere", "odin --resume")
        assert not stage.app.executing
        await stage.shows("failed")
        await stage.type("still here")
        assert stage.app.composer.text == "still here"
        assert "It is a parser." in stage.screen()


async def test_the_way_to_the_session_is_lost_while_nothing_runs() -> None:
    client = Cut(error=OdinError("The other machine does not answer.", "Look at the network."))
    async with play(PlayedSessions(client)) as stage:
        client.ended.set()
        await stage.shows("The other machine does not answer. Look at the network.")
        assert stage.app.error_log.count


async def test_a_fault_of_a_watcher_is_not_silent() -> None:
    client = PlayedClient()

    class Faulty(ErrorLog):
        def handle_event(self, envelope: Envelope, live: bool) -> None:
            raise ValueError("a fault of our own")

    with pytest.raises(ValueError, match="a fault of our own"):
        async with play(PlayedSessions(client)) as stage:
            stage.app.observers.append(Faulty())
            client.play(TurnStarted("p1", "Go.", "edit_mode"))
            await stage.until(lambda: stage.app.failure is not None)
            assert stage.app.failure is not None
            raise stage.app.failure


@pytest.mark.slow
async def test_every_key_while_the_session_is_still_being_opened() -> None:
    """Prompts typed before the session is open are sent afterwards, in order; no key fails without a session."""
    client = PlayedClient()
    there = asyncio.Event()

    async def connect() -> Sessions:
        await there.wait()
        return PlayedSessions(client)

    app = OdinApp(connect, QUIET)
    async with app.run_test(size=(100, 30)) as pilot:
        stage = Stage(app, pilot, None)
        await stage.send("the first")
        for key in KEYS:
            if key.name not in ("end_of_input", "leave", "suspend", "edit_outside"):
                await pilot.press(key.keys.split(",")[0].strip(), "escape")
        while len(app.screen_stack) > 1:
            await pilot.press("escape")
        assert app.is_running
        app.composer.clear_draft()
        app.composer.focus()
        await stage.send("the second")
        assert client.submitted == []
        there.set()
        await stage.until(lambda: len([op for op in client.submitted if isinstance(op, Prompt)]) >= 2)
        said = [op.text for op in client.submitted if isinstance(op, Prompt)]
        assert (said[0], said[-1]) == ("the first", "the second")


async def test_one_may_leave_while_the_session_is_still_being_opened() -> None:
    async def connect() -> Sessions:
        await asyncio.Event().wait()
        raise AssertionError

    app = OdinApp(connect, QUIET)
    async with app.run_test() as pilot:
        await pilot.press("ctrl+c", "ctrl+c")
    assert app.return_value == 0
    assert app.failure is None


@pytest.mark.parametrize("model", ["none/such", "anthropic/"])
async def test_a_session_that_cannot_be_opened_is_the_failure_of_the_app(model: str, workspace: Path) -> None:
    async def connect() -> Sessions:
        return await open_switcher(Options(cwd=str(workspace), model=model, env=dict(os.environ)))

    app = OdinApp(connect, QUIET)
    with pytest.raises(BaseException):  # noqa: B017 - Textual hands on what ended the app
        async with app.run_test() as pilot:
            while app.failure is None:
                await pilot.pause(0.02)
    assert isinstance(app.failure, OdinError)
    assert app.failure.describe()


class Slow(PlayedSessions):
    """Resuming a session takes until the test releases it."""

    def __init__(self, *clients: Any) -> None:
        super().__init__(*clients)
        self.gates = [asyncio.Event(), asyncio.Event()]
        self.begun = 0

    async def resume(self, session: str) -> Any:
        self.begun += 1
        client: Any = await super().resume(session)
        client.gate = self.gates[self.begun - 1]
        return client


class Late(PlayedClient):
    """`get_info` returns when the test releases it."""

    gate: asyncio.Event | None = None

    async def get_info(self) -> Any:
        if self.gate is not None:
            await self.gate.wait()
        return await super().get_info()


async def test_who_goes_to_two_sessions_at_once_sees_the_one_that_is_open() -> None:
    one = Late(session="20260101120000001")
    two = Late([TurnStarted("p2", "Question of the second", "edit_mode")], session="20260101120000002")
    three = Late([TurnStarted("p3", "Question of the third", "edit_mode")], session="20260101120000003")
    sessions = Slow(one, two, three)
    async with play(sessions) as stage:
        moving = stage.app.commands.navigation
        stage.app.run_in_background(moving.resume_session(two.session))
        stage.app.run_in_background(moving.resume_session(three.session))
        await stage.until(lambda: sessions.begun)
        sessions.gates[1].set()
        await stage.pilot.pause(0.1)
        sessions.gates[0].set()
        await stage.shows("Question of the third")
        await stage.until(lambda: sessions.begun == 2)
        assert stage.app.info is not None
        assert stage.app.info.session == three.session
        three.play(TextStreamed("Only of the third"))
        await stage.shows("Only of the third")
        two.play(TextStreamed("Nobody hears this"))
        await stage.pilot.pause(0.1)
        assert "Nobody hears this" not in stage.screen()


async def test_a_log_that_cannot_be_written_any_more(
    open_app: OpenApp, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt returns to the composer with the reason, and can be sent once the disk has room again."""
    from odin.session import log

    with ScriptedServer([say("One."), say("Two.")]) as server:
        async with open_app(server=server) as stage:
            await stage.send("first")
            await stage.shows("One.")
            await stage.idle()

            def full(fd: int, data: bytes) -> None:
                raise OSError(28, "No space left on device")

            with monkeypatch.context() as patch:
                patch.setattr(log, "_write_all", full)
                await stage.send("second")
                await stage.shows("No space left on device")
                await stage.pilot.pause(0.2)
                assert stage.app.is_running
            if stage.app.composer.text != "second":
                await stage.press("up")
            assert stage.app.composer.text == "second"
            await stage.press("enter")
            await stage.shows("Two.")
