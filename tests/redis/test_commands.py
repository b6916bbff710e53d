"""Commands from Redis: what each right allows, who answered, and that none is carried out twice."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.core.call_events import PermissionAnswered, PermissionAsked, RuleAdded
from odin.core.event import PermissionModeChanged, TitleSet, TurnStarted
from odin.core.op import AddRule, Answer, Interrupt, Op, Prompt, SetPermissionMode, SetTitle
from odin.testing import call, say
from tests.waiting import until

from .conftest import Publish, PublishedSession, RedisServer


class Sender:
    """A program that sends commands to a session and reads the results."""

    def __init__(self, redis: Any, key: str) -> None:
        self._redis = redis
        self._key = key
        self.sent = 0

    async def send(self, op: Op | str, **fields: str) -> dict[str, str]:
        raw = op if isinstance(op, str) else msgspec.json.encode(op).decode()
        entry = self._redis.xadd(f"{self._key}:ops", {"op": raw, "id": f"c{self.sent}", **fields})
        self.sent += 1
        await until(lambda: entry in self.results)
        return self.results[entry]

    @property
    def results(self) -> dict[str, dict[str, str]]:
        return {fields.pop("entry"): fields for _, fields in self._redis.xrange(f"{self._key}:results")}


async def wait_until_heard(redis: Any, session: PublishedSession) -> Sender:
    await until(lambda: redis.zcard("odin:sessions"))
    await until(lambda: any(client["cmd"] == "xread" for client in redis.client_list()))
    return Sender(redis, session.key)


def find_events(session: PublishedSession, kind: type[Any]) -> list[Any]:
    return [envelope.event for envelope in session.read_log() if isinstance(envelope.event, kind)]


async def test_prompts_are_taken_and_decisions_are_not(publish: Publish, server: RedisServer, redis: Any) -> None:
    session: PublishedSession = await publish([say("one"), say("two")], url=server.url, accept="prompt")
    sender = await wait_until_heard(redis, session)
    assert await sender.send(Prompt("p1", "from afar", "edit_mode")) == {"id": "c0", "status": "ok"}
    await until(lambda: session.ended)
    started = find_events(session, TurnStarted)[0]
    assert (started.text, started.source) == ("from afar", "channel"), "the log says who wrote it"
    assert await sender.send(Interrupt()) == {"id": "c1", "status": "nothing"}
    assert await sender.send(SetTitle("Far")) == {"id": "c2", "status": "ok"}
    problems = {
        msgspec.json.encode(AddRule("Bash", "allow")).decode(): "AddRule needs redis.accept to be approve, and it is",
        msgspec.json.encode(Answer("ask-1", "allow_once")).decode(): "Answer needs redis.accept to be approve",
        msgspec.json.encode(Prompt("p2", "", "edit_mode")).decode(): "The prompt is empty.",
        '{"type": "Format", "disk": "all"}': "The op cannot be read: Invalid value 'Format' - at `$.type`.",
        '{"type": "SetTitle"}': "The op cannot be read: Object missing required field `title`.",
        "[" * 100_000: "The op cannot be read:",
        "\udcff": "The op cannot be read:",
        "x" * 1_000_001: "The op has 1,000,001 bytes; 1,000,000 is the limit.",
    }
    for raw, problem in problems.items():
        result = await sender.send(raw if raw != "\udcff" else b"\xff")  # pyright: ignore[reportArgumentType]
        assert result["status"] == "error"
        assert result["error"].startswith(problem)
    entry = redis.xadd(f"{session.key}:ops", {"what": "is this"})
    await until(lambda: entry in sender.results)
    assert sender.results[entry]["error"] == "The entry has no field op."
    assert find_events(session, RuleAdded) == []
    assert [event.title for event in find_events(session, TitleSet)][-1] == "Far"
    assert (await session.ask("and here")).text == "two"


@pytest.mark.parametrize("accept", ["none", "prompt"])
async def test_without_the_right_nobody_is_asked(
    publish: Publish, server: RedisServer, redis: Any, workspace: Path, accept: str
) -> None:
    """An unattended session refuses at once what needs approval, as it does without Redis."""
    turns = [call("ExecuteCommand", {"command": "touch made"}), say("done")]
    session: PublishedSession = await publish(turns, url=server.url, accept=accept, options={"yes": False})
    await until(lambda: redis.zcard("odin:sessions"))
    assert (await session.ask("do it")).reason == "end_turn"
    assert find_events(session, PermissionAsked) == []
    assert not (workspace / "made").exists()
    assert redis.exists(f"{session.key}:results") == 0


async def test_an_approver_answers_and_the_log_says_who(
    publish: Publish, server: RedisServer, redis: Any, workspace: Path
) -> None:
    turns = [call("ExecuteCommand", {"command": "touch made"}), say("done")]
    session: PublishedSession = await publish(turns, url=server.url, accept="approve", options={"yes": False})
    sender = await wait_until_heard(redis, session)
    await sender.send(Prompt("p1", "do it", "edit_mode"))
    await until(lambda: find_events(session, PermissionAsked))
    asked = find_events(session, PermissionAsked)[0]
    assert not (workspace / "made").exists()
    answer = Answer(asked.ask_id, "allow_once", by="user")
    assert (await sender.send(answer, by="alice\n"))["status"] == "ok"
    assert (await sender.send(answer, by="bob"))["status"] == "nothing"
    await until(lambda: session.ended)
    answered = find_events(session, PermissionAnswered)
    assert [(event.by, event.client) for event in answered] == [("user", "Redis (alice)")]
    assert (workspace / "made").exists()
    assert (await sender.send(SetPermissionMode("acceptEdits")))["status"] == "ok"
    assert find_events(session, PermissionModeChanged)[-1].mode == "acceptEdits"


async def test_nobody_is_waited_for_while_redis_is_away(
    publish: Publish, server: RedisServer, redis: Any, workspace: Path
) -> None:
    turns = [call("ExecuteCommand", {"command": "touch made"}), say("done")]
    options = {"yes": False, "headless": True}
    session: PublishedSession = await publish(turns, url=server.url, accept="approve", options=options)
    await wait_until_heard(redis, session)
    asking = session.ask("do it")

    async def break_it() -> None:
        await until(lambda: find_events(session, PermissionAsked))
        server.signal(9)

    ended, _ = await asyncio.gather(asking, break_it())
    assert ended.reason == "end_turn"
    assert [event.by for event in find_events(session, PermissionAnswered)] == ["nobody"]
    assert not (workspace / "made").exists()
    server.start()
    await until(lambda: [warning.level for warning in session.warnings] == ["warn", "info"])
    assert session.client.session.deps.interactions.can_ask


async def test_commands_are_carried_out_once_and_old_ones_never(
    publish: Publish, server: RedisServer, redis: Any
) -> None:
    """Not those from before the session was opened, and none again after the connection was lost."""
    redis.xadd("odin:mine:ops", {"op": json.dumps({"type": "SetTitle", "title": "old"}), "id": "old"})
    session: PublishedSession = await publish([], url=server.url, accept="prompt", options={"session_id": "mine"})
    sender = await wait_until_heard(redis, session)
    await sender.send(SetTitle("one"))
    redis.client_kill_filter(_type="normal", skipme=True)
    await sender.send(SetTitle("two"))
    assert [event.title for event in find_events(session, TitleSet)] == ["one", "two"]
    assert [result["id"] for result in sender.results.values()] == ["c0", "c1"]
