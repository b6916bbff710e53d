"""Language servers of our own in a folder, without a session."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from odin.config import LanguageServerSettings
from odin.lsp.servers import LanguageServers, find_servers
from odin.sandbox.runner import ProcessRunner

FAKE = str(Path(__file__).parent / "fake_server.py")

Serve = Callable[..., LanguageServers]


def settings_of(*vices: str, **more: Any) -> LanguageServerSettings:
    """The fake server with these vices."""
    given: dict[str, Any] = {"command": sys.executable, "args": ("-I", "-S", FAKE, *vices), **more}
    return LanguageServerSettings(file_types=(".txt",), **given)


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """serve("pull", …) returns the servers of `tmp_path`: the fake one with these vices."""
    runner = ProcessRunner(environ=os.environ, cancel_grace=0.05)

    def begin(*vices: str, take_changes: Any = tuple, **more: Any) -> LanguageServers:
        root = os.path.realpath(tmp_path)
        specs = find_servers(root, os.environ, {"fake": settings_of(*vices, **more)}, detect=False)
        return LanguageServers(
            root, specs, runner, env=os.environ, is_confined=lambda: False, take_changes=take_changes
        )

    yield begin
    await runner.close()
