"""Suggested rules: each allows the call, and none is broader than its text shows."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.tool import Kind, Target
from odin.policy.rules.rule import RuleSet
from tests.policy.policies import make_policy


def suggest_command_rules(root: Path, command: str, **settings: Any) -> tuple[str, ...]:
    policy = make_policy(root=str(root), **settings)
    return policy.suggest_rules("ExecuteCommand", "execute", Target(command=command), "edit_mode")


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("npm run test", ("Bash(npm run test)", "Bash(npm run test:*)")),
        ("npm run test -- --watch", ("Bash(npm run test -- --watch)", "Bash(npm run test:*)")),
        ("npm install", ("Bash(npm install)", "Bash(npm install:*)")),
        ("npm run test 2>&1 | tail -5", ("Bash(npm run test 2>&1 | tail -5)", "Bash(npm run test:*)")),
        ("git push origin main", ("Bash(git push origin main)", "Bash(git push:*)")),
        ("make", ("Bash(make)", "Bash(make:*)")),
        ("pytest -q tests", ("Bash(pytest -q tests)", "Bash(pytest:*)")),
        ("python -m pytest -q", ("Bash(python -m pytest -q)", "Bash(python -m pytest:*)")),
        ("uv run pytest", ("Bash(uv run pytest)", "Bash(uv run pytest:*)")),
        ("uv run python x.py", ("Bash(uv run python x.py)",)),
        ("npx tsc", ("Bash(npx tsc)", "Bash(npx tsc:*)")),
        ("npx node x", ("Bash(npx node x)",)),
        ("python x.py", ("Bash(python x.py)",)),
        ("python -m http.server", ("Bash(python -m http.server)",)),
        ("bash build.sh", ("Bash(bash build.sh)",)),
        ("sudo make", ("Bash(sudo make)",)),
        ("env X=1 make", ("Bash(env X=1 make)",)),
        ("curl -s https://a.example", ("Bash(curl -s https://a.example)",)),
        ("mv a b", ("Bash(mv a b)",)),
        ("docker run x", ("Bash(docker run x)",)),
        ("docker compose up", ("Bash(docker compose up)", "Bash(docker compose up:*)")),
        ("tool --flag", ("Bash(tool --flag)",)),
        ("./run.sh all", ("Bash(./run.sh all)",)),
        ("make a && npm install", ("Bash(make a && npm install)",)),
        ("make $TARGET", ("Bash(make $TARGET)",)),
        ("make *.c", ()),
        ("make\ntouch x", ()),
        ("git log --output=x", ("Bash(git log --output=x)",)),
        ("make ../other", ("Bash(make ../other)",)),
        ("X=1 make", ("Bash(X=1 make)",)),
        ("ls", ()),
    ],
)
def test_suggestions_for_commands(workspace: Path, command: str, rules: tuple[str, ...]) -> None:
    assert suggest_command_rules(workspace, command) == rules


def test_no_suggestion_if_no_rule_can_allow_the_call(workspace: Path) -> None:
    assert suggest_command_rules(workspace, "shutdown now") == ()
    assert suggest_command_rules(workspace, "make", disallowed_tools=["Bash(make:*)"]) == ()
    assert suggest_command_rules(workspace, "make /etc/x", restrict_to_workspace=True) == ()
    assert suggest_command_rules(workspace, "make", yes=True) == ()


def test_exact_rule_is_suggested_for_a_command_that_cannot_be_analyzed(workspace: Path) -> None:
    assert suggest_command_rules(workspace, "bash x.sh", forbidden_commands=["deploy"]) == ("Bash(bash x.sh)",)


def test_suggested_session_rule_overrides_an_ask_rule(workspace: Path) -> None:
    rule_set = RuleSet()
    rule_set.add("Bash(make:*)", "ask")
    policy = make_policy(root=str(workspace), rule_set=rule_set)
    target = Target(command="make all")
    assert policy.suggest_rules("ExecuteCommand", "execute", target, "edit_mode")[0] == "Bash(make all)"
    rule_set.add("Bash(make all)")
    assert policy.evaluate("ExecuteCommand", "execute", target, "edit_mode").action == "allow"


@pytest.mark.parametrize(
    ("name", "kind", "path", "rules"),
    [
        ("EditTool", "edit", "src/app.py", ("Edit(src/app.py)", "Edit(src/**)")),
        ("WriteFile", "edit", "a/b/new.py", ("Edit(a/b/new.py)", "Edit(a/b/**)")),
        ("EditTool", "edit", "README.md", ("Edit(./README.md)",)),
        ("EditTool", "edit", "link/x", ("Edit(OUTSIDE/x)",)),
        ("Read", "read", "link/x", ("Read(OUTSIDE/x)", "Read(OUTSIDE/**)")),
        ("Grep", "read", "link/x", ("Read(OUTSIDE/x)", "Read(OUTSIDE/**)")),
        ("Delete", "edit", "src/app.py", ("Delete(./src/app.py)",)),
        ("EditTool", "edit", ".git/config", ()),
        ("EditTool", "edit", "odinconfig.json", ()),
        ("Read", "read", ".env", ("Read(./.env)",)),
        ("Read", "read", "deploy/.env", ("Read(deploy/.env)",)),
        ("EditTool", "edit", "src/odd*name", ()),
        ("EditTool", "edit", "src/new\nline", ()),
    ],
)
def test_suggestions_for_files(workspace: Path, name: str, kind: Kind, path: str, rules: tuple[str, ...]) -> None:
    outside = workspace.parent / "elsewhere"
    outside.mkdir()
    (workspace / "link").symlink_to(outside)
    policy = make_policy(root=str(workspace))
    target = Target(paths=(str(workspace / path),))
    expected = tuple(rule.replace("OUTSIDE", os.path.realpath(outside)) for rule in rules)
    assert policy.suggest_rules(name, kind, target, "edit_mode") == expected


def test_no_suggestion_for_several_paths(workspace: Path) -> None:
    target = Target(paths=(f"{workspace}/a", f"{workspace}/b"))
    assert make_policy(root=str(workspace)).suggest_rules("Delete", "edit", target, "edit_mode") == ()


def test_suggestions_for_urls_and_other_tools(workspace: Path) -> None:
    policy = make_policy(root=str(workspace))
    url = Target(url="https://docs.a.example/x?y=1")
    assert policy.suggest_rules("WebFetch", "network", url, "edit_mode") == ("WebFetch(domain:docs.a.example)",)
    assert policy.suggest_rules("mcp__x__y", "execute", Target(), "edit_mode") == ("mcp__x__y",)
    assert policy.suggest_rules("Spawn", "execute", Target(command="npm start"), "edit_mode") == (
        "Spawn(npm start)",
        "Spawn(npm start:*)",
    )


WORDS = st.sampled_from(
    [
        "make",
        "npm",
        "run",
        "test",
        "git",
        "push",
        "ls",
        "python",
        "-m",
        "x",
        "&&",
        "|",
        ";",
        ">",
        "$X",
        "'a b'",
        "*",
        "(",
        ")",
    ]
)


@given(st.lists(WORDS, min_size=1, max_size=6))
def test_suggested_rule_allows_the_call_but_no_longer_command(words: list[str]) -> None:
    command = " ".join(words)
    for text in suggest_command_rules(Path("/nowhere/project"), command):
        policy = make_policy(root="/nowhere/project", allowed_tools=[text])
        decision = policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode")
        assert decision.action == "allow"
        if not text.endswith(":*)"):
            other = policy.evaluate("ExecuteCommand", "execute", Target(command=f"{command} more"), "edit_mode")
            assert other.action != "allow" or text not in other.rule


def test_would_decide_is_true_only_for_rules_that_match_the_call(workspace: Path) -> None:
    policy = make_policy(root=str(workspace))
    target = Target(command="npm run test")

    def decides(text: str, action: Any = "allow") -> bool:
        return policy.would_decide(text, action, "ExecuteCommand", "execute", target, "edit_mode")

    assert decides("Bash(npm:*)")
    assert decides("Bash(npm run test)")
    assert decides("Bash(npm:*)", "deny")
    assert not decides("Bash(make:*)")
    assert not decides("Bash(make:*)", "deny")
