"""A command in the background exchanges files while Odin runs git: nothing leads out of the sandbox."""

import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from odin.app.git import Git
from odin.app.git_diff import list_changed_files
from odin.app.sandbox import LazySandbox
from odin.app.worktrees import Worktrees
from odin.config import load
from odin.config.paths import make_environment
from odin.core.errors import OdinError
from odin.core.profile import PROJECT
from odin.sandbox.output import HeadTailBuffer
from odin.sandbox.runner import ProcessRunner
from tests.safety.git_tricks import SECRET, HostileRepository, add_repository, set_filter
from tests.safety.test_hostile_repositories import make_repository
from tests.sandbox.users import BACKENDS
from tests.soak import choose, soak

ROUNDS = choose(sample=2, full=50)

EXCHANGE = """
import os, sys, itertools
path, target = sys.argv[1:]
link, aside = path + ".link", path + ".aside"
os.path.lexists(link) or os.symlink(target, link)
for round in itertools.count():
    try:
        os.rename(path, aside); os.rename(link, path)
        for _ in range(round % 200): os.path.lexists(path)
        os.rename(path, link); os.rename(aside, path)
    except OSError: pass
"""

GITLINK = """
import itertools, os, shutil, subprocess, sys
git = lambda *words: subprocess.run(["git", *words], capture_output=True)
head = subprocess.run(["git", "-C", "sub", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
for _ in itertools.count():
    git("update-index", "--add", "--cacheinfo", "160000," + head + ",sub")
    git("update-index", "--force-remove", "sub")
    for name in os.listdir("/tmp"):
        if name.startswith("odin-"):
            try: shutil.copy(".git/index", "/tmp/" + name + "/index")
            except OSError: pass
"""


def prepare(repo: HostileRepository) -> None:
    set_filter(repo)
    add_repository(repo)


@soak
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["refs", "objects", "worktrees", "index", "", "link in the work tree"])
async def test_exchanged_files_lead_nowhere(tmp_path: Path, backend: str, name: str) -> None:
    repo = make_repository(tmp_path, prepare, backend)
    (repo.root / ".git/worktrees").mkdir()
    script = [sys.executable, "-c", EXCHANGE, str(repo.root / ".git" / name).rstrip("/"), str(repo.home)]
    if name == "index":
        script[-1] = str(repo.home / ".ssh/id_rsa")
    elif "link" in name:
        script = [sys.executable, "-c", GITLINK]
    env = {"PATH": os.environ["PATH"], "HOME": str(repo.home)}
    config = load(str(repo.root), env)
    environment = make_environment(env, str(repo.root))
    runner = ProcessRunner(environment, sandbox=LazySandbox(config, environment).get)
    git = Git(runner, repo.home / ".local/state/odin")
    trees = Worktrees(git, config, environment)
    try:
        await runner.start_detached(shlex.join(script), cwd=str(repo.root), sink=HeadTailBuffer(1000), profile=PROJECT)
        answers: list[str] = []
        for number in range(ROUNDS):
            with suppress(OdinError, TimeoutError):
                answers.append((await trees.write_tree(trees.find_own_place())).tree)
            with suppress(OdinError, TimeoutError):
                answers.append(str(await list_changed_files(git, str(repo.root))))
            with suppress(OdinError, TimeoutError):
                await trees.add(f"w{number}")
                await trees.remove(f"w{number}", force=True)
    finally:
        await runner.close()
    assert [path for path in repo.list_traces() if not path.startswith(f"{repo.root}/")] == []
    assert SECRET not in str(answers)
    assert {*os.listdir(repo.home)} <= {".config", ".local", ".ssh", ".cache"}
    assert os.listdir(repo.home / ".ssh") == ["id_rsa"]
