"""Random actions never break a session, and the strict server accepts every request."""

from pathlib import Path

import pytest

from tests.monkey.runner import run_random_session
from tests.soak import choose, list_seeds, soak

ENDINGS = ("end_turn", "error", "max_tokens", "loop_detected", "max_turns", "interrupted")


@soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", list_seeds(sample=3, full=30))
async def test_a_random_session_breaks_no_invariant(seed: int, workspace: Path, home: Path) -> None:
    user, server = await run_random_session(seed, workspace, home, acts=choose(sample=40, full=100))
    assert [why for _, why in server.rejected] == []
    assert user.ended["the-last"].reason in ENDINGS
