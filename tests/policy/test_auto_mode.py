"""The permission mode `auto`: sandboxed commands run without approval. Where their changes cannot be discarded, those
that are hard to undo need approval; those that reach outside always do."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.profile import CommandLevel
from odin.core.tool import Kind, Target
from odin.policy.decision import Decision
from odin.policy.policy import Policy
from tests.policy.policies import FakeConfinement, make_policy
from tests.table import each


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("x = 1\n")
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".env").write_text("KEY=1\n")
    return root


def make_auto_policy(project: Path, level: CommandLevel = "kernel", why: str = "", **settings: Any) -> Policy:
    return make_policy(root=str(project), permission_mode="auto", confinement=FakeConfinement(level, why), **settings)


def evaluator(policy: Policy, command: str, mode: str = "edit_mode") -> Decision:
    return policy.evaluate("ExecuteCommand", "execute", Target(command=command), mode)  # pyright: ignore[reportArgumentType]


@each(
    "command",
    [
        "pytest -q",
        "npm test",
        "python3 -c 'print(1)'",
        "python3 -m pytest tests/test_a.py -k 'x or y'",
        "make build && ./bin/check",
        "cd src && python3 a.py",
        "set -euo pipefail; make",
        "PYTHONPATH=. pytest",
        "timeout 60 cargo test",
        "echo hi > src/b.py",
        "mkdir -p out && cp src/a.py out/",
        "sed -i s/1/2/ src/a.py",
        "git add -A && git commit -m 'a change'",
        "git checkout -b topic",
        "ruff check --fix .",
        "for f in src/*.py; do python3 -m py_compile $f; done",
        ".venv/bin/pytest -q",
        "timeout 60 .venv/bin/python -m pytest",
        "VIRTUAL_ENV=.venv node_modules/.bin/jest --ci",
        "cat AGENTS.md",
    ],
)
def test_ordinary_commands_run_without_approval(project: Path, command: str) -> None:
    decision = evaluator(make_auto_policy(project), command)
    assert (decision.action, decision.runs_in in ("project", "read"), decision.after) == ("allow", True, "apply")
    assert evaluator(make_auto_policy(project, "view"), command).after == "apply"


REACHING = ("git push", "pip", "curl", "npm", "cp src/a.py ~", "echo x > ../x", "sudo", "docker", "cat .env")


@each(
    ("command", "says"),
    [
        ("rm -rf src", "Deletes src recursively."),
        ("rm src/a.py", "Deletes"),
        ("find . -name '*.pyc' -delete", "Deletes"),
        ("git reset --hard", ""),
        ("git clean -fd", ""),
        ("git checkout -- .", ""),
        ("git stash drop", ""),
        ("git push", "Pushes commits to a remote."),
        ("git push --force", "can overwrite its history"),
        ("git commit --amend", "Replaces the last commit."),
        ("git config core.hooksPath x", "git configuration"),
        ("pip install requests", "Downloads and installs packages"),
        ("curl https://example.org", "Downloads from"),
        ("npm publish", "Publishes"),
        ("cp src/a.py ~/a.py", "outside the project"),
        ("echo x > ../x", "outside the project"),
        ("sudo make install", ""),
        ("docker run x", ""),
        ("cat .env", ""),
        ("echo x > .git/hooks/pre-commit", "protected"),
        ("cp src/a.py .vscode/tasks.json", "protected"),
        ("echo x >> AGENTS.md", "protected"),
        ("sed -i s/a/b/ CLAUDE.md", "protected"),
        ("echo x > .venv/bin/activate", "protected"),
        ("cd .venv/bin && echo x > activate", "protected"),
        ("$CMD -rf src", ""),
        ("x=rm; $x -rf src", ""),
        ("echo src | xargs rm -rf", ""),
        ("bash -c 'rm -rf src'", ""),
        ("python3 -c 'import shutil; shutil.rmtree(\"src\")'", ""),
        ('eval "$X"', ""),
        ("pytest && rm -rf src", ""),
    ],
)
def test_commands_that_are_hard_to_undo_or_reach_outside_need_approval(project: Path, command: str, says: str) -> None:
    decision = evaluator(make_auto_policy(project), command)
    assert decision.action == "ask"
    assert says in decision.reason
    in_view = evaluator(make_auto_policy(project, "view"), command)
    expected = ("ask", "view") if command.startswith(REACHING) else ("allow", "view")
    assert (in_view.action, in_view.runs_in) == expected


def test_denials_override_auto_mode(project: Path) -> None:
    denied = make_auto_policy(project, disallowed_tools=["Bash(pytest:*)"])
    assert evaluator(denied, "pytest -q").action == "deny"
    assert evaluator(denied, "sh -c 'pytest -q'").action == "deny"
    assert evaluator(denied, "$X -q").action == "ask"
    restricted = make_auto_policy(project, restrict_to_workspace=True)
    assert evaluator(restricted, "cp src/a.py ~/a.py").action == "deny"
    assert evaluator(make_auto_policy(project), "rm -rf .").action == "deny"


def test_without_a_sandbox_commands_need_approval_and_the_reason_says_so(project: Path) -> None:
    decision = evaluator(make_auto_policy(project, "none"), "pytest")
    assert decision.action == "ask"
    expected = "The permission mode auto allows sandboxed commands only, and no sandbox works on this machine."
    assert decision.reason == expected
    assert evaluator(make_policy(root=str(project), permission_mode="auto"), "pytest").action == "ask"
    assert evaluator(make_auto_policy(project, "none"), "ls src").action == "allow"


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode"])
def test_changes_are_discarded_in_ask_and_plan_mode(project: Path, mode: str) -> None:
    in_view = evaluator(make_auto_policy(project, "view"), "pytest > log", mode)
    assert (in_view.action, in_view.runs_in, in_view.after) == ("allow", "view", "discard")
    decision = evaluator(make_auto_policy(project, "kernel"), "pytest > log", mode)
    assert (decision.action, decision.runs_in) == ("allow", "read")
    assert evaluator(make_auto_policy(project, "none"), "pytest", mode).action == "ask"
    assert evaluator(make_auto_policy(project, "none"), "pytest > log", mode).action == "deny"


def test_commands_with_network_access_need_approval(project: Path) -> None:
    why = "sandboxed commands may use the network (sandbox.network)"
    for mode in ("default", "auto"):
        policy = make_policy(root=str(project), permission_mode=mode, confinement=FakeConfinement("view", why))
        assert evaluator(policy, "pytest").action == "ask"
        assert evaluator(policy, "ls").action == "allow"


@each(
    ("kind", "name", "path", "action"),
    [
        ("edit", "EditTool", "src/a.py", "allow"),
        ("edit", "WriteFile", "src/new.py", "allow"),
        ("edit", "WriteFile", ".git/hooks/pre-commit", "ask"),
        ("edit", "WriteFile", "odinconfig.json", "ask"),
        ("edit", "WriteFile", "../other/x", "ask"),
        ("read", "Read", ".env", "ask"),
    ],
)
def test_edits_are_judged_as_in_accept_edits(project: Path, kind: Kind, name: str, path: str, action: str) -> None:
    target = Target(paths=(str(project / path),))
    assert make_auto_policy(project).evaluate(name, kind, target, "edit_mode").action == action


def test_network_access_needs_approval(project: Path) -> None:
    assert (
        make_auto_policy(project).evaluate("WebFetch", "network", Target(url="https://x.org/"), "edit_mode").action
        == "ask"
    )


@each(
    ("start", "name", "kind", "target", "modes"),
    [
        ("default", "EditTool", "edit", "src/a.py", ("acceptEdits", "auto")),
        ("default", "ExecuteCommand", "execute", "pytest", ("auto",)),
        ("acceptEdits", "ExecuteCommand", "execute", "pytest", ("auto",)),
        ("default", "ExecuteCommand", "execute", "git push", ()),
        ("default", "WriteFile", "edit", ".git/hooks/x", ()),
        ("auto", "ExecuteCommand", "execute", "rm -rf src", ("auto",)),
        ("default", "ExecuteCommand", "execute", "ls", ("acceptEdits", "auto")),
    ],
)
def test_suggested_modes_are_those_that_would_allow_the_call(
    project: Path, start: str, name: str, kind: Kind, target: str, modes: tuple[str, ...]
) -> None:
    policy = make_policy(root=str(project), permission_mode=start, confinement=FakeConfinement())
    about = Target(command=target) if kind == "execute" else Target(paths=(str(project / target),))
    assert policy.suggest_modes(name, kind, about, "edit_mode") == modes
