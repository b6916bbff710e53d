"""Only one process at a time can write to a session."""

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
from tests.soak import choose, soak
from tests.waiting import LIMIT_S, TimeLimit

from ..conftest import Run

ROOT = Path(__file__).parent.parent.parent
ROUNDS = choose(sample=6, full=20)


class CompetingClient:
    """A process that opens a session and sends a prompt for each `send_round`."""

    def __init__(self, cwd: Path, env: dict[str, str]) -> None:
        paths = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.competing_client"],
            cwd=cwd,
            env={**os.environ, **env, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read_outcome() == "ready"

    def send_round(self, kind: str, session: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{kind} {session}\n")
        self._process.stdin.flush()

    def read_outcome(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def close(self) -> None:
        self._process.communicate(timeout=LIMIT_S)


@contextmanager
def start_two_clients(cwd: Path, env: dict[str, str]) -> Generator[tuple[CompetingClient, CompetingClient]]:
    both = CompetingClient(cwd, env), CompetingClient(cwd, env)
    try:
        yield both
    finally:
        for client_process in both:
            client_process.close()


def find_log(home: Path, session: str) -> Path:
    return next((home / ".local/state/odin/sessions").glob(f"*/{session}/main.jsonl"))


def assert_turns_are_sequential(events: list[Envelope], lines: int) -> list[str]:
    """Check that every line is complete, event numbers rise, and turns do not overlap. Return the prompt ids."""
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


@soak
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resume", "begin"])
def test_two_processes_that_open_one_session_never_mix_their_turns(
    kind: str, run_odin_process: Run, workspace: Path, home: Path
) -> None:
    """The second process is refused because the session is open, or opens it after the first has closed it."""
    with ScriptedServer(lambda seen: say("hello there").pace(0.002)) as server:
        env = server.env("anthropic")
        if kind == "resume":
            assert run_odin_process("-p", "first", "--session-id", "shared", env=env).returncode == 0
        answered = 0
        with start_two_clients(workspace, env) as both:
            for number in range(ROUNDS):
                name = "shared" if kind == "resume" else f"new-{number}"
                for client_process in both:
                    client_process.send_round(kind, name)
                outcomes = [client_process.read_outcome() for client_process in both]
                good = [answer for answer in outcomes if answer.startswith("ended end_turn")]
                refused = [answer for answer in outcomes if answer.startswith(("SessionLocked", "UsageError"))]
                assert good, outcomes
                assert len(good) + len(refused) == 2, outcomes
                assert all("already" in answer for answer in refused), outcomes
                answered += len(good)
                if kind == "begin":
                    log = find_log(home, name)
                    assert_turns_are_sequential(list(read_log(log)), log.read_bytes().count(b"\n") - 1)
                    assert len(good) == 1
        if kind == "resume":
            log = find_log(home, "shared")
            prompts = assert_turns_are_sequential(list(read_log(log)), log.read_bytes().count(b"\n") - 1)
            assert len(prompts) == answered + 1
        assert server.rejected == []


async def test_open_session_cannot_be_resumed_or_deleted_by_another_process(
    run_odin_process: Run, workspace: Path, home: Path
) -> None:
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
        server.wait_for(2)
        kept = find_log(home, "mine").read_bytes()
        second = run_odin_process("-p", "third", "--resume", "mine", "--no-attach", env=env)
        assert second.returncode == 1
        assert f"PID {first.pid}" in second.stderr
        with pytest.raises(SessionLocked):
            delete_session(SessionStore(home / ".local/state/odin", str(workspace)), "mine")
        assert find_log(home, "mine").read_bytes() == kept
        gate.set()
        out, _ = first.communicate(timeout=LIMIT_S)
        assert out == b"two\n"
        assert run_odin_process("-p", "third", "--resume", "mine", env=env).stdout == "three\n"
        assert server.rejected == []


@pytest.mark.slow
async def test_fork_of_a_session_in_use_is_a_complete_prefix(workspace: Path, home: Path) -> None:
    """All its lines are complete and equal to those of the original, and it can be resumed."""

    def model(seen: SeenRequest) -> Turn:
        return say("words " * 30, chunk=4)

    with ScriptedServer(model) as server:
        env = server.env("anthropic")
        writer = CompetingClient(workspace, env)
        writer.send_round("begin", "busy")
        writer.read_outcome()
        fork_id = ""
        for number in range(6):
            writer.send_round("resume", "busy")
            options = Options(
                cwd=str(workspace), yes=True, resume="busy", fork=True, env={**os.environ, **env}, can_ask=False
            )
            client = await open_session(options)
            fork_id = (await client.get_info()).session
            await client.close()
            assert writer.read_outcome().startswith("ended end_turn")
            original = [item.event for item in read_log(find_log(home, "busy"))]
            copied = [item.event for item in read_log(find_log(home, fork_id))]
            assert copied == original[: len(copied)], number
            assert copied
        writer.close()
        again = await open_session(Options(cwd=str(workspace), yes=True, resume=fork_id, env={**os.environ, **env}))
        events = again.stream_events()
        await again.submit(Prompt("x", "go on"))
        async with TimeLimit():
            async for envelope in events:
                if isinstance(envelope.event, TurnEnded) and envelope.event.id == "x":
                    assert envelope.event.reason == "end_turn"
                    break
        await again.close()
        assert server.rejected == []
