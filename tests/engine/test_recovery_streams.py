"""Providers that refuse, overload, stall or break off: one visible and bounded retry policy (B27, B28)."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odin.core.call_events import (
    ActivityChanged,
    CallStreamed,
    RateLimitUpdated,
    Replied,
    ReplyRolledBack,
    RetryScheduled,
    TextStreamed,
    ToolStarted,
    UsageRecorded,
)
from odin.core.errors import EmptyReply, Overloaded, RateLimited
from odin.core.message import Usage
from odin.core.op import Interrupt, Prompt
from odin.core.provider import Chunk, Request, RollbackChunk, TextChunk
from odin.engine.stream import ReplyStream, RetryPolicy
from odin.testing import call, fault, reply, retry_after, say
from tests.waiting import TimeLimit

from .conftest import Start, Talk
from .test_recovery import APIS, make_options

HALF = say("half of it", chunk=2)

IMPATIENT = {"idle_timeout": 0.2, "header_timeout": 0.5}


def make_impatient_options(api: str) -> dict[str, Any]:
    """Return session options with short timeouts, so that a test of silence is short.

    On a busy machine any answer may time out, so a test must allow for several tries.
    """
    settings = make_options(api)
    name = settings["api"]
    own = settings.get("config", {}).get("providers", {}).get(name, {})
    return {**settings, "config": {"providers": {name: {**own, **IMPATIENT}}}}


class TestPolicy:
    """How long retries wait, whatever a server says."""

    @pytest.mark.parametrize("asked", [None, 0.0, 0.001])
    def test_small_retry_after_values_have_a_minimum_wait(self, asked: float | None) -> None:
        policy = RetryPolicy(base_s=1.0)
        waits = [policy.compute_delay(RateLimited("slow", retry_after=asked), attempt) or 0 for attempt in range(1, 6)]
        assert all(wait >= 2**number for number, wait in enumerate(waits))
        assert sum(waits) >= 31, "six tries take longer than some seconds"

    def test_longer_retry_after_is_respected_with_jitter(self) -> None:
        waits = {RetryPolicy().compute_delay(RateLimited("slow", retry_after=10.0), 1) for _ in range(20)}
        assert len(waits) > 10
        assert all(wait is not None and 10.0 <= wait <= 12.5 for wait in waits)

    def test_no_wait_exceeds_the_maximum(self) -> None:
        policy = RetryPolicy(attempts=50, base_s=1.0, max_s=8.0)
        waits = [policy.compute_delay(Overloaded("full"), attempt) for attempt in range(1, 50)]
        assert max(wait for wait in waits if wait is not None) <= 8.0

    def test_unlimited_retries_continue_and_a_constant_wait_does_not_grow(self) -> None:
        policy = RetryPolicy(attempts=0, base_s=1.0, grows=False)
        waits = [policy.compute_delay(Overloaded("full"), attempt) or 0 for attempt in (1, 9, 10_000)]
        assert all(1 <= wait <= 1.25 for wait in waits)
        assert RetryPolicy(attempts=0).compute_delay(Overloaded("full"), 10_000) == 60.0
        assert policy.compute_delay(EmptyReply("nothing"), 2) is None, (
            "an empty reply is asked for twice, whatever the limit"
        )

    def test_retry_after_beyond_the_maximum_ends_the_retries(self) -> None:
        assert RetryPolicy(max_s=60.0).compute_delay(RateLimited("slow", retry_after=3600.0), 1) is None


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "broken",
    [
        fault(429, {"retry-after": "0"}),
        fault(429, {"retry-after": "soon, I hope"}),
        fault(429, retry_after(0, "date")),
        fault(529),
        fault(503),
        fault(500, body="<html><body>Bad gateway</body></html>"),
        fault(200, {"content-type": "application/json"}, {"error": {"type": "overloaded_error", "message": "Busy"}}),
        fault(200, {"content-type": "text/plain"}, "upstream overloaded"),
        say('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
        HALF.error(after=5),
        HALF.cut(events=5),
        HALF.cut(events=5, reset=True),
        HALF.cut(bytes=200),
        HALF.cut(),
        HALF.unfinished(3),
        call("ExecuteCommand", {"command": "touch made"}).cut(events=4),
    ],
    ids=itertools.count(),
)
async def test_failed_reply_is_retried_and_nothing_of_the_first_try_stays(
    start: Start, workspace: Path, api: str, broken: Any
) -> None:
    talk = await start([broken, say("fine")], **make_options(api))
    await assert_retried(talk, workspace)
    assert len(talk.server.requests) == 2
    assert len(talk.all(RetryScheduled)) == (not broken.drop), "a kept connection that was closed is opened again"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "silent",
    [
        HALF.stall(after=5),
        HALF.stall(after=0),
        HALF.pings(after=5, every=0.02),
        call("ExecuteCommand", {"command": "touch made"}).stall(after=4),
    ],
    ids=["after a while", "from the start", "but for pings", "within a call"],
)
async def test_silent_stream_is_retried(start: Start, workspace: Path, api: str, silent: Any) -> None:
    talk = await start([silent, *[say("fine")] * 5], **make_impatient_options(api))
    await assert_retried(talk, workspace)
    assert len(talk.server.requests) == 1 + len(talk.all(RetryScheduled)) > 1


async def assert_retried(talk: Talk, workspace: Path) -> None:
    """Assert that the turn succeeds with the same request sent again and nothing left of the first try."""
    ended = await talk.say("go")
    assert (ended.reason, ended.text) == ("end_turn", "fine")
    assert len({request.body for request in talk.server.requests}) == 1
    shown = "".join(event.text for event in talk.all(TextStreamed))
    assert bool(talk.all(ReplyRolledBack)) == (shown != "fine" or bool(talk.all(CallStreamed)))
    assert [event.message.text for event in talk.all(Replied)] == ["fine"]
    assert talk.all(ToolStarted) == []
    assert not (workspace / "made").exists()
    assert talk.server.rejected == []


@pytest.mark.parametrize(
    "broken",
    [
        fault(200, {"content-type": "text/html"}, "<!doctype html><title>Log in</title>"),
        HALF.garble(after=5),
        fault(200, {"content-type": "text/event-stream"}, b"data: " + b"x" * 17_000_000),
    ],
    ids=["a web page", "no JSON", "a line without end"],
)
async def test_permanent_failures_are_reported_without_a_retry(start: Start, broken: Any) -> None:
    talk = await start([broken, say("never")])
    ended = await talk.say("go")
    assert (ended.reason, ended.error_kind) == ("error", "BadReply")
    assert ended.hint
    assert len(talk.server.requests) == 1


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "odd",
    [
        say("fine").gzip(),
        say("fine").trickle(),
        say("fine").with_headers({"content-type": None}),
        say("fine").unfinished(1),
    ],
    ids=["gzip", "byte by byte", "no content type", "no end mark"],
)
async def test_unusual_but_valid_replies_are_accepted(start: Start, api: str, odd: Any) -> None:
    talk = await start([odd if not (api == "responses" and odd.missing) else say("fine")], **make_options(api))
    assert (await talk.say("go")).text == "fine"
    assert talk.all(RetryScheduled) == []


async def test_two_calls_with_one_id_both_run_and_each_has_a_result(start: Start, workspace: Path) -> None:
    twice = reply("", [call("ExecuteCommand", {"command": f"touch {name}"}, id="same") for name in "ab"])
    talk = await start([twice, twice, say("ok")])
    assert (await talk.say("go")).text == "ok"
    assert {path.name for path in workspace.iterdir()} >= {"a", "b"}
    assert talk.server.rejected == []


async def test_answer_that_mentions_errors_is_not_an_error(start: Start) -> None:
    """Only a reply that is nothing but the error body of an API counts as an error."""
    answers = ["Overloaded.", '{"error": "none"}', 'The body is {"error": {"type": "x", "message": "y"}}', '{"a": 1}']
    talk = await start([say(text) for text in answers])
    assert [(await talk.say("go")).text for _ in answers] == answers


class TestGivingUp:
    @pytest.mark.parametrize("then", [fault(503), HALF.cut(events=5)], ids=["nothing more", "half again"])
    async def test_partial_text_is_kept_and_marked_as_interrupted(self, start: Start, then: Any) -> None:
        script = [HALF.cut(events=5), then, say("and on")]
        talk = await start(script, config={"retry": {"base_s": 0.001, "attempts": 2}})
        ended = await talk.say("go")
        assert ended.reason == "error"
        (kept,) = talk.all(Replied)
        assert kept.message.interrupted
        assert kept.message.text == ended.text != ""
        assert "half of it".startswith(kept.message.text)
        assert (await talk.say("go on")).text == "and on"
        assert talk.server.rejected == []

    async def test_usage_of_every_try_is_counted_once(self, start: Start) -> None:
        used = Usage(input=1000, output=10)
        talk = await start([say("half of it", usage=used, chunk=2).cut(events=5)] * 2 + [say("fine", usage=used)])
        ended = await talk.say("go")
        assert sum(event.usage.input for event in talk.all(UsageRecorded)) == 3000
        assert ended.usage.input == 3000
        assert ended.usage.output == 1 + 1 + 10, "what the server reported for each try"
        snapshot = await talk.client.snapshot()
        assert snapshot.usage == ended.usage


class TestVisibleRetries:
    async def test_retries_are_numbered_and_a_requested_cooldown_is_shown(self, start: Start) -> None:
        talk = await start([fault(503), fault(429, {"retry-after": "0.02"}), say("fine")])
        await talk.say("go")
        waits = [(event.activity, event.detail) for event in talk.all(ActivityChanged) if event.detail]
        assert waits[:2] == [("retrying", "retry 1/6"), ("cooling", "cooldown 1s")]
        scheduled = talk.all(RetryScheduled)
        assert [event.attempts for event in scheduled] == [6, 6]
        assert all(event.delay_s > 0 for event in scheduled)

    @pytest.mark.parametrize("wish", ["5", "50"])
    async def test_an_interrupt_ends_the_wait_at_once(self, start: Start, wish: str) -> None:
        talk = await start([fault(429, {"retry-after": wish}), say("and on")])
        await talk.client.submit(Prompt("first", "go"))
        await talk.until(RetryScheduled)
        async with TimeLimit():
            await talk.client.submit(Interrupt())
            ended = await talk.until_end("first")
        assert ended.reason == "interrupted"
        assert (await talk.say("go on")).text == "and on"

    async def test_rate_limit_headers_are_published(self, start: Start) -> None:
        headers: dict[str, str | None] = {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "49",
            "anthropic-ratelimit-tokens-remaining": "12000",
            "anthropic-ratelimit-tokens-reset": "nonsense",
        }
        talk = await start([say("hi").with_headers(headers), say("again")])
        await talk.say("one")
        await talk.say("two")
        (updated,) = talk.all(RateLimitUpdated)
        assert (updated.provider, updated.requests_left, updated.requests_limit) == ("anthropic", 49, 50)
        assert (updated.tokens_left, updated.tokens_limit, updated.reset_s) == (12000, -1, 0.0)


async def test_an_interrupt_closes_the_stream_while_its_reader_waits() -> None:
    """The interrupt comes during a rollback; closing must not wait for the garbage collector."""
    closed: list[str] = []
    waiting = asyncio.Event()

    async def produce() -> AsyncGenerator[Chunk]:
        try:
            yield RollbackChunk("again")
            yield TextChunk("never")
        finally:
            closed.append("closed")

    async def rollback(reason: str) -> None:
        waiting.set()
        await asyncio.Event().wait()

    def ignore(*about: Any, **more: Any) -> None:
        return

    chunks = produce()
    source: Any = SimpleNamespace(name="p", stream=lambda request: chunks)  # pyright: ignore
    recorder, observer = SimpleNamespace(emit=ignore), SimpleNamespace(rollback=rollback)
    stream = ReplyStream(cast("Any", recorder), "", lambda: cast("Any", observer))
    asking = asyncio.create_task(stream.run(source, Request("m", ()), RetryPolicy(), cast("Any", ignore)))
    await waiting.wait()
    asking.cancel()
    await asyncio.wait([asking])
    assert closed == ["closed"]
