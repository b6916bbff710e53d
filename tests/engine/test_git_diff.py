"""The changes that /diff shows: against the last commit and with new files. The repository is only read."""

import os
import subprocess
from pathlib import Path

import pytest

from odin.app.git_diff import list_changed_files
from odin.core.errors import UsageError


def git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    for name in ("kept", "changed", "gone", "moved"):
        (folder / name).write_text(f"{name} 1\n{name} 2\n{name} 3\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def list_git_files(repo: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in (repo / ".git").rglob("*") if path.is_file()}


async def test_diff_has_every_kind_of_change_and_leaves_git_unchanged(repo: Path) -> None:
    (repo / "changed").write_text("changed 1\n-- two\nchanged 3\n")
    (repo / "gone").unlink()
    git(repo, "mv", "moved", "there")
    (repo / "sub").mkdir()
    (repo / "sub/nëw name").write_text("++ a\nb\n")
    (repo / "data.bin").write_bytes(b"\0\1\2")
    before = list_git_files(repo)
    found = {file.path: file for file in await list_changed_files(str(repo / "sub"), os.environ)}
    assert {path: (file.status, file.added, file.removed) for path, file in found.items()} == {
        "changed": ("modified", 1, 1),
        "gone": ("deleted", 0, 3),
        "there": ("renamed", 0, 0),
        "sub/nëw name": ("added", 2, 0),
        "data.bin": ("binary", 0, 0),
    }
    assert found["changed"].diff.endswith("@@ -1,3 +1,3 @@\n changed 1\n-changed 2\n+-- two\n changed 3")
    assert list_git_files(repo) == before


async def test_before_the_first_commit_every_file_is_new(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("b\n")
    git(tmp_path, "add", "a")
    found = await list_changed_files(str(tmp_path), os.environ)
    assert [(file.path, file.status) for file in found] == [("a", "added"), ("b", "added")]


async def test_paths_limit_the_diff(repo: Path) -> None:
    (repo / "changed").write_text("other\n")
    (repo / "new").write_text("new\n")
    assert [file.path for file in await list_changed_files(str(repo), os.environ, ["new"])] == ["new"]
    assert await list_changed_files(str(repo), os.environ, ["kept"]) == ()
    with pytest.raises(UsageError, match="nowhere does not exist"):
        await list_changed_files(str(repo), os.environ, ["nowhere"])


async def test_diff_refuses_with_a_reason(repo: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not in a git repository"):
        await list_changed_files(str(tmp_path), {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    git(repo, "config", "diff.external", "touch run")
    with pytest.raises(UsageError, match="can start programs"):
        await list_changed_files(str(repo), os.environ)
