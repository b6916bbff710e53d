"""A transcript built from live events equals the one read from the log, block by block."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odin.core.client import Client, Snapshot
from odin.core.event import CompactionChanged, Warned
from odin.session.log import read_log
from odin.ui.transcript.model import TranscriptModels
from tests.monkey import runner
from tests.monkey.random_user import RandomUser
from tests.soak import list_seeds, soak
from tests.tui.transcript_comparison import find_differences, make_transcripts


class TranscriptFollower(RandomUser):
    """A random user whose transcript is built from the live events and compared with the log at the end."""

    compared = 0

    async def open(self, **options: Any) -> None:
        await super().open(**options)
        self._transcripts = TranscriptModels()
        self._following = asyncio.create_task(self._follow(self.client))

    async def _follow(self, client: Client) -> None:
        async for envelope in client.stream_events(after=-1):
            if not isinstance(envelope.event, Warned | CompactionChanged):  # these are not in the log
                self._transcripts.apply(envelope)

    async def close(self) -> Snapshot:
        last = await super().close()
        await asyncio.wait([self._following])
        self._following.result()
        if last.seq >= 0:
            log = make_transcripts(read_log(await self.get_log_path()))
            assert find_differences(self._transcripts, log)[:3] == []
            TranscriptFollower.compared += len(log[""].blocks)
        return last


@soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", list_seeds(sample=1, full=20))
async def test_a_live_transcript_equals_the_one_from_the_log(
    seed: int, workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RandomUser", TranscriptFollower)
    TranscriptFollower.compared = 0
    await runner.run_random_session(seed, workspace, home, acts=36)
    assert TranscriptFollower.compared > 20
