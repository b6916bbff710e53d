"""Steering prompts skip the calls of a turn that have not started."""

from pathlib import Path
from typing import Any, Literal

import pytest

from odin.core.call_events import PermissionAnswered, PermissionAsked, ToolEnded, ToolStarted
from odin.core.event import PromptInjected, TurnEnded
from odin.core.op import AnswerPermission, ChangePrompt, Prompt
from odin.testing import call, reply, say
from tests.waiting import until

from .conftest import WITHOUT_VIEWS, Start, Talk

APIS = ("anthropic", "openai")
Api = Literal["anthropic", "openai"]

SLOW = "touch begun; until [ -e go ]; do sleep 0.02; done; echo slow"


def make_batch(workspace: Path) -> Any:
    return reply(
        calls=[
            call("ExecuteCommand", {"command": SLOW}, id="c_slow"),
            call("ExecuteCommand", {"command": "touch late"}, id="c_late"),
            call("LS", {"path": str(workspace)}, id="c_look"),
        ]
    )


def list_statuses(talk: Talk) -> dict[str, str]:
    return {event.call_id: event.status for event in talk.all(ToolEnded)}


@pytest.mark.parametrize("api", APIS)
async def test_steering_skips_calls_that_have_not_started(start: Start, workspace: Path, api: Api) -> None:
    talk = await start([make_batch(workspace), say("changed course")], api, config=WITHOUT_VIEWS)
    prompt = await talk.submit("go")
    await until((workspace / "begun").exists)
    await talk.client.submit(Prompt("s", "stop that, do this", delivery="steer"))
    (workspace / "go").touch()
    assert (await talk.until_end(prompt)).text == "changed course"
    assert list_statuses(talk) == {"c_slow": "success", "c_late": "cancelled", "c_look": "cancelled"}
    assert not (workspace / "late").exists()
    request = talk.server.requests[1]
    assert request.results["c_slow"] == "slow"
    assert all("Skipped due to queued user message." in request.results[name] for name in ("c_late", "c_look"))
    last = request.messages[-1]
    assert last["role"] == "user"
    assert "stop that, do this" in str(last)
    assert [(event.id, event.turn) for event in talk.all(PromptInjected)] == [("s", prompt)]
    assert talk.server.rejected == []


async def test_queued_prompt_can_become_a_steering_prompt(start: Start, workspace: Path) -> None:
    talk = await start([make_batch(workspace), say("changed course")], config=WITHOUT_VIEWS)
    prompt = await talk.submit("go")
    await until((workspace / "begun").exists)
    draft = await talk.submit("rather this")
    assert await talk.client.submit(ChangePrompt(draft, delivery="steer"))
    (workspace / "go").touch()
    assert (await talk.until_end(prompt)).text == "changed course"
    assert list_statuses(talk)["c_late"] == "cancelled"
    assert (await talk.client.snapshot()).queue == ()


@pytest.mark.parametrize(("steering", "requests"), [("one-at-a-time", 3), ("all", 2)])
async def test_steering_setting_sends_prompts_one_at_a_time_or_all_at_once(
    start: Start, workspace: Path, steering: str, requests: int
) -> None:
    look = call("LS", {"path": str(workspace)}, id="c_again")
    script = [make_batch(workspace), *([look] if requests == 3 else []), say("done")]
    talk = await start(script, config={"queue": {"mode": "steer", "steering": steering}, **WITHOUT_VIEWS})
    prompt = await talk.submit("go")
    await until((workspace / "begun").exists)
    await talk.submit("first")
    await talk.submit("second")
    (workspace / "go").touch()
    assert (await talk.until_end(prompt)).text == "done"
    assert len(talk.server.requests) == requests
    assert ("second" in str(talk.server.requests[1].messages[-1])) == (steering == "all")
    assert "second" in str(talk.server.requests[-1].messages[-1])
    if requests == 3:
        assert list_statuses(talk)["c_again"] == "cancelled", "the second prompt skips its call, too"
    assert talk.server.rejected == []


async def test_steering_cancels_a_pending_permission_request(start: Start, workspace: Path) -> None:
    write = call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}, id="c_w")
    talk = await start([write, say("fine")], yes=False, can_ask=True)
    prompt = await talk.submit("go")
    await talk.until(PermissionAsked)
    await talk.client.submit(Prompt("s", "no, leave it", delivery="steer"))
    await talk.until(TurnEnded)
    talk.answers = [AnswerPermission("", True, "too late")]
    assert (await talk.until_end(prompt)).text == "fine"
    assert list_statuses(talk) == {"c_w": "cancelled"}
    assert [(event.allowed, event.by) for event in talk.all(PermissionAnswered)] == [(False, "steer")]
    assert talk.all(ToolStarted) == []
    assert talk.server.requests[1].results["c_w"] == "Skipped due to queued user message."
    assert talk.server.rejected == []


async def test_first_request_includes_an_earlier_steering_prompt(start: Start) -> None:
    talk = await start([say("one"), say("two")])
    first = await talk.submit("a")
    await talk.submit("b")
    await talk.client.submit(Prompt("s", "and c", delivery="steer"))
    assert (await talk.until_end(first)).text == "one"
    assert "and c" in str(talk.server.requests[0].messages), "it goes before queued prompts"
    assert (await talk.until_end("p2")).text == "two"
    assert talk.server.rejected == []
