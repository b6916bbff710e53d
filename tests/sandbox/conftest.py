"""What all tests of sandboxes have in common."""

from pathlib import Path

import pytest

from odin.sandbox import layout


@pytest.fixture
def only_own_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sandboxes hide the sockets of the test only: one that another program opens makes idle sandboxes new."""
    is_socket = layout._is_socket
    folder = tmp_path.resolve()

    def is_own_socket(path: str) -> bool:
        return folder in Path(path).parents and is_socket(path)

    monkeypatch.setattr(layout, "_is_socket", is_own_socket)
