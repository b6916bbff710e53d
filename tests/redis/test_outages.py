"""A session never notices Redis: how it can fail in the middle of a turn, and what is there afterwards."""

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from odin.core.call_events import TodosChanged, ToolProgressed
from odin.core.event_values import Todo
from odin.core.op import SetTitle
from odin.redis.publisher import MAX_WAITING, Publisher
from odin.redis.settings import RedisSettings
from odin.testing import call, say
from tests.waiting import LIMIT_S, until

from .conftest import FAST, Publish, PublishedSession, RedisServer, read_last_id, read_stream

USER = ("odin", "pw-Kd93jfLq02mX")


def stop(server: RedisServer, redis: Any) -> None:
    server.signal(signal.SIGSTOP)


def go_on(server: RedisServer, redis: Any) -> None:
    server.signal(signal.SIGCONT)


def kill(server: RedisServer, redis: Any) -> None:
    server.signal(signal.SIGKILL)


def start(server: RedisServer, redis: Any) -> None:
    server.start()
    permit(redis)


def permit(redis: Any, *rules: str) -> None:
    redis.execute_command(
        "ACL", "SETUSER", USER[0], "reset", "on", f">{USER[1]}", "~odin:*", "&odin:*", "+@all", *rules
    )
    if rules:
        redis.execute_command("CLIENT", "KILL", "USER", USER[0])


def fill(server: RedisServer, redis: Any) -> None:
    redis.config_set("maxmemory", "1")


def empty(server: RedisServer, redis: Any) -> None:
    redis.config_set("maxmemory", "0")


def make_replica(server: RedisServer, redis: Any) -> None:
    redis.replicaof("127.0.0.1", "1")


def make_primary(server: RedisServer, redis: Any) -> None:
    redis.replicaof("NO", "ONE")


def forbid(server: RedisServer, redis: Any) -> None:
    permit(redis, "-xadd")


def allow(server: RedisServer, redis: Any) -> None:
    permit(redis)


def change_password(server: RedisServer, redis: Any) -> None:
    permit(redis, f"<{USER[1]}", ">another")


Change = Callable[[RedisServer, Any], None]


@pytest.mark.parametrize(
    ("break_it", "heal", "said"),
    [
        (stop, go_on, "does not answer. … Check the server and redis.url."),
        (kill, start, "cannot be reached: Connection refused. … Start it, or check redis.url."),
        (fill, empty, "is out of memory. … Raise its maxmemory, or lower redis.max_events."),
        (make_replica, make_primary, "is a replica that cannot be written. … Set redis.url to the primary server."),
        (forbid, allow, "does not permit a command: this user has no permissions to run the 'xadd' command. … Allow"),
        (change_password, allow, "refuses the user or the password. … Check redis.username and redis.password, or"),
    ],
    ids=["hangs", "killed", "full", "read-only", "no permission", "wrong password"],
)
async def test_an_outage_in_the_middle_of_a_turn(
    publish: Publish, server: RedisServer, redis: Any, break_it: Change, heal: Change, said: str
) -> None:
    """The turn ends as ever, the user is told once, and afterwards Redis has every event once. A killed server, which
    keeps nothing here, gets all of them again."""
    permit(redis)

    async def break_at_the_second_call(tool: Any, args: Any, context: Any) -> None:
        if args.command == "echo 2":
            await until(lambda: redis.xlen(session.key) > 3)
            break_it(server, redis)

    timing = replace(FAST, redis_answer_s=1.0) if break_it is stop else FAST
    turns = [*(call("ExecuteCommand", {"command": f"echo {number}"}) for number in range(4)), say("done"), say("again")]
    session: PublishedSession = await publish(
        turns,
        url=server.url,
        username=USER[0],
        password=USER[1],
        before_call=[break_at_the_second_call],
        options={"timing": timing},
    )
    ended = await session.ask("work")
    assert (ended.reason, ended.text, ended.steps) == ("end_turn", "done", 5)
    await until(lambda: session.warnings)
    before, _, after = said.partition(" … ")
    told = session.warnings[0]
    assert told.level == "warn"
    assert f"Redis at {server.socket} {before}" in told.text
    assert f"The session goes on; what Redis misses is published when it is back. {after}" in told.text
    await asyncio.sleep(0)
    assert len(session.warnings) == 1
    heal(server, redis)
    await until(lambda: len(session.warnings) == 2)
    assert session.warnings[1].level == "info"
    assert session.warnings[1].text == "Redis is back: the events that it missed were published."
    await until(lambda: read_stream(redis, session.key) == session.read_lines())  # the title comes later
    await session.ask("more")
    await session.client.close()
    assert read_stream(redis, session.key) == session.read_lines()
    assert redis.get(f"{session.key}:snapshot") is not None
    assert len(session.warnings) == 2


