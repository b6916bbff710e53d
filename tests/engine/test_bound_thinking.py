"""Long tool loops in a small window with models that bind their thinking to what came before it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odin.core.event import ResultsPruned
from odin.testing import ScriptedServer, reply, say
from odin.testing.script import SeenRequest, Turn, call

from .conftest import Start
from .test_compaction import ScriptedModel, is_summary

WINDOW = 50_000
CURRENT = ("claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5", "claude-fable-5-1", "claude-fable-5-2")


def make_config(model: str) -> dict[str, Any]:
    return {"providers": {"anthropic": {"models": {model: {"context": WINDOW}}}}, "max_turns": 0}


@pytest.mark.parametrize("betas", [None, ()], ids=["knows-binding", "older-gateway"])
@pytest.mark.parametrize("model", CURRENT)
async def test_sixty_calls_in_a_small_window_a_second_prompt_and_a_resume(
    start: Start, workspace: Path, model: str, betas: Any
) -> None:
    for number in range(61):
        (workspace / f"f{number}.txt").write_text(f"line {number} of this file says hello\n" * 110)

    def answer(seen: SeenRequest, number: int) -> Turn:
        if number > 60:
            return say(f"All read, {number}.", thinking="hm")
        turn = reply("", [call("Read", {"file_path": str(workspace / f"f{number}.txt")})], thinking=f"thought {number}")
        return turn.updating(f"I read file {number}.")

    server = ScriptedServer(ScriptedModel(answer), window=WINDOW, betas=betas).start()
    env = server.env("anthropic", model)
    talk = await start(None, server=server, config=make_config(model), env=env)
    ended = await talk.say("Read every one of the files.")
    assert (ended.reason, ended.text) == ("end_turn", "All read, 61.")
    assert (await talk.say("And now?")).text == "All read, 62."
    pruned = len(talk.all(ResultsPruned))
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start(None, server=server, config=make_config(model), env=env, resume=session)
    assert (await again.say("Go on.")).text == "All read, 63."
    assert pruned
    assert [why for _, why in server.rejected if "anthropic-beta" not in why] == []
    assert server.dropped == []
    asked = [seen.json["messages"] for seen in server.requests if seen.status == 200 and not is_summary(seen)]
    kept = [
        sum(block["type"] == "thinking" for message in messages for block in message["content"]) for messages in asked
    ]
    lost = sum(after < before for before, after in pairwise(kept))
    assert lost <= pruned, "thinking is left out at most once for each pruning"
    assert kept[-1] > 1, "what was thought after the last pruning is sent back, also after the restart"
