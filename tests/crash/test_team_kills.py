"""A session with five working sub-agents that is killed a hundred times resumes each time."""

import os
from pathlib import Path

import pytest

from .team import AGENTS, CrashingTeam

FIRST_SEED = int(os.environ.get("ODIN_CRASH_SEED", "1"))
SESSIONS = 10
KILLS = 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SESSIONS))
def test_a_team_survives_being_killed(seed: int, workspace: Path, home: Path) -> None:
    session = CrashingTeam(seed, workspace, home)
    with session.server:
        killed = 0
        while killed < KILLS:
            killed += session.run_and_kill()
            assert session.runs < 3 * KILLS
        session.run_to_end()
        session.check_end()
        assert sum(running >= AGENTS for running in session.running_at_kill) >= KILLS
