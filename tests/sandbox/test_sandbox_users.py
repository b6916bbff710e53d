"""Sandboxes that another user creates or that are nested in another sandbox, and the sandbox tests as another user."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

import odin

from .users import AS_NOBODY, BACKENDS, NOBODY, USERS, UserProject, find_python, make_prefix, shared_folder

OUTER_SANDBOX = [
    "bwrap",
    "--dev-bind",
    "/",
    "/",
    "--unshare-pid",
    "--proc",
    "/proc",
    "--unshare-net",
    "--die-with-parent",
]


@pytest.mark.slow
@pytest.mark.parametrize("container", [[], OUTER_SANDBOX], ids=["plain", "nested"])
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_sandbox_confines_for_every_user_and_inside_another_sandbox(
    container: list[str], who: str, backend: str
) -> None:
    with shared_folder() as folder:
        project = UserProject(folder, who, backend)
        beside = folder / "beside"
        beside.mkdir()
        beside.chmod(0o777)
        if container:
            find_python(tuple(container))
            project.container = container
        for name, writes in (("write", True), ("look", False)):
            (done,) = project.run(f"touch {name}; touch {beside}/{name}; echo done", writes=writes)
            assert done.output.splitlines()[-1] == "done"
        assert os.listdir(project.root) == ["write"]
        assert os.listdir(beside) == []


MOUNT_LATER = """cd $1; shift
(echo >ready; mount -t tmpfs -o mode=777 tmpfs later && touch later/seen && echo >mounted) &
exec "$@"
"""


@pytest.mark.parametrize("order", [[True], [False], [True, False]], ids=["writable", "read_only", "shared_network"])
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_mounts_made_after_the_sandbox_cannot_be_written(order: list[bool], who: str, backend: str) -> None:
    """In a mount namespace of its own, which shares new mounts with the namespaces below it as most machines do."""
    make_prefix("root")
    with shared_folder() as folder:
        project = UserProject(folder, who, backend)
        (folder / "later").mkdir()
        for name in ("ready", "mounted"):
            os.mkfifo(folder / name)
        project.container = ["unshare", "--mount", "--propagation", "shared"]
        project.wrapper = ["sh", "-c", MOUNT_LATER, "sh", str(folder)]
        wait = f"read x <{folder}/ready; read x <{folder}/mounted"
        attempt = f"touch {folder}/later/new && echo written; ls -d {folder}/later"
        commands = [*(("true", writes) for writes in order), (wait, order[-1])]
        results = project.run(*commands, *((attempt, writes) for writes in order))
        assert [done.code for done in results] == [0] * len(results)
        for done in results[-len(order) :]:
            assert done.output.splitlines()[-1] == f"{folder}/later"
            assert "written" not in done.output


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "modules",
    [
        ["test_sandbox"],
        ["test_sandbox_attacks", "test_sandbox_git", "test_grants"],
        ["test_views", "test_private_folders"],
    ],
)
def test_sandbox_tests_pass_as_an_ordinary_user(modules: list[str]) -> None:
    """Run other test modules of this folder as an unprivileged user."""
    if os.getuid() != 0:
        pytest.skip("the tests run as an ordinary user anyway")
    python = find_python(tuple(AS_NOBODY))
    repository = Path(__file__).parent.parent.parent
    paths = [str(Path(odin.__file__).parent.parent), str(repository), sysconfig.get_path("purelib")]
    with shared_folder() as folder:
        os.chown(folder, NOBODY, NOBODY)
        env = {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(paths)}
        words = ["-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-rs", f"--basetemp={folder}/tests"]
        argv = [*AS_NOBODY, python, "-B", *words, *(f"tests/sandbox/{module}.py" for module in modules)]
        done = subprocess.run(argv, cwd=repository, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
