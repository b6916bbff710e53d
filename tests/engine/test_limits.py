"""Limits of a turn, parameters of a request, and the snapshot and log of a session."""

import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import ActivityChanged, ToolEnded
from odin.core.event import Envelope, NoteAdded, TurnEnded, TurnStarted
from odin.engine.event_bus import EventBus
from odin.engine.recorder import Recorder
from odin.session.state import SessionState
from odin.testing import call, fault, reply, say

from .conftest import Start
from .test_turn import list_tool_results


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{}, {"max_turns": 0}])
async def test_model_calls_are_unlimited_by_default(start: Start, limit: dict[str, int]) -> None:
    """C29: a long task is not cut off; only the repetition guard and the budget limit it."""
    numbers = itertools.count()

    def play(seen: Any) -> Any:
        number = next(numbers)
        return call("LS", {"path": f"{number}"}) if number < 105 else say("at last")

    talk = await start(play, **limit)
    ended = await talk.say("go")
    assert (ended.reason, ended.text, ended.steps) == ("end_turn", "at last", 106)


async def test_blank_text_after_tools_gives_the_default_response(start: Start, workspace: Path) -> None:
    look = call("LS", {"path": str(workspace)}, text="Looking.")
    talk = await start([look, say(" \n "), say("\n\n")], config={"default_response": "Nothing to say."})
    ended = await talk.say("go")
    assert (ended.reason, ended.text) == ("end_turn", "Nothing to say.")


class TestRepetition:
    async def test_repeated_call_is_allowed_between_many_other_calls(self, start: Start, workspace: Path) -> None:
        same = call("LS", {"path": str(workspace)})
        script: list[Any] = []
        for number in range(7):
            (workspace / f"f.{number}").write_text(f"x{number}\n")
            script += [same, call("Glob", {"pattern": f"*.{number}"}), call("Grep", {"pattern": f"x{number}"})]
        talk = await start([*script, say("ok")])
        assert (await talk.say("go")).text == "ok"
        assert {event.status for event in talk.all(ToolEnded) if event.name == "LS"} == {"success"}

    async def test_repeated_calls_in_one_reply_get_errors_but_the_turn_continues(
        self, start: Start, workspace: Path
    ) -> None:
        calls = [call("LS", {"path": str(workspace)}, id=f"id_{number}") for number in range(12)]
        talk = await start([reply(calls=calls), say("ok")])
        ended = await talk.say("go")
        assert (ended.reason, ended.text) == ("end_turn", "ok")
        results = list_tool_results(talk.server.requests[1].json)
        assert [is_error for _, _, is_error in results] == [False] * 4 + [True] * 8
        assert all("loop detected" in text for _, text, _ in results[4:])


class TestRequest:
    def model_config(self, **facts: Any) -> dict[str, Any]:
        return {"providers": {"anthropic": {"models": {"m": facts}}}}

    @pytest.mark.parametrize(("max_output", "wanted", "sent"), [(1000, 5000, 1000), (1000, 300, 300), (0, 5000, 5000)])
    async def test_max_tokens_is_bounded_by_max_output_of_the_model(
        self, start: Start, max_output: int, wanted: int, sent: int
    ) -> None:
        config = {**self.model_config(max_output=max_output), "max_tokens": wanted}
        talk = await start([say("hi")], config=config, model="anthropic/m")
        await talk.say("hello")
        assert talk.server.requests[0].json["max_tokens"] == sent

    async def test_the_temperature_is_sent_when_it_is_set(self, start: Start) -> None:
        warm = await start([say("hi")], config={"temperature": 0.25}, model="anthropic/m")
        await warm.say("hello")
        plain = await start([say("hi")], model="anthropic/m")
        await plain.say("hello")
        assert warm.server.requests[0].json["temperature"] == 0.25
        assert "temperature" not in plain.server.requests[0].json

    @pytest.mark.parametrize("able", [True, False])
    async def test_thinking_is_requested_only_from_models_that_support_it(self, start: Start, able: bool) -> None:
        talk = await start(
            [say("hi")], config={**self.model_config(thinking=able), "thinking": 2000}, model="anthropic/m"
        )
        await talk.say("hello")
        asked = talk.server.requests[0].json.get("thinking")
        assert asked == ({"type": "enabled", "budget_tokens": 2000} if able else None)


class TestActivity:
    async def test_retries_are_numbered_and_the_last_activity_is_idle(self, start: Start) -> None:
        talk = await start([fault(503), fault(503), say("fine")])
        await talk.say("one")
        heard = talk.all(ActivityChanged)
        assert [event.detail for event in heard if event.activity == "retrying"] == ["retry 1/6", "retry 2/6"]
        await talk.client.close()
        rest = [envelope.event async for envelope in talk.remaining()]
        last = [event for event in (*talk.events, *rest) if isinstance(event, ActivityChanged)][-1]
        assert last.activity == "idle"


class TestSnapshot:
    async def test_message_count_is_minus_one_before_the_first_prompt(self, start: Start, workspace: Path) -> None:
        talk = await start([call("LS", {"path": str(workspace)}), say("ok"), say("ok")])
        counts = [(await talk.client.snapshot()).message_count]
        for text in ("one", "two"):
            await talk.say(text)
            counts.append((await talk.client.snapshot()).message_count)
        assert counts == [-1, 4, 6]

    async def test_mode_is_sent_only_when_it_changes(self, start: Start) -> None:
        talk = await start([say("ok")] * 5)
        for mode in ("edit_mode", "edit_mode", "ask_mode", "ask_mode", "edit_mode"):
            await talk.say("hi", mode)
        counts = [request.body.count(b"The mode is now ") for request in talk.server.requests]
        assert counts == [0, 0, 1, 1, 2]
        assert b"The mode is now ask_mode." in talk.server.requests[2].body
        assert talk.server.requests[4].body.count(b"The mode is now edit_mode.") == 1

    async def test_queued_prompt_has_a_timestamp(self, start: Start) -> None:
        gate = threading.Event()
        talk = await start([say("one").hold(gate), say("two")])
        await talk.submit("a")
        before = time.time()
        second = await talk.submit("b")
        (queued,) = (await talk.client.snapshot()).queue
        assert before <= queued.timestamp <= time.time()
        gate.set()
        await talk.until_end(second)


async def test_continue_skips_a_damaged_log(start: Start, home: Path) -> None:
    talk = await start([say("one"), say("two")])
    await talk.say("first")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    (log,) = home.rglob("main.jsonl")
    damaged = log.parent.with_name("damaged") / log.name
    damaged.parent.mkdir()
    damaged.write_text("not a log\n")
    os.utime(log, (1000, 1000))
    again = await start(None, server=talk.server, continue_last=True)
    assert (await again.client.get_info()).session == session
    assert (await again.say("second")).text == "two"
    assert b"first" in talk.server.requests[1].body


class Journal:
    """A log that records its calls in memory."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def append(self, envelope: Envelope) -> None:
        self.done.append(type(envelope.event).__name__)

    def sync(self) -> None:
        self.done.append("sync")

    def close(self) -> None:
        self.done.append("close")


def test_the_log_is_synced_when_a_turn_starts_and_ends() -> None:
    journal = Journal()
    recorder = Recorder(journal, SessionState("s"), EventBus())
    for event in (
        TurnStarted("p", "hi", "edit_mode"),
        NoteAdded("x"),
        ActivityChanged("idle"),
        TurnEnded("p", "end_turn"),
    ):
        recorder.emit(event)
    recorder.close()
    assert journal.done == ["TurnStarted", "sync", "NoteAdded", "TurnEnded", "sync", "close"]
