"""Prompt hooks check every prompt, also those that join a running turn or are queued at an interrupt."""

import asyncio
import threading
from pathlib import Path

import pytest

from odin.core.event import PromptDropped, PromptInjected, Warned
from odin.core.op import ChangePrompt, Interrupt, Prompt
from odin.testing import call, say
from tests.waiting import until

from .conftest import Start
from .hook_programs import claude_hook

SLOW_JUDGE = """
text=$(cat)
case "$text" in
  *wait-for-it*) touch evaluating; until [ -e evaluated ]; do sleep 0.02; done;;
  *forbidden*) echo 'not these words' >&2; exit 2;;
esac
"""


def config_with_judge(workspace: Path) -> dict[str, object]:
    script = workspace.parent / "judge.sh"
    script.write_text(f"cd {workspace}\n{SLOW_JUDGE}")
    return {"hooks": {"UserPromptSubmit": [claude_hook(f"bash {script}")]}}


async def test_hook_checks_merged_prompts_and_may_refuse_them(start: Start, workspace: Path) -> None:
    gate = threading.Event()
    talk = await start(
        [call("ExecuteCommand", {"command": "true"}).hold(gate), say("done")], config=config_with_judge(workspace)
    )
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await talk.client.submit(Prompt("bad", "forbidden words", delivery="merge"))
    await talk.client.submit(Prompt("good", "fine words", delivery="merge"))
    gate.set()
    assert (await talk.until_end(prompt)).text == "done"
    assert [event.id for event in talk.all(PromptDropped)] == ["bad"]
    assert [event.id for event in talk.all(PromptInjected)] == ["good"]
    assert any("not these words" in event.text for event in talk.all(Warned))
    request = talk.server.requests[1].body.decode()
    assert "fine words" in request
    assert "forbidden words" not in request


async def test_prompt_changed_while_its_hook_runs_is_checked_again(start: Start, workspace: Path) -> None:
    gate = threading.Event()
    talk = await start(
        [call("ExecuteCommand", {"command": "true"}).hold(gate), say("done")], config=config_with_judge(workspace)
    )
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await talk.client.submit(Prompt("m", "wait-for-it", delivery="merge"))
    gate.set()
    await until((workspace / "evaluating").exists)
    assert await talk.client.submit(ChangePrompt("m", "forbidden after all"))
    (workspace / "evaluated").touch()
    assert (await talk.until_end(prompt)).text == "done"
    assert talk.all(PromptInjected) == []
    assert "forbidden" not in talk.server.requests[1].body.decode()


@pytest.mark.parametrize("queue", ["inject", "pause"])
async def test_queued_prompt_is_paused_at_an_interrupt_and_checked_when_it_is_sent(
    start: Start, workspace: Path, queue: str
) -> None:
    talk = await start([say("x").stall(), say("done"), say("more")], config=config_with_judge(workspace))
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await talk.client.submit(Prompt("w", "forbidden words"))
    await talk.client.submit(Interrupt("inject" if queue == "inject" else "pause"))
    await talk.until_end(prompt)
    assert talk.all(PromptInjected) == []
    assert [item.id for item in (await talk.client.snapshot()).queue] == ["w"]
    assert (await talk.say("next")).text == "done"
    await talk.client.submit(ChangePrompt("w", delivery="queue"))
    assert (await talk.until_end("w")).error_kind == "PromptBlocked"
    assert all("forbidden words" not in seen.body.decode() for seen in talk.server.requests)
