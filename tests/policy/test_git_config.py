"""Read-only git commands run without approval only if the repository's configuration can start no program."""

import os
import subprocess
from pathlib import Path

import pytest

from odin.config.paths import make_environment
from odin.core.profile import ProcessProfile
from odin.policy.commands import git_config
from odin.policy.commands.analysis import is_read_only
from odin.policy.commands.git_config import find_git_problem, has_safe_git_config
from odin.policy.commands.git_folder import list_submodules
from odin.sandbox.runner import ProcessRunner
from tests.policy.everyday_commands import make_repository
from tests.policy.policies import make_scope


def git(folder: Path, *args: str) -> str:
    identity = {f"GIT_{role}_{part}": f"a@{role}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    allow = ["-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", "-C", str(folder), *allow, *args],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **identity},
    )
    return done.stdout.strip()


@pytest.fixture
def repo(workspace: Path) -> Path:
    make_repository(workspace)
    return workspace


def is_readonly_in(command: str, repo: Path) -> bool:
    return is_read_only(command, make_scope(repo))


UNSAFE_SETTINGS = [
    "core.fsmonitor ./evil.sh",
    "core.hooksPath ./hooks",
    "core.pager ./evil.sh",
    "core.editor ./evil.sh",
    "core.sshCommand ./evil.sh",
    "core.askPass ./evil.sh",
    "core.gitProxy ./evil.sh",
    "core.worktree /etc",
    "core.attributesFile /etc/passwd",
    "core.excludesFile /etc/passwd",
    "diff.external ./evil.sh",
    "diff.evil.textconv ./evil.sh",
    "diff.evil.command ./evil.sh",
    "diff.submodule diff",
    "diff.orderFile /etc/passwd",
    "filter.evil.clean ./evil.sh",
    "filter.evil.smudge ./evil.sh",
    "filter.evil.process ./evil.sh",
    "merge.evil.driver ./evil.sh",
    "gpg.program ./evil.sh",
    "gpg.ssh.program ./evil.sh",
    "log.showSignature true",
    "format.pretty %G?",
    "pretty.x %G?",
    "alias.status '!./evil.sh'",
    "pager.log ./evil.sh",
    "credential.helper ./evil.sh",
    "include.path ../inc",
    "includeIf.gitdir:/.path ../inc",
    "uploadpack.packObjectsHook ./evil.sh",
    "remote.origin.uploadpack ./evil.sh",
    "remote.origin.vcs evil",
    "remote.origin.promisor true",
    "extensions.partialClone origin",
    "protocol.ext.allow always",
    "mailmap.file /etc/passwd",
    "blame.ignoreRevsFile /etc/passwd",
    "trailer.x.command ./evil.sh",
    "difftool.x.cmd ./evil.sh",
    "sequence.editor ./evil.sh",
    "status.submoduleSummary true",
    "unknown.key x",
]


def test_setting_that_can_start_a_program_needs_approval(repo: Path):
    config = repo / ".git" / "config"
    kept = config.read_text()
    for setting in UNSAFE_SETTINGS:
        assert is_readonly_in("git status", repo), setting
        key, value = setting.split(" ", 1)
        git(repo, "config", key, value)
        assert not is_readonly_in("git status", repo), setting
        assert not is_readonly_in("git -C src status", repo), setting
        assert not is_readonly_in("cd src && git log", repo), setting
        assert is_readonly_in("git --version", repo)
        config.write_text(kept)


def test_ordinary_settings_need_no_approval(repo: Path):
    for setting in (
        "user.name me",
        "remote.origin.url https://x/y",
        "remote.origin.fetch +refs/heads/*:refs/remotes/origin/*",
        "branch.main.remote origin",
        "branch.feature/x.vscode-merge-base origin/main",
        "core.autocrlf input",
        "extensions.worktreeConfig true",
        "diff.algorithm histogram",
        "blame.ignoreRevsFile .git-blame-ignore-revs",
        "commit.gpgSign true",
        "pull.rebase true",
        "http.postBuffer 1000",
    ):
        key, value = setting.split(" ", 1)
        git(repo, "config", key, value)
        assert is_readonly_in("git status", repo), setting


UNSAFE_CONFIG_LINES = [
    "[core] fsmonitor = x\n",
    "[core]\n\tfsmonitor = x",
    "[Core]\nFSMonitor=x\n",
    "[core]\n\tabbrev = 7\\\n[user]\n\tname = x\n",
    "[core]\r\n\tfsmonitor = x\r\n",
    "fsmonitor = x\n",
    "nonsense\n",
    "[diff.evil]\n\ttextconv = x\n",
    "[include]\n\tpath = x\n",
    '[includeIf "gitdir:~/"]\n\tpath = x\n',
]


def test_config_file_is_parsed_as_git_parses_it(repo: Path):
    config = repo / ".git" / "config"
    kept = config.read_text()
    for text in UNSAFE_CONFIG_LINES:
        assert is_readonly_in("git status", repo), text
        config.write_text(kept + text)
        assert not is_readonly_in("git status", repo), text
        config.write_text(kept)


