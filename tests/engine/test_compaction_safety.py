"""Compaction together with interrupts, crashes, rewinds, hooks, sub-agents and resumes."""

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
from .hook_programs import hook, new_kit
from .test_compaction import GOOD_SUMMARY, WINDOW, ScriptedModel, get_text, make_config, prompt_requests

FILLER = "All of this is said in many words that fill the window. " * 20


def make_model(summary: Turn | None = None) -> ScriptedModel:
    return ScriptedModel(lambda seen, number: say(f"Answer {number}. {FILLER}"), summary)


async def start_filled(start: Start, model: ScriptedModel, turns: int = 8, **options: Any) -> Talk:
    server = ScriptedServer(model, window=WINDOW).start()
    talk = await start(None, server=server, config={**make_config(), **options})
    for number in range(turns):
        assert (await talk.say(f"Prompt number {number}.")).reason == "end_turn"
    return talk


def find_log(home: Path) -> Path:
    (found,) = home.rglob("main.jsonl")
    return found


async def test_request_after_a_resume_is_the_same(start: Start, home: Path, tmp_path: Path) -> None:
    """Compare the next request of a session with that of a session resumed from a copy of its log."""
    talk = await start_filled(start, make_model(), 60)
    assert talk.all(Compacted)
    session = (await talk.client.get_info()).session
    folder = find_log(home).parent
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    await talk.say("What next?")
    there = prompt_requests(talk)[-1]
    await talk.client.close()
    (folder / "main.jsonl").write_bytes((kept / "main.jsonl").read_bytes())
    again = await start(None, server=talk.server, config=make_config(), resume=session)
    await again.say("What next?")
    here = prompt_requests(talk)[-1]
    system = [block["text"] for block in here.json["system"]]
    assert system == [block["text"] for block in there.json["system"]]
    assert here.messages[:-1] == there.messages[:-1]
    assert here.json["tools"] == there.json["tools"]
    assert talk.server.rejected == []
    talk.server.stop()


async def test_rewind_before_a_compaction_removes_the_summary(start: Start, home: Path) -> None:
    talk = await start_filled(start, make_model(), 60)
    turns = (await talk.client.snapshot()).messages
    assert talk.all(Compacted)
    await talk.client.submit(Rewind(turns[2].id))
    await talk.say("Another way.")
    assert "Prompt number 1." in get_text(prompt_requests(talk)[-1])
    assert "Prompt number 2." not in get_text(prompt_requests(talk)[-1])
    assert len(prompt_requests(talk)[-1].json["system"]) == len(prompt_requests(talk)[0].json["system"]), (
        "the summary is gone"
    )
    assert talk.server.rejected == []
    folded = SessionState.fold(read_log(find_log(home)), read_log=lambda: read_log(find_log(home)))
    assert len(folded.build_history()) == 6
    talk.server.stop()


async def test_redo_restores_the_summary(start: Start) -> None:
    talk = await start_filled(start, make_model(), 60)
    turns = (await talk.client.snapshot()).messages
    await talk.client.submit(Rewind(turns[0].id))
    await talk.client.submit(Redo())
    await talk.say("Still there?")
    assert "## Goal" in prompt_requests(talk)[-1].json["system"][-1]["text"]
    assert "Prompt number 59." in get_text(prompt_requests(talk)[-1])
    talk.server.stop()


async def test_an_interrupt_while_the_turn_waits_for_a_summary(start: Start) -> None:
    """The turn ends at once, and the next prompt works."""
    gate = Event()
    model = ScriptedModel(lambda seen, number: say(f"Answer {number}. {FILLER * 4}"), say(GOOD_SUMMARY).hold(gate))
    server = ScriptedServer(model, window=WINDOW).start()
    talk = await start(None, server=server, config=make_config(threshold=0.9))
    heard = talk.client.stream_events()
    count = 0
    while True:
        count += 1
        prompt = await talk.submit(f"Prompt number {count}.")
        ended = asyncio.create_task(talk.until_end(prompt))
        waiting = asyncio.create_task(_wait_for_compacting(heard))
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


async def _wait_for_compacting(events: Any) -> None:
    async for envelope in events:
        if getattr(envelope.event, "activity", "") == "compacting":
            return


async def test_session_resumes_after_a_crash_during_a_summary(start: Start, home: Path) -> None:
    """The log loses its last bytes; the server still accepts the requests of the resumed session."""
    model = make_model(say(GOOD_SUMMARY).stall())
    talk = await start_filled(start, model, 40, compaction={"timeout_s": 1})
    session = (await talk.client.get_info()).session
    log = find_log(home)
    data = log.read_bytes()
    await talk.client.close()
    log.write_bytes(data[: len(data) - 37])
    model.summary = say(GOOD_SUMMARY)
    again = await start(None, server=talk.server, config=make_config(), resume=session)
    assert (await again.say("go on")).reason == "end_turn"
    assert talk.server.rejected == []
    talk.server.stop()


