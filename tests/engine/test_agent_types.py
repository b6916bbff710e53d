"""Agent types from agent files: their description for the model, and the settings they give to a delegated task."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.testing import Turn, call, reply, say
from tests.waiting import TimeLimit, until

from .conftest import Start, Talk
from .hook_programs import claude_hook, new_kit
from .test_team import NestedTeamScript, TeamScript, complete, delegate, settle


def write_type(home: Path, name: str, front: str, prompt: str = "Do it well.") -> None:
    folder = home / ".claude/agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\nname: {name}\n{front}\n---\n{prompt}\n")


def get_delegate_description(talk: Talk) -> str:
    tools: list[Any] = talk.server.requests[0].json["tools"]
    return next(tool["description"] for tool in tools if tool["name"] == "Delegate")


async def test_delegate_tool_describes_the_agent_types(start: Start, home: Path) -> None:
    plain = await start([say("a")])
    await plain.say("go")
    assert get_delegate_description(plain).endswith("Types: explore, general.")
    write_type(home, "reviewer", f"description: Reviews code. {'x' * 400}")
    talk = await start([say("a")])
    await talk.say("go")
    assert "\n- general: Works on any task" in get_delegate_description(talk)
    assert "\n- reviewer: Reviews code. xxx" in get_delegate_description(talk)
    assert "x" * 300 not in get_delegate_description(talk)


async def test_claude_code_type_sets_prompt_tools_and_model(start: Start, home: Path) -> None:
    write_type(home, "reviewer", "description: Reviews.\ntools: Read, Grep\nmodel: haiku", "You review.")
    team_script = TeamScript([delegate("a", agent_type="reviewer"), say("ok"), say("done")], a=[complete("fine")])
    talk = await start(team_script)
    await talk.say("go")
    await settle(talk.client)
    (request,) = [seen for seen in talk.server.requests if "Delegate" not in seen.tool_names]
    assert sorted(request.tool_names) == ["Complete", "Escalate", "Grep", "Read", "Report"]
    assert "# Role: reviewer\\nYou review." in str(request.json["system"])
    assert "haiku" in request.model
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.type, task.state) == ("reviewer", "completed")


@pytest.mark.parametrize(
    ("front", "refused"),
    [
        ("color: red", []),
        ("rules: {Bash: {rm *: deny}}", ["remove"]),
        ("tools: Bash", ["write"]),
        ("permissionMode: default", ["write"]),
        ("permissionMode: plan", ["write", "remove"]),
    ],
)
async def test_type_restricts_what_the_session_allows(
    start: Start, home: Path, workspace: Path, front: str, refused: list[str]
) -> None:
    """Which of two calls are refused that the session allows: a change and a command."""
    write_type(home, "careful", front)
    (workspace / "old").write_text("x")
    calls = [
        call("WriteFile", {"file_path": str(workspace / "new"), "content": "x"}, id="write"),
        call("ExecuteCommand", {"command": "rm old"}, id="remove"),
    ]
    team_script = TeamScript(
        [delegate("a", agent_type="careful"), say("ok"), say("seen")], a=[reply(calls=calls), complete("done")]
    )
    talk = await start(team_script, yes=False, permission_mode="acceptEdits", allowed_tools=("Bash(rm:*)",))
    await talk.say("go")
    await settle(talk.client)
    results = {key: text for seen in talk.server.requests for key, text in seen.results.items()}
    left_undone = {"write": not (workspace / "new").exists(), "remove": (workspace / "old").exists()}
    assert [name for name, is_undone in left_undone.items() if is_undone] == refused, results


async def test_task_fails_after_the_max_turns_of_its_type(start: Start, home: Path) -> None:
    write_type(home, "quick", "max-turns: 1\nidle-time: 0.01")
    looks = call("Glob", {"pattern": "*"})
    team_script = TeamScript([delegate("a", agent_type="quick"), say("ok"), say("done")], a=[looks])
    talk = await start(team_script)
    await talk.say("go")
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, "max_turns" in task.closed_reason) == ("failed", True)


async def test_silent_agent_is_reminded_after_the_idle_time_of_its_type(start: Start, home: Path) -> None:
    write_type(home, "patient", "idle-time: 0.01")
    team_script = TeamScript(
        [delegate("a", agent_type="patient"), say("ok"), say("done")], a=[say("hm"), complete("done")]
    )
    talk = await start(team_script)
    await talk.say("go")
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary) == ("completed", "done")


async def test_type_sets_folder_environment_and_instructions(
    start: Start, home: Path, workspace: Path, tmp_path: Path
) -> None:
    """Hooks get the folder of the type as `cwd`, too."""
    kit = new_kit(tmp_path)
    hooks = {"PreToolUse": [claude_hook(kit.script(""), "Bash|Delegate")]}
    front = "cwd: docs\nvenv: env\ninstructions: [docs/AGENTS.md, missing.md]"
    write_type(home, "writer", front)
    programs = workspace / "env/bin"
    programs.mkdir(parents=True)
    (programs / "hello").write_text("#!/bin/sh\necho hello of the environment\n")
    (programs / "hello").chmod(0o755)
    (workspace / "docs").mkdir()
    (workspace / "docs/AGENTS.md").write_text("Be brief.")
    skill = home / ".config/odin/skills/x/run.sh"
    skill.parent.mkdir(parents=True)
    skill.write_text("echo from a skill")
    look = call("ExecuteCommand", {"command": f'pwd; hello; echo "$VIRTUAL_ENV"; sh {skill}'}, id="look")
    spawned = call("Spawn", {"command": "hello", "timeout": 5000}, id="spawned")
    team_script = TeamScript(
        [delegate("a", agent_type="writer"), say("ok"), say("done")],
        a=[look, spawned, complete("done")],
    )
    talk = await start(team_script, config={"hooks": hooks})
    await talk.say("go")
    await settle(talk.client)
    assert [item["cwd"] for item in kit.inputs()] == [str(workspace), *[f"{workspace}/docs"] * 2]
    results = {key: text for seen in talk.server.requests for key, text in seen.results.items()}
    assert f"{workspace}/docs\nhello of the environment\n{workspace}/env\nfrom a skill" in results["look"]
    (log,) = home.glob(".local/state/odin/**/spawn-1.log")
    await until(lambda: "hello of the environment" in log.read_text())
    first = next(seen for seen in talk.server.requests if "Complete" in seen.tool_names)
    assert "Be brief." in json.dumps(first.json["system"])
    assert "Be brief." not in json.dumps(talk.server.requests[0].json["system"])
    assert f"Working directory: {workspace}/docs" in json.dumps(first.messages)


async def test_the_write_scope_of_a_type_cannot_be_widened(start: Start, home: Path) -> None:
    """Neither the delegating model nor an agent of the type can widen it. Two agents of the type conflict."""
    write_type(home, "docs", "write-scope: docs\ndelegation: {max_depth: 2}")
    hold = threading.Event()

    def ask(name: str, kind: str, *folders: str) -> Turn:
        scope = {"expected_write_scope": {"path_prefix": [*folders]}} if folders else {}
        return delegate(name, agent_type=kind, **scope)

    team_script = NestedTeamScript(
        [
            reply(calls=[ask("wrong", "docs", "src"), ask("a", "docs", "docs/a", "src"), ask("same", "docs")]),
            *(say("ok"), say("seen"), say("seen")),
        ],
        a=[
            reply(calls=[ask("b", "general"), ask("out", "general", "src")]),
            complete("A").hold(hold),
            complete("A"),
        ],
        b=[complete("B").hold(hold)],
    )
    talk = await start(team_script, config={"team": {"max_depth": 2}})
    await talk.say("go")
    async with TimeLimit():
        while len((await talk.client.snapshot()).tasks) < 2:
            await asyncio.sleep(0.01)
    hold.set()
    await settle(talk.client)
    results = {key: text for seen in talk.server.requests for key, text in seen.results.items()}
    why = "Its write scope has nothing in common with what it may change:"
    assert results["call-wrong"].startswith(f"{why} docs.") and results["call-out"].startswith(f"{why} docs/a.")
    assert json.loads(results["call-same"])["status"] == "scope_conflict"
    tasks = (await talk.client.snapshot()).tasks
    assert [(task.description, task.scope.path_prefixes, task.state) for task in tasks] == [
        ("job a", ("docs/a",), "completed"),
        ("job b", ("docs/a",), "completed"),
    ]


async def test_type_sets_the_delegation_limits_of_its_agents(start: Start, home: Path) -> None:
    """A lead may delegate although other sub-agents may not: one task at a time, and it may end before that task."""
    write_type(home, "lead", "delegation: {max_depth: 2, max_children: 1, child_join: false}")
    hold = threading.Event()
    team_script = NestedTeamScript(
        [
            delegate("a", agent_type="lead"),
            say("ok"),
            say("seen"),
            call("Notify", TO_B, id="adopted"),
            say("all"),
            say("x"),
        ],
        a=[reply(calls=[delegate("b"), delegate("c")]), complete("A without B")],
        b=[call("Escalate", {"question": "left?"}).hold(hold), complete("B")],
    )
    talk = await start(team_script)
    await talk.say("go")
    await until(lambda: len(team_script.main) <= 3)
    hold.set()
    await settle(talk.client)
    results = {key: text for seen in talk.server.requests for key, text in seen.results.items()}
    assert "You may have 1 open task at a time." in results["call-c"]
    lead, child = (await talk.client.snapshot()).tasks
    assert (lead.state, child.state, child.owner_task, child.joined) == ("completed", "completed", "adhoc-1", False)
    assert '"status":"running"' in results["adopted"], "the main agent answers for the lead, which has ended"


TO_B = {"task_id": "adhoc-2", "message": "left"}


async def test_a_role_can_forbid_delegation(start: Start, home: Path) -> None:
    write_type(home, "solo", "mode: main\ndelegation: {max_depth: 0}")
    talk = await start([call("Delegate", {"description": "d"}, id="x"), say("ok")], role="solo")
    await talk.say("go")
    assert "Delegate" not in talk.server.requests[0].tool_names
    assert "depth_limit_reached" in talk.server.requests[-1].results["x"]
