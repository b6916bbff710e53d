"""Time `odin serve` with many watchers, and `odin -r` on a session that another process has open.

The watchers are plain sockets in a process of their own. Each event has the time at which it was made; of each frame
that arrives, its oldest event counts. `run.py` calls `rows()`; run directly, this file prints the results.
"""

import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from app import App
from row import Row, table

WATCHERS = 1_000
EVENTS_A_S = 200
SECONDS = 6.0
ATTACH_ROUNDS = 7


class Watcher(asyncio.Protocol):
    """One reader of events. Notes how old the oldest event of each frame is when it arrives."""

    latencies: list[float] = []  # noqa: RUF012
    events = 0
    opened = 0

    def __init__(self, request: bytes) -> None:
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        at = data.find(b'"ts":')
        if b"event: open" in data:
            Watcher.opened += 1
        if at >= 0:
            Watcher.latencies.append(time.time() - float(data[at + 5 : data.index(b",", at)]))
            Watcher.events += data.count(b'"TextStreamed"')


async def watch(port: int, session: str, *tokens: str) -> None:
    """Watch with all connections; print `ready`, and at the end of the input what was measured."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    loop = asyncio.get_running_loop()
    for number in range(WATCHERS):
        token = tokens[number % len(tokens)]  # the requests of one client are limited
        head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
        request = f"GET /sessions/{session}/events HTTP/1.1\r\n{head}".encode()
        await loop.create_connection(lambda request=request: Watcher(request), "127.0.0.1", port)
        while Watcher.opened < number - 50:  # a server ends connections that wait too long for their first request
            await asyncio.sleep(0.01)
    while Watcher.opened < WATCHERS:
        await asyncio.sleep(0.05)
    Watcher.latencies.clear()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.sleep(1)
    found = sorted(Watcher.latencies)
    print(json.dumps({"p99": found[int(len(found) * 0.99)], "p50": found[len(found) // 2], "events": Watcher.events}))


async def serve_events(home: str) -> dict[str, float]:
    """Serve one session and emit events at a fixed rate while another process watches. Return what that measured."""
    from odin.config import Options
    from odin.host.manager import SessionManager
    from odin.server.access import open_access
    from odin.server.guard import HostCheck, parse_bind
    from odin.server.service import serve_sessions

    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    os.environ.update(HOME=home, ODIN_LOCAL_PORTS="")
    work = Path(home, "work")
    work.mkdir(exist_ok=True)
    options = Options(cwd=str(work), model="offline/planner")
    manager = SessionManager()
    client = await manager.open(options)
    client.session.is_kept = True
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    store = open_access(os.environ)
    tokens = [store.create_token("watchers", "view") for _ in range(WATCHERS // 100)]
    port: int = listener.getsockname()[1]
    check = HostCheck(parse_bind("127.0.0.1", port))
    with Path(os.devnull).open("w") as null:
        async with serve_sessions(listener, check, options, [str(work)], err=null, manager=manager):
            return await emit_events(client, port, tokens)


async def emit_events(client: Any, port: int, tokens: list[str]) -> dict[str, float]:
    from odin.core.call_events import TextStreamed

    child = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--watch", str(port), client.session.id, *tokens,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(int(EVENTS_A_S * SECONDS)):
        await asyncio.sleep(max(0.0, began + number / EVENTS_A_S - loop.time()))
        client.session.deps.recorder.emit(TextStreamed(f"word {number} "))
    child.stdin.write(b"\n")
    found: dict[str, float] = json.loads(await child.stdout.readline())
    await child.wait()
    return found


def _attach_ms(home: Path, env: dict[str, str], session: str, text: bytes) -> float:
    app = App(home, env, "-r", session)
    try:
        when, _ = app.until(text)
        return (when - app.began) * 1000
    finally:
        app.close()


def rows() -> list[Row]:
    from odin.testing import ScriptedServer, say

    with tempfile.TemporaryDirectory() as name:
        found = asyncio.run(serve_events(name))
    assert found["events"] == WATCHERS * int(EVENTS_A_S * SECONDS), found
    with tempfile.TemporaryDirectory() as name, ScriptedServer(lambda _: say("an answer from afar")) as server:
        folder = Path(name, ".config", "odin")
        folder.mkdir(parents=True)
        (folder / "odinconfig.json").write_text(json.dumps({"tui": {"bell": False}}))
        env = {**os.environ, **server.env("anthropic"), "HOME": name, "TERM": "xterm-256color"}
        holder = App(Path(name), env)
        try:
            holder.until(b"edit")
            holder.key("go\r")
            holder.until(b"answer from afar")
            session = next(Path(name, ".local/state/odin/sessions").glob("*/*/main.jsonl")).parent.name
            warm = App(Path(name), env, "-r", session)
            warm.until(b"answer from afar")
            warm.leave()
            attached = [_attach_ms(Path(name), env, session, b"answer from afar") for _ in range(ATTACH_ROUNDS)]
        finally:
            holder.close()
    watching = f"{WATCHERS:,} watchers, {EVENTS_A_S} events a second"
    return [
        Row(f"{watching}: 99th of 100 frames arrives in", found["p99"] * 1000, None, 100, "ms", False),
        Row("attach: start to the conversation on the screen", statistics.median(attached), None, 500, "ms", False),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        asyncio.run(watch(int(sys.argv[2]), *sys.argv[3:]))
    else:
        print(table(rows()))
