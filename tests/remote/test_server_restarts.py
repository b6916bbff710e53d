"""A real `odin serve` that is killed in the middle of a turn and started again, or stopped."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odin.core.call_events import PermissionAnswered, PermissionAsked, ToolStarted
from odin.core.event import ContextAdded, TurnEnded, TurnStarted
from odin.core.op import Answer, Prompt, RunUserShell
from odin.remote.client import RemoteClient
from odin.remote.connection import Connection, ConnectionLost, NotConnected, ServerProblem
from odin.remote.protocol import NewSession, OpRequest
from odin.server.access import open_access
from odin.session.log import LOG_NAME, read_log
from odin.testing import ScriptedServer, call
from tests.remote.served import Watcher, skip_pause
from tests.remote.test_broken_connections import Model
from tests.waiting import TimeLimit, until


class ServerProcess:
    """`odin serve` on one port, started as often as needed."""

    def __init__(self, model: ScriptedServer, workspace: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._env = {**os.environ, **model.env("anthropic")}
        self._workspace = workspace
        token = open_access(os.environ).create_token("alice", "approve")
        self.connection = Connection(f"http://127.0.0.1:{self.port}", token)
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        odin = [sys.executable, "-I", "-m", "odin", "serve", "--pair", "no", "--port", str(self.port)]
        self.process = await asyncio.create_subprocess_exec(
            *odin,
            cwd=self._workspace,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stderr is not None
        async with TimeLimit():
            while b"Serving sessions" not in await self.process.stderr.readline():
                assert self.process.returncode is None

    async def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        async with TimeLimit():
            return await self.process.wait()


@asynccontextmanager
async def run_server(model: ScriptedServer, workspace: Path) -> AsyncGenerator[ServerProcess]:
    server = ServerProcess(model, workspace)
    await server.start()
    try:
        yield server
    finally:
        await server.connection.close()
        if server.process is not None and server.process.returncode is None:
            await server.end(signal.SIGKILL)


def find_log(home: Path, session: str) -> Path:
    return next(home.glob(f".local/state/odin/sessions/*/{session}/{LOG_NAME}"))


async def test_a_killed_server_that_starts_again_has_lost_nothing_and_repeats_nothing(
    workspace: Path, home: Path
) -> None:
    model = Model(workspace)
    with ScriptedServer(model) as scripted:
        async with run_server(scripted, workspace) as server:
            session = (await server.connection.call("new", body=NewSession())).session
            client = RemoteClient(server.connection, session, sleep=skip_pause)
            watcher = Watcher(client)
            await client.submit(Prompt("p1", "more"))
            await until(lambda: watcher.count(TurnEnded) == 1)
            await client.submit(Prompt("p2", "wait"))
            await until(lambda: watcher.shown)
            first_run = server.connection.run
            await server.end(signal.SIGKILL)

            with pytest.raises(NotConnected):
                while True:  # connections that are still known break first
                    try:
                        await server.connection.call("me")
                    except NotConnected:
                        raise
                    except ConnectionLost:
                        continue
            # What is sent while it is down arrives when it is up, and what was never sent before is not refused.
            sending = [
                asyncio.create_task(client.submit(op))
                for op in (Prompt("p3", "more"), RunUserShell("s1", "echo once >> shell.txt"))
            ]
            await server.start()
            await asyncio.gather(*sending)
            await until(lambda: [one for one in watcher.find(TurnEnded) if one.id == "p3"])
            assert server.connection.run != first_run
            await until(lambda: watcher.find(ContextAdded))
            assert watcher.count(ContextAdded) == 1
            assert (workspace / "shell.txt").read_text() == "once\n"

            # Repeated with the name of the earlier run: the log knows the prompt, of other ops nobody knows.
            lost = OpRequest("0123", Prompt("p1", "more")), OpRequest("4567", RunUserShell("s2", "echo twice"))
            receipt = await server.connection.call("ops", session, body=lost[0], run=first_run)
            assert receipt.done
            with pytest.raises(ServerProblem, match="restarted, and whether this was carried out is not known") as told:
                await server.connection.call("ops", session, body=lost[1], run=first_run)
            assert told.value.hint == "Look, and try again."
            with pytest.raises(ServerProblem, match="exists with another text"):
                other = OpRequest("89ab", Prompt("p1", "other"))
                await server.connection.call("ops", session, body=other, run=first_run)

            logged = list(read_log(find_log(home, session)))
            await until(lambda: watcher.seen[-1].seq == logged[-1].seq)
            assert watcher.durable == logged and not watcher.wrong
            assert [one.id for one in watcher.find(TurnStarted)] == ["p1", "p2", "p3"]
            assert {one.id: one.reason for one in watcher.find(TurnEnded)}["p2"] == "aborted"
            await client.close()


async def test_two_sessions_of_a_stopped_server_end_cleanly(workspace: Path, home: Path) -> None:
    """One waits for an approval, one for a command that ignores signals. The next server goes on with both."""
    stubborn = call("Bash", {"command": "trap '' TERM INT HUP; while :; do sleep 1; done", "description": "wait"})
    with ScriptedServer(lambda seen: stubborn if "obey" in str(seen.messages) else Model(workspace)(seen)) as scripted:
        async with run_server(scripted, workspace) as server:
            waits, works = [(await server.connection.call("new", body=NewSession())).session for _ in range(2)]
            clients = [RemoteClient(server.connection, name, sleep=skip_pause) for name in (waits, works)]
            one, two = map(Watcher, clients)
            await clients[0].submit(Prompt("p1", "write"))
            await clients[1].submit(Prompt("p2", "obey"))
            await until(lambda: one.find(PermissionAsked) and two.find(ToolStarted))
            assert await server.end(signal.SIGTERM) == 0
            await until(lambda: one.is_over and two.is_over)
            assert one.find(PermissionAnswered)[0].by == "shutdown"
            assert [item.reason for item in (*one.find(TurnEnded), *two.find(TurnEnded))] == ["aborted"] * 2
            for name, watcher in ((waits, one), (works, two)):
                assert list(read_log(find_log(home, name))) == watcher.durable
            with pytest.raises(ConnectionLost, match="cannot be reached"):
                await server.connection.call("me")

            await server.start()
            assert {item.id for item in await server.connection.call("all")} == {waits, works}
            again = Watcher(client := RemoteClient(server.connection, waits, sleep=skip_pause))
            await client.submit(Prompt("p3", "more"))
            await until(lambda: again.count(TurnEnded) == 2)
            assert not await client.submit(Answer(one.find(PermissionAsked)[0].ask_id, "allow_once"))
            await client.close()
