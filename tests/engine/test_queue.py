"""Prompts that wait: drafts with ids, lanes, what an interrupt and a crash make of them."""

import asyncio
import threading
from typing import Any, Literal, cast

import pytest

from odin.core.errors import AgentShutdown, EmptyPrompt, QueueFull, SessionBusy, UsageError
from odin.core.event import (
    ContextAdded,
    PromptChanged,
    PromptDropped,
    PromptJoined,
    PromptQueued,
    Replied,
    TextStreamed,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from odin.core.op import AddContext, ChangePrompt, Continue, DropPrompt, Interrupt, Prompt, RemoveLast
from odin.engine.local import LocalClient
from odin.session.thread import GO_ON
from odin.testing import call, say

from .conftest import Start, Talk

APIS = ("anthropic", "openai")
Api = Literal["anthropic", "openai"]


def told(talk: Talk, number: int) -> str:
    return talk.server.requests[number].body.decode()


async def waiting(talk: Talk) -> list[tuple[str, str]]:
    return [(item.body, item.lane) for item in (await talk.client.snapshot()).queue]


class TestDrafts:
    async def test_they_are_changed_and_dropped_until_they_are_taken(self, start: Start) -> None:
        gate = threading.Event()
        talk = await start([say("one").hold(gate), say("two")])
        first = await talk.submit("a")
        second = await talk.submit("b", "plan_mode")
        third = await talk.submit("c")
        submit = talk.client.submit
        assert await submit(ChangePrompt(second, "better", "ask_mode"))
        assert await submit(DropPrompt(third))
        assert not await submit(DropPrompt(third)), "it is gone"
        assert not await submit(ChangePrompt(third, "x"))
        assert not await submit(ChangePrompt("unknown", "x"))
        assert not await submit(ChangePrompt(first, "x")), "it runs already"
        assert not await submit(DropPrompt(first))
        with pytest.raises(EmptyPrompt):
            await submit(ChangePrompt(second, "  "))
        (item,) = (await talk.client.snapshot()).queue
        assert (item.body, item.mode) == ("better", "ask_mode")
        gate.set()
        await talk.until_end(first)
        assert (await talk.until_end(second)).text == "two"
        assert [(turn.body, turn.mode) for turn in (await talk.client.snapshot()).messages] == [
            ("a", "edit_mode"),
            ("better", "ask_mode"),
        ]
        assert [event.text for event in talk.all(PromptChanged)] == ["better"]

    async def test_each_is_consumed_by_exactly_one_event(self, start: Start) -> None:
        gate = threading.Event()
        talk = await start([call("ExecuteCommand", {"command": "echo looked"}).hold(gate), say("one"), say("two")])
        await talk.submit("a")
        await talk.client.submit(Prompt("m", "merge me", lane="merge"))
        last = await talk.submit("b")
        gate.set()
        await talk.until_end(last)
        taken = [event.id for event in talk.events if isinstance(event, TurnStarted | PromptJoined)]
        assert sorted(taken) == ["m", "p1", "p2"]
        assert [event.id for event in talk.all(PromptQueued)] == ["m", "p2"]

    async def test_two_that_come_together_never_run_two_loops(self, start: Start) -> None:
        running = 0
        most = 0

        def play(seen: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            running -= 1
            return say("x")

        talk = await start(play)
        ops = [Prompt(f"q{number}", f"prompt {number}") for number in range(5)]
        await asyncio.gather(*(talk.client.submit(op) for op in ops))
        await talk.until_end("q4")
        started = [event.id for event in talk.events if isinstance(event, TurnStarted | TurnEnded)]
        assert started == [name for number in range(5) for name in (f"q{number}", f"q{number}")]
        assert most == 1

    async def test_an_id_is_used_once(self, start: Start) -> None:
        gate = threading.Event()
        talk = await start([say("one").hold(gate)])
        await talk.submit("a")
        await talk.client.submit(Prompt("x", "b"))
        with pytest.raises(UsageError):
            await talk.client.submit(Prompt("x", "c"))
        gate.set()

    async def test_executing_is_true_until_the_answer_and_reset_after_errors(self, start: Start) -> None:
        talk = await start([say("one"), say("").hold(threading.Event())])
        assert not (await talk.client.snapshot()).executing
        await talk.say("a")
        assert not (await talk.client.snapshot()).executing
        prompt = await talk.submit("b")
        await asyncio.to_thread(talk.server.wait_for, 2)
        assert (await talk.client.snapshot()).executing
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        assert not (await talk.client.snapshot()).executing
        assert not await talk.client.submit(Interrupt()), "nothing runs"


class TestMerge:
    @pytest.mark.parametrize("api", APIS)
    async def test_it_is_read_with_the_next_request_after_the_results(self, start: Start, api: Api) -> None:
        gate = threading.Event()
        talk = await start(
            [call("ExecuteCommand", {"command": "echo looked"}).hold(gate), say("done")],
            api,
            config={"queue": {"mode": "merge"}},
        )
        prompt = await talk.submit("look")
        await asyncio.to_thread(talk.server.wait_for, 1)
        merged = await talk.submit("and hurry")
        gate.set()
        assert (await talk.until_end(prompt)).text == "done"
        (joined,) = talk.all(PromptJoined)
        assert (joined.id, joined.text, joined.turn) == (merged, "and hurry", prompt)
        assert [event.status for event in talk.all(ToolEnded)] == ["success"], "nothing is left out"
        assert "and hurry" in told(talk, 1)
        assert told(talk, 1).index("and hurry") > told(talk, 1).index("look")
        assert talk.server.rejected == []
        assert len(talk.server.requests) == 2

    async def test_another_mode_waits_for_its_own_turn(self, start: Start) -> None:
        gate = threading.Event()
        talk = await start([call("ExecuteCommand", {"command": "echo looked"}).hold(gate), say("one"), say("two")])
        first = await talk.submit("look")
        await talk.client.submit(Prompt("m", "plan it", "plan_mode", lane="merge"))
        await talk.client.submit(Prompt("s", "steer it", "ask_mode", lane="steer"))
        gate.set()
        await talk.until_end(first)
        assert [event.status for event in talk.all(ToolEnded)] == ["success"]
        assert (await talk.until_end("m")).text == "two"
        assert talk.all(PromptJoined) == []

    @pytest.mark.parametrize("api", APIS)
    async def test_a_turn_goes_on_while_somebody_has_said_something(self, start: Start, api: Api) -> None:
        gate = threading.Event()
        talk = await start([say("one").hold(gate), say("two")], api)
        prompt = await talk.submit("look")
        await asyncio.to_thread(talk.server.wait_for, 1)
        await talk.client.submit(Prompt("m", "one more thing", lane="merge"))
        gate.set()
        assert (await talk.until_end(prompt)).text == "two"
        assert [event.message.text for event in talk.all(Replied)] == ["one", "two"]
        assert talk.server.rejected == []


class TestInterrupts:
    async def start_three(self, start: Start, **options: Any) -> tuple[Talk, str]:
        talk = await start([say("long", chunk=1).hold(threading.Event(), after=3), say("fine"), say("more")], **options)
        prompt = await talk.submit("a")
        await asyncio.to_thread(talk.server.wait_for, 1)
        for text in ("b", "c"):
            await talk.submit(text)
        return talk, prompt

    async def test_what_waits_joins_and_starts_nothing(self, start: Start) -> None:
        talk, prompt = await self.start_three(start)
        assert await talk.client.submit(Interrupt())
        assert (await talk.until_end(prompt)).reason == "interrupted"
        assert [(event.text, event.turn) for event in talk.all(PromptJoined)] == [("b", ""), ("c", "")]
        assert talk.events[-1] == talk.all(TurnEnded)[-1], "they joined before the end was told"
        snapshot = await talk.client.snapshot()
        assert (snapshot.queue, snapshot.executing) == ((), False)
        await asyncio.sleep(0.05)
        assert len(talk.server.requests) == 1
        assert (await talk.say("d")).text == "fine"
        request = told(talk, 1)
        assert request.index('"b"') < request.index('"c"') < request.index('"d"')
        assert "The user interrupted the turn before this one" in request
        assert talk.server.rejected == []

    async def test_they_may_be_kept_and_are_answered(self, start: Start) -> None:
        talk, prompt = await self.start_three(start)
        await talk.client.submit(Interrupt("keep"))
        assert (await talk.until_end(prompt)).reason == "interrupted"
        assert (await talk.until_end("p2")).text == "fine"
        assert (await talk.until_end("p3")).text == "more"

    async def test_they_may_go(self, start: Start) -> None:
        talk, prompt = await self.start_three(start)
        await talk.client.submit(Interrupt("drop"))
        await talk.until_end(prompt)
        assert [event.id for event in talk.all(PromptDropped)] == ["p2", "p3"]
        assert await waiting(talk) == []

    async def test_they_may_rest_and_are_sent_one_by_one(self, start: Start) -> None:
        talk, prompt = await self.start_three(start)
        await talk.client.submit(Interrupt("rest"))
        await talk.until_end(prompt)
        assert await waiting(talk) == [("b", "queue"), ("c", "queue")]
        assert not (await talk.client.snapshot()).executing
        assert await talk.client.submit(ChangePrompt("p3", lane="queue"))
        assert (await talk.until_end("p3")).text == "fine"
        assert await waiting(talk) == [("b", "queue")]

    async def test_from_another_thread(self, start: Start) -> None:
        talk, prompt = await self.start_three(start)
        interrupt = cast("LocalClient", talk.client).interrupt
        assert await asyncio.to_thread(lambda: interrupt().result(20))
        assert (await talk.until_end(prompt)).reason == "interrupted"
        assert not await asyncio.to_thread(lambda: interrupt().result(20))


class TestCrash:
    async def test_what_waits_is_there_again_and_rests(self, start: Start) -> None:
        talk = await start([say("x").stall(), say("one"), say("two")])
        await talk.submit("a")
        await asyncio.to_thread(talk.server.wait_for, 1)
        await talk.client.submit(Prompt("w1", "first", "plan_mode"))
        await talk.client.submit(Prompt("w2", "second", lane="merge"))
        await talk.client.submit(ChangePrompt("w1", "first, changed"))
        session = (await talk.client.info()).session
        assert await talk.client.close()
        again = await start(None, server=talk.server, resume=session)
        assert await waiting(again) == [("first, changed", "queue"), ("second", "merge")]
        assert (await again.say("what now")).text == "one"
        assert await waiting(again) == [("first, changed", "queue"), ("second", "merge")], "they rest"
        assert await again.client.submit(ChangePrompt("w1", lane="queue"))
        assert (await again.until_end("w1")).text == "two"
        assert [turn.mode for turn in (await again.client.snapshot()).messages][-1] == "plan_mode"
        assert await again.client.submit(DropPrompt("w2"))
        assert await waiting(again) == []
        assert "was cut off when the session was closed" in told(again, 1)

    async def test_a_session_that_is_closed_begins_nothing(self, start: Start) -> None:
        talk = await start([say("one")])
        await talk.say("a")
        assert await talk.client.close(20)
        with pytest.raises(AgentShutdown):
            await talk.client.submit(Prompt("x", "b"))
        with pytest.raises(AgentShutdown):
            await talk.client.submit(Continue("y"))

    async def test_a_close_that_takes_too_long_says_so_and_goes_on(self, start: Start) -> None:
        stubborn = "trap '' TERM; while :; do sleep 1000; done"
        talk = await start([call("ExecuteCommand", {"command": stubborn})])
        await talk.submit("a")
        await talk.until(ToolStarted)
        assert not await talk.client.close(0.001)
        assert await talk.client.close(20)


class TestContinue:
    @pytest.mark.parametrize("api", APIS)
    async def test_after_the_answer_a_word_makes_it_valid(self, start: Start, api: Api) -> None:
        talk = await start([say("one"), say("two")], api)
        await talk.say("a")
        assert await talk.client.submit(Continue("c1"))
        assert (await talk.until_end("c1")).text == "two"
        assert GO_ON in told(talk, 1)
        assert talk.all(TurnStarted)[-1].continues
        assert talk.server.rejected == []

    @pytest.mark.parametrize("api", APIS)
    async def test_after_an_interrupt_nothing_is_added(self, start: Start, api: Api) -> None:
        talk = await start([call("ExecuteCommand", {"command": "echo looked"}), say("x").stall(), say("two")], api)
        prompt = await talk.submit("a", "ask_mode")
        await asyncio.to_thread(talk.server.wait_for, 2)
        with pytest.raises(SessionBusy):
            await talk.client.submit(Continue("c0"))
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        await talk.client.submit(Continue("c1"))
        assert (await talk.until_end("c1")).text == "two"
        first, again = (talk.server.requests[number].messages for number in (1, 2))
        assert first == again, "the same conversation is sent again"
        assert (await talk.client.snapshot()).messages[-1].mode == "ask_mode"
        assert talk.server.rejected == []

    async def test_there_must_be_something_to_continue(self, start: Start) -> None:
        talk = await start([])
        with pytest.raises(UsageError, match="nothing to continue"):
            await talk.client.submit(Continue("c1"))


class TestRemoveLast:
    @pytest.mark.parametrize("api", APIS)
    async def test_a_call_goes_with_its_result(self, start: Start, api: Api) -> None:
        talk = await start([call("ExecuteCommand", {"command": "echo looked"}), say("x").stall(), say("fine")], api)
        assert not await talk.client.submit(RemoveLast()), "there is none"
        prompt = await talk.submit("a")
        await asyncio.to_thread(talk.server.wait_for, 2)
        with pytest.raises(SessionBusy):
            await talk.client.submit(RemoveLast())
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        assert await talk.client.submit(RemoveLast())
        assert (await talk.say("b")).text == "fine"
        last = talk.server.requests[2]
        assert last.results == {}
        assert "echo looked" not in str(last.messages)
        assert talk.server.rejected == []

    async def test_what_was_cut_off_goes_first(self, start: Start) -> None:
        talk = await start([say("partial words", chunk=3).hold(threading.Event(), after=4), say("fine")])
        prompt = await talk.submit("a prompt")
        talk.interrupt_on = TextStreamed
        await talk.until_end(prompt)
        assert talk.all(Replied)[-1].message.interrupted
        assert await talk.client.submit(RemoveLast())
        assert (await talk.client.snapshot()).message_count == 1
        await talk.client.submit(Continue("c"))
        assert (await talk.until_end("c")).text == "fine"
        assert "par" not in str(talk.server.requests[1].messages)


async def test_context_that_came_in_a_turn_is_read_in_it_and_once(start: Start) -> None:
    gate = threading.Event()
    talk = await start(
        [call("ExecuteCommand", {"command": "echo looked"}).hold(gate), say("one"), say("two"), say("three")]
    )
    prompt = await talk.submit("a")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await talk.client.submit(AddContext("the sky is green"))
    gate.set()
    await talk.until_end(prompt)
    assert told(talk, 1).count("the sky is green") == 1
    await talk.client.submit(AddContext("the grass is blue"))
    session = (await talk.client.info()).session
    await talk.client.close()
    again = await start(None, server=talk.server, resume=session)
    await again.say("b")
    assert told(again, 2).count("the sky is green") == 1, "it was told already"
    assert told(again, 2).count("the grass is blue") == 1, "a resume does not lose it"
    assert talk.all(ContextAdded)


async def test_only_ten_may_steer(start: Start) -> None:
    gate = threading.Event()
    talk = await start([say("x").hold(gate), *(say(f"{number}") for number in range(12))])
    await talk.submit("a")
    for number in range(10):
        await talk.client.submit(Prompt(f"s{number}", "go", lane="steer"))
    with pytest.raises(QueueFull):
        await talk.client.submit(Prompt("one more", "go", lane="steer"))
    await talk.client.submit(Prompt("plain", "go"))
    with pytest.raises(QueueFull):
        await talk.client.submit(ChangePrompt("plain", lane="steer"))
    assert await talk.client.submit(ChangePrompt("s3", "other words", lane="steer"))
    gate.set()
    await talk.until_end("plain")
    assert [event.id for event in talk.all(PromptJoined)] == [f"s{number}" for number in range(10)]
    assert talk.server.rejected == []
