"""Language servers of our own in a folder, without a session."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from odin.config import LanguageServerSettings
from odin.lsp.detection import find_servers
from odin.lsp.servers import LanguageServers
from odin.sandbox.runner import ProcessRunner

FAKE = str(Path(__file__).parent / "fake_server.py")

Serve = Callable[..., LanguageServers]


def settings_of(*vices: str, **more: Any) -> LanguageServerSettings:
    """The fake server with these vices."""
    given: dict[str, Any] = {"command": sys.executable, "args": ("-I", "-S", FAKE, *vices), "file_types": (".txt",)}
    return LanguageServerSettings(**{**given, **more})


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """serve("pull", …) returns the servers of `tmp_path`: the fake one with these vices, after the others."""
    runner = ProcessRunner(environ=os.environ, cancel_grace=0.05)

    def begin(
        *vices: str, take_changes: Any = tuple, others: Mapping[str, LanguageServerSettings] = {}, **more: Any
    ) -> LanguageServers:
        root = os.path.realpath(tmp_path)
        specs = find_servers(root, os.environ, {**others, "fake": settings_of(*vices, **more)}, detect=False)
        return LanguageServers(
            root, specs, runner, env=os.environ, is_confined=lambda: False, take_changes=take_changes
        )

    yield begin
    await runner.close()
