"""Plans: the model presents a plan and the user decides, through the whole engine."""

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.app.compose import NO_PLAN_HINT
from odin.config import Options
from odin.core.call_events import PlanAnswered, PlanAsked, ToolEnded
from odin.core.errors import UsageError
from odin.core.event import Envelope, ModeChanged, PermissionModeChanged, RoleChanged, Warned, WorkEnded
from odin.core.op import AnswerPlan, AnswerQuestions, Interrupt, SetMode
from odin.host.workspace_sessions import open_workspace_sessions
from odin.session.log import read_log
from odin.session.store import SessionStore
from odin.testing import ScriptedServer, call, reply, say
from tests.engine.conftest import Start, Talk
from tests.engine.test_questions import wait_for_event
from tests.waiting import TimeLimit

TEXT = "1. Rename `a.py`.\n2. Run the tests."


def present(id: str = "h1", **args: Any):
    return call("Handoff", {"plan": TEXT, "title": "Rename it", **args}, id=id)


def plans_in(workspace: Path) -> dict[str, str]:
    folder = workspace / ".odin" / "plans"
    return {path.name: path.read_text() for path in sorted(folder.iterdir())} if folder.is_dir() else {}


async def decide(talk: Talk, decision: Any, number: int = 1, **more: Any) -> PlanAsked:
    event = await wait_for_event(talk, PlanAsked, number)
    assert await talk.client.submit(AnswerPlan(event.ask_id, decision, **more))
    return event


def get_result(talk: Talk, call_id: str = "h1") -> ToolEnded:
    return next(event for event in talk.all(ToolEnded) if event.call_id == call_id)


async def test_an_approved_plan_is_carried_out_in_the_same_turn_in_edit_mode(start: Start, workspace: Path):
    write = call("WriteFile", {"path": "b.py", "content": "b\n"}, id="w")
    talk = await start([present(), write, say("Done."), say("a"), say("b")], can_ask=True)
    prompt = await talk.submit("Plan it.", "plan_mode")
    event = await decide(talk, "approve", comment="Keep it short.")
    ended = await talk.until_end(prompt)
    assert (ended.reason, ended.text, Path(ended.plan_path).name) == ("end_turn", "Done.", "plan-001.md")
    assert (event.title, event.roles) == ("Rename it", ("builder",))
    assert plans_in(workspace) == {"plan-001.md": f"# Rename it\n\n{TEXT}\n"}
    assert (workspace / "b.py").read_text() == "b\n"
    first, second = talk.server.requests[:2]
    assert "Handoff" in first.tool_names and "WriteFile" not in first.tool_names
    assert "Handoff" not in second.tool_names and "WriteFile" in second.tool_names
    assert second.results["h1"] == (
        "The user approved the plan .odin/plans/plan-001.md. The mode is now edit_mode: carry out the plan. "
        "The user says: Keep it short."
    )
    assert talk.all(ModeChanged) == [ModeChanged("edit_mode")]
    assert (await talk.client.snapshot()).agent_mode == "edit_mode"
    await talk.say("Go on.", "edit_mode")
    assert "The mode is now" not in str(talk.server.requests[3].messages[-1]), "the model knows it already"
    await talk.say("And plan.", "plan_mode")
    assert "The mode is now plan_mode." in str(talk.server.requests[4].messages[-1])


async def test_plan_mode_without_a_plan_is_explained_once(start: Start):
    talk = await start([say("It is a parser."), say("A lexer."), say("I see.")], can_ask=True)
    await talk.say("What is a.py?", "plan_mode")
    await talk.until_live(Warned)
    await talk.say("And b.py?", "plan_mode")
    await talk.until_live(WorkEnded)
    assert [event.text for event in talk.all(Warned)] == [NO_PLAN_HINT]


