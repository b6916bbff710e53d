"""All terminal sizes, and bursts of resizes."""

import random

import pytest
from textual import events

from odin.core.call_events import Replied, TodosChanged
from odin.core.event import TurnEnded, TurnStarted
from odin.core.event_values import Todo
from odin.core.message import ReplyMessage, Text
from tests.soak import choose, soak
from tests.tui.conftest import Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions


def client_with_turns(turns: int = 30) -> FakeClient:
    client = FakeClient()
    for number in range(turns):
        words = f"Answer {number}: " + "many words that have to be broken into lines somewhere " * 4
        client.emit(
            TurnStarted(f"p{number}", f"Prompt {number}", "edit_mode"),
            TodosChanged((Todo("1", "First", "completed"), Todo("2", "Second", "in_progress"))),
            Replied(ReplyMessage((Text(words),))),
            TurnEnded(f"p{number}", "end_turn"),
        )
    return client


async def resize(stage: Stage, width: int, height: int) -> None:
    await stage.pilot.resize_terminal(width, height)
    await stage.pilot.pause()


@pytest.mark.parametrize("size", [(40, 10), (40, 12), (60, 20), (100, 30), (160, 45), (300, 80)])
async def test_the_composer_and_the_end_of_the_transcript_are_visible(size: tuple[int, int]) -> None:
    async with run_app(FakeSessions(client_with_turns()), size=size) as stage:
        await stage.shows("somewhere")
        await stage.until(lambda: stage.screen().split("\n")[-1].startswith(" edit"))
        lines = stage.screen().split("\n")
        assert len(lines) <= size[1]
        assert all(len(line) <= size[0] for line in lines)
        composer = stage.app.composer.region
        assert composer.bottom <= size[1]
        await stage.type("typed")
        await stage.shows("typed")


ODD_SIZES = ((0, 0), (0, 24), (80, 0), (1, 1), (2, 2), (80, 1), (1, 40), (5, 3), (12, 4), (20, 6), (300, 2))


@pytest.mark.slow
async def test_no_size_crashes_the_app() -> None:
    async with run_app(FakeSessions(client_with_turns(5)), size=(80, 24)) as stage:
        await stage.shows("somewhere")
        for number, size in enumerate(ODD_SIZES, 1):
            await stage.press("f4")
            await resize(stage, *size)
            await stage.type("x")
            await stage.press("f9", "f4")
            await resize(stage, 80, 24)
            await stage.shows("somewhere", "x" * number, "edit")


@soak
@pytest.mark.slow
async def test_a_burst_of_resizes_keeps_the_draft_and_follows_the_end() -> None:
    generator = random.Random(7)
    async with run_app(FakeSessions(client_with_turns()), size=(80, 24)) as stage:
        await stage.shows("somewhere")
        await stage.type("half a thought")
        for _ in range(choose(sample=10, full=100)):
            await stage.pilot.resize_terminal(generator.randint(1, 300), generator.randint(1, 80))
        await resize(stage, 80, 24)
        await stage.shows("half a thought", "somewhere")
        assert stage.app.transcript.following


@soak
@pytest.mark.slow
async def test_a_burst_of_resizes_keeps_the_scroll_position() -> None:
    generator = random.Random(8)
    async with run_app(FakeSessions(client_with_turns()), size=(80, 24)) as stage:
        await stage.shows("somewhere")
        await stage.press("ctrl+home")
        await stage.shows("Prompt 0")
        for _ in range(choose(sample=20, full=100)):
            await stage.pilot.resize_terminal(generator.randint(30, 200), generator.randint(8, 60))
        await resize(stage, 80, 24)
        await stage.shows("Prompt 0")
        assert not stage.app.transcript.following


async def test_the_transcript_is_drawn_when_its_width_is_known_late() -> None:
    """A busy machine may draw the empty view before the view learns its size."""
    async with run_app(FakeSessions(client_with_turns(5)), size=(80, 24)) as stage:
        await stage.shows("somewhere")
        view = stage.app.transcript
        view.render_cache.width = 0
        view.rebuild()
        await stage.until(lambda: "somewhere" not in stage.screen())
        view.post_message(events.Resize(view.size, view.virtual_size))
        await stage.shows("somewhere")
