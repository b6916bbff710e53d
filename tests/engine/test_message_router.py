"""Mail between agents: its order, its length, when it starts a turn, and how it reports the ends of tasks."""

import asyncio
import json
import threading
from pathlib import Path

from odin.core.team import MailSent
from odin.engine.event_bus import EventBus
from odin.engine.message_router import MessageRouter
from odin.engine.recorder import Recorder
from odin.session.state import SessionState
from odin.testing import call, reply, say
from tests.waiting import TimeLimit

from .conftest import Start
from .test_agent_types import write_type
from .test_team import TeamScript, complete, delegate, mail_in, settle
from .test_thinking import SteppedLoop


def test_mail_wakes_its_recipient_at_once_or_with_what_comes_within_a_fifth_of_a_second() -> None:
    """Progress wakes nobody, and is read with the next mail that does."""
    loop, woken = SteppedLoop(), list[str]()
    recorder = Recorder(None, SessionState("s"), EventBus())
    router = MessageRouter(recorder, lambda name, text: name, woken.append)

    async def pass_time(seconds: float) -> list[str]:
        loop.now += seconds
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return woken

    async def work() -> None:
        router.send(router.write("a", "", "progress", "half"))
        assert not router.is_waking and not router.should_wake("")
        router.send(router.write("a", "", "completed", "A"))
        assert await pass_time(0.19) == []
        router.send(router.write("b", "", "completed", "B"))
        assert await pass_time(0.011) == [""]
        assert router.should_wake("") and len(router.take("").ids) == 3
        router.send(router.write("b", "", "risk_alert", "beware", priority="urgent"))
        assert await pass_time(0.001) == ["", ""]
        assert not router.is_waking

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work())


async def test_urgent_mail_comes_first_and_only_the_newest_progress_is_sent(start: Start) -> None:
    """The main agent reads everything in one turn. More than 320 characters are an artifact."""
    reports = [
        call("Report", {"message": "progress one"}, id="r1"),
        call("Report", {"message": "progress two".ljust(321, ".")}, id="r2"),
    ]
    danger = call("Report", {"message": "beware", "kind": "risk_alert"}, id="r3")
    hold = threading.Event()
    script = TeamScript(
        [delegate("a"), say("ok"), say("seen")],
        a=[reply(calls=reports), reply(calls=[danger, complete("done".ljust(320, "."), id="c")]).hold(hold)],
    )
    talk = await start(script)
    await talk.say("go")
    async with TimeLimit():
        while len(await talk.recorded_events(MailSent)) < 2:
            await asyncio.sleep(0.01)
    shot = await talk.client.snapshot()
    assert not shot.executing
    assert [(agent.id, agent.artifact) for agent in shot.sub_agents] == [("general-1", "mail/mail-3.md")]
    hold.set()
    await settle(talk.client)
    assert script.main == [], "one turn reads everything"
    text = mail_in(talk.server.requests[-1])
    assert "progress one" not in text
    assert f"{'progress two'.ljust(320, '.')}\\u2026\\nThe whole text is the artifact mail/mail-3.md" in text
    assert "done".ljust(320, ".") in text and text.count("The whole text is") == 1
    assert text.index("risk alert from general-1") < text.index("progress two")
    assert text.index("risk alert from general-1") < text.index("completed from general-1")


async def test_long_mail_is_saved_as_an_artifact(start: Start, home: Path) -> None:
    long, order = "found it. " * 60, "look again. " * 60
    again = call("Notify", {"task_id": "adhoc-1", "message": order})
    script = TeamScript(
        [delegate("a"), say("ok"), again, say("sent"), say("all")], a=[complete(long), complete("again")]
    )
    talk = await start(script)
    await talk.say("go")
    await settle(talk.client)
    text = next(mail_in(seen) for seen in talk.server.requests if "completed from general-1" in mail_in(seen))
    assert long not in text and "The whole text is the artifact mail/mail-2.md" in text
    (saved,) = home.glob(".local/state/odin/**/mail-2.md")
    assert saved.read_text().strip() == long.strip()
    (task,) = (await talk.client.snapshot()).tasks
    assert task.last_reply_summary == order[:240]


async def test_complete_waits_for_the_other_calls_and_excludes_escalate(start: Start, workspace: Path) -> None:
    write = call("WriteFile", {"file_path": str(workspace / "made"), "content": "x"}, id="w")
    both = [complete("no", id="c1"), call("Escalate", {"question": "which?"}, id="e1")]
    script = TeamScript(
        [delegate("a"), say("ok"), say("seen")],
        a=[reply(calls=both), reply(calls=[complete("made it", id="c2"), write])],
    )
    talk = await start(script)
    await talk.say("go")
    await settle(talk.client)
    refused = next(seen.results for seen in talk.server.requests if "e1" in seen.results)
    assert "Complete and Escalate exclude each other." in refused["e1"]
    assert (workspace / "made").read_text() == "x"
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary) == ("completed", "made it")


async def test_agent_that_waits_for_its_owner_does_not_count_as_running(start: Start) -> None:
    """The snapshot also has the context size of all live agents."""
    hold = threading.Event()
    script = TeamScript(
        [delegate("a"), say("ok"), delegate("b"), say("ok"), say("x")],
        a=[call("Escalate", {"question": "which?"})],
        b=[call("LS", {"path": "."}), complete("B").hold(hold)],
    )
    talk = await start(script, config={"team": {"max_running": 1}})
    await talk.say("go")
    await asyncio.to_thread(talk.server.wait_for, 7)
    shot = await talk.client.snapshot()
    assert [task.state for task in shot.tasks] == ["waiting_main", "running"]
    for agent in shot.sub_agents:
        assert agent.message_count > 1 and 0 < agent.context_tokens < agent.context_limit
        assert agent.model == agent.selected_model == "anthropic/claude-sonnet-4-5"
    hold.set()
    await settle(talk.client)


async def test_write_scope_can_name_modules(start: Start, workspace: Path) -> None:
    (workspace / "src/app").mkdir(parents=True)
    (workspace / "src/app/users.py").write_text("")
    calls = [
        delegate("a", expected_write_scope={"modules": ["app.users"]}),
        delegate("b", expected_write_scope={"path_prefix": ["src/app"]}),
        delegate("c", expected_write_scope={"modules": ["app.none"]}),
    ]
    hold = threading.Event()
    talk = await start(TeamScript([reply(calls=calls), say("ok"), say("x")], a=[complete("A").hold(hold)]))
    await talk.say("go")
    results = next(seen.results for seen in talk.server.requests if seen.results)
    assert json.loads(results["call-b"])["status"] == "scope_conflict"
    assert "There is no module 'app.none' in the project." in results["call-c"]
    (task,) = (await talk.client.snapshot()).tasks
    assert task.scope.path_prefixes == ("src/app/users.py",)
    hold.set()
    await settle(talk.client)


async def test_delegate_is_not_offered_without_sub_agent_types(start: Start, home: Path) -> None:
    for name in ("general", "explore"):
        write_type(home, name, "mode: main")
    talk = await start([say("ok")])
    await talk.say("go")
    assert "Delegate" not in talk.server.requests[0].tool_names
