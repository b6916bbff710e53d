"""An interrupt at every stage: it ends soon, nothing is left running, and the next prompt is accepted."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pytest

from odin.core.call_events import (
    ActivityChanged,
    PermissionAsked,
    Replied,
    RetryScheduled,
    TextStreamed,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from odin.core.event import AgentStarted, Envelope, TurnEnded
from odin.core.op import Continue, Interrupt, Prompt, RunUserShell
from odin.core.tool import Args, Tool, ToolContext, ToolOutput
from odin.engine.execution import UNCHECKED_TEXT
from odin.session.thread import INTERRUPTED
from odin.testing import call, fault, reply, say
from tests.sandbox.processes import alive, pids_in

from .conftest import Start, Talk
from .hookkit import claude
from .test_commands import STUBBORN

APIS = ("anthropic", "openai")
Api = Literal["anthropic", "openai"]

PATIENCE = 10.0
"""Far more than an interrupt takes, for a machine with much else to do. `bench/cancel.py` holds it to a second."""


async def stop(talk: Talk, prompt: str) -> TurnEnded:
    begun = time.monotonic()
    assert await talk.client.submit(Interrupt())
    ended = await talk.until_end(prompt)
    assert time.monotonic() - begun < PATIENCE
    assert ended.reason == "interrupted"
    return ended


async def goes_on(talk: Talk) -> Any:
    """The strict server accepts the next prompt; the model is told about the interrupted one."""
    declared = {call.id for event in talk.all(Replied) for call in event.message.calls}
    assert {event.call_id for event in talk.all(ToolEnded)} == declared
    assert (await talk.say("next")).text == "fine"
    assert talk.server.rejected == []
    request = talk.server.requests[-1]
    assert "The user interrupted the turn before this one" in request.body.decode()
    return request


@pytest.mark.parametrize("api", APIS)
async def test_before_the_first_word(start: Start, api: Api) -> None:
    talk = await start([say("x").stall(), say("fine")], api)
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await stop(talk, prompt)
    await goes_on(talk)


@pytest.mark.parametrize("api", APIS)
async def test_in_the_stream_what_was_said_is_kept(start: Start, api: Api) -> None:
    talk = await start([say("a long answer", chunk=3).hold(threading.Event(), after=4), say("fine")], api)
    prompt = await talk.submit("go")
    await talk.until_live(TextStreamed)
    ended = await stop(talk, prompt)
    (partial,) = [event.message for event in talk.all(Replied)]
    assert partial.interrupted
    assert partial.text
    assert ended.text == partial.text
    request = await goes_on(talk)
    assert partial.text in str(request.messages)


@pytest.mark.parametrize("api", APIS)
async def test_in_a_call_that_is_being_written(start: Start, api: Api) -> None:
    half = call("ExecuteCommand", {"command": "touch made"}, text="I will.").hold(threading.Event(), after=5)
    talk = await start([half, say("fine")], api)
    prompt = await talk.submit("go")
    await talk.until_live(TextStreamed)
    await stop(talk, prompt)
    request = await goes_on(talk)
    assert request.results == {}


@pytest.mark.parametrize("api", APIS)
async def test_in_a_command_that_will_not_end(start: Start, workspace: Path, api: Api) -> None:
    calls = [call("ExecuteCommand", {"command": STUBBORN}, id="c_a"), call("LS", {"path": "."}, id="c_b")]
    talk = await start([reply(calls=calls), say("fine")], api)
    prompt = await talk.submit("go")
    found = await asyncio.to_thread(pids_in, workspace / "pids", 5)
    await stop(talk, prompt)
    assert not any(alive(pid) for pid in found)
    assert {event.call_id: event.status for event in talk.all(ToolEnded)} == {"c_a": "cancelled", "c_b": "cancelled"}
    request = await goes_on(talk)
    assert "did not finish" in request.results["c_a"]
    assert "before this call began" in request.results["c_b"]


NOISY = "echo first; echo second; touch begun; sleep 600"


@pytest.mark.parametrize("api", APIS)
async def test_what_a_command_had_printed_is_kept_for_user_and_model(start: Start, workspace: Path, api: Api) -> None:
    talk = await start([call("ExecuteCommand", {"command": NOISY}, id="c_a"), say("fine")], api)
    prompt = await talk.submit("go")
    await exists(workspace / "begun")
    await stop(talk, prompt)
    (ended,) = talk.all(ToolEnded)
    assert ended.status == "cancelled"
    assert ended.text == f"first\nsecond\n\n[{INTERRUPTED}]"
    assert ended.note == f"Ran: {NOISY} (interrupted)"
    request = await goes_on(talk)
    assert request.results["c_a"].endswith(ended.text)


async def test_a_command_that_had_printed_nothing_is_the_same_before_and_after_it_began(
    start: Start, workspace: Path
) -> None:
    talk = await start([call("ExecuteCommand", {"command": "touch begun; sleep 600"}, id="c_a"), say("fine")])
    prompt = await talk.submit("go")
    await exists(workspace / "begun")
    await stop(talk, prompt)
    assert [ended.text for ended in talk.all(ToolEnded)] == [INTERRUPTED]


async def test_a_hook_that_checks_results_keeps_unchecked_output_from_the_model(start: Start, workspace: Path) -> None:
    hooks = {"PostToolUse": [claude("exit 0")]}
    talk = await start([call("ExecuteCommand", {"command": NOISY}, id="c_a"), say("fine")], config={"hooks": hooks})
    prompt = await talk.submit("go")
    await exists(workspace / "begun")
    await stop(talk, prompt)
    (ended,) = talk.all(ToolEnded)
    assert ended.display == "first\nsecond"
    request = await goes_on(talk)
    assert request.results["c_a"] == f"{UNCHECKED_TEXT}\n\n[{INTERRUPTED}]"


async def test_in_a_hook_that_looks_at_a_result(start: Start, workspace: Path) -> None:
    """The call had finished: the model is told so, but does not read what the hook has not passed."""
    hooks = {"PostToolUse": [claude(f"touch {workspace}/begun; sleep 600")]}
    talk = await start(
        [call("ExecuteCommand", {"command": "echo done"}, id="c_a"), say("fine")], config={"hooks": hooks}
    )
    prompt = await talk.submit("go")
    await exists(workspace / "begun")
    await stop(talk, prompt)
    (ended,) = talk.all(ToolEnded)
    assert (ended.status, ended.display, ended.text) == ("success", "done", UNCHECKED_TEXT)


class WaitArgs(Args, frozen=True):
    name: str


class Wait(Tool[WaitArgs]):
    """Waits for ever, and goes on talking when it was stopped."""

    name = "Wait"
    kind = "read"
    short = "Waits."
    args = WaitArgs

    def __init__(self) -> None:
        self.running: set[str] = set()

    async def run(self, args: WaitArgs, ctx: ToolContext) -> ToolOutput:
        if args.name == "quick":
            return ToolOutput(text="quick")
        self.running.add(args.name)
        try:
            await asyncio.sleep(600)
        finally:
            asyncio.get_running_loop().call_later(0.02, ctx.progress, "too late")
        return ToolOutput(text="never")


@pytest.mark.parametrize("api", APIS)
async def test_between_calls_that_run_together_and_nothing_comes_late(start: Start, api: Api) -> None:
    wait = Wait()
    calls = [call("Wait", {"name": name}, id=f"c_{at}") for at, name in enumerate(("quick", "one", "quick", "two"))]
    talk = await start([reply(calls=calls), say("fine")], api, own_tools=[wait])
    heard: list[Envelope] = []
    listening = asyncio.create_task(_listen(talk, heard))
    prompt = await talk.submit("go")
    async with asyncio.timeout(30):
        while wait.running != {"one", "two"}:
            await asyncio.sleep(0.01)
    await stop(talk, prompt)
    await asyncio.sleep(0.1)
    statuses = {event.call_id: event.status for event in talk.all(ToolEnded)}
    assert statuses == {"c_0": "success", "c_1": "cancelled", "c_2": "success", "c_3": "cancelled"}
    listening.cancel()
    events = [envelope.event for envelope in heard]
    after = events[next(at for at, event in enumerate(events) if isinstance(event, TurnEnded)) + 1 :]
    assert not [event for event in events if isinstance(event, ToolProgressed)]
    assert [event for event in after if not isinstance(event, ActivityChanged)] == []
    await goes_on(talk)


async def _listen(talk: Talk, heard: list[Envelope]) -> None:
    async for envelope in talk.client.stream_events():
        heard.append(envelope)


@pytest.mark.parametrize("api", APIS)
async def test_at_a_question(start: Start, workspace: Path, api: Api) -> None:
    write = call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}, id="c_w")
    talk = await start([write, say("fine")], api, yes=False, can_ask=True)
    await talk.submit("go")
    await talk.until(PermissionAsked)
    begun = time.monotonic()
    assert await talk.client.submit(Interrupt())
    async with asyncio.timeout(30):
        async for envelope in talk.client.stream_events(after=-1):
            if isinstance(envelope.event, TurnEnded):
                break
    assert time.monotonic() - begun < PATIENCE
    async for envelope in talk.remaining():
        talk.heard.append(envelope)
        if isinstance(envelope.event, TurnEnded):
            break
    request = await goes_on(talk)
    assert "before this call began" in request.results["c_w"]
    assert not (workspace / "x").exists()


async def test_in_the_wait_before_a_retry(start: Start) -> None:
    talk = await start([fault(503), say("fine")], config={"retry": {"base_s": 30}})
    prompt = await talk.submit("go")
    await talk.until(RetryScheduled)
    await stop(talk, prompt)
    await goes_on(talk)


@pytest.mark.parametrize("point", ["UserPromptSubmit", "PreToolUse", "Stop"])
async def test_in_a_hook_that_ignores_signals(start: Start, workspace: Path, point: str) -> None:
    command = "trap '' TERM INT; echo $$ >>pids; sleep 1000 & echo $! >>pids; wait; sleep 1000"
    hooks = {point: [claude(f"cd {workspace}; [ -e pids ] || {{ {command}; }}")]}
    first = {"UserPromptSubmit": [], "PreToolUse": [call("LS", {"path": "."})], "Stop": [say("x")]}[point]
    talk = await start([*first, say("fine")], config={"hooks": hooks})
    prompt = await talk.submit("go")
    found = await asyncio.to_thread(pids_in, workspace / "pids", 2)
    await stop(talk, prompt)
    assert not any(alive(pid) for pid in found)
    assert (await talk.say("next")).text == "fine"
    assert talk.server.rejected == []


@pytest.mark.parametrize("api", APIS)
async def test_in_a_sub_agent_with_a_command(start: Start, workspace: Path, api: Api) -> None:
    task = {"description": "do it", "prompt": "Do it."}
    talk = await start(
        [call("AgentTool", task, id="c_t"), call("ExecuteCommand", {"command": STUBBORN}), say("fine")], api
    )
    prompt = await talk.submit("go")
    found = await asyncio.to_thread(pids_in, workspace / "pids", 5)
    await talk.until(AgentStarted)
    await stop(talk, prompt)
    assert not any(alive(pid) for pid in found)
    assert (await talk.client.snapshot()).sub_agents == ()
    endings = [
        (envelope.agent, envelope.event.reason) for envelope in talk.heard if isinstance(envelope.event, TurnEnded)
    ]
    assert endings == [("agent-1", "aborted"), ("", "interrupted")]
    request = await goes_on_after_agent(talk)
    assert "did not finish" in request.results["c_t"]


async def goes_on_after_agent(talk: Talk) -> Any:
    assert (await talk.say("next")).text == "fine"
    assert talk.server.rejected == []
    return talk.server.requests[-1]


async def test_a_second_interrupt_at_once_tears_nothing(start: Start, workspace: Path) -> None:
    talk = await start([call("ExecuteCommand", {"command": STUBBORN}), say("fine")])
    prompt = await talk.submit("go")
    found = await asyncio.to_thread(pids_in, workspace / "pids", 5)
    for _ in range(3):
        assert await talk.client.submit(Interrupt())
        await asyncio.sleep(0.01)
    assert (await talk.until_end(prompt)).reason == "interrupted"
    assert not any(alive(pid) for pid in found)
    await goes_on(talk)


async def test_in_a_command_of_the_users_own(start: Start, workspace: Path) -> None:
    talk = await start([say("fine")])
    await talk.client.submit(RunUserShell("r1", f"echo printed; {STUBBORN}"))
    found = await asyncio.to_thread(pids_in, workspace / "pids", 5)
    assert await talk.client.submit(Interrupt()), "it is something to stop"
    async with asyncio.timeout(30):
        while any(alive(pid) for pid in found):
            await asyncio.sleep(0.02)
        while not (await talk.client.snapshot()).context:
            await asyncio.sleep(0.02)
    assert (await talk.say("next")).text == "fine"
    assert "printed\\n(interrupted by the user" in talk.server.requests[0].body.decode()


async def test_everything_in_one_session_of_the_responses_api(start: Start, workspace: Path) -> None:
    """Interrupts in a command and in the stream, queued prompts, steering, a continue: the server refuses nothing."""
    slow = "touch begun; until [ -e go ]; do sleep 0.02; done"
    script = [
        reply(calls=[call("ExecuteCommand", {"command": "touch on; sleep 600"}, id="c_a"), call("LS", {}, id="c_b")]),
        say("a long answer", chunk=3).hold(threading.Event(), after=6),
        reply(calls=[call("ExecuteCommand", {"command": slow}, id="c_c"), call("LS", {"path": "."}, id="c_d")]),
        say("turned"),
        say("and on"),
        say("fine"),
    ]
    talk = await start(script, "openai", config={"providers": {"openai": {"type": "openai-responses"}}})
    prompt = await talk.submit("one")
    await exists(workspace / "on")
    await talk.submit("this waits")
    await stop(talk, prompt)
    prompt = await talk.submit("two")
    await talk.until_live(TextStreamed)
    await stop(talk, prompt)
    prompt = await talk.submit("three")
    await exists(workspace / "begun")
    await talk.client.submit(Prompt("s", "turn left", delivery="steer"))
    (workspace / "go").touch()
    assert (await talk.until_end(prompt)).text == "turned"
    await talk.client.submit(Continue("c"))
    assert (await talk.until_end("c")).text == "and on"
    assert (await talk.say("four")).text == "fine"
    assert {request.api for request in talk.server.requests} == {"responses"}
    assert talk.server.rejected == []


async def exists(path: Path) -> None:
    async with asyncio.timeout(30):
        while not path.exists():
            await asyncio.sleep(0.01)


async def test_a_refused_call_beside_a_running_one_is_recorded_once(start: Start) -> None:
    calls = [call("ExecuteCommand", {"command": "sleep 30"}, id="slow"), call("Grep", {"nope": 1}, id="bad")]
    talk = await start([reply("", calls), say("Here.")])
    talk.interrupt_on = ToolStarted
    assert (await talk.say("Go.")).reason == "interrupted"
    assert sorted(event.call_id for event in talk.all(ToolEnded)) == ["bad", "slow"]
    assert (await talk.say("And now?")).text == "Here."
