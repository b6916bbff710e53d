"""The session picker: search, preview, resume, rename, delete, copy and export."""

from typing import Any

import pytest
from textual.widgets import Input

from odin.core.client import SessionSummary
from odin.testing import say
from odin.ui.tui.dialogs.sessions import SessionPicker
from tests.tui.conftest import SIZES_AND_THEMES, OpenApp, Stage, run_app
from tests.tui.fake_sessions import START, FakeClient, FakeSessions

SIZES = [pytest.param((40, 12), marks=pytest.mark.slow), (100, 30)]


def make_summaries(count: int = 30) -> list[SessionSummary]:
    return [
        SessionSummary(
            f"2026010112{number:07}",
            START - 3600 * number,
            title=f"Session {number} about {'parsers' if number % 2 else 'lexers'}",
            first="What is this?",
            turns=number + 1,
            model="anthropic/claude-sonnet-4-5",
            cost_usd=0.02 * number,
            locked="process 7 on desk" if number == 2 else "",
            forked_from="20250101120000000" if number == 3 else "",
        )
        for number in range(count)
    ]


def sessions_with(count: int = 30) -> FakeSessions:
    here, other = FakeClient(session="20260101120000000"), FakeClient(session="20260101120000001")
    return FakeSessions(here, other, summaries=make_summaries(count))


def get_picker(stage: Stage) -> SessionPicker:
    screen = stage.app.screen
    assert isinstance(screen, SessionPicker)
    return screen


async def open_picker(stage: Stage, words: str = "") -> SessionPicker:
    await stage.app.run_command("sessions", words)
    await stage.until(lambda: isinstance(stage.app.screen, SessionPicker) and get_picker(stage).rows.items)
    return get_picker(stage)


async def create_two_sessions(stage: Stage) -> tuple[str, str]:
    """Create a session about parsers and then one about lexers, which stays open, and return their ids."""
    await stage.send("Explain parsers")
    await stage.shows("Parsers make trees.")
    await stage.idle()
    first = (await stage.app.client.get_info()).session
    await stage.send("/new")
    await stage.until(lambda: stage.app.info is not None and stage.app.info.session != first)
    await stage.send("Explain lexers")
    await stage.shows("Lexers make tokens.")
    await stage.idle()
    return first, (await stage.app.client.get_info()).session


SCRIPT = [say("Parsers make trees."), say("Lexers make tokens."), say("More.")]


async def test_resume_without_an_id_opens_the_picker_and_enter_resumes(open_app: OpenApp) -> None:
    async with open_app(SCRIPT) as stage:
        first, second = await create_two_sessions(stage)
        await stage.send("/resume")
        await stage.shows("Sessions", "Explain parsers", "Explain lexers", "current")
        await stage.type("pars")
        await stage.until(lambda: [item.id for item in get_picker(stage).rows.items] == [first])
        await stage.shows("Parsers make trees.")
        await stage.press("enter")
        await stage.until(lambda: stage.app.info is not None and stage.app.info.session == first)
        await stage.shows("Resumed Explain parsers, 1 prompt.")
        assert "Lexers make tokens." not in stage.screen()
        await stage.send("And more?")
        await stage.shows("More.")
        assert "Parsers make trees." in str(stage.server.requests[-1].body)
        assert second != first


async def test_a_failed_resume_keeps_the_current_session(open_app: OpenApp) -> None:
    async with open_app(SCRIPT) as stage:
        _, second = await create_two_sessions(stage)
        await stage.send("/resume nothing of that name")
        await stage.shows("There is no session")
        assert stage.app.info is not None and stage.app.info.session == second
        assert "Lexers make tokens." in stage.screen()


async def test_new_and_fork_are_refused_during_a_turn(open_app: OpenApp) -> None:
    async with open_app([say("Never.").stall()]) as stage:
        await stage.send("Go")
        await stage.until(lambda: stage.app.executing)
        before = stage.app.info
        for command in ("/new", "/fork"):
            await stage.send(command)
            await stage.shows("The session is already answering a prompt.")
            await stage.until(lambda command=command: stage.app.composer.text == command)
            stage.app.composer.clear_draft()
        assert stage.app.info == before
        await stage.press("escape")
        await stage.idle()


