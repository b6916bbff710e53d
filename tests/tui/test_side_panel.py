"""The side panel and the todo list: when they are shown, and what a click does."""

from pathlib import Path

import pytest

from odin.core.call_events import Replied, TodosChanged
from odin.core.event import AgentStarted, EffortChanged, Envelope, TurnEnded, TurnStarted
from odin.core.event_values import Todo
from odin.core.message import ReplyMessage, Text
from odin.testing import call, say
from odin.ui.session_facts import SessionFacts
from tests.tui.conftest import OpenApp, Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

TODOS = tuple(Todo(str(number), f"Task {number}", "pending") for number in range(1, 13))


def todos_with(*done: int, now: int = 0) -> TodosChanged:
    return TodosChanged(
        tuple(
            Todo(todo.id, todo.content, "completed", "")
            if int(todo.id) in done
            else Todo(todo.id, todo.content, "in_progress", f"Doing {todo.id}")
            if int(todo.id) == now
            else todo
            for todo in TODOS
        )
    )


def find_position(stage: Stage, words: str) -> tuple[int, int]:
    """Return the column and the row of these words on the screen."""
    for y, line in enumerate(stage.screen().split("\n")):
        if words in line:
            return line.index(words), y
    raise AssertionError(f"{words!r} is not on the screen:\n{stage.screen()}")


@pytest.mark.parametrize(("width", "there"), [(129, False), (130, True), (300, True)])
async def test_the_panel_is_docked_on_wide_screens(width: int, there: bool) -> None:
    async with run_app(FakeSessions(FakeClient()), size=(width, 30)) as stage:
        await stage.pilot.pause(0.2)
        assert ("Model" in stage.screen()) is there
        assert stage.app.side.is_docked is there


async def test_the_panel_appears_when_the_window_is_widened_and_f4_hides_it() -> None:
    async with run_app(FakeSessions(FakeClient()), size=(120, 30)) as stage:
        await stage.pilot.resize_terminal(200, 30)
        await stage.shows("Model", "Context")
        await stage.press("f4")
        await stage.until(lambda: "Context" not in stage.screen())
        await stage.press("f4")
        await stage.shows("Context")
        await stage.pilot.resize_terminal(120, 30)
        await stage.shows("Context")


async def test_f4_shows_and_hides_the_panel_at_any_width() -> None:
    async with run_app(FakeSessions(FakeClient()), size=(60, 30)) as stage:
        width = stage.app.transcript.region.width
        await stage.press("f4")
        await stage.shows("Model", "Context")
        assert stage.app.transcript.region.width == width, "the panel overlays the transcript"
        await stage.press("f4")
        await stage.until(lambda: "Context" not in stage.screen())
        await stage.pilot.resize_terminal(160, 30)
        await stage.pilot.pause(0.2)
        assert "Context" not in stage.screen(), "a panel hidden by the user stays hidden"
        await stage.press("f4")
        await stage.shows("Context")
        assert stage.app.transcript.region.width < 130


@pytest.mark.slow
async def test_a_click_on_a_changed_file_shows_its_card(open_app: OpenApp, workspace: Path) -> None:
    (workspace / "a.py").write_text("x = 1\n")
    script = [
        call("Read", {"file_path": str(workspace / "a.py")}),
        call("Edit", {"file_path": str(workspace / "a.py"), "old_string": "x = 1", "new_string": "x = 2\ny = 3"}),
        say("\n\n".join(f"Line {number}." for number in range(60))),
    ]
    async with open_app(script, size=(150, 30), yes=True) as stage:
        await stage.send("change it")
        await stage.shows("Changed file", "+2 -1")
        await stage.shows("Line 59.")
        await stage.idle()
        await stage.pilot.click(offset=find_position(stage, "Changed file"))
        x, y = find_position(stage, "Changed file")
        await stage.pilot.click(offset=(x, y + 1))
        await stage.until(lambda: "Line 59." not in stage.screen())
        assert stage.app.transcript.cursor is not None
        assert "y = 3" in stage.screen()
        assert stage.app.composer.has_focus


async def test_a_click_on_an_agent_shows_its_transcript() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client), size=(150, 30)) as stage:
        client.emit(TurnStarted("p", "go", "edit_mode"), AgentStarted("agent-1", "look around", "ask_mode"))
        client.emit(Replied(ReplyMessage((Text("Words of the agent."),))), agent="agent-1")
        await stage.shows("agent-1 look around")
        await stage.pilot.click(offset=find_position(stage, "• agent-1"))
        await stage.shows("Words of the agent.")
        assert stage.app.agent == "agent-1"


async def test_the_todo_list_folds_to_one_line() -> None:
    client = FakeClient([TurnStarted("p", "go", "edit_mode"), todos_with(1, 2, now=3)])
    async with run_app(FakeSessions(client), size=(80, 30)) as stage:
        await stage.shows("Tasks 2/12", "▸ Doing 3", "Task 4", "2 done")
        above = find_position(stage, "Tasks 2/12")[1] - 1
        assert not stage.screen().split("\n")[above].strip()
        assert "Task 12" not in stage.screen(), "the height of the todo list is limited"
        await stage.press("f9")
        await stage.shows("Tasks 2/12: Doing 3")
        assert "Task 4" not in stage.screen()
        await stage.pilot.pause()
        await stage.pilot.click(offset=find_position(stage, "2/12"))
        await stage.shows("Task 4")


@pytest.mark.slow
async def test_the_todo_in_progress_is_always_visible() -> None:
    for now in range(1, 13):
        client = FakeClient([TurnStarted("p", "go", "edit_mode"), todos_with(*range(1, now), now=now)])
        async with run_app(FakeSessions(client), size=(60, 24)) as stage:
            await stage.shows(f"▸ Doing {now}")


async def test_a_finished_todo_list_disappears_with_the_next_prompt() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client), size=(80, 30)) as stage:
        client.emit(TurnStarted("p", "go", "edit_mode"), todos_with(*range(1, 13)), TurnEnded("p", "end_turn"))
        await stage.shows("✓ Task 1", "12 done")
        client.emit(TurnStarted("q", "more", "edit_mode"))
        await stage.until(lambda: "Task 1" not in stage.screen())


async def test_beside_the_panel_the_todo_list_is_one_line() -> None:
    client = FakeClient([TurnStarted("p", "go", "edit_mode"), todos_with(1, now=2)])
    async with run_app(FakeSessions(client), size=(150, 40)) as stage:
        await stage.shows("1/12: Doing 2", "▸ Doing 2")


@pytest.mark.slow
async def test_the_panel_shows_the_effort_of_the_focused_agent(open_app: OpenApp) -> None:
    async with open_app([say("ok")], size=(140, 30)) as stage:
        await stage.shows("Model")
        assert "effort" not in stage.screen()
        for effort in ("low", "medium", "high", "low"):
            await stage.press("alt+t")
            await stage.shows(f"effort {effort}")
    facts = SessionFacts()
    for agent, effort in (("a", "high"), ("b", ""), ("", "low")):
        facts.apply(Envelope(1, 0.0, "s", EffortChanged(effort), agent))
    assert [facts.get_effort(agent) for agent in ("a", "b", "c", "")] == ["high", "", "", ""]