async def test_requested_changes_go_to_the_model_which_rewrites_the_same_file(start: Start, workspace: Path):
    again = call("Handoff", {"plan": "1. Only this.", "plan_path": ".odin/plans/plan-001.md"}, id="h2")
    talk = await start([present(), again, say("Done.")], can_ask=True)
    prompt = await talk.submit("Plan it.", "plan_mode")
    await decide(talk, "revise", comment="Too long.")
    await decide(talk, "approve", 2)
    assert (await talk.until_end(prompt)).text == "Done."
    results = talk.server.requests[1].results["h1"]
    assert results.startswith("The user wants changes to the plan .odin/plans/plan-001.md. The user says: Too long.")
    assert "WriteFile" not in talk.server.requests[1].tool_names, "the model stays in plan mode"
    assert plans_in(workspace) == {"plan-001.md": "1. Only this.\n"}
    assert [event.note for event in talk.all(ToolEnded)] == [
        ".odin/plans/plan-001.md: changes wanted: Too long.",
        ".odin/plans/plan-001.md: approved",
    ]


@pytest.mark.parametrize("decision", ["keep_planning", "approve_new_session"])
async def test_turn_ends_with_the_plan_if_it_is_kept_or_moves_to_a_new_session(start: Start, decision: str):
    talk = await start([present(), say("Here.")], can_ask=True)
    prompt = await talk.submit("Plan it.", "plan_mode")
    await decide(talk, decision)
    ended = await talk.until_end(prompt)
    assert (ended.reason, ended.text) == ("end_turn", f"# Rename it\n\n{TEXT}")
    assert len(talk.server.requests) == 1
    assert talk.all(PlanAnswered)[0].role == ("builder" if decision == "approve_new_session" else "")
    assert (await talk.say("Go on.", "plan_mode")).text == "Here."


async def test_plan_is_the_answer_if_no_user_can_be_asked(start: Start, workspace: Path):
    talk = await start([present()])
    ended = await talk.say("Plan it.", "plan_mode")
    assert (ended.reason, ended.text) == ("end_turn", f"# Rename it\n\n{TEXT}")
    assert ended.plan_path == str(workspace.resolve() / ".odin/plans/plan-001.md")
    assert not talk.all(PlanAsked)


async def test_unanswered_plan_times_out(start: Start):
    talk = await start([present()], can_ask=True, config={"question_timeout_s": 0.05})
    assert (await talk.say("Plan it.", "plan_mode")).text.endswith(TEXT)
    assert [(event.decision, event.by) for event in talk.all(PlanAnswered)] == [("keep_planning", "timeout")]


async def test_first_answer_to_a_plan_wins(start: Start):
    talk = await start([present(), say("Done.")], can_ask=True)
    prompt = await talk.submit("Plan it.", "plan_mode")
    event = await wait_for_event(talk, PlanAsked)
    with pytest.raises(UsageError, match="The role 'cook' cannot carry out this plan"):
        await talk.client.submit(AnswerPlan(event.ask_id, "approve_new_session", role="cook"))
    assert not await talk.client.submit(AnswerPlan("ask-of-yesterday", "approve"))
    assert await talk.client.submit(AnswerPlan(event.ask_id, "approve"))
    assert not await talk.client.submit(AnswerPlan(event.ask_id, "keep_planning"))
    assert (await talk.until_end(prompt)).text == "Done."


async def test_an_interrupt_withdraws_the_plan(start: Start):
    talk = await start([present(), say("Here again.")], can_ask=True)
    prompt = await talk.submit("Plan it.", "plan_mode")
    await wait_for_event(talk, PlanAsked)
    await talk.client.submit(Interrupt())
    assert (await talk.until_end(prompt)).reason == "interrupted"
    assert [(event.decision, event.by) for event in talk.all(PlanAnswered)] == [("keep_planning", "interrupt")]
    assert (await talk.say("And now?", "plan_mode")).text == "Here again."


async def test_closing_the_session_withdraws_the_plan_and_a_resume_continues(start: Start, workspace: Path):
    talk = await start([present(), say("Here again.")], can_ask=True)
    await talk.submit("Plan it.", "plan_mode")
    event = await wait_for_event(talk, PlanAsked)
    session = (await talk.client.get_info()).session
    async with TimeLimit():
        await talk.client.close()
    resumed = await start([], server=talk.server, can_ask=True, resume=session)
    assert not await resumed.client.submit(AnswerPlan(event.ask_id, "approve"))
    assert (await resumed.say("And now?", "plan_mode")).text == "Here again."
    assert list(plans_in(workspace)) == ["plan-001.md"]


