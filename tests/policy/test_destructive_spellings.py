"""Destructive commands as users, models and programs spell them, and similar everyday commands."""

import json
from pathlib import Path

import pytest

from odin.core.tool import Target
from odin.policy.commands.analysis import analyze_command
from odin.policy.commands.hard_stop import find_harm
from tests.policy.policies import make_policy, make_scope
from tests.table import each

ROOT = "/ws/proj"
CASES: dict[str, list[str]] = json.loads(Path(__file__).with_name("destructive_commands.json").read_text())


def describe_harm(command: str) -> str:
    return find_harm(command, analyze_command(command), make_scope(ROOT))


@each("command", CASES["never"])
def test_destructive_command_is_recognized_in_every_spelling(command: str):
    assert describe_harm(command).startswith("it ")


@each("command", CASES["left"])
def test_similar_commands_are_not_destructive(command: str):
    assert describe_harm(command) == ""


HOSTILE_PIECES = [
    "(",
    "$(",
    "`",
    "${",
    "{",
    "'",
    '"',
    "<<E\n",
    "a|",
    ")",
    "\0",
    "$[",
    "x=(",
    "a ",
    "a;",
    "\ud800",
    "{\u0100",
    "a\n\\b ",
]


@pytest.mark.slow
@each("piece", HOSTILE_PIECES)
@each("size", [300, 9_000, 60_000])
def test_hostile_text_needs_approval_and_does_not_crash(piece: str, size: int, workspace: Path):
    text = "touch x " + (piece * size)[:size]
    decision = make_policy(root=str(workspace)).evaluate("ExecuteCommand", "execute", Target(command=text), "edit_mode")
    assert decision.action == "ask"


def test_long_text_that_is_mostly_quoted_is_analyzed_completely():
    body = "it's (a) {long} text\n" * 300
    seen = analyze_command(f"cat > notes.md <<'EOF'\n{body}EOF\na b")
    assert seen.is_complete
    assert [part.texts for part in seen.commands] == [("cat",), ("a", "b")]
    assert analyze_command(f"git commit -m '{'x y ' * 2000}' && a b").is_complete
