"""Interactions: several may be pending, any client that answers may answer them, and rules settle them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAnswered, PermissionAsked, PlanAsked, QuestionsAsked, ToolEnded
from odin.core.client import Client
from odin.core.errors import NeedsConfirmation, UsageError
from odin.core.event_values import Option, Question
from odin.core.interaction import Interaction
from odin.core.op import Answer, SetPermissionMode
from odin.engine.event_bus import EventBus
from odin.engine.interactions import Interactions
from odin.engine.recorder import Recorder
from odin.session.state import SessionState
from odin.testing import call, reply, say
from tests.waiting import TimeLimit, until

from .conftest import Start, Talk
from .test_permission_requests import ASKING, write

TASKS = [call("AgentTool", {"description": f"task {n}", "prompt": "Write."}, id=f"t{n}") for n in range(2)]


async def wait_for_pending(client: Client, count: int) -> tuple[Interaction, ...]:
    async with TimeLimit():
        while len(pending := (await client.snapshot()).interactions) != count:
            await asyncio.sleep(0.01)
    return pending


@pytest.fixture
def interactions() -> Interactions:
    return Interactions(Recorder(None, SessionState("s"), EventBus()))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_agents_wait_for_their_own_answers(start: Start, workspace: Path, order: tuple[int, int]) -> None:
    writes = [write(workspace / name, id=name) for name in "ab"]
    talk = await start([reply(calls=TASKS), *writes, say("one"), say("two"), say("ok")], **ASKING)
    prompt = await talk.submit("go")
    pending = await wait_for_pending(talk.client, 2)
    assert {item.agent for item in pending} == {"agent-1", "agent-2"}
    first, second = (pending[number] for number in order)
    assert await talk.client.submit(Answer(first.id, "allow_once"))
    assert not await talk.client.submit(Answer(first.id, "deny")), "the first answer wins"
    assert await wait_for_pending(talk.client, 1) == (second,)
    await until(lambda: any(workspace.iterdir()))
    assert await talk.client.submit(Answer(second.id, "deny", "Not this one."))
    ended = [event async for event in _read_until(talk, prompt)]
    statuses = {event.call_id: event.status for event in ended if event.call_id in "ab"}
    assert statuses == {first.call_id: "success", second.call_id: "denied"}


async def _read_until(talk: Talk, prompt: str) -> AsyncIterator[ToolEnded]:
    async for envelope in talk.client.stream_events(after=-1):
        if isinstance(envelope.event, ToolEnded):
            yield envelope.event
        if getattr(envelope.event, "id", "") == prompt and type(envelope.event).__name__ == "TurnEnded":
            return


async def test_permission_mode_settles_what_it_allows(start: Start, workspace: Path) -> None:
    writes = [write(workspace / name, id=name) for name in "ab"]
    talk = await start([reply(calls=TASKS), *writes, say("one"), say("two"), say("ok")], **ASKING)
    prompt = await talk.submit("go")
    await wait_for_pending(talk.client, 2)
    await talk.client.submit(SetPermissionMode("acceptEdits"))
    assert [event.status async for event in _read_until(talk, prompt)] == ["success"] * 4
    answers = await talk.recorded_events(PermissionAnswered)
    assert [(event.allowed, event.by) for event in answers] == [(True, "rule")] * 2


async def test_client_that_attaches_later_can_answer(start: Start, workspace: Path) -> None:
    talk = await start([write(workspace / "a", id="1"), write(workspace / "b", id="2"), say("ok")], yes=False)
    client: Any = talk.client
    late = client.session.attach(answers=True)
    prompt = await talk.submit("go")
    (pending,) = await wait_for_pending(client, 1)
    with pytest.raises(UsageError, match="may watch the session"):
        await client.submit(Answer(pending.id, "allow_once"))
    await late.detach()
    assert await wait_for_pending(client, 1) == (pending,), "it waits for another client"
    other = client.session.attach(answers=True)
    assert await other.submit(Answer(pending.id, "allow_once"))
    await other.detach()
    ended = [event.status async for event in _read_until(talk, prompt)]
    assert ended == ["success", "denied"], "nobody could be asked about the second call"


async def test_headless_run_denies_what_is_pending_when_its_input_ends(start: Start, workspace: Path) -> None:
    talk = await start([write(workspace / "a"), say("ok")], headless=True, **ASKING)
    prompt = await talk.submit("go")
    await wait_for_pending(talk.client, 1)
    talk.client.set_answering(False, "The input was closed.")
    (ended,) = [event async for event in _read_until(talk, prompt)]
    assert (ended.status, ended.text) == ("denied", "Denied: The input was closed. Nothing was done.")
    (answered,) = await talk.recorded_events(PermissionAnswered)
    assert answered.by == "nobody"


async def test_can_ask_follows_the_attached_clients(interactions: Interactions) -> None:
    assert not interactions.can_ask
    watching, answering = interactions.attach(answers=False), interactions.attach(answers=True)
    assert interactions.can_ask
    answering.set_answering(False)
    assert not interactions.can_ask
    watching.set_answering(True)
    assert interactions.can_ask
    watching.detach()
    assert not interactions.can_ask
    with pytest.raises(NeedsConfirmation, match="No user can be asked here"):
        await interactions.ask_questions("c", (Question("", "Which?"),), "")


async def test_the_clock_of_an_agent_stands_while_it_waits_for_an_answer() -> None:
    now = 100.0
    interactions = Interactions(Recorder(None, SessionState("s"), EventBus()), clock=lambda: now)
    interactions.attach(answers=True)
    asking = asyncio.create_task(interactions.ask_questions("c", (Question("", "Which?", (Option("this"),)),), "one"))
    await asyncio.sleep(0)
    now += 5
    assert (interactions.measure_work("one"), interactions.measure_work("two")) == (100.0, 105.0)
    assert interactions.answer(Answer("ask-0-1", "answer"))
    assert await asking == (("this",),)
    now += 1
    assert (interactions.measure_work("one"), interactions.measure_work("two")) == (101.0, 106.0)


@pytest.mark.parametrize(
    ("asked", "choice"),
    [
        (
            PermissionAsked("", "c", "Bash", {"command": "ls"}, "why", unsandboxed=True, rules=("Bash",)),
            "allow_session",
        ),
        (QuestionsAsked("", "c", (Question("", "Which?"),)), "allow_once"),
        (PlanAsked("", "c", "p", "t", "text"), "answer"),
    ],
)
async def test_only_offered_choices_are_accepted(interactions: Interactions, asked: Any, choice: str) -> None:
    asking = asyncio.create_task(interactions.ask(asked, ""))
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="is not an answer to this"):
        interactions.answer(Answer("ask-0-1", choice))
    asking.cancel()
    assert not interactions.answer(Answer("unknown", "deny"))
