"""Where the command line keeps its sessions."""

from pathlib import Path

import pytest

from odin.session.store import SessionStore


@pytest.fixture
def state(home: Path) -> Path:
    return home / ".local/state/odin"


@pytest.fixture
def store(state: Path, workspace: Path) -> SessionStore:
    """The sessions of this project; none so far."""
    return SessionStore(state, str(workspace))
