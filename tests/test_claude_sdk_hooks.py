"""Hooks that a program written with claude-agent-sdk brings along."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import HookMatcher, PermissionResultAllow, SystemMessage, query

from odin.testing import ScriptedServer, call, say
from tests.test_claude_sdk import Configure, Gatekeeper, collect, configure, the_result, touch

__all__ = ["configure"]


class Listener:
    """A hook that remembers what it was told."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)
        self.told: list[tuple[dict[str, Any], str | None]] = []

    async def __call__(self, told: Any, tool_use_id: str | None, context: Any) -> Any:
        self.told.append((told, tool_use_id))
        return self._answers.pop(0) if self._answers else {}


def before(**said: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **said}}


@pytest.mark.slow
async def test_a_hook_before_a_tool_can_deny(configure: Configure, workspace: Path) -> None:
    hook = Listener(before(permissionDecision="deny", permissionDecisionReason="not on a Friday"))
    hooks = {"PreToolUse": [HookMatcher(matcher="Bash", hooks=[hook])]}
    with ScriptedServer([touch("made", "c1"), call("LS", {"path": str(workspace)}), say("Oh.")]) as server:
        options = configure(server, hooks=hooks, permission_mode="bypassPermissions")
        messages = await collect(query(prompt="Go.", options=options))
        assert "not on a Friday" in server.requests[1].results["c1"]
    ((told, tool_use_id),) = hook.told
    assert tool_use_id == "c1"
    assert (told["hook_event_name"], told["tool_name"], told["tool_use_id"]) == ("PreToolUse", "Bash", "c1")
    assert told["tool_input"] == {"command": "touch made"}
    assert told["cwd"] == str(workspace)
    assert not (workspace / "made").exists()
    (news,) = [message.data for message in messages if isinstance(message, SystemMessage) and message.subtype == "hook"]
    assert (news["outcome"], news["point"]) == ("denied", "tool_call")
    assert [item["tool_use_id"] for item in the_result(messages).permission_denials or []] == ["c1"]


@pytest.mark.slow
async def test_a_hook_before_a_tool_can_change_and_allow_it(configure: Configure, workspace: Path) -> None:
    hook = Listener(before(permissionDecision="allow", updatedInput={"command": "touch other"}))
    with ScriptedServer([touch("made", "c1"), say("Done.")]) as server:
        options = configure(server, hooks={"PreToolUse": [HookMatcher(hooks=[hook])]})
        await collect(query(prompt="Go.", options=options))
    assert (workspace / "other").exists()
    assert not (workspace / "made").exists()


@pytest.mark.slow
async def test_a_hook_can_have_a_person_asked(configure: Configure, workspace: Path) -> None:
    hook = Listener(before(permissionDecision="ask", permissionDecisionReason="Look twice."))
    gate = Gatekeeper(PermissionResultAllow())
    args = {"path": str(workspace)}
    with ScriptedServer([call("LS", args, id="c1"), say("Done.")]) as server:
        options = configure(server, can_use_tool=gate, hooks={"PreToolUse": [HookMatcher(hooks=[hook])]})
        await collect(query(prompt="Go.", options=options))
    ((name, _, context),) = gate.asked
    assert name == "LS"
    assert "Look twice." in (context.decision_reason or "")


@pytest.mark.slow
async def test_hooks_around_a_turn(configure: Configure, workspace: Path) -> None:
    submitted = Listener(
        {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "It is a Friday."}}
    )
    after = Listener(
        {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "It was a small one."}}
    )
    stop = Listener({"decision": "block", "reason": "Say it again, louder."})
    hooks: Any = {
        "UserPromptSubmit": [HookMatcher(hooks=[submitted])],
        "PostToolUse": [HookMatcher(hooks=[after])],
        "Stop": [HookMatcher(hooks=[stop])],
    }
    script = [call("LS", {"path": str(workspace)}, id="c1"), say("Done."), say("DONE.")]
    with ScriptedServer(script) as server:
        messages = await collect(query(prompt="Go.", options=configure(server, hooks=hooks)))
        bodies = [request.body.decode() for request in server.requests]
    assert the_result(messages).result == "DONE."
    assert submitted.told[0][0]["prompt"] == "Go."
    assert "It is a Friday." in bodies[0]
    assert "It was a small one." in bodies[1]
    assert "Say it again, louder." in bodies[2]
    assert [told["stop_hook_active"] for told, _ in stop.told] == [False, True]


async def broken(told: Any, tool_use_id: str | None, context: Any) -> Any:
    raise RuntimeError("the hook broke")


@pytest.mark.slow
@pytest.mark.parametrize(("on_failure", "made"), [(None, True), ("continue", True), ("block", False)])
async def test_a_hook_that_fails(configure: Configure, workspace: Path, on_failure: Any, made: bool) -> None:
    matcher = HookMatcher(hooks=[broken], on_failure=on_failure)
    with ScriptedServer([touch("made", "c1"), say("Done.")]) as server:
        options = configure(server, hooks={"PreToolUse": [matcher]}, permission_mode="bypassPermissions")
        messages = await collect(query(prompt="Go.", options=options))
        told = server.requests[1].results["c1"]
    assert (workspace / "made").exists() is made
    assert ("the hook broke" in told) is not made
    (news,) = [message.data for message in messages if isinstance(message, SystemMessage) and message.subtype == "hook"]
    assert "the hook broke" in news["detail"]
    assert the_result(messages).result == "Done."


@pytest.mark.slow
@pytest.mark.parametrize(("on_failure", "made"), [(None, True), ("block", False)])
async def test_a_hook_that_takes_too_long(configure: Configure, workspace: Path, on_failure: Any, made: bool) -> None:
    ended: list[str] = []

    async def slow(told: Any, tool_use_id: str | None, context: Any) -> Any:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    matcher = HookMatcher(hooks=[slow], timeout=0.2, on_failure=on_failure)
    with ScriptedServer([touch("made", "c1"), say("Done.")]) as server:
        options = configure(server, hooks={"PreToolUse": [matcher]}, permission_mode="bypassPermissions")
        await collect(query(prompt="Go.", options=options))
    assert (workspace / "made").exists() is made
    assert ended == ["cancelled"]


@pytest.mark.slow
async def test_an_event_that_does_not_exist_is_refused_rather_than_forgotten(configure: Configure) -> None:
    options = configure(None, hooks={"BeforeLunch": [HookMatcher(hooks=[Listener()])]})
    with pytest.raises(Exception, match="BeforeLunch"):
        await collect(query(prompt="Hello.", options=options))
