"""The tables in `tables`: commands, everyday commands, poisoned repositories and misleading paths, with their verdicts.

The cases write the workspace as /ws/proj and the home folder as /home/u; the tests replace them by their own folders.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from odin.config.paths import make_environment
from odin.core.event_values import Mode
from odin.core.profile import ProcessProfile
from odin.core.tool import Kind, Target
from odin.policy.decision import Decision
from odin.sandbox.runner import ProcessRunner
from tests.policy.everyday_commands import make_repository
from tests.policy.policies import make_policy

TABLES = Path(__file__).parent / "tables"
MODES: dict[str, Mode] = {"ask": "ask_mode", "plan": "plan_mode", "edit": "edit_mode"}
VERDICTS = {"allow": "auto", "ask": "ask", "deny": "deny"}


def load_cases(name: str) -> list[dict[str, Any]]:
    return json.loads((TABLES / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
def repo(workspace: Path, home: Path) -> Path:
    """The project of the tables, with a link to a home folder that has private files."""
    make_repository(workspace)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("PRIVATE\n")
    (home / ".bashrc").write_text("# mine\n")
    (workspace / "linkdir").symlink_to(home)
    return workspace


def localize_paths(text: str, repo: Path, home: Path) -> str:
    return (
        text.replace("/ws/proj", str(repo))
        .replace("/home/u", str(home))
        .replace("../proj-evil", f"../{repo.name}-evil")
    )


def decide(repo: Path, mode: str, kind: Kind, target: Target, name: str = "ExecuteCommand", **settings: Any) -> str:
    policy = make_policy(root=str(repo), **settings)
    return VERDICTS[policy.evaluate(name, kind, target, MODES[mode]).action]


# --- commands ---


def list_accepted_actions(case: dict[str, Any]) -> list[str]:
    """`ask` means that the command must not run without approval; a denial with a reason is accepted, too."""
    return case.get("accept") or ([case["expect"], "deny"] if case["expect"] == "ask" else [case["expect"]])


def judge_case(case: dict[str, Any], repo: Path, home: Path) -> str:
    return decide(repo, case["mode"], "execute", Target(command=localize_paths(case["command"], repo, home)))


def test_every_benign_command_runs_without_approval(repo: Path, home: Path):
    benign = [case for case in load_cases("commands") if case["kind"] == "benign"]
    assert len(benign) == 63
    assert [case["command"] for case in benign if judge_case(case, repo, home) != "auto"] == []


def test_no_adversarial_command_runs_without_approval(repo: Path, home: Path):
    """Also none that would be safe: an unnecessary approval costs less than a mistake."""
    hostile = [case for case in load_cases("commands") if case["kind"] == "adversarial"]
    assert len(hostile) > 150
    safe = {"grep -r SECRET ."}
    assert [
        case["command"] for case in hostile if judge_case(case, repo, home) == "auto" and case["command"] not in safe
    ] == []


def test_every_command_gets_an_accepted_verdict(repo: Path, home: Path):
    found = [(case, judge_case(case, repo, home)) for case in load_cases("commands")]
    assert [(case["command"][:200], given) for case, given in found if given not in list_accepted_actions(case)] == []


def test_search_of_the_whole_project_excludes_secret_files(repo: Path):
    def judge() -> Decision:
        target = Target(command="grep -r SECRET .")
        return make_policy(root=str(repo)).evaluate("ExecuteCommand", "execute", target, "ask_mode")

    assert judge().amended is None
    (repo / ".env").write_text("SECRET=1\n")
    decision = judge()
    assert decision.action == "allow"
    assert decision.amended is not None
    assert decision.amended.command == "grep -r SECRET . --exclude=.env"
    assert decision.amended.left_out == (".env",)


# --- everyday commands ---

DIFFERENT_TODAY = {
    "git rebase main": "ask",
    "git restore src/a.py": "ask",
    "git checkout -- src/a.py": "ask",
    "git rm --cached src/a.py": "ask",
    "rm build/x.o": "ask",
    "rm -rf build": "ask",
    "rm docs/r.md": "ask",
    "python3 src/a.py > /tmp/out.txt": "ask",
    "cat /tmp/out.txt": "ask",
    "ls /tmp": "ask",
    "env | grep PATH": "ask",
    "source .venv/bin/activate && pytest": "ask",
    ". .venv/bin/activate": "ask",
    "curl -s http://localhost:3000/health": "ask",
    "kill %1": "ask",
    "pkill -f 'node server'": "ask",
    "bash scripts/build.sh": "ask",
    "docker ps": "auto",
    "psql -c 'select 1'": "auto",
}
"""The everyday commands whose verdict in the permission mode `auto` is not the one of the table.

