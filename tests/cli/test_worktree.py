"""`odin worktree` with real repositories: adding, listing, diffing, applying, and removing without loss."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from odin.app.agent_worktree import AgentWorktree, AgentWorktrees
from odin.app.worktrees import open_worktrees
from odin.config.paths import make_environment
from odin.session.store import make_project_key
from tests.conftest import RunHere
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.slow  # git makes a worktree for each


def run_git(folder: Path, *args: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *named, *args], cwd=folder, check=True, capture_output=True, text=True, timeout=LIMIT_S
    ).stdout


@pytest.fixture
def repository(workspace: Path) -> Path:
    run_git(workspace, "init", "-q", "-b", "main")
    (workspace / "a.txt").write_text("one\n")
    (workspace / ".gitignore").write_text("*.log\n")
    run_git(workspace, "add", "-A")
    run_git(workspace, "commit", "-q", "-m", "first")
    return workspace


@pytest.fixture
def trees(state: Path, repository: Path) -> Path:
    return state / "worktrees" / make_project_key(str(repository))


def test_worktree_is_added_listed_and_removed(run_here: RunHere, repository: Path, trees: Path) -> None:
    code, printed, said = run_here("worktree", "add", "fix")
    assert code == 0, said
    tree = trees / "fix"
    assert printed.splitlines()[0] == str(tree) and (tree / "a.txt").read_text() == "one\n"
    assert run_git(tree, "branch", "--show-current") == "odin/fix\n"
    assert run_here("worktree")[1] == f"fix  odin/fix  clean  {tree}\n"
    assert run_here("worktree", "list", "--cwd", str(tree))[1] == f"fix  odin/fix  clean  {tree}\n", (
        "the same list inside the worktree"
    )
    assert run_here("worktree", "add", "fix")[0] == 2
    assert run_here("worktree", "remove", "fix")[1] == "Removed worktree fix. Branch odin/fix is kept.\n"
    assert not tree.exists() and "odin/fix" in run_git(repository, "branch", "--list", "odin/*")
    assert run_here("worktree", "remove", "fix")[0] == 2
    assert run_here("worktree", "add", "fix")[0] == 0, "the existing branch is used again"


def test_a_worktree_that_was_deleted_by_hand_does_not_break_the_others(run_here: RunHere, trees: Path) -> None:
    for name in ("fix", "other"):
        assert run_here("worktree", "add", name)[0] == 0
    shutil.rmtree(trees / "fix")
    assert run_here("worktree")[1] == f"other  odin/other  clean  {trees / 'other'}\n"
    assert "No worktree fix." in run_here("worktree", "remove", "fix")[2]


def test_from_sets_the_first_commit_of_the_branch(run_here: RunHere, repository: Path, trees: Path) -> None:
    (repository / "a.txt").write_text("two\n")
    run_git(repository, "commit", "-q", "-am", "second")
    assert run_here("worktree", "add", "old", "--from", "HEAD~1")[0] == 0
    assert (trees / "old/a.txt").read_text() == "one\n"
    for start in ("nowhere", "--detach"):
        code, _, said = run_here("worktree", "add", "bad", "--from", start)
        assert code == 2 and "odin: " in said
    assert not (trees / "bad").exists()


def test_worktree_with_uncommitted_changes_is_not_removed(run_here: RunHere, repository: Path, trees: Path) -> None:
    run_here("worktree", "add", "fix")
    (trees / "fix/a.txt").write_text("changed\n")
    (trees / "fix/new.txt").write_text("new\n")
    code, _, said = run_here("worktree", "remove", "fix")
    assert code == 2 and "has 2 files with uncommitted changes" in said
    assert (trees / "fix/new.txt").read_text() == "new\n"
    assert run_here("worktree")[1].split("  ")[2] == "2 changed"


def test_force_moves_files_aside_and_keeps_staged_changes_in_a_ref(
    run_here: RunHere, repository: Path, trees: Path
) -> None:
    run_here("worktree", "add", "fix")
    tree = trees / "fix"
    (tree / "a.txt").write_text("staged\n")
    run_git(tree, "add", "-A")
    (tree / "a.txt").write_text("changed\n")
    (tree / "new.txt").write_text("new\n")
    (tree / "x.log").write_text("ignored\n")
    gone = json.loads(run_here("worktree", "remove", "fix", "--force", "--json")[1])
    aside = Path(gone["moved_to"])
    assert aside.parent == trees / ".removed" and not tree.exists()
    texts = {name: (aside / name).read_text() for name in ("a.txt", "new.txt", "x.log")}
    assert texts == {"a.txt": "changed\n", "new.txt": "new\n", "x.log": "ignored\n"}
    (ref,) = run_git(repository, "for-each-ref", "--format=%(refname)", "refs/odin/removed").split()
    assert run_git(repository, "show", f"{ref}^2:a.txt") == "staged\n"
    assert "fix" not in run_git(repository, "worktree", "list")
    assert run_here("worktree", "add", "fix")[0] == 0


def test_ignored_files_are_moved_aside_without_force(run_here: RunHere, repository: Path, trees: Path) -> None:
    run_here("worktree", "add", "fix")
    (trees / "fix/x.log").write_text("ignored\n")
    code, printed, _ = run_here("worktree", "remove", "fix")
    assert code == 0 and "Its files are in " in printed
    (aside,) = (trees / ".removed").iterdir()
    assert (aside / "x.log").read_text() == "ignored\n"


def test_commits_on_no_branch_are_kept_in_a_ref(run_here: RunHere, repository: Path, trees: Path) -> None:
    run_here("worktree", "add", "fix")
    run_git(trees / "fix", "checkout", "-q", "--detach")
    run_git(trees / "fix", "commit", "-q", "--allow-empty", "-m", "lost?")
    assert run_here("worktree", "remove", "fix")[0] == 0
    assert "lost?" in run_git(repository, "log", "--format=%s", "--glob=refs/odin/removed")


def test_no_hook_of_the_repository_runs(run_here: RunHere, repository: Path, tmp_path: Path) -> None:
    hook = repository / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    run_here("worktree", "add", "fix")
    assert not (tmp_path / "ran").exists()


def test_filters_of_the_repository_run_in_the_sandbox(
    run_here: RunHere, repository: Path, trees: Path, tmp_path: Path
) -> None:
    run_git(repository, "config", "filter.x.smudge", f"touch {tmp_path}/ran {repository}/ran; tr a-z A-Z")
    (repository / ".git/info/attributes").write_text("a.txt filter=x\n")
    assert run_here("worktree", "add", "fix")[0] == 0
    assert (trees / "fix/a.txt").read_text() == (repository / "a.txt").read_text().upper()
    assert not (tmp_path / "ran").exists() and not (repository / "ran").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "-x", ".x", "a..b", "x.lock", "", "x" * 65])
def test_invalid_names_are_refused(run_here: RunHere, repository: Path, trees: Path, name: str) -> None:
    assert run_here("worktree", "add", f"--cwd={repository}", "--", name)[0] == 2
    assert not trees.exists()


def test_folder_without_a_repository_is_refused(run_here: RunHere, workspace: Path) -> None:
    code, _, said = run_here("worktree", "add", "fix")
    assert code == 2 and "not in a git repository" in said


def test_sandbox_in_a_worktree_hides_sessions_checkpoints_and_logs(
    run_here: RunHere, repository: Path, trees: Path, state: Path
) -> None:
    """The state folder contains the worktree, so it cannot be hidden as a whole."""
    import os

    from odin.app.sandbox import LazySandbox
    from odin.config import load
    from odin.sandbox.layout import plan_layout

    run_here("worktree", "add", "fix")
    names = ("sessions", "checkpoints", "logs", "server", "run")
    for name in names:
        (state / name).mkdir(exist_ok=True)
    confined = LazySandbox(load(str(trees / "fix"), os.environ), make_environment(cwd=str(trees / "fix")))
    hidden = plan_layout(confined._session, writes=True).hidden
    assert {str(state / name) for name in names} <= set(hidden)
    assert str(state) not in hidden


def test_changes_of_an_agent_are_listed_shown_and_applied(run_here: RunHere, repository: Path, trees: Path) -> None:
    env = dict(os.environ)

    async def create() -> AgentWorktree:
        async with open_worktrees(make_environment(env, str(repository))) as found:
            return await AgentWorktrees(found).create("s1-agent-1")

    made = asyncio.run(create())
    Path(made.root, "a.txt").write_text("by the agent\n")
    Path(made.root, "new.txt").write_text("new https://me:pw@example.com\n")
    Path(made.root, ".vscode").mkdir()
    Path(made.root, ".vscode/tasks.json").write_text("{}")
    assert run_here("worktree")[1] == f"s1-agent-1  odin/s1-agent-1  3 not applied  {trees / 's1-agent-1'}\n"
    code, printed, _ = run_here("worktree", "diff", "s1-agent-1")
    assert code == 0 and "+by the agent" in printed and "+new https://me:pw@example.com\n" in printed
    assert len(json.loads(run_here("worktree", "diff", "s1-agent-1", "--json")[1])["files"]) == 3
    (repository / "a.txt").write_text("by me\n")
    code, printed, _ = run_here("worktree", "apply", "s1-agent-1")
    assert code == 1 and "Applied 1 file to the project.\nConflict: a.txt" in printed and "Kept worktree" in printed
    (repository / "a.txt").write_text("by the agent\n")
    code, printed, _ = run_here("worktree", "apply", "s1-agent-1")
    assert code == 1 and printed.startswith("Applied 0 files to the project.\nSkipped: .vscode/tasks.json (.vscode")
    (repository / ".vscode").mkdir()
    (repository / ".vscode/tasks.json").write_text("{}")
    code, printed, _ = run_here("worktree", "apply", "s1-agent-1")
    assert (code, printed) == (0, "Applied 0 files to the project.\nRemoved worktree s1-agent-1.\n")
    assert (repository / "new.txt").read_text().startswith("new ") and not (trees / "s1-agent-1").exists()
    assert run_here("worktree", "apply", "s1-agent-1")[0] == 2 and run_here("worktree", "diff")[0] == 2
