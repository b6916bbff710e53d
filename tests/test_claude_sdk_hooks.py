"""Hooks of programs that use claude-agent-sdk."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import HookMatcher, PermissionResultAllow, SystemMessage, query

from odin.testing import ScriptedServer, call, say
from tests.test_claude_sdk import Configure, Gatekeeper, collect, configure, get_result, touch

__all__ = ["configure"]


class RecordingHook:
    """A hook that records its inputs and returns the given answers."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)
        self.inputs: list[tuple[dict[str, Any], str | None]] = []

    async def __call__(self, hook_input: Any, tool_use_id: str | None, context: Any) -> Any:
        self.inputs.append((hook_input, tool_use_id))
        return self._answers.pop(0) if self._answers else {}


def make_pre_tool_use_output(**fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}}


async def test_a_hook_before_a_tool_can_deny(configure: Configure, workspace: Path) -> None:
    hook = RecordingHook(
        make_pre_tool_use_output(permissionDecision="deny", permissionDecisionReason="not on a Friday")
    )
    hooks = {"PreToolUse": [HookMatcher(matcher="Bash", hooks=[hook])]}
    with ScriptedServer([touch("made", "c1"), call("LS", {"path": str(workspace)}), say("Oh.")]) as server:
        options = configure(server, hooks=hooks, permission_mode="bypassPermissions")
        messages = await collect(query(prompt="Go.", options=options))
        assert "not on a Friday" in server.requests[1].results["c1"]
    ((hook_input, tool_use_id),) = hook.inputs
    assert tool_use_id == "c1"
    assert (hook_input["hook_event_name"], hook_input["tool_name"], hook_input["tool_use_id"]) == (
        "PreToolUse",
        "Bash",
        "c1",
    )
    assert hook_input["tool_input"] == {"command": "touch made"}
    assert hook_input["cwd"] == str(workspace)
    assert not (workspace / "made").exists()
    (hook_message,) = [
        message.data for message in messages if isinstance(message, SystemMessage) and message.subtype == "hook"
    ]
    assert (hook_message["outcome"], hook_message["point"]) == ("denied", "tool_call")
    assert [item["tool_use_id"] for item in get_result(messages).permission_denials or []] == ["c1"]


@pytest.mark.slow
async def test_a_hook_before_a_tool_can_change_and_allow_it(configure: Configure, workspace: Path) -> None:
    hook = RecordingHook(make_pre_tool_use_output(permissionDecision="allow", updatedInput={"command": "touch other"}))
    with ScriptedServer([touch("made", "c1"), say("Done.")]) as server:
        options = configure(server, hooks={"PreToolUse": [HookMatcher(hooks=[hook])]})
        await collect(query(prompt="Go.", options=options))
    assert (workspace / "other").exists()
    assert not (workspace / "made").exists()


@pytest.mark.slow
async def test_hook_can_require_a_permission_request(configure: Configure, workspace: Path) -> None:
    hook = RecordingHook(make_pre_tool_use_output(permissionDecision="ask", permissionDecisionReason="Look twice."))
    gate = Gatekeeper(PermissionResultAllow())
    args = {"path": str(workspace)}
    with ScriptedServer([call("LS", args, id="c1"), say("Done.")]) as server:
        options = configure(server, can_use_tool=gate, hooks={"PreToolUse": [HookMatcher(hooks=[hook])]})
        await collect(query(prompt="Go.", options=options))
    ((name, _, context),) = gate.asked
    assert name == "LS"
    assert "Look twice." in (context.decision_reason or "")


@pytest.mark.slow
async def test_hooks_add_context_to_a_turn_and_can_continue_it(configure: Configure, workspace: Path) -> None:
    submitted = RecordingHook(
        {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "It is a Friday."}}
    )
    after = RecordingHook(
        {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "It was a small one."}}
    )
    stop = RecordingHook({"decision": "block", "reason": "Say it again, louder."})
    hooks: Any = {
        "UserPromptSubmit": [HookMatcher(hooks=[submitted])],
        "PostToolUse": [HookMatcher(hooks=[after])],
        "Stop": [HookMatcher(hooks=[stop])],
    }
    script = [call("LS", {"path": str(workspace)}, id="c1"), say("Done."), say("DONE.")]
    with ScriptedServer(script) as server:
        messages = await collect(query(prompt="Go.", options=configure(server, hooks=hooks)))
        bodies = [request.body.decode() for request in server.requests]
    assert get_result(messages).result == "DONE."
    assert submitted.inputs[0][0]["prompt"] == "Go."
    assert "It is a Friday." in bodies[0]
    assert "It was a small one." in bodies[1]
    assert "Say it again, louder." in bodies[2]
    assert [hook_input["stop_hook_active"] for hook_input, _ in stop.inputs] == [False, True]


async def broken(hook_input: Any, tool_use_id: str | None, context: Any) -> Any:
    raise RuntimeError("the hook broke")


@pytest.mark.slow
@pytest.mark.parametrize(("on_failure", "made"), [(None, True), ("continue", True), ("block", False)])
async def test_failing_hook_blocks_the_call_only_if_configured(
    configure: Configure, workspace: Path, on_failure: Any, made: bool
) -> None:
    matcher = HookMatcher(hooks=[broken], on_failure=on_failure)
    with ScriptedServer([touch("made", "c1"), say("Done.")]) as server:
        options = configure(server, hooks={"PreToolUse": [matcher]}, permission_mode="bypassPermissions")
        messages = await collect(query(prompt="Go.", options=options))
        result_text = server.requests[1].results["c1"]
    assert (workspace / "made").exists() is made
    assert ("the hook broke" in result_text) is not made
    (hook_message,) = [
        message.data for message in messages if isinstance(message, SystemMessage) and message.subtype == "hook"
    ]
    assert "the hook broke" in hook_message["detail"]
    assert get_result(messages).result == "Done."


@pytest.mark.slow
@pytest.mark.parametrize(("on_failure", "made"), [(None, True), ("block", False)])
async def test_hook_that_times_out_is_cancelled(
    configure: Configure, workspace: Path, on_failure: Any, made: bool
) -> None:
    ended: list[str] = []

    async def slow(hook_input: Any, tool_use_id: str | None, context: Any) -> Any:
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
async def test_unknown_hook_event_is_refused(configure: Configure) -> None:
    options = configure(None, hooks={"BeforeLunch": [HookMatcher(hooks=[RecordingHook()])]})
    with pytest.raises(Exception, match="BeforeLunch"):
        await collect(query(prompt="Hello.", options=options))
