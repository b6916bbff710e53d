"""The command line in this process: faster than one of its own, and the same code."""

from collections.abc import Callable
from pathlib import Path

import pytest

from odin.commands import run
from odin.session.store import SessionStore

Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    """`odin ARGS…` in the workspace: the exit code, what was printed, and what was said."""
    monkeypatch.chdir(workspace)

    def run_here(*args: str) -> tuple[int, str, str]:
        code = run([*args])
        printed, said = capfd.readouterr()
        return code, printed, said

    return run_here


@pytest.fixture
def state(home: Path) -> Path:
    return home / ".local/state/odin"


@pytest.fixture
def store(state: Path, workspace: Path) -> SessionStore:
    """The sessions of this project; none so far."""
    return SessionStore(state, str(workspace))