async def test_plan_edited_by_the_user_is_saved_and_sent_to_the_model(start: Start, workspace: Path):
    talk = await start([present(), say("Done.")], can_ask=True)
    prompt = await talk.submit("Plan it.", "plan_mode")
    await decide(talk, "approve", text="1. Only half of it.")
    await talk.until_end(prompt)
    assert plans_in(workspace) == {"plan-001.md": "1. Only half of it.\n"}
    assert "The user edited the plan. It now reads:\n\n1. Only half of it." in talk.server.requests[1].results["h1"]
    assert talk.all(PlanAnswered)[0].text == "1. Only half of it."


async def test_plan_waits_for_the_other_calls_of_the_reply(start: Start, workspace: Path):
    (workspace / "a.py").write_text("a\n")
    read = call("Read", {"path": "a.py"}, id="r")
    talk = await start([reply("", [present(), read]), say("Done.")], can_ask=True)
    prompt = await talk.submit("Plan it.", "plan_mode")
    await decide(talk, "approve")
    await talk.until_end(prompt)
    kinds = [event for event in talk.events if isinstance(event, PlanAsked | ToolEnded)]
    assert [getattr(event, "call_id", "") for event in kinds] == ["r", "h1", "h1"]
    assert set(talk.server.requests[1].results) == {"r", "h1"}


async def test_plans_are_numbered_and_nothing_is_overwritten(start: Start, workspace: Path):
    folder = workspace / ".odin" / "plans"
    folder.mkdir(parents=True)
    (folder / "plan-007.md").write_text("mine\n")
    (folder / "plan-008.md").mkdir()
    talk = await start([present(), present("h2")])
    await talk.say("Plan it.", "plan_mode")
    await talk.say("Plan it.", "plan_mode")
    assert sorted(path.name for path in folder.iterdir()) == [f"plan-00{n}.md" for n in (7, 8, 9)] + ["plan-010.md"]
    assert (folder / "plan-007.md").read_text() == "mine\n"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"plan": "", "plan_path": ".odin/plans/plan-404.md"}, "There is no plan .odin/plans/plan-404.md."),
    "none-yet": ({"plan": ""}, "The plan .odin/plans/plan-003.md is empty."),
    "directory": ({"plan": "", "plan_path": "folder.md"}, ".odin/plans/folder.md is a directory, not a plan."),
    "revise-a-directory": ({"plan_path": "folder.md"}, ".odin/plans/folder.md is a directory, not a plan."),
    "empty": ({"plan": "", "plan_path": "plan-003.md"}, "The plan .odin/plans/plan-003.md is empty."),
    "outside": ({"plan": "", "plan_path": "../secret.md"}, "../secret.md is not in .odin/plans, where plans are."),
    "absolute": ({"plan_path": "/etc/passwd"}, "/etc/passwd is not in .odin/plans, where plans are."),
    "link": ({"plan": "", "plan_path": "link.md"}, ".odin/plans/link.md is not a regular file."),
    "revise-unread": ({"plan_path": "plan-001.md"}, "You do not know the current text of .odin/plans/plan-001.md."),
    "revise-missing": ({"plan_path": "plan-404.md"}, "There is no plan .odin/plans/plan-404.md. Leave plan_path empty"),
    "unknown-role": ({"role": "cook"}, "There is no role 'cook'. Use builder."),
}


async def test_invalid_plan_returns_an_error(start: Start, workspace: Path):
    folder = workspace / ".odin" / "plans"
    (folder / "folder.md").mkdir(parents=True)
    (folder / "plan-001.md").write_text("old\n")
    (folder / "plan-003.md").write_text(" \n")
    (workspace / "secret.md").write_text("secret\n")
    (folder / "link.md").symlink_to(workspace / "secret.md")
    script = [present(name, **args) for name, (args, _) in REFUSED.items()]
    talk = await start([*script, say("I give up.")], can_ask=True)
    await talk.say("Plan it.", "plan_mode")
    for name, (_, error) in REFUSED.items():
        ended = get_result(talk, name)
        assert ended.status == "error", name
        assert ended.text.startswith(error), (name, ended.text)
    assert not talk.all(PlanAsked)
    assert (folder / "plan-001.md").read_text() == "old\n"


