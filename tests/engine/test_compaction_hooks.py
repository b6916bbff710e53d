"""A hook that lets one summary be made has not spoken for the next."""

from pathlib import Path

from odin.compaction.worker import PAUSED_TURNS
from odin.core.call_events import ToolStarted
from odin.core.event import CompactionChanged
from odin.core.op import CancelCompaction, Compact, Interrupt
from odin.testing import ScriptedServer, call, say

from .conftest import Start
from .hookkit import hook, new_kit
from .test_compaction import WINDOW, Model, windowed

FILLER = "All of this is said in many words that fill the window. " * 20


async def test_after_a_summary_was_given_up_the_hook_is_asked_again(start: Start, tmp_path: Path) -> None:
    kit = new_kit(tmp_path)
    said = [say(f"Answer {number}. {FILLER}") for number in range(4)]
    script = iter([*said, call("ExecuteCommand", {"command": "sleep 60"})])
    server = ScriptedServer(Model(lambda seen, number: next(script))).start()
    config = {**windowed(100_000), "hooks": {"PreCompact": [hook(kit.script("exit 0"))]}}
    talk = await start(None, server=server, config=config)
    for number in range(4):
        await talk.say(f"Prompt number {number}.")
    turn = await talk.submit("wait")
    await talk.until_live(ToolStarted)
    for asked in (1, 2):
        assert await talk.client.submit(Compact())
        await talk.until_live(CompactionChanged)
        assert len(kit.told()) == asked
        assert await talk.client.submit(CancelCompaction())
        await talk.until_live(CompactionChanged)
    await talk.client.submit(Interrupt())
    await talk.until_end(turn)
    server.stop()


async def test_a_hook_that_said_no_is_not_asked_again_for_some_turns(start: Start, tmp_path: Path) -> None:
    """Not for every attempt to make a request fit, and not for every turn; after the pause it is."""
    kit = new_kit(tmp_path)
    server = ScriptedServer(Model(lambda seen, number: say(f"Answer {number}. {FILLER * 6}")), window=WINDOW).start()
    config = {**windowed(), "hooks": {"PreCompact": [hook(kit.blocks("not now"))]}}
    talk = await start(None, server=server, config=config)
    asked: list[int] = []
    reasons: list[str] = []
    for number in range(20):
        reasons.append((await talk.say(f"Prompt number {number}.")).reason)
        asked.append(len(kit.told()))
    first = asked.index(1)
    assert asked[first : first + PAUSED_TURNS + 2] == [*[1] * (PAUSED_TURNS + 1), 2]
    assert reasons[first + PAUSED_TURNS] == "error", "there was no room left, and still nobody was asked again"
    server.stop()
