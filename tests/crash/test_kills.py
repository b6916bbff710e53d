"""A session that is killed again and again at random moments resumes each time and loses nothing."""

import os
import signal
from pathlib import Path

import pytest

from tests.soak import choose, list_seeds, soak
from tests.waiting import LIMIT_S

from .crashing_session import PYTHON_PATH, CrashingSession
from .worker_server import get_worker_server

KILLS = choose(sample=10, full=25)


@soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", list_seeds(sample=2, full=8))
def test_a_session_survives_being_killed(seed: int, workspace: Path, home: Path) -> None:
    session = CrashingSession(seed, workspace, home)
    with session.server:
        killed = 0
        while killed < KILLS:
            killed += session.run_and_kill()
            assert session.runs < 3 * KILLS
        session.run_to_end()
        session.check_end()


def test_exit_code_of_an_abandoned_worker_is_not_read_as_a_process_id(home: Path) -> None:
    """The test would kill a wrong process id: 0 is the group of this process, -1 is every process."""
    abandoned, worker = (
        get_worker_server(PYTHON_PATH).start(home / "missing.json", os.environ, home / "printed") for _ in range(2)
    )
    assert (abandoned.returncode in (1, -signal.SIGKILL), worker.wait(LIMIT_S)) == (True, 1)
    assert worker.pid > 1
