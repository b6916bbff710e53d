"""Real sandboxes for tests, and a clear word where this machine has none."""

import os
from pathlib import Path
from typing import Any

import pytest

from odin.core.tool import Confinement
from odin.policy.confine.layout import Session
from odin.policy.process.runner import Finished, ProcessRunner
from odin.policy.sandbox import Sandbox, Wanted

LOOK = Confinement(writes=False)
WRITE = Confinement(writes=True)
OUTSIDE = Confinement(writes=True, outside=True)


class Place:
    """A project, a home and something beside them, and a runner whose commands are kept in."""

    def __init__(self, folder: Path, use: str, *, network: bool = False, **more: Any) -> None:
        self.root = _made(folder / "project")
        self.home = _made(folder / "home")
        self.beside = _made(folder / "beside")
        environ = {**os.environ, "HOME": str(self.home), **more.pop("environ", {})}
        outside = more.pop("outside_commands", ())
        session = Session(root=str(self.root), home=str(self.home), env=environ, **more)
        self.sandbox = Sandbox(session, Wanted(use, network, outside))
        self.runner = ProcessRunner(
            folder / "spill",
            environ=environ,
            sandbox=lambda: self.sandbox,
            term_grace=0.3,
            cancel_grace=0.2,
            linger=0.1,
        )

    async def run(self, command: str, how: Confinement = WRITE, *, timeout: float = 30, cwd: str = "") -> Finished:
        return await self.runner.run(command, cwd=cwd or str(self.root), timeout=timeout, confinement=how)

    async def close(self) -> None:
        await self.runner.close()
        self.sandbox.kill()

    def needs_it(self) -> "Place":
        """Skip the test where this sandbox does not work."""
        self.sandbox.prove()
        if self.sandbox.kind == "none":
            pytest.skip(f"no such sandbox here: {self.sandbox.reasons()}")
        return self


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder.resolve()
