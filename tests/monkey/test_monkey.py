"""Anything at any moment: the session goes on, and the strict server never has to refuse what is sent."""

import os
from pathlib import Path

import pytest

from tests.monkey.monkey import play

SEEDS = range(int(os.environ.get("ODIN_MONKEY_FROM", "0")), int(os.environ.get("ODIN_MONKEY_TO", "8")))

ENDINGS = ("end_turn", "error", "max_tokens", "loop_detected", "max_turns", "interrupted")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    SEEDS,
)
async def test_the_session_never_dies(seed: int, workspace: Path, home: Path) -> None:
    person, server = await play(seed, workspace, home, acts=int(os.environ.get("ODIN_MONKEY_ACTS", "40")))
    assert [why for _, why in server.rejected] == []
    assert person.ended["the-last"].reason in ENDINGS
