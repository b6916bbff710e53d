"""Types of sub-agents from agent files: what the model is told of them, and what they decide for a delegated task."""

from pathlib import Path
from typing import Any

from odin.testing import call, say

from .conftest import Start, Talk
from .test_team import Cast, complete, delegate, settle


def write_type(home: Path, name: str, front: str, prompt: str = "Do it well.") -> None:
    folder = home / ".claude/agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\nname: {name}\n{front}\n---\n{prompt}\n")


def described(talk: Talk) -> str:
    tools: list[Any] = talk.server.requests[0].json["tools"]
    return next(tool["description"] for tool in tools if tool["name"] == "Delegate")


async def test_the_model_is_told_what_the_types_are_for(start: Start, home: Path) -> None:
    plain = await start([say("a")])
    await plain.say("go")
    assert described(plain).endswith("Types: explore, general.")
    write_type(home, "reviewer", f"description: Reviews code. {'x' * 400}")
    talk = await start([say("a")])
    await talk.say("go")
    assert "\n- general: Works on any task" in described(talk)
    assert "\n- reviewer: Reviews code. xxx" in described(talk)
    assert "x" * 300 not in described(talk)


async def test_a_type_of_claude_code_decides_on_prompt_tools_and_model(start: Start, home: Path) -> None:
    write_type(home, "reviewer", "description: Reviews.\ntools: Read, Grep\nmodel: haiku", "You review.")
    cast = Cast([delegate("a", agent_type="reviewer"), say("ok"), say("done")], a=[complete("fine")])
    talk = await start(cast)
    await talk.say("go")
    await settle(talk.client)
    (request,) = [seen for seen in talk.server.requests if "Delegate" not in seen.tool_names]
    assert sorted(request.tool_names) == ["Complete", "Escalate", "Grep", "Read", "Report"]
    assert "# Role: reviewer\\nYou review." in str(request.json["system"])
    assert "haiku" in request.model
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.type, task.state) == ("reviewer", "completed")


async def test_a_type_limits_requests_and_waits_its_own_time(start: Start, home: Path) -> None:
    write_type(home, "quick", "max-turns: 1\nidle-time: 0.01")
    looks = call("Glob", {"pattern": "*"})
    cast = Cast([delegate("a", agent_type="quick"), say("ok"), say("done")], a=[looks])
    talk = await start(cast)
    await talk.say("go")
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, "max_turns" in task.closed_reason) == ("failed", True)


async def test_a_silent_agent_is_reminded_after_the_time_of_its_type(start: Start, home: Path) -> None:
    write_type(home, "patient", "idle-time: 0.01")
    cast = Cast([delegate("a", agent_type="patient"), say("ok"), say("done")], a=[say("hm"), complete("done")])
    talk = await start(cast)
    await talk.say("go")
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary) == ("completed", "done")
