"""The queue and the end of prompts from Python: busy, steered, interrupted from a thread, shut down."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odin
from odin.core.errors import AgentShutdown, EmptyPrompt, Interrupted, SessionBusy
from odin.core.op import ChangePrompt
from odin.testing import ScriptedServer, call, say
from tests.test_api import Configure, configure, done

__all__ = ["configure"]


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not there():
            await asyncio.sleep(0.01)


async def test_a_busy_session_refuses_and_an_empty_prompt_too(configure: Configure) -> None:
    gate = threading.Event()
    with ScriptedServer([say("One.").hold(gate), say("Other."), say("Two.")]) as server:
        async with odin.new(options=configure(server)) as session, odin.new(options=configure(server)) as other:
            first = session.send("1")
            with pytest.raises(SessionBusy):
                session.send("2")
            with pytest.raises(EmptyPrompt):
                other.send("  ")
            await until(lambda: len(server.requests) == 1)
            assert (await done(other.send("3"))).result == "Other.", "sessions are independent"
            gate.set()
            assert (await done(first)).result == "One."
            assert (await done(session.send("2"))).result == "Two."


async def test_an_interrupt_from_another_thread(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall(), say("Fine.")]) as server:
        async with odin.new(options=configure(server)) as session:
            query = session.query("1")
            await until(lambda: len(server.requests) == 1)
            assert await asyncio.to_thread(lambda: query.interrupt().result(20))
            result = await done(query)
            assert (result.exit_reason, result.subtype) == ("interrupted", "error_during_execution")
            assert isinstance(query.last_error, Interrupted)
            assert not await query.interrupt(), "it is over"
            assert not await asyncio.to_thread(lambda: session.interrupt().result(20)), "the session is idle"
            assert (await done(session.query("2"))).result == "Fine."


async def test_an_interrupt_of_one_prompt_leaves_the_next_its_answer(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall(), say("Two.")]) as server:
        async with odin.new(options=configure(server)) as session:
            first, second = session.query("1"), session.query("2")
            await until(lambda: len(server.requests) == 1)
            await first.interrupt()
            assert (await done(first)).exit_reason == "interrupted"
            assert (await done(second)).result == "Two."


async def test_an_interrupt_of_the_session_ends_what_waits_unanswered(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall(), say("Three.")]) as server:
        async with odin.new(options=configure(server)) as session:
            first, second = session.query("1"), session.query("2 waits")
            await until(lambda: len(server.requests) == 1)
            assert await session.interrupt()
            reasons = [(await done(query)).exit_reason for query in (first, second)]
            assert reasons == ["interrupted", "interrupted"]
            assert (await done(session.query("3"))).result == "Three."
            assert "2 waits" not in server.requests[1].body.decode()
            assert server.rejected == []


async def test_steering(configure: Configure, workspace: Path) -> None:
    slow = "touch begun; until [ -e go ]; do sleep 0.02; done"
    with ScriptedServer([call("ExecuteCommand", {"command": slow}), say("Turned.")]) as server:
        async with odin.new(options=configure(server)) as session:
            assert not await session.steer("nobody listens")
            query = session.query("1", mode="edit")
            await until(lambda: (workspace / "begun").exists())
            assert await session.steer("turn left")
            (workspace / "go").touch()
            assert (await done(query)).result == "Turned."
            assert "turn left" in str(server.requests[1].messages[-1])


async def test_a_prompt_that_joined_another_has_its_result(configure: Configure) -> None:
    """A front end beside the program may send a waiting prompt into the running turn."""
    gate = threading.Event()
    with ScriptedServer([say("One.").hold(gate), say("Both.")]) as server:
        async with odin.new(options=configure(server)) as session:
            first = session.query("1")
            await until(lambda: len(server.requests) == 1)
            client = await session.open()
            second = session.query("2")
            await until_queued(client)
            (waiting,) = (await client.snapshot()).queue
            await client.submit(ChangePrompt(waiting.id, delivery="merge"))
            gate.set()
            assert (await done(first)).result == "Both."
            assert (await done(second)).result == "Both."


async def until_queued(client: Any) -> None:
    async with asyncio.timeout(20):
        while not (await client.snapshot()).queue:
            await asyncio.sleep(0.01)


async def test_what_waits_when_the_session_closes_is_told_so_and_kept(configure: Configure) -> None:
    with ScriptedServer([say("Never.").stall(), say("Later.")]) as server:
        session = odin.new(options=configure(server))
        first, second = session.query("1"), session.query("2")
        await until(lambda: len(server.requests) == 1)
        client = await session.open()
        await until_queued(client)
        assert await session.close(20)
        assert (await done(first)).exit_reason == "aborted"
        result = await done(second)
        assert (result.exit_reason, result.error_kind) == ("aborted", "AgentShutdown")
        assert isinstance(second.last_error, AgentShutdown)
        with pytest.raises(AgentShutdown):
            await done(session.query("3"))
        async with odin.new(options=configure(server, resume=first.session_id)) as again:
            (waiting,) = (await (await again.open()).snapshot()).queue
            assert waiting.body == "2"


CUT = say("A beginning", stop="max_tokens")
LOOK = call("LS", {"path": "/"})


@pytest.mark.parametrize(
    ("script", "options", "reason", "subtype"),
    [
        ([say("Done.")], {}, "end_turn", "success"),
        ([CUT], {}, "max_tokens", "error_during_execution"),
        ([LOOK, say("never")], {"max_turns": 1}, "max_turns", "error_max_turns"),
    ],
)
async def test_every_end_has_a_result_with_all_its_fields(
    configure: Configure, script: list[Any], options: dict[str, Any], reason: str, subtype: str
) -> None:
    with ScriptedServer(script) as server:
        query = odin.query("Go.", configure(server, **options))
        result = await done(query)
    assert (result.exit_reason, result.subtype, result.is_error) == (reason, subtype, reason != "end_turn")
    assert (result.num_turns, query.turn_count) == (1, 1)
    assert result.duration_ms >= result.duration_api_ms >= 0
    assert result.usage["input_tokens"] > 0
    assert result.total_cost_usd > 0
    assert bool(result.errors) == (reason != "end_turn")
