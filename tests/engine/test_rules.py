"""Rules in a running session: added, listed, removed, remembered, and shared with sub-agents."""

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked, RuleAdded, RuleRemoved, ToolEnded
from odin.core.errors import OdinError
from odin.core.op import AddRule, AnswerPermission, DefineAgents, RemoveRule, Rewind, SetRole
from odin.testing import call, say
from odin.ui.slash_commands.actions import format_rules
from tests.engine.conftest import Start, Talk


def touch(name: str, id: str = "c") -> Any:
    return call("ExecuteCommand", {"command": f"touch {name}"}, id=id)


async def list_statuses(talk: Talk) -> list[str]:
    return [event.status for event in talk.all(ToolEnded)]


async def test_added_rule_applies_to_the_next_call_until_it_is_removed(start: Start, workspace: Path) -> None:
    talk = await start([touch("a"), say("1"), touch("b"), say("2")], yes=False)
    await talk.client.submit(AddRule("Bash(touch:*)", "allow", "session"))
    (line,) = await talk.client.list_rules()
    assert (line.number, line.layer, line.action, line.text) == (1, "session", "allow", "Bash(touch:*)")
    await talk.say("go")
    await talk.client.submit(RemoveRule(1))
    assert await talk.client.list_rules() == ()
    await talk.say("go on")
    assert await list_statuses(talk) == ["success", "error"]
    assert sorted(os.listdir(workspace)) == ["a"]
    assert [event.text for event in talk.all(RuleAdded)] == ["Bash(touch:*)"]
    assert [event.text for event in talk.all(RuleRemoved)] == ["Bash(touch:*)"]


@pytest.mark.parametrize("op", [AddRule("((", "allow"), AddRule("Delete(**)", "allow"), RemoveRule(1), RemoveRule(0)])
async def test_invalid_rule_changes_are_refused(start: Start, op: AddRule | RemoveRule) -> None:
    talk = await start([])
    with pytest.raises(OdinError):
        await talk.client.submit(op)
    assert await talk.client.list_rules() == ()
    assert talk.all(RuleAdded) == []


async def test_rules_of_the_session_survive_a_resume_and_a_rewind_but_not_a_new_session(
    start: Start, workspace: Path
) -> None:
    talk = await start([touch("a"), say("1"), touch("b"), say("2"), touch("c"), say("3")], yes=False)
    await talk.client.submit(AddRule("Bash(touch b)", "allow", "session"))
    await talk.client.submit(AddRule("Bash(touch gone)", "allow", "session"))
    await talk.client.submit(RemoveRule(2))
    await talk.client.submit(AddRule("Bash(touch:*)", "ask", "session"))
    await talk.say("go")
    await talk.client.submit(Rewind("p1"))
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start(None, server=talk.server, resume=session, yes=False)
    lines = await again.client.list_rules()
    assert [(line.action, line.text) for line in lines] == [("allow", "Bash(touch b)"), ("ask", "Bash(touch:*)")]
    await again.say("go on")
    assert await list_statuses(again) == ["success"]
    new = await start(None, server=talk.server, yes=False)
    assert await new.client.list_rules() == ()
    await new.say("once more")
    assert await list_statuses(new) == ["error"]
    assert sorted(os.listdir(workspace)) == ["b"]


