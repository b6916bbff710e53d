"""Queued, steered and interrupted prompts of the Python API, and their results when a session closes."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import odin
from odin.core.errors import AgentShutdown, EmptyPrompt, Interrupted, SessionBusy
from odin.core.op import ChangePrompt, Interrupt
from odin.testing import ScriptedServer, call, say
from tests.test_api import Configure, configure, get_result
from tests.waiting import TimeLimit, until

__all__ = ["configure"]


async def test_busy_session_and_empty_prompt_are_refused(configure: Configure) -> None:
    gate = threading.Event()
    with ScriptedServer([say("One.").hold(gate), say("Other."), say("Two.")]) as server:
        async with odin.new(options=configure(server)) as session, odin.new(options=configure(server)) as other:
            first = session.send("1")
            with pytest.raises(SessionBusy):
                session.send("2")
            with pytest.raises(EmptyPrompt):
                other.send("  ")
            await until(lambda: len(server.requests) == 1)
            assert (await get_result(other.send("3"))).result == "Other.", "sessions are independent"
            gate.set()
            assert (await get_result(first)).result == "One."
            assert (await get_result(session.send("2"))).result == "Two."


async def test_query_can_be_interrupted_from_another_thread(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall(), say("Fine.")]) as server:
        async with odin.new(options=configure(server)) as session:
            query = session.query("1")
            await until(lambda: len(server.requests) == 1)
            assert await asyncio.to_thread(lambda: query.interrupt().result(20))
            result = await get_result(query)
            assert (result.exit_reason, result.subtype) == ("interrupted", "error_during_execution")
            assert isinstance(query.last_error, Interrupted)
            assert not await query.interrupt(), "the query has ended"
            assert not await asyncio.to_thread(lambda: session.interrupt().result(20)), "the session is idle"
            assert (await get_result(session.query("2"))).result == "Fine."


async def test_interrupting_one_prompt_does_not_affect_the_next(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall(), say("Two.")]) as server:
        async with odin.new(options=configure(server)) as session:
            first, second = session.query("1"), session.query("2")
            await until(lambda: len(server.requests) == 1)
            await first.interrupt()
            assert (await get_result(first)).exit_reason == "interrupted"
            assert (await get_result(second)).result == "Two."


async def test_interrupting_the_session_drops_queued_prompts(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall(), say("Three.")]) as server:
        async with odin.new(options=configure(server)) as session:
            first, second = session.query("1"), session.query("2 waits")
            await until(lambda: len(server.requests) == 1)
            assert await session.interrupt()
            reasons = [(await get_result(query)).exit_reason for query in (first, second)]
            assert reasons == ["interrupted", "interrupted"]
            assert (await get_result(session.query("3"))).result == "Three."
            assert "2 waits" not in server.requests[1].body.decode()
            assert server.rejected == []


async def test_steering_prompt_reaches_the_running_turn(
    configure: Configure, workspace: Path, without_views: None
) -> None:
    slow = "touch begun; until [ -e go ]; do sleep 0.02; done"
    with ScriptedServer([call("ExecuteCommand", {"command": slow}), say("Turned.")]) as server:
        async with odin.new(options=configure(server)) as session:
            assert not await session.steer("nobody listens")
            query = session.query("1", mode="edit")
            await until(lambda: (workspace / "begun").exists())
            assert await session.steer("turn left")
            (workspace / "go").touch()
            assert (await get_result(query)).result == "Turned."
            assert "turn left" in str(server.requests[1].messages[-1])


async def test_a_prompt_that_another_client_leaves_in_the_queue_has_a_result(configure: Configure) -> None:
    gate = threading.Event()
    with ScriptedServer([say("One.").hold(gate), say("Three.")]) as server:
        async with odin.new(options=configure(server)) as session:
            first = session.query("1")
            await until(lambda: len(server.requests) == 1)
            client = await session.open()
            second = session.query("2")
            await wait_until_queued(client)
            await client.submit(Interrupt())
            gate.set()
            assert (await get_result(first)).exit_reason == "interrupted"
            assert (await get_result(second)).exit_reason == "interrupted"
            assert (await get_result(session.query("3"))).result == "Three."


async def test_merged_prompt_has_the_result_of_the_turn(configure: Configure) -> None:
    """Another client of the session may merge a queued prompt into the running turn."""
    gate = threading.Event()
    with ScriptedServer([say("One.").hold(gate), say("Both.")]) as server:
        async with odin.new(options=configure(server)) as session:
            first = session.query("1")
            await until(lambda: len(server.requests) == 1)
            client = await session.open()
            second = session.query("2")
            await wait_until_queued(client)
            (waiting,) = (await client.snapshot()).queue
            await client.submit(ChangePrompt(waiting.id, delivery="merge"))
            gate.set()
            assert (await get_result(first)).result == "Both."
            assert (await get_result(second)).result == "Both."


async def wait_until_queued(client: Any) -> None:
    async with TimeLimit():
        while not (await client.snapshot()).queue:
            await asyncio.sleep(0.01)


async def test_prompt_queued_at_close_is_aborted_and_stays_in_the_queue(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall(), say("Later.")]) as server:
        session = odin.new(options=configure(server))
        first, second = session.query("1"), session.query("2")
        await until(lambda: len(server.requests) == 1)
        client = await session.open()
        await wait_until_queued(client)
        assert await session.close(20)
        assert (await get_result(first)).exit_reason == "aborted"
        result = await get_result(second)
        assert (result.exit_reason, result.error_kind) == ("aborted", "AgentShutdown")
        assert isinstance(second.last_error, AgentShutdown)
        with pytest.raises(AgentShutdown):
            await get_result(session.query("3"))
        async with odin.new(options=configure(server, resume=first.session_id)) as again:
            (waiting,) = (await (await again.open()).snapshot()).queue
            assert waiting.body == "2"


TRUNCATED_REPLY = say("A beginning", stop="max_tokens")
LIST_CALL = call("LS", {"path": "/"})


@pytest.mark.parametrize(
    ("script", "options", "reason", "subtype"),
    [
        ([say("Done.")], {}, "end_turn", "success"),
        ([TRUNCATED_REPLY], {}, "max_tokens", "error_during_execution"),
        ([LIST_CALL, say("never")], {"max_turns": 1}, "max_turns", "error_max_turns"),
    ],
)
async def test_every_exit_reason_has_a_complete_result(
    configure: Configure, script: list[Any], options: dict[str, Any], reason: str, subtype: str
) -> None:
    with ScriptedServer(script) as server:
        query = odin.query("Go.", configure(server, **options))
        result = await get_result(query)
    assert (result.exit_reason, result.subtype, result.is_error) == (reason, subtype, reason != "end_turn")
    assert (result.num_turns, query.turn_count) == (1, 1)
    assert result.duration_ms >= result.duration_api_ms >= 0
    assert result.usage["input_tokens"] + result.usage["cache_creation_input_tokens"] > 0
    assert (result.total_cost_usd or 0) > 0
    assert bool(result.errors) == (reason != "end_turn")
