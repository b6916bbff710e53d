"""Rule precedence: deny rules of any layer, then the strongest layer with a matching rule, then the last rule."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odin.core.errors import UsageError
from odin.core.policy import RuleLayer
from odin.core.server_tool import ServerTool
from odin.core.tool import Kind, Target
from odin.policy.decision import Decision
from odin.policy.rules.rule import LAYERS, Rule, RuleSet, parse_rule
from tests.policy.policies import make_policy
from tests.table import each

RuleSpec = tuple[Any, Any, str]
"""A layer, an action and the text of a rule."""


def make_rules(*rules: RuleSpec) -> list[Rule]:
    return [parse_rule(text, action, layer, "somewhere") for layer, action, text in rules]


class Evaluator:
    """A policy with helpers for the calls in these tests."""

    def __init__(self, root: Path, *rules: RuleSpec) -> None:
        self.root = root
        self.policy = make_policy(root=str(root), rule_set=RuleSet(make_rules(*rules)))

    def decide(self, name: str, kind: Kind, target: Target) -> Decision:
        return self.policy.evaluate(name, kind, target, "edit_mode")

    def run(self, command: str) -> str:
        return self.decide("ExecuteCommand", "execute", Target(command=command)).action

    def edit(self, *names: str, tool: str = "EditTool") -> str:
        return self.decide(tool, "edit", Target(paths=tuple(str(self.root / name) for name in names))).action


@each("denying", LAYERS)
@each("allowing", LAYERS)
def test_deny_rule_of_any_layer_wins(workspace: Path, denying: RuleLayer, allowing: RuleLayer) -> None:
    for rules in (
        [(denying, "deny", "Bash(deploy:*)"), (allowing, "allow", "Bash(deploy:*)")],
        [(allowing, "allow", "Bash(deploy now)"), (denying, "deny", "Bash(deploy:*)")],
    ):
        decision = Evaluator(workspace, *rules).decide("ExecuteCommand", "execute", Target(command="deploy now"))
        assert decision.action == "deny"
        assert decision.rule == f"deny Bash(deploy:*) ({denying}, somewhere)"
        assert "somewhere" in decision.rule


@pytest.mark.parametrize(("weaker", "stronger"), [*pairwise(LAYERS)])
def test_stronger_layer_decides_between_ask_and_allow(workspace: Path, weaker: RuleLayer, stronger: RuleLayer) -> None:
    for one, other, expected in (("ask", "allow", "allow"), ("allow", "ask", "ask")):
        rules = [(weaker, one, "Bash(deploy:*)"), (stronger, other, "Bash(deploy:*)")]
        assert Evaluator(workspace, *rules).run("deploy now") == expected
        assert Evaluator(workspace, *reversed(rules)).run("deploy now") == expected
        paths = [(weaker, one, "Edit(src/**)"), (stronger, other, "Edit(src/**)")]
        assert Evaluator(workspace, *paths).edit("src/x") == expected


def test_last_matching_rule_of_a_layer_decides(workspace: Path) -> None:
    general: RuleSpec = ("user", "allow", "Bash(deploy:*)")
    special: RuleSpec = ("user", "ask", "Bash(deploy prod:*)")
    assert Evaluator(workspace, general, special).run("deploy prod") == "ask"
    assert Evaluator(workspace, general, special).run("deploy test") == "allow"
    assert Evaluator(workspace, special, general).run("deploy prod") == "allow"


def test_an_ask_rule_beats_the_default(workspace: Path) -> None:
    evaluator = Evaluator(workspace, ("user", "ask", "Bash(ls:*)"), ("user", "ask", "Read(notes/**)"))
    assert evaluator.run("ls") == "ask"
    assert evaluator.run("pwd && ls -la") == "ask"
    assert evaluator.run("pwd") == "allow"
    read = evaluator.decide("Read", "read", Target(paths=(str(workspace / "notes" / "x"),)))
    assert (read.action, read.rule) == ("ask", "ask Read(notes/**) (user, somewhere)")
    assert evaluator.run("cat notes/x") == "ask"


# --- compound commands ---


def test_in_a_compound_command_deny_beats_ask_beats_allow(workspace: Path) -> None:
    evaluator = Evaluator(
        workspace,
        ("user", "allow", "Bash(build:*)"),
        ("user", "ask", "Bash(check:*)"),
        ("user", "deny", "Bash(deploy:*)"),
    )
    assert evaluator.run("build a && build b") == "allow"
    assert evaluator.run("build && check") == "ask"
    assert evaluator.run("build && check && deploy") == "deny"
    assert evaluator.run("build && unknown") == "ask"
    assert evaluator.run("build | head -3") == "allow"


def test_rule_for_the_whole_command_overrides_all_but_deny_rules(workspace: Path) -> None:
    whole: RuleSpec = ("user", "allow", "Bash(build && check > log)")
    evaluator = Evaluator(workspace, whole, ("session", "ask", "Bash(check:*)"))
    assert evaluator.run("build && check > log") == "allow"
    assert evaluator.run(" build && check > log ") == "allow"
    assert evaluator.run("build  && check > log") == "ask"
    assert evaluator.run("build && check") == "ask"
    assert Evaluator(workspace, whole, ("user", "deny", "Bash(check:*)")).run("build && check > log") == "deny"
    asked = Evaluator(workspace, ("user", "allow", "Bash(build:*)"), ("user", "ask", "Bash(build prod)"))
    assert asked.run("build prod") == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "git log > x",
        "git log --output=x",
        "git log --outp x",
        "git log; touch x",
        "git log && touch x",
        "git log | tee x",
        "git log $(touch x)",
        "git log `touch x`",
        "git log $X",
        "git log *",
        "git log & touch x",
        "git log\ntouch x",
        "git log --ext-diff",
        "git log ../elsewhere",
        "git log /etc",
        "GIT_PAGER=x git log",
        "sudo git log",
        "git -C x log",
        "git logs",
    ],
)
def test_allowed_prefix_does_not_allow_redirects_or_further_commands(workspace: Path, command: str) -> None:
    (workspace / "--output=x").touch()
    assert Evaluator(workspace, ("user", "allow", "Bash(git log:*)")).run(command) == "ask"


def test_allowed_prefix_allows_any_arguments(workspace: Path) -> None:
    evaluator = Evaluator(workspace, ("user", "allow", "Bash(git log:*)"), ("user", "allow", "Bash(npm run *)"))
    for command in ("git log", "git log --format=%H -n 3", "git log && npm run test", "npm run", "npm run x -- --y"):
        assert evaluator.run(command) == "allow"


@pytest.mark.parametrize(
    ("rule", "command", "action"),
    [
        ("Bash(bash:*)", "bash -c 'touch x'", "ask"),
        ("Bash(xargs:*)", "echo x | xargs touch", "ask"),
        ("Bash(env:*)", "env touch x", "ask"),
        ("Bash(sudo:*)", "sudo touch x", "ask"),
        ("Bash(timeout 60 make:*)", "timeout 60 make all", "allow"),
        ("Bash(find:*)", "find . -exec touch x \\;", "ask"),
        ("Bash(git rebase:*)", "git rebase --exec x main", "ask"),
        ("Bash(git rebase:*)", "git rebase main", "allow"),
        ("Bash(git:*)", "git -c core.pager=x log", "ask"),
        ("Bash(git:*)", "git -calias.x=y x", "ask"),
        ("Bash(git:*)", "git --exec-path=x log", "ask"),
        ("Bash(git:*)", "git --no-pager fetch", "allow"),
        ("Bash(git:*)", "git switch -c new", "allow"),
        ("Bash(git:*)", "git grep -Ox y", "ask"),
        ("Bash(git * main)", "git checkout main", "allow"),
        ("Bash(git * main)", "git checkout x main", "ask"),
        ("Bash(git * main)", "git --upload-pack=x main", "ask"),
        ("Bash(make ?)", "make a", "allow"),
        ("Bash(make ?)", "make ab", "ask"),
        ("Bash(:*)", "make ab", "allow"),
    ],
)
def test_nested_commands_must_be_allowed_too(workspace: Path, rule: str, command: str, action: str) -> None:
    assert Evaluator(workspace, ("user", "allow", rule)).run(command) == action


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Bash(deploy *)", "deploy"),
        ("Bash(deploy)", "/usr/bin/deploy"),
        ("Bash(deploy -fr x)", "deploy -r -f x"),
        ("Bash(deploy)", "sudo deploy"),
        ("Bash(git * main)", "git push origin --force main"),
        ("Bash(git push*)", "git push"),
        ("Bash(dep*)", "deploy now"),
        ("Bash(deploy now)", "echo $(deploy now)"),
        ("Bash(deploy:*)", "bash -c 'deploy \"unclosed'"),
        ("Bash(deploy:*)", "awk 'BEGIN{system(\"deploy now\")}'"),
        ("Bash(deploy:*)", "python3 -c 'import os; os.system(\"deploy\")'"),
        ("Bash(git push:*)", 'node -e \'run(["git", "push"])\''),
        ("Bash(deploy:*)", "git clone --upload-pack='deploy;' . x"),
        ("Bash(deploy:*)", "/opt/bin/deploy"),
        ("Bash(/opt/bin/deploy:*)", "deploy x"),
        ("Bash(./deploy.sh)", "bash -c ./deploy.sh"),
        ("Bash", "ls"),
        ("*", "ls"),
        ("Read(secrets/**)", "cd secrets && cat key"),
        ("Read(secrets/key)", "cd secrets && cat key"),
        ("Read(secrets/key)", "make -C secrets key"),
        ("Read(secrets/**)", "cat < secrets/key"),
        ("Read(secrets/**)", "cat Secrets/Key"),
        ("Read(secrets/**)", "head --lines=3 --file=secrets/key"),
        ("Read(/secrets/**)", "cat secrets/key"),
        ("Read(//PROJECT/secrets/**)", "cat secrets/key"),
        ("Read(secrets/key)", "cat sec*/k?y"),
        ("Edit(secrets/**)", "X=secrets/key; touch $X"),
    ],
)
def test_deny_rule_matches_the_command_in_any_spelling(workspace: Path, rule: str, command: str) -> None:
    (workspace / "secrets").mkdir()
    (workspace / "secrets" / "key").write_text("x")
    text = rule.replace("/PROJECT", str(workspace))
    assert Evaluator(workspace, ("user", "deny", text)).run(command) == "deny"


@pytest.mark.parametrize("rule", ["Bash(deploy)", "Bash(deploy -f:*)", "Read(secrets/**)", "Bash(git * main)"])
def test_deny_rule_does_not_match_other_commands(workspace: Path, rule: str) -> None:
    evaluator = Evaluator(workspace, ("user", "deny", rule))
    assert evaluator.run("ls") == "allow"
    assert evaluator.run("deploy now") == "ask"
    assert evaluator.run("git push origin other") == "ask"


def test_exact_allow_rule_applies_to_a_command_that_cannot_be_analyzed(workspace: Path) -> None:
    rules: list[RuleSpec] = [("user", "deny", "Bash(deploy:*)")]
    assert Evaluator(workspace, *rules, ("session", "allow", "Bash")).run("bash build.sh") == "ask"
    assert Evaluator(workspace, *rules, ("session", "allow", "Bash(bash build.sh)")).run("bash build.sh") == "allow"


# --- deletions ---


def test_only_an_exact_path_allows_a_deletion(workspace: Path) -> None:
    for text in ("Edit(**)", "Edit(src/**)", "*", "Edit(src/old)", "Write"):
        assert Evaluator(workspace, ("user", "allow", text)).edit("src/old", tool="Delete") == "ask"
    evaluator = Evaluator(workspace, ("user", "allow", "Delete(src/old)"), ("user", "allow", "Delete(./top)"))
    assert evaluator.edit("src/old", tool="Delete") == "allow"
    assert evaluator.edit("src/old", "top", tool="Delete") == "allow"
    assert evaluator.edit("src/old", "other", tool="Delete") == "ask"
    assert evaluator.edit("deep/top", tool="Delete") == "ask"
    assert evaluator.edit("src/old") == "ask"
    full = Evaluator(workspace, ("user", "allow", f"Delete({workspace}/src/old)"))
    assert full.edit("src/old", tool="Delete") == "allow"


@pytest.mark.parametrize("text", ["Delete", "Delete(*)", "Delete(src/**)", "delete_file(build/?)", "Delete()"])
def test_allow_rule_for_deletions_without_an_exact_path_is_rejected(text: str) -> None:
    rule_set = RuleSet()
    with pytest.raises(UsageError, match="exact paths"):
        rule_set.add(text)
    rule_set.add(text, "deny")
    assert [line.action for line in rule_set.list_rules()] == ["deny"]


@pytest.mark.parametrize("text", ["Bash(make\u202e)", "Bash(make\u200b:*)", "Bash(a\nb)"])
def test_rule_with_invisible_characters_is_rejected(text: str) -> None:
    rule_set = RuleSet()
    with pytest.raises(UsageError, match="invisible characters"):
        rule_set.add(text)
    assert rule_set.list_rules() == ()


# --- several paths ---


def test_every_path_of_a_call_is_judged_separately(workspace: Path) -> None:
    evaluator = Evaluator(
        workspace,
        ("user", "allow", "Edit(src/**)"),
        ("user", "allow", "Edit(docs/**)"),
        ("user", "ask", "Edit(docs/law.md)"),
        ("user", "deny", "Edit(src/frozen)"),
    )
    assert evaluator.edit("src/a", "docs/b") == "allow"
    assert evaluator.edit("src/a", "docs/law.md") == "ask"
    assert evaluator.edit("src/a", "elsewhere") == "ask"
    assert evaluator.edit("src/a", "src/frozen") == "deny"


# --- other tools ---


LONG = "a" * 60


@pytest.mark.parametrize(
    ("rule", "server", "tool", "allowed", "denied"),
    [
        ("mcp__files__read", "files", "read", "allow", "deny"),
        ("mcp__files__read", "files", "write", "ask", "ask"),
        ("mcp__files", "files", "write", "allow", "deny"),
        ("mcp__files", "filesystem", "write", "ask", "ask"),
        ("mcp__files", "files__evil", "write", "ask", "deny"),
        ("mcp__files", "files_", "write", "ask", "deny"),
        ("mcp__files_", "files", "write", "ask", "deny"),
        ("mcp__files__", "files", "write", "ask", "deny"),
        ("mcp__files__evil", "files__evil", "write", "ask", "deny"),
        ("mcp__files__evil", "files", "evil__more", "ask", "deny"),
        ("mcp__files__evil", "files", "evil_more", "ask", "ask"),
        ("mcp__files__*", "files", "write", "allow", "deny"),
        ("mcp__files__*", "files__evil", "write", "ask", "deny"),
        ("mcp__*__write", "files", "write", "allow", "deny"),
        ("mcp__f*write", "files", "write", "ask", "deny"),
        ("mcp__my.files__read.all", "my files", "read/all", "allow", "deny"),
        ("mcp_files_write", "files", "write", "allow", "deny"),
        ("mcp_files_write_all", "files", "write_all", "allow", "deny"),
        ("mcp_files_write_all", "files_write", "all", "ask", "deny"),
        ("mcp__files__write(x)", "files", "write", "ask", "deny"),
        (f"mcp__{LONG}", LONG, "write", "allow", "deny"),
        (f"mcp__files__{LONG}", "files", LONG, "allow", "deny"),
        (ServerTool("files", LONG).public_name, "files", LONG, "allow", "deny"),
        ("mcp__files", "files", "", "allow", "deny"),
        ("mcp__files__write", "files", "", "ask", "ask"),
        ("apply_patch", "apply", "patch", "ask", "ask"),
        ("*", "files", "write", "allow", "deny"),
    ],
)
def test_rules_name_servers_and_their_tools(
    workspace: Path, rule: str, server: str, tool: str, allowed: str, denied: str
) -> None:
    used = ServerTool(server, tool)
    name = used.public_name if tool else "ReadMcpResource"
    for action, expected in (("allow", allowed), ("deny", denied)):
        decision = Evaluator(workspace, ("user", action, rule)).decide(name, "network", Target(server_tool=used))
        assert decision.action == expected, action


@pytest.mark.parametrize(
    ("rule", "url", "allowed", "denied"),
    [
        ("WebFetch(domain:a.example)", "https://a.example/x", "allow", "deny"),
        ("WebFetch(domain:a.example)", "https://b.a.example/x", "allow", "deny"),
        ("WebFetch(domain:a.example)", "https://a.example./x", "allow", "deny"),
        ("WebFetch(domain:a.example)", "https://aa.example/x", "ask", "ask"),
        ("WebFetch(domain:a.example)", "https://[a.example", "ask", "deny"),
        ("WebFetch(https://a.example/docs/*)", "https://a.example/docs/x", "allow", "deny"),
        ("WebFetch(https://a.example/docs/*)", "https://a.example/other", "ask", "ask"),
        ("WebFetch(https://a.example*)", "https://a.example.evil.example/", "ask", "deny"),
        ("WebFetch(*)", "https://a.example/", "allow", "deny"),
    ],
)
def test_rules_for_urls(workspace: Path, rule: str, url: str, allowed: str, denied: str) -> None:
    for action, expected in (("allow", allowed), ("deny", denied)):
        evaluator = Evaluator(workspace, ("user", action, rule))
        assert evaluator.decide("WebFetch", "network", Target(url=url)).action == expected


# --- the rule set ---


def test_added_rule_applies_at_once_to_all_policies_of_the_rule_set(workspace: Path) -> None:
    rule_set = RuleSet()
    first = make_policy(root=str(workspace), rule_set=rule_set)
    second = first.with_permission_mode("acceptEdits")
    target = Target(command="make all")
    rule_set.add("Bash(make:*)")
    for policy in (first, second):
        assert policy.evaluate("ExecuteCommand", "execute", target, "edit_mode").action == "allow"
    rule_set.remove(1)
    for policy in (first, second):
        assert policy.evaluate("ExecuteCommand", "execute", target, "edit_mode").action == "ask"


def test_rules_are_listed_with_numbers_and_removed_by_them() -> None:
    rule_set = RuleSet(make_rules(("user", "deny", "Bash(x:*)")))
    rule_set.add("Bash(a)")
    rule_set.add("Bash(b)", "ask")
    rule_set.add("Bash(a)")
    assert [(line.number, line.action, line.text) for line in rule_set.list_rules()] == [
        (0, "deny", "Bash(x:*)"),
        (1, "ask", "Bash(b)"),
        (2, "allow", "Bash(a)"),
    ]
    assert rule_set.remove(1).text == "Bash(b)"
    assert [line.text for line in rule_set.list_rules()] == ["Bash(x:*)", "Bash(a)"]
    for number in (0, 2, -1):
        with pytest.raises(UsageError, match="No removable rule with number"):
            rule_set.remove(number)


def test_no_rule_allows_a_command_in_ask_and_plan_mode(workspace: Path) -> None:
    policy = make_policy(root=str(workspace), rule_set=RuleSet(make_rules(("session", "allow", "Bash(make)"))))
    for mode in ("ask_mode", "plan_mode"):
        assert policy.evaluate("ExecuteCommand", "execute", Target(command="make"), mode).action == "ask"
        assert policy.suggest_rules("ExecuteCommand", "execute", Target(command="make"), mode) == ()
