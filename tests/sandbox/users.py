"""Projects of root and of an ordinary user: commands run in a sandbox that this user creates."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import odin

from .sandboxes import explain_missing

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

BACKENDS = ("bubblewrap", "landlock")
USERS = ("root", "user")

_DRIVER = """
import asyncio, json, os, sys
from odin.config.paths import make_environment
from odin.core.profile import ProcessProfile
from odin.sandbox.layout import SandboxSession
from odin.sandbox.probe import SandboxOptions
from odin.sandbox.runner import ProcessRunner
from odin.sandbox.sandbox import Sandbox

async def main(asked):
    env = {**os.environ, "HOME": asked["home"]}
    sandbox = Sandbox(SandboxSession(root=asked["root"], home=asked["home"], env=env), SandboxOptions(asked["use"]))
    runner = ProcessRunner(make_environment(env, "/"), sandbox=lambda: sandbox, linger=0.1)
    await sandbox.probe()
    told = []
    for command, writes in asked["commands"] if sandbox.kind != "none" else ():
        done = await runner.run(
            command, cwd=asked["root"], timeout=60, profile=ProcessProfile("project" if writes else "read")
        )
        told.append([done.code, done.output, list(done.tampered_files)])
    await runner.close()
    sandbox.kill()
    print(json.dumps({"kind": sandbox.kind, "reasons": sandbox.list_failures(), "told": told}))

asyncio.run(main(json.loads(sys.argv[1])))
"""

_CAN_READ = """
import os, sys, msgspec
sys.exit(not (os.access(sys.executable, os.X_OK) and os.access(sys.argv[1], os.R_OK)))
"""


class SandboxedResult(NamedTuple):
    """The result of a command in the sandbox of a user."""

    code: int
    output: str
    tampered_files: list[str]


class UserProject:
    """A project and a home that belong to one user, and commands in the sandbox this user creates.

    `container` and `wrapper` are command line prefixes for the process of that user. What this machine lacks is asked
    in the container, such as an outer sandbox; a wrapper, which may do something beside, runs once per call.
    """

    def __init__(self, folder: Path, who: str, backend: str) -> None:
        self.backend = backend
        self.container: list[str] = []
        self.wrapper: list[str] = []
        self._prefix = make_prefix(who)
        self._python = find_python(tuple(self._prefix))
        self.owner = NOBODY if self._prefix else os.getuid()
        self.root, self.home = folder / "project", folder / "home"
        for path in (self.root, self.home):
            path.mkdir()
        self.give_to_owner()

    def give_to_owner(self) -> None:
        """Make the user the owner of the home and of everything in the project."""
        if self._prefix:
            for path in (self.root, *self.root.rglob("*"), self.home):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    def run(self, *commands: str | tuple[str, bool], writes: bool = True, **process: Any) -> list[SandboxedResult]:
        """Run commands one after the other, with `writes` as given or each its own, in the sandboxes of one session.

        Skip the test if this user can have no such sandbox.
        """
        request = {
            "root": str(self.root),
            "home": str(self.home),
            "use": self.backend,
            "commands": [(command, writes) if isinstance(command, str) else command for command in commands],
        }
        if missing := explain_missing(self.backend, (*self.container, *self._prefix)):
            pytest.skip(missing)
        argv = [*self.container, *self.wrapper, *self._prefix, self._python, "-c", _DRIVER, json.dumps(request)]
        done = run_process(argv, home=str(self.home), **process)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["kind"] == self.backend, report["reasons"]
        return [SandboxedResult(*one) for one in report["told"]]


@contextmanager
def shared_folder() -> Generator[Path]:
    """Yield a temporary folder that other users can enter, unlike the folder of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder).resolve()


def make_prefix(who: str) -> list[str]:
    """Return the command line prefix that runs a program as this user. Skip the test if we cannot become that user."""
    if who == "root":
        if os.getuid() != 0:
            pytest.skip("the tests do not run as root")
        return []
    return AS_NOBODY if os.getuid() == 0 else []


@lru_cache
def find_python(prefix: tuple[str, ...]) -> str:
    """Return an interpreter that can import Odin when it runs with this prefix. Skip the test if there is none."""
    if prefix and shutil.which(prefix[0]) is None:
        pytest.skip(f"{prefix[0]} is not installed")
    reasons: list[str] = []
    for python in filter(os.path.exists, (sys.executable, "/usr/bin/python3")):
        done = run_process([*prefix, python, "-c", _CAN_READ, odin.__file__])
        if done.returncode == 0:
            return python
        reasons.append(f"{python}: {done.stderr.strip()[-100:]}")
    pytest.skip(f"this user can start no interpreter with msgspec that reads Odin: {'; '.join(reasons)}")


def run_process(argv: Sequence[str], home: str = "/", **process: Any) -> "subprocess.CompletedProcess[str]":
    package = str(Path(odin.__file__).parent.parent)
    env = {**os.environ, "HOME": home, "PYTHONPATH": f"{package}:{sysconfig.get_path('purelib')}"}
    options: dict[str, Any] = {"timeout": 120, "stdin": subprocess.DEVNULL, **process}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False, **options)
