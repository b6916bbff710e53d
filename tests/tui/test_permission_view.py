"""The parts of the permission dialog: painted requests and diffs, the form for arguments, and rule drafts."""

from typing import Any, get_args

import pytest
from msgspec.structs import replace
from textual.strip import Strip

from odin.core.errors import UsageError
from odin.core.interaction import make_interaction
from odin.core.policy import Danger
from odin.ui.permission_text import ArgumentForm, InvalidJson, format_headline, replace_arguments
from odin.ui.tui.dialogs.interaction_view import (
    RuleDraft,
    format_danger,
    paint_change,
    paint_details,
    paint_request,
)
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import DARK, make_palette
from tests.tui import test_request_snapshots
from tests.tui.test_request_snapshots import DIFF

CANVAS = Canvas(80, make_palette(DARK))
COMMAND, EDIT = map(make_interaction, (test_request_snapshots.COMMAND, test_request_snapshots.EDIT))


def get_text(strips: list[Strip]) -> str:
    return "\n".join(strip.text for strip in strips)


def test_a_diff_is_painted_with_line_numbers():
    shown = get_text(paint_change(DIFF, CANVAS))
    assert "1   def greet(name):" in shown
    assert '2 -     print("Hello", name)' in shown


@pytest.mark.parametrize("line", ["--- drop table users", "-++ x", "+++ y", "(cut)"])
def test_changed_lines_that_look_like_diff_headers_are_shown(line: str):
    shown = get_text(paint_change(f"{DIFF}\n{line}\n+rm everything", CANVAS))
    for part in (line.lstrip("+-"), "rm everything", 'greeting = f"Hello, {name}!"'):
        assert part.strip() in shown


def test_invisible_characters_in_a_diff_are_escaped():
    shown = get_text(paint_change("--- a\n+++ a\n@@ -1,1 +1,1 @@\n-x\n+x\u202e\u200b\x1b[2J\u00a0y", CANVAS))
    assert "x\\u202e\\u200b\\x1b[2J\\xa0y" in shown


def test_a_preview_that_is_not_a_diff_is_shown_unchanged():
    assert "/a is binary" in get_text(paint_change("(/a is binary: 10 bytes would be replaced.)", CANVAS))


def test_the_danger_is_shown_with_the_effect_of_the_call():
    page = get_text(paint_request(COMMAND, CANVAS))
    assert "git push origin main" in page
    assert "The rule 'Bash(git push:*)' asks for approval." in page
    danger = "network  Pushes commits to a remote.\nIt would run in bubblewrap, network off."
    assert format_danger(COMMAND, CANVAS.palette).plain == danger
    assert format_danger(EDIT, CANVAS.palette).plain == "changes files"


def test_dangers_differ_in_color():
    def get_color(danger: Danger) -> object:
        ask = make_interaction(replace(COMMAND.permission, danger=danger))
        return str(format_danger(ask, CANVAS.palette).spans[0].style)

    assert len({get_color(danger) for danger in get_args(Danger)}) == 4
    assert "reverse" in str(get_color("hard_to_undo")) and "reverse" in str(get_color("credentials"))


def test_an_edit_request_shows_its_diff_and_the_title_shows_its_path():
    shown = get_text(paint_request(EDIT, CANVAS))
    assert shown.startswith("    1   def greet(name):")
    assert "/home/ann" not in shown and "Edit(" not in shown
    assert format_headline(EDIT) == "Edit greet.py"
    assert "Edit(./greet.py)" in get_text(paint_details(EDIT, CANVAS))


@pytest.mark.parametrize("width", [20, 40, 300])
def test_no_line_exceeds_the_width(width: int):
    for strip in paint_request(EDIT, Canvas(width, make_palette(DARK))):
        assert strip.cell_length <= max(width, 22)


@pytest.mark.parametrize(
    ("args", "name", "shown"),
    [
        ({"command": "ls -l", "timeout": 5}, "command", "ls -l"),
        ({"query": "cats"}, "query", "cats"),
        ({"a": "x", "b": "y\n\tz"}, "b", "y\n\tz"),
        ({"edits": [{"old_string": "a", "new_string": "b\nc"}]}, "edits[0].new_string", "b\nc"),
        ({"file_path": "a", "content": "x\n"}, "content", "x\n"),
        ({"count": 3}, "count", "3"),
        ({}, "", "{}"),
        ({"command": "ls \u202e"}, "command", '"ls \\u202e"'),
        ({"command": "ls \x1b[2J"}, "command", '"ls \\u001b[2J"'),
        ({"command": "x\U000e0041"}, "command", '"x\\udb40\\udc41"'),
    ],
)
def test_edited_arguments_show_invisible_characters(args: dict[str, Any], name: str, shown: str):
    form = ArgumentForm(args)
    assert (form.name, form.text) == (name, shown)
    for _ in form.paths:
        form.store(form.text)
        form.switch(1)
    assert form.args == args


def test_every_argument_can_be_edited():
    args = {"path": "a", "edits": [{"old": "x", "new": "y"}], "all": False}
    form = ArgumentForm(args)
    for name, text in (("path", "b"), ("edits[0].new", "z\nz"), ("all", "true")):
        form.select(name)
        form.store(text)
    assert form.args == {"path": "b", "edits": [{"old": "x", "new": "z\nz"}], "all": True}
    assert args["path"] == "a"
    with pytest.raises(UsageError, match="There is no argument 'nothing'"):
        form.select("nothing")


def test_invalid_json_reports_its_position():
    form = ArgumentForm({"a": 1})
    form.switch(1)
    with pytest.raises(InvalidJson, match="line 2, column 3") as found:
        form.store('{"a":\n  }')
    assert found.value.place == (1, 2)
    with pytest.raises(UsageError, match="must be a JSON object"):
        form.store("[1]")
    with pytest.raises(UsageError, match="command is empty"):
        ArgumentForm({"command": "ls"}).store("  ")


def test_edited_arguments_offer_no_rules():
    other = replace_arguments(COMMAND, {"command": "git status"})
    assert [choice.key for choice in other.choices] == ["allow_once", "deny", "stop"]
    assert (other.target, other.effect) == ("git status", "")
    assert "-git push origin main\n+git status" in other.permission.preview


def test_a_rule_draft_switches_between_rules_and_scopes():
    rule = RuleDraft(("one", "two"), allow=True, scope="session")
    assert rule.switch(1) == "two"
    assert rule.switch(1) == "one"
    rule.switch_scope()
    assert rule.format_label() == "Allow and save this rule for this project (rule 1 of 2):"


def test_a_long_path_is_cut_in_the_title_and_whole_in_the_request():
    path = "/".join(["folder"] * 60) + "/end.py"
    facts = replace(EDIT.permission, subject=f"/home/ann/project/{path}", title=f"Edit {path}")
    ask = make_interaction(facts)
    assert len(format_headline(ask)) <= 150
    assert "end.py" in get_text(paint_request(ask, CANVAS))
