"""The `box` fixture: the standard tools in an empty project."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odin.core.timing import DEFAULT_TIMING
from tests.tools.toolbox import Toolbox


@pytest.fixture
async def box(workspace: Path, request: pytest.FixtureRequest) -> AsyncIterator[Toolbox]:
    """The standard tools in an empty project, with the timing that a test gives as parameter.

    Processes that a test left running are killed afterwards.
    """
    box = Toolbox(workspace, timing=getattr(request, "param", DEFAULT_TIMING))
    yield box
    await box.background.close()
    await box.runner.close()
