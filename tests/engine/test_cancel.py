"""An interrupt at every stage of a turn: the turn ends soon, no process is left, and the next prompt works."""

import asyncio
import threading
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
from odin.core.event import AgentStarted, Envelope, TurnEnded, TurnStarted, WorkEnded
from odin.core.op import Continue, Interrupt, Prompt, RunUserShell
from odin.core.tool import Args, Tool, ToolContext, ToolOutput
from odin.engine.execution import UNCHECKED_TEXT
from odin.session.thread import INTERRUPTED
from odin.testing import call, fault, reply, say
from tests.sandbox.processes import is_alive, wait_for_pids
from tests.waiting import LIMIT_S, TimeLimit, until

from .conftest import WITHOUT_VIEWS, Start, Talk
from .hook_programs import claude_hook
from .test_command_cleanup import STUBBORN

APIS = ("anthropic", "openai")
Api = Literal["anthropic", "openai"]


@pytest.fixture
def start(start: Start) -> Start:
    """Commands change the project directly, so that a test sees what a running one does."""

    async def open_talk(script: Any, *args: Any, config: dict[str, Any] | None = None, **more: Any) -> Talk:
        return await start(script, *args, config={**WITHOUT_VIEWS, **(config or {})}, **more)

    return open_talk


LONGER_THAN_ANY_WAIT_S = 10 * LIMIT_S
"""What is interrupted takes longer, so that a turn that ends has not waited for it. `bench/cancel.py` measures."""


async def interrupt(talk: Talk, prompt: str) -> TurnEnded:
    assert await talk.client.submit(Interrupt())
    ended = await talk.until_end(prompt)
    assert ended.reason == "interrupted"
    return ended


async def check_next_prompt(talk: Talk) -> Any:
    """Check that the strict server accepts the next prompt, which mentions the interrupted one. Return its request."""
    declared = {call.id for event in talk.all(Replied) for call in event.message.calls}
    assert {event.call_id for event in talk.all(ToolEnded)} == declared
    assert (await talk.say("next")).text == "fine"
    assert talk.server.rejected == []
    request = talk.server.requests[-1]
    assert "The user interrupted the turn before this one" in request.body.decode()
    return request


@pytest.mark.parametrize("api", APIS)
async def test_interrupt_before_the_first_text(start: Start, api: Api) -> None:
    talk = await start([say("x").stall(), say("fine")], api)
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await interrupt(talk, prompt)
    await check_next_prompt(talk)


@pytest.mark.parametrize("api", APIS)
async def test_interrupt_in_the_stream_keeps_the_partial_reply(start: Start, api: Api) -> None:
    talk = await start([say("a long answer", chunk=3).hold(threading.Event(), after=4), say("fine")], api)
    prompt = await talk.submit("go")
    await talk.until_live(TextStreamed)
    ended = await interrupt(talk, prompt)
    (partial,) = [event.message for event in talk.all(Replied)]
    assert partial.interrupted
    assert partial.text
    assert ended.text == partial.text
    request = await check_next_prompt(talk)
    assert partial.text in str(request.messages)


@pytest.mark.parametrize("api", APIS)
async def test_interrupt_while_a_call_is_streamed(start: Start, api: Api) -> None:
    half = call("ExecuteCommand", {"command": "touch made"}, text="I will.").hold(threading.Event(), after=5)
    talk = await start([half, say("fine")], api)
    prompt = await talk.submit("go")
    await talk.until_live(TextStreamed)
    await interrupt(talk, prompt)
    request = await check_next_prompt(talk)
    assert request.results == {}