@pytest.mark.slow
async def test_compaction_hooks_run_once_for_each_compaction(start: Start, tmp_path: Path) -> None:
    kit = new_kit(tmp_path)
    hooks = {"PreCompact": [hook(kit.script("exit 0"))], "PostCompact": [hook(kit.script("exit 0"))]}
    talk = await start_filled(start, make_model(), 150, hooks=hooks)
    count = len(talk.all(Compacted))
    assert count >= 2
    assert kit.event_names().count("PreCompact") in (count, count + 1), "one may still be under way"
    assert kit.event_names().count("PostCompact") == count
    talk.server.stop()


@pytest.mark.slow
async def test_results_are_pruned_when_a_hook_refuses_the_summary(
    start: Start, tmp_path: Path, workspace: Path
) -> None:
    kit = new_kit(tmp_path)
    for number in range(40):
        (workspace / f"f{number}.txt").write_text(f"line {number} of this file says hello\n" * 60)

    def answer(seen: SeenRequest, number: int) -> Turn:
        return call("Read", {"file_path": str(workspace / f"f{number - 1}.txt")}) if number <= 40 else say("Read.")

    server = ScriptedServer(ScriptedModel(answer), window=WINDOW).start()
    config = {**make_config(), "hooks": {"PreCompact": [hook(kit.script_blocking("not now"))]}}
    talk = await start(None, server=server, config=config)
    assert (await talk.say("read them")).text == "Read."
    assert talk.all(Compacted) == []
    assert talk.all(ResultsPruned)
    assert await talk.client.submit(Compact())
    await talk.say("ok")
    assert CompactionChanged("failed", "manual", "A hook stopped the summary: not now") in talk.all(CompactionChanged)
    server.stop()


@pytest.mark.slow
async def test_sub_agent_stays_within_its_window(start: Start, workspace: Path) -> None:
    for number in range(60):
        (workspace / f"f{number}.txt").write_text(f"line {number} of this file says hello\n" * 60)
    reads = iter(range(60))

    def answer(seen: SeenRequest, number: int) -> Turn:
        if "AgentTool" in seen.tool_names:
            done = "Done by the other." in get_text(seen)
            return say("Fine.") if done else call("AgentTool", {"description": "read", "prompt": "Read all of them."})
        at = next(reads, None)
        return say("Done by the other.") if at is None else call("Read", {"file_path": str(workspace / f"f{at}.txt")})

    server = ScriptedServer(ScriptedModel(answer), window=WINDOW).start()
    talk = await start(None, server=server, config=make_config())
    assert (await talk.say("have them read")).text == "Fine."
    assert server.rejected == []
    agents = {envelope.agent for envelope in talk.heard if isinstance(envelope.event, ResultsPruned | Compacted)}
    assert agents == {"agent-1"}
    server.stop()


async def test_cut_off_reply_triggers_a_compaction(start: Start) -> None:
    """RECOV5, COMP1: one compaction is tried before giving up; then the turn goes on by itself (COMP12)."""
    answers = iter(
        [*[say(f"Answer {n}. {FILLER * 3}") for n in range(8)], say("half an ans", stop="max_tokens"), say("All.")]
    )
    server = ScriptedServer(ScriptedModel(lambda seen, number: next(answers)), window=WINDOW).start()
    talk = await start(None, server=server, config=make_config())
    for number in range(8):
        await talk.say(f"Prompt number {number}.")
    ended = await talk.say("Say it all.")
    assert (ended.reason, ended.text) == ("end_turn", "All.")
    assert talk.all(Compacted)[-1].trigger == "cut_off"
    assert "Say it all." in get_text(prompt_requests(talk)[-1])
    assert server.rejected == []
    server.stop()


async def test_cut_off_reply_in_a_short_session_triggers_no_compaction(start: Start) -> None:
    talk = await start([say("half an ans", stop="max_tokens")], config=make_config(100_000))
    assert (await talk.say("Say it all.")).reason == "max_tokens"
    assert talk.all(Compacted) == []


async def test_todos_survive_a_compaction(start: Start, workspace: Path) -> None:
    todos = [{"id": "1", "content": "mend the port", "status": "in_progress"}]
    steps = iter([call("TodoWrite", {"todos": todos}), say("Planned.")])

    def answer(seen: SeenRequest, number: int) -> Turn:
        return next(steps, None) or say(FILLER)

    server = ScriptedServer(ScriptedModel(answer), window=WINDOW).start()
    talk = await start(None, server=server, config=make_config())
    for number in range(60):
        assert (await talk.say(f"Prompt number {number}.")).reason == "end_turn"
    assert "[in_progress] mend the port" in talk.all(Compacted)[-1].text
    assert server.rejected == []
    server.stop()


@pytest.mark.slow
async def test_summarized_messages_are_not_kept_in_memory(start: Start, home: Path) -> None:
    talk = await start_filled(start, make_model(), 150)
    state = SessionState.fold(read_log(find_log(home)), read_log=lambda: ())
    assert len(state.build_history()) < 60
    assert len(prompt_requests(talk)[-1].messages) < 60
    talk.server.stop()