@pytest.mark.parametrize("scope", ["project", "user"])
async def test_remembered_rules_are_saved_in_the_user_file_and_apply_to_new_sessions(
    start: Start, workspace: Path, home: Path, scope: Any
) -> None:
    talk = await start([touch("a"), say("1")], yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", True, rule="Bash(touch a)", remember=scope)]
    await talk.say("go")
    (asked,) = talk.all(PermissionAsked)
    assert asked.rules == ("Bash(touch a)", "Bash(touch:*)")
    kept = json.loads((home / ".config" / "odin" / "rules.json").read_text())
    entries = kept["rules"] if scope == "user" else kept["projects"][str(workspace)]
    assert entries == [{"rule": "Bash(touch a)", "action": "allow"}]
    later = await start([touch("a"), say("1"), touch("b"), say("2")], yes=False)
    await later.say("go")
    await later.say("go on")
    assert await list_statuses(later) == ["success", "error"]
    assert sorted(os.listdir(workspace)) == ["a"]


async def test_rule_remembered_during_a_turn_applies_to_a_running_sub_agent(start: Start, workspace: Path) -> None:
    script = [
        call("AgentTool", {"description": "task", "prompt": "Make."}, id="t"),
        touch("one", "a"),
        touch("two", "b"),
        say("sub"),
        touch("three", "c"),
        say("main"),
    ]
    talk = await start(script, yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", True, rule="Bash(touch:*)", remember="session")]
    await talk.say("go")
    assert len(talk.all(PermissionAsked)) == 1
    assert set(await list_statuses(talk)) == {"success"}
    assert sorted(os.listdir(workspace)) == ["one", "three", "two"]


async def use_role(talk: Talk, name: str) -> None:
    """Switch to a role that restricts nothing."""
    if name != "builder":
        await talk.client.submit(DefineAgents({name: {"description": "writes", "prompt": "Write.", "mode": "main"}}))
    assert await talk.client.submit(SetRole(name))


async def test_what_is_allowed_for_the_session_holds_only_in_its_role(start: Start, workspace: Path) -> None:
    script = [turn for name in "abcdefg" for turn in (touch(name), say(name))]
    talk = await start(script, yes=False)
    await talk.client.submit(AddRule("Bash(touch:*)"))
    await talk.say("go")
    await use_role(talk, "writer")
    await talk.say("go")
    assert await list_statuses(talk) == ["success", "error"]
    await talk.client.submit(AddRule("Bash(touch c)"))
    await talk.say("go")
    await talk.say("go")
    assert (await list_statuses(talk))[2:] == ["success", "error"]
    assert [event.role for event in talk.all(RuleAdded)] == ["builder", "writer"]
    session = (await talk.client.get_info()).session
    await talk.client.close()
    given = json.dumps({"writer": {"description": "writes", "prompt": "Write.", "mode": "main"}})
    again = await start(None, server=talk.server, resume=session, yes=False, agent_definitions=given)
    assert "Bash(touch:*), rule Bash(touch c) (role writer)." in " ".join((await again.client.get_info()).warnings)
    shown = format_rules(await again.client.list_rules())
    assert "allow  Bash(touch:*)   (role builder, this session)" in shown
    assert "allow  Bash(touch c)   (role writer, this session)" in shown
    await again.say("go")
    await use_role(again, "builder")
    await again.say("go")
    assert await list_statuses(again) == ["error", "success"]
    await again.client.submit(RemoveRule(1))
    assert [(line.text, line.role) for line in await again.client.list_rules()] == [("Bash(touch c)", "writer")]
    await again.say("go")
    assert (await list_statuses(again))[2:] == ["error"]
    assert sorted(os.listdir(workspace)) == ["a", "c", "f"]


async def test_one_rule_can_belong_to_two_roles(start: Start) -> None:
    talk = await start([])
    await talk.client.submit(AddRule("Bash(make)"))
    await use_role(talk, "writer")
    await talk.client.submit(AddRule("Bash(make)"))
    await talk.client.submit(AddRule("Bash(make)"))
    assert [line.role for line in await talk.client.list_rules()] == ["builder", "writer"]
    await talk.client.submit(RemoveRule(2))
    assert [line.role for line in await talk.client.list_rules()] == ["builder"]


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_what_is_denied_or_asked_about_holds_in_every_role(start: Start, workspace: Path, action: Any) -> None:
    talk = await start([touch("a"), say("1")], yes=False, allowed_tools=("Bash(touch:*)",))
    await talk.client.submit(AddRule("Bash(touch a)", action))
    await use_role(talk, "writer")
    await talk.say("go")
    assert await list_statuses(talk) == ["denied"]
    assert [(line.text, line.role) for line in await talk.client.list_rules() if line.number] == [("Bash(touch a)", "")]


async def test_a_running_sub_agent_has_the_rules_of_the_role_now(start: Start, workspace: Path) -> None:
    switched, added = threading.Event(), threading.Event()
    script = [
        call("AgentTool", {"description": "task", "prompt": "Make."}, id="t"),
        touch("a"),
        touch("b").hold(switched),
        touch("c").hold(added),
        say("sub"),
        say("main"),
    ]
    talk = await start(script, yes=False)
    await talk.client.submit(AddRule("Bash(touch:*)"))
    await talk.submit("go")
    await asyncio.to_thread(talk.server.wait_for, 3)
    await use_role(talk, "writer")
    switched.set()
    await asyncio.to_thread(talk.server.wait_for, 4)
    await talk.client.submit(AddRule("Bash(touch:*)"))
    added.set()
    await talk.until_end("p1")
    assert sorted(os.listdir(workspace)) == ["a", "c"]


async def test_rule_of_a_log_without_roles_holds_in_every_role(start: Start, workspace: Path) -> None:
    talk = await start([say("1"), touch("a"), say("2")], yes=False)
    await talk.client.submit(AddRule("Bash(touch:*)"))
    await talk.say("go")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    (log,) = Path.home().rglob(f"{session}/main.jsonl")
    log.write_text(log.read_text().replace(',"role":"builder"}', "}"))
    again = await start(None, server=talk.server, resume=session, yes=False)
    await use_role(again, "writer")
    await again.say("go on")
    assert await list_statuses(again) == ["success"]


async def test_damaged_rules_file_causes_a_warning_and_an_answer_applies_once(
    start: Start, workspace: Path, home: Path
) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    (folder / "rules.json").write_text("{ broken")
    talk = await start([touch("a"), say("1")], yes=False, can_ask=True)
    assert any("rules.json" in warning for warning in (await talk.client.get_info()).warnings)
    talk.answers = [AnswerPermission("", True, rule="Bash(touch a)", remember="user")]
    await talk.say("go")
    assert await list_statuses(talk) == ["success"]
    assert (folder / "rules.json").read_text() == "{ broken"


async def test_rules_of_the_settings_are_listed_with_their_source(start: Start, home: Path) -> None:
    talk = await start([], config={"rules": [{"ask": ["Bash(make:*)"]}], "ForbiddenCommands": ["git push"]})
    file = home / ".config" / "odin" / "odinconfig.json"
    lines = await talk.client.list_rules()
    assert {(line.number, line.layer, line.action, line.text, line.source) for line in lines} == {
        (0, "user", "ask", "Bash(make:*)", str(file)),
        (0, "user", "deny", "Bash(git push:*)", f"ForbiddenCommands in {file}"),
    }


async def test_denied_tool_is_not_offered_but_a_partly_allowed_one_is(start: Start) -> None:
    talk = await start([say("x")], config={"rules": {"webfetch": "deny", "bash": {"*": "deny", "git *": "allow"}}})
    await talk.say("hi")
    tools = (await talk.client.get_info()).tools
    assert "WebFetch" not in tools
    assert "ExecuteCommand" in tools


@pytest.mark.parametrize("path", ["src/a.txt", "./src/a.txt", "src/../src/a.txt"])
async def test_rules_and_checkpoints_apply_to_relative_paths(start: Start, workspace: Path, path: str) -> None:
    """C17 is withdrawn: the model may use paths relative to the working directory, and rules apply to them."""
    file = workspace / "src" / "a.txt"
    file.parent.mkdir()
    file.write_text("old\n")
    (workspace.parent / "out.txt").write_text("private\n")
    edit = call("EditTool", {"file_path": path, "old_string": "old", "new_string": "new"}, id="edit")
    outside = call("WriteFile", {"file_path": "../out.txt", "content": "x"}, id="outside")
    script = [call("Read", {"file_path": path}, id="read"), edit, outside, say("done")]
    talk = await start(script, yes=False, permission_mode="acceptEdits")
    await talk.say("go")
    assert [(event.call_id, event.status) for event in talk.all(ToolEnded)] == [
        ("read", "success"),
        ("edit", "success"),
        ("outside", "denied"),
    ]
    assert file.read_text() == "new\n"
    await talk.client.submit(Rewind("p1"))
    assert file.read_text() == "old\n"
    denied = await start(script, yes=False, permission_mode="acceptEdits", disallowed_tools=("Edit(src/**)",))
    await denied.say("go")
    assert [event.status for event in denied.all(ToolEnded)] == ["success", "denied", "denied"]
    assert (workspace.parent / "out.txt").read_text() == "private\n"
