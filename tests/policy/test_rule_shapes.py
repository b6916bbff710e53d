"""Rules in the syntax of several agents, and warnings about invalid ones."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.tool import Subject
from odin.policy.policy import Policy
from odin.policy.rules.rule import RuleSet
from odin.policy.rules.rule_file import RuleReader
from tests.table import each


def read(value: Any, *, trusted: bool = True) -> RuleReader:
    return RuleReader("project" if not trusted else "user", "file.json", trusted=trusted).read(value)


def lines(value: Any) -> list[tuple[str, str]]:
    shapes = read(value)
    assert shapes.warnings == []
    return [(rule.action, rule.text) for rule in shapes.rules]


def test_a_list_of_texts_allows() -> None:
    assert lines(["Bash(git log:*)", "Read"]) == [("allow", "Bash(git log:*)"), ("allow", "Read")]


def test_rules_in_fields_of_their_own() -> None:
    assert lines(
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


def test_lists_by_action_in_any_order_and_inside_permissions() -> None:
    by_action = {"deny": ["Bash(a)"], "ask": ["Bash(b)"], "allow": ["Bash(c)"]}
    expected = [("allow", "Bash(c)"), ("ask", "Bash(b)"), ("deny", "Bash(a)")]
    assert lines(by_action) == expected
    assert lines({"permissions": by_action}) == expected
    assert lines([by_action, "Bash(d)"]) == [*expected, ("allow", "Bash(d)")]


def test_tools_with_patterns_where_the_rest_is_the_weakest_wherever_it_stands() -> None:
    assert lines(
        {"bash": {"git *": "allow", "*": "ask"}, "edit": "deny", "webfetch": {"domain:a.example": "allow"}}
    ) == [
        ("ask", "bash"),
        ("allow", "bash(git *)"),
        ("deny", "edit(**)"),
        ("allow", "webfetch(domain:a.example)"),
    ]


def verdict(value: Any, command: str) -> str:
    policy = Policy(root="/nowhere/project", rule_set=RuleSet(read(value).rules))
    return policy.judge("ExecuteCommand", "execute", Subject(command=command), "edit_mode").action


def test_tools_with_patterns_decide_as_they_read() -> None:
    value = {"bash": {"git *": "allow", "git push *": "deny", "*": "ask"}}
    assert verdict(value, "git fetch") == "allow"
    assert verdict(value, "git") == "allow"
    assert verdict(value, "git push") == "deny"
    assert verdict(value, "ls") == "ask"


def test_denying_the_rest_spares_what_is_allowed_beside_it() -> None:
    value = {"bash": {"*": "deny", "git *": "allow"}}
    assert verdict(value, "git fetch") == "allow"
    assert verdict(value, "ls") == "deny"
    assert verdict(value, "git fetch && git pull") == "allow"
    assert verdict(value, "git fetch && ls") == "deny"
    assert verdict(value, "git fetch && touch x") == "deny"
    assert verdict(value, "git fetch $(touch x)") == "deny"
    assert verdict([value, "Bash(touch:*)"], "touch x") == "deny"


def test_denying_the_rest_of_all_tools_spares_what_is_allowed_beside_it(workspace: Path) -> None:
    value = {"read": "allow", "bash": {"git *": "allow"}, "*": "deny"}
    assert verdict(value, "git fetch") == "allow"
    assert verdict(value, "make") == "deny"
    assert verdict(value, "git fetch && ls") == "deny", "what reading allows is no command"
    policy = Policy(root=str(workspace), rule_set=RuleSet(read(value).rules))
    file = Subject(paths=(str(workspace / "a.txt"),))
    assert policy.judge("Read", "read", file, "edit_mode").action == "allow"
    assert policy.judge("WriteFile", "edit", file, "edit_mode").action == "deny"
    assert policy.judge("WebFetch", "network", Subject(url="https://a.example/"), "edit_mode").action == "deny"


@pytest.mark.parametrize("value", [["bash", "git *", "allow"], [["bash", "git *", "allow"], "Read"]])
def test_a_rule_as_three_texts_allows_no_more_than_it_says(value: Any) -> None:
    assert lines(value)[0] == ("allow", "bash(git *)")
    assert verdict(value, "git fetch") == "allow"
    assert verdict(value, "make") == "ask"


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
def test_what_cannot_be_understood_is_reported_with_its_place_and_ignored(value: Any, said: str) -> None:
    shapes = read(value)
    (warning,) = shapes.warnings
    assert warning.startswith(f"file.json: {said}")
    assert warning.endswith(".")
    assert all(rule.text == "Read" for rule in shapes.rules)


def test_one_bad_rule_does_not_take_the_others_with_it() -> None:
    shapes = read(["Bash(a)", "((", {"ask": ["Bash(b)"]}])
    assert [rule.text for rule in shapes.rules] == ["Bash(a)", "Bash(b)"]
    assert len(shapes.warnings) == 1


def test_where_nobody_is_trusted_only_stricter_rules_count() -> None:
    shapes = read({"allow": ["Bash(a)"], "ask": ["Bash(b)"], "deny": ["Bash(c)"]}, trusted=False)
    assert [(rule.action, rule.text) for rule in shapes.rules] == [("ask", "Bash(b)"), ("deny", "Bash(c)")]
    assert "rules.allow[0] (Bash(a)) is ignored" in shapes.warnings[0]
    assert "not trusted" in shapes.warnings[0]
    spared = read({"bash": {"*": "deny", "git *": "allow"}}, trusted=False)
    assert [(rule.action, rule.exceptions) for rule in spared.rules] == [("deny", ())]


def test_the_names_of_other_agents_mean_the_same_tools(workspace: Path) -> None:
    for name in ("Bash", "shell", "run_shell_command", "ExecuteCommand"):
        policy = Policy(root=str(workspace), rule_set=RuleSet(read([f"{name}(make:*)"]).rules))
        assert policy.judge("ExecuteCommand", "execute", Subject(command="make"), "edit_mode").action == "allow"