@pytest.mark.parametrize("api", APIS)
async def test_interrupt_kills_a_command_that_ignores_signals(start: Start, workspace: Path, api: Api) -> None:
    calls = [call("ExecuteCommand", {"command": STUBBORN}, id="c_a"), call("LS", {"path": "."}, id="c_b")]
    talk = await start([reply(calls=calls), say("fine")], api)
    prompt = await talk.submit("go")
    found = await asyncio.to_thread(wait_for_pids, workspace / "pids", 5)
    await interrupt(talk, prompt)
    assert not any(is_alive(pid) for pid in found)
    assert {event.call_id: event.status for event in talk.all(ToolEnded)} == {"c_a": "cancelled", "c_b": "cancelled"}
    request = await check_next_prompt(talk)
    assert "did not finish" in request.results["c_a"]
    assert "before this call began" in request.results["c_b"]


NOISY = "echo first; echo second; touch begun; sleep 600"


@pytest.mark.parametrize("api", APIS)
async def test_interrupted_command_keeps_its_output_for_user_and_model(start: Start, workspace: Path, api: Api) -> None:
    talk = await start([call("ExecuteCommand", {"command": NOISY}, id="c_a"), say("fine")], api)
    prompt = await talk.submit("go")
    await until((workspace / "begun").exists)
    await interrupt(talk, prompt)
    (ended,) = talk.all(ToolEnded)
    assert ended.status == "cancelled"
    assert ended.text == f"first\nsecond\n\n[{INTERRUPTED}]"
    assert ended.note == f"Ran: {NOISY} (interrupted)"
    request = await check_next_prompt(talk)
    assert request.results["c_a"].endswith(ended.text)


async def test_interrupted_command_without_output_has_the_standard_text(start: Start, workspace: Path) -> None:
    talk = await start([call("ExecuteCommand", {"command": "touch begun; sleep 600"}, id="c_a"), say("fine")])
    prompt = await talk.submit("go")
    await until((workspace / "begun").exists)
    await interrupt(talk, prompt)
    assert [ended.text for ended in talk.all(ToolEnded)] == [INTERRUPTED]


async def test_output_unchecked_by_a_result_hook_is_hidden_from_the_model(start: Start, workspace: Path) -> None:
    hooks = {"PostToolUse": [claude_hook("exit 0")]}
    talk = await start([call("ExecuteCommand", {"command": NOISY}, id="c_a"), say("fine")], config={"hooks": hooks})
    prompt = await talk.submit("go")
    await until((workspace / "begun").exists)
    await interrupt(talk, prompt)
    (ended,) = talk.all(ToolEnded)
    assert ended.display == "first\nsecond"
    request = await check_next_prompt(talk)
    assert request.results["c_a"] == f"{UNCHECKED_TEXT}\n\n[{INTERRUPTED}]"


async def test_interrupt_in_a_result_hook_hides_the_result_from_the_model(start: Start, workspace: Path) -> None:
    """The call itself succeeded, but the model does not read a result that the hook has not checked."""
    hooks = {"PostToolUse": [claude_hook(f"touch {workspace}/begun; sleep 600")]}
    talk = await start(
        [call("ExecuteCommand", {"command": "echo done"}, id="c_a"), say("fine")], config={"hooks": hooks}
    )
    prompt = await talk.submit("go")
    await until((workspace / "begun").exists)
    await interrupt(talk, prompt)
    (ended,) = talk.all(ToolEnded)
    assert (ended.status, ended.display, ended.text) == ("success", "done", UNCHECKED_TEXT)


class WaitArgs(Args, frozen=True):
    name: str


class Wait(Tool[WaitArgs]):
    """Waits forever, and reports progress after it was cancelled."""

    name = "Wait"
    kind = "read"
    short = "Waits."
    args = WaitArgs

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.late: list[str] = []

    async def run(self, args: WaitArgs, ctx: ToolContext) -> ToolOutput:
        if args.name == "quick":
            return ToolOutput(text="quick")
        self.running.add(args.name)
        try:
            await asyncio.sleep(LONGER_THAN_ANY_WAIT_S)
        finally:
            asyncio.get_running_loop().call_later(0.02, self._report_late, args.name, ctx)
        return ToolOutput(text="never")

    def _report_late(self, name: str, ctx: ToolContext) -> None:
        ctx.progress("too late")
        self.late.append(name)


