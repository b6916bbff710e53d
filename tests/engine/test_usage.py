"""Usage in sessions: records, sums, and the context meter."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.app.usage import UsagePeriod, report_usage
from odin.compaction.summary import HEADINGS
from odin.core.call_events import TextStreamed, UsageRecorded
from odin.core.client import ContextReport
from odin.core.event import Compacted
from odin.core.message import Usage
from odin.core.op import AddContext, Compact, Interrupt, Rewind
from odin.testing import call, fault, reply, say
from odin.ui.slash_commands.reports import format_usage

from .conftest import Start

SUMMARY = "\n".join(f"## {name}\nSomething." for name in HEADINGS)
SONNET = "anthropic/claude-sonnet-4-5"
TASK = {"description": "look around", "prompt": "Say what is here."}


def tokens_by_source(report: ContextReport) -> dict[str, int]:
    return {part.source: part.tokens for part in report.parts}


async def test_usage_of_every_agent_and_small_job_is_recorded(start: Start, workspace: Path) -> None:
    """The main agent, its sub-agent and a small job have their own records, and the usage report agrees."""
    script = [
        reply(calls=[call("AgentTool", TASK)], usage=Usage(1_000, 100)),
        reply("Nothing.", usage=Usage(10, 1)),
        reply("Empty.", usage=Usage(200, 20, 800, 100, 7)),
        reply("A title", usage=Usage(5, 2)),
    ]
    talk = await start(script, model=SONNET, config={"small_model": SONNET})
    await talk.say("what is here?")
    recorded: list[tuple[str, str, int]] = []
    async for envelope in talk.client.stream_events(after=-1):
        if isinstance(envelope.event, UsageRecorded):
            recorded.append((envelope.agent, envelope.event.purpose, envelope.event.usage.total))
            if envelope.event.purpose == "title":
                break
    assert recorded == [("", "main", 1_100), ("agent-1", "main", 11), ("", "main", 1_127), ("", "title", 7)]
    shot = await talk.client.snapshot()
    cost = (1_215 * 3 + 130 * 15 + 800 * 0.3 + 100 * 3.75) / 1e6
    assert shot.cost_usd == pytest.approx(cost)
    assert shot.usage_by_agent["agent-1"] == Usage(10, 1)
    assert shot.spent_by_model[SONNET].calls == 4
    assert (shot.context_tokens, shot.context_limit) == (1_127, 200_000)
    found = report_usage(os.environ, cwd=str(workspace), by="purpose", period=UsagePeriod())
    assert {row.name: row.calls for row in found.rows} == {"main": 3, "title": 1}
    assert found.total.cost_usd == pytest.approx(cost)
    assert found.total.cache_hit_rate == pytest.approx(800 / 2_115, abs=1e-4)


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses", "gemini"])
async def test_cached_tokens_are_billed_once_by_every_api(start: Start, api: str) -> None:
    """Chat and Responses include cached and reasoning tokens in other counts; Anthropic counts them separately."""
    prices = {"price_input": 1.0, "price_output": 10.0, "price_cache_read": 0.1, "price_cache_write": 2.0}
    kind = f"openai-{api}" if api in ("chat", "responses") else api
    name = {"anthropic": "anthropic", "gemini": "google"}.get(api, "openai")
    written = 50 if api == "anthropic" else 0
    config: dict[str, Any] = {"providers": {name: {"type": kind, "models": {"m": prices}}}}
    thought = 0 if api == "anthropic" else 30
    used = Usage(200, 40, 800, written, thought)
    talk = await start([reply("ok", usage=used)], name, config=config, model=f"{name}/m")
    await talk.say("go")
    (event,) = talk.all(UsageRecorded)
    assert event.usage == used
    assert event.cost_usd == pytest.approx((200 * 1 + (40 + thought) * 10 + 800 * 0.1 + written * 2) / 1e6)
    assert (await talk.client.snapshot()).context_tokens == 200 + 40 + 800 + written + thought


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_an_interrupted_reply_is_counted(start: Start, api: str) -> None:
    """Anthropic reports the input first and the rest at the end, OpenAI everything at the end."""
    words = "word " * 100
    held = reply(words, usage=Usage(1_000, 500), chunk=50).hold(threading.Event(), after=8)
    talk = await start([held, reply("fine", usage=Usage(1_200, 5))], api)
    prompt = await talk.submit("go")
    while sum(len(event.text) for event in talk.all(TextStreamed)) < 200:
        await talk.until_live(TextStreamed)
    await talk.client.submit(Interrupt())
    ended = await talk.until_end(prompt)
    received = sum(len(event.text) for event in talk.all(TextStreamed))
    (event,) = talk.all(UsageRecorded)
    assert event.estimated
    assert event.usage.output == received // 4
    assert (event.usage.input == 1_000) if api == "anthropic" else (500 < event.usage.input < 20_000)
    assert ended.usage == event.usage
    assert (await talk.client.snapshot()).context_tokens == 0, "an estimate is no measurement"
    await talk.say("on")
    shot = await talk.client.snapshot()
    (spent,) = shot.spent_by_model.values()
    assert spent.estimated == event.usage.total
    assert spent.usage == event.usage + Usage(1_200, 5)
    assert "tokens are estimated: the provider did not report them." in format_usage(
        shot, await talk.client.get_info(), 80
    )


async def test_failed_request_is_not_counted(start: Start) -> None:
    talk = await start([fault(503), reply("ok", usage=Usage(10, 1))])
    await talk.say("go")
    assert [(event.usage, event.estimated) for event in talk.all(UsageRecorded)] == [(Usage(10, 1), False)]


def stream_chat(*chunks: dict[str, Any], end: bool = True) -> Any:
    """Return a Chat Completions stream of these chunks; without `end` it is cut off."""
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"] * end
    return fault(200, {"content-type": "text/event-stream"}, body="".join(lines).encode())


DELTA: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "word " * 40}}]}
STOP: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("first", "given", "output"),
    [
        (say("never seen").cut(events=1), 0, 0),
        (stream_chat(DELTA, STOP), 0, 50),
        (stream_chat({**DELTA, "usage": {"prompt_tokens": 777, "completion_tokens": 60}}, end=False), 777, 60),
    ],
    ids=["cut off before the first word", "complete, without usage", "cut off, usage with every chunk"],
)
async def test_usage_of_a_reply_without_a_report_is_estimated(
    start: Start, first: Any, given: int, output: int
) -> None:
    talk = await start([first, reply("fine", usage=Usage(1_200, 5))], "openai")
    await talk.say("go")
    event = talk.all(UsageRecorded)[0]
    assert event.estimated
    assert event.usage.output == output
    assert event.usage.input == given or (not given and 500 < event.usage.input < 20_000)


async def test_context_meter_shows_the_reported_tokens_by_source(start: Start, workspace: Path) -> None:
    (workspace / "ODIN.md").write_text("Use tabs. " * 200)
    (workspace / "big.txt").write_text("line\n" * 2_000)
    script = [
        reply("Let me see.", [call("Read", {"file_path": str(workspace / "big.txt")})], usage=Usage(3_000, 50)),
        reply("Many lines.", usage=Usage(9_000, 200, 3_000)),
    ]
    talk = await start(script, model=SONNET)
    before = await talk.client.report_context()
    assert (before.measured, before.limit, set(tokens_by_source(before))) == (
        False,
        200_000,
        {"system prompt", "project instructions", "tools"},
    )
    assert before.used == sum(tokens_by_source(before).values()) > 1_000
    await talk.client.submit(AddContext("a fact " * 100))
    await talk.say("how many lines?")
    report = await talk.client.report_context()
    assert (report.model, report.used, report.limit, report.measured) == (SONNET, 12_200, 200_000, True)
    assert report.threshold == int((200_000 - 8_192) * 0.8), "COMP6: of the window without room for a reply"
    found = tokens_by_source(report)
    assert sum(found.values()) == 12_200
    assert {"prompts", "answers", "tool calls", "results of Read", "notes and context"} < set(found)
    assert found["results of Read"] > found["tools"] > found["answers"] > 0
    assert next(part.count for part in report.parts if part.source == "tools") > 10


async def test_context_meter_leaves_out_results_that_were_not_sent(start: Start, workspace: Path) -> None:
    """The budget ends the turn after the call: its result is in the conversation but was never sent."""
    look = reply(calls=[call("LS", {"path": str(workspace)})], usage=Usage(900_000, 3))
    talk = await start([look], model=SONNET, max_budget_usd=1)
    assert (await talk.say("go")).reason == "error_max_budget_usd"
    report = await talk.client.report_context()
    assert (report.used, report.measured) == (900_003, True)
    assert "tool calls" in tokens_by_source(report)
    assert "results of LS" not in tokens_by_source(report)


async def test_context_meter_shows_an_estimate_after_a_rewind_until_the_next_reply(start: Start) -> None:
    script = [
        reply("one " * 50, usage=Usage(9_000, 50)),
        reply("two", usage=Usage(9_900, 1)),
        reply("three", usage=Usage(42, 1)),
    ]
    talk = await start(script)
    await talk.say("first")
    await talk.say("second")
    assert (await talk.client.report_context()).used == 9_901
    await talk.client.submit(Rewind("p2"))
    report = await talk.client.report_context()
    assert (report.measured, sum(tokens_by_source(report).values())) == (False, report.used)
    assert "answers" in tokens_by_source(report)
    await talk.say("third")
    report = await talk.client.report_context()
    assert (report.measured, report.used) == (True, 43)


async def test_context_meter_shows_less_after_a_compaction(start: Start) -> None:
    """The summary is its own source, and the messages it replaced are gone from the others."""
    script = [reply("word " * 4_000, usage=Usage(6_000, 5_000)), *[reply("ok", usage=Usage(11_000, 5))] * 3]
    talk = await start([*script, *[say(SUMMARY)] * 3], model=SONNET)
    await talk.say("tell me everything")
    for number in range(3):
        await talk.say(f"and then, {number}?")
    before = await talk.client.report_context()
    assert (before.measured, before.used) == (True, 11_005)
    assert await talk.client.submit(Compact())
    await talk.until(Compacted)
    after = await talk.client.report_context()
    assert (after.measured, sum(tokens_by_source(after).values())) == (False, after.used)
    assert 0 < tokens_by_source(after)["summary"] < after.used < before.used
    assert tokens_by_source(after)["answers"] < tokens_by_source(before)["answers"]


async def test_unknown_context_window_is_zero(start: Start) -> None:
    talk = await start([say("hi")], model="anthropic/unheard-of")
    assert (await talk.client.snapshot()).message_count == -1
    await talk.say("go")
    assert (await talk.client.report_context()).limit == 0
    shot = await talk.client.snapshot()
    assert (shot.context_limit, shot.context_tokens > 0) == (0, True)


async def test_context_of_a_sub_agent_does_not_count_for_the_main_agent(start: Start) -> None:
    """Its reply uses up the budget, so the main agent is not asked again."""
    script = [reply(calls=[call("AgentTool", TASK)], usage=Usage(1_000, 100)), reply("No.", usage=Usage(900_000, 3))]
    talk = await start(script, model=SONNET, max_budget_usd=1)
    assert (await talk.say("go")).reason == "error_max_budget_usd"
    shot = await talk.client.snapshot()
    assert (shot.context_tokens, shot.usage_by_agent["agent-1"].total) == (1_100, 900_003)


async def test_usage_is_restored_from_the_log(start: Start) -> None:
    script = [
        reply(calls=[call("AgentTool", TASK)], usage=Usage(1_000, 100)),
        reply("No.", usage=Usage(10)),
        reply("Ok", usage=Usage(7, 8, 9)),
    ]
    talk = await start(script, model=SONNET)
    await talk.say("go")
    before = await talk.client.snapshot()
    await talk.client.close()
    again = await start([], model=SONNET, resume=before.session)
    after = await again.client.snapshot()
    for name in (
        "usage",
        "cost_usd",
        "usage_by_model",
        "usage_by_agent",
        "spent_by_model",
        "spent_by_agent",
        "context_tokens",
        "context_limit",
    ):
        assert getattr(after, name) == getattr(before, name), name
    assert (await again.client.report_context()).measured
