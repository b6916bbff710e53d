"""A compaction and everything that may come across it: interrupts, crashes, rewinds, hooks, sub-agents, resumes."""

import asyncio
import shutil
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from odin.core.event import Compacted, CompactionChanged, ResultsPruned
from odin.core.op import Compact, Interrupt, Redo, Rewind
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.testing import ScriptedServer, call, say
from odin.testing.script import SeenRequest, Turn

from .conftest import Start, Talk
from .hookkit import hook, new_kit
from .test_compaction import GOOD, WINDOW, Model, prompts, text_of, windowed

FILLER = "All of this is said in many words that fill the window. " * 20


def talker(summary: Turn | None = None) -> Model:
    return Model(lambda seen, number: say(f"Answer {number}. {FILLER}"), summary)


async def filled(start: Start, model: Model, turns: int = 8, **options: Any) -> Talk:
    server = ScriptedServer(model, window=WINDOW).start()
    talk = await start(None, server=server, config={**windowed(), **options})
    for number in range(turns):
        assert (await talk.say(f"Prompt number {number}.")).reason == "end_turn"
    return talk


def log_of(home: Path) -> Path:
    (found,) = home.rglob("main.jsonl")
    return found


async def test_the_request_after_a_resume_is_the_same_to_the_byte(start: Start, home: Path, tmp_path: Path) -> None:
    """Compare the next request of a session with that of a session resumed from a copy of its log."""
    talk = await filled(start, talker(), 60)
    assert talk.all(Compacted)
    session = (await talk.client.get_info()).session
    folder = log_of(home).parent
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    await talk.say("What next?")
    there = prompts(talk)[-1]
    await talk.client.close()
    (folder / "main.jsonl").write_bytes((kept / "main.jsonl").read_bytes())
    again = await start(None, server=talk.server, config=windowed(), resume=session)
    await again.say("What next?")
    here = prompts(talk)[-1]
    system = [block["text"] for block in here.json["system"]]
    assert system == [block["text"] for block in there.json["system"]]
    assert here.messages[:-1] == there.messages[:-1]
    assert here.json["tools"] == there.json["tools"]
    assert talk.server.rejected == []
    talk.server.stop()


@pytest.mark.slow
async def test_a_rewind_behind_a_compaction_and_forward_again(start: Start, home: Path) -> None:
    talk = await filled(start, talker(), 60)
    turns = (await talk.client.snapshot()).messages
    assert talk.all(Compacted)
    await talk.client.submit(Rewind(turns[2].id))
    await talk.say("Another way.")
    assert "Prompt number 1." in text_of(prompts(talk)[-1])
    assert "Prompt number 2." not in text_of(prompts(talk)[-1])
    assert len(prompts(talk)[-1].json["system"]) == len(prompts(talk)[0].json["system"]), "no summary stands there now"
    assert talk.server.rejected == []
    folded = SessionState.fold(read_log(log_of(home)), read_log=lambda: read_log(log_of(home)))
    assert len(folded.build_history()) == 6
    talk.server.stop()


@pytest.mark.slow
async def test_a_redo_brings_the_summary_back(start: Start) -> None:
    talk = await filled(start, talker(), 60)
    turns = (await talk.client.snapshot()).messages
    await talk.client.submit(Rewind(turns[0].id))
    await talk.client.submit(Redo())
    await talk.say("Still there?")
    assert "## Goal" in prompts(talk)[-1].json["system"][-1]["text"]
    assert "Prompt number 59." in text_of(prompts(talk)[-1])
    talk.server.stop()


async def test_an_interrupt_while_the_turn_waits_for_a_summary(start: Start) -> None:
    """The turn ends at once; the conversation is whole and the next prompt goes through."""
    gate = Event()
    model = Model(lambda seen, number: say(f"Answer {number}. {FILLER * 4}"), say(GOOD).hold(gate))
    server = ScriptedServer(model, window=WINDOW).start()
    talk = await start(None, server=server, config=windowed(threshold=0.9))
    heard = talk.client.stream_events()
    count = 0
    while True:
        count += 1
        prompt = await talk.submit(f"Prompt number {count}.")
        ended = asyncio.create_task(talk.until_end(prompt))
        waiting = asyncio.create_task(_compacting(heard))
        done, _ = await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        if waiting in done:
            break
        waiting.cancel()
    assert await talk.client.submit(Interrupt())
    assert (await ended).reason == "interrupted"
    gate.set()
    assert (await talk.say("And now?")).reason == "end_turn"
    assert server.rejected == []
    server.stop()


async def _compacting(events: Any) -> None:
    async for envelope in events:
        if getattr(envelope.event, "activity", "") == "compacting":
            return


async def test_a_crash_while_a_summary_is_made(start: Start, home: Path) -> None:
    """Every prefix of the log folds to a session that the server accepts."""
    model = talker(say(GOOD).stall())
    talk = await filled(start, model, 40, compaction={"timeout_s": 1})
    session = (await talk.client.get_info()).session
    log = log_of(home)
    data = log.read_bytes()
    await talk.client.close()
    log.write_bytes(data[: len(data) - 37])
    model.summary = say(GOOD)
    again = await start(None, server=talk.server, config=windowed(), resume=session)
    assert (await again.say("go on")).reason == "end_turn"
    assert talk.server.rejected == []
    talk.server.stop()


