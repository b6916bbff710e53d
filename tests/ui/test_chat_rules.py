"""Permission rules and permission modes in plain mode."""

import re
from pathlib import Path

import pytest

from odin.core.errors import UsageError
from odin.core.op import AddRule
from odin.core.policy import RuleLine
from odin.testing import ScriptedServer, call, say
from odin.ui.slash_commands.actions import format_rules, parse_rule
from tests.ui.pseudo_terminal import open_terminal

TOUCH = call("ExecuteCommand", {"command": "touch made"}, id="toolu_c")


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("Bash(make)", AddRule("Bash(make)")),
        ("  Bash(a  b) ", AddRule("Bash(a  b)")),
        ("--deny Bash(make)", AddRule("Bash(make)", "deny")),
        ("--project --ask Edit(src/**)", AddRule("Edit(src/**)", "ask", "project")),
        ("--user --allow Read", AddRule("Read", "allow", "user")),
    ],
)
def test_typed_rule_is_parsed(text: str, op: AddRule) -> None:
    assert parse_rule(text) == op


@pytest.mark.parametrize("text", ["", "--deny", "--forever Bash"])
def test_malformed_rule_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rule(text)


def test_rule_list_escapes_hidden_characters() -> None:
    lines = (
        RuleLine(0, "default", "deny", "Bash(sudo:*)", "odinconfig.json"),
        RuleLine(1, "session", "allow", "Bash(make\u202e)"),
    )
    assert format_rules(lines) == (
        "  –  default  deny   Bash(sudo:*)   (odinconfig.json)\n"
        "  1  session  allow  Bash(make\\u202e)\n"
        "/rules remove N removes a numbered rule.\n"
    )
    assert format_rules(()).startswith("No rules besides the defaults.")


def test_rules_are_added_listed_and_removed(workspace: Path) -> None:
    script = [TOUCH, say("Made."), TOUCH, say("Not made.")]
    with (
        ScriptedServer(script) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/rules add Bash(touch made)\n")
        terminal.see("Rule added for this session: allow Bash(touch made)\r\n")
        terminal.see("edit> ", 2)
        terminal.type("go\n")
        terminal.see("Made.")
        terminal.see("edit> ", 3)
        assert "say why not" not in terminal.shown
        terminal.type("/rules\n")
        shown = terminal.see("/rules remove N removes")
        numbers = re.findall(r"^ *(\d+)  session  allow  Bash\(touch made\)", shown, re.MULTILINE)
        terminal.see("edit> ", 4)
        terminal.type(f"/rules remove {numbers[0]}\n")
        terminal.see("Rule removed: allow Bash(touch made)\r\n")
        terminal.see("edit> ", 5)
        terminal.type("again\n")
        terminal.see("say why not: ")
        terminal.type("n\n")
        terminal.see("Not made.")
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("/rules remove 99", "No rule number '99'."),
        ("/rules remove x", "No rule number 'x'."),
        ("/rules frobnicate", "Unknown argument 'frobnicate'."),
        ("/rules add", "/rules add needs a rule."),
        ("/yolo perhaps", "Unknown argument 'perhaps'."),
        ("/permissions anything", "anything"),
        ("/permissions", "Permission mode: default (one of default, acceptEdits"),
        ("/yolo", "/yolo is off. Permission mode: default"),
    ],
)
def test_permission_commands_answer_and_the_chat_continues(workspace: Path, typed: str, said: str) -> None:
    with (
        ScriptedServer([]) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type(f"{typed}\n")
        assert said in terminal.see("edit> ", 2)
        terminal.type("\x04")
        assert terminal.wait_for_exit()[0] == 0
        assert server.requests == []


def test_yolo_is_shown_in_the_prompt_and_restores_the_earlier_mode(workspace: Path) -> None:
    with (
        ScriptedServer([TOUCH, say("Made.")]) as server,
        open_terminal(
            "--permission-mode", "acceptEdits", cwd=workspace, env=server.env("anthropic"), with_stdout=True
        ) as terminal,
    ):
        first = terminal.see("edit> ")
        terminal.type("/yolo on\n")
        terminal.see("edit (yolo: no permission prompts)> ")
        terminal.type("go\n")
        terminal.see("Made.")
        terminal.see("edit (yolo: no permission prompts)> ", 2)
        assert "say why not" not in terminal.shown
        terminal.type("/yolo off\n")
        terminal.see("Permission prompts are on. Permission mode: acceptEdits\r\n")
        terminal.see("edit> ", 2)
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0
    assert (workspace / "made").exists()
    assert re.search(r"^Odin \S+ · anthropic/\S+ · /", first)
    assert re.search(r"^edit · permissions: acceptEdits · sandbox: .*network off\r$", first, re.MULTILINE)
