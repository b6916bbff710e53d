"""When the app asks: one question at a time, never answered by a key that was meant for something else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.core.call_events import PermissionAnswered, PermissionAsked, QuestionsAnswered, QuestionsAsked
from odin.core.errors import UsageError
from odin.core.event import AnyEvent, Envelope, TurnEnded, TurnStarted
from odin.core.op import AnswerPermission, AnswerQuestions, Interrupt, Op
from odin.core.tui_settings import TuiSettings
from odin.testing import ScriptedCall, reply, say
from odin.ui.tui.dialogs.dialog import Dialog, RequestDialog
from tests.tui.conftest import OpenApp, Stage, play
from tests.tui.played import START, PlayedClient, PlayedSessions
from tests.tui.test_asking_pictures import COMMAND, EDIT, QUESTIONS
from tests.tui.test_permission_dialog import SCRIPT, asked, over

BEGUN = TurnStarted("p1", "Go.", "edit_mode")


class Refusing(PlayedClient):
    """A session that does not take the first answer."""

    async def submit(self, op: Op) -> bool:
        if isinstance(op, AnswerPermission) and not self.submitted:
            self.submitted.append(op)
            raise UsageError("That rule cannot be read.", "Write another.")
        return await super().submit(op)


def answers(client: PlayedClient) -> list[Op]:
    return [op for op in client.submitted if isinstance(op, AnswerPermission | AnswerQuestions)]


def dialog(stage: Stage) -> RequestDialog[Any]:
    assert isinstance(stage.app.screen, RequestDialog)
    return stage.app.screen


class Person:
    """Somebody who types on and on, until they rest."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._wait(3600.0)

    def _wait(self, seconds: float) -> None:
        self._monkeypatch.setattr("odin.ui.tui.dialogs.dialog.QUIET_S", seconds)
        self._monkeypatch.setattr("odin.ui.tui.dialog_queue.TYPING_S", seconds)

    async def rest(self, stage: Stage, *words: str) -> None:
        """Press nothing for so long that the question takes keys, then type on."""
        self._wait(0.01)
        if isinstance(stage.app.screen, RequestDialog):
            stage.app.screen._check_quiet()
        await asked(stage, *words)
        self._wait(3600.0)


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Person:
    return Person(monkeypatch)


async def test_keys_on_their_way_go_to_the_prompt_and_answer_nothing(person: Person) -> None:
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        client.play(COMMAND)
        await stage.until(lambda: isinstance(stage.app.screen, RequestDialog))
        await stage.press("y", "e", "s", "backspace")
        assert not dialog(stage).ready
        await stage.until(lambda: stage.app.composer.text == "ye")
        assert answers(client) == []
        await person.rest(stage)
        await stage.press("y")
        await stage.until(lambda: answers(client) == [AnswerPermission("ask-2", allow=True)])
        assert stage.app.composer.text == "ye"
        assert stage.app.focused is stage.app.composer


async def test_whoever_is_writing_is_not_interrupted(person: Person) -> None:
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        await stage.type("I am still writ")
        client.play(COMMAND)
        await stage.type("ing this")
        assert not isinstance(stage.app.screen, RequestDialog)
        assert stage.app.composer.text == "I am still writing this"
        await person.rest(stage, "git push origin main")
        await stage.press("n")
        await stage.until(lambda: answers(client) == [AnswerPermission("ask-2", allow=False)])
        assert stage.app.composer.text == "I am still writing this"


@pytest.mark.slow
async def test_a_second_question_waits_and_is_not_answered_by_the_key_for_the_first(person: Person) -> None:
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        client.play(EDIT, COMMAND)
        await person.rest(stage, "Edit greet.py", "1 more waiting")
        await stage.type("yy")
        await stage.shows("Bash: Publish the branch")
        assert not dialog(stage).ready
        assert answers(client) == [AnswerPermission("ask-1", allow=True)]
        assert not stage.app.composer.text
        await person.rest(stage)
        await stage.press("n")
        await stage.until(lambda: len(answers(client)) == 2)


@pytest.mark.slow
async def test_a_question_of_a_sub_agent_says_so_and_takes_no_note() -> None:
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        client.play(COMMAND, agent="scout-1")
        await asked(stage, "scout-1 asks: Bash")
        await stage.press("m")
        await stage.shows("Fewer")
        assert "Allow with a note" not in stage.screen()
        await stage.press("w", "y")
        await stage.until(lambda: answers(client) == [AnswerPermission("ask-2", allow=True)])


async def test_esc_at_a_question_of_a_sub_agent_stops_all_of_the_work() -> None:
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        client.play(COMMAND, agent="scout-1")
        await asked(stage, "Esc denies and stops the work.")
        await stage.press("escape")
        await stage.until(lambda: client.submitted[-1:] == [Interrupt()])
        assert answers(client) == [AnswerPermission("ask-2", allow=False, interrupt=True)]


async def test_running_outside_the_sandbox_is_allowed_once_or_not_at_all() -> None:
    client = PlayedClient([BEGUN])
    outside = replace(COMMAND, rules=(), unsandboxed=True, reason="The sandbox kept it from the network.")
    async with play(PlayedSessions(client)) as stage:
        client.play(outside)
        await asked(stage, "Run this again outside the sandbox", "kept it from the network")
        assert "For this session" not in stage.screen()
        await stage.press("s", "d", "e")
        await stage.shows("cannot be edited")
        await stage.press("y")
        await stage.until(lambda: answers(client) == [AnswerPermission("ask-2", allow=True)])


