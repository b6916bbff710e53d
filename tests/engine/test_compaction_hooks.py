"""PreCompact hooks: each compaction asks them, but after a refusal only when some turns have passed."""

from pathlib import Path

from odin.core.call_events import ToolStarted
from odin.core.event import CompactionChanged
from odin.core.op import CancelCompaction, Compact, Interrupt
from odin.testing import ScriptedServer, call, say

from .conftest import Start
from .hook_programs import hook, new_kit
from .test_compaction import WINDOW, ScriptedModel, make_config

FILLER = "All of this is said in many words that fill the window. " * 20


async def test_hook_is_asked_again_after_a_cancelled_compaction(start: Start, tmp_path: Path) -> None:
    kit = new_kit(tmp_path)
    answers = [say(f"Answer {number}. {FILLER}") for number in range(4)]
    script = iter([*answers, call("ExecuteCommand", {"command": "sleep 60"})])
    server = ScriptedServer(ScriptedModel(lambda seen, number: next(script))).start()
    config = {**make_config(100_000), "hooks": {"PreCompact": [hook(kit.script("exit 0"))]}}
    talk = await start(None, server=server, config=config)
    for number in range(4):
        await talk.say(f"Prompt number {number}.")
    turn = await talk.submit("wait")
    await talk.until_live(ToolStarted)
    for asked in (1, 2):
        assert await talk.client.submit(Compact())
        await talk.until_live(CompactionChanged)
        assert len(kit.inputs()) == asked
        assert await talk.client.submit(CancelCompaction())
        await talk.until_live(CompactionChanged)
    await talk.client.submit(Interrupt())
    await talk.until_end(turn)
    server.stop()


async def test_refusing_hook_is_not_asked_again_for_some_turns(start: Start, tmp_path: Path) -> None:
    """Neither each attempt to make a request fit nor each turn asks the hook; after the pause it is asked again."""
    kit = new_kit(tmp_path)
    server = ScriptedServer(
        ScriptedModel(lambda seen, number: say(f"Answer {number}. {FILLER * 6}")), window=WINDOW
    ).start()
    config = {**make_config(), "hooks": {"PreCompact": [hook(kit.script_blocking("not now"))]}}
    talk = await start(None, server=server, config=config)
    asked: list[int] = []
    reasons: list[str] = []
    for number in range(20):
        reasons.append((await talk.say(f"Prompt number {number}.")).reason)
        asked.append(len(kit.inputs()))
    first = asked.index(1)
    assert asked[first : first + 5] == [1, 1, 1, 1, 2]
    assert reasons[first + 3] == "error", "no room was left, and still the hook was not asked again"
    server.stop()
