"""An interrupt affects only prompts queued at that moment; a prompt sent right after it is answered."""

import asyncio
import threading

import pytest

from odin.core.call_events import ActivityChanged
from odin.core.event import PromptDropped, PromptInjected, TurnEnded, TurnStarted
from odin.core.event_values import Delivery
from odin.core.op import DropPrompt, Interrupt, Prompt, QueuePolicy
from odin.testing import say

from .conftest import Start, Talk

DELIVERIES: tuple[Delivery, ...] = ("queue", "merge", "steer")


async def wait_for_turn_ends(talk: Talk, last: str) -> list[tuple[str, str]]:
    await talk.until_end(last)
    return [(event.id, event.reason) for event in talk.all(TurnEnded)]


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("queue", ["inject", "pause", "drop"])
async def test_prompt_before_the_end_of_the_interrupted_turn_is_answered(
    start: Start, delivery: Delivery, queue: QueuePolicy
) -> None:
    """The queue policy of the interrupt applies to `waits`, which was queued; `new` came later and is answered."""
    talk = await start([say("long", chunk=1).hold(threading.Event(), after=3), say("fine")])
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await talk.client.submit(Prompt("waits", "this waited"))
    assert await talk.client.submit(Interrupt(queue))
    assert not talk.all(TurnEnded), "the interrupted turn has not ended yet"
    await talk.client.submit(Prompt("new", "and now this", delivery=delivery))
    assert await wait_for_turn_ends(talk, "new") == [(prompt, "interrupted"), ("new", "end_turn")]
    shot = await talk.client.snapshot()
    assert [item.id for item in shot.queue] == (["waits"] if queue == "pause" else [])
    assert [event.id for event in talk.all(PromptInjected)] == (["waits"] if queue == "inject" else [])
    assert [event.id for event in talk.all(PromptDropped)] == (["waits"] if queue == "drop" else [])
    assert "and now this" in str(talk.server.requests[-1].messages[-1])
    assert talk.server.rejected == []


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_prompt_behind_a_kept_prompt_is_answered(start: Start, delivery: Delivery) -> None:
    """The kept prompt is answered first; a new prompt with delivery merge or steer joins its turn."""
    talk = await start([say("long", chunk=1).hold(threading.Event(), after=3), say("fine"), say("finer")])
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await talk.client.submit(Prompt("waits", "this waited"))
    assert await talk.client.submit(Interrupt("keep"))
    await talk.client.submit(Prompt("new", "and now this", delivery=delivery))
    alone = delivery == "queue"
    ends = await wait_for_turn_ends(talk, "new" if alone else "waits")
    assert ends == [(prompt, "interrupted"), ("waits", "end_turn"), *([("new", "end_turn")] if alone else [])]
    joined = [(event.id, event.turn) for event in talk.all(PromptInjected)]
    assert joined == ([] if alone else [("new", "waits")])
    assert "and now this" in str(talk.server.requests[-1].messages[-1])
    assert talk.server.rejected == []


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_prompt_after_an_interrupt_before_the_turn_starts_is_answered(start: Start, delivery: Delivery) -> None:
    """The first prompt was taken but has not run: it ends without a request, and the next one is answered."""
    talk = await start([say("fine")])
    await talk.client.submit(Prompt("first", "go"))
    assert await talk.client.submit(Interrupt()), "it is about to start"
    await talk.client.submit(Prompt("new", "and now this", delivery=delivery))
    assert await wait_for_turn_ends(talk, "new") == [("first", "interrupted"), ("new", "end_turn")]
    assert [event.id for event in talk.all(TurnStarted)] == ["first", "new"]
    assert len(talk.server.requests) == 1
    assert talk.server.rejected == []


async def test_second_interrupt_affects_the_new_prompt_too(start: Start) -> None:
    talk = await start([say("long", chunk=1).hold(threading.Event(), after=3), say("fine")])
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    for text in ("one", "two"):
        await talk.client.submit(Interrupt())
        await talk.client.submit(Prompt(text, text))
    assert await wait_for_turn_ends(talk, "two") == [(prompt, "interrupted"), ("two", "end_turn")]
    assert [(item.id, item.paused) for item in (await talk.client.snapshot()).queue] == [("one", True)]


async def test_interrupt_of_a_dropped_prompt_stops_no_later_turn(start: Start) -> None:
    """Between two turns an interrupt is for the next one. If that prompt is dropped, no later turn is stopped."""
    gate = threading.Event()
    talk = await start([say("one").hold(gate), say("two")])
    first = await talk.submit("a")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await talk.client.submit(Prompt("next", "b"))
    ended = asyncio.Event()

    def between(activity: ActivityChanged) -> None:
        if activity.activity == "idle":
            ended.set()

    talk.client.observe_activity(between)
    stopping = asyncio.create_task(_stop_and_drop(talk, ended))
    gate.set()
    await talk.until_end(first)
    await stopping
    assert (await talk.say("c")).text == "two"


async def _stop_and_drop(talk: Talk, ended: asyncio.Event) -> None:
    await ended.wait()
    await talk.client.submit(Interrupt("keep"))
    await talk.client.submit(DropPrompt("next"))


async def test_executing_is_true_as_soon_as_a_prompt_was_taken(start: Start) -> None:
    talk = await start([say("fine")])
    assert not (await talk.client.snapshot()).executing
    await talk.client.submit(Prompt("first", "go"))
    assert not talk.all(TurnStarted)
    assert (await talk.client.snapshot()).executing
    await talk.until_end("first")
    assert not (await talk.client.snapshot()).executing


async def test_prompt_not_started_when_the_session_closes_is_not_lost(start: Start) -> None:
    talk = await start([say("fine")])
    await talk.client.submit(Prompt("first", "do not lose me"))
    session = (await talk.client.get_info()).session
    assert await talk.client.close(20)
    assert not (await talk.client.snapshot()).executing
    assert talk.server.requests == []
    again = await start(None, server=talk.server, resume=session)
    assert [(turn.body, turn.reason) for turn in (await again.client.snapshot()).messages] == [
        ("do not lose me", "aborted")
    ]
    assert (await again.say("go on")).text == "fine"
    assert "do not lose me" in talk.server.requests[0].body.decode()
    assert talk.server.rejected == []
