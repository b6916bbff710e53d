"""The share of the input that the provider's prompt cache does not have: 50 turns of a session, with one mode switch.

The scripted server has the caches of the vendors. The floor is what any program pays: each token is sent once without
being in the cache. `run.py` calls `rows()`; run directly, this file prints the results.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from row import Row, table

if TYPE_CHECKING:
    from odin.core.event_values import Mode

TURNS = 50
SWITCH = 25
"""The turn from which on the mode is another one."""
PAUSE_S = 60.0
_BOUND = 1.6


def _play(folder: Path, api: Literal["anthropic", "openai"], model: str) -> tuple[float, float]:
    """Return the shares of the input that were not read from the cache, and of that which had not been sent before."""
    from odin.app import open_session
    from odin.config import Options
    from odin.core.call_events import UsageRecorded
    from odin.core.event import TurnEnded
    from odin.core.message import Usage
    from odin.core.op import Prompt
    from odin.testing import ScriptedServer, SeenRequest, Turn, call, reply, say

    script: list[Turn] = []
    for turn in range(TURNS):
        path = folder / f"{turn}.txt"
        path.write_text("".join(f"{turn}-{line}: some words that are neither long nor short\n" for line in range(40)))
        thoughts = "What do the notes say about it? " * 20
        script.append(reply("I look at it.", [call("Read", {"file_path": str(path)})], thinking=thoughts))
        script.append(say("It says so in the notes. " * 20, thinking=thoughts))
    coming, seconds = iter(script), 0.0

    def answer(seen: SeenRequest) -> Turn:
        return next(coming) if seen.tool_names else say("A title")

    async def talk(env: dict[str, str]) -> tuple[Usage, int]:
        nonlocal seconds
        client = await open_session(Options(cwd=str(folder), env=env, yes=True))
        events, spent, longest = client.stream_events(), Usage(), 0
        for turn in range(TURNS):
            seconds += PAUSE_S
            mode: Mode = "edit_mode" if turn < SWITCH else "plan_mode"
            await client.submit(Prompt(f"p{turn}", f"What about part {turn}?", mode))
            async for envelope in events:
                event = envelope.event
                if isinstance(event, UsageRecorded) and event.purpose == "main":
                    spent += event.usage
                    longest = max(longest, event.usage.total - event.usage.output - event.usage.reasoning)
                if isinstance(event, TurnEnded) and event.id == f"p{turn}":
                    assert event.reason == "end_turn", event.error
                    break
        await client.close()
        return spent, longest

    with ScriptedServer(answer, clock=lambda: seconds) as server:
        home = {"HOME": str(folder), "PATH": os.environ["PATH"], "ODIN_LOCAL_PORTS": ""}
        spent, longest = asyncio.run(talk({**home, **server.env(api, model)}))
        assert not server.rejected
    total = spent.total - spent.output - spent.reasoning
    return 1 - spent.cache_read / total, longest / total


def rows() -> list[Row]:
    found: list[Row] = []
    models: tuple[tuple[Literal["anthropic", "openai"], str], ...]
    models = (("anthropic", "claude-sonnet-5-5"), ("openai", "gpt-6-sol"))
    for api, model in models:
        with tempfile.TemporaryDirectory() as folder:
            missed, new = _play(Path(folder), api, model)
        what = f"input not read from the prompt cache, {TURNS} turns and a mode switch, {model}"
        found.append(Row(what, 100 * missed, 100 * new, _BOUND, "%", True))
    return found


if __name__ == "__main__":
    print(table(rows()))
