"""Git in a sandbox: commits work, and files that make git run something are read-only."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odin.sandbox.layout import find_git_folders

from .sandboxes import LOOK, WRITE, Place

WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(folder: Path, *words: str) -> str:
    run = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(run, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path, "bubblewrap", environ=WHO)
    git(place.root, "init", "-q", "-b", "main", ".")
    (place.root / "file").write_text("one\n")
    git(place.root, "add", ".")
    git(place.root, "commit", "-qm", "one")
    yield place.needs_it()
    await place.close()


async def test_a_commit_works(place: Place) -> None:
    done = await place.run(
        "echo two >>file && git add file && git commit -qm two && git log --format=%s && git status -s"
    )
    assert (done.code, done.output) == (0, "two\none\n")
    branch = await place.run("git switch -qc other && git stash list && git tag v1 && git branch --show-current")
    assert (branch.code, branch.output) == (0, "other\n")
    assert done.tampered_files == branch.tampered_files == ()


async def test_looking_works_where_nothing_may_change(place: Place) -> None:
    (place.root / "file").write_text("changed\n")
    done = await place.run("git status -s; git diff --stat; git log --format=%s", LOOK)
    assert done.code == 0
    assert done.output.startswith(" M file\n")


@pytest.mark.parametrize(
    "command",
    [
        "echo 'touch ran' >.git/hooks/pre-commit && chmod +x .git/hooks/pre-commit",
        "git config core.fsmonitor 'touch ran'",
        "echo '[core]' >>.git/config",
        "mv .git/hooks .git/other && mkdir .git/hooks",
        "mv .git away && mkdir -p .git/hooks",
        "mv .git/config .git/old && echo >.git/config",
    ],
)
async def test_git_cannot_be_made_to_run_something_later(place: Place, command: str) -> None:
    before = (place.root / ".git/config").read_bytes(), sorted((place.root / ".git/hooks").iterdir())
    done = await place.run(command)
    assert done.code != 0
    assert ((place.root / ".git/config").read_bytes(), sorted((place.root / ".git/hooks").iterdir())) == before
    assert ".git" in done.denial


async def test_what_appears_beside_it_is_told(place: Place) -> None:
    done = await place.run("echo 'echo hi' >.envrc; mkdir .vscode; echo x >.git/config.worktree")
    assert done.tampered_files == (".envrc", ".git/config.worktree", ".vscode")
    again = await place.run("echo more >plain")
    assert again.tampered_files == ()


async def test_what_appeared_is_guarded_from_then_on(place: Place) -> None:
    (place.root / ".envrc").write_text("mine")
    await place.run("true")
    done = await place.run("echo yours >.envrc")
    assert (place.root / ".envrc").read_text() == "mine"
    assert done.denial == f"writing {place.root}/.envrc"


async def test_a_linked_worktree_can_commit(place: Place, tmp_path: Path) -> None:
    git(place.root, "worktree", "add", "-q", str(tmp_path / "linked"))
    (tmp_path / "second").mkdir()
    linked = Place(tmp_path / "second", "bubblewrap", environ=WHO)
    linked.root.rmdir()
    (tmp_path / "linked").rename(linked.root)
    git(place.root, "worktree", "repair", str(linked.root))
    try:
        done = await linked.run("echo more >more && git add more && git commit -qm more && git log -1 --format=%s")
        assert (done.code, done.output) == (0, "more\n")
        planted = await linked.run(f"touch {place.root}/.git/hooks/pre-commit")
        assert planted.code != 0
        outside = await linked.run(f"touch {place.root}/file2")
        assert outside.code != 0
    finally:
        await linked.close()


def test_a_file_that_names_a_stranger_as_its_folder_is_not_believed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    git(victim, "init", "-q", ".")
    project = tmp_path / "project"
    project.mkdir()
    (project / ".git").write_text(f"gitdir: {victim}/.git\n")
    assert find_git_folders(str(project)) == []


def test_a_submodule_and_its_folder_name_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "main/.git/modules/part"
    folder.mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text("[core]\n\tworktree = ../../../part\n")
    part = tmp_path / "main/part"
    part.mkdir()
    (part / ".git").write_text("gitdir: ../.git/modules/part\n")
    assert find_git_folders(str(part)) == [str(folder.resolve())]
    (folder / "config").write_text("[core]\n\tworktree = ../../../other\n")
    assert find_git_folders(str(part)) == []


async def test_a_repository_starts_no_programs_of_its_own(place: Place) -> None:
    trap = place.root / "trap"
    trap.write_text("#!/bin/sh\ntouch ran\n")
    trap.chmod(0o755)
    git(place.root, "config", "core.fsmonitor", str(trap))
    git(place.root, "config", "log.showSignature", "true")
    hook = place.root / ".git/hooks/post-index-change"
    hook.write_bytes(trap.read_bytes())
    hook.chmod(0o755)
    for how in (LOOK, WRITE):
        assert (await place.run("git status -s >/dev/null; git log -1 --format=%s", how)).output == "one\n"
    assert not (place.root / "ran").exists()
