"""The changes that /diff shows: against the last commit and with new files. The repository is only read."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odin.app.git import Git, open_git
from odin.app.git_diff import list_changed_files
from odin.config import load
from odin.config.paths import make_environment
from odin.core.errors import UsageError


def git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "re:po"
    folder.mkdir()
    git(folder, "init", "-q")
    for name in ("kept", "changed", "gone", "moved"):
        (folder / name).write_text(f"{name} 1\n{name} 2\n{name} 3\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
async def own_git(tmp_path: Path, home: Path) -> AsyncIterator[Git]:
    async with open_git(load(str(tmp_path), os.environ), make_environment(cwd=str(tmp_path))) as found:
        yield found


def list_git_files(repo: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in (repo / ".git").rglob("*") if path.is_file()}


async def test_diff_has_every_kind_of_change_and_leaves_git_unchanged(own_git: Git, repo: Path) -> None:
    (repo / "changed").write_text("changed 1\n-- two\nchanged 3\n")
    (repo / "gone").unlink()
    git(repo, "mv", "moved", "there")
    (repo / "sub").mkdir()
    (repo / "sub/nëw name").write_text("++ a\nb\n")
    (repo / "data.bin").write_bytes(b"\0\1\2")
    before = list_git_files(repo)
    found = {file.path: file for file in await list_changed_files(own_git, str(repo / "sub"))}
    assert {path: (file.status, file.added, file.removed) for path, file in found.items()} == {
        "changed": ("modified", 1, 1),
        "gone": ("deleted", 0, 3),
        "there": ("renamed", 0, 0),
        "sub/nëw name": ("added", 2, 0),
        "data.bin": ("binary", 0, 0),
    }
    assert found["changed"].diff.endswith("@@ -1,3 +1,3 @@\n changed 1\n-changed 2\n+-- two\n changed 3")
    assert list_git_files(repo) == before


async def test_before_the_first_commit_every_file_is_new(own_git: Git, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("b\n")
    git(tmp_path, "add", "a")
    found = await list_changed_files(own_git, str(tmp_path))
    assert [(file.path, file.status) for file in found] == [("a", "added"), ("b", "added")]


async def test_paths_limit_the_diff(own_git: Git, repo: Path) -> None:
    (repo / "changed").write_text("other\n")
    (repo / "new").write_text("new\n")
    assert [file.path for file in await list_changed_files(own_git, str(repo), ["new"])] == ["new"]
    assert await list_changed_files(own_git, str(repo), ["kept"]) == ()
    with pytest.raises(UsageError, match="nowhere does not exist"):
        await list_changed_files(own_git, str(repo), ["nowhere"])


async def test_diff_refuses_with_a_reason(own_git: Git, repo: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not in a git repository"):
        await list_changed_files(own_git, str(tmp_path))


async def test_programs_of_the_repository_run_in_the_sandbox(own_git: Git, repo: Path, tmp_path: Path) -> None:
    for key in ("diff.external", "core.fsmonitor", "diff.x.textconv"):
        git(repo, "config", key, f"touch {tmp_path}/ran {repo}/ran; cat")
    git(repo, "config", "filter.x.clean", f"touch {tmp_path}/ran {repo}/ran; tr a-z A-Z")
    (repo / ".gitattributes").write_text("* filter=x diff=x\n")
    (repo / "changed").write_text("other\n")
    found = {file.path: file for file in await list_changed_files(own_git, str(repo))}
    assert "+OTHER" in found["changed"].diff, "the filter was applied"
    assert not (tmp_path / "ran").exists() and not (repo / "ran").exists()


async def test_a_filter_may_store_large_files_in_the_git_folder(own_git: Git, repo: Path) -> None:
    git(repo, "config", "filter.lfs.clean", "mkdir -p .git/lfs/tmp && tee .git/lfs/tmp/x | tr a-z A-Z")
    git(repo, "config", "filter.lfs.required", "true")
    (repo / ".git/lfs").mkdir()
    (repo / ".gitattributes").write_text("* filter=lfs\n")
    (repo / "changed").write_text("other\n")
    found = {file.path: file for file in await list_changed_files(own_git, str(repo))}
    assert "+OTHER" in found["changed"].diff and (repo / ".git/lfs/tmp/x").exists()
