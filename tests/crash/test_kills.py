"""SIGKILL at two hundred moments: a session goes on as if nothing had happened. `make test` plays one in eight."""

import os
from pathlib import Path

import pytest

from .chain import Chain

CHAINS = 8
KILLS = 25
FIRST = int(os.environ.get("ODIN_CRASH_SEED", "1"))
"""Where the seeds begin. A chain that failed is played again by naming its seed here."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    range(FIRST, FIRST + CHAINS),
)
def test_a_session_survives_being_killed(seed: int, workspace: Path, home: Path) -> None:
    chain = Chain(seed, workspace, home)
    with chain.server:
        killed = 0
        while killed < KILLS:
            killed += chain.kill_one()
            assert chain.lives < 3 * KILLS
        chain.live_on()
        chain.check_end()
