"""Plans in plain mode, in headless runs and over stream-json."""

import json
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PlanAsked
from odin.core.errors import UsageError
from odin.core.interaction import make_interaction
from odin.core.op import Answer
from odin.testing import ScriptedServer, call, say
from odin.ui.plain.dialogs import format_plan_choices
from odin.ui.plan_text import format_execution, parse_execution, parse_plan_choice
from tests.conftest import Run
from tests.table import each
from tests.ui.pseudo_terminal import open_terminal

ASK = make_interaction(
    PlanAsked("a", "c", "/p/.odin/plans/plan-001.md", "Rename it", "1. Rename it.", ("builder", "tester"))
)
PRESENT = call("Handoff", {"plan": "1. Rename it.\n2. Test it.", "title": "Rename it"}, id="h1")
END = "Ctrl-D keeps planning): "


@each(
    ("typed", "answer"),
    [
        ("1\n", Answer("a", "approve")),
        ("2", Answer("a", "approve_new_session")),
        ("3", Answer("a", "approve_new_session:tester")),
        ("4", None),
        ("5", Answer("a", "keep_planning")),
        ("\n", Answer("a", "keep_planning")),
        ("", Answer("a", "keep_planning")),
        ("shorter, please\n", Answer("a", "revise", "shorter, please")),
    ],
)
def test_typed_choice_is_parsed(typed: str, answer: Answer | None) -> None:
    assert parse_plan_choice(ASK, typed) == answer


def test_a_number_without_a_choice_is_asked_again() -> None:
    with pytest.raises(ValueError, match="9"):
        parse_plan_choice(ASK, "9")
    assert len(ASK.choices) == 5


@each(
    ("rest", "both"),
    [
        ("", ("", "")),
        ("plan-001.md", ("plan-001.md", "")),
        (format_execution("/p/my plan.md", "builder"), ("my plan.md", "builder")),
    ],
)
def test_arguments_of_execute_are_parsed(rest: str, both: tuple[str, str]) -> None:
    assert parse_execution(rest) == both


@pytest.mark.parametrize("rest", ["a b c", "'a"])
def test_wrong_arguments_of_execute_are_refused(rest: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_execution(rest)
    assert "Usage: /execute [PLAN] [ROLE]" in raised.value.describe()


def test_control_characters_of_a_plan_are_escaped() -> None:
    text = format_plan_choices(make_interaction(PlanAsked("a", "c", "/p/\x1b[2J.md", "t\x07", "x")))
    assert not set(text) & set("\x1b\x07")


def test_plan_is_revised_and_approved_in_plain_mode(workspace: Path) -> None:
    again = call("Handoff", {"plan": "1. Shorter.", "plan_path": "plan-001.md"}, id="h2")
    script = [PRESENT, again, say("Done."), say("In edit mode.")]
    with (
        ScriptedServer(script) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/plan Plan it.\n")
        shown = terminal.see(END)
        assert "1. Rename it.\r\n2. Test it.\r\n" in shown
        assert "  1. Approve, and carry it out here in edit mode\r\n" in shown
        terminal.type("7\n")
        terminal.see("Choose 1 to 5")
        terminal.type("4\n")
        terminal.see("What should change? ")
        terminal.type("Shorter.\n")
        terminal.see(END, 2)
        assert "  2. Approve and accept edits in the project this session\r\n" in terminal.shown
        terminal.type("2\n")
        terminal.see("Done.\r\nedit> ")
        terminal.type("And now?\n")
        terminal.see("In edit mode.\r\nedit> ")
        assert "The user says: Shorter." in server.requests[1].results["h1"]
        assert "WriteFile" in server.requests[3].tool_names
    assert (workspace / ".odin/plans/plan-001.md").read_text() == "1. Shorter.\n"


def test_kept_plan_is_printed_once_and_approval_can_start_a_session(workspace: Path) -> None:
    with (
        ScriptedServer([PRESENT, PRESENT, say("Done.")]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/plan Plan it.\n")
        terminal.see(END)
        terminal.type("\n")
        shown = terminal.see("plan> ")
        assert shown.count("2. Test it.") == 1
        terminal.type("Again.\n")
        terminal.see(END, 2)
        terminal.type("3\n")
        terminal.match("New session \\d+")
        terminal.see("Carry out .odin/plans/plan-002.md")
        terminal.see("Done.\r\nedit> ")
        sent = str(server.requests[2].messages)
        assert "The user approved this plan" in sent
        assert "Plan it." not in sent


def test_headless_run_answers_with_the_plan(run_odin: Run, workspace: Path) -> None:
    with ScriptedServer([PRESENT]) as server:
        ran = run_odin("-p", "Plan it.", "--permission-mode", "plan", env=server.env("anthropic"))
    assert (ran.returncode, ran.stdout) == (0, "# Rename it\n\n1. Rename it.\n2. Test it.\n")
    with ScriptedServer([PRESENT]) as server:
        words = ("-p", "Plan it.", "--mode", "plan", "--output-format", "json")
        result: dict[str, Any] = json.loads(run_odin(*words, env=server.env("anthropic")).stdout)
    assert result["plan_path"] == str(workspace.resolve() / ".odin/plans/plan-002.md")
    assert result["result"].endswith("2. Test it.")


def test_headless_run_in_a_terminal_does_not_ask(workspace: Path) -> None:
    with (
        ScriptedServer([PRESENT]) as server,
        open_terminal("-p", "Plan it.", "--mode", "plan", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        assert terminal.wait_for_exit() == (0, "# Rename it\n\n1. Rename it.\n2. Test it.\n")


def test_contradicting_modes_are_refused(run_odin: Run) -> None:
    ran = run_odin("-p", "x", "--mode", "edit", "--permission-mode", "plan")
    assert ran.returncode == 2
    assert "--permission-mode plan selects plan mode, but --mode is edit." in ran.stderr
