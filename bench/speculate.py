"""Time saved by speculative calls, and their overhead if no call can run speculatively.

The reply calls three commands of one second each and stays open for two seconds after them. With speculation the
commands finish before the reply ends; without it they start when it ends. `run.py` calls `rows()`; run directly, this
file prints the results.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from threading import Event, Timer
from typing import Any

from row import Row, table

STREAM_S = 2.0
COMMAND_S = 1
COMMANDS = 3
ROUNDS = 3
PLAIN_TURNS = 40
_ONE_PIECE = 1_000_000
"""Arguments in one delta, so that the events of the reply can be counted."""


def _answers_a_call(seen: Any) -> bool:
    return "tool_result" in str(seen.messages[-1])


def _three_commands() -> Any:
    """A script whose reply stays open for STREAM_S seconds after its calls; then the model answers."""
    from odin.testing import call, reply, say

    looks = [call("ExecuteCommand", {"command": f"sleep {COMMAND_S}"}, id=f"c{number}") for number in range(COMMANDS)]

    def play(seen: Any) -> Any:
        if _answers_a_call(seen):
            return say("done")
        gate = Event()
        Timer(STREAM_S, gate.set).start()
        return reply(calls=looks, chunk=_ONE_PIECE).hold(gate, after=2 + 4 * COMMANDS)

    return play


def _todos() -> Any:
    """A script of calls that never run speculatively."""
    from odin.testing import call, say

    todos = [{"content": "look", "status": "pending"}]

    def play(seen: Any) -> Any:
        return say("done") if _answers_a_call(seen) else call("TodoWrite", {"todos": todos})

    return play


async def _turns(script: Any, count: int, *, speculate: bool) -> list[float]:
    """Return the duration of each turn in milliseconds."""
    from odin.app import open_session
    from odin.config import Options
    from odin.core.event import TurnEnded
    from odin.core.op import Prompt
    from odin.testing import ScriptedServer

    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ScriptedServer(script) as server:
        project = Path(folder, "project")
        project.mkdir()
        settings = Path(folder, ".config", "odin")
        settings.mkdir(parents=True)
        (settings / "odinconfig.json").write_text(json.dumps({"speculate": speculate}))
        env = {**os.environ, **server.env("anthropic"), "HOME": folder}
        client = await open_session(Options(cwd=str(project), yes=True, env=env))
        events = client.stream_events()
        for number in range(count):
            began = time.perf_counter()
            await client.submit(Prompt(f"p{number}", "go"))
            async for envelope in events:
                if isinstance(envelope.event, TurnEnded):
                    assert envelope.event.text == "done", envelope.event
                    break
            took.append((time.perf_counter() - began) * 1000)
        await client.close()
    return took


def _median(script: Any, count: int, *, speculate: bool) -> float:
    return statistics.median(asyncio.run(_turns(script, count, speculate=speculate)))


def rows() -> list[Row]:
    early = _median(_three_commands(), ROUNDS, speculate=True)
    late = _median(_three_commands(), ROUNDS, speculate=False)
    pairs = [[_median(_todos(), PLAIN_TURNS, speculate=on) for on in (True, False)] for _ in range(ROUNDS)]
    plain, without = (min(figures) for figures in zip(*pairs, strict=True))
    stream, command = STREAM_S * 1000, COMMAND_S * 1000
    return [
        Row("three 1 s commands in a reply of 2 s, begun early; floor: the reply", early, stream, 1.2, "ms", True),
        Row(
            "the same begun when it ends; floor: the reply, then all together", late, stream + command, 1.2, "ms", True
        ),
        Row("begun early beside begun when it ends", early, late, 0.8, "ms", True),
        Row("begun early beside one after the other", early, stream + COMMANDS * command, 0.5, "ms", True),
        Row("a turn in which nothing can begin early; floor: switched off", plain, without, 1.15, "ms", True, 1.0),
    ]


if __name__ == "__main__":
    print(table(rows()))
