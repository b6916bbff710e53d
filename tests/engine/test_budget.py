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


def make_usage(dollars: int) -> Usage:
    return Usage(input=dollars)


async def start_priced(start: Start, script: Any, config: dict[str, Any] | None = None, **options: Any) -> Talk:
    return await start(script, config={**PRICED, **(config or {})}, model="anthropic/m", **options)


async def test_turn_over_budget_ends_with_the_amount_spent_and_a_hint(start: Start) -> None:
    talk = await start_priced(start, [reply("one", usage=make_usage(2)), say("never")], max_budget_usd=1.5)
    await talk.say("go")
    ended = await talk.say("more")
    assert (ended.reason, ended.error_kind, len(talk.server.requests)) == ("error_max_budget_usd", "BudgetSpent", 1)
    assert ended.error == "The session budget of $1.50 is used up: $2.00 spent."
    assert "--max-budget-usd" in ended.hint
    assert "/budget" in ended.hint


async def test_budget_stops_a_sub_agent_and_the_calling_turn(start: Start, workspace: Path) -> None:
    script = [
        reply(calls=[call("AgentTool", TASK, id="t")], usage=make_usage(1)),
        reply(calls=[call("LS", {"path": str(workspace)})], usage=make_usage(3)),
        say("never"),
    ]
    talk = await start_priced(start, script, max_budget_usd=4)
    ended = await talk.say("go")
    assert (ended.reason, len(talk.server.requests)) == ("error_max_budget_usd", 2)
    assert [event.reason for event in talk.all(AgentEnded)] == ["error_max_budget_usd"]
    (result,) = [event for event in talk.all(ToolEnded) if event.call_id == "t"]
    assert "error_max_budget_usd" in result.text
    snapshot = await talk.client.snapshot()
    assert (snapshot.cost_usd, {name: spent.cost_usd for name, spent in snapshot.spent_by_agent.items()}) == (
        4,
        {"": 1, "agent-1": 3},
    )


async def test_concurrent_sub_agents_share_the_budget(start: Start, workspace: Path) -> None:
    """Each agent has one request under way when the budget is reached, and none starts another."""
    calls = [call("AgentTool", {**TASK, "prompt": f"Look at {n}."}, id=f"t{n}") for n in range(4)]
    look = reply(calls=[call("LS", {"path": str(workspace)})], usage=make_usage(2))
    all_asked, count = Event(), itertools.count(1)

    def answer(seen: SeenRequest) -> Turn:
        if '"AgentTool"' in seen.body.decode():
            return reply(calls=calls, usage=make_usage(1))
        if next(count) == len(calls):
            all_asked.set()
        return look.hold(all_asked)

    talk = await start_priced(start, answer, max_budget_usd=3)
    ended = await talk.say("go")
    assert ended.reason == "error_max_budget_usd"
    assert len(talk.server.requests) == 1 + len(calls)
    assert [event.reason for event in talk.all(AgentEnded)] == ["error_max_budget_usd"] * 4
    assert talk.server.rejected == []


async def test_small_model_requests_count_and_stop_at_the_budget(start: Start) -> None:
    """The small model makes the title after the first turn. Over budget, the title is the first prompt."""
    config = {"small_model": "anthropic/m"}
    talk = await start_priced(start, [reply("hi", usage=make_usage(2))], config, max_budget_usd=2)
    await talk.say("name this, please")
    await talk.until(TitleSet)
    assert (await talk.client.snapshot()).title == "name this, please"
    assert len(talk.server.requests) == 1

    talk = await start_priced(
        start,
        [reply("hi", usage=make_usage(2)), reply("A title", usage=make_usage(1)), say("no")],
        config,
        max_budget_usd=3,
    )
    await talk.say("name this, please")
    await talk.until(TitleSet)
    snapshot = await talk.client.snapshot()
    assert (snapshot.title, snapshot.cost_usd) == ("A title", 3)
    assert (await talk.say("more")).reason == "error_max_budget_usd"
    assert len(talk.server.requests) == 2


async def test_failed_attempts_count_and_are_not_retried_over_budget(start: Start) -> None:
    cut = reply("half of it", usage=make_usage(2), chunk=2).cut(events=4)
    talk = await start_priced(start, [cut, say("never")], max_budget_usd=2)
    ended = await talk.say("go")
    assert (ended.reason, ended.cost_usd, len(talk.server.requests)) == ("error_max_budget_usd", 2, 1)
    assert talk.all(RetryScheduled) == []

    talk = await start_priced(start, [cut, reply("whole", usage=make_usage(3))], max_budget_usd=9)
    ended = await talk.say("go")
    assert (ended.reason, ended.cost_usd) == ("end_turn", 5)
    assert [event.usage.input for event in talk.all(UsageRecorded)] == [2, 3]
    assert (await talk.client.snapshot()).context_tokens < 20


