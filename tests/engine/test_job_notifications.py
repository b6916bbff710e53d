"""Notifications of an agent about the end of its background processes."""

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from odin.core.call_events import SpawnFinished, SpawnStarted, ToolEnded
from odin.core.event import NoteAdded, TurnStarted
from odin.core.op import Continue, Prompt
from odin.engine import agent as agent_module
from odin.engine.client import LocalClient
from odin.sandbox.output import LineMatcher
from odin.testing import call, reply, say
from tests.sandbox.processes import is_alive, wait_for_pids, wait_until_gone
from tests.waiting import TimeLimit

from .conftest import WITHOUT_VIEWS, Start, Talk

WAIT = "until [ -e {0} ]; do sleep 0.02; done"

WAIT_FOR_ENDS = """until [ "$(grep -c ':"SpawnFinished"' $HOME/.local/state/odin/sessions/*/*/main.jsonl)" = {0} ]
do sleep 0.02; done"""
"""A command that waits until the session log has this number of ended processes."""


def spawn(command: str, **args: Any) -> Any:
    return call("Spawn", {"command": command, **args})


def request_text(talk: Talk, number: int) -> str:
    return talk.server.requests[number].body.decode()


async def test_idle_agent_starts_a_turn_when_a_process_fails(start: Start, workspace: Path) -> None:
    command = f"{WAIT.format('go')}; echo it broke; exit 3"
    talk = await start([spawn(command, description="npm test"), say("Waiting."), say("I see it failed.")])
    assert (await talk.say("run the tests in the background", "ask_mode")).text == "Waiting."
    (workspace / "go").touch()
    ended = await talk.until_end("spawn-1-ended")
    assert (ended.reason, ended.text) == ("end_turn", "I see it failed.")
    turn_started = talk.all(TurnStarted)[-1]
    assert turn_started.text == (
        "Background process spawn-1 (npm test) finished with exit code 3. The end of its output:\nit broke"
    )
    assert turn_started.mode == "ask_mode", "the mode of the turn that started the process"
    (started,), (finished,) = talk.all(SpawnStarted), talk.all(SpawnFinished)
    assert (started.id, started.command, started.max_runtime_s) == ("spawn-1", command, 0.0)
    assert (finished.id, finished.status, finished.code, finished.output) == ("spawn-1", "failed", 3, "it broke")
    assert "it broke" in request_text(talk, 2)
    assert talk.server.rejected == []
    assert [event.asynchronous for event in talk.all(ToolEnded)] == [True]


async def test_lines_that_are_waited_for_start_a_turn(start: Start, workspace: Path) -> None:
    """Those that come together are told together, and a program that prints forever ends that itself."""
    command = f"echo noise; echo ERROR one; echo ERROR two; {WAIT.format('go')}; echo ERROR three; exit 1"
    talk = await start([spawn(command, notify="ERROR"), say("Waiting."), say("I see two."), say("And a third.")])
    assert (await talk.say("watch the log")).text == "Waiting."
    await talk.until_live(TurnStarted)
    told = talk.all(TurnStarted)[-1]
    assert told.text.endswith(" printed:\nERROR one\nERROR two") and told.source == "mail"
    assert (await talk.until_end(told.id)).text == "I see two."
    (workspace / "go").touch()
    await talk.until_live(TurnStarted)
    told = talk.all(TurnStarted)[-1]
    assert told.text.endswith(" printed:\nERROR three")
    await talk.until_end(told.id)
    assert "finished with exit code 1" in request_text(talk, 3) or len(talk.server.requests) == 4

    reports: list[tuple[list[str], bool]] = []
    matcher = LineMatcher("x", lambda lines, is_last: reports.append((lines, is_last)))
    for _ in range(LineMatcher.MAX_REPORTS + 5):
        matcher.feed(b"a\nx" + b"y" * 5_000 + b"\n")
        matcher.flush()
    assert len(reports) == LineMatcher.MAX_REPORTS and [last for _, last in reports].count(True) == 1
    assert max(len(line) for lines, _ in reports for line in lines) == 2_000


async def test_notification_has_only_the_end_of_a_long_output(start: Start, workspace: Path) -> None:
    talk = await start([spawn(f"{WAIT.format('go')}; seq 1 5000; exit 1"), say("Waiting."), say("ok")])
    await talk.say("go")
    (workspace / "go").touch()
    await talk.until_end("spawn-1-ended")
    (finished,) = talk.all(SpawnFinished)
    assert finished.output == "".join(f"{number}\n" for number in range(1, 5_001))[-500:].strip()


