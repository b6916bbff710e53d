"""`odin fleet run` while its processes and itself are killed at random: every task ends once, with its result."""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.core.call_events import ToolEnded
from odin.core.event import TurnStarted
from odin.fleet.engine import TaskResult
from odin.session.log import read_log
from odin.testing import ScriptedServer, call, say
from odin.testing.script import SeenRequest, Turn
from tests.fleet.runs import make_repository
from tests.soak import choose, list_seeds, soak


def play(request: SeenRequest) -> Turn:
    """Run one command, and end the task when its result is known."""
    if any("(exit code" not in text and "once" in text for text in request.results.values()):
        return say("done").delay(random.uniform(0, 0.3))
    return call("Bash", {"command": "echo once | tee -a log.txt"}).delay(random.uniform(0, 0.3))


async def start(env: dict[str, str], home: Path, *words: str) -> asyncio.subprocess.Process:
    with (home / "fleet.out").open("ab") as out:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "odin", "fleet", "run", "--workers", "4", *words),
            cwd=home,
            env=env,
            stdout=out,
            stderr=out,
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
@soak
@pytest.mark.parametrize("seed", list_seeds(1, 3))
async def test_every_task_ends_once(seed: int, home: Path) -> None:
    count, rng = choose(40, 200), random.Random(seed)
    repository = make_repository(home / "repo", {"a.txt": "one\n"})
    lines: list[dict[str, Any]] = [
        {
            "id": f"t{number}",
            "repository": str(repository),
            "prompt": f"Task {number}.",
            "checks": ["grep once log.txt"],
        }
        for number in range(count)
    ]
    (home / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sessions, kills = home / ".local" / "state" / "odin" / "sessions", Counter[str]()
    with ScriptedServer(play) as model:
        env = {**os.environ, **model.env("anthropic")}
        process = await start(env, home, "--name", "k", "--attempts", "50", "tasks.jsonl")
        while not [*sessions.rglob("k-t*.lock")]:
            await asyncio.sleep(0.05)
        while True:
            with suppress(TimeoutError):
                code = await asyncio.wait_for(process.wait(), rng.uniform(0.2, 1.5))
                if code != -signal.SIGKILL:
                    break
                process = await start(env, home, "--continue", "k")
                continue
            if sum(kills.values()) >= count // 2:
                continue
            locks = list(sessions.rglob("k-t*.lock"))
            if rng.random() < 0.3 and kills["coordinator"] < count // 10:
                kills["coordinator"] += 1
                process.kill()
            elif locks:
                with suppress(OSError, ValueError):
                    os.kill(json.loads(rng.choice(locks).read_text())["pid"], signal.SIGKILL)
                    kills["task"] += 1
    output = (home / "fleet.out").read_text()
    assert code == 0, output[-2000:]
    assert kills["task"]
    results = home / ".local" / "share" / "odin" / "fleet" / "k" / "results"
    for line in lines:
        result = msgspec.json.decode((results / line["id"] / "result.json").read_bytes(), type=TaskResult)
        assert (result.outcome, result.session[:-8]) == ("passed", f"k-{line['id']}-0-"), line["id"]
        (log,) = (path for path in sessions.rglob("*.jsonl") if f"k-{line['id']}-0" in str(path))
        events = [envelope.event for envelope in read_log(log)]
        ran = [event for event in events if isinstance(event, ToolEnded) and event.status == "success"]
        assert len(ran) == 1, line["id"]
        assert sum(isinstance(event, TurnStarted) and event.id == "task.0" for event in events) == 1, line["id"]
