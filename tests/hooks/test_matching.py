"""Hook matching: matchers accept every name of a tool, and all filters must match."""

from typing import Any

import pytest

from odin.core.policy import HookCall
from odin.hooks.declaration import HOOK_EVENTS, HookFilters, HookSpec, match_hook
from tests.table import each

ROOT = "/srv/project"


def make_hook(event: str = "PreToolUse", matcher: str = "", **filters: Any) -> HookSpec:
    return HookSpec(event=event, name="h", command="x", matcher=matcher, filters=HookFilters(**filters))


def make_call(tool: str, **fields: Any) -> HookCall:
    return HookCall("PreToolUse", tool=tool, **fields)


@each(
    ("matcher", "tool", "named"),
    [
        ("", "ExecuteCommand", "Bash"),
        ("*", "ExecuteCommand", "Bash"),
        (".*", "EditTool", "Edit"),
        ("Bash", "ExecuteCommand", "Bash"),
        ("ExecuteCommand", "ExecuteCommand", "ExecuteCommand"),
        ("shell", "ExecuteCommand", "shell"),
        ("Bash|Edit", "EditTool", "Edit"),
        ("Edit|Write", "WriteFile", "Write"),
        ("Bash", "Spawn", "Bash"),
        ("Write|Edit", "AppendFile", "Write"),
        ("Write|Edit", "Delete", "Write"),
        ("Delete", "Delete", "Delete"),
        ("ExecuteCommand", "Spawn", None),
        ("Edit", "MultiEditTool", None),
        ("Multi.*", "MultiEditTool", "MultiEdit"),
        ("^Web", "WebFetch", "WebFetch"),
        ("bas", "ExecuteCommand", None),
        ("Bas", "ExecuteCommand", None),
        ("mcp__.*", "ExecuteCommand", None),
        ("mcp__.*", "mcp__files__read", "mcp__files__read"),
        ("Edit, Write", "WriteFile", "Write"),
        ("Edit | Write", "WriteFile", "Write"),
        ("mcp__my-server", "mcp__my-server__tool", None),
    ],
)
def test_matcher_accepts_every_name_of_a_tool(matcher: str, tool: str, named: str | None):
    assert match_hook(make_hook(matcher=matcher), make_call(tool), ROOT) == named


def test_odin_events_use_odin_tool_names():
    assert match_hook(make_hook("on_tool_call"), make_call("ExecuteCommand"), ROOT) == "ExecuteCommand"
    assert match_hook(make_hook("on_tool_call", "Bash"), make_call("ExecuteCommand"), ROOT) == "Bash"


def test_hook_matches_only_calls_at_its_points():
    assert match_hook(make_hook("Stop"), make_call("Read"), ROOT) is None
    assert match_hook(make_hook("Stop", matcher="whatever"), HookCall("Stop"), ROOT) == ""


@pytest.mark.parametrize(
    ("event", "good", "bad"), [("PostToolUse", 1, 0), ("PostToolUseFailure", 0, 1), ("on_tool_result", 1, 1)]
)
def test_success_and_failure_events_match_their_tool_results(event: str, good: int, bad: int):
    for wrong, wanted in ((False, good), (True, bad)):
        call = HookCall("PostToolUse", tool="Read", is_error=wrong)
        assert (match_hook(make_hook(event), call, ROOT) is not None) == bool(wanted)


def test_matcher_compares_the_session_start_reason_or_the_notification_kind():
    assert match_hook(make_hook("SessionStart", "resume"), HookCall("SessionStart", reason="startup"), ROOT) is None
    assert match_hook(make_hook("SessionStart", "resume"), HookCall("SessionStart", reason="resume"), ROOT) == ""
    assert match_hook(make_hook("Notification", "idle_prompt"), HookCall("on_idle"), ROOT) == ""
    assert match_hook(make_hook("Notification", "idle_prompt"), HookCall("PermissionRequest"), ROOT) is None
    assert HOOK_EVENTS["Notification"].points == ("PermissionRequest", "on_wait_question", "on_idle")


@pytest.mark.parametrize(
    ("patterns", "path", "fits"),
    [
        (("src/**",), "/srv/project/src/a/b.py", True),
        (("src/**",), "/srv/project/lib/b.py", False),
        (("src/*.py",), "/srv/project/src/b.py", True),
        (("src/*.py",), "/srv/project/src/a/b.py", False),
        (("*.py",), "/srv/project/src/a/b.py", True),
        (("**/*.py",), "/srv/project/b.py", True),
        (("/etc/**",), "/etc/passwd", True),
        (("/etc/**",), "/srv/project/etc/passwd", False),
        (("./src/?.py",), "/srv/project/src/b.py", True),
        (("a.b",), "/srv/project/axb", False),
        (("nothing", "*.md"), "/srv/project/x.md", True),
    ],
)
def test_path_filters_are_relative_to_the_project(patterns: tuple[str, ...], path: str, fits: bool):
    assert (match_hook(make_hook(paths=patterns), make_call("EditTool", paths=(path,)), ROOT) is not None) == fits


@each(
    ("filters", "fits"),
    [
        ({"tools": ("Edit",)}, True),
        ({"tools": ("EditTool",)}, True),
        ({"tools": ("*Tool",)}, True),
        ({"tools": ("Bash",)}, False),
        ({"agents": ("main",)}, True),
        ({"agents": ("agent-*",)}, False),
        ({"models": ("claude-*",)}, True),
        ({"models": ("anthropic/*",)}, True),
        ({"models": ("gpt-*",)}, False),
        ({"min_changed_files": 2}, True),
        ({"min_changed_files": 3}, False),
        ({"only_on_error": True}, False),
        ({"tools": ("Edit",), "models": ("gpt-*",)}, False),
        ({"tools": ("Edit",), "agents": ("main",), "min_changed_files": 1}, True),
    ],
)
def test_all_given_filters_must_match(filters: dict[str, Any], fits: bool):
    call = make_call("EditTool", model="anthropic/claude-x", changed=("/srv/project/a", "/srv/project/b"))
    assert (match_hook(make_hook(**filters), call, ROOT) is not None) == fits


def test_batch_matches_if_one_of_its_tools_matches():
    call = HookCall("on_tool_batch_complete", tools=("Read", "EditTool"))
    assert match_hook(make_hook("on_tool_batch_complete", "Edit"), call, ROOT) == "Edit"
    assert match_hook(make_hook("on_tool_batch_complete", tools=("Bash",)), call, ROOT) is None