@pytest.mark.slow
async def test_hooks_are_told_once_and_may_say_no(start: Start, tmp_path: Path) -> None:
    kit = new_kit(tmp_path)
    told = {"PreCompact": [hook(kit.script("exit 0"))], "PostCompact": [hook(kit.script("exit 0"))]}
    talk = await filled(start, talker(), 150, hooks=told)
    count = len(talk.all(Compacted))
    assert count >= 2
    assert kit.events().count("PreCompact") in (count, count + 1), "one may still be under way"
    assert kit.events().count("PostCompact") == count
    talk.server.stop()


@pytest.mark.slow
async def test_a_hook_that_says_no_leaves_pruning(start: Start, tmp_path: Path, workspace: Path) -> None:
    kit = new_kit(tmp_path)
    for number in range(40):
        (workspace / f"f{number}.txt").write_text(f"line {number} of this file says hello\n" * 60)

    def answer(seen: SeenRequest, number: int) -> Turn:
        return call("Read", {"file_path": str(workspace / f"f{number - 1}.txt")}) if number <= 40 else say("Read.")

    server = ScriptedServer(Model(answer), window=WINDOW).start()
    config = {**windowed(), "hooks": {"PreCompact": [hook(kit.blocks("not now"))]}}
    talk = await start(None, server=server, config=config)
    assert (await talk.say("read them")).text == "Read."
    assert talk.all(Compacted) == []
    assert talk.all(ResultsPruned)
    assert await talk.client.submit(Compact())
    await talk.say("ok")
    assert CompactionChanged("failed", "manual", "A hook stopped the summary: not now") in talk.all(CompactionChanged)
    server.stop()


@pytest.mark.slow
async def test_a_sub_agent_is_kept_within_its_window_too(start: Start, workspace: Path) -> None:
    for number in range(60):
        (workspace / f"f{number}.txt").write_text(f"line {number} of this file says hello\n" * 60)
    reads = iter(range(60))

    def answer(seen: SeenRequest, number: int) -> Turn:
        if "AgentTool" in seen.tool_names:
            done = "Done by the other." in text_of(seen)
            return say("Fine.") if done else call("AgentTool", {"description": "read", "prompt": "Read all of them."})
        at = next(reads, None)
        return say("Done by the other.") if at is None else call("Read", {"file_path": str(workspace / f"f{at}.txt")})

    server = ScriptedServer(Model(answer), window=WINDOW).start()
    talk = await start(None, server=server, config=windowed())
    assert (await talk.say("have them read")).text == "Fine."
    assert server.rejected == []
    agents = {envelope.agent for envelope in talk.heard if isinstance(envelope.event, ResultsPruned | Compacted)}
    assert agents == {"agent-1"}
    server.stop()


async def test_replies_cut_off_again_and_again_get_more_room(start: Start) -> None:
    """RECOV5, COMP1: one compaction is tried before giving up; then the turn goes on by itself (COMP12)."""
    said = iter(
        [*[say(f"Answer {n}. {FILLER * 3}") for n in range(8)], say("half an ans", stop="max_tokens"), say("All.")]
    )
    server = ScriptedServer(Model(lambda seen, number: next(said)), window=WINDOW).start()
    talk = await start(None, server=server, config=windowed())
    for number in range(8):
        await talk.say(f"Prompt number {number}.")
    ended = await talk.say("Say it all.")
    assert (ended.reason, ended.text) == ("end_turn", "All.")
    assert talk.all(Compacted)[-1].trigger == "cut_off"
    assert "Say it all." in text_of(prompts(talk)[-1])
    assert server.rejected == []
    server.stop()


async def test_a_short_conversation_is_not_summarised_for_a_cut_reply(start: Start) -> None:
    talk = await start([say("half an ans", stop="max_tokens")], config=windowed(100_000))
    assert (await talk.say("Say it all.")).reason == "max_tokens"
    assert talk.all(Compacted) == []


async def test_todos_and_the_pairs_survive(start: Start, workspace: Path) -> None:
    todos = [{"id": "1", "content": "mend the port", "status": "in_progress"}]
    steps = iter([call("TodoWrite", {"todos": todos}), say("Planned.")])

    def answer(seen: SeenRequest, number: int) -> Turn:
        return next(steps, None) or say(FILLER)

    server = ScriptedServer(Model(answer), window=WINDOW).start()
    talk = await start(None, server=server, config=windowed())
    for number in range(60):
        assert (await talk.say(f"Prompt number {number}.")).reason == "end_turn"
    assert "[in_progress] mend the port" in talk.all(Compacted)[-1].text
    assert server.rejected == []
    server.stop()


@pytest.mark.slow
async def test_a_long_session_does_not_keep_what_was_summarised(start: Start, home: Path) -> None:
    talk = await filled(start, talker(), 150)
    state = SessionState.fold(read_log(log_of(home)), read_log=lambda: ())
    assert len(state.build_history()) < 60
    assert len(prompts(talk)[-1].messages) < 60
    talk.server.stop()
