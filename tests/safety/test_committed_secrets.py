"""Git commands that show a committed secret file: its values are redacted, or the command needs approval."""

import subprocess
from pathlib import Path

import pytest

from odin.policy.commands.analysis import is_read_only
from odin.policy.secrets import Redactor
from tests.policy.policies import make_scope
from tests.table import each

CANARY = "hunter two and more"
COMMANDS = [
    "git show HEAD",
    "git log -p",
    "git diff HEAD~1",
    "git grep MAIL",
    "git grep -n MAIL HEAD",
    "git diff",
    "git diff -R",
    "git diff --no-prefix",
    "git -c diff.mnemonicPrefix=true diff",
    "git show --color=always",
    "git show --word-diff",
    "git show --color-words",
    "git log -p --graph",
    "git log -p --graph --color=always",
    "git log -p --all --oneline",
    "diff -u .env /dev/null; true",
]
COMMANDS_WITHOUT_FILE_NAMES = [
    "git show --src-prefix=x --dst-prefix=y",
    "git log -p --line-prefix=x",
    "git grep -h MAIL",
    "git grep --heading MAIL",
    "git grep -z MAIL",
    "git grep --color=always MAIL",
]
"""Commands whose output does not show which lines come from a secret file."""


@each("command", COMMANDS)
def test_git_shows_a_committed_secret_file_without_values(command: str, workspace: Path, home: Path) -> None:
    env = workspace / ".env"
    if not (workspace / ".git").exists():
        subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
        for number in range(2):
            env.write_text(f"MAIL_LOGIN={CANARY} {number}\nPORT=3000\n")
            (workspace / "a.txt").write_text(f"MAIL=open {number}\n")
            subprocess.run(["git", "add", "-A"], cwd=workspace, check=True)
            identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
            subprocess.run(["git", *identity, "commit", "-qm", "x"], cwd=workspace, check=True)
        env.write_text(f"MAIL_LOGIN={CANARY} 3\nPORT=3000\n")
    shown = subprocess.run(["bash", "-c", command], cwd=workspace, capture_output=True, text=True, check=True).stdout
    assert CANARY in shown
    redacted = Redactor({})(shown)
    assert CANARY not in redacted.text
    assert "MAIL_LOGIN=[redacted" in redacted.text
    assert ("MAIL=open" in redacted.text) == ("MAIL=open" in shown)


@each("command", COMMANDS_WITHOUT_FILE_NAMES)
def test_git_commands_that_hide_file_names_are_not_read_only(command: str, workspace: Path, home: Path) -> None:
    if not (workspace / ".git").exists():
        subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    assert not is_read_only(command, make_scope(workspace))
    assert is_read_only("git grep -n MAIL", make_scope(workspace))


def git(folder: Path, *words: str) -> str:
    """Run git, which must succeed, and return its output."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(params=["loose", "packed", "sha256", "worktree"])
def repository(request: pytest.FixtureRequest, tmp_path: Path, home: Path) -> Path:
    """A repository with a secret file in its history, another in its index, and an ordinary file."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", f"--object-format={'sha256' if request.param == 'sha256' else 'sha1'}")
    for number in range(3):
        (folder / ".env").write_text(f"MAIL_LOGIN={CANARY} {number}\n" * 40)
        (folder / "a.txt").write_text(f"open {number}\n" * 40)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"commit {number}")
    git(folder, "tag", "-am", "annotated", "v1")
    git(folder, "tag", "light")
    git(folder, "tag", "key", git(folder, "rev-parse", "HEAD:.env"))
    git(folder, "tag", "-am", "annotated", "signed-key", "key")
    if request.param in ("packed", "sha256"):
        git(folder, "gc", "-q", "--aggressive", "--prune=now")
    if request.param == "worktree":
        git(folder, "worktree", "add", "-q", "inner")
        return folder / "inner"
    return folder


def test_showing_a_blob_by_its_id_is_read_only_only_if_it_is_not_secret(repository: Path) -> None:
    ids = {name: git(repository, "rev-parse", name) for name in ("HEAD:.env", "HEAD~2:.env", "HEAD:a.txt", "HEAD~1")}
    secret, old, public, commit = ids.values()
    tree, gone = git(repository, "rev-parse", "HEAD^{tree}"), git(repository, "rev-parse", "HEAD~1:a.txt")
    root = str(repository)

    def is_allowed(command: str) -> bool:
        return is_read_only(command, make_scope(root))

    shown = [
        *(f"git show {word}" for word in ("", "HEAD", "HEAD~1", commit, commit[:7], commit.upper(), tree, tree[:9])),
        *(f"git show {word}" for word in ("v1", "light", "v1^{}", f"{commit}^", f"{commit}~1..HEAD", "v1^{commit}")),
        *(f"git show {word}" for word in (public, public[:12], "HEAD:a.txt", f"v1-0-g{commit[:7]}")),
        f"git cat-file -p {commit}",
        f"git cat-file -p {public}",
        f"git cat-file -t {secret}",
        f"git cat-file -s {secret}",
        "git cat-file --batch-check",
        f"git diff {commit} HEAD",
        f"git diff {commit[:8]}..HEAD -- a.txt",
        f"git grep open {commit}",
    ]
    assert [command for command in shown if not is_allowed(command)] == []
    asked = [
        *(f"git show {word}" for word in (secret, secret[:6], old, secret.upper(), f"{secret}^{{blob}}", gone)),
        *(f"git show {word}" for word in ("key", "signed-key", "key^{}", "refs/tags/key", "HEAD:.env", ":.env")),
        *(f"git show {word}" for word in (f"x-1-g{secret[:9]}", "0" * 40, "abcdef")),
        f"git cat-file -p {secret}",
        f"git cat-file blob {old}",
        "git cat-file -p key",
        "git cat-file --batch",
        "git cat-file --batch-all-objects --batch",
        f"git diff {old} {secret}",
        f"git diff {old}..{secret}",
        f"git grep MAIL {secret}",
    ]
    assert [command for command in asked if is_allowed(command)] == []
