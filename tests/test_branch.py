"""`find_branch`: the checked-out git branch of a folder."""

import subprocess
from pathlib import Path

from odin.app.workspace import find_branch


def git(folder: Path, *words: str) -> str:
    settings = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "commit.gpgsign=false",
    ]
    done = subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_a_branch_is_found_from_any_folder_inside(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    inside = root / "src" / "deep"
    inside.mkdir(parents=True)
    git(root, "switch", "-q", "-c", "feature/one")
    assert find_branch(str(root)) == find_branch(str(inside)) == git(root, "branch", "--show-current") == "feature/one"


def test_a_repository_without_a_commit_has_a_branch(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert find_branch(str(tmp_path)) == "main"


def test_branch_of_a_detached_head_is_the_short_commit_id(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    git(root, "switch", "-q", "--detach")
    assert find_branch(str(root)) == git(root, "rev-parse", "HEAD")[:8]


def test_linked_worktree_has_its_own_branch(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    git(root, "worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    assert find_branch(str(tmp_path / "linked")) == "other"
    assert find_branch(str(root)) == "main"


def test_folder_without_git_or_with_damaged_git_files_has_no_branch(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert find_branch(str(tmp_path)) == ""
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe\n")
    assert isinstance(find_branch(str(tmp_path)), str)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert find_branch(str(broken)) == ""
