"""The user shell: `!command` runs at once without permission, and the model reads its output."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from odin.core.call_events import PermissionAsked, ToolProgressed, ToolStarted
from odin.core.errors import UsageError
from odin.core.event import ContextAdded
from odin.core.op import RunUserShell
from odin.engine.client import LocalClient
from odin.sandbox.runner import CommandResult, ProcessRunner
from odin.testing import call, say
from tests.waiting import TimeLimit

from .conftest import Start, Talk


async def wait_for_output(talk: Talk, command: str) -> ContextAdded:
    async with TimeLimit():
        async for envelope in talk.client.stream_events(after=-1):
            if isinstance(envelope.event, ContextAdded) and envelope.event.id == command:
                return envelope.event
    raise AssertionError("the command never ended")


async def test_output_and_exit_code_are_sent_with_the_next_prompt(start: Start, workspace: Path) -> None:
    talk = await start([say("ok"), say("ok")], yes=False)
    await talk.client.submit(RunUserShell("r", "pwd; echo bad >&2; exit 4"))
    added = await wait_for_output(talk, "r")
    assert added.content == f"{workspace}\nbad\n(exit code 4)"
    assert added.command == "pwd; echo bad >&2; exit 4"
    assert talk.server.requests == [], "the model is not asked"
    await talk.say("look")
    text = talk.server.requests[0].body.decode()
    assert "Context from `pwd; echo bad >&2; exit 4`" in text
    assert "(exit code 4)" in text
    await talk.say("again")
    assert talk.server.requests[1].body.decode().count("exit code 4") == 1


async def test_user_command_needs_no_permission(start: Start, workspace: Path) -> None:
    rules = {"ForbiddenCommands": ["touch"], "rules": ["deny Bash(*)"]}
    talk = await start([say("ok")], yes=False, can_ask=True, permission_mode="dontAsk", config=rules)
    await talk.client.submit(RunUserShell("r", "touch mine"))
    await wait_for_output(talk, "r")
    assert (workspace / "mine").exists()
    await talk.say("look")
    assert talk.all(PermissionAsked) == []
    assert talk.all(ToolStarted) == [], "it is not a tool call of the model"


async def test_secrets_are_removed_from_environment_and_output(start: Start) -> None:
    talk = await start([say("ok")], env={"DEPLOY_TOKEN": "s3cr3t-deploy-value-1"})
    key = "sk-ant-api03-" + "aB3dE5gH7jK9" * 8
    await talk.client.submit(RunUserShell("r", f"echo token=$DEPLOY_TOKEN; echo {key}"))
    added = await wait_for_output(talk, "r")
    assert "s3cr3t" not in added.content
    assert key not in added.content + added.command
    await talk.say("look")
    assert key not in talk.server.requests[0].body.decode()


async def test_long_output_is_cut_and_saved_to_a_file(start: Start) -> None:
    talk = await start([say("ok")])
    await talk.client.submit(RunUserShell("r", "echo first; head -c 300000 /dev/zero | tr '\\0' x; echo; echo last"))
    added = await wait_for_output(talk, "r")
    assert len(added.content) < 25_000
    assert added.content.startswith("first\n")
    assert added.content.endswith("last")
    assert "output-" in added.content, "it says which file holds the rest"


async def test_command_runs_during_a_turn_and_is_sent_in_that_turn(start: Start) -> None:
    gate = threading.Event()
    talk = await start([call("ExecuteCommand", {"command": "true"}).hold(gate), say("seen")])
    prompt = await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 1)
    await talk.client.submit(RunUserShell("r", "echo one; sleep 0.3; echo two"))
    await wait_for_output(talk, "r")
    gate.set()
    assert (await talk.until_end(prompt)).text == "seen"
    assert "one\\ntwo" in talk.server.requests[1].body.decode()
    shown = [event.text for event in talk.all(ToolProgressed) if event.call_id == "r"]
    assert shown[:1] == ["one"], "output is shown while the command runs"
    assert talk.server.rejected == []


async def test_failure_to_start_a_command_is_reported(start: Start, workspace: Path) -> None:
    talk = await start([])
    workspace.rename(workspace.with_name("moved"))
    await talk.client.submit(RunUserShell("r", "true"))
    assert "could not be started" in (await wait_for_output(talk, "r")).content
    with pytest.raises(UsageError):
        await talk.client.submit(RunUserShell("e", "  "))


async def test_closing_the_session_ends_the_command(start: Start, workspace: Path) -> None:
    talk = await start([])
    await talk.client.submit(RunUserShell("r", "touch begun; sleep 1000"))
    async with TimeLimit():
        while not (workspace / "begun").exists():
            await asyncio.sleep(0.01)
        assert await talk.client.close()


async def test_no_output_is_shown_after_the_end_of_a_command(start: Start) -> None:
    """Neither buffered output nor later output of surviving processes is shown."""
    talk = await start([])
    commands = cast("LocalClient", talk.client).session.deps.user_shell
    runner = _InstantRunner()
    commands._runner = cast("ProcessRunner", runner)
    await talk.client.submit(RunUserShell("r", "make"))
    assert (await wait_for_output(talk, "r")).content == "made"
    await talk.client.submit(RunUserShell("s", "make --silent"))
    await wait_for_output(talk, "s")
    runner.prints("late\n")
    await asyncio.sleep(0.3)  # earlier output is shown first: one loop keeps the order
    await talk.client.close()
    heard = [envelope.event async for envelope in talk.remaining()]
    assert [type(event) for event in heard].count(ContextAdded) == 2
    assert not [event for event in heard if isinstance(event, ToolProgressed)]


class _InstantRunner:
    """A runner whose commands print one line, or nothing, and end at once."""

    async def run(self, command: str, *, on_output: Callable[[str], None], **how: Any) -> CommandResult:
        self.prints = on_output
        if "--silent" not in command:
            on_output("made\n")
        return CommandResult(0, "made\n")
