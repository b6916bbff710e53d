"""SIGKILL at a hundred moments with five agents at work."""

import os
from pathlib import Path

import pytest

from .team import AGENTS, TeamChain

FIRST = int(os.environ.get("ODIN_CRASH_SEED", "1"))
CHAINS = 10
KILLS = 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + CHAINS))
def test_a_team_survives_being_killed(seed: int, workspace: Path, home: Path) -> None:
    chain = TeamChain(seed, workspace, home)
    with chain.server:
        killed = 0
        while killed < KILLS:
            killed += chain.kill_one()
            assert chain.lives < 3 * KILLS
        chain.live_on()
        chain.check_end()
        assert sum(live >= AGENTS for live in chain.live_at_kill) >= KILLS
