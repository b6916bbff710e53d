"""Sub-agents: their own conversation and tools, their answer, and their removal from the snapshot."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked, ToolEnded, UsageRecorded
from odin.core.client import Client
from odin.core.event import AgentEnded, AgentStarted, AnyEvent, TitleSet, TurnEnded
from odin.core.message import Usage
from odin.core.op import AnswerPermission
from odin.testing import call, fault, reply, say

from .conftest import Start

TASK = {"description": "look around", "prompt": "Say what is here."}


def list_offered_tools(request: Any) -> set[str]:
    return {tool["name"] for tool in request.json["tools"]}


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode", "edit_mode"])
async def test_sub_agent_has_the_tools_of_its_mode_but_cannot_start_sub_agents(
    start: Start, workspace: Path, mode: Any
) -> None:
    script = [
        call("AgentTool", TASK, id="t"),
        call("LS", {"path": str(workspace)}),
        say("Nothing."),
        say("It is empty."),
    ]
    talk = await start(script)
    ended = await talk.say("what is here?", mode)
    assert (ended.reason, ended.text) == ("end_turn", "It is empty.")
    main, sub = list_offered_tools(talk.server.requests[0]), list_offered_tools(talk.server.requests[1])
    assert main - sub - {"Handoff"} == {"AgentTool", "Delegate"}
    assert ("WriteFile" in sub) == (mode == "edit_mode")
    assert "what is here?" not in talk.server.requests[1].body.decode()
    (result,) = [event for event in talk.all(ToolEnded) if event.call_id == "t"]
    assert (result.status, result.text) == ("success", "Nothing.")
    assert talk.server.rejected == []


async def test_sub_agent_is_in_the_snapshot_only_while_it_works(start: Start) -> None:
    gate = threading.Event()
    todos = {"todos": [{"id": "1", "content": "look", "status": "in_progress"}]}
    talk = await start([call("Task", TASK, id="t"), call("TodoWrite", todos), say("done").hold(gate), say("ok")])
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 3)
    (working,) = (await talk.client.snapshot()).sub_agents
    assert (working.id, working.task, working.mode) == ("agent-1", TASK["prompt"], "edit_mode")
    assert (working.description, [todo.content for todo in working.todos]) == ("look around", ["look"])
    gate.set()
    await talk.until_end(prompt)
    (started,) = talk.all(AgentStarted)
    assert (started.id, started.call_id) == ("agent-1", "t")
    assert {envelope.agent for envelope in talk.heard} == {"", "agent-1"}
    assert (await talk.client.snapshot()).sub_agents == ()


async def test_permission_requests_of_a_sub_agent_name_its_task(start: Start, workspace: Path) -> None:
    first, second = (call("WriteFile", {"file_path": str(workspace / name), "content": "x"}) for name in "xy")
    talk = await start([call("AgentTool", TASK), first, say("done"), second, say("ok")], yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", True), AnswerPermission("", False)]
    await talk.say("go")
    assert [event.task for event in talk.all(PermissionAsked)] == ["look around", ""]


async def test_failure_of_a_sub_agent_is_the_result_of_its_call(start: Start) -> None:
    talk = await start([call("AgentTool", TASK, id="t"), fault(400), say("too bad")])
    assert (await talk.say("go")).text == "too bad"
    assert [event.reason for event in talk.all(AgentEnded)] == ["error"]
    (result,) = [event for event in talk.all(ToolEnded) if event.call_id == "t"]
    assert result.status == "error"


async def test_an_interrupt_reaches_the_sub_agent(start: Start) -> None:
    script = iter([call("AgentTool", TASK), say("fine")])

    def play(seen: Any) -> Any:
        of_sub_agent = "AgentTool" not in list_offered_tools(seen)
        return say("x").stall(after=0) if of_sub_agent else next(script)

    talk = await start(play)
    talk.interrupt_on = AgentStarted
    assert (await talk.say("go")).reason == "interrupted"
    assert [event.reason for event in talk.all(AgentEnded)] == ["aborted"]
    assert (await talk.say("next")).text == "fine"
    assert talk.server.rejected == []


async def test_usage_of_a_sub_agent_counts_for_the_session_and_for_itself(start: Start) -> None:
    used = Usage(input=7, output=3)
    talk = await start(
        [reply(calls=[call("AgentTool", TASK)], usage=used), reply("a", usage=used), reply("b", usage=used)]
    )
    await talk.say("go")
    snapshot = await talk.client.snapshot()
    assert snapshot.usage == used + used + used
    assert snapshot.usage_by_agent == {"": used + used, "agent-1": used}


async def test_sub_agent_numbers_continue_after_a_resume(start: Start) -> None:
    talk = await start([call("AgentTool", TASK), say("a"), say("b"), call("AgentTool", TASK), say("c"), say("d")])
    await talk.say("one")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start(None, server=talk.server, resume=session)
    await again.say("two")
    assert [event.id for event in again.all(AgentStarted)] == ["agent-2"]


async def test_small_model_writes_the_title_and_its_usage_is_recorded(start: Start) -> None:
    def play(seen: Any) -> Any:
        return say("Greeting the machine") if b"odin-job: title" in seen.body else say("hello")

    talk = await start(play, config={"small_model": "anthropic/small"})
    await talk.say("hi there")
    await talk.until(TitleSet)
    assert (await talk.client.snapshot()).title == "Greeting the machine"
    small = [request for request in talk.server.requests if request.json["model"] == "small"]
    assert len(small) == 1
    past = [event async for event in _events(talk.client)]
    assert [event.purpose for event in past if isinstance(event, UsageRecorded)] == ["main", "title"]


async def _events(client: Client) -> AsyncIterator[AnyEvent]:
    seq = (await client.snapshot()).seq
    async for envelope in client.stream_events(after=-1):
        yield envelope.event
        if envelope.seq >= seq:
            return


async def test_offline_planner_writes_the_title_without_a_small_model(start: Start) -> None:
    talk = await start([say("hello")])
    await talk.say("please fix the login page of the shop, it fails since yesterday")
    await talk.until(TitleSet)
    title = (await talk.client.snapshot()).title
    assert "login" in title
    assert len(title) <= 60
    assert len(talk.server.requests) == 1
    assert len(talk.all(TurnEnded)) == 1
