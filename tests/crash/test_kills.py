"""SIGKILL at two hundred moments: each time the session resumes and has lost nothing."""

import os
import signal
from pathlib import Path

import pytest

from .chain import PATHS, Chain
from .nursery import nursery

CHAINS = 8
KILLS = 25
FIRST = int(os.environ.get("ODIN_CRASH_SEED", "1"))
"""Where the seeds begin. A chain that failed is played again by naming its seed here."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + CHAINS))
def test_a_session_survives_being_killed(seed: int, workspace: Path, home: Path) -> None:
    chain = Chain(seed, workspace, home)
    with chain.server:
        killed = 0
        while killed < KILLS:
            killed += chain.kill_one()
            assert chain.lives < 3 * KILLS
        chain.live_on()
        chain.check_end()


def test_the_exit_code_of_an_abandoned_child_is_not_taken_for_a_process_id(home: Path) -> None:
    """A wrong id would be killed: 0 is the group of this process, -1 everything."""
    abandoned, child = (nursery(PATHS).begin(home / "missing.json", os.environ, home / "printed") for _ in range(2))
    assert (abandoned.returncode in (1, -signal.SIGKILL), child.wait(60.0)) == (True, 1)
    assert child.pid > 1
