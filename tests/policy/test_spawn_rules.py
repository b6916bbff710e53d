"""Rules for commands also apply to background commands."""

from typing import Any

import pytest

from odin.core.tool import Target
from tests.policy.policies import make_policy


def find_action(name: str, command: str, **rules: Any) -> str:
    return make_policy(root="/project", **rules).evaluate(name, "execute", Target(command=command), "edit_mode").action


@pytest.mark.parametrize("name", ["ExecuteCommand", "Spawn"])
def test_command_rules_apply_to_foreground_and_background_commands(name: str) -> None:
    assert find_action(name, "npm start") == "ask"
    assert find_action(name, "ls") == "allow"
    assert find_action(name, "npm start", allowed_tools=["Bash(npm start)"]) == "allow"
    assert find_action(name, "npm start", allowed_tools=["Bash(npm:*)"]) == "allow"
    assert find_action(name, "npm publish", disallowed_tools=["Bash(npm publish:*)"], yes=True) == "deny"
    assert find_action(name, "npm start", disallowed_tools=["Bash"], yes=True) == "deny"
    assert find_action(name, "npm start", forbidden_commands=["npm"], yes=True) == "deny"
    assert find_action(name, "rm -rf /", yes=True) == "deny"


def test_spawn_rule_does_not_apply_to_foreground_commands() -> None:
    assert find_action("Spawn", "npm start", disallowed_tools=["Spawn"], yes=True) == "deny"
    assert find_action("ExecuteCommand", "npm start", disallowed_tools=["Spawn"], yes=True) == "allow"


@pytest.mark.parametrize(("name", "kind"), [("SpawnStatus", "read"), ("SpawnStop", "interactive")])
def test_status_and_stop_need_no_approval(name: str, kind: Any) -> None:
    for mode in ("ask_mode", "plan_mode", "edit_mode"):
        assert make_policy(root="/project").evaluate(name, kind, Target(), mode).action == "allow"
