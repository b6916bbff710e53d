"""Two processes never write one session."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odin.app import open_session
from odin.config import Options
from odin.core.errors import SessionLocked
from odin.core.event import Envelope, TurnEnded, TurnStarted
from odin.core.op import Prompt
from odin.session.lifecycle import delete_session
from odin.session.log import read_log
from odin.session.store import SessionStore
from odin.testing import ScriptedServer, Turn, say
from odin.testing.script import SeenRequest

from ..conftest import Run

ROOT = Path(__file__).parent.parent.parent
ROUNDS = 20


class Rival:
    """A process that plays its round when it is told to."""

    def __init__(self, cwd: Path, env: dict[str, str]) -> None:
        paths = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.rival"],
            cwd=cwd,
            env={**os.environ, **env, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.hear() == "ready"

    def tell(self, kind: str, session: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{kind} {session}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def close(self) -> None:
        self._process.communicate(timeout=60)


@contextmanager
def rivals(cwd: Path, env: dict[str, str]) -> Generator[tuple[Rival, Rival]]:
    both = Rival(cwd, env), Rival(cwd, env)
    try:
        yield both
    finally:
        for rival in both:
            rival.close()


def logs(home: Path, session: str) -> Path:
    return next((home / ".local/state/odin/sessions").glob(f"*/{session}/main.jsonl"))


def assert_one_after_the_other(events: list[Envelope], lines: int) -> list[str]:
    """Every line is whole, the numbers rise, and no turn begins while another runs. Gives the prompts."""
    assert len(events) == lines
    numbers = [envelope.seq for envelope in events]
    assert numbers == sorted(set(numbers))
    running = ""
    for event in (envelope.event for envelope in events):
        if isinstance(event, TurnStarted):
            assert not running
            running = event.id
        elif isinstance(event, TurnEnded):
            assert event.id == running
            running = ""
    return [envelope.event.id for envelope in events if isinstance(envelope.event, TurnStarted)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resume", "begin"])
def test_a_race_for_one_session(kind: str, run_odin_process: Run, workspace: Path, home: Path) -> None:
    """Whoever comes second is told that it is open, or comes when the first has left; nothing is ever mixed."""
    with ScriptedServer(lambda seen: say("hello there").pace(0.002)) as server:
        env = server.env("anthropic")
        if kind == "resume":
            assert run_odin_process("-p", "first", "--session-id", "shared", env=env).returncode == 0
        answered = 0
        with rivals(workspace, env) as both:
            for number in range(ROUNDS):
                name = "shared" if kind == "resume" else f"new-{number}"
                for rival in both:
                    rival.tell(kind, name)
                said = [rival.hear() for rival in both]
                good = [answer for answer in said if answer.startswith("ended end_turn")]
                refused = [answer for answer in said if answer.startswith(("SessionLocked", "UsageError"))]
                assert good, said
                assert len(good) + len(refused) == 2, said
                assert all("already" in answer for answer in refused), said
                answered += len(good)
                if kind == "begin":
                    log = logs(home, name)
                    assert_one_after_the_other(list(read_log(log)), log.read_bytes().count(b"\n") - 1)
                    assert len(good) == 1
        if kind == "resume":
            log = logs(home, "shared")
            prompts = assert_one_after_the_other(list(read_log(log)), log.read_bytes().count(b"\n") - 1)
            assert len(prompts) == answered + 1
        assert server.rejected == []


@pytest.mark.slow
async def test_one_that_is_open_is_refused_and_not_harmed(run_odin_process: Run, workspace: Path, home: Path) -> None:
    gate = threading.Event()
    with ScriptedServer([say("one"), say("two").hold(gate, 2), say("three")]) as server:
        env = server.env("anthropic")
        assert run_odin_process("-p", "first", "--session-id", "mine", env=env).returncode == 0
        first = subprocess.Popen(
            [sys.executable, "-I", "-m", "odin", "-p", "second", "--resume", "mine"],
            cwd=workspace,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        server.wait_for(2, 60)
        kept = logs(home, "mine").read_bytes()
        second = run_odin_process("-p", "third", "--resume", "mine", env=env)
        assert second.returncode == 1
        assert f"PID {first.pid}" in second.stderr
        with pytest.raises(SessionLocked):
            delete_session(SessionStore(home / ".local/state/odin", str(workspace)), "mine")
        assert logs(home, "mine").read_bytes() == kept
        gate.set()
        out, _ = first.communicate(timeout=60)
        assert out == b"two\n"
        assert run_odin_process("-p", "third", "--resume", "mine", env=env).stdout == "three\n"
        assert server.rejected == []


@pytest.mark.slow
async def test_a_fork_of_what_is_being_written(workspace: Path, home: Path) -> None:
    """It is a beginning of the original, whole to the last line, and can go on by itself."""

    def model(seen: SeenRequest) -> Turn:
        return say("words " * 30, chunk=4)

    with ScriptedServer(model) as server:
        env = server.env("anthropic")
        writer = Rival(workspace, env)
        writer.tell("begin", "busy")
        writer.hear()
        copy = ""
        for number in range(6):
            writer.tell("resume", "busy")
            options = Options(
                cwd=str(workspace), yes=True, resume="busy", fork=True, env={**os.environ, **env}, can_ask=False
            )
            client = await open_session(options)
            copy = (await client.get_info()).session
            await client.close()
            assert writer.hear().startswith("ended end_turn")
            original = [item.event for item in read_log(logs(home, "busy"))]
            copied = [item.event for item in read_log(logs(home, copy))]
            assert copied == original[: len(copied)], number
            assert copied
        writer.close()
        again = await open_session(Options(cwd=str(workspace), yes=True, resume=copy, env={**os.environ, **env}))
        events = again.stream_events()
        await again.submit(Prompt("x", "go on"))
        async with asyncio.timeout(60):
            async for envelope in events:
                if isinstance(envelope.event, TurnEnded) and envelope.event.id == "x":
                    assert envelope.event.reason == "end_turn"
                    break
        await again.close()
        assert server.rejected == []
