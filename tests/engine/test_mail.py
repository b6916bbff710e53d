"""Mail between agents: its order, its length, what wakes its recipient, and the ends of tasks that it tells of."""

import asyncio
import json
import threading
from pathlib import Path

from odin.core.team import MailSent
from odin.testing import call, reply, say

from .conftest import Start
from .test_agent_types import write_type
from .test_team import Cast, complete, delegate, mail_in, settle


async def test_urgent_mail_comes_first_and_of_progress_only_the_newest(start: Start) -> None:
    """Progress alone wakes nobody: the main agent has one turn for all of it."""
    reports = [
        call("Report", {"message": "progress one"}, id="r1"),
        call("Report", {"message": "progress two"}, id="r2"),
    ]
    danger = call("Report", {"message": "beware", "kind": "risk_alert"}, id="r3")
    hold = threading.Event()
    cast = Cast(
        [delegate("a"), say("ok"), say("seen")],
        a=[reply(calls=reports), reply(calls=[danger, complete("done", id="c")]).hold(hold)],
    )
    talk = await start(cast)
    await talk.say("go")
    async with asyncio.timeout(20):
        while len(await talk.heard_until_now(MailSent)) < 2:
            await asyncio.sleep(0.01)
    assert not (await talk.client.snapshot()).executing
    hold.set()
    await settle(talk.client)
    assert cast.main == [], "one turn reads everything"
    told = mail_in(talk.server.requests[-1])
    assert "progress one" not in told
    assert told.index("risk alert from general-1") < told.index("progress two")
    assert told.index("risk alert from general-1") < told.index("completed from general-1")


async def test_long_mail_is_saved_and_named(start: Start, home: Path) -> None:
    long, order = "found it. " * 60, "look again. " * 60
    again = call("Notify", {"task_id": "adhoc-1", "message": order})
    cast = Cast([delegate("a"), say("ok"), again, say("sent"), say("all")], a=[complete(long), complete("again")])
    talk = await start(cast)
    await talk.say("go")
    await settle(talk.client)
    told = next(mail_in(seen) for seen in talk.server.requests if "completed from general-1" in mail_in(seen))
    assert long not in told and "The whole text is the artifact mail/mail-2.md" in told
    (saved,) = home.glob(".local/state/odin/**/mail-2.md")
    assert saved.read_text().strip() == long.strip()
    (task,) = (await talk.client.snapshot()).tasks
    assert task.last_reply_summary == order[:240]


async def test_complete_waits_for_the_other_calls_and_excludes_escalate(start: Start, workspace: Path) -> None:
    write = call("WriteFile", {"file_path": str(workspace / "made"), "content": "x"}, id="w")
    both = [complete("no", id="c1"), call("Escalate", {"question": "which?"}, id="e1")]
    cast = Cast(
        [delegate("a"), say("ok"), say("seen")],
        a=[reply(calls=both), reply(calls=[complete("made it", id="c2"), write])],
    )
    talk = await start(cast)
    await talk.say("go")
    await settle(talk.client)
    refused = next(seen.results for seen in talk.server.requests if "e1" in seen.results)
    assert "Complete and Escalate exclude each other." in refused["e1"]
    assert (workspace / "made").read_text() == "x"
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary) == ("completed", "made it")


async def test_an_agent_that_waits_for_its_owner_leaves_its_place_to_another(start: Start) -> None:
    """All agents that live can be asked how full their context is at once."""
    hold = threading.Event()
    cast = Cast(
        [delegate("a"), say("ok"), delegate("b"), say("ok"), say("x")],
        a=[call("Escalate", {"question": "which?"})],
        b=[call("LS", {"path": "."}), complete("B").hold(hold)],
    )
    talk = await start(cast, config={"team": {"max_running": 1}})
    await talk.say("go")
    await asyncio.to_thread(talk.server.wait_for, 7)
    shot = await talk.client.snapshot()
    assert [task.state for task in shot.tasks] == ["waiting_main", "running"]
    for agent in shot.sub_agents:
        assert agent.message_count > 1 and 0 < agent.context_tokens < agent.context_limit
        assert agent.model == agent.selected_model == "anthropic/claude-sonnet-4-5"
    hold.set()
    await settle(talk.client)


async def test_a_scope_can_name_modules(start: Start, workspace: Path) -> None:
    (workspace / "src/app").mkdir(parents=True)
    (workspace / "src/app/users.py").write_text("")
    calls = [
        delegate("a", expected_write_scope={"modules": ["app.users"]}),
        delegate("b", expected_write_scope={"path_prefix": ["src/app"]}),
        delegate("c", expected_write_scope={"modules": ["app.none"]}),
    ]
    hold = threading.Event()
    talk = await start(Cast([reply(calls=calls), say("ok"), say("x")], a=[complete("A").hold(hold)]))
    await talk.say("go")
    results = next(seen.results for seen in talk.server.requests if seen.results)
    assert json.loads(results["call-b"])["status"] == "scope_conflict"
    assert "There is no module 'app.none' in the project." in results["call-c"]
    (task,) = (await talk.client.snapshot()).tasks
    assert task.scope.path_prefixes == ("src/app/users.py",)
    hold.set()
    await settle(talk.client)


async def test_without_types_of_sub_agents_nothing_can_be_delegated(start: Start, home: Path) -> None:
    for name in ("general", "explore"):
        write_type(home, name, "mode: main")
    talk = await start([say("ok")])
    await talk.say("go")
    assert "Delegate" not in talk.server.requests[0].tool_names
