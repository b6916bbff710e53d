"""What a replay cannot do again it says, and what cannot be played at all it names."""

from pathlib import Path

import pytest

from odin.app.replay.recording import find_recording
from odin.app.replay.replay import Wish, replay
from odin.core.errors import LogDamaged
from odin.session.store import Store
from odin.testing import call, say
from tests.engine.conftest import Start
from tests.engine.hookkit import claude, new_kit
from tests.session.logs import turn, write


async def test_hooks_that_had_a_say_are_told_of(start: Start, workspace: Path, tmp_path: Path) -> None:
    blocks = claude(new_kit(tmp_path).blocks("no"), "Bash")
    talk = await start(
        [call("ExecuteCommand", {"command": "echo hello"}), say("Well.")],
        config={"hooks": {"PreToolUse": [blocks]}},
    )
    await talk.say("go")
    session = (await talk.client.info()).session
    await talk.client.close()
    report = await replay(Wish(session=session, cwd=str(workspace), yes=True))
    assert "Hooks are not run in a replay; in the recording 1 of them had a say." in report.notes


def test_a_log_that_does_not_say_where_it_took_place(tmp_path: Path) -> None:
    log = write(Store(tmp_path, "/w"), "lost", turn("p1", "hello"))
    with pytest.raises(LogDamaged, match="does not say where"):
        find_recording(str(log.path))
