"""A session with five working sub-agents that is killed again and again resumes each time."""

from pathlib import Path

import pytest

from tests.soak import choose, list_seeds, soak

from .team import AGENTS, CrashingTeam

KILLS = choose(sample=5, full=10)


@soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", list_seeds(sample=2, full=10))
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
