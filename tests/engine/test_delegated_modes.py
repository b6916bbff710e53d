"""The mode of delegated work: a task does no more than the turn that writes to it may do."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.core.event import AgentStarted, ModeChanged, TurnStarted
from odin.core.event_values import Mode, get_strictest_mode
from odin.core.op import Interrupt, Prompt, SetLoop
from odin.core.team import MailSent, TaskChanged
from odin.testing import SeenRequest, Turn, call, say
from tests.waiting import TimeLimit

from .conftest import Start, Talk
from .test_team import complete, delegate, settle

WRITE = call("WriteFile", {"file_path": "made.txt", "content": "x"}, id="write")
ESCALATE = call("Escalate", {"question": "Shall I?"})
READ = call("Glob", {"pattern": "*"})


class OwnerScript:
    """The main agent delegates when it is told "give out" and writes to the task when told "carry on"."""

    def __init__(self, *task: Turn) -> None:
        self.task = list(task)
        self.writes: list[SeenRequest] = []

    def __call__(self, seen: SeenRequest) -> Turn:
        if "write" in seen.results:
            self.writes.append(seen)
        if "Delegate" not in seen.tool_names:
            return self.task.pop(0)
        newest = json.dumps(seen.messages[-1])
        if "give out" in newest:
            return delegate("a")
        if "carry on" in newest:
            return call("Notify", {"task_id": "adhoc-1", "message": "write it"}, id="notify")
        return say("ok")

    def is_refused(self, mode: Mode) -> bool:
        """True if every attempt to write was refused because of this mode."""
        return bool(self.writes) and all(f"not available in {mode}" in seen.results["write"] for seen in self.writes)


async def give_out(start: Start, script: OwnerScript, **options: Any) -> Talk:
    """Delegate the task in edit mode."""
    talk = await start(script, **options)
    await talk.say("give out")
    return talk


async def until_state(talk: Talk, state: str) -> None:
    async with TimeLimit():
        while (await talk.client.snapshot()).tasks[0].state != state:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode"])
@pytest.mark.parametrize("state", ["completed", "waiting_main", "running", "interrupted", "resumed"])
async def test_a_task_changes_nothing_for_a_turn_that_may_not(
    start: Start, workspace: Path, mode: Mode, state: str
) -> None:
    gate = threading.Event()
    first = {"waiting_main": ESCALATE, "running": READ.hold(gate), "interrupted": say("hm").hold(gate)}
    script = OwnerScript(first.get(state, complete("first part")), WRITE, complete("second part"))
    talk = await give_out(start, script)
    if state in ("completed", "waiting_main"):
        await until_state(talk, state)
    elif state == "interrupted":
        await asyncio.to_thread(talk.server.wait_for, 3)
        await talk.client.submit(Interrupt(agent="general-1"))
        gate.set()
        await until_state(talk, "idle")
    if state == "resumed":
        await settle(talk.client)
        session = (await talk.client.get_info()).session
        await talk.client.close()
        talk = await start(None, server=talk.server, resume=session)
    await talk.say("carry on", mode)
    gate.set()
    await settle(talk.client)
    assert script.is_refused(mode)
    assert not (workspace / "made.txt").exists()
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary, task.mode) == ("completed", "second part", "edit_mode")
    answer = next(seen.results["notify"] for seen in talk.server.requests if "notify" in seen.results)
    assert f"It works on it in {mode}" in answer
    sent = [event.mail for event in await talk.recorded_events(TaskChanged)] + await talk.recorded_events(MailSent)
    messages = [mail for mail in sent if mail is not None and mail.kind == "message"]
    assert [mail.mode for mail in messages] == ["edit_mode", mode]
    is_switched = state == "running"
    assert (mode in [event.mode for event in await talk.recorded_events(ModeChanged)]) == is_switched
    assert talk.server.rejected == []


async def test_a_turn_in_edit_mode_continues_the_task_in_its_own_mode_again(start: Start, workspace: Path) -> None:
    script = OwnerScript(complete("first"), WRITE, complete("second"), WRITE, complete("third"))
    talk = await give_out(start, script)
    await settle(talk.client)
    await talk.say("carry on", "ask_mode")
    await settle(talk.client)
    assert not (workspace / "made.txt").exists()
    await talk.say("carry on")
    await settle(talk.client)
    assert (workspace / "made.txt").read_text() == "x"
    assert [event.mode for event in await talk.recorded_events(AgentStarted)] == ["edit_mode", "ask_mode", "edit_mode"]


async def test_a_task_given_out_in_ask_mode_stays_there(start: Start, workspace: Path) -> None:
    script = OwnerScript(complete("first"), WRITE, complete("second"))
    talk = await start(script)
    await talk.say("give out", "ask_mode")
    await settle(talk.client)
    await talk.say("carry on", "edit_mode")
    await settle(talk.client)
    assert script.is_refused("ask_mode")
    assert not (workspace / "made.txt").exists()


async def test_an_unread_message_keeps_its_mode_when_the_session_is_resumed(start: Start, workspace: Path) -> None:
    gate = threading.Event()
    script = OwnerScript(READ.hold(gate), WRITE, complete("done"))
    talk = await give_out(start, script)
    await talk.say("carry on", "ask_mode")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    gate.set()
    script.task[:] = [WRITE, complete("done")]
    talk = await start(None, server=talk.server, resume=session)
    await talk.say("carry on", "edit_mode")
    await settle(talk.client)
    assert script.is_refused("ask_mode")
    assert not (workspace / "made.txt").exists()


async def test_a_reminder_does_not_give_the_mode_back(start: Start, workspace: Path) -> None:
    script = OwnerScript(complete("first"), say("I stop."), WRITE, complete("second"))
    talk = await give_out(start, script, config={"team": {"idle_s": 0.01}})
    await settle(talk.client)
    await talk.say("carry on", "ask_mode")
    await settle(talk.client)
    assert script.is_refused("ask_mode")


async def test_a_reminder_after_a_question_of_the_user_does_not_allow_changes(start: Start, workspace: Path) -> None:
    """The user asks the agent itself, which then stops without Complete."""
    script = OwnerScript(ESCALATE, say("I stop."), WRITE, complete("done"))
    talk = await give_out(start, script, config={"team": {"idle_s": 0.01}})
    await until_state(talk, "waiting_main")
    await talk.client.submit(Prompt("mine", "what do you do?", "ask_mode", agent="general-1"))
    await settle(talk.client)
    assert script.is_refused("ask_mode")


async def test_a_loop_without_a_mode_goes_on_in_that_of_the_message(start: Start, workspace: Path) -> None:
    gate = threading.Event()
    script = OwnerScript(READ.hold(gate), say("I stop."), WRITE, complete("done"))
    talk = await give_out(start, script)
    await asyncio.to_thread(talk.server.wait_for, 3)
    await talk.client.submit(SetLoop(True, "write it", agent="general-1"))
    await talk.say("carry on", "ask_mode")
    gate.set()
    await settle(talk.client)
    assert script.is_refused("ask_mode")
    assert not (workspace / "made.txt").exists()


@pytest.mark.parametrize("agent", ["main", "sub-agent"])
async def test_the_end_of_a_process_starts_no_turn_that_may_do_more_than_the_last_one(
    start: Start, workspace: Path, agent: str
) -> None:
    """Also if a sub-agent has started the process: the main agent reads of its end."""
    spawn = call("Spawn", {"command": "until [ -e go ]; do sleep 0.02; done"})
    turns = {"begin": spawn, "give out": delegate("a"), "spawn-1": WRITE}
    task = [spawn, complete("started")]

    def play(seen: SeenRequest) -> Turn:
        if "Delegate" not in seen.tool_names:
            return task.pop(0)
        newest = json.dumps(seen.messages[-1])
        return next((turn for text, turn in turns.items() if text in newest and "tool_result" not in newest), say("ok"))

    talk = await start(play)
    await talk.say("begin" if agent == "main" else "give out")
    await settle(talk.client)
    await talk.say("what is this?", "ask_mode")
    (workspace / "go").touch()
    await talk.until_end("spawn-1-ended")
    assert not (workspace / "made.txt").exists()
    assert (await talk.recorded_events(TurnStarted))[-1].mode == "ask_mode"


def test_strictest_mode() -> None:
    """None, the mode of mail that is no message, limits nothing."""
    assert get_strictest_mode("edit_mode", None) == "edit_mode"
    assert get_strictest_mode("plan_mode", "edit_mode", None) == "plan_mode"
    assert get_strictest_mode("edit_mode", "plan_mode", "ask_mode") == "ask_mode"
