"""Suggested rules: each really allows the call, and none is broader than it looks."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.tool import Kind, Subject
from odin.policy.policy import Policy
from odin.policy.rules.rule import RuleSet
from tests.policy.policies import make_policy


def offered(root: Path, command: str, **settings: Any) -> tuple[str, ...]:
    policy = make_policy(root=str(root), **settings)
    return policy.suggest_rules("ExecuteCommand", "execute", Subject(command=command), "edit_mode")


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
def test_for_commands(workspace: Path, command: str, rules: tuple[str, ...]) -> None:
    assert offered(workspace, command) == rules


def test_none_where_no_rule_may_answer(workspace: Path) -> None:
    assert offered(workspace, "shutdown now") == ()
    assert offered(workspace, "make", disallowed_tools=["Bash(make:*)"]) == ()
    assert offered(workspace, "make /etc/x", restrict_to_workspace=True) == ()
    assert offered(workspace, "make", yes=True) == ()


def test_where_commands_are_denied_an_unreadable_one_can_still_be_allowed_exactly(workspace: Path) -> None:
    assert offered(workspace, "bash x.sh", forbidden_commands=["deploy"]) == ("Bash(bash x.sh)",)


def test_an_ask_rule_is_answered_by_a_rule_of_the_session(workspace: Path) -> None:
    book = RuleSet()
    book.add("Bash(make:*)", "ask")
    policy = Policy(root=str(workspace), rule_set=book)
    subject = Subject(command="make all")
    assert policy.suggest_rules("ExecuteCommand", "execute", subject, "edit_mode")[0] == "Bash(make all)"
    book.add("Bash(make all)")
    assert policy.judge("ExecuteCommand", "execute", subject, "edit_mode").action == "allow"


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
def test_for_files(workspace: Path, name: str, kind: Kind, path: str, rules: tuple[str, ...]) -> None:
    outside = workspace.parent / "elsewhere"
    outside.mkdir()
    (workspace / "link").symlink_to(outside)
    policy = Policy(root=str(workspace))
    subject = Subject(paths=(str(workspace / path),))
    expected = tuple(rule.replace("OUTSIDE", os.path.realpath(outside)) for rule in rules)
    assert policy.suggest_rules(name, kind, subject, "edit_mode") == expected


def test_several_paths_are_not_one_rule(workspace: Path) -> None:
    subject = Subject(paths=(f"{workspace}/a", f"{workspace}/b"))
    assert Policy(root=str(workspace)).suggest_rules("Delete", "edit", subject, "edit_mode") == ()


def test_for_the_network_and_other_tools(workspace: Path) -> None:
    policy = Policy(root=str(workspace))
    url = Subject(url="https://docs.a.example/x?y=1")
    assert policy.suggest_rules("WebFetch", "network", url, "edit_mode") == ("WebFetch(domain:docs.a.example)",)
    assert policy.suggest_rules("mcp__x__y", "execute", Subject(), "edit_mode") == ("mcp__x__y",)
    assert policy.suggest_rules("Spawn", "execute", Subject(command="npm start"), "edit_mode") == (
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
def test_whatever_is_offered_would_allow_the_call_and_is_the_rule_that_is_shown(words: list[str]) -> None:
    command = " ".join(words)
    for text in offered(Path("/nowhere/project"), command):
        policy = make_policy(root="/nowhere/project", allowed_tools=[text])
        verdict = policy.judge("ExecuteCommand", "execute", Subject(command=command), "edit_mode")
        assert verdict.action == "allow"
        if not text.endswith(":*)"):
            other = policy.judge("ExecuteCommand", "execute", Subject(command=f"{command} more"), "edit_mode")
            assert other.action != "allow" or text not in other.rule


def test_a_rule_somebody_wrote_must_be_about_the_call(workspace: Path) -> None:
    policy = Policy(root=str(workspace))
    subject = Subject(command="npm run test")

    def meets(text: str, action: Any = "allow") -> bool:
        return policy.would_decide(text, action, "ExecuteCommand", "execute", subject, "edit_mode")

    assert meets("Bash(npm:*)")
    assert meets("Bash(npm run test)")
    assert meets("Bash(npm:*)", "deny")
    assert not meets("Bash(make:*)")
    assert not meets("Bash(make:*)", "deny")
