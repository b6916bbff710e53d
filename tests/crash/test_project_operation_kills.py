"""An operation on sessions that is killed at any of its steps has either no effect or its full effect."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import choose, soak

from .project_operations import OPERATIONS

ROOT = Path(__file__).parent.parent.parent
EVERY = choose(sample=3, full=1)
"""Operations are killed at every such step."""


@soak
@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_sessions_survive_a_killed_operation(operation: str, tmp_path: Path) -> None:
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.crash.project_operations",
            operation,
            str(tmp_path),
            str(EVERY),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT}/src"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert int(found.stdout) > 5
