"""Fixtures: the state folder, and the session store of the workspace."""

from pathlib import Path

import pytest

from odin.session.store import SessionStore


@pytest.fixture
def state(home: Path) -> Path:
    return home / ".local/state/odin"


@pytest.fixture
def store(state: Path, workspace: Path) -> SessionStore:
    """The session store of the workspace, empty at first."""
    return SessionStore(state, str(workspace))