Most are questions that a sandbox could answer. The last two run, but cannot reach their server from the sandbox.
"""


class FakeConfinement:
    """A sandbox that confines every command."""

    def explain_unconfined(self, command: str = "") -> str:
        return ""


def test_everyday_commands_run_in_auto_mode_unless_they_need_the_network(repo: Path):
    """The list of exceptions is exact: a command whose verdict becomes that of the table leaves it."""
    expected = {case["command"]: {"run": "auto", "ask": "ask"}[case["before"]] for case in load_cases("typical")}
    assert len(expected) == 130
    settings: dict[str, Any] = {"permission_mode": "auto", "confinement": FakeConfinement()}
    found = {command: decide(repo, "edit", "execute", Target(command=command), **settings) for command in expected}
    assert {command: found[command] for command in expected if found[command] != expected[command]} == DIFFERENT_TODAY


# --- poisoned repositories ---


@pytest.mark.parametrize("case", load_cases("repos"), ids=lambda case: case["id"])
async def test_no_program_of_a_poisoned_repository_runs(
    repo: Path, home: Path, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    canary = repo / "PWNED"
    (repo / "evil.sh").write_text(f"#!/bin/sh\ntouch {canary}\n")
    setup = localize_paths(case["setup"], repo, home).replace("/tmp/c", str(repo.parent / "commit"))
    subprocess.run(["bash", "-c", setup], cwd=repo, check=True, capture_output=True)
    if "export PATH=" in setup:
        monkeypatch.setenv("PATH", f"{repo}:{os.environ['PATH']}")
    assert not canary.exists()
    runner = ProcessRunner(make_environment(cwd="/"))
    for command in case["commands"]:
        for mode in MODES:
            if decide(repo, mode, "execute", Target(command=command)) == "auto":
                confinement = ProcessProfile("project" if mode == "edit" else "read")
                done = await runner.run(command, cwd=str(repo), timeout=60, profile=confinement)
                assert "PRIVATE" not in done.output
            assert not canary.exists(), command
    await runner.close()


def test_git_in_a_poisoned_repository_needs_approval(repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    """The settings of these repositories name programs that git would start."""
    for case in load_cases("repos"):
        if case["id"] in ("path-dot", "symlink-read", "gitfile"):
            continue
        config = repo / ".git" / "config"
        kept = config.read_text()
        for key in (
            "core.fsmonitor",
            "diff.evil.textconv",
            "filter.evil.clean",
            "gpg.program",
            "core.pager",
            "include.path",
        ):
            if key in case["setup"]:
                subprocess.run(["git", "-C", str(repo), "config", key, "./evil.sh"], check=True)
        assert config.read_text() != kept, case["id"]
        for command in case["commands"]:
            assert decide(repo, "edit", "execute", Target(command=command)) == "ask", (case["id"], command)
        config.write_text(kept)
    assert decide(repo, "edit", "execute", Target(command="git status")) == "auto"


# --- paths ---


@pytest.mark.parametrize("permission_mode", ["default", "acceptEdits"])
@pytest.mark.parametrize("case", load_cases("paths"), ids=lambda case: repr(case["path"]))
def test_every_path_gets_an_accepted_verdict(repo: Path, home: Path, case: dict[str, Any], permission_mode: str):
    if "setup" in case:
        setup = localize_paths(case["setup"], repo, home)
        subprocess.run(["bash", "-c", setup], cwd=repo, check=True, capture_output=True)
    path = localize_paths(case["path"], repo, home).replace("/ws/proj-evil", f"{repo}-evil")
    if case["tool"] == "webfetch":
        found = decide(repo, case["mode"], "network", Target(url=path), "WebFetch")
    else:
        kind: Kind = "read" if case["tool"] == "read" else "edit"
        full = path if path.startswith(("/", "~")) else str(repo / path)
        name = "ReadFile" if kind == "read" else "WriteFile"
        found = decide(repo, case["mode"], kind, Target(paths=(full,)), name, permission_mode=permission_mode)
    assert found in case.get("accept", [case["expect"]])
