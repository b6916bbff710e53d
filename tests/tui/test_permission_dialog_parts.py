"""What the permission dialog is made of: every line of a change is seen, and nothing hides in what is edited."""

from typing import Any

import pytest
from textual.strip import Strip

from odin.core.errors import UsageError
from odin.ui.tui.dialogs.permission_view import (
    InvalidJson,
    RuleDraft,
    make_form,
    paint_change,
    paint_request,
    parse_form,
    replace_arguments,
)
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import DARK, make_palette
from tests.tui.test_asking_pictures import COMMAND, DIFF, EDIT

CANVAS = Canvas(80, make_palette(DARK))


def text(strips: list[Strip]) -> str:
    return "\n".join(strip.text for strip in strips)


def test_a_change_is_painted_with_the_numbers_of_its_lines():
    shown = text(paint_change(DIFF, CANVAS))
    assert "Preview of the change:" in shown
    assert "1   def greet(name):" in shown
    assert '2 -     print("Hello", name)' in shown


@pytest.mark.parametrize("line", ["--- drop table users", "-++ x", "+++ y", "(cut)"])
def test_no_line_of_a_change_is_lost_when_it_looks_like_something_else(line: str):
    shown = text(paint_change(f"{DIFF}\n{line}\n+rm everything", CANVAS))
    for part in (line.lstrip("+-"), "rm everything", 'greeting = f"Hello, {name}!"'):
        assert part.strip() in shown


def test_what_hides_in_a_change_is_spelled_out():
    shown = text(paint_change("--- a\n+++ a\n@@ -1,1 +1,1 @@\n-x\n+x\u202e\u200b\x1b[2J\u00a0y", CANVAS))
    assert "x\\u202e\\u200b\\x1b[2J\\xa0y" in shown


def test_what_is_no_diff_is_shown_as_it_is():
    assert "/a is binary" in text(paint_change("(/a is binary: 10 bytes would be replaced.)", CANVAS))


def test_the_page_names_why_where_and_the_rules():
    shown = text(paint_request(COMMAND, CANVAS))
    for words in ("git push origin main", "It reaches the network.", "It would run in bubblewrap", "Bash(git push:*)"):
        assert words in shown


@pytest.mark.parametrize("width", [20, 40, 300])
def test_no_line_is_wider_than_there_is_room(width: int):
    for strip in paint_request(EDIT, Canvas(width, make_palette(DARK))):
        assert strip.cell_length <= max(width, 22)


@pytest.mark.parametrize(
    ("args", "name", "shown"),
    [
        ({"command": "ls -l", "timeout": 5}, "command", "ls -l"),
        ({"query": "cats"}, "query", "cats"),
        ({"a": "x", "b": "y"}, "", '{\n  "a": "x",\n  "b": "y"\n}'),
        ({"command": "ls \u202e"}, "", '{\n  "command": "ls \\u202e"\n}'),
        ({"command": "ls \x1b[2J"}, "", '{\n  "command": "ls \\u001b[2J"\n}'),
        ({"command": "x\U000e0041"}, "", '{\n  "command": "x\\udb40\\udc41"\n}'),
    ],
)
def test_what_is_edited_hides_nothing(args: dict[str, Any], name: str, shown: str):
    form = make_form(args)
    assert (form.name, form.text) == (name, shown)
    assert parse_form(args, form, form.text) == args


def test_wrong_json_says_where():
    form = make_form({"a": 1})
    with pytest.raises(InvalidJson, match="line 2, column 3") as found:
        parse_form({"a": 1}, form, '{"a":\n  }')
    assert found.value.place == (1, 2)
    with pytest.raises(UsageError, match="must be a JSON object"):
        parse_form({"a": 1}, form, "[1]")
    with pytest.raises(UsageError, match="command is empty"):
        parse_form({"command": "ls"}, make_form({"command": "ls"}), "  ")


def test_changed_arguments_bring_no_rules_along():
    other = replace_arguments(COMMAND, {"command": "git status"})
    assert (other.subject, other.rules, other.preview) == ("git status", (), "")


def test_a_rule_has_a_scope_and_others_beside_it():
    rule = RuleDraft(("one", "two"), allow=True, scope="session")
    assert rule.switch(1) == "two"
    assert rule.switch(1) == "one"
    rule.switch_scope()
    assert rule.format_label() == "Allow and save this rule for this project (rule 1 of 2):"