@pytest.mark.slow
async def test_the_search_finds_words_in_answers(open_app: OpenApp) -> None:
    async with open_app(SCRIPT) as stage:
        first, _ = await create_two_sessions(stage)
        await open_picker(stage)
        await stage.type("trees")
        await stage.until(lambda: [item.id for item in get_picker(stage).rows.items] == [first])
        await stage.shows("Found (answer):", "Parsers make trees.")


async def test_sessions_are_renamed_and_deleted_except_the_current_one(open_app: OpenApp) -> None:
    async with open_app(SCRIPT) as stage:
        first, second = await create_two_sessions(stage)
        await open_picker(stage)
        await stage.press("down", "f2")
        await stage.shows("Rename session")
        stage.app.screen.query_one("#line", Input).value = ""
        await stage.type("Trees and leaves")
        await stage.press("enter")
        await stage.shows("Trees and leaves")
        found = {item.id: item.title for item in await stage.app.sessions.list_sessions()}
        assert found[first] == "Trees and leaves"
        get_picker(stage).rows.move_to([item.id for item in get_picker(stage).rows.items].index(second))
        await stage.press("delete")
        await stage.shows("Delete", "y yes")
        await stage.press("y")
        await stage.shows("The current session cannot be deleted.")
        get_picker(stage).rows.move_to([item.id for item in get_picker(stage).rows.items].index(first))
        await stage.press("delete", "n")
        assert len(await stage.app.sessions.list_sessions()) == 2
        await stage.press("delete", "y")
        await stage.until(lambda: [item.id for item in get_picker(stage).rows.items] == [second])
        assert [item.id for item in await stage.app.sessions.list_sessions()] == [second]


@pytest.mark.slow
async def test_f5_copies_the_marked_session(open_app: OpenApp) -> None:
    async with open_app(SCRIPT) as stage:
        first, second = await create_two_sessions(stage)
        await open_picker(stage, "parsers")
        await stage.until(lambda: get_picker(stage).rows.marked is not None)
        await stage.press("f5", "y")
        await stage.shows("Continuing in a copy.", "Parsers make trees.")
        info = await stage.app.client.get_info()
        assert info.session not in (first, second)
        assert any(item.forked_from == first for item in await stage.app.sessions.list_sessions())


async def test_a_fork_at_a_prompt_returns_the_prompt_to_the_composer(open_app: OpenApp) -> None:
    async with open_app([say("One."), say("Two."), say("Other.")]) as stage:
        await stage.send("First?")
        await stage.shows("One.")
        await stage.idle()
        await stage.send("Second?")
        await stage.shows("Two.")
        await stage.idle()
        await stage.send("/fork 1")
        await stage.until(lambda: stage.app.composer.text == "Second?")
        await stage.until(lambda: "Two." not in stage.screen())
        await stage.press("enter")
        await stage.shows("Other.")
        assert "Two." not in str(stage.server.requests[-1].body)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_every_key_of_the_picker(size: tuple[int, int]) -> None:
    async with run_app(sessions_with(), size=size, clock=lambda: START) as stage:
        await open_picker(stage)
        rows = get_picker(stage).rows
        await stage.press("down", "down")
        assert rows.mark == 2
        await stage.press("up")
        assert rows.mark == 1
        await stage.press("pagedown")
        assert rows.mark > 2
        await stage.press("ctrl+end")
        assert rows.mark == 29 and "Session 29" in stage.screen()
        await stage.press("pageup", "ctrl+home")
        assert rows.mark == 0
        await stage.press("tab", "j", "j", "k", "G")
        assert rows.mark == 29
        await stage.press("g", "slash")
        await stage.type("session 13")
        await stage.until(lambda: len(rows.items) == 1)
        assert "Session 13" in stage.screen() and "Session 12" not in stage.screen()
        await stage.press("f6")
        await stage.shows("Exported to")
        await stage.press("escape")
        assert not isinstance(stage.app.screen, SessionPicker)


