"""Whatever happens to connections, clients and servers: each event is seen once, each op takes effect once."""

import asyncio
import random
import socket
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from odin.core.call_events import PermissionAnswered, PermissionAsked, Replied
from odin.core.errors import OdinError, UsageError
from odin.core.event import ContextAdded, PromptQueued, TitleSet, TurnEnded, TurnStarted
from odin.core.op import Answer, Interrupt, Prompt, RunUserShell, SetTitle
from odin.server.feed import encode_envelope
from odin.testing import ScriptedServer, SeenRequest, Turn, call, say
from odin.testing.script import get_content_text
from tests.remote.bad_network import worsen
from tests.remote.served import Watcher, make_options, serve
from tests.soak import list_seeds, soak
from tests.waiting import TimeLimit, until

LONG = " ".join(f"word{number}" for number in range(200))


class Model:
    """Answers by the last prompt: `long`, `write`, `wait` (until `gate` is set), and other words at once."""

    def __init__(self, workspace: Path) -> None:
        self.gate = threading.Event()
        self.workspace = workspace

    def __call__(self, seen: SeenRequest) -> Turn:
        if seen.results and seen.messages[-1]["role"] == "user" and "tool_result" in str(seen.messages[-1]):
            return say("It is written.", chunk=3)
        text = get_content_text(seen.messages[-1]["content"])
        if "long" in text:
            return say(LONG, chunk=9).pace(0.002)
        if "write" in text:
            return call(
                "WriteFile", {"file_path": str(self.workspace / "written"), "content": "x"}, text="I will write."
            )
        if "wait" in text:
            return say(LONG, chunk=9).hold(self.gate, after=30)
        return say("Here you are.", chunk=2)


@soak
@pytest.mark.parametrize("seed", list_seeds(sample=20, full=200))
async def test_nothing_is_lost_or_doubled_on_a_bad_network(seed: int, workspace: Path) -> None:
    model = Model(workspace)
    with ScriptedServer(model) as server:
        async with serve(server, workspace) as served, worsen(served.port, str(seed)) as (network, port):
            session = await served.create()
            client = served.attach(session, port=port)
            watcher, other = Watcher(client), Watcher(served.attach(session, "bob:view"))

            assert await client.submit(Prompt("p1", "long"))
            await client.submit(Prompt("p2", "write", delivery="queue"))
            await client.submit(SetTitle("A title"))
            await client.submit(RunUserShell("sh1", "echo once >> shell.txt"))
            await until(lambda: watcher.find(PermissionAsked))
            asked = watcher.find(PermissionAsked)[0]
            assert await client.submit(Answer(asked.ask_id, "allow_once"))
            await until(lambda: watcher.count(TurnEnded) == 2)
            await client.submit(Prompt("p3", "wait"))
            await client.submit(Prompt("p4", "more", delivery="queue"))
            await until(lambda: len([one for one in watcher.find(TurnStarted) if one.id == "p3"]))
            await until(lambda: other.shown)
            assert await client.submit(Interrupt(queue="keep"))
            await until(lambda: watcher.count(TurnEnded) == 4)
            assert (await client.snapshot()).title == "A title"
            model.gate.set()
            await until(lambda: watcher.seen[-1].seq == other.seen[-1].seq == served.read_log(session)[-1].seq)

            logged = served.read_log(session)
            assert watcher.durable == logged
            assert other.durable == logged
            assert not watcher.wrong and not other.wrong and not other.rollbacks and other.streamed >= 4
            assert [one.id for one in watcher.find(TurnStarted)] == ["p1", "p2", "p3", "p4"]
            assert [one.reason for one in watcher.find(TurnEnded)] == [
                "end_turn",
                "end_turn",
                "interrupted",
                "end_turn",
            ]
            assert {one.id for one in watcher.find(PromptQueued)} >= {"p2", "p4"}
            (answered,) = watcher.find(PermissionAnswered)
            assert (answered.allowed, answered.by, answered.client) == (True, "user", "alice")
            assert [one.title for one in watcher.find(TitleSet)].count("A title") == 1
            assert watcher.count(ContextAdded) == 1
            assert watcher.count(Replied) == 5
            assert (workspace / "shell.txt").read_text() == "once\n"
            assert (workspace / "written").read_text() == "x"
            assert len([one for one in server.requests if "tools" in one.json]) == 5
            assert network.done["cut request"] + network.done["cut response"] > 0


# --- clients that come, go, crash, or are slow ---


