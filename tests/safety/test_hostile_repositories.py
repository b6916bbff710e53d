"""Nothing of a repository runs outside the sandbox, whatever Odin does with git: for every trick, user and backend."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.safety import git_tricks
from tests.safety.git_tricks import SECRET, TRICKS, HostileRepository, use_git
from tests.sandbox.users import BACKENDS, NOBODY, find_python, make_prefix, run_process, shared_folder
from tests.waiting import LIMIT_S

Trick = Callable[[HostileRepository], None]

USUAL = (git_tricks.set_filter, git_tricks.add_a_gitlink, git_tricks.link_folders_out)
"""The tricks of the short test run."""


def get_name(trick: Trick) -> str:
    return trick.__name__


def make_repository(folder: Path, trick: Trick, backend: str) -> HostileRepository:
    repo = HostileRepository(folder)
    settings = repo.home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"sandbox": {"backend": backend}}))
    trick(repo)
    repo.clear()
    return repo


def check_repository(repo: HostileRepository, answers: object) -> None:
    assert repo.list_traces() == []
    assert SECRET not in str(answers)
    assert list(repo.home.joinpath(".ssh").iterdir()) == [repo.home / ".ssh/id_rsa"]


async def test_git_works_in_the_sandbox_with_a_filter_of_the_repository(tmp_path: Path) -> None:
    repo = make_repository(tmp_path, git_tricks.set_filter, "auto")
    answers = await use_git(str(repo.root), str(repo.home))
    assert " M a.txt" in answers["describe_repository"]
    assert "path='new.txt', status='added'" in answers["show_changes"]
    assert "Applied 1 file to the project." in answers["work_apart"] and "Removed worktree" in answers["work_apart"]
    assert (repo.root / "a.txt").read_text() == "by the agent\n"
    check_repository(repo, answers)


@pytest.mark.parametrize("trick", [trick for trick, is_effective in TRICKS.items() if is_effective], ids=get_name)
def test_the_tricks_work_without_a_sandbox(tmp_path: Path, trick: Trick) -> None:
    repo = make_repository(tmp_path, trick, "auto")
    env = {**os.environ, "HOME": str(repo.home), "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (("status",), ("log", "-1"), ("add", "-A"), ("stash",)):
        subprocess.run(["git", *words], cwd=repo.root, env=env, capture_output=True, timeout=LIMIT_S)
    assert repo.list_traces()


@pytest.mark.parametrize(
    "backend",
    [pytest.param(name, marks=() if name == "bubblewrap" else pytest.mark.slow) for name in (*BACKENDS, "off")],
)
@pytest.mark.parametrize(
    "trick",
    [pytest.param(trick, marks=() if trick in USUAL else pytest.mark.slow, id=get_name(trick)) for trick in TRICKS],
)
async def test_nothing_of_a_repository_runs_outside_the_sandbox(tmp_path: Path, trick: Trick, backend: str) -> None:
    repo = make_repository(tmp_path, trick, backend)
    check_repository(repo, await use_git(str(repo.root), str(repo.home)))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_runs_outside_the_sandbox_of_an_ordinary_user(backend: str, part: int) -> None:
    prefix = make_prefix("user")
    with shared_folder() as folder:
        repos = [make_repository(folder / get_name(trick), trick, backend) for trick in list(TRICKS)[part::3]]
        for path in folder.rglob("*"):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        argv = [*prefix, find_python(tuple(prefix)), git_tricks.__file__, *(str(repo.root.parent) for repo in repos)]
        done = run_process(argv, home=str(repos[0].home), timeout=300)
        assert done.returncode == 0, done.stderr
        for repo in repos:
            check_repository(repo, done.stdout)
