"""Queued prompts: shown, edited, dropped, steered, given another mode, and restored after an interrupt."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from odin.core.event import (
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptPaused,
    PromptQueued,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Attachment
from odin.core.op import ChangePrompt, DropPrompt, Op, Prompt
from odin.core.tui_settings import TuiSettings
from odin.testing import call, say
from odin.ui.tui.composer.draft import DraftParts, join_drafts
from tests.tui.conftest import SIZES_AND_THEMES, OpenApp, Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

BUSY = TurnStarted("t1", "work", "edit_mode")


async def queue_two_prompts(stage: Stage, client: FakeClient) -> None:
    """Start a turn and queue two prompts."""
    client.emit(BUSY)
    client.emit(PromptQueued("p1", "then this\nand that", "plan_mode"), PromptQueued("p2", "last", "edit_mode"))
    await stage.shows("queued 1 · plan  then this …", "queued 2 · edit  last")


async def until_submitted(stage: Stage, client: FakeClient, op: Op) -> None:
    await stage.until(lambda: op in client.submitted)


async def test_enter_queues_and_ctrl_s_steers() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        client.emit(BUSY)
        await stage.send("wait")
        for key in ("ctrl+s", "ctrl+enter"):
            await stage.type("now")
            await stage.press(key)
        await stage.until(lambda: len(client.submitted) == 3)
        assert [op.delivery for op in client.submitted if isinstance(op, Prompt)] == [None, "steer", "steer"]


async def test_the_queue_panel_follows_events_and_hides_when_empty() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        assert not stage.app.input_panel.queue.display
        await queue_two_prompts(stage, client)
        client.emit(PromptChanged("p1", "something else", "ask_mode", "steer"))
        await stage.shows("steering 1 · ask  something else")
        client.emit(PromptInjected("p1", "something else", "ask_mode", turn="t1"))
        await stage.shows("queued 1 · edit  last")
        client.emit(TurnEnded("t1", "end_turn"), TurnStarted("p2", "last", "edit_mode"))
        await stage.until(lambda: not stage.app.input_panel.queue.display)


@asynccontextmanager
async def open_interrupted_session(
    open_app: OpenApp, *queued: str, draft: str = "", key: str = "escape"
) -> AsyncGenerator[Stage]:
    """Open a real session and interrupt its turn while these prompts are queued and the composer holds this draft."""
    gate = Event()
    script = [say("Counting " * 400).hold(gate, after=12), say("Answered.")]
    async with open_app(script) as stage:
        await stage.send("count")
        await stage.shows("Counting")
        for text in queued:
            await stage.send(text)
            await stage.shows(text)
        await stage.type(draft)
        await stage.press(key)
        gate.set()
        await stage.idle()
        yield stage


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_after_an_interrupt_queued_prompts_return_to_the_composer(open_app: OpenApp, key: str) -> None:
    async with open_interrupted_session(open_app, "then this", "and that", key=key) as stage:
        await stage.until(lambda: stage.app.composer.text == "then this\n\nand that")
        await stage.until(lambda: not stage.app.input_panel.queue.display)
        assert (await stage.app.client.snapshot()).queue == ()
        assert "sent while Odin was working" not in stage.screen()
        await stage.press("enter")
        await stage.shows("Answered.")


@pytest.mark.slow
async def test_after_an_interrupt_with_a_draft_prompts_stay_queued(open_app: OpenApp) -> None:
    async with open_interrupted_session(open_app, "then this", draft="my draft") as stage:
        await stage.shows("1 queued prompt is paused", "paused 1 · edit  then this")
        assert stage.app.composer.text == "my draft"
        await stage.press("ctrl+q", "e")
        assert stage.app.composer.text == "then this"


async def test_prompts_of_different_modes_are_not_joined() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        client.emit(PromptPaused("p1"), PromptPaused("p2"), TurnEnded("t1", "interrupted", "", 1))
        await stage.shows("2 queued prompts are paused")
        assert stage.app.composer.text == ""


def test_joined_drafts_keep_their_images_and_pastes_apart() -> None:
    first, second = DraftParts(), DraftParts()
    one = first.build_draft(f"see {first.add_image(Attachment('a.png', data=b'1'))}")
    two = second.build_draft(
        f"and {second.add_image(Attachment('b.png', data=b'2'))} {second.add_paste('x' * 9)} as well"
    )
    joined = join_drafts([one, two])
    assert joined.text == "see [image #1 a.png]\n\nand [image #2 b.png] [pasted #1: 9 characters] as well"
    assert [image.data for image in joined.list_images()] == [b"1", b"2"]
    assert joined.expand().endswith("xxxxxxxxx as well")


async def test_a_queued_prompt_is_edited() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        await stage.type("my draft")
        await stage.press("ctrl+q", "up", "e")
        await stage.shows("queued prompt:", "─ plan ─")
        assert stage.app.composer.text == "then this\nand that"
        await stage.type("!")
        await stage.press("f2", "enter")
        await until_submitted(stage, client, ChangePrompt("p1", "then this\nand that!", "edit_mode", attachments=()))
        assert stage.app.composer.text == "my draft"
        await stage.press("ctrl+q", "enter")
        assert stage.app.composer.text == "last"
        await stage.type(" not")
        await stage.press("escape")
        assert stage.app.composer.text == "my draft"
        assert len(client.submitted) == 1
        await stage.shows("─ edit ─")


async def test_up_in_an_empty_composer_edits_the_newest_queued_prompt() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        await stage.press("up")
        assert stage.app.composer.text == "last"
        await stage.type(" of all")
        await stage.press("enter")
        await until_submitted(stage, client, ChangePrompt("p2", "last of all", "edit_mode", attachments=()))


@pytest.mark.parametrize(
    ("key", "op"),
    [
        ("d", DropPrompt("p2")),
        ("delete", DropPrompt("p2")),
        ("s", ChangePrompt("p2", delivery="steer")),
        ("m", ChangePrompt("p2", mode="ask_mode")),
        ("w", ChangePrompt("p2", delivery="queue")),
    ],
)
async def test_each_key_of_the_queue_panel(key: str, op: Op) -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        await stage.press("ctrl+q", "k", "j", key)
        await until_submitted(stage, client, op)
        client.submit_results[type(op)] = False
        await stage.press(key)
        await stage.shows("This prompt has already left the queue.")


@pytest.mark.parametrize("key", ["escape", "i", "ctrl+q"])
async def test_keys_that_return_to_the_composer(key: str) -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        await stage.press("ctrl+q")
        await stage.shows("› queued 2 · edit  last", "e edit  d drop")
        await stage.press(key)
        await stage.until(lambda: stage.app.composer.has_focus)
        assert client.submitted == []


async def test_the_queue_panel_with_the_mouse() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        await stage.pilot.click("#queue", offset=(6, 0))
        await stage.type("d")
        assert stage.app.composer.text == "d" and client.submitted == []
        await stage.press("backspace")
        await stage.pilot.double_click("#queue", offset=(6, 0))
        await stage.until(lambda: stage.app.composer.text == "then this\nand that")


async def test_ctrl_q_says_when_the_queue_is_empty() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        await stage.press("ctrl+q")
        await stage.shows("The queue is empty.")
        assert stage.app.composer.has_focus


async def test_dropping_the_last_prompt_focuses_the_composer() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        await stage.press("ctrl+q")
        client.emit(PromptDropped("p1"), PromptDropped("p2"))
        await stage.until(lambda: stage.app.composer.has_focus)
        assert not stage.app.input_panel.queue.display


async def test_a_prompt_sent_while_it_is_edited_becomes_a_draft() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        await stage.press("up")
        await stage.type(" words of mine")
        client.emit(TurnEnded("t1", "end_turn"), TurnStarted("p2", "last", "edit_mode"))
        await stage.shows("has already been sent")
        assert stage.app.composer.text == "last words of mine"
        assert stage.app.composer.editing_id == ""


async def test_an_edit_that_cannot_be_saved_becomes_a_draft() -> None:
    client = FakeClient()
    client.submit_results[ChangePrompt] = False
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        await stage.press("up")
        await stage.type("!")
        await stage.press("enter")
        await stage.shows("This prompt has already left the queue.")
        assert stage.app.composer.text == "last!"


async def test_prompts_of_an_earlier_run_are_paused_until_the_next_prompt() -> None:
    client = FakeClient([PromptQueued("old", "left over", "edit_mode")])
    async with run_app(FakeSessions(client)) as stage:
        await stage.shows("paused 1 · edit  left over")
        await stage.send("go on")
        await until_submitted(stage, client, ChangePrompt("old", delivery="queue"))
        assert isinstance(client.submitted[0], Prompt)


async def test_a_prompt_paused_by_an_interrupt_waits_until_it_is_sent(open_app: OpenApp) -> None:
    gate = Event()
    script = [say("Counting " * 400).hold(gate, after=12), say("Something new."), say("What waited.")]
    async with open_app(script) as stage:
        await stage.send("count")
        await stage.shows("Counting")
        await stage.send("then this")
        await stage.shows("queued 1 · edit  then this")
        await stage.type("new")
        await stage.press("escape")
        await stage.shows("paused 1 · edit  then this")
        gate.set()
        await stage.press("enter")
        await stage.shows("Something new.")
        await stage.idle()
        await stage.shows("paused 1 · edit  then this")
        await stage.press("ctrl+q", "w")
        await stage.shows("What waited.")
        await stage.until(lambda: not stage.app.input_panel.queue.display)


async def test_a_paused_prompt_stays_paused_when_it_is_edited(open_app: OpenApp) -> None:
    async with open_interrupted_session(open_app, "then this", draft="go on") as stage:
        await stage.shows("paused 1 · edit  then this")
        await stage.press("ctrl+q", "e")
        await stage.type(" or that")
        await stage.press("enter")
        await stage.shows("paused 1 · edit  then this or that")
        await stage.press("ctrl+q", "m")
        await stage.shows("paused 1 · ask  then this or that")
        assert [item.paused for item in (await stage.app.client.snapshot()).queue] == [True]


async def test_a_paused_prompt_that_is_sent_while_odin_works_waits_for_its_turn() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await queue_two_prompts(stage, client)
        await stage.type("my draft")
        client.emit(PromptPaused("p1"), TurnEnded("t1", "interrupted"), TurnStarted("t2", "else", "edit_mode"))
        await stage.shows("paused 1 · plan  then this …", "queued 2 · edit  last")
        client.emit(PromptPaused("p1", paused=False), PromptChanged("p1", "then this", "plan_mode"))
        await stage.shows("queued 1 · plan  then this")


async def test_queued_prompts_of_a_running_session_are_not_paused() -> None:
    client = FakeClient([BUSY, PromptQueued("p1", "next", "edit_mode")])
    async with run_app(FakeSessions(client)) as stage:
        client.emit(PromptQueued("p2", "later", "edit_mode"))
        await stage.shows("queued 1 · edit  next", "queued 2 · edit  later")


async def test_a_long_queue_shows_how_many_prompts_are_hidden() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        client.emit(BUSY)
        client.emit(*(PromptQueued(f"p{number}", f"number {number}", "edit_mode") for number in range(1, 10)))
        await stage.shows("queued 5 · edit  number 5", "4 more")
        await stage.press("ctrl+q")
        await stage.shows("› queued 9 · edit  number 9")
        assert "number 4" not in stage.screen()


async def test_a_real_session_answers_queued_and_steering_prompts(open_app: OpenApp, workspace: Path) -> None:
    gate = workspace / "gate"
    script: list[Any] = [
        call("Bash", {"command": f"until test -e {gate}; do sleep 0.05; done", "description": "wait"}),
        say("Steered."),
        say("Second."),
    ]
    async with open_app(script, yes=True, config={"sandbox": {"backend": "landlock"}}) as stage:
        await stage.send("begin")
        await stage.until(lambda: stage.app.executing)
        await stage.send("and then")
        await stage.shows("queued 1 · edit  and then")
        await stage.type("not that")
        await stage.press("ctrl+s")
        await stage.shows("steering 2 · edit  not that")
        await stage.press("up")
        await stage.until(lambda: stage.app.composer.text == "not that")
        await stage.press("escape")
        await stage.press("ctrl+q", "up", "e")
        await stage.type(" more")
        await stage.press("enter")
        await stage.shows("queued 1 · edit  and then more")
        gate.touch()
        await stage.shows("Steered.", "Second.")
        await stage.until(lambda: not stage.app.input_panel.queue.display)
        assert "not that" in str(stage.server.requests[1].body)
        assert "and then more" in str(stage.server.requests[2].body)


@SIZES_AND_THEMES
async def test_queue_snapshot(size: tuple[int, int], theme: str) -> None:
    settings = TuiSettings(bell=False, title=False, theme=theme)  # pyright: ignore[reportArgumentType]
    past = [PromptQueued("p0", "write the changelog, too", "edit_mode")]
    client = FakeClient(past)
    async with run_app(FakeSessions(client), size=size, settings=settings, clock=lambda: client.now) as stage:
        client.emit(PromptQueued("p1", "how would we split it?\n1. by room", "plan_mode", "steer"))
        await stage.shows("paused", "steering 2 · plan")
        await stage.type("and a test for it")
        await stage.press("ctrl+q")
        await stage.shows("› steering 2 · plan")
        await stage.assert_snapshot(f"queue-{size[0]}x{size[1]}-{theme}")