async def test_busy_agent_gets_all_notifications_with_its_next_request(start: Start) -> None:
    wait = WAIT.format("go")
    both = reply(calls=[spawn(f"{wait}; exit 1", description="one"), spawn(wait, description="two")])
    command = {"command": f"touch go; {WAIT_FOR_ENDS.format(2)}"}
    talk = await start([both, call("ExecuteCommand", command), say("Both are over.")], config=WITHOUT_VIEWS)
    assert (await talk.say("go")).text == "Both are over."
    notes = [event.text for event in talk.all(NoteAdded)]
    assert len(notes) == 1
    assert "spawn-1 (one) finished with exit code 1. It printed nothing." in notes[0]
    assert "spawn-2 (two) finished with exit code 0. SpawnStatus shows its output." in notes[0]
    assert "spawn-2 (two) finished" in request_text(talk, 2)
    assert len(talk.all(TurnStarted)) == 1
    assert talk.server.rejected == []


async def test_notification_during_the_last_reply_starts_a_turn_after_it(start: Start, workspace: Path) -> None:
    gate = threading.Event()
    talk = await start([spawn(f"{WAIT.format('go')}"), say("Done.").hold(gate, after=1), say("Saw it.")])
    prompt = await talk.submit("go")
    while len(talk.server.requests) < 2:
        await asyncio.sleep(0.01)
    (workspace / "go").touch()
    await talk.until(SpawnFinished)
    gate.set()
    assert (await talk.until_end(prompt)).text == "Done."
    assert (await talk.until_end("spawn-1-ended")).text == "Saw it."


async def test_notification_after_an_interrupt_waits_for_the_next_prompt(start: Start, workspace: Path) -> None:
    gate = threading.Event()
    talk = await start([spawn(f"{WAIT.format('go')}"), say("Never.").hold(gate), say("Yes.")])
    prompt = await talk.submit("go")
    while len(talk.server.requests) < 2:
        await asyncio.sleep(0.01)
    (workspace / "go").touch()
    await talk.until(SpawnFinished)
    talk.interrupt_on = SpawnFinished
    assert (await talk.until_end(prompt)).reason == "interrupted"
    gate.set()
    assert (await talk.say("what now?")).text == "Yes."
    assert len(talk.all(TurnStarted)) == 2
    assert "spawn-1" in "".join(talk.all(TurnStarted)[1].notes)


async def test_process_stopped_by_the_agent_causes_no_notification(start: Start) -> None:
    talk = await start([spawn("sleep 1000"), call("SpawnStop", {"id": "spawn-1"}), say("Stopped."), say("Later.")])
    assert (await talk.say("go")).text == "Stopped."
    assert [event.status for event in talk.all(SpawnFinished)] == ["stopped"]
    assert not talk.all(NoteAdded)
    assert (await talk.say("and?")).text == "Later."
    assert "exit code" not in request_text(talk, 3)
    assert len(talk.all(TurnStarted)) == 2


async def test_process_over_its_time_limit_causes_a_notification(start: Start) -> None:
    wait = call("ExecuteCommand", {"command": WAIT_FOR_ENDS.format(1)})
    talk = await start([spawn("echo half; sleep 1000", timeout=200), wait, say("Too slow.")])
    assert (await talk.say("go")).text == "Too slow."
    assert "was stopped after its time limit of 0.2 s. The end of its output:\\nhalf" in request_text(talk, 2)
    assert [event.status for event in talk.all(SpawnFinished)] == ["timed_out"]


async def test_closing_stops_processes_quietly_and_a_resume_continues_their_ids(start: Start, workspace: Path) -> None:
    talk = await start([spawn("echo $$ >>pids; exec sleep 1000"), say("Running.")])
    await talk.say("go")
    found = await asyncio.to_thread(wait_for_pids, workspace / "pids", 1)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    wait_until_gone(found)
    left = [envelope.event async for envelope in talk.remaining()]
    assert [event.status for event in left if isinstance(event, SpawnFinished)] == ["stopped"]
    assert not [event for event in left if isinstance(event, TurnStarted)]
    again = await start([call("SpawnStatus", {"id": "spawn-1"}), spawn("sleep 1000"), say("ok")], resume=session)
    await again.say("go on")
    old, new = again.all(ToolEnded)
    assert "before this session was resumed" in old.text
    assert "id: spawn-2" in new.text


