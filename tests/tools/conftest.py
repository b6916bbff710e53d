"""The `box` fixture: the standard tools in an empty project."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tools.toolbox import Toolbox


@pytest.fixture
async def box(workspace: Path) -> AsyncIterator[Toolbox]:
    """The standard tools in an empty project. Processes that a test left running are killed afterwards."""
    box = Toolbox(workspace)
    yield box
    await box.background.close()
    await box.runner.close()
