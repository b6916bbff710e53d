"""What is published, and how: the stream, the channel of transient events, the snapshot, the open sessions."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.core.call_events import ReplyDrafted, TextStreamed
from odin.core.client import Snapshot
from odin.core.event import Envelope, TurnEnded
from odin.core.op import SetTitle
from odin.policy.secrets import Redactor
from odin.redis.entry import EntryEncoder, StreamEntry
from odin.testing import Turn, call, say
from tests.waiting import until

from .conftest import FAST, Publish, PublishedSession, RedisServer, read_channel, read_last_id, read_stream

SECRET = "tok-Zq8rT5wY2uI9oP3a"
PHRASE = "correct horse 42 battery staple"
SECRETS = {"DEPLOY_TOKEN": SECRET, "DB_PASSWORD": PHRASE}


async def wait_for_all(redis: Any, session: PublishedSession) -> None:
    await until(lambda: len(read_stream(redis, session.key)) == len(session.read_log()))


async def test_the_stream_is_the_log_and_the_snapshot_the_last_state(
    publish: Publish, server: RedisServer, redis: Any
) -> None:
    turns = [call("ExecuteCommand", {"command": "echo hi"}), call("ExecuteCommand", {"command": "exit 3"}), say("done")]
    session: PublishedSession = await publish(turns, url=server.url)
    await until(lambda: redis.zrange("odin:sessions", 0, -1) == [session.id])
    ended = await session.ask("do it")
    await session.client.close()
    entries = redis.xrange(session.key)
    assert read_stream(redis, session.key) == session.read_lines()
    assert [entry for entry, _ in entries] == [f"{number}-1" for number in range(len(entries))]
    told = [(json.loads(fields["envelope"])["event"], fields) for _, fields in entries]
    of_tools = [(event["type"], event.get("status")) for event, fields in told if fields["topic"] == "tool"]
    assert of_tools == [("ToolStarted", None), ("ToolEnded", "success"), ("ToolStarted", None), ("ToolEnded", "error")]
    assert {fields["topic"] for _, fields in told} == {"tool", "agent"}
    assert [fields.get("message") for _, fields in told] == [None] + [ended.id] * (len(told) - 1)
    snapshot = json.loads(redis.get(f"{session.key}:snapshot"))
    assert set(snapshot) == set(Snapshot.__struct_fields__)
    assert (snapshot["seq"], snapshot["executing"]) == (len(entries) - 1, False)
    assert snapshot["messages"][0]["answer_summary"] == "done"
    assert redis.zrange("odin:sessions", 0, -1) == []
    assert 0 < redis.ttl(session.key) <= 168 * 3600


async def test_chunks_are_published_on_a_channel_as_they_arrive(
    publish: Publish, server: RedisServer, redis: Any
) -> None:
    with redis.pubsub() as channel:
        channel.psubscribe("odin:*")
        text = "one two three " * 40
        session: PublishedSession = await publish([say("first"), say(text, chunk=5)], url=server.url)
        await session.ask("once")
        await wait_for_all(redis, session)
        await session.ask("again")
        await session.client.close()
        heard = read_channel(redis, channel)
    live = [json.loads(text) for name, text in heard if name == f"{session.key}:live"]
    chunks = [item["event"]["text"] for item in live if item["event"]["type"] == "TextStreamed" and item["seq"] > 2]
    assert "".join(chunks).endswith(text)
    assert not {item["event"]["type"] for item in live} & {"TurnStarted", "TurnEnded", "Replied"}
    pushed = [int(text) for name, text in heard if name == f"{session.key}:snapshot"]
    assert pushed == sorted(pushed)
    assert pushed[-1] == session.read_log()[-1].seq


async def test_secrets_never_reach_redis(publish: Publish, server: RedisServer, redis: Any) -> None:
    """Neither those in prompts, arguments, answers and titles, which the log has, nor the password of Redis itself."""
    password = "pw-Kd93jfLq02mX"
    redis.acl_setuser(
        "odin", enabled=True, passwords=[f"+{password}"], keys=["*"], channels=["*"], categories=["+@all"]
    )
    told = f"use {SECRET} and {PHRASE} and {password}"
    turns = [call("ExecuteCommand", {"command": f"echo {SECRET}"}), say(f"I used {told} now", chunk=3)]
    with redis.pubsub() as channel:
        channel.psubscribe("odin:*")
        session: PublishedSession = await publish(
            turns, env=SECRETS, url=server.url, username="odin", password=password, accept="prompt"
        )
        await until(lambda: redis.zcard("odin:sessions"))
        redis.xadd(f"{session.key}:ops", {"op": f'{{"type":"SetTitle","title":"{told}"}}', "id": "1"})
        redis.xadd(f"{session.key}:ops", {"op": f'{{"type":"SetTitle","title":["{told}"]}}', "id": "2"})
        await session.ask(told)
        await until(lambda: redis.xlen(f"{session.key}:results") == 2)
        await session.client.close()
        heard = [text for _, text in read_channel(redis, channel)]
    log = Path(session.client.session.log).read_text()
    assert SECRET in log
    assert PHRASE in log
    redis.delete(f"{session.key}:ops")  # what its sender wrote
    stored = {key: _read_key(redis, key) for key in redis.scan_iter("*")}
    assert len(stored) == 3
    for name, text in {**stored, "channels": " ".join(heard)}.items():
        assert "[redacted: DEPLOY_TOKEN]" in text or name.endswith("results"), name
        for secret in (SECRET, PHRASE, password):
            assert secret not in text, name
    chunks = [json.loads(text)["event"] for text in heard if text.startswith("{")]
    answer = "".join(event["text"] for event in chunks if event["type"] == "TextStreamed")
    assert answer.startswith("I used use [redacted: DEPLOY_TOKEN] and [redacted: DB_PASSWORD] and [redacted: ")


def _read_key(redis: Any, key: str) -> str:
    kind = redis.type(key)
    return str(redis.xrange(key) if kind == "stream" else redis.get(key))


@pytest.mark.parametrize("drafted", [False, True])
def test_a_secret_that_is_cut_into_chunks_is_redacted(drafted: bool) -> None:
    """Wherever it is cut, also where the text before it says that it is one."""
    key = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"
    block = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"] * 3) + "\n"
    block += "-----END PRIVATE KEY-----"
    texts = [f"a {secret}. The rest." for secret in (SECRET, PHRASE, key, block, "password: 8fj2Kd93jfLq02mX")]
    for text in texts:
        redactor = Redactor(SECRETS)
        for at in range(len(text)):
            pieces = [text[:at], text[at : at + 4], text[at + 4 :]]
            encoder = EntryEncoder(redactor)
            published: list[str] = []
            start = 0
            for number, piece in enumerate(filter(None, pieces)):
                event = ReplyDrafted(piece, start) if drafted else TextStreamed(piece)
                start += len(piece)
                entries = encoder.encode_events([Envelope(number, 0.0, "s", event)], -1)
                published += [json.loads(entry.envelope)["event"]["text"] for entry in entries]
            if not drafted:
                ended = encoder.encode_events([Envelope(9, 0.0, "s", TurnEnded("t", "end_turn"))], -1)
                published += [json.loads(entry.envelope)["event"]["text"] for entry in ended[:-1]]
            assert redactor.hide(text).startswith("".join(published)), (text, at)
            assert drafted or redactor.hide(text) == "".join(published)


async def test_a_resumed_session_goes_on_where_redis_is(publish: Publish, server: RedisServer, redis: Any) -> None:
    session: PublishedSession = await publish([say("one")], url=server.url)
    await session.ask("a")
    await session.client.close()
    count = redis.xlen(session.key)
    resumed: PublishedSession = await publish([say("two")], url=server.url, options={"resume": session.id})
    await resumed.ask("b")
    await resumed.client.close()
    assert read_stream(redis, session.key) == resumed.read_lines()
    assert redis.xlen(session.key) > count


async def test_a_stream_of_another_log_is_not_continued(publish: Publish, server: RedisServer, redis: Any) -> None:
    redis.xadd("odin:mine", {"envelope": "{}"}, "900-1")
    session: PublishedSession = await publish([say("one")], url=server.url, options={"session_id": "mine"})
    await session.ask("a")
    await until(lambda: session.warnings)
    assert "are not in its log" in session.warnings[0].text
    assert session.warnings[0].text.endswith("Delete the key odin:mine of Redis.")
    redis.delete("odin:mine")
    await until(lambda: read_stream(redis, "odin:mine") == session.read_lines())


async def test_the_stream_is_bounded_and_repaired(publish: Publish, server: RedisServer, redis: Any) -> None:
    session: PublishedSession = await publish([], url=server.url, max_events=100)
    for number in range(500):
        await session.client.submit(SetTitle(f"title {number}"))
    last = session.read_log()[-1].seq
    await until(lambda: read_last_id(redis, session.key) == f"{last}-1")
    assert 100 <= redis.xlen(session.key) <= 300
    redis.delete(session.key)
    await session.client.submit(SetTitle("after the deletion"))
    await until(lambda: redis.exists(session.key) and redis.xrevrange(session.key, count=1)[0][0] == f"{last + 1}-1")
    assert read_stream(redis, session.key)[-100:] == session.read_lines()[-100:]


async def test_the_publisher_keeps_no_session_open_and_leaves_nothing_of_an_unused_one(
    publish: Publish, server: RedisServer, redis: Any
) -> None:
    session: PublishedSession = await publish([], url=server.url)
    await until(lambda: redis.zcard("odin:sessions"))
    await session.client.close()
    assert session.client.session.is_closing
    assert redis.keys("*") == []


@pytest.mark.parametrize("turns", [[], [say("one")]], ids=["unused", "idle"])
async def test_nothing_is_done_while_nothing_happens(
    publish: Publish, server: RedisServer, redis: Any, monkeypatch: pytest.MonkeyPatch, turns: list[Turn]
) -> None:
    session: PublishedSession = await publish(turns, url=server.url, options={"timing": replace(FAST, redis_beat_s=99)})
    for _ in turns:
        await session.ask("a")
    await until(lambda: redis.zcard("odin:sessions"))
    await until(lambda: not turns or redis.exists(f"{session.key}:snapshot"))
    rounds: list[int] = []
    encode = EntryEncoder.encode_events

    def count(encoder: EntryEncoder, envelopes: Sequence[Envelope], after: int) -> list[StreamEntry]:
        rounds.append(1)
        return encode(encoder, envelopes, after)

    monkeypatch.setattr(EntryEncoder, "encode_events", count)
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert len(rounds) < 5


async def test_a_dead_process_vanishes_from_the_open_sessions(
    publish: Publish, server: RedisServer, redis: Any
) -> None:
    now, _ = redis.time()
    redis.zadd("odin:sessions", {"dead": now - 1, "alive": now + 1000})
    session: PublishedSession = await publish([], url=server.url)
    await until(lambda: redis.zrange("odin:sessions", 0, -1) == sorted([session.id, "alive"]) or None)
    assert redis.ttl("odin:sessions") >= 0


async def test_without_snapshots_there_is_none(publish: Publish, server: RedisServer, redis: Any) -> None:
    session: PublishedSession = await publish([say("x")], url=server.url, snapshots=False, prefix="my-odin", keep_h=0)
    await session.ask("a")
    await session.client.close()
    assert redis.keys("*") == [f"my-odin:{session.id}"]
    assert redis.ttl(f"my-odin:{session.id}") == -1


async def test_many_sessions_of_a_process_are_published_each_to_its_stream(
    publish: Publish, server: RedisServer, redis: Any
) -> None:
    sessions = [await publish([say(f"answer {number}")], url=server.url) for number in range(3)]
    await asyncio.gather(*(session.ask("a") for session in sessions))
    for session in sessions:
        await wait_for_all(redis, session)
        assert read_stream(redis, session.key) == session.read_lines()
    await until(lambda: redis.zcard("odin:sessions") == 3)