async def test_nobody_is_told_of_an_outage_that_the_second_attempt_ends(
    publish: Publish, server: RedisServer, redis: Any
) -> None:
    session: PublishedSession = await publish([say("one"), say("two")], url=server.url)
    await session.ask("a")
    await until(lambda: read_last_id(redis, session.key))
    redis.client_kill_filter(_type="normal", skipme=True)
    await session.ask("b")
    await until(lambda: len(read_stream(redis, session.key)) == len(session.read_log()))
    assert session.warnings == []


async def test_a_server_that_was_never_there_delays_nothing(publish: Publish, server: RedisServer) -> None:
    server.signal(signal.SIGKILL)
    session: PublishedSession = await publish([say("one")], url=server.url)
    assert (await session.ask("a")).text == "one"
    await until(lambda: session.warnings)
    assert await session.client.close(LIMIT_S)
    assert len(session.warnings) == 1


async def test_a_session_is_closed_although_redis_hangs(publish: Publish, server: RedisServer, redis: Any) -> None:
    """It waits for `redis_end_s`; what did not get through is there when the session is resumed."""
    timing = replace(FAST, redis_end_s=0.05)
    session: PublishedSession = await publish([say("one")], url=server.url, options={"timing": timing})
    await session.ask("a")
    await until(lambda: len(read_stream(redis, session.key)) == len(session.read_log()))
    server.signal(signal.SIGSTOP)
    await session.client.submit(SetTitle("unsent"))
    assert await session.client.close(LIMIT_S)
    server.signal(signal.SIGCONT)
    resumed: PublishedSession = await publish([say("two")], url=server.url, options={"resume": session.id})
    await resumed.ask("b")
    await resumed.client.close()
    assert read_stream(redis, session.key) == resumed.read_lines()


async def test_memory_is_bounded_while_redis_hangs(publish: Publish, server: RedisServer, redis: Any) -> None:
    """Transient events are dropped first; durable ones are read from the log when Redis is back."""
    session: PublishedSession = await publish([say("one")], url="")
    await session.ask("a")
    recorder, guest = session.client.session.deps.recorder, session.client.session.attach(answers=False, guest=True)
    settings, redact = RedisSettings(url=server.url), session.client.session.deps.redact
    timing = replace(FAST, redis_pauses_s=(0.01, 0.01))
    publisher = Publisher(guest, session.id, settings, redact, lambda text, level: None, timing)
    await until(lambda: len(read_stream(redis, session.key)) == len(session.read_log()))
    server.signal(signal.SIGSTOP)
    await session.client.submit(SetTitle("the one that is on its way"))
    for number in range(3 * MAX_WAITING):
        recorder.emit(ToolProgressed("1", "x", f"{number}"))
        recorder.emit(TodosChanged((Todo(str(number), "x", "pending"),)))
        await asyncio.sleep(0)
        assert publisher.waiting <= MAX_WAITING
    assert publisher.dropped >= MAX_WAITING // 2
    server.signal(signal.SIGCONT)
    last = session.read_log()[-1].seq
    await until(lambda: read_last_id(redis, session.key) == f"{last}-1")
    assert read_stream(redis, session.key) == session.read_lines()
    await publisher.close()


async def test_without_the_package_the_user_is_told_how_to_get_it(
    publish: Publish, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "odin.redis.connection", None)
    monkeypatch.delattr("odin.redis.connection", raising=False)
    session: PublishedSession = await publish([say("one")], url=server.url)
    assert (await session.ask("a")).text == "one"
    await until(lambda: session.warnings)
    assert session.warnings[0].text.startswith("Publishing to Redis needs the package redis. The session goes on;")
    assert session.warnings[0].text.endswith("Install odin-code[redis], or remove redis.url.")