@pytest.mark.slow
async def test_letters_are_actions_when_the_list_has_the_focus() -> None:
    sessions = sessions_with(3)
    async with run_app(sessions, clock=lambda: START) as stage:
        await open_picker(stage)
        await stage.press("tab", "j", "r")
        await stage.shows("Rename session")
        await stage.press("escape")
        assert isinstance(stage.app.screen, SessionPicker)
        await stage.press("r")
        stage.app.screen.query_one("#line", Input).value = "Another"
        await stage.press("enter")
        await stage.until(lambda: sessions.renamed == {"20260101120000001": "Another"})
        await stage.press("d", "y")
        await stage.until(lambda: len(get_picker(stage).rows.items) == 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_the_picker_with_the_mouse(size: tuple[int, int]) -> None:
    sessions = sessions_with()
    async with run_app(sessions, size=size, clock=lambda: START) as stage:
        shown = await open_picker(stage)
        await stage.pilot.click(shown.rows, offset=(5, 2))
        assert shown.rows.mark == 2
        await stage.pilot.click(shown.rows, offset=(5, 1))
        assert shown.rows.mark == 1
        await click_on(stage, "rename")
        await stage.shows("Rename session")
        await click_on(stage, "cancel")
        await click_on(stage, "delete")
        await stage.shows("Delete “Session 1", "permanently?")
        await click_on(stage, "no")
        assert len(shown.rows.items) == 30
        shown.rows.scroll_relative(y=3, animate=False)
        await stage.pilot.pause()
        await stage.until(lambda: "Session 3 " in stage.screen())
        shown.rows.scroll_home(animate=False)
        await stage.pilot.pause()
        await stage.pilot.click(shown.rows, offset=(5, 1))
        await stage.until(lambda: stage.app.info is not None and stage.app.info.session == "20260101120000001")
        shown = await open_picker(stage)
        await click_on(stage, "close")
        assert not isinstance(stage.app.screen, SessionPicker)


async def click_on(stage: Stage, words: str) -> None:
    """Click the last character of the lowest occurrence of these words."""
    await stage.shows(words)
    lines: Any = stage.screen().split("\n")
    row = max(number for number, line in enumerate(lines) if words in line)
    await stage.pilot.click(offset=(lines[row].rindex(words) + len(words) - 1, row))
    await stage.pilot.pause()


@pytest.mark.slow
async def test_five_thousand_sessions_are_filtered() -> None:
    async with run_app(sessions_with(5_000), clock=lambda: START) as stage:
        shown = await open_picker(stage)
        assert len(shown.rows.items) == 5_000
        await stage.type("4321")
        await stage.until(lambda: len(shown.rows.items) == 1)
        assert "Session 4321" in stage.screen()
        assert len(list(shown.query("*"))) < 30


async def test_control_characters_in_titles_are_escaped() -> None:
    evil = SessionSummary("20260101120000009", START, title="[red]x[/] \x1b[31mred\x07 \u202eback", turns=1)
    async with run_app(FakeSessions(FakeClient(), summaries=[evil]), clock=lambda: START) as stage:
        await open_picker(stage)
        await stage.shows("[red]x[/]", r"\x1b[31mred\x07", r"\u202eback")


@SIZES_AND_THEMES
async def test_snapshot(size: tuple[int, int], theme: Any) -> None:
    async with run_app(sessions_with(12), size=size, clock=lambda: START) as stage:
        stage.app.choose_theme(theme)
        await open_picker(stage)
        await stage.press("down")
        await stage.shows("Make it faster." if size[0] == 100 else "Session 1")
        await stage.assert_snapshot(f"sessions-{size[0]}x{size[1]}-{theme}")
