"""Git commands that show a committed secret file: its values are redacted."""

import subprocess
from pathlib import Path

from odin.policy.secrets import Redactor
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
