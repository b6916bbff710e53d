"""What waits while Odin works: shown, edited, dropped, steered, given another mode; and told when it was taken."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from odin.core.event import (
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Attachment
from odin.core.op import ChangePrompt, DropPrompt, Op, Prompt
from odin.core.tui_settings import TuiSettings
from odin.testing import call, say
from odin.ui.tui.composer.draft import DraftParts, join_drafts
from tests.tui.conftest import LOOKS, OpenApp, Stage, play
from tests.tui.played import PlayedClient, PlayedSessions

BUSY = TurnStarted("t1", "work", "edit_mode")


async def busy(stage: Stage, client: PlayedClient) -> None:
    """A turn runs and two prompts wait."""
    client.play(BUSY)
    client.play(PromptQueued("p1", "then this\nand that", "plan_mode"), PromptQueued("p2", "last", "edit_mode"))
    await stage.shows("queued 1 · plan  then this …", "queued 2 · edit  last")


async def until_submitted(stage: Stage, client: PlayedClient, op: Op) -> None:
    await stage.until(lambda: op in client.submitted)


async def test_enter_queues_ctrl_s_steers() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        client.play(BUSY)
        await stage.send("wait")
        for key in ("ctrl+s", "alt+enter", "ctrl+enter"):
            await stage.type("now")
            await stage.press(key)
        await stage.until(lambda: len(client.submitted) == 4)
        assert [op.delivery for op in client.submitted if isinstance(op, Prompt)] == [None, "steer", "steer", "steer"]


async def test_the_list_follows_what_happens_and_goes_when_nothing_waits() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        assert not stage.app.input_panel.queue.display
        await busy(stage, client)
        client.play(PromptChanged("p1", "something else", "ask_mode", "steer"))
        await stage.shows("steering 1 · ask  something else")
        client.play(PromptInjected("p1", "something else", "ask_mode", "t1"))
        await stage.shows("queued 1 · edit  last")
        client.play(TurnEnded("t1", "end_turn"), TurnStarted("p2", "last", "edit_mode"))
        await stage.until(lambda: not stage.app.input_panel.queue.display)


@asynccontextmanager
async def interrupted(open_app: OpenApp, *queued: str, draft: str = "", key: str = "escape") -> AsyncGenerator[Stage]:
    """A real session whose turn is interrupted while these prompts are queued and this draft is being written."""
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
async def test_after_an_interrupt_queued_prompts_are_back_in_the_composer(open_app: OpenApp, key: str) -> None:
    async with interrupted(open_app, "then this", "and that", key=key) as stage:
        await stage.until(lambda: stage.app.composer.text == "then this\n\nand that")
        await stage.until(lambda: not stage.app.input_panel.queue.display)
        assert (await stage.app.client.snapshot()).queue == ()
        assert "sent while Odin was working" not in stage.screen()
        await stage.press("enter")
        await stage.shows("Answered.")


@pytest.mark.slow
@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_beside_a_draft_they_stay_queued_and_the_draft_stays(open_app: OpenApp, key: str) -> None:
    async with interrupted(open_app, "then this", draft="my draft", key=key) as stage:
        await stage.shows("1 queued prompt is paused", "paused 1 · edit  then this")
        assert stage.app.composer.text == "my draft"
        await stage.press("ctrl+q", "e")
        assert stage.app.composer.text == "then this"


async def test_prompts_of_different_modes_are_not_joined() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await busy(stage, client)
        queued = stage.app.input_panel.queue.queued.prompts
        client.shot["queue"] = tuple(replace(prompt, paused=True) for prompt in queued)
        client.play(TurnEnded("t1", "interrupted", "", 1))
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


@pytest.mark.slow
async def test_a_waiting_prompt_is_edited() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await busy(stage, client)
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


async def test_up_on_an_empty_prompt_edits_the_newest_one_that_waits() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await busy(stage, client)
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
async def test_each_key_of_the_list(key: str, op: Op) -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await busy(stage, client)
        await stage.press("ctrl+q", "k", "j", key)
        await until_submitted(stage, client, op)
        client.answers[type(op)] = False
        await stage.press(key)
        await stage.shows("This prompt has already left the queue.")


@pytest.mark.parametrize("key", ["escape", "i", "ctrl+q"])
async def test_back_to_the_prompt(key: str) -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await busy(stage, client)
        await stage.press("ctrl+q")
        await stage.shows("› queued 2 · edit  last", "e edit  d drop")
        await stage.press(key)
        await stage.until(lambda: stage.app.composer.has_focus)
        assert client.submitted == []


async def test_the_list_by_mouse() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await busy(stage, client)
        await stage.pilot.click("#queue", offset=(6, 0))
        await stage.type("d")
        assert stage.app.composer.text == "d" and client.submitted == []
        await stage.press("backspace")
        await stage.pilot.double_click("#queue", offset=(6, 0))
        await stage.until(lambda: stage.app.composer.text == "then this\nand that")


async def test_ctrl_q_says_when_nothing_waits() -> None:
    async with play(PlayedSessions(PlayedClient())) as stage:
        await stage.press("ctrl+q")
        await stage.shows("The queue is empty.")
        assert stage.app.composer.has_focus


async def test_the_last_one_that_is_dropped_gives_the_keys_back() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await busy(stage, client)
        await stage.press("ctrl+q")
        client.play(PromptDropped("p1"), PromptDropped("p2"))
        await stage.until(lambda: stage.app.composer.has_focus)
        assert not stage.app.input_panel.queue.display


async def test_what_is_taken_while_it_is_edited_is_no_loss() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await busy(stage, client)
        await stage.press("up")
        await stage.type(" words of mine")
        client.play(TurnEnded("t1", "end_turn"), TurnStarted("p2", "last", "edit_mode"))
        await stage.shows("has already been sent")
        assert stage.app.composer.text == "last words of mine"
        assert stage.app.composer.editing_id == ""


async def test_what_could_not_be_saved_is_a_draft_again() -> None:
    client = PlayedClient()
    client.answers[ChangePrompt] = False
    async with play(PlayedSessions(client)) as stage:
        await busy(stage, client)
        await stage.press("up")
        await stage.type("!")
        await stage.press("enter")
        await stage.shows("This prompt has already left the queue.")
        assert stage.app.composer.text == "last!"


async def test_prompts_of_an_earlier_run_rest_and_follow_the_next_one() -> None:
    client = PlayedClient([PromptQueued("old", "left over", "edit_mode")])
    async with play(PlayedSessions(client)) as stage:
        await stage.shows("paused 1 · edit  left over")
        await stage.send("go on")
        await until_submitted(stage, client, ChangePrompt("old", delivery="queue"))
        assert isinstance(client.submitted[0], Prompt)


@pytest.mark.slow
async def test_what_an_interrupt_laid_down_is_marked_and_waits_until_it_is_sent(open_app: OpenApp) -> None:
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


async def test_nothing_rests_in_a_session_that_is_at_work() -> None:
    client = PlayedClient([BUSY, PromptQueued("p1", "next", "edit_mode")])
    async with play(PlayedSessions(client)) as stage:
        client.play(PromptQueued("p2", "later", "edit_mode"))
        await stage.shows("queued 1 · edit  next", "queued 2 · edit  later")


async def test_many_are_counted() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        client.play(BUSY)
        client.play(*(PromptQueued(f"p{number}", f"number {number}", "edit_mode") for number in range(1, 10)))
        await stage.shows("queued 5 · edit  number 5", "4 more")
        await stage.press("ctrl+q")
        await stage.shows("› queued 9 · edit  number 9")
        assert "number 4" not in stage.screen()


async def test_a_real_session_answers_what_waits_and_takes_what_steers(open_app: OpenApp, workspace: Path) -> None:
    gate = workspace / "gate"
    script: list[Any] = [
        call("Bash", {"command": f"until test -e {gate}; do sleep 0.05; done", "description": "wait"}),
        say("Steered."),
        say("Second."),
    ]
    async with open_app(script, yes=True) as stage:
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


@LOOKS
async def test_pictures_of_what_waits(size: tuple[int, int], theme: str) -> None:
    settings = TuiSettings(bell=False, title=False, theme=theme)  # pyright: ignore[reportArgumentType]
    past = [PromptQueued("p0", "write the changelog, too", "edit_mode")]
    client = PlayedClient(past)
    async with play(PlayedSessions(client), size=size, settings=settings, clock=lambda: client.now) as stage:
        client.play(PromptQueued("p1", "how would we split it?\n1. by room", "plan_mode", "steer"))
        await stage.shows("paused", "steering 2 · plan")
        await stage.type("and a test for it")
        await stage.press("ctrl+q")
        await stage.shows("› steering 2 · plan")
        await stage.pictured(f"queue-{size[0]}x{size[1]}-{theme}")
