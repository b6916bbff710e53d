"""Sandboxes created by another user, and inside another sandbox."""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import odin

PROGRAM = """
import asyncio, json, os, sys
from pathlib import Path
from odin.core.tool import SandboxProfile
from odin.sandbox.layout import SandboxSession
from odin.sandbox.probe import SandboxOptions
from odin.sandbox.runner import ProcessRunner
from odin.sandbox.sandbox import Sandbox

async def main(use, folder):
    root, beside = folder / "project", folder / "beside"
    session = SandboxSession(root=str(root), home=str(folder / "home"), env=dict(os.environ))
    sandbox = Sandbox(session, SandboxOptions(use))
    runner = ProcessRunner(sandbox=lambda: sandbox)
    said = {}
    for name, writes in (("write", True), ("look", False)):
        command = f"touch {name}; touch {beside}/{name}; echo done"
        sandbox.probe()
        if sandbox.kind == "none":
            break
        finished = await runner.run(command, cwd=str(root), timeout=30, sandbox_profile=SandboxProfile(writes=writes))
        said[name] = finished.output.splitlines()[-1]
    await runner.close()
    sandbox.kill()
    print(json.dumps({"kind": sandbox.kind, "reasons": sandbox.list_failures(), "said": said}))

asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
"""

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
_CAN = "import os, sys, odin.sandbox.sandbox; sys.exit(not os.access(sys.executable, os.X_OK))"
INSIDE = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--unshare-net", "--die-with-parent"]


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that another user can enter, unlike the folder of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder).resolve()


@pytest.mark.parametrize("around", [NOBODY, INSIDE], ids=["nobody", "nested"])
@pytest.mark.parametrize("use", ["bubblewrap", "landlock"])
def test_it_holds_there_too(around: list[str], use: str, shared_folder: Path) -> None:
    if around is NOBODY and os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    python = _python_for(around)
    for name in ("project", "beside", "home"):
        (shared_folder / name).mkdir()
        (shared_folder / name).chmod(0o777)
    done = _run([*around, python, "-c", PROGRAM, use, str(shared_folder)], home=str(shared_folder / "home"))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    if told["kind"] == "none":
        pytest.skip(f"{use} does not work there: {told['reasons']}")
    assert told["said"] == {"write": "done", "look": "done"}
    assert os.listdir(shared_folder / "project") == ["write"]
    assert os.listdir(shared_folder / "beside") == []


def _run(argv: list[str], home: str = "/") -> "subprocess.CompletedProcess[str]":
    package = str(Path(odin.__file__).parent.parent)
    env = {**os.environ, "HOME": home, "PYTHONPATH": f"{package}:{sysconfig.get_path('purelib')}"}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False, timeout=120)


def _python_for(around: list[str]) -> str:
    """Return an interpreter that can run there and import what is needed."""
    tried = ""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            done = _run([*around, python, "-c", _CAN])
        except FileNotFoundError as error:
            pytest.skip(f"{error.filename} is not installed")
        if done.returncode == 0:
            return python
        tried = done.stderr
    pytest.skip(f"no interpreter can be started there: {tried.strip()[-200:]}")
