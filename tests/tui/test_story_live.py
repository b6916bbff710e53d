"""A transcript followed live equals the transcript read from the log, block by block."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from odin.core.client import Client, Snapshot
from odin.core.event import CompactionChanged, Warned
from odin.session.log import read_log
from odin.ui.tui.transcript_model import TranscriptModels
from tests.monkey import monkey
from tests.monkey.person import Person
from tests.tui.stories import differences, stories_of

SEEDS = range(int(os.environ.get("ODIN_MONKEY_FROM", "0")), int(os.environ.get("ODIN_MONKEY_TO", "3")))


class Onlooker(Person):
    """A user with the app open: every event is folded into blocks at once."""

    compared = 0

    async def open(self, **options: Any) -> None:
        await super().open(**options)
        self._stories = TranscriptModels()
        self._looking = asyncio.create_task(self._look(self.client))

    async def _look(self, client: Client) -> None:
        async for envelope in client.stream_events(after=-1):
            if not isinstance(envelope.event, Warned | CompactionChanged):  # these are not in the log
                self._stories.apply(envelope)

    async def close(self) -> Snapshot:
        last = await super().close()
        await asyncio.wait([self._looking])
        self._looking.result()
        if last.seq >= 0:
            log = stories_of(read_log(await self.log()))
            assert differences(self._stories, log)[:3] == []
            Onlooker.compared += len(log[""].blocks)
        return last


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_live_and_log_tell_the_same_story(
    seed: int, workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monkey, "Person", Onlooker)
    Onlooker.compared = 0
    await monkey.play(seed, workspace, home, acts=36)
    assert Onlooker.compared > 20
