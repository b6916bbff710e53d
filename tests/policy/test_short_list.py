"""The short list of programs that only read, with a sandbox as a hint and without one as the only guard."""

from pathlib import Path

import pytest

from odin.core.profile import CommandLevel
from odin.core.tool import Target
from odin.policy.commands.analysis import is_plainly_read_only
from tests.policy.policies import FakeConfinement, make_policy, make_scope
from tests.policy.repositories import make_repository
from tests.table import each


@pytest.fixture
def project(workspace: Path, home: Path) -> Path:
    make_repository(workspace)
    (home / ".ssh").mkdir()
    (workspace / "outside").symlink_to(home)
    return workspace


LISTED = [
    "ls -la src",
    "cat README.md | head -5 | wc -l",
    "head -n 20 README.md && tail -n +3 README.md; pwd",
    "grep -rn --include='*.py' -A 3 '/api/v1' src",
    "grep -e '/etc' README.md",
    "find . -name '*.py' -not -path './.git/*'",
    "sort -t, -k2 names.txt | uniq -c",
    "diff -u README.md Makefile",
    "jq '.a | length' package.json",
    "du -d 1 src 2>/dev/null",
    "git log --oneline -5 -- src",
    "git diff HEAD~1 --stat",
    "git branch -a --sort=-committerdate",
    "git branch --contains HEAD",
    "git stash list",
    "git remote -v",
    "[ -d src ] && echo yes",
    "NO_COLOR=1 timeout 5 ls *.md",
    "cat < README.md",
    "cat /tmp/no-such-file",
]
NOT_LISTED = [
    "cat .env",
    "cat ~/.ssh/id_rsa",
    "cat outside/x",
    "ls ..",
    "cat /etc/passwd",
    "grep -m1 /etc /etc/passwd",
    "grep -f /etc/passwd README.md",
    "grep -eroot /etc/passwd",
    "diff --to-file=/etc/passwd README.md",
    "sort -o names.txt names.txt",
    "sort --outp=x names.txt",
    "sort --compress-program=./x names.txt",
    "uniq names.txt out.txt",
    "tail -f README.md",
    "tree -o x",
    "find . -delete",
    "find . -exec touch x ;",
    "rg --pre ./x TODO",
    "rg --pr=./x TODO",
    "jq -n env",
    "jq -f prog.jq package.json",
    "date -s 12:00",
    "date 01010101",
    "printf -v x y",
    "[ -v 'a[$(touch x)]' ]",
    "echo hi > x",
    "echo $HOME",
    "ls $(touch x)",
    "(ls)",
    "ls &",
    "git branch new",
    "git branch -D old",
    "git branch '--sort=x --list' new",
    "git tag v2",
    "git stash",
    "git stash -p show",
    "git remote -v add get-url x",
    "git remote show origin",
    "git reflog expire --all",
    "git diff --output=x",
    "git log --ext-diff",
    "git diff --no-index /etc/passwd x",
    "git show HEAD:.env",
    "git -c core.pager=x log",
    "git --exec-path=. status",
    "PATH=. ls",
    "./ls",
    "python3 --version",
]


@each("command", LISTED)
def test_plain_commands_are_on_the_list(project: Path, command: str) -> None:
    assert is_plainly_read_only(command, make_scope(project))
    assert is_plainly_read_only(command, make_scope(project), strict=True) or command.startswith("rg")


@each("command", NOT_LISTED)
def test_other_commands_are_not(project: Path, command: str) -> None:
    assert not is_plainly_read_only(command, make_scope(project))


def test_without_a_sandbox_more_is_checked(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_listed(command: str) -> tuple[bool, bool]:
        scope = make_scope(project)
        return is_plainly_read_only(command, scope), is_plainly_read_only(command, scope, strict=True)

    assert is_listed("grep -r x .") == (True, True)
    (project / "conf").mkdir()
    (project / "conf" / ".env").write_text("X=1\n")
    assert is_listed("grep -r x .") == (True, False)
    assert is_listed("grep -r x src") == (True, True)
    config = project / ".git" / "config"
    kept = config.read_text()
    for setting in ("[core]\n\tfsmonitor = ./x\n", '[diff "x"]\n\ttextconv = ./x\n', "[include]\n\tpath = ../x\n"):
        config.write_text(kept + setting)
        assert is_listed("git status") == (True, False)
    config.write_text(kept)
    assert is_listed("git status") == (True, True)
    (project / ".git" / "commondir").write_text("../other\n")
    assert is_listed("git status") == (True, False)
    (project / "ls").write_text("#!/bin/sh\n")
    (project / "ls").chmod(0o755)
    monkeypatch.setenv("PATH", f"{project}:/usr/bin:/bin")
    assert is_listed("ls") == (True, False)


class CountingConfinement(FakeConfinement):
    """A sandbox that counts how often it is asked for its level: a new project is mounted to find out."""

    asked = 0

    def find_level(self, command: str = "") -> CommandLevel:
        self.asked += 1
        return super().find_level(command)


def test_only_other_commands_need_to_know_the_level(project: Path) -> None:
    confinement = CountingConfinement()
    policy = make_policy(root=str(project), confinement=confinement)
    for command, runs_in, asked in (("git status", "read", 0), ("ls src | wc -l", "read", 0), ("make all", "view", 1)):
        decision = policy.evaluate("ExecuteCommand", "execute", Target(command=command), "edit_mode")
        assert (decision.action, decision.runs_in, confinement.asked) == ("allow", runs_in, asked)
