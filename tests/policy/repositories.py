"""A small repository in which commands are checked."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def make_repository(folder: Path) -> None:
    """Create a repository with two branches, three commits, a tag, a remote, a stash, and several kinds of changes."""
    shutil.copytree(_make_template(), folder, symlinks=True, dirs_exist_ok=True)
    # The index has the inodes of the template. The exit code only says whether files differ from it.
    subprocess.run(["git", "-C", str(folder), "update-index", "-q", "--refresh"], capture_output=True)


@functools.cache
def _make_template() -> Path:
    """Return a template repository, made once per process: copying it starts one process instead of twelve."""
    folder = Path(tempfile.mkdtemp(prefix="odin-repository-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _fill_repository(folder)
    return folder


def _fill_repository(folder: Path) -> None:
    for name in ("src", "tests", "docs"):
        (folder / name).mkdir()
    files = {
        "README.md": "# TODO\n\nA small project.\n",
        "Makefile": "all:\n\techo all\n",
        "data.csv": "a,1\nb,2\n",
        "data.json": '{"name": "x", "items": [{"id": 1, "name": "a", "n": 2}]}\n',
        "names.txt": "x\nxa\nb b\n",
        "evil.sh": "#!/bin/sh\ntouch PWNED\n",
        "app.log": "line\n" * 30,
        "src/app.py": "def main():\n    pass  # TODO\n",
        "tests/test_app.py": "import app\n",
        ".gitignore": "*.log\n",
        ".env.example": "KEY=\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "evil.sh").chmod(0o755)

    def git(*args: str) -> None:
        identity = {f"GIT_{role}_{part}": f"a@{role}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
        subprocess.run(
            ["git", "-C", str(folder), *args], check=True, capture_output=True, env={**os.environ, **identity}
        )

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    git("tag", "v1")
    (folder / "README.md").write_text("# TODO\n\nA small project with more.\n")
    git("commit", "-qam", "second")
    git("branch", "feature")
    (folder / "src" / "app.py").write_text("def main():\n    return 1  # TODO\n")
    git("commit", "-qam", "third")
    git("remote", "add", "origin", "https://example.invalid/x.git")
    (folder / "names.txt").write_text("stashed\n")
    git("stash", "-q")
    (folder / "Makefile").write_text("all:\n\techo staged\n")
    git("add", "Makefile")
    (folder / "README.md").write_text("# TODO\n\nChanged, and not committed.\n")
