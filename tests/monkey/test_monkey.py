"""Random actions never break a session, and the strict server accepts every request."""

import os
from pathlib import Path

import pytest

from tests.monkey.runner import run_random_session

SEEDS = range(int(os.environ.get("ODIN_MONKEY_FROM", "0")), int(os.environ.get("ODIN_MONKEY_TO", "8")))

ENDINGS = ("end_turn", "error", "max_tokens", "loop_detected", "max_turns", "interrupted")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    SEEDS,
)
async def test_a_random_session_breaks_no_invariant(seed: int, workspace: Path, home: Path) -> None:
    user, server = await run_random_session(seed, workspace, home, acts=int(os.environ.get("ODIN_MONKEY_ACTS", "40")))
    assert [why for _, why in server.rejected] == []
    assert user.ended["the-last"].reason in ENDINGS
