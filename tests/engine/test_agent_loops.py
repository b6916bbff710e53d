"""Loop mode of sub-agents: each has its own loop, which ends with its task, a question, an error or an interrupt."""

import asyncio
import threading

import pytest

from odin.core.errors import UsageError
from odin.core.event import LoopChanged, LoopPrompted, TurnEnded
from odin.core.op import CancelTask, Interrupt, SetLoop
from odin.testing import Turn, call, fault, say
from tests.waiting import TimeLimit

from .conftest import Start, Talk
from .test_loop_mode import FINAL
from .test_team import TeamScript, complete, delegate, settle


async def until_loop_ends(talk: Talk, agent: str = "general-1") -> LoopChanged:
    async with TimeLimit():
        async for envelope in talk.client.stream_events(after=-1):
            event = envelope.event
            if isinstance(event, LoopChanged) and envelope.agent == agent and event.state in FINAL:
                return event
    raise AssertionError("the events ended before the loop did")


async def test_sub_agent_loops_until_its_task_is_complete(start: Start) -> None:
    """`Complete` with an open to-do does not end the loop. The main agent has no loop."""
    hold = threading.Event()
    open_todo = [{"id": "1", "content": "write it", "status": "pending"}]
    closed = [{"id": "1", "content": "write it", "status": "completed"}]
    script = TeamScript(
        [delegate("a"), say("ok"), say("seen")],
        a=[
            say("working").hold(hold),
            call("TodoWrite", {"todos": open_todo}),
            complete("too early"),
            call("TodoWrite", {"todos": closed}),
            complete("all of it"),
        ],
    )
    talk = await start(script)
    await talk.say("go")
    await asyncio.to_thread(talk.server.wait_for, 3)
    assert await talk.client.submit(SetLoop(True, "write it", limit=5, agent="general-1"))
    status = await talk.client.get_loop_status("general-1")
    assert (status.is_active, status.goal, status.limit) == (True, "write it", 5)
    assert not (await talk.client.get_loop_status()).is_active
    hold.set()
    assert (await until_loop_ends(talk)).state == "completed"
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary, task.agents) == ("completed", "all of it", ("general-1",))
    prompts = await talk.recorded_events(LoopPrompted)
    assert "The last reply did not say that everything is done." in prompts[0].reasons
    assert "1 to-do is open: write it" in prompts[1].reasons
    offered = {name for seen in talk.server.requests if "Complete" in seen.tool_names for name in seen.tool_names}
    assert "Done" in offered
    assert not any("Done" in seen.tool_names for seen in talk.server.requests if "Delegate" in seen.tool_names)
    assert talk.server.rejected == []
    with pytest.raises(UsageError, match="There is no running agent 'general-1'"):
        await talk.client.submit(SetLoop(True, agent="general-1"))


LOOP_ENDS: list[tuple[str, Turn, str]] = [
    ("blocked", call("Escalate", {"question": "left or right?"}), "user_decision_required"),
    ("idle", fault(400), "The turn ended with an error."),
    ("completed", call("Done", {"summary": "it works"}), "it works"),
]


@pytest.mark.parametrize(("state", "turn", "why"), LOOP_ENDS, ids=[state for state, _, _ in LOOP_ENDS])
async def test_sub_agent_loop_ends_like_the_main_loop(start: Start, state: str, turn: Turn, why: str) -> None:
    hold = threading.Event()
    script = TeamScript(
        [delegate("a"), say("ok"), *(say("seen") for _ in range(3))], a=[say("hm").hold(hold), turn, say("x")]
    )
    talk = await start(script)
    await talk.say("go")
    await asyncio.to_thread(talk.server.wait_for, 3)
    await talk.client.submit(SetLoop(True, "go on", agent="general-1"))
    hold.set()
    ended = await until_loop_ends(talk)
    assert (ended.state, why in ended.reason) == (state, True)
    await talk.client.submit(Interrupt())


async def test_stopping_or_cancelling_an_agent_ends_its_loop(start: Start) -> None:
    script = TeamScript(
        [delegate("a"), delegate("b"), say("ok"), say("x"), say("x")], a=[say("").stall()], b=[say("").stall()]
    )
    talk = await start(script)
    await talk.say("go")
    for agent in ("general-1", "general-2"):
        await talk.client.submit(SetLoop(True, "go on", agent=agent))
    await talk.client.submit(Interrupt(agent="general-1"))
    await talk.client.submit(CancelTask("adhoc-2", "no need"))
    ends = [(await until_loop_ends(talk, agent)).reason for agent in ("general-1", "general-2")]
    assert ends == ["You interrupted it.", "no need"]


async def test_completed_task_does_not_end_the_main_loop(start: Start) -> None:
    """The mail with the result may join the turn that ends the loop, which is then answered once more."""
    done = say("All.\n<done>it works</done>")
    script = TeamScript([delegate("a"), say("I wait."), say("More."), done, done, done], a=[complete("A")])
    talk = await start(script)
    await talk.client.submit(SetLoop(True, "do all of it"))
    ended = await until_loop_ends(talk, "")
    assert (ended.state, ended.reason) == ("completed", "it works")
    assert ended.iteration > 1
    await talk.client.submit(Interrupt())


async def test_loop_waits_for_delegated_work(start: Start) -> None:
    hold = threading.Event()
    script = TeamScript(
        [delegate("a"), say("It is started."), say("<done>it is counted</done>")],
        a=[complete("Counted it.").hold(hold)],
    )
    talk = await start(script)
    await talk.client.submit(SetLoop(True, "count it"))
    await asyncio.to_thread(talk.server.wait_for, 3)
    await talk.until(TurnEnded)
    status = await talk.client.get_loop_status()
    assert (status.is_active, status.iteration) == (True, 1)
    assert len(script.main) == 1, "the model was asked again"
    hold.set()
    ended = await until_loop_ends(talk, "")
    assert (ended.state, ended.iteration) == ("completed", 1)
    assert "Counted it." in str(talk.server.requests[-1].messages[-1])


async def test_an_interrupt_ends_a_loop_that_waits_for_delegated_work(start: Start) -> None:
    talk = await start(TeamScript([delegate("a"), say("It is started.")], a=[say("working").hold(threading.Event())]))
    await talk.client.submit(SetLoop(True, "count it"))
    await talk.until(TurnEnded)
    assert await talk.client.submit(Interrupt())
    assert (await until_loop_ends(talk, "")).reason == "You interrupted it."
