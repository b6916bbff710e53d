"""The app reports a session that is slow to open, fails, ends elsewhere or cannot write, and keeps running."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.config import Options
from odin.core.call_events import Replied, TextStreamed
from odin.core.client import Sessions
from odin.core.errors import OdinError
from odin.core.event import Envelope, SessionOpened, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text
from odin.core.op import Prompt
from odin.core.tui_settings import TuiSettings
from odin.host.workspace_sessions import open_workspace_sessions
from odin.testing import ScriptedServer, say
from odin.ui.slash_commands.reports import ErrorLog
from odin.ui.tui.app import OdinApp
from odin.ui.tui.keys import KEYS
from tests.tui.conftest import SHORT_WAITS, OpenApp, Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

SETTINGS = TuiSettings(bell=False, title=False)


class EndingClient(FakeClient):
    """A session whose event stream ends, optionally with an error."""

    def __init__(self, *past: Any, error: OdinError | None = None) -> None:
        super().__init__(past)
        self.error = error
        self.ended = asyncio.Event()

    def stream_events(self, after: int | None = None) -> AsyncIterator[Envelope]:
        return self._stream_until_ended(super().stream_events(after))

    async def _stream_until_ended(self, events: AsyncIterator[Envelope]) -> AsyncIterator[Envelope]:
        ending = asyncio.ensure_future(self.ended.wait())
        while True:
            next_event = asyncio.ensure_future(anext(events))
            await asyncio.wait((ending, next_event), return_when=asyncio.FIRST_COMPLETED)
            if not next_event.done():
                next_event.cancel()
                break
            yield next_event.result()
        if self.error is not None:
            raise self.error


PAST = (
    SessionOpened("~/project", "anthropic/claude-sonnet-4-5", "0.1.0"),
    TurnStarted("p1", "What is it?", "edit_mode"),
    Replied(ReplyMessage((Text("It is a parser."),))),
    TurnEnded("p1", "end_turn"),
)


async def test_a_session_closed_elsewhere_during_a_turn_is_reported() -> None:
    client = EndingClient(*PAST)
    async with run_app(FakeSessions(client)) as stage:
        client.emit(TurnStarted("p2", "And?", "edit_mode"), TextStreamed("And there is"))
        await stage.shows("And there is")
        client.ended.set()
        await stage.shows("The session was closed elsewhere", "odin --resume")
        assert not stage.app.executing
        await stage.shows("failed")
        await stage.type("still here")
        assert stage.app.composer.text == "still here"
        assert "It is a parser." in stage.screen()


async def test_a_lost_connection_is_reported_while_idle() -> None:
    client = EndingClient(error=OdinError("The other machine does not answer.", "Look at the network."))
    async with run_app(FakeSessions(client)) as stage:
        client.ended.set()
        await stage.shows("The other machine does not answer. Look at the network.")
        assert stage.app.error_log.count


async def test_an_exception_in_an_observer_fails_the_app() -> None:
    client = FakeClient()

    class FailingObserver(ErrorLog):
        def handle_event(self, envelope: Envelope, live: bool) -> None:
            raise ValueError("a fault of our own")

    with pytest.raises(ValueError, match="a fault of our own"):
        async with run_app(FakeSessions(client)) as stage:
            stage.app.observers.append(FailingObserver())
            client.emit(TurnStarted("p1", "Go.", "edit_mode"))
            await stage.until(lambda: stage.app.failure is not None)
            assert stage.app.failure is not None
            raise stage.app.failure


@pytest.mark.slow
async def test_all_keys_work_while_the_session_is_opening() -> None:
    """Prompts typed before the session is open are sent afterwards, in order; no key fails without a session."""
    client = FakeClient()
    connected = asyncio.Event()

    async def connect() -> Sessions:
        await connected.wait()
        return FakeSessions(client)

    app = OdinApp(connect, SETTINGS, timing=SHORT_WAITS)
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
        connected.set()
        await stage.until(lambda: len([op for op in client.submitted if isinstance(op, Prompt)]) >= 2)
        texts = [op.text for op in client.submitted if isinstance(op, Prompt)]
        assert (texts[0], texts[-1]) == ("the first", "the second")


async def test_ctrl_c_exits_while_the_session_is_opening() -> None:
    async def connect() -> Sessions:
        await asyncio.Event().wait()
        raise AssertionError

    app = OdinApp(connect, SETTINGS, timing=SHORT_WAITS)
    async with app.run_test() as pilot:
        await pilot.press("ctrl+c", "ctrl+c")
    assert app.return_value == 0
    assert app.failure is None


@pytest.mark.parametrize("model", ["none/such", "anthropic/"])
async def test_a_session_that_cannot_be_opened_ends_the_app_with_its_error(model: str, workspace: Path) -> None:
    async def connect() -> Sessions:
        return await open_workspace_sessions(Options(cwd=str(workspace), model=model, env=dict(os.environ)))

    app = OdinApp(connect, SETTINGS, timing=SHORT_WAITS)
    with pytest.raises(BaseException):  # noqa: B017 - Textual re-raises what ended the app
        async with app.run_test() as pilot:
            while app.failure is None:
                await pilot.pause(0.02)
    assert isinstance(app.failure, OdinError)
    assert app.failure.describe()


class GatedSessions(FakeSessions):
    """Gives each resumed client a gate that the test opens."""

    def __init__(self, *clients: Any) -> None:
        super().__init__(*clients)
        self.gates = [asyncio.Event(), asyncio.Event()]
        self.resume_count = 0

    async def resume(self, session: str) -> Any:
        self.resume_count += 1
        client: Any = await super().resume(session)
        client.gate = self.gates[self.resume_count - 1]
        return client


class GatedClient(FakeClient):
    """`get_info` waits until the test opens the gate."""

    gate: asyncio.Event | None = None

    async def get_info(self) -> Any:
        if self.gate is not None:
            await self.gate.wait()
        return await super().get_info()


async def test_two_concurrent_resumes_show_the_session_resumed_last() -> None:
    one = GatedClient(session="20260101120000001")
    two = GatedClient([TurnStarted("p2", "Question of the second", "edit_mode")], session="20260101120000002")
    three = GatedClient([TurnStarted("p3", "Question of the third", "edit_mode")], session="20260101120000003")
    sessions = GatedSessions(one, two, three)
    async with run_app(sessions) as stage:
        navigation = stage.app.commands.navigation
        stage.app.run_in_background(navigation.resume_session(two.session))
        stage.app.run_in_background(navigation.resume_session(three.session))
        await stage.until(lambda: sessions.resume_count)
        sessions.gates[1].set()
        await stage.pilot.pause(0.1)
        sessions.gates[0].set()
        await stage.shows("Question of the third")
        await stage.until(lambda: sessions.resume_count == 2)
        assert stage.app.info is not None
        assert stage.app.info.session == three.session
        three.emit(TextStreamed("Only of the third"))
        await stage.shows("Only of the third")
        two.emit(TextStreamed("Nobody hears this"))
        await stage.pilot.pause(0.1)
        assert "Nobody hears this" not in stage.screen()


async def test_a_prompt_returns_to_the_composer_if_the_log_cannot_be_written(
    open_app: OpenApp, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt returns to the composer with the reason, and can be sent once the disk has room again."""
    from odin.session import log

    with ScriptedServer([say("One."), say("Two.")]) as server:
        async with open_app(server=server) as stage:
            await stage.send("first")
            await stage.shows("One.")
            await stage.idle()

            def fail_to_write(fd: int, data: bytes) -> None:
                raise OSError(28, "No space left on device")

            with monkeypatch.context() as patch:
                patch.setattr(log, "_write_all", fail_to_write)
                await stage.send("second")
                await stage.shows("No space left on device")
                await stage.pilot.pause(0.2)
                assert stage.app.is_running
            if stage.app.composer.text != "second":
                await stage.press("up")
            assert stage.app.composer.text == "second"
            await stage.press("enter")
            await stage.shows("Two.")


async def test_other_sessions_of_the_loop_keep_their_task_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> "asyncio.Task[Any]":
        return asyncio.Task(work, loop=loop, **more)

    def make_eager_task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> "asyncio.Task[Any]":
        raise AssertionError("a task was started by the factory of Textual")

    monkeypatch.setattr(asyncio, "eager_task_factory", make_eager_task, raising=False)
    loop, used = asyncio.get_running_loop(), list[object]()
    loop.set_task_factory(make_task)

    async def connect() -> Sessions:
        used.append(loop.get_task_factory())
        app.exit(7)
        return FakeSessions(FakeClient(PAST))

    app = OdinApp(connect, SETTINGS, timing=SHORT_WAITS)
    assert await app.run_async(headless=True, size=(80, 24)) == 7
    assert used == [make_task] == [loop.get_task_factory()]
