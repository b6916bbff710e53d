"""The transcript under keys and mouse: cards, folding, search, copying, and keeping the scroll position."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odin.core.call_events import Replied, ReplyRolledBack, TextStreamed, ToolEnded, ToolStarted, UsageRecorded
from odin.core.event import AgentStarted, AnyEvent, CompactionChanged, TurnEnded, TurnStarted, Warned
from odin.core.message import Image, ReplyMessage, Text, Thinking, ToolCall, Usage
from odin.core.tui_settings import ThemeSetting, TuiSettings
from odin.testing import call, say
from odin.ui.transcript.blocks import AnswerBlock, CallBlock, PromptBlock, ReasoningBlock
from odin.ui.tui.transcript import TranscriptView
from tests.pictures import png
from tests.tui.conftest import OpenApp, Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions


def make_turn_events(number: int, answer: str = "") -> list[AnyEvent]:
    made = ToolCall(f"c{number}", "Read", {"file_path": f"/p/file{number}.py"})
    output = "\n".join(f"row {row} of file{number}" for row in range(30))
    return [
        TurnStarted(f"t{number}", f"Question {number}?", "edit_mode"),
        Replied(ReplyMessage((Thinking(f"Thought {number}."), made))),
        ToolStarted(made.id, "Read", made.args, made.args["file_path"]),
        ToolEnded(made.id, "Read", "success", output, f"Read /p/file{number}.py (lines 1-30)"),
        Replied(ReplyMessage((Text(answer or f"Answer {number}."),))),
        TurnEnded(f"t{number}", "end_turn"),
    ]


def make_turns(count: int) -> list[AnyEvent]:
    return [event for number in range(count) for event in make_turn_events(number)]


def sessions_with(events: list[AnyEvent]) -> tuple[FakeClient, FakeSessions]:
    client = FakeClient(events)
    return client, FakeSessions(client)


async def focus_transcript(stage: Stage, count: int) -> TranscriptView:
    """Wait until all past events are shown, focus the transcript and return it."""
    view = stage.app.transcript
    await stage.until(lambda: len(view.blocks) >= count)
    await stage.press("ctrl+up")
    await stage.until(lambda: view.has_focus)
    return view


def list_rows(stage: Stage) -> list[str]:
    """Return the rows of the transcript without the scroll bar."""
    return [line[:95].rstrip() for line in stage.screen().split("\n")][2:20]


def find_row(stage: Stage, words: str) -> int:
    lines = stage.screen().split("\n")
    return next(number for number, line in enumerate(lines) if words in line)


async def test_keys_move_among_the_cards() -> None:
    _, sessions = sessions_with(make_turns(12))
    async with run_app(sessions) as stage:
        view = await focus_transcript(stage, 60)
        assert isinstance(view.cursor, AnswerBlock) and view.cursor.text == "Answer 11."
        assert "▌ Answer 11." in stage.screen()
        await stage.press("k")
        assert isinstance(view.cursor, CallBlock)
        await stage.press("j")
        assert isinstance(view.cursor, AnswerBlock)
        await stage.press("g", "g")
        await stage.shows("▌ › Question 0?")
        await stage.press("G")
        await stage.shows("▌ Answer 11.")
        assert view.following
        await stage.press("i")
        assert stage.app.composer.has_focus


@pytest.mark.slow
async def test_folding_keeps_the_header_of_the_card_in_place() -> None:
    _, sessions = sessions_with(make_turns(6))
    async with run_app(sessions) as stage:
        view = await focus_transcript(stage, 30)
        await stage.press("k", "o")
        await stage.shows("Read /p/file5.py", "row 0 of file5", "row 19 of file5")
        await stage.press("space")
        await stage.until(lambda: "row 0 of file5" not in stage.screen())
        await stage.press("g", "j", "enter")
        await stage.shows("Thought 0.")
        assert find_row(stage, "▾ Thought") == 3
        await stage.press("O")
        await stage.until(lambda: all(block.folded is False for block in view.blocks if isinstance(block, CallBlock)))
        await stage.press("O")
        await stage.until(lambda: all(block.folded for block in view.blocks if isinstance(block, ReasoningBlock)))


@pytest.mark.slow
async def test_the_search_finds_folded_and_distant_text() -> None:
    _, sessions = sessions_with(make_turns(40))
    async with run_app(sessions) as stage:
        await focus_transcript(stage, 200)
        await stage.press("g", "slash")
        await stage.type("ROW 7 of file3")
        await stage.shows("row 7 of file3", "1 of 11")
        await stage.press("enter", "n")
        await stage.shows("row 7 of file30", "2 of 11")
        await stage.press("N", "N")
        await stage.shows("row 7 of file39", "11 of 11")
        await stage.press("escape")
        await stage.until(lambda: "11 of 11" not in stage.screen())
        await stage.press("slash")
        await stage.type("nowhere at all")
        await stage.shows("no matches")
        await stage.press("escape")
        assert stage.app.transcript.has_focus


@pytest.mark.slow
async def test_a_match_stays_visible_when_the_view_shrinks() -> None:
    """The view also shrinks when the help line appears after the search, however late the layout is."""
    _, sessions = sessions_with(make_turns(40))
    async with run_app(sessions) as stage:
        await focus_transcript(stage, 200)
        await stage.press("g", "slash")
        await stage.type("row 20 of file30")
        await stage.press("enter")
        await stage.shows("row 20 of file30", "1 of 1", "Cards:")
        width, height = stage.app.size
        for lines in (height - 3, height - 6, height):
            await stage.pilot.resize_terminal(width, lines)
            await stage.until(lambda: "row 20 of file30" in get_text_without_search(stage))
        await stage.press("pageup")
        await stage.until(lambda: "row 20 of" not in get_text_without_search(stage))
        await stage.pilot.resize_terminal(width, height - 3)
        await stage.pilot.pause()
        assert "row 20 of" not in get_text_without_search(stage), (
            "the view does not return to the match after scrolling"
        )


def get_text_without_search(stage: Stage) -> str:
    """Return the screen without the search bar."""
    return "\n".join(line for line in stage.screen().split("\n") if not line.lstrip().startswith("/ "))


async def test_y_copies_a_card() -> None:
    _, sessions = sessions_with(make_turns(2))
    async with run_app(sessions) as stage:
        await focus_transcript(stage, 10)
        await stage.press("k", "y")
        await stage.shows("Copied.")
        assert stage.app.clipboard.startswith("row 0 of file1\nrow 1")


async def test_other_keys_run_actions_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    _, sessions = sessions_with(make_turns(1))
    done: list[str] = []
    async with run_app(sessions) as stage:
        await focus_transcript(stage, 5)
        for name in ("stats", "help", "quit"):
            monkeypatch.setattr(stage.app, f"action_{name}", lambda name=name: done.append(name))
        await stage.press("dollar_sign", "question_mark", "q")
        assert done == ["stats", "help", "quit"]


@pytest.mark.slow
async def test_editing_a_prompt_continues_in_a_copy(open_app: OpenApp) -> None:
    async with open_app([say("One."), say("Two."), say("Other.")], yes=True) as stage:
        await stage.send("First question")
        await stage.shows("One.")
        await stage.idle()
        await stage.send("Second question")
        await stage.shows("Two.")
        await stage.idle()
        before = (await stage.app.client.get_info()).session
        await stage.press("ctrl+up", "e", "y")
        await stage.until(lambda: stage.app.composer.text == "Second question")
        assert (await stage.app.client.get_info()).session != before
        await stage.until(lambda: "Two." not in stage.screen() and "One." in stage.screen())


async def test_the_view_follows_the_end_unless_it_is_scrolled_up() -> None:
    client, sessions = sessions_with(make_turns(10))
    async with run_app(sessions) as stage:
        await stage.shows("Answer 9.")
        await stage.press("pageup")
        before = list_rows(stage)
        client.emit(TurnStarted("x", "More?", "edit_mode"), TextStreamed("More.\n\n" * 40))
        await stage.shows("new below")
        assert list_rows(stage) == before
        await stage.press("ctrl+end")
        await stage.until(lambda: "new below" not in stage.screen() and "More." in stage.screen())
        client.emit(TextStreamed("The last words."))
        await stage.shows("The last words.")


async def test_changes_outside_the_view_do_not_scroll_it() -> None:
    client, sessions = sessions_with([*make_turns(10), TurnStarted("x", "More?", "edit_mode")])
    async with run_app(sessions) as stage:
        await stage.shows("More?")
        client.emit(TextStreamed("line of the answer\n\n" * 60))
        await stage.shows("line of the answer")
        await stage.press("pageup")
        before = list_rows(stage)
        client.emit(Warned("Something happened."))
        await stage.until(lambda: any("happened" in str(getattr(b, "text", "")) for b in stage.app.transcript.blocks))
        assert list_rows(stage) == before
        client.emit(ReplyRolledBack("again"))
        await stage.shows("More?")


@pytest.mark.slow
async def test_the_scroll_position_is_kept_when_the_width_changes() -> None:
    _, sessions = sessions_with(
        [event for n in range(30) for event in make_turn_events(n, f"Answer {n} " + "with many words " * 20)]
    )
    async with run_app(sessions) as stage:
        await stage.until(lambda: len(stage.app.transcript.blocks) >= 150)
        await stage.press("ctrl+home")
        for _ in range(4):
            await stage.press("pagedown")
        block = stage.app.transcript.list_visible()[1]
        for width in (60, 140, 47, 100):
            await stage.pilot.resize_terminal(width, 30)
            await stage.pilot.pause(0.1)
            assert block in stage.app.transcript.list_visible()


@pytest.mark.slow
async def test_only_visible_blocks_are_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    from odin.ui.tui.paint.painter import PaintedBlock

    count = 0
    paint: Callable[..., Any] = PaintedBlock.paint

    def count_and_paint(self: PaintedBlock, *args: Any) -> Any:
        nonlocal count
        count += 1
        return paint(self, *args)

    monkeypatch.setattr(PaintedBlock, "paint", count_and_paint)
    _, sessions = sessions_with(make_turns(600))
    async with run_app(sessions) as stage:
        await stage.shows("Answer 599.")
        await stage.press("ctrl+home")
        await stage.shows("Question 0?")
        assert count < 400


async def test_a_click_folds_a_drag_selects_and_a_double_click_selects_a_word() -> None:
    _, sessions = sessions_with(make_turns(2))
    async with run_app(sessions) as stage:
        view = stage.app.transcript
        await stage.shows("Answer 1.")
        row = find_row(stage, "Read /p/file1.py")
        await stage.pilot.click(view, offset=(5, row))
        await stage.shows("row 3 of file1")
        row = find_row(stage, "row 3 of file1")
        await stage.pilot.mouse_down(view, offset=(4, row))
        await stage.pilot.hover(view, offset=(6, row + 1))
        await stage.pilot.mouse_up(view, offset=(6, row + 1))
        await stage.until(lambda: stage.app.screen.get_selected_text() == "row 3 of file1\n  row")
        await stage.press("ctrl+c")
        assert stage.app.clipboard == "row 3 of file1\n  row"
        await stage.pilot.click(view, offset=(13, row), times=2)
        assert stage.app.screen.get_selected_text() == "file1"


async def test_one_line_cards_are_adjacent_until_one_is_unfolded() -> None:
    calls = [ToolCall(f"c{number}", "Read", {"file_path": f"/p/file{number}.py"}) for number in range(3)]
    events: list[AnyEvent] = [
        TurnStarted("t", "Read them", "edit_mode"),
        Replied(ReplyMessage((Thinking("Hm."), *calls))),
        *(ToolEnded(made.id, "Read", "success", "one\ntwo", "Read it") for made in calls),
        Replied(ReplyMessage((Text("Done."),))),
        TurnEnded("t", "end_turn"),
    ]
    _, sessions = sessions_with(events)
    async with run_app(sessions) as stage:
        await stage.shows("Done.")
        first = find_row(stage, "Thought")
        assert [find_row(stage, f"file{number}.py") for number in range(3)] == [first + 1, first + 2, first + 3]
        assert find_row(stage, "Done.") == first + 5, "other blocks keep an empty row above them"
        await stage.pilot.click(stage.app.transcript, offset=(5, first + 2))
        await stage.shows("two")
        assert find_row(stage, "file1.py") == find_row(stage, "file0.py") + 2
        await stage.press("ctrl+up", "k")
        await stage.shows("▌ ✓ Read /p/file0.py")


async def test_copying_across_wrapped_rows_joins_them() -> None:
    words = " ".join(f"word{number}" for number in range(40))
    code = "x" * 150
    answer = f"{words}\n\n- {words}\n\n```\n{code} y\nz\n```"
    client, sessions = sessions_with([TurnStarted("t", words, "edit_mode")])
    async with run_app(sessions, size=(100, 40)) as stage:
        client.emit(Replied(ReplyMessage((Text(answer),))), TurnEnded("t", "end_turn"))
        await stage.shows("z")
        view = stage.app.transcript
        first, last = find_row(stage, "› word0"), find_row(stage, "  z")
        await stage.pilot.mouse_down(view, offset=(2, first))
        await stage.pilot.hover(view, offset=(60, last))
        await stage.pilot.mouse_up(view, offset=(60, last))
        copied = stage.app.screen.get_selected_text()
        assert copied is not None
        lines = [line.strip() for line in copied.split("\n") if line.strip()]
        assert lines == [f"› {words}", words, f"• {words}", f"{code} y", "z"]


@pytest.mark.parametrize("theme", ["dark", "light", "auto"])
async def test_selected_text_can_be_read(theme: ThemeSetting) -> None:
    _, sessions = sessions_with(make_turns(1))
    async with run_app(sessions, settings=TuiSettings(bell=False, title=False, theme=theme)) as stage:
        await stage.shows("Answer 0.")
        view, row = stage.app.transcript, find_row(stage, "Answer 0.")
        style = next(style for text, style, _ in stage.strips()[row] if style and "Answer" in text)
        await stage.pilot.click(view, offset=(4, row), times=2)
        assert stage.app.screen.get_selected_text() == "Answer"
        selected = next(style for text, style, _ in stage.strips()[row] if style and text == "Answer")
        assert selected.color and selected.bgcolor and selected.color != selected.bgcolor != style.bgcolor


async def test_a_selection_moves_with_its_text() -> None:
    client, sessions = sessions_with(
        [
            *make_turns(2),
            TurnStarted("x", "More?", "edit_mode"),
        ]
    )
    async with run_app(sessions) as stage:
        view = stage.app.transcript
        client.emit(TextStreamed("Selected words\n"))
        await stage.shows("Selected words")
        row = find_row(stage, "Selected words")
        await stage.pilot.click(view, offset=(4, row), times=2)
        assert stage.app.screen.get_selected_text() == "Selected"
        client.emit(Warned("Something above."))
        await stage.shows("Something above.")
        assert find_row(stage, "Selected words") != row or not view.following
        assert stage.app.screen.get_selected_text() == "Selected"


async def test_shift_tab_shows_the_transcript_and_usage_of_a_sub_agent() -> None:
    client, sessions = sessions_with(make_turns(1))
    async with run_app(sessions) as stage:
        client.emit(AgentStarted("agent-1", "Look at the tests", "ask_mode"))
        client.emit(TurnStarted("agent-1", "Look at the tests", "ask_mode"), agent="agent-1")
        client.emit(ToolStarted("g", "Grep", {"pattern": "slow"}, "slow"), agent="agent-1")
        client.emit(UsageRecorded("m", Usage(input=5_000), 0.25), agent="agent-1")
        client.emit(UsageRecorded("m", Usage(input=7_000), 0.5))
        await stage.shows("agent-1 Look at the tests", "working", "Grep slow", "$0.75  12k tokens")
        await stage.press("shift+tab")
        await stage.shows("agent-1: Look at the tests", "running", "$0.25  5.0k tokens")
        assert "Answer 0." not in stage.screen()
        await stage.press("shift+tab")
        await stage.shows("Answer 0.", "$0.75  12k tokens")


async def test_a_running_call_counts_seconds_and_a_finished_one_stops_the_timer() -> None:
    now = [1_700_000_100.0]
    client, sessions = sessions_with([TurnStarted("x", "Go", "edit_mode")])
    async with run_app(sessions, clock=lambda: now[0]) as stage:
        client.emit(ToolStarted("r", "ExecuteCommand", {"command": "make"}, "make"))
        await stage.shows("running")
        now[0] += 65
        await stage.shows("running · 2 min")
        client.emit(ToolEnded("r", "ExecuteCommand", "success", "ok", "Ran: make", duration_ms=65_000))
        await stage.shows("1 min 5 s")
        view = stage.app.transcript
        await asyncio.sleep(0.6)
        assert not view._is_ticking


async def test_images_are_loaded_in_the_background(tmp_path: Any) -> None:
    pytest.importorskip("PIL")
    path = tmp_path / "p.png"
    path.write_bytes(png(40, 20))
    picture = Image(str(path), "image/png", 40, 20)
    _, sessions = sessions_with([TurnStarted("x", "See this", "edit_mode", images=(picture,))])
    async with run_app(sessions) as stage:
        await stage.shows("[image: p.png, 40×20]", "▀▀▀▀▀▀")


async def test_a_real_session_shows_calls_and_their_diff(open_app: OpenApp, workspace: Any) -> None:
    (workspace / "a.py").write_text("x = 1\ny = 2\n")
    path = str(workspace / "a.py")
    edit = call("EditTool", {"file_path": path, "old_string": "x = 1", "new_string": "x = 3"})
    async with open_app([call("Read", {"file_path": path}), edit, say("Done.")], yes=True) as stage:
        await stage.send("Make x three")
        await stage.shows("✓ Read a.py", "✓ Edit a.py  +1 -1", "1 - x = 1", "1 + x = 3", "Done.")
        prompts = [block for block in stage.app.transcript.blocks if isinstance(block, PromptBlock)]
        assert [block.text for block in prompts] == ["Make x three"]


async def test_failures_suggest_the_next_step() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client), size=(100, 30)) as stage:
        client.emit(CompactionChanged("failed", "manual", "The summary is not shorter."))
        client.emit(CompactionChanged("failed", "auto", "Nobody asked for this one."))
        client.emit(TurnStarted("p1", "hi", "edit_mode"))
        client.emit(TurnEnded("p1", "error", error="work refused the key.", error_kind="AuthFailed", hint="Check it."))
        await stage.shows(
            "The summary is not shorter.", "✗ work refused the key.", "Check it. `odin auth` stores a key"
        )
        await stage.shows("/model switches the model, /continue tries again.")
        assert "Nobody asked" not in stage.screen()
