"""Destructive commands as users, models and programs spell them, and similar everyday commands."""

import json
from pathlib import Path

import pytest

from odin.core.tool import Subject
from odin.policy.commands.analysis import analyze_command
from odin.policy.commands.destructive.check import find_harm
from odin.policy.policy import Policy
from tests.table import each

ROOT = "/ws/proj"
CASES: dict[str, list[str]] = json.loads((Path(__file__).parent / "corpus" / "ruinous.json").read_text())


def why(command: str) -> str:
    return find_harm(command, analyze_command(command), ROOT)


@each("command", CASES["never"])
def test_a_disaster_is_known_in_every_spelling(command: str):
    assert why(command).startswith("it ")


@each("command", CASES["left"])
def test_what_sounds_like_one_is_left_to_the_other_rules(command: str):
    assert why(command) == ""


HOSTILE = [
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
@each("piece", HOSTILE)
@each("size", [300, 9_000, 60_000])
def test_hostile_texts_are_asked_about_and_nothing_breaks(piece: str, size: int, workspace: Path):
    text = "touch x " + (piece * size)[:size]
    verdict = Policy(root=str(workspace)).judge("ExecuteCommand", "execute", Subject(command=text), "edit_mode")
    assert verdict.action == "ask"


def test_a_long_text_is_read_whole_where_it_is_mostly_quoted():
    body = "it's (a) {long} text\n" * 300
    seen = analyze_command(f"cat > notes.md <<'EOF'\n{body}EOF\na b")
    assert seen.is_complete
    assert [part.texts for part in seen.commands] == [("cat",), ("a", "b")]
    assert analyze_command(f"git commit -m '{'x y ' * 2000}' && a b").is_complete


def test_a_long_text_that_is_broken_is_not_read_at_once_but_searched():
    text = "echo x |" * 900 + "\nr" + "m -rf ."
    seen = analyze_command(text)
    assert not seen.is_complete
    assert seen.script is None
    assert why(text)
