"""Sandboxes created by another user, and inside another sandbox; and all sandbox tests as an ordinary user."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

import odin

from .users import AS_NOBODY, BACKENDS, NOBODY, USERS, UserProject, python_for, shared_folder

INSIDE = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--unshare-net", "--die-with-parent"]


@pytest.mark.slow
@pytest.mark.parametrize("around", [[], INSIDE], ids=["plain", "nested"])
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("use", BACKENDS)
def test_it_holds_there_too(around: list[str], who: str, use: str) -> None:
    with shared_folder() as folder:
        project = UserProject(folder, who, use)
        beside = folder / "beside"
        beside.mkdir()
        beside.chmod(0o777)
        if around:
            python_for(tuple(around))
            project.wrapper = around
        for name, writes in (("write", True), ("look", False)):
            (done,) = project.run(f"touch {name}; touch {beside}/{name}; echo done", writes=writes)
            assert done.output.splitlines()[-1] == "done"
        assert os.listdir(project.root) == ["write"]
        assert os.listdir(beside) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("modules", [["test_sandbox"], ["test_sandbox_attacks", "test_sandbox_git", "test_grants"]])
def test_an_ordinary_user_is_held_as_well(modules: list[str]) -> None:
    """The tests beside this one, run by nobody. They run as the user of the tests anyway."""
    if os.getuid() != 0:
        pytest.skip("the tests run as an ordinary user anyway")
    python = python_for(tuple(AS_NOBODY))
    repository = Path(__file__).parent.parent.parent
    paths = [str(Path(odin.__file__).parent.parent), str(repository), sysconfig.get_path("purelib")]
    with shared_folder() as folder:
        os.chown(folder, NOBODY, NOBODY)
        env = {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(paths)}
        words = ["-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-rs", f"--basetemp={folder}/tests"]
        argv = [*AS_NOBODY, python, "-B", *words, *(f"tests/sandbox/{module}.py" for module in modules)]
        done = subprocess.run(argv, cwd=repository, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