@pytest.mark.parametrize("api", APIS)
async def test_no_tool_event_follows_the_interrupt_of_parallel_calls(start: Start, api: Api) -> None:
    wait = Wait()
    calls = [call("Wait", {"name": name}, id=f"c_{at}") for at, name in enumerate(("quick", "one", "quick", "two"))]
    talk = await start([reply(calls=calls), say("fine")], api, own_tools=[wait])
    heard: list[Envelope] = []
    collector = asyncio.create_task(_collect_events(talk, heard))
    prompt = await talk.submit("go")
    await until(lambda: wait.running == {"one", "two"})
    await interrupt(talk, prompt)
    await until(lambda: len(wait.late) == 2)
    statuses = {event.call_id: event.status for event in talk.all(ToolEnded)}
    assert statuses == {"c_0": "success", "c_1": "cancelled", "c_2": "success", "c_3": "cancelled"}
    await check_next_prompt(talk)
    collector.cancel()
    events = [envelope.event for envelope in heard]
    ended = next(at for at, event in enumerate(events) if isinstance(event, TurnEnded))
    begun = next(at for at, event in enumerate(events) if at > ended and isinstance(event, TurnStarted))
    assert not [event for event in events if isinstance(event, ToolProgressed)]
    between = events[ended + 1 : begun]
    assert [event for event in between if not isinstance(event, ActivityChanged | WorkEnded)] == []


async def _collect_events(talk: Talk, heard: list[Envelope]) -> None:
    async for envelope in talk.client.stream_events():
        heard.append(envelope)


@pytest.mark.parametrize("api", APIS)
async def test_interrupt_at_a_permission_request(start: Start, workspace: Path, api: Api) -> None:
    write = call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}, id="c_w")
    talk = await start([write, say("fine")], api, yes=False, can_ask=True)
    await talk.submit("go")
    await talk.until(PermissionAsked)
    assert await talk.client.submit(Interrupt())
    async with TimeLimit():
        async for envelope in talk.client.stream_events(after=-1):
            if isinstance(envelope.event, TurnEnded):
                break
    async for envelope in talk.remaining():
        talk.heard.append(envelope)
        if isinstance(envelope.event, TurnEnded):
            break
    request = await check_next_prompt(talk)
    assert "before this call began" in request.results["c_w"]
    assert not (workspace / "x").exists()


async def test_interrupt_while_waiting_for_a_retry(start: Start) -> None:
    talk = await start(
        [fault(503), say("fine")], config={"retry": {"base_s": LONGER_THAN_ANY_WAIT_S, "max_s": LONGER_THAN_ANY_WAIT_S}}
    )
    prompt = await talk.submit("go")
    await talk.until(RetryScheduled)
    await interrupt(talk, prompt)
    await check_next_prompt(talk)


@pytest.mark.parametrize("point", ["UserPromptSubmit", "PreToolUse", "Stop"])
async def test_interrupt_kills_a_hook_that_ignores_signals(start: Start, workspace: Path, point: str) -> None:
    command = "trap '' TERM INT; echo $$ >>pids; sleep 1000 & echo $! >>pids; wait; sleep 1000"
    hooks = {point: [claude_hook(f"cd {workspace}; [ -e pids ] || {{ {command}; }}")]}
    first = {"UserPromptSubmit": [], "PreToolUse": [call("LS", {"path": "."})], "Stop": [say("x")]}[point]
    talk = await start([*first, say("fine")], config={"hooks": hooks})
    prompt = await talk.submit("go")
    found = await asyncio.to_thread(wait_for_pids, workspace / "pids", 2)
    await interrupt(talk, prompt)
    assert not any(is_alive(pid) for pid in found)
    assert (await talk.say("next")).text == "fine"
    assert talk.server.rejected == []