@pytest.mark.slow
async def test_a_refused_answer_keeps_the_question() -> None:
    client = Refusing([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        client.play(COMMAND)
        await asked(stage)
        await stage.press("s", "enter")
        await stage.shows("That rule cannot be read. Write another.", "Enter Save rule")
        await stage.press("enter")
        await stage.until(lambda: not isinstance(stage.app.screen, RequestDialog))
        assert len(answers(client)) == 2


async def test_the_end_of_the_turn_closes_everything() -> None:
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        client.play(EDIT, COMMAND, QUESTIONS)
        await asked(stage, "2 more waiting")
        client.play(TurnEnded("p1", "interrupted"))
        await stage.until(lambda: not isinstance(stage.app.screen, RequestDialog))
        await stage.pilot.pause(0.3)
        assert not isinstance(stage.app.screen, RequestDialog)


@pytest.mark.slow
async def test_a_question_that_was_answered_before_is_not_asked_again() -> None:
    done = PermissionAnswered("ask-1", "c1", True)
    client = PlayedClient([BEGUN, EDIT, done, QUESTIONS, QuestionsAnswered("ask-3", "c3"), COMMAND])
    async with play(PlayedSessions(client)) as stage:
        await asked(stage, "git push origin main")
        assert "more waiting" not in stage.screen()


@pytest.mark.slow
async def test_it_waits_until_another_dialog_is_closed() -> None:
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        other: Dialog[None] = Dialog()
        await stage.app.push_screen(other)
        client.play(COMMAND)
        await stage.until(lambda: len(stage.app._notifications) > 0)
        assert stage.app.screen is other
        await stage.press("escape")
        await asked(stage, "git push origin main")


@pytest.mark.slow
@pytest.mark.parametrize("size", [(40, 12), (60, 20), (300, 60)], ids=str)
async def test_the_answers_are_in_sight_at_every_size(size: tuple[int, int]) -> None:
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client), size=size) as stage:
        client.play(EDIT)
        await asked(stage, "greet.py", " y ", " n ", " m ")
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
        await stage.until(lambda: answers(client) == [AnswerPermission("ask-1", allow=False)])


@pytest.mark.slow
async def test_an_interrupt_from_elsewhere_takes_the_question_away(open_app: OpenApp, workspace: Path) -> None:
    async with open_app([*SCRIPT, say("Again.")]) as stage:
        await stage.send("Make it.")
        await asked(stage)
        await stage.app.action_stop()
        await over(stage)
        assert not (workspace / "made").exists()
        await stage.send("Go on.")
        await stage.idle()
        assert stage.server.rejected == []


@pytest.mark.slow
async def test_ctrl_c_leaves_from_a_dialog_too() -> None:
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        client.play(COMMAND)
        await asked(stage)
        await stage.press("ctrl+c", "ctrl+c")
        await stage.until(lambda: not stage.app.is_running)
        assert answers(client) == []


@pytest.mark.slow
async def test_other_keys_for_the_answers() -> None:
    client = PlayedClient([BEGUN])
    settings = TuiSettings(bell=False, title=False, keys={"allow_once": "f5", "deny": "x"})
    async with play(PlayedSessions(client), settings=settings) as stage:
        client.play(COMMAND)
        await asked(stage, "F5 Allow once", "x Deny")
        await stage.press("y", "n")
        assert answers(client) == []
        await stage.press("f5")
        await stage.until(lambda: answers(client) == [AnswerPermission("ask-2", allow=True)])


async def test_the_next_session_does_not_inherit_a_question() -> None:
    first, second = PlayedClient([BEGUN]), PlayedClient(session="20260101130000001")
    sessions = PlayedSessions(first, second)
    async with play(sessions) as stage:
        first.play(COMMAND)
        await asked(stage)
        await sessions.resume("20260101130000001")
        await stage.app.show_session()
        await stage.until(lambda: not isinstance(stage.app.screen, RequestDialog))


@pytest.mark.slow
async def test_two_calls_of_one_reply_are_asked_one_after_the_other(open_app: OpenApp, workspace: Path) -> None:
    calls = [ScriptedCall("ExecuteCommand", {"command": f"touch {name}"}, id=name) for name in ("one", "two")]
    async with open_app([reply(calls=calls), say("Done.")]) as stage:
        await stage.send("Make them.")
        await asked(stage, "touch one")
        await stage.press("y")
        await asked(stage, "touch two")
        await stage.press("n")
        await stage.shows("Done.")
        assert (workspace / "one").exists()
        assert not (workspace / "two").exists()


@pytest.mark.parametrize("question", [COMMAND, QUESTIONS], ids=["permission", "questions"])
@pytest.mark.parametrize("moments", [0, 1, 2, 3, 5, 8])
async def test_what_happens_while_the_dialog_is_being_put_together(
    question: PermissionAsked | QuestionsAsked, moments: int
) -> None:
    """Another question waits behind it, and both are settled, before its parts are on the screen."""
    client = PlayedClient([BEGUN])
    async with play(PlayedSessions(client)) as stage:
        app = stage.app

        def happens(event: AnyEvent) -> None:
            app.handle_session_event(Envelope(1, START, client.session, event), live=True)

        happens(question)
        app._draw()
        assert len(app.screen_stack) == 2
        for _ in range(moments):
            await asyncio.sleep(0)
        happens(replace(EDIT, ask_id="the-other"))
        happens(TurnEnded("p1", "interrupted"))
        await stage.until(lambda: len(app.screen_stack) == 1)
        assert app.failure is None
        await stage.type("on")
        assert app.composer.text == "on"
