"""A real Redis server per module, and sessions that are published to it."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import RedisError

from odin.config import Options
from odin.core.event import Envelope, TurnEnded, Warned
from odin.core.op import Prompt
from odin.core.timing import Timing
from odin.engine.call import BeforeStep
from odin.engine.client import LocalClient
from odin.host.manager import SessionManager
from odin.session.log import read_log
from odin.testing import ScriptedServer, Turn
from redis import Redis
from tests.waiting import LIMIT_S, until

FAST = Timing(
    redis_answer_s=LIMIT_S,
    redis_batch_s=0.001,
    redis_snapshot_s=0.01,
    redis_beat_s=0.2,
    redis_pauses_s=(0.01, 0.05),
    redis_absent_s=0.2,
    redis_end_s=LIMIT_S,
)
"""Short pauses, and no limit that a slow machine reaches: a test of a server that is silent sets its own."""


class RedisServer:
    """A server on a socket in a folder of its own; `more` are options of redis-server."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.socket = folder / "s"
        self._folder = folder
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        options = ("--port", "0", "--unixsocket", str(self.socket), "--save", "", "--dir", str(self._folder))
        self._process = subprocess.Popen(["redis-server", *options, *self._more], stdout=subprocess.DEVNULL)
        for _ in range(10_000):
            with suppress(RedisError), self.connect() as client:
                client.execute_command("PING")
                return
            assert self._process.poll() is None, "redis-server did not start"
        raise AssertionError("redis-server does not answer")

    def connect(self) -> Any:
        return Redis(unix_socket_path=str(self.socket), decode_responses=True, protocol=2)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    def restart(self) -> None:
        self.signal(signal.SIGKILL)
        self.start()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer(tmp_path_factory.mktemp("r"), "--appendonly", "no", "--enable-debug-command", "yes")
    server.start()
    yield server
    server.end()


@pytest.fixture
def server(module_server: RedisServer) -> Iterator[RedisServer]:
    """The server of the module, empty and as it was configured."""
    yield module_server
    module_server.restart()


@pytest.fixture
def redis(server: RedisServer) -> Iterator[Any]:
    with server.connect() as client:
        yield client


def read_channel(redis: Any, channel: Any) -> list[tuple[str, str]]:
    """Return the channels and texts of all messages that were published by now."""
    redis.publish("odin:end-of-test", "")
    found: list[tuple[str, str]] = []
    while (message := channel.get_message(timeout=LIMIT_S))["channel"] != "odin:end-of-test":
        found += [(message["channel"], message["data"])] if message["type"] == "pmessage" else []
    return found


class PublishedSession:
    """A session, and what its user is told."""

    def __init__(self, client: LocalClient) -> None:
        self.client = client
        self.id = client.session.id
        self.key = f"odin:{self.id}"
        self.warnings: list[Warned] = []
        self.ended: list[TurnEnded] = []
        self._listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        async for envelope in self.client.stream_events():
            if isinstance(envelope.event, Warned):
                self.warnings.append(envelope.event)
            elif isinstance(envelope.event, TurnEnded):
                self.ended.append(envelope.event)

    async def ask(self, text: str, **more: Any) -> TurnEnded:
        count = len(self.ended)
        await self.client.submit(Prompt(os.urandom(4).hex(), text, **more))
        await until(lambda: len(self.ended) > count)
        return self.ended[-1]

    def read_log(self) -> list[Envelope]:
        return list(read_log(Path(self.client.session.log)))

    def read_lines(self) -> list[Any]:
        """Return the events as they are in the log."""
        lines = Path(self.client.session.log).read_bytes().splitlines()
        return [json.loads(line) for line in lines[1:]]


def read_last_id(redis: Any, key: str) -> str:
    return next((entry for entry, _ in redis.xrevrange(key, count=1)), "")


def read_stream(redis: Any, key: str) -> list[Any]:
    return [json.loads(fields["envelope"]) for _, fields in redis.xrange(key)]


def configure(home: Path, **settings: Any) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "odinconfig.json").write_text(json.dumps({"redis": settings, "sandbox": {"backend": "off"}}))


Publish = Callable[..., Any]


@pytest.fixture
async def publish(server: RedisServer, home: Path, workspace: Path) -> AsyncIterator[Publish]:
    """Open a session with a scripted model: `await publish(turns, url=…)`. `given` goes to the manager."""
    manager = SessionManager()
    models: list[ScriptedServer] = []

    async def open_session(
        turns: list[Turn],
        *,
        before_call: Sequence[BeforeStep] = (),
        options: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> PublishedSession:
        configure(home, **settings)
        models.append(model := ScriptedServer(turns))
        model.__enter__()
        variables = {**os.environ, **model.env("anthropic"), **(env or {})}
        chosen: dict[str, Any] = {"yes": True, "trust": True, "timing": FAST, **(options or {})}
        opened = await manager.open(Options(cwd=str(workspace), env=variables, **chosen), before_call=before_call)
        return PublishedSession(opened)

    yield open_session
    assert await manager.close(LIMIT_S)
    for model in models:
        model.__exit__(None, None, None)