async def test_number_of_self_started_turns_is_limited(
    start: Start, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "MAX_SELF_STARTED_TURNS", 2)
    rounds = [turn for number in "123" for turn in (spawn(WAIT.format(number)), say(f"round {number}"))]
    talk = await start([*rounds, say("by hand")])
    await talk.say("go")
    for number in "12":
        (workspace / number).touch()
        await talk.until_end(f"spawn-{number}-ended")
    (workspace / "3").touch()
    await wait_for_ends(talk, 3)
    assert (await talk.say("well?")).text == "by hand"
    assert "spawn-3" in "".join(talk.all(TurnStarted)[3].notes)


async def wait_for_ends(talk: Talk, count: int) -> None:
    """Wait until this number of background processes has ended."""
    async with TimeLimit():
        async for envelope in talk.client.stream_events(after=-1):
            count -= isinstance(envelope.event, SpawnFinished)
            if count == 0:
                return


async def test_notification_goes_to_the_sub_agent_or_later_to_the_main_agent(start: Start, workspace: Path) -> None:
    both = reply(calls=[spawn("exit 5", description="quick"), spawn(WAIT.format("go"), description="slow")])
    talk = await start(
        [
            call("AgentTool", {"description": "build", "prompt": "build it"}),
            both,
            call("ExecuteCommand", {"command": WAIT_FOR_ENDS.format(1)}),
            say("Sub done."),
            say("Main done."),
            say("Now all is."),
        ]
    )
    assert (await talk.say("go")).text == "Main done."
    assert "spawn-1 (quick), started by agent-1, finished with exit code 5" in request_text(talk, 3)
    assert "spawn-1" not in request_text(talk, 4), "the main agent got no notification"
    (workspace / "go").touch()
    assert (await talk.until_end("spawn-2-ended")).text == "Now all is."
    assert "spawn-2 (slow), started by agent-1, finished with exit code 0" in request_text(talk, 5)


async def test_interrupt_does_not_stop_background_processes(start: Start, workspace: Path) -> None:
    talk = await start(
        [
            spawn("echo $$ >>spawned; exec sleep 1000"),
            call("ExecuteCommand", {"command": "trap '' TERM INT; echo $$ >>pids; sleep 1000"}),
            say("Still here."),
        ],
        config=WITHOUT_VIEWS,
    )
    prompt = await talk.submit("go")
    (spawned,) = await asyncio.to_thread(wait_for_pids, workspace / "spawned", 1)
    found = await asyncio.to_thread(wait_for_pids, workspace / "pids", 1)
    talk.interrupt_on = ToolEnded
    assert (await talk.until_end(prompt)).reason == "interrupted"
    wait_until_gone(found)
    assert is_alive(spawned)
    assert (await talk.say("and now?")).text == "Still here."


async def test_continue_resets_the_limit_of_self_started_turns(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "MAX_SELF_STARTED_TURNS", 1)
    talk = await start([say(f"{number}") for number in range(4)])
    await talk.say("go")
    agent = cast("LocalClient", talk.client).session.deps.team.main
    agent.notify(Prompt("n1", "first news"))
    await talk.until_end("n1")
    agent.notify(Prompt("n2", "second news"))
    assert not agent.is_busy, "it has reached the limit of self-started turns"
    await talk.client.submit(Continue("c"))
    await talk.until_end("c")
    assert "second news" in request_text(talk, 2)
    agent.notify(Prompt("n3", "third news"))
    assert agent.is_busy
    assert (await talk.until_end("n3")).text == "3"


async def test_turn_started_for_a_late_notification_counts_towards_the_limit(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "MAX_SELF_STARTED_TURNS", 1)
    gate = threading.Event()
    talk = await start([say("0").hold(gate), say("1")])
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    agent = cast("LocalClient", talk.client).session.deps.team.main
    agent.notify(Prompt("n1", "first news"))
    gate.set()
    await talk.until_end(prompt)
    assert (await talk.until_end("n1")).text == "1"
    agent.notify(Prompt("n2", "second news"))
    assert not agent.is_busy