def test_changed_config_is_noticed_despite_the_cache(repo: Path):
    config = repo / ".git" / "config"
    for _ in range(3):
        assert has_safe_git_config(str(repo), str(repo), os.environ)
        kept = config.read_bytes()
        before = config.stat()
        poisoned = kept.replace(b"filemode", b"fsmonito") + b"#"
        config.write_bytes(poisoned.replace(b"fsmonito", b"pager   ")[: len(kept)])
        os.utime(config, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert config.stat().st_size == before.st_size
        assert not has_safe_git_config(str(repo), str(repo), os.environ)
        config.write_bytes(kept)
    assert has_safe_git_config(str(repo), str(repo), os.environ)


def test_config_that_is_not_a_regular_file_needs_approval(repo: Path):
    config = repo / ".git" / "config"
    kept = config.read_bytes()
    config.unlink()
    assert not is_readonly_in("git status", repo)
    os.mkfifo(config)
    assert not is_readonly_in("git status", repo)
    config.unlink()
    (repo / "elsewhere").write_bytes(kept)
    config.symlink_to(repo / "elsewhere")
    assert not is_readonly_in("git status", repo)


def test_hook_that_a_read_only_command_would_start_needs_approval(repo: Path):
    (repo / ".git" / "hooks").mkdir(exist_ok=True)
    (repo / ".git" / "hooks" / "pre-commit").write_text("")
    assert is_readonly_in("git status", repo)
    (repo / ".git" / "hooks" / "post-index-change").write_text("")
    assert not is_readonly_in("git status", repo)


def test_git_outside_a_repository_needs_no_approval(workspace: Path):
    assert find_git_problem(str(workspace), str(workspace), os.environ) == ""
    assert is_readonly_in("git status", workspace)
    (workspace / "src").mkdir(exist_ok=True)
    assert is_readonly_in("cd src && git log --oneline", workspace)


def test_repository_above_the_project_needs_approval(workspace: Path):
    subprocess.run(["git", "init", "-q", str(workspace.parent)], check=True)
    assert not is_readonly_in("git status", workspace)


def test_git_dir_in_the_environment_needs_approval(repo: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    assert not is_readonly_in("git status", repo)


# --- nested repositories ---


def test_embedded_bare_repository_needs_approval(repo: Path):
    subprocess.run(["git", "init", "-q", "--bare", str(repo / "vendor")], check=True)
    assert not is_readonly_in("cd vendor && git status", repo)
    assert not is_readonly_in("git -C vendor log", repo)
    (repo / "vendor" / "deep").mkdir()
    assert not is_readonly_in("cd vendor/deep && git status", repo)
    assert is_readonly_in("git status", repo)


def test_git_file_is_followed_to_its_config(repo: Path):
    inner = repo / "src"
    other = repo / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    (inner / ".git").write_text("gitdir: ../other/.git\n")
    assert is_readonly_in("cd src && git status", repo)
    git(other, "config", "core.fsmonitor", "./evil.sh")
    assert not is_readonly_in("cd src && git status", repo)
    for text in ("gitdir: /etc\n", "gitdir: nowhere\n", "nonsense\n", "gitdir: ../other/.git\nmore\n"):
        (inner / ".git").write_text(text)
        assert not is_readonly_in("cd src && git status", repo), text


def test_git_file_that_points_to_an_unrelated_repository_needs_approval(repo: Path):
    outside = repo.parent / "private"
    subprocess.run(["git", "init", "-q", str(outside)], check=True)
    (repo / "src" / ".git").write_text(f"gitdir: {outside}/.git\n")
    assert not is_readonly_in("cd src && git log", repo)
    (repo / "src" / ".git").unlink()
    (repo / "src" / ".git").symlink_to(outside / ".git")
    assert not is_readonly_in("cd src && git log", repo)


def test_linked_worktree_shares_the_config_of_the_main_worktree(repo: Path):
    tree = repo.parent / "tree"
    git(repo, "worktree", "add", "-q", str(tree), "feature")
    assert is_readonly_in("git status", tree)
    git(repo, "config", "core.fsmonitor", "./evil.sh")
    assert not is_readonly_in("git status", tree)
    git(repo, "config", "--unset", "core.fsmonitor")
    assert is_readonly_in("git status", tree)
    git(repo, "config", "extensions.worktreeConfig", "true")
    git(tree, "config", "--worktree", "core.pager", "./evil.sh")
    assert not is_readonly_in("git status", tree)
    assert is_readonly_in("git status", repo)


def test_commondir_that_is_not_the_main_worktrees_git_folder_needs_approval(repo: Path):
    (repo / "tracked").mkdir()
    (repo / "tracked" / "config").write_text((repo / ".git" / "config").read_text())
    (repo / ".git" / "commondir").write_text("../tracked\n")
    assert not is_readonly_in("git status", repo)


@pytest.fixture
def submodule(repo: Path) -> Path:
    """A submodule at `lib`, committed."""
    origin = repo.parent / "origin"
    origin.mkdir()
    make_repository(origin)
    git(repo, "submodule", "--quiet", "add", str(origin), "lib")
    git(repo, "commit", "-qm", "lib")
    return repo / "lib"


def test_config_of_a_submodule_counts_for_the_parent_repository(repo: Path, submodule: Path):
    assert list_submodules(str(repo / ".git" / "index"), 20) == ("lib",)
    assert is_readonly_in("git status", repo)
    assert is_readonly_in("cd lib && git status", repo)
    git(submodule, "config", "core.fsmonitor", "./evil.sh")
    assert not is_readonly_in("git status", repo)
    assert not is_readonly_in("cd lib && git status", repo)


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_submodules_are_found_in_every_index_version(repo: Path, submodule: Path, version: str):
    git(repo, "update-index", "--index-version", version)
    if version == "3":
        (repo / "intended").write_text("x\n")
        git(repo, "add", "-N", "intended")
    assert list_submodules(str(repo / ".git" / "index"), 20) == ("lib",)
    listed = [line.split("\t")[1] for line in git(repo, "ls-files", "-s").split("\n") if line.startswith("160000")]
    assert listed == ["lib"]


def test_split_index_needs_approval(repo: Path, submodule: Path):
    git(repo, "update-index", "--split-index")
    assert not is_readonly_in("git status", repo)
    git(repo, "update-index", "--no-split-index")
    assert is_readonly_in("git status", repo)


def test_submodules_are_found_in_sha256_repositories(workspace: Path):
    subprocess.run(["git", "init", "-q", "--object-format=sha256", str(workspace)], check=True)
    (workspace / "a").write_text("x\n")
    git(workspace, "add", "a")
    git(workspace, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 64},lib")
    assert list_submodules(str(workspace / ".git" / "index"), 32) == ("lib",)
    assert list_submodules(str(workspace / ".git" / "index"), 20) is None
    assert is_readonly_in("git status", workspace)


def test_damaged_index_needs_approval(repo: Path):
    (repo / ".git" / "index").write_bytes(b"nonsense")
    assert not is_readonly_in("git status", repo)
    (repo / ".git" / "index").write_bytes(b"DIRC\x00\x00\x00\x02\x00\x00\x00\x05\x00\x00\xe0\x00")
    assert not is_readonly_in("git status", repo)


async def test_filter_in_a_submodule_needs_approval_because_git_would_start_it(repo: Path, submodule: Path):
    """Environment variables do not keep git from starting it, so the policy checks submodules."""
    (submodule / "evil").write_text(f"#!/bin/sh\ntouch {repo}/PWNED\ncat\n")
    (submodule / "evil").chmod(0o755)
    git(submodule, "config", "filter.evil.clean", "./evil")
    (submodule / ".gitattributes").write_text("*.md filter=evil\n")
    text = (submodule / "README.md").read_text()
    (submodule / "README.md").write_text(text.replace("TODO", "DONE"))  # of the same size, so git has to read it
    assert not is_readonly_in("git status", repo)
    runner = ProcessRunner(make_environment(cwd="/"))
    await runner.run("git status", cwd=str(repo), timeout=60, profile=ProcessProfile())
    await runner.close()
    assert (repo / "PWNED").exists(), "git no longer starts filters of submodules: the check can be removed"


async def test_the_environment_of_commands_keeps_git_from_starting_programs(repo: Path):
    """A second defense, for approved commands: settings that only affect reading start no programs."""
    (repo / "evil.sh").write_text(f"#!/bin/sh\ntouch {repo}/PWNED\n")
    git(repo, "config", "core.fsmonitor", str(repo / "evil.sh"))
    git(repo, "config", "core.pager", str(repo / "evil.sh"))
    git(repo, "config", "log.showSignature", "true")
    git(repo, "config", "gpg.program", str(repo / "evil.sh"))
    (repo / "PWNED").unlink(missing_ok=True)
    runner = ProcessRunner(make_environment(cwd="/"))
    for command in ("git status", "git diff", "git log -1", "git ls-files"):
        await runner.run(command, cwd=str(repo), timeout=60, profile=ProcessProfile())
    await runner.close()
    assert not (repo / "PWNED").exists()


def test_unchanged_repository_is_checked_once(repo: Path, monkeypatch: pytest.MonkeyPatch):
    checked: list[str] = []

    class CountedCheck(git_config._RepositoryCheck):
        def check_from(self, cwd: str) -> None:
            checked.append(cwd)
            super().check_from(cwd)

    def is_settled(time_ns: int) -> bool:
        return True

    monkeypatch.setattr(git_config, "_RepositoryCheck", CountedCheck)
    monkeypatch.setattr(git_config, "is_settled", is_settled)
    for _ in range(3):
        assert has_safe_git_config(str(repo), str(repo), os.environ)
    assert checked == [str(repo)]
    (repo / ".git/config").write_text("[core]\n\tfsmonitor = ./run\n")
    assert not has_safe_git_config(str(repo), str(repo), os.environ)
