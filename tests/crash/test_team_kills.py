"""SIGKILL at a hundred moments with five agents at work. `make test` plays a few of them."""

import os
from pathlib import Path

import pytest

from .team import AGENTS, TeamChain

FIRST = int(os.environ.get("ODIN_CRASH_SEED", "1"))
CHAINS = 11
KILLS = 10
QUICK_KILLS = 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "kills"),
    [
        (FIRST, QUICK_KILLS),
        *((FIRST + number, KILLS) for number in range(1, CHAINS)),
    ],
)
def test_a_team_survives_being_killed(seed: int, kills: int, workspace: Path, home: Path) -> None:
    chain = TeamChain(seed, workspace, home)
    with chain.server:
        killed = 0
        while killed < kills:
            killed += chain.kill_one()
            assert chain.lives < 3 * kills
        chain.live_on()
        chain.check_end()
        assert sum(live >= AGENTS for live in chain.live_at_kill) >= kills
