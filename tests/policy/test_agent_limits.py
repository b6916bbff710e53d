"""Limits of a role or a sub-agent type: they restrict what the session allows, and never allow more."""

from pathlib import Path
from typing import Any, get_args

from odin.core.event_values import Mode
from odin.core.server_tool import ServerTool
from odin.core.tool import Kind, Target
from odin.policy.modes import PERMISSION_MODES
from odin.policy.policy import AgentLimits
from odin.policy.rules.rule import RuleSet
from odin.policy.rules.rule_file import RuleReader
from tests.policy.policies import make_policy
from tests.table import each

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
CALLS: tuple[tuple[str, Kind, Target], ...] = (
    ("Read", "read", Target(paths=("src/app.py",))),
    ("Read", "read", Target(paths=(".env",))),
    ("EditTool", "edit", Target(paths=("src/app.py",))),
    ("WriteFile", "edit", Target(paths=("../outside.txt",))),
    ("ExecuteCommand", "execute", Target(command="git status")),
    ("ExecuteCommand", "execute", Target(command="make all")),
    ("ExecuteCommand", "execute", Target(command="rm -rf /")),
    ("WebFetch", "network", Target(url="https://example.com/")),
    ("TodoWrite", "interactive", Target()),
)


def has_only_read(name: str, server_tool: ServerTool | None) -> bool:
    return name == "Read"


def has_all_but_todos(name: str, server_tool: ServerTool | None) -> bool:
    return name != "TodoWrite"


def make_limits(rules: Any = (), **more: Any) -> AgentLimits:
    return AgentLimits("The role x", RuleSet(RuleReader("session", "x.md").read(rules).rules), **more)


def test_limits_never_allow_more_than_the_session(workspace: Path) -> None:
    sets = (
        make_limits(),
        make_limits({"*": "allow"}, permission_mode="bypassPermissions"),
        make_limits(["Bash", "Edit(**)", "Read(**)", "WebFetch"], permission_mode="auto"),
        make_limits({"Bash": {"*": "ask", "make *": "allow"}, "Edit": "deny"}, permission_mode="default"),
        make_limits({"*": "deny"}, read_only=True),
        make_limits(permission_mode="dontAsk", has_tool=has_only_read),
    )
    for permission_mode in PERMISSION_MODES:
        for yes in (False, True):
            policy = make_policy(root=str(workspace), permission_mode=permission_mode, yes=yes)
            for one in sets:
                for name, kind, target in CALLS:
                    for mode in get_args(Mode):
                        before = policy.evaluate(name, kind, target, mode).action
                        after = policy.restrict(one).evaluate(name, kind, target, mode).action
                        assert STRICTNESS[after] >= STRICTNESS[before], (permission_mode, yes, one, name, mode)


@each(
    ("rules", "more", "settings", "call", "action"),
    [
        ({"Edit": "deny"}, {}, {"permission_mode": "acceptEdits"}, CALLS[2], "deny"),
        ({"Edit": "ask"}, {}, {"permission_mode": "acceptEdits"}, CALLS[2], "ask"),
        ({"Edit": "ask"}, {}, {"yes": True}, CALLS[2], "allow"),
        ({"Edit": "deny"}, {}, {"yes": True}, CALLS[2], "deny"),
        ({"Bash": {"*": "deny", "make *": "allow"}}, {}, {"allowed_tools": ["Bash"]}, CALLS[5], "allow"),
        ({"Bash": {"*": "deny", "make *": "allow"}}, {}, {"allowed_tools": ["Bash"]}, CALLS[4], "deny"),
        ({"*": "deny"}, {}, {}, CALLS[0], "deny"),
        ([], {"permission_mode": "default"}, {"permission_mode": "acceptEdits"}, CALLS[2], "ask"),
        ([], {"permission_mode": "default"}, {"permission_mode": "acceptEdits"}, CALLS[0], "allow"),
        ([], {"permission_mode": "acceptEdits"}, {"permission_mode": "default"}, CALLS[2], "ask"),
        ([], {"permission_mode": "dontAsk"}, {}, CALLS[2], "deny"),
        ([], {"read_only": True}, {"permission_mode": "acceptEdits"}, CALLS[2], "deny"),
        ([], {"read_only": True}, {"yes": True}, CALLS[2], "deny"),
        ([], {"has_tool": has_all_but_todos}, {"yes": True}, CALLS[8], "deny"),
    ],
)
def test_limits_restrict_the_verdict(
    workspace: Path, rules: Any, more: dict[str, Any], settings: dict[str, Any], call: Any, action: str
) -> None:
    name, kind, target = call
    policy = make_policy(root=str(workspace), **settings).restrict(make_limits(rules, **more))
    assert policy.evaluate(name, kind, target, "edit_mode").action == action


def test_denial_names_the_role_and_no_mode_beyond_its_limit_is_suggested(workspace: Path) -> None:
    policy = make_policy(root=str(workspace)).restrict(make_limits({"Bash": "deny"}, permission_mode="default"))
    decision = policy.evaluate("ExecuteCommand", "execute", Target(command="ls"), "edit_mode")
    assert decision.reason == "The rule 'Bash' denies it. (The role x)"
    assert policy.suggest_modes("EditTool", "edit", Target(paths=("a",)), "edit_mode") == ()


def test_files_denied_by_limits_are_left_out_of_search_results(workspace: Path) -> None:
    policy = make_policy(root=str(workspace)).restrict(make_limits({"Read": {"secret/**": "deny"}}))
    hides = policy.make_result_filter("Grep", "read", Target(paths=(".",)), "edit_mode")
    assert hides(str(workspace / "secret/a.txt")) and not hides(str(workspace / "open/a.txt"))
