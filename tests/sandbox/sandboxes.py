"""A project with a real sandbox for tests, which are skipped if the sandbox does not work on this machine."""

import os
from pathlib import Path
from typing import Any

import pytest

from odin.config.paths import make_environment
from odin.core.profile import ProcessProfile
from odin.sandbox.layout import SandboxSession
from odin.sandbox.probe import SandboxOptions
from odin.sandbox.runner import CommandResult, ProcessRunner
from odin.sandbox.sandbox import Sandbox

READ_ONLY = ProcessProfile("read")
WRITE = ProcessProfile("project")
UNSANDBOXED = ProcessProfile("none")


class SandboxedProject:
    """A project, a home, a folder `beside` them, and a runner with a sandbox."""

    def __init__(self, folder: Path, backend: str, *, network: bool = False, **more: Any) -> None:
        self.root = _make_folder(folder / "project")
        self.home = _make_folder(folder / "home")
        self.beside = _make_folder(folder / "beside")
        environ = {**os.environ, "HOME": str(self.home), **more.pop("environ", {})}
        unsandboxed = more.pop("unsandboxed_commands", ())
        idle_s = more.pop("idle_s", 60.0)
        watchdog = more.pop("watchdog", None)
        session = SandboxSession(root=str(self.root), home=str(self.home), env=environ, **more)
        self.sandbox = Sandbox(session, SandboxOptions(backend, network, unsandboxed), idle_s=idle_s)
        self.runner = ProcessRunner(
            make_environment(environ, "/"),
            folder / "spill",
            sandbox=lambda: self.sandbox,
            watchdog=watchdog,
            term_grace=0.3,
            cancel_grace=0.2,
            linger=0.1,
        )

    async def run(
        self, command: str, profile: ProcessProfile = WRITE, *, timeout: float = 30, cwd: str = ""
    ) -> CommandResult:
        return await self.runner.run(command, cwd=cwd or str(self.root), timeout=timeout, profile=profile)

    async def close(self) -> None:
        await self.runner.close()
        self.sandbox.kill()

    def skip_if_unavailable(self) -> "SandboxedProject":
        """Skip the test if this sandbox does not work."""
        self.sandbox.probe()
        if self.sandbox.kind == "none":
            pytest.skip(f"no such sandbox here: {self.sandbox.list_failures()}")
        return self


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder.resolve()
