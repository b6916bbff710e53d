"""Git in a sandbox: commits work, and files that can make git start a program are read-only."""

import subprocess
from collections.abc import AsyncIterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from odin.core.profile import ProcessProfile
from odin.sandbox.protected_files import find_git_folders
from tests.waiting import LIMIT_S

from .sandboxes import READ_ONLY, WRITE, SandboxedProject

IDENTITY = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(folder: Path, *words: str) -> str:
    run = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(run, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[SandboxedProject]:
    project = SandboxedProject(tmp_path, "bubblewrap", environ=IDENTITY)
    git(project.root, "init", "-q", "-b", "main", ".")
    (project.root / "file").write_text("one\n")
    git(project.root, "add", ".")
    git(project.root, "commit", "-qm", "one")
    yield project.skip_if_unavailable()
    await project.close()


async def test_commit_works(project: SandboxedProject) -> None:
    done = await project.run(
        "echo two >>file && git add file && git commit -qm two && git log --format=%s && git status -s"
    )
    assert (done.code, done.output) == (0, "two\none\n")
    branch = await project.run("git switch -qc other && git stash list && git tag v1 && git branch --show-current")
    assert (branch.code, branch.output) == (0, "other\n")
    assert done.tampered_files == branch.tampered_files == ()


async def test_status_diff_and_log_work_in_a_read_only_sandbox(project: SandboxedProject) -> None:
    (project.root / "file").write_text("changed\n")
    done = await project.run("git status -s; git diff --stat; git log --format=%s", READ_ONLY)
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
async def test_command_cannot_plant_a_program_for_git(project: SandboxedProject, command: str) -> None:
    before = (project.root / ".git/config").read_bytes(), sorted((project.root / ".git/hooks").iterdir())
    done = await project.run(command)
    assert done.code != 0
    assert ((project.root / ".git/config").read_bytes(), sorted((project.root / ".git/hooks").iterdir())) == before
    assert ".git" in done.denial


async def test_new_protected_files_are_reported(project: SandboxedProject) -> None:
    done = await project.run("echo 'echo hi' >.envrc; mkdir .vscode; echo x >.git/config.worktree")
    assert done.tampered_files == (".envrc", ".git/config.worktree", ".vscode")
    again = await project.run("echo more >plain")
    assert again.tampered_files == ()


async def test_new_protected_file_is_read_only_for_later_commands(project: SandboxedProject) -> None:
    (project.root / ".envrc").write_text("mine")
    await project.run("true")
    done = await project.run("echo yours >.envrc")
    assert (project.root / ".envrc").read_text() == "mine"
    assert done.denial == f"writing {project.root}/.envrc"


async def test_a_linked_worktree_can_commit(project: SandboxedProject, tmp_path: Path) -> None:
    git(project.root, "worktree", "add", "-q", str(tmp_path / "linked"))
    (tmp_path / "second").mkdir()
    linked = SandboxedProject(tmp_path / "second", "bubblewrap", environ=IDENTITY)
    linked.root.rmdir()
    (tmp_path / "linked").rename(linked.root)
    git(project.root, "worktree", "repair", str(linked.root))
    try:
        done = await linked.run("echo more >more && git add more && git commit -qm more && git log -1 --format=%s")
        assert (done.code, done.output) == (0, "more\n")
        planted = await linked.run(f"touch {project.root}/.git/hooks/pre-commit")
        assert planted.code != 0
        outside = await linked.run(f"touch {project.root}/file2")
        assert outside.code != 0
    finally:
        await linked.close()


def test_git_file_that_names_another_repository_is_ignored(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    git(victim, "init", "-q", ".")
    project = tmp_path / "project"
    project.mkdir()
    (project / ".git").write_text(f"gitdir: {victim}/.git\n")
    assert find_git_folders(str(project)) == []


def test_git_folder_of_a_submodule_counts_only_if_it_names_the_submodule(tmp_path: Path) -> None:
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


async def test_programs_in_the_git_config_do_not_start(project: SandboxedProject) -> None:
    trap = project.root / "trap"
    trap.write_text("#!/bin/sh\ntouch ran\n")
    trap.chmod(0o755)
    git(project.root, "config", "core.fsmonitor", str(trap))
    git(project.root, "config", "log.showSignature", "true")
    hook = project.root / ".git/hooks/post-index-change"
    hook.write_bytes(trap.read_bytes())
    hook.chmod(0o755)
    for profile in (READ_ONLY, WRITE):
        assert (await project.run("git status -s >/dev/null; git log -1 --format=%s", profile)).output == "one\n"
    assert not (project.root / "ran").exists()


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_remote_git_has_network_and_credentials_and_writes_only_its_folder(tmp_path: Path, backend: str) -> None:
    """A server that asks for a password serves a repository; the user's credential store has it."""
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q", "-b", "main", ".")
    git(source, "commit", "-q", "--allow-empty", "-m", "served")
    git(source, "update-server-info")
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(source / ".git"))

        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization", ""))
            if asked[-1]:
                return super().do_GET()
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()
            return None

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "own").mkdir()
    environ = {"GIT_CONFIG_GLOBAL": str(tmp_path / "own/home/.gitconfig")}
    project = SandboxedProject(tmp_path / "own", backend, environ=environ).skip_if_unavailable()
    try:
        address = f"127.0.0.1:{server.server_port}"
        (project.home / ".git-credentials").write_text(f"http://user:word@{address}\n")
        (project.home / ".gitconfig").write_text("[credential]\n\thelper = store\n")
        git(project.root, "init", "-q", "-b", "main", ".")
        folder = str(project.root / ".git")
        argv = ["git", "--git-dir", folder, "fetch", "-q", f"http://{address}/", "main:refs/heads/got"]
        for profile, code in (
            (ProcessProfile("git-remote", scope=(folder,)), 0),
            (ProcessProfile("git", scope=(folder,)), 128),
        ):
            done = await project.runner.capture(argv, cwd="/", timeout=LIMIT_S, stop_after=10_000, profile=profile)
            assert done.code == code, done.errors
        touched = await project.runner.capture(
            ["touch", str(project.root / "x")], cwd="/", timeout=LIMIT_S, stop_after=10_000, profile=profile
        )
        assert touched.code and "served" in git(project.root, "log", "--format=%s", "got")
    finally:
        server.shutdown()
        server.server_close()
        await project.close()