@pytest.mark.parametrize("link", [".odin", ".odin/plans"])
async def test_plan_is_not_written_through_a_link(start: Start, workspace: Path, link: str):
    elsewhere = workspace.parent / "elsewhere"
    elsewhere.mkdir()
    (workspace / link).parent.mkdir(exist_ok=True)
    (workspace / link).symlink_to(elsewhere)
    talk = await start([present(), say("I give up.")])
    await talk.say("Plan it.", "plan_mode")
    assert get_result(talk).status == "error"
    assert not list(elsewhere.rglob("*"))


async def test_plan_is_refused_outside_plan_mode(start: Start, workspace: Path):
    talk = await start([present(), say("I do it.")], can_ask=True)
    await talk.say("Do it.", "edit_mode")
    assert get_result(talk).text == "Plans are presented in plan mode. Here, do the work yourself."
    assert not plans_in(workspace)


async def test_handoff_tool_works_under_other_names(start: Start, workspace: Path):
    talk = await start([call("ExitPlanMode", {"plan": TEXT}, id="h1")])
    assert (await talk.say("Plan it.", "plan_mode")).text == TEXT
    assert list(plans_in(workspace)) == ["plan-001.md"]


async def test_a_program_switches_the_mode_of_the_running_turn(start: Start, workspace: Path):
    """Clients whose permission modes include plan mode do this: from the next call on nothing is written."""
    question = call("Question", {"questions": [{"header": "H", "text": "Which?"}]}, id="q")
    write = call("WriteFile", {"path": "b.py", "content": "b\n"}, id="w")
    talk = await start([question, write, say("Denied.")], can_ask=True)
    assert not await talk.client.submit(SetMode("plan_mode")), "no turn is running"
    prompt = await talk.submit("Write.")
    event = await wait_for_event(talk)
    assert await talk.client.submit(SetMode("plan_mode"))
    await talk.client.submit(AnswerQuestions(event.ask_id, (("a",),)))
    assert (await talk.until_end(prompt)).text == "Denied."
    assert not (workspace / "b.py").exists()
    assert "WriteFile" not in talk.server.requests[1].tool_names
    assert "The mode is now plan_mode." in str(talk.server.requests[1].messages[-1])


async def test_a_session_whose_log_has_plan_as_a_permission_mode_can_be_resumed(
    start: Start, workspace: Path, home: Path
):
    talk = await start([say("a"), say("b")], yes=False, can_ask=True)
    await talk.say("Hi.")
    info = await talk.client.get_info()
    await talk.client.close()
    log = SessionStore(home / ".local/state/odin", str(workspace)).get_path(info.session)
    old = log.read_text().replace('"permission_mode":"default"', '"permission_mode":"plan"')
    assert "plan" in old
    *_, last = read_log(log)
    changed = Envelope(last.seq + 1, last.ts, info.session, PermissionModeChanged("plan"))
    log.write_text(f"{old}{msgspec.json.encode(changed).decode()}\n")
    resumed = await start([], server=talk.server, yes=False, can_ask=True, resume=info.session)
    assert (await resumed.client.get_info()).permission_mode == "default"
    assert (await resumed.say("Hi.")).text == "b"


def write_roles(home: Path, *names: str) -> None:
    folder = home / ".config" / "odin" / "agents"
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.md").write_text(f"---\nname: {name}\nmode: main\ndescription: Works.\n---\nWork.\n")


