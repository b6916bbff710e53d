"""The permission dialog over real sessions: it shows the request, and each answer has exactly its effect."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odin.core.op import AnswerPermission
from odin.testing import call, say
from odin.ui.tui.dialogs.dialog import RequestDialog
from odin.ui.tui.dialogs.interaction_view import ArgumentsArea
from odin.ui.tui.dialogs.widgets import ChoiceBar
from tests.tui.conftest import OpenApp, Stage

TOUCH = call("ExecuteCommand", {"command": "touch made"}, id="c1")
SCRIPT = [TOUCH, say("Done.")]


@pytest.fixture
def open_app(open_app: OpenApp) -> OpenApp:
    """Commands are asked about before they run."""
    return partial(open_app, commands_ask="before")


async def wait_for_request(stage: Stage, *words: str) -> None:
    """Wait until a request is on the screen, takes keys and shows these words."""
    await stage.until(lambda: isinstance(stage.app.screen, RequestDialog) and stage.app.screen.ready)
    await stage.shows(*words)


async def wait_until_closed(stage: Stage) -> None:
    await stage.until(lambda: not isinstance(stage.app.screen, RequestDialog))
    await stage.idle()


def list_last_results(stage: Stage) -> dict[str, Any]:
    return dict(stage.server.requests[-1].results)


async def test_y_allows_the_call_once(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage, "Bash", "touch made", "changes files", "y Allow once")
        assert not (workspace / "made").exists()
        await stage.press("y")
        await stage.shows("Done.")
        await wait_until_closed(stage)
        assert (workspace / "made").exists()
        assert await stage.app.client.list_rules() == ()


async def test_n_denies_the_call_and_the_turn_continues(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("n")
        await stage.shows("Done.")
        assert not (workspace / "made").exists()
        assert "denied this tool call" in list_last_results(stage)["c1"]


async def test_enter_and_the_space_bar_answer_nothing(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("enter", "space", "enter")
        await stage.shows("Choose an answer: y allows once, n denies.")
        assert len(stage.server.requests) == 1
        assert not (workspace / "made").exists()
        await stage.press("n")
        await wait_until_closed(stage)


async def test_arrows_and_enter_choose_an_answer(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("right", "right", "left", "enter")
        await wait_until_closed(stage)
        assert (workspace / "made").exists()


@pytest.mark.parametrize(("how", "reason"), [("r", "Use mkdir."), ("tab", "No.")])
async def test_a_denial_with_a_reason_reaches_the_model(
    open_app: OpenApp, workspace: Path, how: str, reason: str
) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press(how)
        await stage.shows("Reason for the model:")
        await stage.send(reason)
        await stage.shows("Done.")
        assert reason in list_last_results(stage)["c1"]
        assert not (workspace / "made").exists()


async def test_the_note_of_an_approval_follows_the_tool_result(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("w")
        await stage.send("Tell me its size, too.")
        await stage.shows("Done.")
        await wait_until_closed(stage)
        assert (workspace / "made").exists()
        text = json.dumps(stage.server.requests[1].messages)
        assert text.index('"tool_use_id": "c1"') < text.index("Tell me its size, too.")
        assert len(stage.server.requests) == 2


@pytest.mark.slow
async def test_tab_switches_from_reason_to_note_and_esc_goes_back(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("tab")
        await stage.shows("Reason for the model:")
        await stage.type("well")
        await stage.press("tab")
        await stage.shows("Note for the model", "well")
        await stage.press("escape")
        await stage.shows("y Allow once")
        assert len(stage.server.requests) == 1
        await stage.press("n")
        await wait_until_closed(stage)
        assert not (workspace / "made").exists()


@pytest.mark.parametrize(
    ("key", "layer"), [("p", "project"), ("u", "user"), ("s", "session")], ids=["project", "user", "session"]
)
async def test_a_rule_is_shown_before_it_is_saved(open_app: OpenApp, workspace: Path, key: str, layer: str) -> None:
    script = [TOUCH, call("ExecuteCommand", {"command": "touch made"}, id="c2"), say("Done.")]
    async with open_app(script) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press(key)
        await stage.shows("Allow and save this rule", "touch made", "Enter Save rule")
        assert not (workspace / "made").exists()
        await stage.press("enter")
        await stage.shows("Done.")
        await wait_until_closed(stage)
        rules = await stage.app.client.list_rules()
        assert [(rule.action, "touch made" in rule.text) for rule in rules] == [("allow", True)]
        assert rules[0].layer == layer
        if layer != "session":
            assert rules[0].text in Path(rules[0].source).expanduser().read_text()
        assert (workspace / "made").exists()


async def test_the_rule_and_its_scope_can_be_changed(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("s")
        await stage.shows("Allow and save this rule for this session")
        await stage.press("tab")
        await stage.shows("Allow and save this rule for this project")
        await stage.press("tab", "tab", "ctrl+u")
        await stage.type("Bash(touch:*)")
        await stage.shows("Allow and save this rule for this session", "Bash(touch:*)")
        await stage.press("enter")
        await stage.shows("Done.")
        assert [(rule.layer, rule.text) for rule in await stage.app.client.list_rules()] == [
            ("session", "Bash(touch:*)")
        ]


async def test_d_denies_the_call_and_saves_a_rule(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("d")
        await stage.shows("Deny and save this rule for this project")
        await stage.press("enter")
        await stage.shows("Done.")
        assert [rule.action for rule in await stage.app.client.list_rules()] == ["deny"]
        assert not (workspace / "made").exists()


@pytest.mark.slow
async def test_up_and_down_choose_among_the_offered_rules(open_app: OpenApp, workspace: Path) -> None:
    script = [call("ExecuteCommand", {"command": "git tag v1"}, id="c1"), say("Done.")]
    async with open_app(script) as stage:
        await stage.send("Tag it.")
        await wait_for_request(stage)
        await stage.press("s")
        await stage.shows("rule 1 of 2")
        await stage.press("down")
        await stage.shows("rule 2 of 2")
        await stage.press("up")
        await stage.shows("rule 1 of 2")
        await stage.press("down", "enter")
        await stage.shows("Done.")
        assert "git tag:*" in (await stage.app.client.list_rules())[0].text


async def test_an_edited_command_is_shown_and_then_runs(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("e")
        await stage.shows("command:")
        await stage.type("-other")
        await stage.press("enter")
        await stage.shows("Edited call: Bash", "1 - touch made", "1 + touch made-other")
        assert not (workspace / "made-other").exists()
        await stage.press("y")
        await stage.shows("Done.")
        await wait_until_closed(stage)
        assert (workspace / "made-other").exists()
        assert not (workspace / "made").exists()


@pytest.mark.slow
async def test_code_is_edited_as_lines_and_the_edit_is_shown_as_a_diff(open_app: OpenApp, workspace: Path) -> None:
    content = "def f():\n    return 1\n"
    script = [call("Write", {"file_path": str(workspace / "a.py"), "content": content}, id="c1"), say("Done.")]
    async with open_app(script) as stage:
        await stage.send("Write it.")
        await wait_for_request(stage, "Create file a.py", "1 + def f():")
        await stage.press("e")
        await stage.shows("content (argument 2 of 2):")
        area = stage.app.screen.query_one("#args", ArgumentsArea)
        assert area.text == content
        await stage.press("up", "end", "backspace")
        await stage.type("2")
        await stage.press("enter")
        await stage.type("# two")
        assert area.text == "def f():\n    return 2\n# two\n"
        await stage.press("ctrl+underscore")
        assert "# two" not in area.text
        await stage.press("alt+underscore", "ctrl+s")
        await stage.shows("Edited call: Create file a.py", "-     return 1", "+     return 2")
        assert "\\n" not in stage.screen()
        await stage.press("y")
        await stage.shows("Done.")
        assert (workspace / "a.py").read_text() == "def f():\n    return 2\n# two\n"


@pytest.mark.slow
async def test_tab_switches_between_arguments_and_json(open_app: OpenApp, workspace: Path) -> None:
    script = [call("Write", {"file_path": str(workspace / "a.txt"), "content": "one\n"}, id="c1"), say("Done.")]
    async with open_app(script) as stage:
        await stage.send("Write it.")
        await wait_for_request(stage)
        await stage.press("e", "tab")
        await stage.shows("All arguments as JSON:", '"content": "one\\n"')
        area = stage.app.screen.query_one("#args", ArgumentsArea)
        area.text = area.text.replace("one", "two") + ","
        await stage.press("ctrl+s")
        await stage.shows("Invalid JSON", "line 4, column 2")
        await stage.press("delete", "tab")
        await stage.shows("file_path (argument 1 of 2):")
        await stage.press("backspace")
        await stage.press("enter")
        await stage.shows("Edited call:", "a.tx", "+ two")
        await stage.press("y")
        await stage.shows("Done.")
        assert (workspace / "a.tx").read_text() == "two\n"


@pytest.mark.slow
async def test_ctrl_x_opens_the_editor_as_in_the_composer(
    open_app: OpenApp, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def edited(app: object, text: str) -> str:
        return text.replace("made", "remade")

    monkeypatch.setattr("odin.ui.tui.dialogs.interaction_view.edit_in_editor", edited)
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("e", "ctrl+x", "enter")
        await stage.shows("Edited call:", "+ touch remade")
        await stage.press("y")
        await wait_until_closed(stage)
        assert (workspace / "remade").exists()


async def test_a_allows_all_edits_of_the_session(open_app: OpenApp, workspace: Path) -> None:
    script = [
        call("Write", {"file_path": str(workspace / name), "content": "x\n"}, id=name) for name in ("a.txt", "b.txt")
    ]
    async with open_app([*script, TOUCH, say("Done.")]) as stage:
        await stage.send("Write them.")
        await wait_for_request(stage, "Create file a.txt", "a All edits this session")
        await stage.press("a")
        await wait_for_request(stage, "touch made")
        assert (workspace / "b.txt").exists() and not (workspace / "made").exists()
        assert stage.app.composer.target.permission_mode == "acceptEdits"
        await stage.press("n")
        await wait_until_closed(stage)


async def test_m_shows_and_hides_more_answers(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage, "y Allow once", "m More…")
        bar = stage.app.screen.query_one(ChoiceBar)
        assert len(bar._choices) <= 6
        await stage.press("m")
        await stage.shows("p In this project", "u Everywhere", "d Deny always", "w Allow with a note", "m Fewer")
        await stage.press("m")
        await stage.until(lambda: "u Everywhere" not in stage.screen())
        await stage.press("n")
        await wait_until_closed(stage)


async def test_esc_denies_the_call_and_ends_the_turn(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage, "Esc denies and stops the work.")
        await stage.press("escape")
        await wait_until_closed(stage)
        assert not (workspace / "made").exists()
        assert len(stage.server.requests) == 1


async def test_v_shows_all_arguments_and_question_mark_shows_the_keys(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await stage.press("v")
        await stage.shows("command:", "Rules you can save:", "Bash(touch made)")
        await stage.press("v", "question_mark")
        await stage.shows("Deny and tell the model why.")
        await stage.shows("Esc goes back to the request.")
        await stage.press("escape")
        await stage.shows("Esc denies and stops the work.")
        await stage.press("n")
        await stage.shows("Done.")
        assert len(stage.server.requests) == 2


async def test_hidden_characters_and_long_commands_are_readable(open_app: OpenApp, workspace: Path) -> None:
    command = "touch " + " ".join(f"file{number}" for number in range(300)) + " \u202eend"
    script = [call("ExecuteCommand", {"command": command}, id="c1"), say("Done.")]
    async with open_app(script, size=(60, 20)) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage, "file0", "y Yes", "n No")
        await stage.press("end")
        await stage.shows("\\u202eend", "n No")
        await stage.press("n")
        await wait_until_closed(stage)


@pytest.mark.slow
async def test_a_click_answers(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        await click_text(stage, "Deny with a reason")
        await stage.shows("Reason for the model:")
        await click_text(stage, "Back")
        await click_text(stage, "Allow once")
        await stage.shows("Done.")
        await wait_until_closed(stage)
        assert (workspace / "made").exists()


async def click_text(stage: Stage, words: str) -> None:
    await stage.shows(words)
    for y, line in enumerate(stage.screen().split("\n")):
        if words in line:
            await stage.pilot.click(offset=(line.index(words) + 1, y))
            return


async def test_an_answer_by_another_client_closes_the_dialog_and_names_the_client(
    open_app: OpenApp, workspace: Path
) -> None:
    async with open_app(SCRIPT) as stage:
        await stage.send("Make it.")
        await wait_for_request(stage)
        assert isinstance(stage.app.screen, RequestDialog)
        ask_id = stage.app.screen.ask_id
        await stage.app.client.submit(AnswerPermission(ask_id, allow=True, by="phone"))
        await stage.shows("This was answered elsewhere: allowed by phone.")
        await stage.shows("Done.")
        await wait_until_closed(stage)


async def test_an_unanswered_request_is_denied_after_the_timeout(open_app: OpenApp, workspace: Path) -> None:
    async with open_app(SCRIPT, config={"confirm_timeout_s": 4}) as stage:
        await stage.send("Make it.")
        await stage.shows("s left")
        await stage.shows("No answer in time: denied.", "Done.")
        assert not (workspace / "made").exists()
