"""Rules for commands also apply to background commands."""

from typing import Any

import pytest

from odin.core.tool import Subject
from odin.policy.policy import Policy
from tests.policy.policies import make_policy


def verdict(name: str, command: str, **rules: Any) -> str:
    return make_policy(root="/project", **rules).judge(name, "execute", Subject(command=command), "edit_mode").action


@pytest.mark.parametrize("name", ["ExecuteCommand", "Spawn"])
def test_rules_for_commands_hold_for_both(name: str) -> None:
    assert verdict(name, "npm start") == "ask"
    assert verdict(name, "ls") == "allow"
    assert verdict(name, "npm start", allowed_tools=["Bash(npm start)"]) == "allow"
    assert verdict(name, "npm start", allowed_tools=["Bash(npm:*)"]) == "allow"
    assert verdict(name, "npm publish", disallowed_tools=["Bash(npm publish:*)"], yes=True) == "deny"
    assert verdict(name, "npm start", disallowed_tools=["Bash"], yes=True) == "deny"
    assert verdict(name, "npm start", forbidden_commands=["npm"], yes=True) == "deny"
    assert verdict(name, "rm -rf /", yes=True) == "deny"


def test_a_rule_for_spawn_says_nothing_of_plain_commands() -> None:
    assert verdict("Spawn", "npm start", disallowed_tools=["Spawn"], yes=True) == "deny"
    assert verdict("ExecuteCommand", "npm start", disallowed_tools=["Spawn"], yes=True) == "allow"


@pytest.mark.parametrize(("name", "kind"), [("SpawnStatus", "read"), ("SpawnStop", "talk")])
def test_looking_and_stopping_ask_nobody(name: str, kind: Any) -> None:
    for mode in ("ask_mode", "plan_mode", "edit_mode"):
        assert Policy(root="/project").judge(name, kind, Subject(), mode).action == "allow"
