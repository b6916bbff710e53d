"""Long tool loops in a small window with models that bind their thinking to what came before it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import TextStreamed, ThinkingStreamed
from odin.core.event import ResultsPruned, TitleSet
from odin.core.op import SetTools
from odin.testing import ScriptedServer, call, fault, reply, say
from odin.testing.script import SeenRequest, Turn
from odin.ui.slash_commands.reports import gather_status
from tests import pictures

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


REFUSAL = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
)


async def test_a_session_whose_thinking_is_refused_goes_on_with_the_next_prompt(start: Start, workspace: Path) -> None:
    """The request is sent once without any thinking. If that is refused, too, the turn ends with the API's sentence."""
    (workspace / "a.txt").write_text("one\n")
    look = reply("", [call("Read", {"file_path": str(workspace / "a.txt")})], thinking="hm")
    refusal = fault(400, message=REFUSAL)
    script = iter([look, refusal, refusal, say("still here"), look, say("and here")])
    server = ScriptedServer(lambda seen: next(script) if seen.tool_names else say("A title")).start()
    talk = await start(None, server=server, env=server.env("anthropic", "claude-sonnet-5-5"))
    ended = await talk.say("Look.")
    assert (ended.reason, "bound to a different conversation" in ended.error) == ("error", True), ended
    number = next(at for at, seen in enumerate(server.requests, 1) if seen.status == 400)
    row = dict(await gather_status(talk.client))["thinking of anthropic"]
    assert f"refused in req_{number + 1:06d}" in row
    assert (await talk.say("Go on.")).text == "still here"
    assert (await talk.say("And now?")).text == "and here"
    assert [seen.status for seen in server.requests].count(400) == 2, "no third try"


async def test_status_says_what_was_left_out(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    look = reply("", [call("Read", {"file_path": str(workspace / "a.txt")})], thinking="hm")
    talk = await start([look, say("read"), say("done")], env={"ODIN_MODEL": "anthropic/claude-opus-5-5"})
    await talk.say("Look.")
    assert "thinking of anthropic" not in dict(await gather_status(talk.client))
    await talk.client.submit(SetTools(("Read",)))
    await talk.say("Go on.")
    row = dict(await gather_status(talk.client))["thinking of anthropic"]
    assert row == "left out of 1 reply, because something before has changed"


@pytest.mark.parametrize("betas", [None, ()], ids=["knows-binding", "older-gateway"])
async def test_images_that_are_no_longer_shown_cost_the_thinking_after_them(
    start: Start, workspace: Path, betas: Any
) -> None:
    for number in range(24):
        (workspace / f"{number}.png").write_bytes(pictures.png(40 + number, 30))

    def answer(seen: SeenRequest, number: int) -> Turn:
        if number > 24:
            return say("All seen.")
        return reply("", [call("Read", {"file_path": str(workspace / f"{number - 1}.png")})], thinking=f"{number}")

    server = ScriptedServer(ScriptedModel(answer), betas=betas).start()
    talk = await start(None, server=server, env=server.env("anthropic", "claude-sonnet-5-5"))
    assert (await talk.say("Look at all of them.")).text == "All seen."
    assert "no longer shown" in str(server.requests[-1].messages)
    assert [why for _, why in server.rejected if "anthropic-beta" not in why] == []
    assert server.dropped == []


async def test_small_jobs_work_with_the_only_model_there_is(start: Start) -> None:
    for model in CURRENT:
        server = ScriptedServer(lambda seen: say("ok" if seen.tool_names else "A title"), models=(model,)).start()
        config = {"small_model": f"anthropic/{model}"}
        talk = await start(None, server=server, config=config, env=server.env("anthropic", model))
        assert (await talk.say("hello")).text == "ok"
        await talk.until(TitleSet)
        assert (await talk.client.snapshot()).title == "A title"
        assert server.rejected == []


async def test_what_the_model_says_between_calls_streams_as_text(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    look = reply("", [call("Read", {"file_path": str(workspace / "a.txt")})], thinking="hm").updating("I read a.txt.")
    talk = await start([look, say("done")], env={"ODIN_MODEL": "anthropic/claude-sonnet-5-5"})
    await talk.say("Look.")
    assert "".join(event.text for event in talk.all(TextStreamed)) == "I read a.txt.done"
    assert talk.all(ThinkingStreamed) == []
