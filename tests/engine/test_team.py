"""Delegated tasks: a handle at once, the result later as mail, and each agent on its own."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.event import AgentStarted, Envelope, NoteAdded, TurnStarted
from odin.core.op import Interrupt, Prompt
from odin.core.team import MailSent, TaskChanged
from odin.testing import SeenRequest, Turn, call, reply, say
from tests.team_log import check_team

from .conftest import Start


class Cast:
    """Plays the model of every agent: `main` for the main agent, else the turns of the task named in the request."""

    def __init__(self, main: list[Turn], **tasks: list[Turn]) -> None:
        self.main = main
        self.tasks = tasks

    def __call__(self, seen: SeenRequest) -> Turn:
        if "Delegate" in seen.tool_names:
            return self.main.pop(0)
        first = json.dumps(seen.messages)
        name = next(name for name in self.tasks if f"job {name}" in first)
        return self.tasks[name].pop(0)


def delegate(name: str, **more: Any) -> Turn:
    args = {"description": f"job {name}", "agent_type": "general", **more}
    return call("Delegate", args, id=f"call-{name}")


def complete(summary: str, **more: Any) -> Turn:
    return call("Complete", {"summary": summary, **more})


async def settle(client: Client) -> None:
    """Wait until nobody works any more."""
    async with asyncio.timeout(20):
        while True:
            shot = await client.snapshot()
            if not shot.executing and not shot.team_working:
                return
            await asyncio.sleep(0.01)


def mail_in(request: SeenRequest) -> str:
    """The newest message of a request, as text."""
    return json.dumps(request.messages[-1])


async def test_delegate_returns_at_once_and_the_result_comes_as_mail(start: Start) -> None:
    cast = Cast([delegate("a"), say("I go on."), say("All done.")], a=[complete("found 3", known_risks=["none"])])
    talk = await start(cast)
    ended = await talk.say("go")
    assert ended.text == "I go on."
    await settle(talk.client)
    shot = await talk.client.snapshot()
    (task,) = shot.tasks
    assert (task.id, task.type, task.state, task.summary) == ("adhoc-1", "general", "completed", "found 3")
    assert task.agents == ("general-1",)
    assert shot.sub_agents == ()
    requests = talk.server.requests
    handle = requests[1] if "Delegate" in requests[1].tool_names else requests[2]
    assert '"task_id":"adhoc-1"' in handle.results["call-a"]
    last = requests[-1]
    assert "completed from general-1, task adhoc-1" in mail_in(last)
    assert "found 3" in mail_in(last)
    assert "Risks: none" in mail_in(last)
    assert talk.server.rejected == []


async def test_an_escalation_waits_for_the_owner_whose_answer_continues_it(start: Start) -> None:
    cast = Cast(
        [delegate("a"), say("ok"), call("Notify", {"task_id": "adhoc-1", "message": "take the left"}), say("answered")],
        a=[call("Escalate", {"question": "left or right?"}), complete("went left")],
    )
    cast.main.append(say("good"))
    talk = await start(cast)
    await talk.say("go")
    await settle(talk.client)
    states = [event.state for event in await talk.heard_until_now(TaskChanged)]
    assert states == ["running", "waiting_main", "running", "completed"]
    (answer,) = await talk.heard_until_now(MailSent)
    changes = await talk.heard_until_now(TaskChanged)
    started, asked = changes[0].mail, changes[1].mail
    assert [(item.kind, item.recipient) for item in (started, answer)] == [("message", "general-1")] * 2
    assert (asked.priority, asked.needs_reply, answer.in_reply_to) == ("interrupt", True, asked.id)
    assert talk.server.rejected == []


async def test_an_agent_that_stops_without_complete_is_reminded_three_times_and_fails(start: Start) -> None:
    cast = Cast([delegate("a"), say("ok"), say("I see")], a=[say(f"text {number}") for number in range(4)])
    talk = await start(cast, config={"team": {"idle_s": 0.01}})
    await talk.say("go")
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, "ignored 3 reminders" in task.closed_reason) == ("failed", True)
    assert "The task failed" in mail_in(talk.server.requests[-1])


async def test_a_completed_task_is_continued_by_a_new_agent_with_its_conversation(start: Start) -> None:
    more = call("Notify", {"task_id": "adhoc-1", "message": "one more thing"})
    cast = Cast(
        [delegate("a"), say("ok"), more, say("sent"), say("all")], a=[complete("first part"), complete("second part")]
    )
    talk = await start(cast)
    await talk.say("go")
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.agents, task.summary) == ("completed", ("general-1", "general-2"), "second part")
    second = [seen for seen in talk.server.requests if "Complete" in seen.tool_names][-1]
    assert "first part" in json.dumps(second.messages)
    assert "one more thing" in mail_in(second)
    assert talk.server.rejected == []


REFUSED: list[tuple[list[Turn], str]] = [
    ([call("Delegate", {"description": "  "}, id="x")], "The task has no description."),
    ([call("Delegate", {"description": "d", "agent_type": "explor"}, id="x")], "explore"),
    ([call("Delegate", {"description": "d", "agent_type": "planner"}, id="x")], "is a role of the main agent"),
    (
        [call("Delegate", {"description": "d", "expected_write_scope": {"files": ["../x"]}}, id="x")],
        "is outside the project",
    ),
    (
        [call("Notify", {"task_id": "adhoc-9", "message": "hi"}, id="x")],
        "You have no tasks.",
    ),
    ([call("Cancel", {"task_id": "adhoc-9"}, id="x")], "There is no task 'adhoc-9'."),
    ([call("Complete", {"summary": "done"}, id="x")], "There is no tool 'Complete'"),
]


@pytest.mark.parametrize(("turns", "expected"), REFUSED)
async def test_bad_calls_are_answered_with_a_sentence(start: Start, turns: list[Turn], expected: str) -> None:
    talk = await start(Cast([*turns, say("I see")]))
    assert (await talk.say("go")).text == "I see"
    assert expected in talk.server.requests[-1].results["x"]
    assert (await talk.client.snapshot()).tasks == ()


async def test_limits_keys_and_scopes_are_checked_before_anything_starts(start: Start) -> None:
    scope = {"expected_write_scope": {"path_prefix": ["src"]}}
    calls = [
        delegate("a", semantic_task_key="k", **scope),
        delegate("b", semantic_task_key="k"),
        delegate("c", expected_write_scope={"files": ["src/x.py"]}),
        delegate("d"),
        delegate("e"),
    ]
    hold = threading.Event()
    cast = Cast(
        [reply(calls=calls), say("ok"), say("done"), say("done")],
        a=[complete("a").hold(hold)],
        d=[complete("d").hold(hold)],
    )
    talk = await start(cast, config={"team": {"max_running": 2}})
    await talk.say("go")
    answered = next(seen for seen in talk.server.requests if seen.results)
    statuses = [json.loads(answered.results[f"call-{name}"])["status"] for name in "abcde"]
    assert statuses == ["running", "already_exists", "scope_conflict", "running", "agent_limit_reached"]
    hold.set()
    await settle(talk.client)
    assert [task.state for task in (await talk.client.snapshot()).tasks] == ["completed", "completed"]


async def test_each_agent_can_be_prompted_and_interrupted_on_its_own(start: Start) -> None:
    hold = threading.Event()
    cast = Cast(
        [reply(calls=[delegate("a"), delegate("b")]), say("ok"), say("seen"), say("seen"), say("seen")],
        a=[say("working").hold(hold)],
        b=[say("thinking").hold(hold), complete("b is done")],
    )
    talk = await start(cast)
    await talk.say("go")
    await asyncio.to_thread(talk.server.wait_for, 4)
    assert await talk.client.submit(Interrupt(agent="general-1"))
    assert await talk.client.submit(Prompt("mine", "also look at y", agent="general-2"))
    queued = (await talk.client.snapshot()).queue
    assert [(item.id, item.agent) for item in queued] == [("mine", "general-2")]
    hold.set()
    await settle(talk.client)
    states = {task.description: task.state for task in (await talk.client.snapshot()).tasks}
    assert states == {"job a": "idle", "job b": "completed"}
    asked = [seen for seen in talk.server.requests if "also look at y" in json.dumps(seen.messages)]
    assert len(asked) == 1
    with pytest.raises(UsageError, match="There is no running agent 'general-7'"):
        await talk.client.submit(Prompt("x", "hi", agent="general-7"))


async def test_interrupting_the_main_agent_stops_everybody(start: Start) -> None:
    hold = threading.Event()
    cast = Cast([delegate("a"), say("ok")], a=[say("working").hold(hold)])
    talk = await start(cast)
    await talk.say("go")
    await asyncio.to_thread(talk.server.wait_for, 3)
    assert await talk.client.submit(Interrupt())
    hold.set()
    await settle(talk.client)
    shot = await talk.client.snapshot()
    assert ([task.state for task in shot.tasks], shot.sub_agents) == (["cancelled"], ())


async def test_several_agents_at_once_name_their_owner_and_call(start: Start) -> None:
    cast = Cast(
        [reply(calls=[delegate("a"), delegate("b"), delegate("c")]), say("ok"), say("done"), say("done"), say("done")],
        a=[complete("A")],
        b=[complete("B")],
        c=[complete("C")],
    )
    talk = await start(cast)
    await talk.say("go")
    await settle(talk.client)
    begun = await talk.heard_until_now(AgentStarted)
    assert {(event.id, event.owner, event.call_id, event.task_id) for event in begun} == {
        (f"general-{number}", "", f"call-{name}", f"adhoc-{number}") for number, name in enumerate("abc", 1)
    }
    delivered = [item for event in await talk.heard_until_now(TurnStarted) for item in event.mail]
    notes = [item for event in await talk.heard_until_now(NoteAdded) for item in event.mail]
    sent = [event.mail.id for event in await talk.heard_until_now(TaskChanged) if event.mail]
    sent += [event.id for event in await talk.heard_until_now(MailSent)]
    assert sorted([*delivered, *notes]) == sorted(sent)
    assert talk.server.rejected == []


BAD_OF_SUB_AGENT: list[tuple[Turn, str]] = [
    (call("Complete", {"summary": " "}, id="x"), "Complete needs a summary."),
    (call("Escalate", {"question": " "}, id="x"), "Escalate needs a question."),
    (call("Report", {"message": ""}, id="x"), "The message is empty."),
    (call("Report", {"message": "hi", "kind": "gossip"}, id="x"), "gossip"),
    (call("Delegate", {"description": "d"}, id="x"), "There is no tool 'Delegate'"),
    (call("Notify", {"task_id": "adhoc-1", "message": "to myself"}, id="x"), "There is no tool 'Notify'"),
]


@pytest.mark.parametrize(("bad", "expected"), BAD_OF_SUB_AGENT)
async def test_bad_calls_of_a_sub_agent_are_answered_and_its_work_goes_on(
    start: Start, bad: Turn, expected: str
) -> None:
    cast = Cast([delegate("a"), say("ok"), say("seen")], a=[bad, complete("done all the same")])
    talk = await start(cast)
    await talk.say("go")
    await settle(talk.client)
    answered = next(seen for seen in talk.server.requests if "x" in seen.results)
    assert expected in answered.results["x"]
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary) == ("completed", "done all the same")


BAD_OF_OWNER: list[tuple[Turn, str]] = [
    (call("Notify", {"task_id": "adhoc-7", "message": "hi"}, id="x"), "There is no task 'adhoc-7'"),
    (call("Notify", {"task_id": "adhoc-1", "message": " \n"}, id="x"), "The message is empty."),
    (call("Notify", {"task_id": "adhoc-1"}, id="x"), "message"),
    (call("Notify", {"task_id": "", "message": "to nobody"}, id="x"), "Your tasks: adhoc-1."),
    (call("Cancel", {"task_id": "general-1"}, id="x"), "There is no task 'general-1'"),
    (
        call("Delegate", {"description": "d", "expected_write_scope": {"path_prefix": ["/etc"]}}, id="x"),
        "is outside the project",
    ),
    (call("Delegate", {"description": "d", "expected_write_scope": {"folder": "src"}}, id="x"), "folder"),
]


@pytest.mark.parametrize(("bad", "expected"), BAD_OF_OWNER)
async def test_bad_calls_of_an_owner_leave_its_tasks_alone(start: Start, bad: Turn, expected: str) -> None:
    hold = threading.Event()
    cast = Cast([delegate("a"), bad, say("ok"), say("seen")], a=[complete("A").hold(hold)])
    talk = await start(cast)
    await talk.say("go")
    hold.set()
    await settle(talk.client)
    answered = next(seen for seen in talk.server.requests if "x" in seen.results)
    assert expected in answered.results["x"]
    assert [(task.id, task.state) for task in (await talk.client.snapshot()).tasks] == [("adhoc-1", "completed")]
    assert talk.server.rejected == []


async def test_an_ended_task_is_not_written_to_nor_cancelled_again(start: Start) -> None:
    hold = threading.Event()
    calls = [
        call("Cancel", {"task_id": "adhoc-1", "reason": "not needed"}, id="cancel"),
        call("Cancel", {"task_id": "adhoc-1"}, id="again"),
        call("Notify", {"task_id": "adhoc-1", "message": "hi"}, id="notify"),
    ]
    cast = Cast([delegate("a"), *calls, say("ok")], a=[complete("A").hold(hold)])
    talk = await start(cast)
    await talk.say("go")
    hold.set()
    await settle(talk.client)
    results = talk.server.requests[-1].results
    assert "had already ended" in results["again"]
    assert "cancelled and cannot be continued" in results["notify"]
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.closed_reason) == ("cancelled", "not needed")


async def test_a_message_that_comes_with_complete_is_read_and_needs_another_complete(start: Start) -> None:
    """The sub-agent has called Complete when the message arrives: it reads it, and what it says then counts."""
    hold, written = threading.Event(), threading.Event()
    notify = call("Notify", {"task_id": "adhoc-1", "message": "and also y"})
    cast = Cast(
        [delegate("a"), notify, say("ok").hold(written), say("seen")],
        a=[complete("x is done").hold(hold), say("I do y."), complete("x and y are done")],
    )
    talk = await start(cast, config={"team": {"idle_s": 0.01}})
    prompt = await talk.submit("go")
    while not any(item.kind == "message" for item in await talk.heard_until_now(MailSent)):
        await asyncio.sleep(0.01)
    hold.set()
    written.set()
    await talk.until_end(prompt)
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary, task.agents) == ("completed", "x and y are done", ("general-1",))


async def test_tasks_of_an_earlier_run_are_named_and_continued_with_their_unread_mail(start: Start) -> None:
    hold = threading.Event()
    notify = call("Notify", {"task_id": "adhoc-1", "message": "unread until now"})
    talk = await start(Cast([delegate("a"), notify, say("ok")], a=[say("working").hold(hold)]))
    await talk.say("go")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    hold.set()
    cast = Cast([call("Notify", {"task_id": "adhoc-1", "message": "go on"}), say("ok"), say("seen")], a=[complete("A")])
    again = await start(cast, resume=session)
    await again.say("continue")
    await settle(again.client)
    first, *_ = again.server.requests
    assert "adhoc-1 (idle). Notify continues one of them." in json.dumps(first.messages)
    of_agent = next(seen for seen in again.server.requests if "Complete" in seen.tool_names)
    assert "unread until now" in json.dumps(of_agent.messages)
    assert "go on" in mail_in(of_agent)
    log = [envelope async for envelope in _events_of(again.client)]
    assert [task.state for task in check_team(log).board.tasks.values()] == ["completed"]
    assert again.server.rejected == []


async def _events_of(client: Client) -> AsyncIterator[Envelope]:
    last = (await client.snapshot()).seq
    async for envelope in client.stream_events(after=-1):
        if envelope.event.durable:
            yield envelope
        if envelope.seq >= last:
            return


async def test_work_with_tools_resets_the_count_of_reminders(start: Start) -> None:
    work = [turn for number in range(5) for turn in (call("Report", {"message": f"{number}"}), say("and?"))]
    cast = Cast([delegate("a"), say("ok"), say("seen")], a=[*work, complete("at last")])
    talk = await start(cast, config={"team": {"idle_s": 0.01}})
    await talk.say("go")
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary) == ("completed", "at last")


async def test_a_task_whose_agent_cannot_start_has_failed_and_is_told(
    start: Start, workspace: Path, home: Path
) -> None:
    folder = workspace / ".odin" / "agents"
    folder.mkdir(parents=True)
    (folder / "broken.md").write_text("---\nname: broken\ndescription: d\nmodel: none/such\n---\nHelp.\n")
    bad = call("Delegate", {"description": "d", "agent_type": "broken"}, id="x")
    talk = await start(Cast([bad, say("I see")]), trust=True)
    await talk.say("go")
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, "could not start" in task.closed_reason) == ("failed", True)
    assert "none" in talk.server.requests[-1].results["x"]
