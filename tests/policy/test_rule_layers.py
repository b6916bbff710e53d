"""Rule precedence: deny rules of any layer, then the strongest layer with a matching rule, then the last rule."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odin.core.errors import UsageError
from odin.core.policy import RuleLayer
from odin.core.tool import Kind, Subject
from odin.policy.policy import Policy
from odin.policy.rules.rule import LAYERS, Rule, RuleSet, rule_of
from odin.policy.verdict import Verdict
from tests.table import each

Said = tuple[Any, Any, str]
"""A layer, an action and the text of a rule."""


def said(*rules: Said) -> list[Rule]:
    return [rule_of(text, action, layer, "somewhere") for layer, action, text in rules]


class Court:
    def __init__(self, root: Path, *rules: Said) -> None:
        self.root = root
        self.policy = Policy(root=str(root), rule_set=RuleSet(said(*rules)))

    def full(self, name: str, kind: Kind, subject: Subject) -> Verdict:
        return self.policy.judge(name, kind, subject, "edit_mode")

    def run(self, command: str) -> str:
        return self.full("ExecuteCommand", "execute", Subject(command=command)).action

    def edit(self, *names: str, tool: str = "EditTool") -> str:
        return self.full(tool, "edit", Subject(paths=tuple(str(self.root / name) for name in names))).action


@each("denying", LAYERS)
@each("allowing", LAYERS)
def test_a_denial_of_any_layer_holds(workspace: Path, denying: RuleLayer, allowing: RuleLayer) -> None:
    for rules in (
        [(denying, "deny", "Bash(deploy:*)"), (allowing, "allow", "Bash(deploy:*)")],
        [(allowing, "allow", "Bash(deploy now)"), (denying, "deny", "Bash(deploy:*)")],
    ):
        verdict = Court(workspace, *rules).full("ExecuteCommand", "execute", Subject(command="deploy now"))
        assert verdict.action == "deny"
        assert verdict.rule == f"deny Bash(deploy:*) ({denying}, somewhere)"
        assert "somewhere" in verdict.rule


@pytest.mark.parametrize(("weaker", "stronger"), [*pairwise(LAYERS)])
def test_between_asking_and_allowing_the_stronger_layer_decides(
    workspace: Path, weaker: RuleLayer, stronger: RuleLayer
) -> None:
    for one, other, expected in (("ask", "allow", "allow"), ("allow", "ask", "ask")):
        rules = [(weaker, one, "Bash(deploy:*)"), (stronger, other, "Bash(deploy:*)")]
        assert Court(workspace, *rules).run("deploy now") == expected
        assert Court(workspace, *reversed(rules)).run("deploy now") == expected
        paths = [(weaker, one, "Edit(src/**)"), (stronger, other, "Edit(src/**)")]
        assert Court(workspace, *paths).edit("src/x") == expected


def test_within_a_layer_the_last_word_counts(workspace: Path) -> None:
    general: Said = ("user", "allow", "Bash(deploy:*)")
    special: Said = ("user", "ask", "Bash(deploy prod:*)")
    assert Court(workspace, general, special).run("deploy prod") == "ask"
    assert Court(workspace, general, special).run("deploy test") == "allow"
    assert Court(workspace, special, general).run("deploy prod") == "allow"


def test_an_ask_rule_beats_the_default(workspace: Path) -> None:
    court = Court(workspace, ("user", "ask", "Bash(ls:*)"), ("user", "ask", "Read(notes/**)"))
    assert court.run("ls") == "ask"
    assert court.run("pwd && ls -la") == "ask"
    assert court.run("pwd") == "allow"
    read = court.full("Read", "read", Subject(paths=(str(workspace / "notes" / "x"),)))
    assert (read.action, read.rule) == ("ask", "ask Read(notes/**) (user, somewhere)")
    assert court.run("cat notes/x") == "ask"


# --- compound commands ---


def test_in_a_compound_command_deny_beats_ask_beats_allow(workspace: Path) -> None:
    court = Court(
        workspace,
        ("user", "allow", "Bash(build:*)"),
        ("user", "ask", "Bash(check:*)"),
        ("user", "deny", "Bash(deploy:*)"),
    )
    assert court.run("build a && build b") == "allow"
    assert court.run("build && check") == "ask"
    assert court.run("build && check && deploy") == "deny"
    assert court.run("build && unknown") == "ask"
    assert court.run("build | head -3") == "allow"


def test_a_rule_for_the_whole_command_is_looked_at_first_but_not_before_a_denial(workspace: Path) -> None:
    whole: Said = ("user", "allow", "Bash(build && check > log)")
    court = Court(workspace, whole, ("session", "ask", "Bash(check:*)"))
    assert court.run("build && check > log") == "allow"
    assert court.run(" build && check > log ") == "allow"
    assert court.run("build  && check > log") == "ask"
    assert court.run("build && check") == "ask"
    assert Court(workspace, whole, ("user", "deny", "Bash(check:*)")).run("build && check > log") == "deny"
    asked = Court(workspace, ("user", "allow", "Bash(build:*)"), ("user", "ask", "Bash(build prod)"))
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
def test_an_allowed_beginning_allows_nothing_else(workspace: Path, command: str) -> None:
    (workspace / "--output=x").touch()
    assert Court(workspace, ("user", "allow", "Bash(git log:*)")).run(command) == "ask"


def test_an_allowed_beginning_allows_what_follows(workspace: Path) -> None:
    court = Court(workspace, ("user", "allow", "Bash(git log:*)"), ("user", "allow", "Bash(npm run *)"))
    for command in ("git log", "git log --format=%H -n 3", "git log && npm run test", "npm run", "npm run x -- --y"):
        assert court.run(command) == "allow"


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
def test_what_runs_inside_another_command_must_be_allowed_too(
    workspace: Path, rule: str, command: str, action: str
) -> None:
    assert Court(workspace, ("user", "allow", rule)).run(command) == action


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
def test_a_denial_is_found_however_it_is_written(workspace: Path, rule: str, command: str) -> None:
    (workspace / "secrets").mkdir()
    (workspace / "secrets" / "key").write_text("x")
    text = rule.replace("/PROJECT", str(workspace))
    assert Court(workspace, ("user", "deny", text)).run(command) == "deny"


@pytest.mark.parametrize("rule", ["Bash(deploy)", "Bash(deploy -f:*)", "Read(secrets/**)", "Bash(git * main)"])
def test_a_denial_is_not_found_where_it_is_not(workspace: Path, rule: str) -> None:
    court = Court(workspace, ("user", "deny", rule))
    assert court.run("ls") == "allow"
    assert court.run("deploy now") == "ask"
    assert court.run("git push origin other") == "ask"


def test_in_doubt_an_exact_rule_of_a_person_still_counts(workspace: Path) -> None:
    rules: list[Said] = [("user", "deny", "Bash(deploy:*)")]
    assert Court(workspace, *rules, ("session", "allow", "Bash")).run("bash build.sh") == "ask"
    assert Court(workspace, *rules, ("session", "allow", "Bash(bash build.sh)")).run("bash build.sh") == "allow"


# --- deletions ---


def test_nothing_but_an_exact_path_allows_a_deletion(workspace: Path) -> None:
    for text in ("Edit(**)", "Edit(src/**)", "*", "Edit(src/old)", "Write"):
        assert Court(workspace, ("user", "allow", text)).edit("src/old", tool="Delete") == "ask"
    court = Court(workspace, ("user", "allow", "Delete(src/old)"), ("user", "allow", "Delete(./top)"))
    assert court.edit("src/old", tool="Delete") == "allow"
    assert court.edit("src/old", "top", tool="Delete") == "allow"
    assert court.edit("src/old", "other", tool="Delete") == "ask"
    assert court.edit("deep/top", tool="Delete") == "ask"
    assert court.edit("src/old") == "ask"
    full = Court(workspace, ("user", "allow", f"Delete({workspace}/src/old)"))
    assert full.edit("src/old", tool="Delete") == "allow"


@pytest.mark.parametrize("text", ["Delete", "Delete(*)", "Delete(src/**)", "delete_file(build/?)", "Delete()"])
def test_a_blanket_rule_for_deletions_is_refused(text: str) -> None:
    book = RuleSet()
    with pytest.raises(UsageError, match="exact paths"):
        book.add(text)
    book.add(text, "deny")
    assert [line.action for line in book.list_rules()] == ["deny"]


@pytest.mark.parametrize("text", ["Bash(make\u202e)", "Bash(make\u200b:*)", "Bash(a\nb)"])
def test_a_rule_that_does_not_show_what_it_allows_is_refused(text: str) -> None:
    book = RuleSet()
    with pytest.raises(UsageError, match="invisible characters"):
        book.add(text)
    assert book.list_rules() == ()


# --- every path by itself ---


def test_every_path_of_a_call_has_its_own_rule(workspace: Path) -> None:
    court = Court(
        workspace,
        ("user", "allow", "Edit(src/**)"),
        ("user", "allow", "Edit(docs/**)"),
        ("user", "ask", "Edit(docs/law.md)"),
        ("user", "deny", "Edit(src/frozen)"),
    )
    assert court.edit("src/a", "docs/b") == "allow"
    assert court.edit("src/a", "docs/law.md") == "ask"
    assert court.edit("src/a", "elsewhere") == "ask"
    assert court.edit("src/a", "src/frozen") == "deny"


# --- other tools ---


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        ("mcp__files__read", "mcp__files__read", "allow"),
        ("mcp__files__read", "mcp__files__write", "ask"),
        ("mcp__files", "mcp__files__write", "allow"),
        ("mcp__files", "mcp__filesystem__write", "ask"),
        ("mcp__files__*", "mcp__files__write", "allow"),
        ("*", "mcp__files__write", "allow"),
    ],
)
def test_tools_of_servers_are_named_in_full_or_by_server(workspace: Path, rule: str, name: str, expected: str) -> None:
    assert Court(workspace, ("user", "allow", rule)).full(name, "execute", Subject()).action == expected
    denied = Court(workspace, ("user", "deny", rule)).full(name, "execute", Subject()).action
    assert denied == ("deny" if expected == "allow" else "ask")


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
def test_addresses(workspace: Path, rule: str, url: str, allowed: str, denied: str) -> None:
    for action, expected in (("allow", allowed), ("deny", denied)):
        court = Court(workspace, ("user", action, rule))
        assert court.full("WebFetch", "network", Subject(url=url)).action == expected


# --- the book ---


def test_a_rule_that_is_added_holds_at_once_for_everyone_who_shares_the_book(workspace: Path) -> None:
    book = RuleSet()
    first = Policy(root=str(workspace), rule_set=book)
    second = first.with_permission_mode("acceptEdits")
    subject = Subject(command="make all")
    book.add("Bash(make:*)")
    for policy in (first, second):
        assert policy.judge("ExecuteCommand", "execute", subject, "edit_mode").action == "allow"
    book.remove(1)
    for policy in (first, second):
        assert policy.judge("ExecuteCommand", "execute", subject, "edit_mode").action == "ask"


def test_rules_are_listed_with_numbers_and_removed_by_them() -> None:
    book = RuleSet(said(("user", "deny", "Bash(x:*)")))
    book.add("Bash(a)")
    book.add("Bash(b)", "ask")
    book.add("Bash(a)")
    assert [(line.number, line.action, line.text) for line in book.list_rules()] == [
        (0, "deny", "Bash(x:*)"),
        (1, "ask", "Bash(b)"),
        (2, "allow", "Bash(a)"),
    ]
    assert book.remove(1).text == "Bash(b)"
    assert [line.text for line in book.list_rules()] == ["Bash(x:*)", "Bash(a)"]
    for number in (0, 2, -1):
        with pytest.raises(UsageError, match="No removable rule with number"):
            book.remove(number)


def test_in_ask_and_plan_mode_no_rule_lets_a_command_run(workspace: Path) -> None:
    policy = Policy(root=str(workspace), rule_set=RuleSet(said(("session", "allow", "Bash(make)"))))
    for mode in ("ask_mode", "plan_mode"):
        assert policy.judge("ExecuteCommand", "execute", Subject(command="make"), mode).action == "ask"
        assert policy.suggest_rules("ExecuteCommand", "execute", Subject(command="make"), mode) == ()