async def test_turn_continues_after_the_budget_is_raised(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("here")
    look = reply(calls=[call("Read", {"file_path": str(workspace / "a.txt")})], usage=make_usage(2))
    talk = await start_priced(
        start, [look, reply("It says here.", usage=make_usage(2)), say("never")], max_budget_usd=1
    )
    assert (await talk.say("what does it say?")).reason == "error_max_budget_usd"
    assert await talk.client.submit(SetBudget(3.5))
    await talk.client.submit(Continue("again"))
    ended = await talk.until_end("again")
    assert (ended.reason, ended.text) == ("end_turn", "It says here.")
    assert talk.server.rejected == []
    assert (await talk.client.get_info()).budget_usd == 3.5
    assert (await talk.say("more")).reason == "error_max_budget_usd"


@pytest.mark.parametrize("usd", [-1, float("nan"), float("inf")])
async def test_invalid_budget_is_refused(start: Start, usd: float) -> None:
    talk = await start_priced(start, [say("hi")])
    with pytest.raises(UsageError):
        await talk.client.submit(SetBudget(usd))
    assert (await talk.say("go")).reason == "end_turn"


async def test_cost_and_budget_survive_a_resume(start: Start) -> None:
    talk = await start_priced(start, [reply("one", usage=make_usage(2))], max_budget_usd=9)
    await talk.say("go")
    await talk.client.submit(SetBudget(2))
    session, before = (await talk.client.get_info()).session, await talk.client.snapshot()
    await talk.client.close()

    talk = await start_priced(start, [reply("two", usage=make_usage(2))], resume=session)
    after = await talk.client.snapshot()
    assert (after.cost_usd, after.usage, after.spent_by_model) == (2, before.usage, before.spent_by_model)
    assert (await talk.client.get_info()).budget_usd == 2
    assert (await talk.say("more")).reason == "error_max_budget_usd"
    assert talk.server.requests == []
    await talk.client.close()

    talk = await start_priced(
        start, [reply("two", usage=make_usage(2)), say("never")], resume=session, max_budget_usd=3
    )
    assert (await talk.say("more")).reason == "end_turn"
    assert (await talk.say("more")).reason == "error_max_budget_usd"
    assert (await talk.client.snapshot()).cost_usd == 4


async def test_unknown_price_is_warned_about_once(start: Start) -> None:
    config = {"max_budget_usd": 0.01}
    talk = await start([say("hi"), say("hi")], config=config, model="anthropic/unheard-of")
    for _ in range(2):
        assert (await talk.say("go")).reason == "end_turn"
    warned = [event.text for event in talk.all(Warned) if "price" in event.text]
    assert warned == ["The price of anthropic/unheard-of is unknown, so the budget does not limit it."]
    assert (await talk.client.snapshot()).spent_by_model["anthropic/unheard-of"].unpriced > 0


async def test_model_with_unknown_price_gets_no_request_under_a_budget_of_the_command_line(start: Start) -> None:
    talk = await start([say("hi")], model="anthropic/unheard-of", max_budget_usd=0.01)
    ended = await talk.say("go")
    assert (ended.reason, ended.error_kind, talk.server.requests) == ("error_max_budget_usd", "BudgetSpent", [])
    assert ended.error == (
        "The price of anthropic/unheard-of is unknown, so the budget cannot limit it. Nothing was sent."
    )
    assert "price_input" in ended.hint
    await talk.client.submit(SetBudget(0))
    assert (await talk.say("go")).reason == "end_turn"


async def test_free_model_causes_no_warning(start: Start) -> None:
    free = {"providers": {"anthropic": {"models": {"m": {"price_input": 0, "price_output": 0}}}}}
    talk = await start([say("hi")], config=free, model="anthropic/m", max_budget_usd=0.01)
    await talk.say("go")
    assert talk.all(Warned) == []
    assert (await talk.client.snapshot()).spent_by_model["anthropic/m"].unpriced == 0


async def test_daily_budget_applies_to_all_sessions(start: Start) -> None:
    config = {"max_budget_usd_per_day": 5}
    first = await start_priced(
        start, [reply("one", usage=make_usage(3)), reply("two", usage=make_usage(1)), say("never")], config
    )
    assert (await first.say("go")).reason == "end_turn"
    second = await start_priced(start, [reply("three", usage=make_usage(2)), say("never")], config)
    assert (await second.say("go")).reason == "end_turn"
    ended = await second.say("more")
    assert (ended.reason, len(second.server.requests)) == ("error_max_budget_usd", 1)
    assert "The daily budget of $5.00 is used up: all sessions spent $5.00 today" in ended.error
    third = await start_priced(start, [say("never")], config)
    assert (await third.say("go")).reason == "error_max_budget_usd"


async def test_budget_is_recorded_in_the_log(start: Start) -> None:
    talk = await start_priced(start, [say("hi")])
    await talk.client.submit(SetBudget(7))
    await talk.say("go")
    kept: list[AnyEvent] = []
    async for envelope in talk.client.stream_events(after=-1):
        kept.append(envelope.event)
        if isinstance(envelope.event, TurnEnded):
            break
    assert [event for event in kept if isinstance(event, BudgetSet)] == [BudgetSet(7)]
