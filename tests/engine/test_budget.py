"""The cost budget applies to every request, survives a resume, and can be raised."""

import itertools
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from odin.core.call_events import RetryScheduled, ToolEnded, UsageRecorded
from odin.core.errors import UsageError
from odin.core.event import AgentEnded, AnyEvent, BudgetSet, TitleSet, TurnEnded, Warned
from odin.core.message import Usage
from odin.core.op import Continue, SetBudget
from odin.testing import SeenRequest, Turn, call, reply, say

from .conftest import Start, Talk

DOLLAR = {"price_input": 1_000_000.0, "price_output": 0.0}
"""A model whose input tokens cost one dollar each."""

PRICED: dict[str, Any] = {"providers": {"anthropic": {"models": {"m": DOLLAR}}}}
TASK = {"description": "look around", "prompt": "Say what is here."}


def used(dollars: int) -> Usage:
    return Usage(input=dollars)


async def priced(start: Start, script: Any, config: dict[str, Any] | None = None, **options: Any) -> Talk:
    return await start(script, config={**PRICED, **(config or {})}, model="anthropic/m", **options)


async def test_the_ending_says_what_was_spent_and_what_to_do(start: Start) -> None:
    talk = await priced(start, [reply("one", usage=used(2)), say("never")], max_budget_usd=1.5)
    await talk.say("go")
    ended = await talk.say("more")
    assert (ended.reason, ended.error_kind, len(talk.server.requests)) == ("error_max_budget_usd", "BudgetSpent", 1)
    assert ended.error == "The session budget of $1.50 is used up: $2.00 spent."
    assert "--max-budget-usd" in ended.hint
    assert "/budget" in ended.hint


async def test_a_sub_agent_stops_and_so_does_the_turn_that_called_it(start: Start, workspace: Path) -> None:
    script = [
        reply(calls=[call("AgentTool", TASK, id="t")], usage=used(1)),
        reply(calls=[call("LS", {"path": str(workspace)})], usage=used(3)),
        say("never"),
    ]
    talk = await priced(start, script, max_budget_usd=4)
    ended = await talk.say("go")
    assert (ended.reason, len(talk.server.requests)) == ("error_max_budget_usd", 2)
    assert [event.reason for event in talk.all(AgentEnded)] == ["error_max_budget_usd"]
    (result,) = [event for event in talk.all(ToolEnded) if event.call_id == "t"]
    assert "error_max_budget_usd" in result.text
    shot = await talk.client.snapshot()
    assert (shot.cost_usd, {name: spent.cost_usd for name, spent in shot.spent_by_agent.items()}) == (
        4,
        {"": 1, "agent-1": 3},
    )


async def test_sub_agents_that_run_together_are_bound_together(start: Start, workspace: Path) -> None:
    """Each has one call under way when the first of them reaches the budget, and none begins another."""
    calls = [call("AgentTool", {**TASK, "prompt": f"Look at {n}."}, id=f"t{n}") for n in range(4)]
    look = reply(calls=[call("LS", {"path": str(workspace)})], usage=used(2))
    all_asked, count = Event(), itertools.count(1)

    def answer(seen: SeenRequest) -> Turn:
        if '"AgentTool"' in seen.body.decode():
            return reply(calls=calls, usage=used(1))
        if next(count) == len(calls):
            all_asked.set()
        return look.hold(all_asked)

    talk = await priced(start, answer, max_budget_usd=3)
    ended = await talk.say("go")
    assert ended.reason == "error_max_budget_usd"
    assert len(talk.server.requests) == 1 + len(calls)
    assert [event.reason for event in talk.all(AgentEnded)] == ["error_max_budget_usd"] * 4
    assert talk.server.rejected == []


async def test_small_jobs_count_and_are_not_begun_any_more(start: Start) -> None:
    """The title is made after the first turn. With the budget used up it is the first prompt instead."""
    config = {"small_model": "anthropic/m"}
    talk = await priced(start, [reply("hi", usage=used(2))], config, max_budget_usd=2)
    await talk.say("name this, please")
    await talk.until(TitleSet)
    assert (await talk.client.snapshot()).title == "name this, please"
    assert len(talk.server.requests) == 1

    talk = await priced(
        start, [reply("hi", usage=used(2)), reply("A title", usage=used(1)), say("no")], config, max_budget_usd=3
    )
    await talk.say("name this, please")
    await talk.until(TitleSet)
    shot = await talk.client.snapshot()
    assert (shot.title, shot.cost_usd) == ("A title", 3)
    assert (await talk.say("more")).reason == "error_max_budget_usd"
    assert len(talk.server.requests) == 2