@pytest.mark.parametrize("api", APIS)
async def test_interrupt_ends_a_sub_agent_and_its_command(start: Start, workspace: Path, api: Api) -> None:
    task = {"description": "do it", "prompt": "Do it."}
    talk = await start(
        [call("AgentTool", task, id="c_t"), call("ExecuteCommand", {"command": STUBBORN}), say("fine")], api
    )
    prompt = await talk.submit("go")
    found = await asyncio.to_thread(wait_for_pids, workspace / "pids", 5)
    await talk.until(AgentStarted)
    await interrupt(talk, prompt)
    assert not any(is_alive(pid) for pid in found)
    assert (await talk.client.snapshot()).sub_agents == ()
    endings = [
        (envelope.agent, envelope.event.reason) for envelope in talk.heard if isinstance(envelope.event, TurnEnded)
    ]
    assert endings == [("agent-1", "aborted"), ("", "interrupted")]
    request = await check_next_prompt_after_agent(talk)
    assert "did not finish" in request.results["c_t"]


async def check_next_prompt_after_agent(talk: Talk) -> Any:
    assert (await talk.say("next")).text == "fine"
    assert talk.server.rejected == []
    return talk.server.requests[-1]


async def test_repeated_interrupts_do_no_harm(start: Start, workspace: Path) -> None:
    talk = await start([call("ExecuteCommand", {"command": STUBBORN}), say("fine")])
    prompt = await talk.submit("go")
    found = await asyncio.to_thread(wait_for_pids, workspace / "pids", 5)
    for _ in range(3):
        assert await talk.client.submit(Interrupt())
        await asyncio.sleep(0.01)
    assert (await talk.until_end(prompt)).reason == "interrupted"
    assert not any(is_alive(pid) for pid in found)
    await check_next_prompt(talk)


async def test_interrupt_stops_a_shell_command_of_the_user(start: Start, workspace: Path) -> None:
    talk = await start([say("fine")])
    await talk.client.submit(RunUserShell("r1", f"echo printed; {STUBBORN}"))
    found = await asyncio.to_thread(wait_for_pids, workspace / "pids", 5)
    assert await talk.client.submit(Interrupt()), "a running shell command can be interrupted"
    async with TimeLimit():
        while any(is_alive(pid) for pid in found):
            await asyncio.sleep(0.02)
        while not (await talk.client.snapshot()).context:
            await asyncio.sleep(0.02)
    assert (await talk.say("next")).text == "fine"
    assert "printed\\n(interrupted by the user" in talk.server.requests[0].body.decode()


async def test_interrupts_steering_and_continue_in_one_responses_session(start: Start, workspace: Path) -> None:
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
    await until((workspace / "on").exists)
    await talk.submit("this waits")
    await interrupt(talk, prompt)
    prompt = await talk.submit("two")
    await talk.until_live(TextStreamed)
    await interrupt(talk, prompt)
    prompt = await talk.submit("three")
    await until((workspace / "begun").exists)
    await talk.client.submit(Prompt("s", "turn left", delivery="steer"))
    (workspace / "go").touch()
    assert (await talk.until_end(prompt)).text == "turned"
    await talk.client.submit(Continue("c"))
    assert (await talk.until_end("c")).text == "and on"
    assert (await talk.say("four")).text == "fine"
    assert {request.api for request in talk.server.requests} == {"responses"}
    assert talk.server.rejected == []


async def test_a_refused_call_beside_a_running_one_is_recorded_once(start: Start) -> None:
    calls = [call("ExecuteCommand", {"command": "sleep 30"}, id="slow"), call("Grep", {"nope": 1}, id="bad")]
    talk = await start([reply("", calls), say("Here.")])
    talk.interrupt_on = ToolStarted
    assert (await talk.say("Go.")).reason == "interrupted"
    assert sorted(event.call_id for event in talk.all(ToolEnded)) == ["bad", "slow"]
    assert (await talk.say("And now?")).text == "Here."
