"""A project with a real sandbox for tests, which are skipped if the sandbox does not work on this machine."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from odin.config.paths import make_environment
from odin.core.profile import ProcessProfile
from odin.core.timing import DEFAULT_TIMING, Timing
from odin.sandbox.layout import SandboxSession
from odin.sandbox.probe import SandboxOptions
from odin.sandbox.runner import CommandResult, ProcessRunner
from odin.sandbox.sandbox import Sandbox

READ_ONLY = ProcessProfile("read")
WRITE = ProcessProfile("project")
UNSANDBOXED = ProcessProfile("none")

SANDBOXES = ("bubblewrap", "landlock")
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc")
"""Runs a program as the first process of a pid namespace."""

_CREATE_RULESET, _ASK_VERSION = 444, 1
_MOUNT_VIEW = "mkdir l u w m && mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w"


class SandboxedProject:
    """A project, a home, a folder `beside` them, and a runner with a sandbox."""

    def __init__(self, folder: Path, backend: str, *, network: bool = False, **more: Any) -> None:
        self.root = _make_folder(folder / "project")
        self.home = _make_folder(folder / "home")
        self.beside = _make_folder(folder / "beside")
        self._backend = backend
        environ = {**os.environ, "HOME": str(self.home), **more.pop("environ", {})}
        unsandboxed = more.pop("unsandboxed_commands", ())
        timing = Timing(
            sandbox_idle_s=more.pop("idle_s", 60.0),
            sandbox_answer_s=more.pop("answer_s", DEFAULT_TIMING.sandbox_answer_s),
        )
        watchdog = more.pop("watchdog", None)
        grace = more.pop("grace", 0.0)
        session = SandboxSession(root=str(self.root), home=str(self.home), env=environ, **more)
        self.sandbox = Sandbox(session, SandboxOptions(backend, network, unsandboxed), timing=timing)
        self.runner = ProcessRunner(
            make_environment(environ, "/"),
            folder / "spill",
            sandbox=lambda: self.sandbox,
            watchdog=watchdog,
            term_grace=grace or 0.3,
            cancel_grace=grace or 0.2,
            linger=0.1,
        )

    async def run(
        self, command: str, profile: ProcessProfile = WRITE, *, timeout: float = 30, cwd: str = ""
    ) -> CommandResult:
        return await self.runner.run(command, cwd=cwd or str(self.root), timeout=timeout, profile=profile)

    async def close(self) -> None:
        await self.runner.close()
        await self.sandbox.close()

    def skip_if_unavailable(self) -> "SandboxedProject":
        """Skip the test if this machine cannot have such a sandbox."""
        skip_without_sandbox(self._backend)
        return self

    def skip_without_views(self) -> "SandboxedProject":
        """Skip the test if commands cannot have a view of this project here."""
        if missing := explain_missing(self._backend) or explain_missing_view(self.root):
            pytest.skip(missing)
        return self


def skip_without_sandbox(backend: str) -> None:
    """Skip the test if this machine cannot have such a sandbox."""
    if missing := explain_missing(backend):
        pytest.skip(missing)


def explain_missing(backend: str, prefix: Sequence[str] = ()) -> str:
    """Return what this machine lacks for the sandbox, or "". Nothing of Odin is asked.

    With a prefix, programs run as another user or in a container.
    """
    reasons = [_explain_missing(one, tuple(prefix)) for one in SANDBOXES if backend in (one, "auto")]
    return "" if "" in reasons else "; ".join(reasons)


@cache
def _explain_missing(backend: str, prefix: tuple[str, ...]) -> str:
    if backend == "landlock":
        abi: int = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
        return "" if abi > 0 else "this kernel has no Landlock"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    spaces = ["--unshare-user", "--unshare-net", "--unshare-ipc"]
    done = run_program(*prefix, "bwrap", *spaces, "--ro-bind", "/", "/", "--dev", "/dev", "true")
    return f"bubblewrap cannot make a sandbox here: {done.stderr.strip()}" if done.returncode else ""


def explain_missing_view(folder: Path, prefix: Sequence[str] = ()) -> str:
    """Return why no overlay can be mounted in this folder, or ""."""
    with TemporaryDirectory(dir=folder) as place:
        is_user = run_program(*prefix, "id", "-u").stdout.strip() != "0"
        spaces = ["--unshare-user", "--uid", "0", "--gid", "0"] if is_user else []
        bwrap = ["bwrap", *spaces, "--cap-add", "ALL", "--bind", "/", "/", "--dev", "/dev", "--chdir", place]
        Path(place).chmod(0o777)
        done = run_program(*prefix, *bwrap, "sh", "-c", _MOUNT_VIEW + (",userxattr" if is_user else "") + " m")
        if is_user:
            run_program(*prefix, "sh", "-c", f"rm -rf {place}/*")
    return f"no view can be mounted here: {done.stderr.strip()}" if done.returncode else ""


@cache
def explain_missing_container() -> str:
    """Return why this user can make no pid namespace, or ""."""
    if shutil.which(CONTAINER[0]) is None:
        return f"{CONTAINER[0]} is not installed"
    done = run_program(*CONTAINER, "true")
    return f"this user can make no pid namespace: {done.stderr.strip()}" if done.returncode else ""


def run_program(*argv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder.resolve()