async def test_a_try_that_failed_is_paid_too_and_may_be_the_last(start: Start) -> None:
    cut = reply("half of it", usage=used(2), chunk=2).cut(events=4)
    talk = await priced(start, [cut, say("never")], max_budget_usd=2)
    ended = await talk.say("go")
    assert (ended.reason, ended.cost_usd, len(talk.server.requests)) == ("error_max_budget_usd", 2, 1)
    assert talk.all(RetryScheduled) == []

    talk = await priced(start, [cut, reply("whole", usage=used(3))], max_budget_usd=9)
    ended = await talk.say("go")
    assert (ended.reason, ended.cost_usd) == ("end_turn", 5)
    assert [event.usage.input for event in talk.all(UsageRecorded)] == [2, 3]
    assert (await talk.client.snapshot()).context_tokens < 20


async def test_the_budget_is_raised_and_the_work_goes_on_where_it_stopped(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("here")
    look = reply(calls=[call("Read", {"file_path": str(workspace / "a.txt")})], usage=used(2))
    talk = await priced(start, [look, reply("It says here.", usage=used(2)), say("never")], max_budget_usd=1)
    assert (await talk.say("what does it say?")).reason == "error_max_budget_usd"
    assert await talk.client.submit(SetBudget(3.5))
    await talk.client.submit(Continue("again"))
    ended = await talk.until_end("again")
    assert (ended.reason, ended.text) == ("end_turn", "It says here.")
    assert talk.server.rejected == []
    assert (await talk.client.get_info()).budget_usd == 3.5
    assert (await talk.say("more")).reason == "error_max_budget_usd"


@pytest.mark.parametrize("usd", [-1, float("nan"), float("inf")])
async def test_a_budget_is_a_number_of_dollars(start: Start, usd: float) -> None:
    talk = await priced(start, [say("hi")])
    with pytest.raises(UsageError):
        await talk.client.submit(SetBudget(usd))
    assert (await talk.say("go")).reason == "end_turn"


async def test_what_was_spent_and_allowed_survives_a_resume(start: Start) -> None:
    talk = await priced(start, [reply("one", usage=used(2))], max_budget_usd=9)
    await talk.say("go")
    await talk.client.submit(SetBudget(2))
    session, before = (await talk.client.get_info()).session, await talk.client.snapshot()
    await talk.client.close()

    talk = await priced(start, [reply("two", usage=used(2))], resume=session)
    after = await talk.client.snapshot()
    assert (after.cost_usd, after.usage, after.spent_by_model) == (2, before.usage, before.spent_by_model)
    assert (await talk.client.get_info()).budget_usd == 2
    assert (await talk.say("more")).reason == "error_max_budget_usd"
    assert talk.server.requests == []
    await talk.client.close()

    talk = await priced(start, [reply("two", usage=used(2)), say("never")], resume=session, max_budget_usd=3)
    assert (await talk.say("more")).reason == "end_turn"
    assert (await talk.say("more")).reason == "error_max_budget_usd"
    assert (await talk.client.snapshot()).cost_usd == 4


async def test_a_model_of_unknown_price_is_told_of_once(start: Start) -> None:
    talk = await start([say("hi"), say("hi")], model="anthropic/unheard-of", max_budget_usd=0.01)
    for _ in range(2):
        assert (await talk.say("go")).reason == "end_turn"
    told = [event.text for event in talk.all(Warned) if "price" in event.text]
    assert told == ["The price of anthropic/unheard-of is unknown, so the budget does not limit it."]
    assert (await talk.client.snapshot()).spent_by_model["anthropic/unheard-of"].unpriced > 0


async def test_a_free_model_needs_no_warning(start: Start) -> None:
    free = {"providers": {"anthropic": {"models": {"m": {"price_input": 0, "price_output": 0}}}}}
    talk = await start([say("hi")], config=free, model="anthropic/m", max_budget_usd=0.01)
    await talk.say("go")
    assert talk.all(Warned) == []
    assert (await talk.client.snapshot()).spent_by_model["anthropic/m"].unpriced == 0


async def test_a_day_has_a_budget_for_all_sessions(start: Start) -> None:
    config = {"max_budget_usd_per_day": 5}
    first = await priced(start, [reply("one", usage=used(3)), reply("two", usage=used(1)), say("never")], config)
    assert (await first.say("go")).reason == "end_turn"
    second = await priced(start, [reply("three", usage=used(2)), say("never")], config)
    assert (await second.say("go")).reason == "end_turn"
    ended = await second.say("more")
    assert (ended.reason, len(second.server.requests)) == ("error_max_budget_usd", 1)
    assert "The daily budget of $5.00 is used up: all sessions spent $5.00 today" in ended.error
    third = await priced(start, [say("never")], config)
    assert (await third.say("go")).reason == "error_max_budget_usd"


async def test_the_log_keeps_the_budget(start: Start) -> None:
    talk = await priced(start, [say("hi")])
    await talk.client.submit(SetBudget(7))
    await talk.say("go")
    kept: list[AnyEvent] = []
    async for envelope in talk.client.stream_events(after=-1):
        kept.append(envelope.event)
        if isinstance(envelope.event, TurnEnded):
            break
    assert [event for event in kept if isinstance(event, BudgetSet)] == [BudgetSet(7)]
