"""Rules in the formats of several agents, and warnings about invalid ones."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.tool import Target
from odin.policy.rules.rule import RuleSet
from odin.policy.rules.rule_file import RuleReader
from tests.policy.policies import make_policy
from tests.table import each


def read_rules(value: Any, *, trusted: bool = True) -> RuleReader:
    return RuleReader("project" if not trusted else "user", "file.json", trusted=trusted).read(value)


def list_rules(value: Any) -> list[tuple[str, str]]:
    reader = read_rules(value)
    assert reader.warnings == []
    return [(rule.action, rule.text) for rule in reader.rules]


def test_strings_in_a_list_are_allow_rules() -> None:
    assert list_rules(["Bash(git log:*)", "Read"]) == [("allow", "Bash(git log:*)"), ("allow", "Read")]


def test_rules_can_be_objects_with_fields() -> None:
    assert list_rules(
        [
            {"tool": "shell", "argument": "git *", "action": "allow"},
            {"tool": "Edit", "pattern": "src/**", "action": "ask"},
            {"tool": "WebFetch", "action": "deny"},
            {"tool": "*", "argument": "*", "action": "ask"},
            {"rule": "Bash(ls)", "action": "deny"},
        ]
    ) == [
        ("allow", "shell(git *)"),
        ("ask", "Edit(src/**)"),
        ("deny", "WebFetch"),
        ("ask", "*"),
        ("deny", "Bash(ls)"),
    ]


def test_lists_by_action_are_read_in_any_order_and_inside_permissions() -> None:
    by_action = {"deny": ["Bash(a)"], "ask": ["Bash(b)"], "allow": ["Bash(c)"]}
    expected = [("allow", "Bash(c)"), ("ask", "Bash(b)"), ("deny", "Bash(a)")]
    assert list_rules(by_action) == expected
    assert list_rules({"permissions": by_action}) == expected
    assert list_rules([by_action, "Bash(d)"]) == [*expected, ("allow", "Bash(d)")]


def test_star_pattern_of_a_tool_is_the_weakest_wherever_it_is_written() -> None:
    assert list_rules(
        {"bash": {"git *": "allow", "*": "ask"}, "edit": "deny", "webfetch": {"domain:a.example": "allow"}}
    ) == [
        ("ask", "bash"),
        ("allow", "bash(git *)"),
        ("deny", "edit(**)"),
        ("allow", "webfetch(domain:a.example)"),
    ]


def find_action(value: Any, command: str) -> str:
    policy = make_policy(root="/nowhere/project", rule_set=RuleSet(read_rules(value).rules))
    return policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode").action


def test_patterns_of_a_tool_decide_about_its_calls() -> None:
    value = {"bash": {"git *": "allow", "git push *": "deny", "*": "ask"}}
    assert find_action(value, "git fetch") == "allow"
    assert find_action(value, "git") == "allow"
    assert find_action(value, "git push") == "deny"
    assert find_action(value, "ls") == "ask"


def test_star_that_denies_a_tool_spares_its_allowed_patterns() -> None:
    value = {"bash": {"*": "deny", "git *": "allow"}}
    assert find_action(value, "git fetch") == "allow"
    assert find_action(value, "ls") == "deny"
    assert find_action(value, "git fetch && git pull") == "allow"
    assert find_action(value, "git fetch && ls") == "deny"
    assert find_action(value, "git fetch && touch x") == "deny"
    assert find_action(value, "git fetch $(touch x)") == "deny"
    assert find_action([value, "Bash(touch:*)"], "touch x") == "deny"


def test_star_that_denies_all_tools_spares_the_allowed_ones(workspace: Path) -> None:
    value = {"read": "allow", "bash": {"git *": "allow"}, "*": "deny"}
    assert find_action(value, "git fetch") == "allow"
    assert find_action(value, "make") == "deny"
    assert find_action(value, "git fetch && ls") == "deny", "a rule for Read allows no command"
    policy = make_policy(root=str(workspace), rule_set=RuleSet(read_rules(value).rules))
    file = Target(paths=(str(workspace / "a.txt"),))
    assert policy.evaluate("Read", "read", file, "edit_mode").action == "allow"
    assert policy.evaluate("WriteFile", "edit", file, "edit_mode").action == "deny"
    assert policy.evaluate("WebFetch", "network", Target(url="https://a.example/"), "edit_mode").action == "deny"


@pytest.mark.parametrize("value", [["bash", "git *", "allow"], [["bash", "git *", "allow"], "Read"]])
def test_rule_as_three_strings_allows_only_its_pattern(value: Any) -> None:
    assert list_rules(value)[0] == ("allow", "bash(git *)")
    assert find_action(value, "git fetch") == "allow"
    assert find_action(value, "make") == "ask"


@each(
    ("value", "said"),
    [
        ("Bash(", "rules is ignored: 'Bash(' is not a rule"),
        (["Read", "a b"], "rules[1] is ignored: 'a b' is not a rule"),
        (["allow"], "rules[0] is ignored: it is not a tool"),
        ([3], "rules[0] is ignored: it must be a rule, a list or an object"),
        ([{"tool": "Bash", "action": "maybe"}], 'rules[0] is ignored: it needs an "action": one of allow, ask, deny'),
        (
            [{"tool": "Bash", "argument": 3, "action": "deny"}],
            "rules[0] is ignored: it must have strings in its fields",
        ),
        ({"allow": "Bash"}, "rules.allow is ignored: it must be a list of rules"),
        ({"allow": [3]}, "rules.allow[0] is ignored: it must be a string such as Bash(git log:*)"),
        ({"permissions": {"allow": [], "forbid": []}}, "rules.permissions.forbid is ignored: it is not one of"),
        (
            {"permissions": {"deny": [], "defaultMode": "x"}},
            "rules.permissions.defaultMode is ignored: it has no effect",
        ),
        ({"bash": "sometimes"}, "rules.bash is ignored: it must be one of allow, ask, deny"),
        ({"bash": {"x": 3}}, "rules.bash.x is ignored: it must be one of allow, ask, deny"),
        (["Delete"], "rules[0] is ignored: Delete would allow any deletion"),
        (["Delete(build/**)"], "rules[0] is ignored: Delete(build/**) would allow any deletion"),
    ],
)
def test_invalid_rules_are_reported_with_their_position_and_ignored(value: Any, said: str) -> None:
    reader = read_rules(value)
    (warning,) = reader.warnings
    assert warning.startswith(f"file.json: {said}")
    assert warning.endswith(".")
    assert all(rule.text == "Read" for rule in reader.rules)


def test_invalid_rule_does_not_affect_the_others() -> None:
    reader = read_rules(["Bash(a)", "((", {"ask": ["Bash(b)"]}])
    assert [rule.text for rule in reader.rules] == ["Bash(a)", "Bash(b)"]
    assert len(reader.warnings) == 1


def test_allow_rules_of_an_untrusted_file_are_ignored() -> None:
    reader = read_rules({"allow": ["Bash(a)"], "ask": ["Bash(b)"], "deny": ["Bash(c)"]}, trusted=False)
    assert [(rule.action, rule.text) for rule in reader.rules] == [("ask", "Bash(b)"), ("deny", "Bash(c)")]
    assert "rules.allow[0] (Bash(a)) is ignored" in reader.warnings[0]
    assert "not trusted" in reader.warnings[0]
    spared = read_rules({"bash": {"*": "deny", "git *": "allow"}}, trusted=False)
    assert [(rule.action, rule.exceptions) for rule in spared.rules] == [("deny", ())]


def test_tool_names_of_other_agents_are_aliases(workspace: Path) -> None:
    for name in ("Bash", "shell", "run_shell_command", "ExecuteCommand"):
        policy = make_policy(root=str(workspace), rule_set=RuleSet(read_rules([f"{name}(make:*)"]).rules))
        assert policy.evaluate("ExecuteCommand", "execute", Target(command="make"), "edit_mode").action == "allow"
