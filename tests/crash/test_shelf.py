"""SIGKILL at every step of what is done to sessions from outside: either nothing has happened or all of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .shelf import ACTS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
def test_the_shelf_survives_being_killed(act: str, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tests.crash.shelf", act, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT}/src"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert int(found.stdout) > 5