class TestPlannerRole:
    """The planner hands its plans to other roles, in any mode."""

    async def test_approved_plan_switches_to_the_builder(self, start: Start, workspace: Path):
        write = call("WriteFile", {"path": "b.py", "content": "b\n"}, id="w")
        talk = await start([present(), write, say("Done.")], can_ask=True, role="planner")
        prompt = await talk.submit("Plan it.")
        event = await decide(talk, "approve")
        assert (await talk.until_end(prompt)).text == "Done."
        assert event.roles == ("builder",)
        first, second = talk.server.requests[:2]
        assert "Handoff" in first.tool_names and "# Role: planner" in str(first.json["system"])
        assert "Handoff" not in second.tool_names and "# Role: planner" not in str(second.json["system"])
        assert "Your role is now builder, the mode is edit_mode: carry out the plan." in second.results["h1"]
        assert [event.role for event in talk.all(RoleChanged)] == ["builder"]
        assert (workspace / "b.py").exists()

    async def test_plan_for_the_own_or_an_unknown_role_is_refused(self, start: Start, workspace: Path):
        script = [present("own", role="Planner"), present("none", role="cook"), say("I see.")]
        talk = await start(script, can_ask=True, role="planner")
        await talk.say("Plan it.")
        assert get_result(talk, "own").text == "You have the role planner yourself. Hand the plan to builder."
        assert get_result(talk, "none").text == "There is no role 'cook'. Use builder."
        assert not plans_in(workspace)

    async def test_roles_of_agent_files_can_carry_out_the_plan(self, start: Start, home: Path):
        write_roles(home, "artist", "writer")
        talk = await start([present(role="writer"), say("Done.")], can_ask=True, role="planner")
        prompt = await talk.submit("Plan it.")
        event = await decide(talk, "approve_new_session", role="builder")
        await talk.until_end(prompt)
        assert event.roles == ("writer", "builder", "artist")
        assert "A new session in the role builder carries it out." in get_result(talk).text
        assert (await talk.client.get_info()).role == "planner", "this session keeps its role"

    async def test_approval_in_plan_mode_keeps_the_role(self, start: Start, home: Path):
        write_roles(home, "artist", "writer")
        talk = await start([present(), say("Done.")], can_ask=True, role="writer")
        prompt = await talk.submit("Plan it.", "plan_mode")
        event = await decide(talk, "approve")
        assert (await talk.until_end(prompt)).text == "Done."
        assert event.roles == ("writer", "builder", "artist")
        assert not talk.all(RoleChanged)


class TestExecutePlan:
    """A new session carries out a plan; without a plan the current session stays."""

    async def test_plan_is_the_first_prompt_of_the_new_session(self, workspace: Path, home: Path):
        plans = workspace / ".odin" / "plans"
        plans.mkdir(parents=True)
        (plans / "plan-001.md").write_text("# Old\n")
        (plans / "plan-002.md").write_text("# New\n\n1. Do it.\n")
        with ScriptedServer([say("Done.")]) as server:
            options = Options(env={**os.environ, **server.env("anthropic")}, cwd=str(workspace), role="planner")
            host = await open_workspace_sessions(options)
            before = (await host.client.get_info()).session
            client, prompt = await host.execute_plan()
            assert (await client.get_info()).session != before
            assert (prompt.mode, prompt.display_text) == ("edit_mode", "Carry out .odin/plans/plan-002.md")
            assert prompt.text.endswith("Carry it out.\n\n# New\n\n1. Do it.\n")
            assert (await client.get_info()).role == "builder"
            other, old = await host.execute_plan(".odin/plans/plan-001.md", "planner")
            assert "# Old" in old.text
            assert (await other.get_info()).role == "planner"
            with pytest.raises(UsageError, match="There is no role 'cook'"):
                await host.execute_plan("", "cook")
            assert host.client is other
            await host.close()

    async def test_without_a_plan_the_session_stays(self, workspace: Path, home: Path):
        (workspace / ".odin" / "plans" / "folder.md").mkdir(parents=True)
        (workspace / ".odin" / "plans" / "empty.md").write_text("\n")
        with ScriptedServer([]) as server:
            host = await open_workspace_sessions(
                Options(env={**os.environ, **server.env("anthropic")}, cwd=str(workspace))
            )
            before = host.client
            for name, error in {
                "": "There is no plan in .odin/plans yet.",
                "plan-009.md": "There is no plan .odin/plans/plan-009.md.",
                "folder.md": ".odin/plans/folder.md is a directory, not a plan.",
                "empty.md": "The plan .odin/plans/empty.md is empty.",
                "/etc/passwd": "/etc/passwd is not in .odin/plans, where plans are.",
            }.items():
                with pytest.raises(UsageError, match=re.escape(error)):
                    await host.execute_plan(name)
                assert host.client is before
            await host.close()
