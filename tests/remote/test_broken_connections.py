"""Whatever happens to connections, clients and servers: each event is seen once, each op takes effect once."""

import asyncio
import threading
from pathlib import Path

import pytest

from odin.core.call_events import PermissionAnswered, PermissionAsked, Replied
from odin.core.event import ContextAdded, PromptQueued, TitleSet, TurnEnded, TurnStarted
from odin.core.op import Answer, Interrupt, Prompt, RunUserShell, SetTitle
from odin.testing import ScriptedServer, SeenRequest, Turn, call, say
from odin.testing.script import get_content_text
from tests.remote.bad_network import worsen
from tests.remote.served import Watcher, serve, until
from tests.soak import list_seeds, soak

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
            assert [one.reason for one in watcher.find(TurnEnded)] == ["end_turn", "end_turn", "interrupted", "end_turn"]
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
