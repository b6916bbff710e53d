"""A prompt is sent to a session in which another client works: whatever becomes of it, its front end ends with it."""

import asyncio
import io
import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odin.commands.mcp_serve import ServedRun
from odin.config import Options
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import Envelope, PromptQueued, TurnEnded
from odin.core.op import ChangePrompt, DropPrompt, Interrupt, Op, Prompt
from odin.host.manager import SessionManager
from odin.testing import ScriptedServer, call, say
from odin.ui.print import run_json, run_text
from tests.waiting import TimeLimit

Outcome = tuple[str, str]
"""What the front end gives as the answer, and what else it says."""
PROMPT = Prompt("mine", "And this.", "edit_mode")


async def _run(run: Callable[..., Awaitable[int]], client: Client, path: Path, **more: Any) -> tuple[int, str]:
    with path.open("w") as out:
        code = await run(client, out=out, **more)
    return code, path.read_text()


async def print_text(client: Client, path: Path) -> Outcome:
    err = io.StringIO()
    code, text = await _run(run_text, client, path, prompt=PROMPT, err=err)
    assert (code == 0) == bool(text)
    return text.strip(), err.getvalue()


async def print_json(client: Client, path: Path) -> Outcome:
    err = io.StringIO()
    code, text = await _run(run_json, client, path, prompt=PROMPT, err=err)
    assert (code == 0) == bool(text)
    return json.loads(text)["result"] if text else "", err.getvalue()


async def serve_mcp(client: Client, path: Path) -> Outcome:
    async def report_progress(*told: object) -> None: ...

    context: Any = SimpleNamespace(session=SimpleNamespace(report_progress=report_progress))
    run = ServedRun(client, "", AsyncExitStack())
    try:
        ended = await run.advance(context, PROMPT)
        assert isinstance(ended, TurnEnded)
        return ended.text, ""
    except OdinError as error:
        return "", error.describe()
    finally:
        await run.close()


async def read_queued(events: AsyncIterator[Envelope]) -> PromptQueued:
    """Read events until a prompt is queued."""
    async with TimeLimit("a prompt to be queued"):
        async for envelope in events:
            if isinstance(envelope.event, PromptQueued):
                return envelope.event
    raise AssertionError("the session was closed")


FRONT_ENDS = {"text": print_text, "json": print_json, "mcp": serve_mcp}
QUEUE = "The prompt waits in the queue: the turn before it was interrupted."
INJECTED = "The turn before it was interrupted. The prompt is in the conversation, without an answer."
FATES: dict[str, tuple[Callable[[str], Op] | None, Outcome]] = {
    "own turn": (None, ("Mine.", "")),
    "joined": (lambda name: ChangePrompt(name, delivery="merge"), ("Both.", "")),
    "steered": (lambda name: ChangePrompt(name, delivery="steer"), ("Both.", "")),
    "dropped": (lambda name: DropPrompt(name), ("", "The prompt was removed from the queue.")),
    "paused": (lambda name: Interrupt("pause"), ("", QUEUE)),
    "unanswered": (lambda name: Interrupt("inject"), ("", INJECTED)),
}


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("front_end", FRONT_ENDS)
async def test_a_prompt_beside_the_work_of_another_client(
    front_end: str, fate: str, workspace: Path, tmp_path: Path
) -> None:
    make_op, (answer, said) = FATES[fate]
    gate = threading.Event()
    script = [call("LS", {"path": str(workspace)}).hold(gate)]
    script += [say("One."), say("Mine.")] if make_op is None else [say("Both.")]
    with ScriptedServer(script) as server:
        options = Options(cwd=str(workspace), env={**os.environ, **server.env("anthropic")})
        holder = await SessionManager().open(options)
        events = holder.stream_events()
        await holder.submit(Prompt("first", "Look.", "edit_mode"))
        await asyncio.to_thread(server.wait_for, 1)
        other = holder.session.attach(answers=True)
        outcome = asyncio.create_task(FRONT_ENDS[front_end](other, tmp_path / "out"))
        queued = await read_queued(events)
        if make_op is not None:
            await holder.submit(make_op(queued.id))
        if fate != "dropped":  # for that it need not wait
            gate.set()
        async with TimeLimit("the front end to end"):
            assert (await outcome)[0] == answer
            assert said in (await outcome)[1]
        gate.set()
        await other.detach()
        await holder.close()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
async def test_a_prompt_in_a_session_that_its_owner_closes(front_end: str, workspace: Path, tmp_path: Path) -> None:
    gate = threading.Event()
    with ScriptedServer([say("One.").hold(gate)]) as server:
        options = Options(cwd=str(workspace), env={**os.environ, **server.env("anthropic")})
        holder = await SessionManager().open(options)
        events = holder.stream_events()
        await holder.submit(Prompt("first", "Look.", "edit_mode"))
        outcome = asyncio.create_task(FRONT_ENDS[front_end](holder.session.attach(answers=True), tmp_path / "out"))
        await read_queued(events)
        assert await holder.session.close()
        gate.set()
        async with TimeLimit("the front end to end"):
            assert (await outcome)[0] == "" and "The session was closed" in (await outcome)[1]