async def test_fifty_clients_join_and_leave_during_a_turn(workspace: Path) -> None:
    model = Model(workspace)
    with ScriptedServer(model) as server:
        async with serve(server, workspace) as served:
            session = await served.create()
            stays = Watcher(served.attach(session))
            chance = random.Random(1)

            async def join(number: int) -> None:
                client = served.attach(session, f"client {number}:approve")
                for _ in range(chance.randint(1, 3)):
                    after, wanted = chance.choice(((None, 0), (-1, 1), (-1, 3)))
                    watcher = Watcher(client, after)
                    await until(lambda seen=watcher.seen, wanted=wanted: len(seen) >= wanted)
                    await client.close()

            await served.attach(session).submit(Prompt("p1", "wait"))
            await asyncio.gather(*(join(number) for number in range(50)))
            hosted = await served.sessions.get(session)
            await until(lambda: len(hosted.feed.watchers) == 1)
            model.gate.set()
            await until(lambda: stays.find(TurnEnded))
            assert stays.find(TurnEnded)[0].reason == "end_turn"
            assert stays.durable == served.read_log(session) and not stays.wrong and stays.streamed == 1


async def connect_without_reading(port: int, session: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for all events, and read nothing: what the server sends fills small buffers."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=client, limit=1000)
    head = "Host: 127.0.0.1\r\nAuthorization: Bearer slow:view"
    writer.write(f"GET /sessions/{session}/events?after=-1 HTTP/1.1\r\n{head}\r\n\r\n".encode())
    return reader, writer


async def test_a_slow_reader_is_cut_off_and_costs_no_memory(workspace: Path) -> None:
    """It reads nothing while far more is sent than is kept. Then it starts again from the log, and misses nothing."""
    script = [say("word " * 10_000, chunk=1000) for _ in range(8)]
    with ScriptedServer(script) as server:
        async with serve(server, workspace, send_buffer=4096) as served:
            session = await served.create()
            hosted = await served.sessions.get(session)
            hosted.feed._kept_bytes = 100_000
            quick = Watcher(client := served.attach(session))
            reader, writer = await connect_without_reading(served.port, session)
            await until(lambda: len(hosted.feed.watchers) == 2)
            largest = 0
            for number in range(len(script)):
                await client.submit(Prompt(f"p{number}", "more"))
                await until(lambda number=number: quick.count(TurnEnded) > number)
                largest = max(largest, hosted.feed._size)
            assert largest <= 100_000 + sum(len(encode_envelope(one)) for one in quick.seen) / len(script)
            received = b""
            async with TimeLimit():
                while b"event: resync" not in received:
                    received += await reader.read(65_536)
            writer.close()
            # On a busy machine the other one may fall behind for a moment, too; it misses nothing then.
            assert hosted.feed.cut_off >= 1
            assert (quick.count(Replied), len(quick.wrong)) == (len(script), 0)
            again = Watcher(served.attach(session))
            await until(lambda: len(again.durable) == len(quick.durable))
            assert again.durable == quick.durable == served.read_log(session)


async def test_a_client_that_takes_nothing_is_given_up(workspace: Path) -> None:
    with ScriptedServer([say("word " * 60_000, chunk=10_000)]) as server:
        async with serve(server, workspace, stalled_s=0.2, send_buffer=4096) as served:
            session = await served.create()
            await served.attach(session).submit(Prompt("p1", "go"))
            hosted = await served.sessions.get(session)
            await until(lambda: any(type(one.event) is TurnEnded for one in served.read_log(session)))
            _, writer = await connect_without_reading(served.port, session)
            await until(lambda: len(hosted.feed.watchers) == 1)
            await until(lambda: len(hosted.feed.watchers) == 0)
            writer.close()


async def test_an_event_stream_that_nobody_reads_ends_when_it_is_closed(workspace: Path) -> None:
    with ScriptedServer([say("one")]) as server:
        async with serve(server, workspace) as served:
            session = await served.create()
            client = served.attach(session)
            before = asyncio.all_tasks()
            unread = client.stream_events(-1)
            unread._queue = asyncio.Queue(2)
            await served.attach(session).submit(Prompt("p1", "go"))
            await until(unread._queue.full)
            await client.close()
            await until(lambda: not any("EventStream" in repr(task) for task in asyncio.all_tasks() - before))
            assert (await anext(unread)).seq == 0


# --- approvals ---


async def test_an_approval_waits_for_the_one_who_comes_back_and_all_see_who_answered(workspace: Path) -> None:
    with ScriptedServer(Model(workspace)) as server:
        async with serve(server, workspace) as served, worsen(served.port, "approval") as (network, port):
            network.is_calm = True
            session = await served.create()
            alice, bob, carol = (served.attach(session, f"{name}:approve") for name in ("alice", "bob", "carol"))
            guest = served.attach(session, "guest:prompt")
            away = served.attach(session, "alice:approve", port)
            watchers = [Watcher(client) for client in (alice, bob, guest, away)]
            await alice.submit(Prompt("p1", "write"))
            asked = (await until(lambda: watchers[-1].find(PermissionAsked)))[0]
            for client in (alice, bob, away):
                await client.close()
            hosted = await served.sessions.get(session)
            await until(lambda: len(hosted.feed.watchers) == 1)
            assert [one.id for one in (await carol.snapshot()).interactions] == [asked.ask_id]
            with pytest.raises(OdinError, match="may only prompt"):
                await guest.submit(Answer(asked.ask_id, "allow_once"))
            with pytest.raises(UsageError):
                await carol.submit(Answer(asked.ask_id, "no such choice"))
            back = Watcher(bob, after=asked_at(watchers[1], asked.ask_id) - 1)
            await until(lambda: back.find(PermissionAsked))
            answers = [Answer(asked.ask_id, choice, by="hook", client="root") for choice in ("allow_once", "deny")]
            assert await bob.submit(answers[0]) and not await carol.submit(answers[1])
            for watcher in (back, watchers[2]):
                await until(lambda watcher=watcher: watcher.find(TurnEnded))
                (answered,) = watcher.find(PermissionAnswered)
                assert (answered.allowed, answered.by, answered.client) == (True, "user", "bob")
            assert (workspace / "written").read_text() == "x"


def asked_at(watcher: Watcher, ask_id: str) -> int:
    return next(one.seq for one in watcher.seen if getattr(one.event, "ask_id", "") == ask_id)


async def test_an_approval_that_nobody_gives_in_time_is_denied(workspace: Path, home: Path) -> None:
    (home / ".config/odin").mkdir(parents=True)
    (home / ".config/odin/odinconfig.json").write_text('{"confirm_timeout_s": 0.2}')
    with ScriptedServer(Model(workspace)) as server:
        async with serve(server, workspace) as served:
            session = await served.create()
            watcher = Watcher(client := served.attach(session))
            await client.submit(Prompt("p1", "write"))
            await until(lambda: watcher.find(TurnEnded))
            (answered,) = watcher.find(PermissionAnswered)
            assert (answered.allowed, answered.by) == (False, "timeout")
            assert not (workspace / "written").exists()


async def test_an_unattended_session_asks_only_while_somebody_watches_who_may_answer(workspace: Path) -> None:
    """Otherwise the one who looked in once would leave it waiting for ever."""
    with ScriptedServer(Model(workspace)) as server:
        options = replace(make_options(server, workspace), can_ask=False, headless=True)
        async with serve(server, workspace, options=options, answers=False, return_s=0.0) as served:
            owner = await served.manager.open(options)
            session = owner.session.id
            watcher = Watcher(owner)
            visitor = served.attach(session)
            Watcher(visitor)
            await until(lambda: owner.session.deps.interactions.can_ask)
            await owner.submit(Prompt("p1", "write"))
            await until(lambda: watcher.find(PermissionAsked))
            await visitor.close()
            await until(lambda: watcher.find(TurnEnded))
            assert [one.by for one in watcher.find(PermissionAnswered)] == ["nobody"]
            await owner.submit(Prompt("p2", "write"))
            await until(lambda: watcher.count(TurnEnded) == 2)
            assert watcher.count(PermissionAsked) == 1
            await owner.close()


# --- unloading ---


async def test_a_session_that_nobody_uses_is_closed_and_opened_again(workspace: Path) -> None:
    now = [0.0]
    with ScriptedServer(Model(workspace)) as server:
        async with serve(server, workspace, idle_s=0.04, clock=lambda: now[0]) as served:
            session, other = await served.create(), await served.create()
            client = served.attach(session)
            for asker, name in ((client, "a"), (served.attach(other), "b")):
                await asker.submit(Prompt(name, "more"))
            watched = Watcher(served.attach(other))
            await until(lambda: watched.find(TurnEnded))
            await until(lambda: any(type(one.event) is TurnEnded for one in served.read_log(session)))
            now[0] += 1
            await until(lambda: served.manager.find(session) is None)
            assert served.manager.find(other) is not None and not watched.is_over
            assert [one.id for one in (await client.snapshot()).messages] == ["a"]
            again = Watcher(client)
            await client.submit(Prompt("c", "write"))
            await until(lambda: again.find(PermissionAsked))
            await client.close()
            now[0] += 1
            hosted = await served.sessions.get(session)
            await until(lambda: not hosted.feed.watchers)
            now[0] += 1
            await served.sessions._unload(session, hosted)
            assert served.manager.find(session) is not None, "what waits for an answer is going on"
