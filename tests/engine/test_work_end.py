"""The event that says that nothing works any more: it comes once, after all that the work has caused."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from odin.core.call_events import ActivityChanged
from odin.core.event import AgentEnded, AnyEvent, Envelope, PromptQueued, TurnEnded, TurnStarted, WorkEnded
from odin.core.op import CancelTask, CloseAgent, Interrupt, Op, Prompt, Rewind, SetLoop
from odin.testing import say
from tests.engine.conftest import Start, Talk
from tests.engine.test_team import TeamScript, complete, delegate
from tests.waiting import TimeLimit


async def read_to_end(events: AsyncIterator[Envelope]) -> list[AnyEvent]:
    """Return the events up to the end of all work."""
    found: list[AnyEvent] = []
    async with TimeLimit(lambda: f"the end of all work after {found[-5:]}"):
        async for envelope in events:
            found.append(envelope.event)
            if isinstance(envelope.event, WorkEnded):
                break
    return found


def list_kinds(events: list[AnyEvent], *kinds: type[AnyEvent]) -> list[type[AnyEvent]]:
    return [type(event) for event in events if isinstance(event, kinds)]


async def is_working(talk: Talk) -> bool:
    return (await talk.client.snapshot()).is_working


async def test_it_follows_the_last_of_the_queued_prompts(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("one").hold(gate), say("two")])
    await talk.submit("first")
    await talk.submit("second")
    assert await is_working(talk)
    gate.set()
    heard = await read_to_end(talk.remaining())
    kinds = list_kinds(heard, TurnStarted, TurnEnded, WorkEnded)
    assert kinds == [TurnStarted, TurnEnded, TurnStarted, TurnEnded, WorkEnded]
    assert [event.activity for event in heard if isinstance(event, ActivityChanged)][-1] == "idle"
    assert not await is_working(talk)


async def test_it_waits_for_delegated_work_and_for_the_turn_that_reads_its_result(start: Start) -> None:
    script = TeamScript([delegate("a"), say("I go on."), say("All done.")], a=[complete("found 3")])
    talk = await start(script)
    await talk.submit("go")
    heard = await read_to_end(talk.remaining())
    assert [event.text for event in heard if isinstance(event, TurnEnded)][-1] == "All done."
    assert list_kinds(heard, TurnStarted).count(TurnStarted) == 3
    assert list_kinds(heard, AgentEnded) == [AgentEnded]
    assert not await is_working(talk)


async def test_it_comes_after_the_agents_that_an_interrupt_has_stopped(start: Start) -> None:
    gate = threading.Event()
    turns = {"a": [say("working").hold(gate)], "b": [say("thinking").hold(gate)]}
    talk = await start(TeamScript([delegate("a"), delegate("b"), say("ok")], **turns))
    await talk.say("go")
    await asyncio.to_thread(talk.server.wait_for, 5)
    assert await talk.client.submit(Interrupt())
    gate.set()
    heard = await read_to_end(talk.remaining())
    assert list_kinds(heard, AgentEnded) == [AgentEnded, AgentEnded]


ENDS: dict[str, Op] = {
    "interrupt": Interrupt(),
    "rewind": Rewind("p1", files=False),
    "close": CloseAgent("general-1"),
    "cancel": CancelTask("adhoc-1"),
}


@pytest.mark.parametrize("op", ENDS.values(), ids=ENDS)
async def test_it_comes_when_a_reminder_that_was_due_is_dropped(start: Start, op: Op) -> None:
    """An agent that is to be reminded works; that ends without any other event, or with one of its owner."""
    script = TeamScript([delegate("a"), say("ok"), say("I see")], a=[say("I stop here.")])
    talk = await start(script, config={"team": {"idle_s": 3600}})
    await talk.say("go")
    while not any(agent.state == "idle" for agent in (await talk.client.snapshot()).tasks):
        await asyncio.sleep(0.001)
    assert await is_working(talk)
    events = talk.client.stream_events()
    await talk.client.submit(op)
    await read_to_end(events)
    assert not await is_working(talk)


async def test_it_comes_when_loop_mode_is_stopped_before_its_prompt_starts(start: Start) -> None:
    talk = await start([say("never asked")])
    await talk.client.submit(SetLoop(True, "tidy up"))
    assert await talk.client.submit(Interrupt())
    heard = await read_to_end(talk.remaining())
    assert list_kinds(heard, TurnStarted) == list_kinds(heard, TurnEnded)
    assert not await is_working(talk)


async def test_a_prompt_that_an_interrupt_pauses_is_no_work(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("one").hold(gate)])
    await talk.submit("first")
    await talk.submit("second")
    await talk.until(PromptQueued)
    await asyncio.to_thread(talk.server.wait_for, 1)
    await talk.client.submit(Interrupt())
    gate.set()
    heard = await read_to_end(talk.remaining())
    assert list_kinds(heard, TurnStarted, TurnEnded) == [TurnStarted, TurnEnded]
    assert [item.paused for item in (await talk.client.snapshot()).queue] == [True]


async def test_a_client_that_joins_later_is_told(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("one"), say("two").hold(gate)])
    await talk.submit("first")
    await read_to_end(talk.remaining())
    assert list_kinds(await read_to_end(talk.client.stream_events(after=-1)), TurnEnded) == [TurnEnded]
    assert await read_to_end(talk.client.stream_events(after=(await talk.client.snapshot()).seq)) == [WorkEnded()]
    await talk.client.submit(Prompt("p2", "second"))
    await talk.until_live(TurnStarted)
    joined = talk.client.stream_events(after=-1)
    gate.set()
    assert list_kinds(await read_to_end(joined), TurnEnded) == [TurnEnded, TurnEnded]
