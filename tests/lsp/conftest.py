"""Fixtures that run the fake language server without a session."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from odin.config import LanguageServerSettings
from odin.config.paths import make_environment
from odin.core.profile import WritableFolders
from odin.core.timing import Timing
from odin.lsp.detection import find_servers
from odin.lsp.server import LanguageServer
from odin.lsp.servers import LanguageServers
from odin.sandbox.runner import ProcessRunner
from tests.waiting import LIMIT_S

FAKE_SERVER = str(Path(__file__).parent / "fake_server.py")

Serve = Callable[..., LanguageServers]

LONG_WAITS = Timing(lsp_cold_s=LIMIT_S, lsp_warm_s=LIMIT_S)
"""Long enough for a slow machine: most tests check content, not timing."""


async def find_no_sandbox() -> bool:
    return False


def make_settings(*quirks: str, **more: Any) -> LanguageServerSettings:
    """Return settings that start the fake server with these quirks."""
    given: dict[str, Any] = {
        "command": sys.executable,
        "args": ("-I", "-S", FAKE_SERVER, *quirks),
        "file_types": (".txt",),
    }
    return LanguageServerSettings(**{**given, **more})


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """serve("pull", …) returns the servers of `tmp_path`: the `others`, then the fake one with these quirks."""
    runner = ProcessRunner(make_environment(os.environ, "/"), cancel_grace=0.05)

    def build_servers(
        *quirks: str,
        take_changes: Any = tuple,
        others: Mapping[str, LanguageServerSettings] = {},
        timing: Timing = LONG_WAITS,
        **more: Any,
    ) -> LanguageServers:
        root = os.path.realpath(tmp_path)
        specs = find_servers(root, os.environ, {**others, "fake": make_settings(*quirks, **more)}, detect=False)
        writable = WritableFolders((root,))
        servers = (
            LanguageServer(
                spec, root, runner, env=os.environ, writable=writable, can_confine=find_no_sandbox, timing=timing
            )
            for spec in specs
        )
        return LanguageServers(root, servers, take_changes=take_changes)

    yield build_servers
    await runner.close()
