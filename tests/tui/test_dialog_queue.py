"""Permission requests and questions open one at a time and ignore keys that were meant for something else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.core.call_events import PermissionAnswered, PermissionAsked, QuestionsAnswered, QuestionsAsked
from odin.core.errors import UsageError
from odin.core.event import AnyEvent, Envelope, TurnEnded, TurnStarted
from odin.core.op import Answer, Interrupt, Op, Prompt
from odin.core.tui_settings import TuiSettings
from odin.testing import ScriptedCall, reply, say
from odin.ui.tui.dialogs.dialog import Dialog, RequestDialog
from tests.tui.conftest import OpenApp, Stage, TypistClock, run_app
from tests.tui.fake_sessions import START, FakeClient, FakeSessions
from tests.tui.test_permission_dialog import SCRIPT, wait_for_request, wait_until_closed
from tests.tui.test_request_snapshots import COMMAND, EDIT, QUESTIONS

TURN_STARTED = TurnStarted("p1", "Go.", "edit_mode")


class RejectingClient(FakeClient):
    """A session that rejects the first answer."""

    async def submit(self, op: Op) -> bool:
        if isinstance(op, Answer) and not self.submitted:
            self.submitted.append(op)
            raise UsageError("That rule cannot be read.", "Write another.")
        return await super().submit(op)


def list_answers(client: FakeClient) -> list[Op]:
    return [op for op in client.submitted if isinstance(op, Answer)]


def current_dialog(stage: Stage) -> RequestDialog[Any]:
    assert isinstance(stage.app.screen, RequestDialog)
    return stage.app.screen


async def test_a_request_leaves_the_keys_to_the_composer_until_it_is_focused() -> None:
    client, clock = FakeClient([TURN_STARTED]), TypistClock()
    async with run_app(FakeSessions(client), timing=clock.timing) as stage:
        await stage.type("I am still writ")
        client.emit(COMMAND)
        await stage.type("ing this")
        await stage.pilot.pause(0.1)
        assert not isinstance(stage.app.screen, RequestDialog), "opened while the user types"
        await clock.pause(stage)
        await stage.shows("git push origin main", "Tab to answer; what you type goes to the prompt", "writing this")
        await clock.pause(stage, 60)
        await stage.type(", say yes")
        await stage.press("enter")
        await stage.until(lambda: stage.app.composer.text == "")
        assert [op.text for op in client.submitted if isinstance(op, Prompt)] == ["I am still writing this, say yes"]
        await stage.type("and n")
        await stage.press("tab")
        assert "Tab to answer" not in stage.screen()
        await stage.press("y")
        await stage.until(lambda: list_answers(client) == [Answer("ask-2", "allow_once")])
        assert stage.app.composer.text == "and n"
        assert stage.app.focused is stage.app.composer


@pytest.mark.parametrize(("keys", "left"), [("hasty", "hasty"), ("may", "ay"), ("vast", "ast"), ("ok y", "ok y")])
async def test_a_word_typed_at_an_idle_request_is_no_answer_and_not_lost(keys: str, left: str) -> None:
    client, clock = FakeClient([TURN_STARTED]), TypistClock()
    async with run_app(FakeSessions(client), timing=clock.timing) as stage:
        client.emit(COMMAND)
        await stage.shows("git push origin main")
        await clock.pause(stage)
        assert current_dialog(stage).ready
        await stage.press(*(key if key != " " else "space" for key in keys))
        await stage.until(lambda: stage.app.composer.text == left)
        await stage.press("ctrl+c")
        await stage.until(lambda: stage.app.composer.text == "")
        assert client.submitted == []
        await stage.press("y")
        await stage.until(lambda: stage.app.composer.text == "y")
        await stage.press("backspace")
        await clock.pause(stage)
        await stage.press("y")
        await stage.until(lambda: list_answers(client) == [Answer("ask-2", "allow_once")])


async def test_a_request_closes_an_open_completion() -> None:
    client, clock = FakeClient([TURN_STARTED]), TypistClock()
    async with run_app(FakeSessions(client), timing=clock.timing) as stage:
        await stage.type("/und")
        await stage.until(lambda: stage.app.composer.popup.open)
        client.emit(COMMAND)
        await clock.pause(stage)
        await stage.shows("Tab to answer")
        assert not stage.app.composer.popup.open
        await stage.press("tab", "y")
        await stage.until(lambda: list_answers(client) == [Answer("ask-2", "allow_once")])
        assert stage.app.composer.text == "/und"


async def test_enter_at_the_end_of_a_sentence_saves_no_rule() -> None:
    client, clock = FakeClient([TURN_STARTED]), TypistClock()
    async with run_app(FakeSessions(client), timing=clock.timing) as stage:
        client.emit(COMMAND)
        await stage.shows("git push origin main")
        await clock.pause(stage)
        await stage.press("s", "e", "n", "d", "enter")
        await stage.shows("Press Enter again to allow it.")
        assert list_answers(client) == []
        await stage.press("escape", "s")
        clock.now += 2
        await stage.press("enter")
        await stage.until(lambda: len(list_answers(client)) == 1)


async def test_a_click_focuses_a_request_before_it_answers() -> None:
    client, clock = FakeClient([TURN_STARTED]), TypistClock()
    async with run_app(FakeSessions(client), timing=clock.timing) as stage:
        await stage.type("draft")
        client.emit(COMMAND)
        await clock.pause(stage)
        await stage.shows("Tab to answer")
        await stage.pilot.click("#answers", offset=(2, 0))
        assert list_answers(client) == []
        assert current_dialog(stage).ready
        stage.render_request()
        await stage.pilot.click("#answers", offset=(2, 0))
        await stage.until(lambda: list_answers(client) == [Answer("ask-2", "allow_once")])


async def test_a_second_request_is_not_answered_by_a_key_meant_for_the_first() -> None:
    client, clock = FakeClient([TURN_STARTED]), TypistClock()
    async with run_app(FakeSessions(client), timing=clock.timing) as stage:
        client.emit(EDIT, COMMAND)
        await stage.shows("Edit greet.py", "1 more waiting")
        await clock.pause(stage)
        await stage.type("yy")
        await stage.shows("Bash: Publish the branch")
        assert not current_dialog(stage).ready
        assert list_answers(client) == [Answer("ask-1", "allow_once")]
        assert not stage.app.composer.text
        await clock.pause(stage)
        await stage.press("n")
        await stage.until(lambda: len(list_answers(client)) == 2)


async def test_a_request_of_a_sub_agent_names_it_and_takes_no_note() -> None:
    client = FakeClient([TURN_STARTED])
    async with run_app(FakeSessions(client)) as stage:
        client.emit(COMMAND, agent="scout-1")
        await wait_for_request(stage, "scout-1 asks: Bash")
        await stage.press("m")
        await stage.shows("Fewer")
        assert "Allow with a note" not in stage.screen()
        await stage.press("w", "y")
        await stage.until(lambda: list_answers(client) == [Answer("ask-2", "allow_once")])


async def test_esc_at_a_request_of_a_sub_agent_stops_all_work() -> None:
    client = FakeClient([TURN_STARTED])
    async with run_app(FakeSessions(client)) as stage:
        client.emit(COMMAND, agent="scout-1")
        await wait_for_request(stage, "Esc denies and stops the work.")
        await stage.press("escape")
        await stage.until(lambda: client.submitted[-1:] == [Interrupt()])
        assert list_answers(client) == [Answer("ask-2", "stop")]


async def test_an_unsandboxed_run_can_only_be_allowed_once_or_denied() -> None:
    client = FakeClient([TURN_STARTED])
    outside = replace(COMMAND, rules=(), unsandboxed=True, reason="The sandbox kept it from the network.")
    async with run_app(FakeSessions(client)) as stage:
        client.emit(outside)
        await wait_for_request(stage, "Run this again outside the sandbox", "kept it from the network")
        assert "For this session" not in stage.screen()
        await stage.press("s", "d", "e")
        await stage.shows("cannot be edited")
        await stage.press("y")
        await stage.until(lambda: list_answers(client) == [Answer("ask-2", "allow_once")])


async def test_a_rejected_answer_keeps_the_dialog_open() -> None:
    client = RejectingClient([TURN_STARTED])
    async with run_app(FakeSessions(client)) as stage:
        client.emit(COMMAND)
        await wait_for_request(stage)
        await stage.press("s", "enter")
        await stage.shows("That rule cannot be read. Write another.", "Enter Save rule")
        await stage.press("enter")
        await stage.until(lambda: not isinstance(stage.app.screen, RequestDialog))
        assert len(list_answers(client)) == 2


async def test_the_end_of_the_turn_closes_all_requests() -> None:
    client = FakeClient([TURN_STARTED])
    async with run_app(FakeSessions(client)) as stage:
        client.emit(EDIT, COMMAND, QUESTIONS)
        await wait_for_request(stage, "2 more waiting")
        client.emit(TurnEnded("p1", "interrupted"))
        await stage.until(lambda: not isinstance(stage.app.screen, RequestDialog))
        await stage.pilot.pause(0.3)
        assert not isinstance(stage.app.screen, RequestDialog)


async def test_answered_requests_of_the_past_are_not_asked_again() -> None:
    done = PermissionAnswered("ask-1", "c1", True)
    client = FakeClient([TURN_STARTED, EDIT, done, QUESTIONS, QuestionsAnswered("ask-3", "c3"), COMMAND])
    async with run_app(FakeSessions(client)) as stage:
        await wait_for_request(stage, "git push origin main")
        assert "more waiting" not in stage.screen()


async def test_a_request_waits_until_another_dialog_is_closed() -> None:
    client = FakeClient([TURN_STARTED])
    async with run_app(FakeSessions(client)) as stage:
        other: Dialog[None] = Dialog()
        await stage.app.push_screen(other)
        client.emit(COMMAND)
        await stage.until(lambda: len(stage.app._notifications) > 0)
        assert stage.app.screen is other
        await stage.press("escape")
        await wait_for_request(stage, "git push origin main")


@pytest.mark.slow
@pytest.mark.parametrize("size", [(40, 12), (60, 20), (300, 60)], ids=str)
async def test_the_answers_are_visible_at_every_size(size: tuple[int, int]) -> None:
    client = FakeClient([TURN_STARTED])
    async with run_app(FakeSessions(client), size=size) as stage:
        client.emit(EDIT)
        await wait_for_request(stage, "greet.py", " y ", " n ", " m ")
        await stage.press("m")
        await stage.shows(" y ", " n ", " d ", " e ", "?", " m ")
        for key, words in (("s", "Save rule"), ("r", "Reason for the model:"), ("e", "Use this")):
            await stage.press(key)
            await stage.shows(words, "Esc")
            await stage.press("escape")
        await stage.press("pagedown", "end")
        await stage.shows('greet("Ann")')
        await stage.pilot.resize_terminal(50, 14)
        await stage.shows(" y ", "?")
        await stage.press("n")
        await stage.until(lambda: list_answers(client) == [Answer("ask-1", "deny")])


async def test_an_interrupt_outside_the_dialog_closes_it(open_app: OpenApp, workspace: Path) -> None:
    async with open_app([*SCRIPT, say("Again.")]) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.app.action_stop()
        await wait_until_closed(stage)
        assert not (workspace / "made").exists()
        await stage.send("Go on.")
        await stage.idle()
        assert stage.server.rejected == []


@pytest.mark.slow
async def test_ctrl_c_twice_exits_from_a_dialog() -> None:
    client = FakeClient([TURN_STARTED])
    async with run_app(FakeSessions(client)) as stage:
        client.emit(COMMAND)
        await wait_for_request(stage)
        await stage.press("ctrl+c", "ctrl+c")
        await stage.until(lambda: not stage.app.is_running)
        assert list_answers(client) == []


@pytest.mark.slow
async def test_answer_keys_can_be_configured() -> None:
    client = FakeClient([TURN_STARTED])
    settings = TuiSettings(bell=False, title=False, keys={"allow_once": "f5", "deny": "x"})
    async with run_app(FakeSessions(client), settings=settings) as stage:
        client.emit(COMMAND)
        await wait_for_request(stage, "F5 Allow once", "x Deny")
        await stage.press("y", "n")
        assert list_answers(client) == []
        await stage.press("tab", "f5")
        await stage.until(lambda: list_answers(client) == [Answer("ask-2", "allow_once")])


async def test_a_request_closes_when_another_session_opens() -> None:
    first, second = FakeClient([TURN_STARTED]), FakeClient(session="20260101130000001")
    sessions = FakeSessions(first, second)
    async with run_app(sessions) as stage:
        first.emit(COMMAND)
        await wait_for_request(stage)
        await sessions.resume("20260101130000001")
        await stage.app.show_session()
        await stage.until(lambda: not isinstance(stage.app.screen, RequestDialog))


async def test_two_calls_of_one_reply_are_asked_one_after_the_other(open_app: OpenApp, workspace: Path) -> None:
    calls = [ScriptedCall("ExecuteCommand", {"command": f"touch {name}"}, id=name) for name in ("one", "two")]
    async with open_app([reply(calls=calls), say("Done.")]) as stage:
        await stage.send("Make them.")
        await wait_for_request(stage, "touch one")
        await stage.press("y")
        await wait_for_request(stage, "touch two")
        await stage.press("n")
        await stage.shows("Done.")
        assert (workspace / "one").exists()
        assert not (workspace / "two").exists()


@pytest.mark.parametrize("question", [COMMAND, QUESTIONS], ids=["permission", "questions"])
@pytest.mark.parametrize("moments", [0, 1, 2, 3, 5, 8])
async def test_a_dialog_closes_if_the_turn_ends_while_it_is_mounting(
    question: PermissionAsked | QuestionsAsked, moments: int
) -> None:
    """A second request is queued and the turn ends before the widgets of the dialog are mounted."""
    client = FakeClient([TURN_STARTED])
    async with run_app(FakeSessions(client)) as stage:
        app = stage.app

        def deliver(event: AnyEvent) -> None:
            app.handle_session_event(Envelope(1, START, client.session, event), live=True)

        deliver(question)
        app.draw_frame()
        assert len(app.screen_stack) == 2
        for _ in range(moments):
            await asyncio.sleep(0)
        deliver(replace(EDIT, ask_id="the-other"))
        deliver(TurnEnded("p1", "interrupted"))
        await stage.until(lambda: len(app.screen_stack) == 1)
        assert app.failure is None
        await stage.type("on")
        assert app.composer.text == "on"
