"""What a hook is told: one JSON object, with the fields of Claude Code's contract and some of our own."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from odin.core.hook import HookCall, HookPoint
from odin.policy.hook.declared import HookSpec
from odin.policy.hook.matching import MAIN_AGENT, NOTIFICATIONS, names_of


class HookSession(Struct, frozen=True):
    """The session that hooks belong to. `transcript` is its log."""

    id: str
    transcript: str
    cwd: str
    root: str
    permission_mode: Callable[[], str]
    model: Callable[[], str]


def build_envelope(hook: HookSpec, call: HookCall, tool_name: str, session: HookSession) -> dict[str, Any]:
    """`named` is the tool as the hook knows it."""
    return {
        "session_id": session.id,
        "transcript_path": session.transcript,
        "cwd": session.cwd,
        "permission_mode": session.permission_mode(),
        "hook_event_name": hook.event,
        "point": f"on_{call.point}",
        "agent": call.agent or MAIN_AGENT,
        "mode": call.mode,
        "model": call.model,
        **_describe_call(hook, call, tool_name),
    }


def build_variables(hook: HookSpec, call: HookCall, tool_name: str, session: HookSession) -> dict[str, str]:
    """What a hook finds in its environment."""
    return {
        "ODIN_HOOK_POINT": f"on_{call.point}",
        "ODIN_HOOK_EVENT": hook.event,
        "ODIN_SESSION_ID": session.id,
        "ODIN_PROJECT_DIR": session.root,
        "CLAUDE_PROJECT_DIR": session.root,
        "ODIN_TOOL": tool_name or call.tool,
    }


def _describe_call(hook: HookSpec, call: HookCall, tool_name: str) -> dict[str, Any]:
    if hook.event == "Notification":
        return {"message": call.text or call.reason, "notification_type": NOTIFICATIONS[call.point]}
    describe = _FIELDS.get(call.point)
    return describe(call, tool_name) if describe else {}


def _describe_tool(call: HookCall, tool_name: str) -> dict[str, Any]:
    return {
        "tool_name": tool_name or call.tool,
        "odin_tool": call.tool,
        "tool_input": call.args or {},
        "tool_use_id": call.call_id,
        "paths": list(call.paths),
    }


def _describe_result(call: HookCall, tool_name: str) -> dict[str, Any]:
    response = {"content": call.output, "is_error": call.is_error}
    error = {"error": call.output} if call.is_error else {}
    return {**_describe_tool(call, tool_name), "tool_response": response, **error}


def _describe_question(call: HookCall, tool_name: str) -> dict[str, Any]:
    return {**_describe_tool(call, tool_name), "message": call.text or call.reason}


def _describe_batch(call: HookCall, tool_name: str) -> dict[str, Any]:
    return {
        "tools": list(call.tools),
        "tool_names": [names_of(tool, claude=True)[0] for tool in call.tools],
        "paths": list(call.paths),
        "changed_files": list(call.changed),
        "is_error": call.is_error,
    }


def _describe_stop(call: HookCall, tool_name: str) -> dict[str, Any]:
    return {"stop_hook_active": call.stop_hook_active, "last_assistant_message": call.text}


_FIELDS: dict[HookPoint, Callable[[HookCall, str], dict[str, Any]]] = {
    "tool_call": _describe_tool,
    "tool_result": _describe_result,
    "before_tool_result_append": _describe_result,
    "tool_batch_complete": _describe_batch,
    "wait_confirm": _describe_question,
    "wait_question": lambda call, named: {"message": call.text, "tool_use_id": call.call_id},
    "prompt_submit": lambda call, named: {"prompt": call.text},
    "session_start": lambda call, named: {"source": call.reason},
    "session_end": lambda call, named: {"reason": call.reason},
    "before_compress": lambda call, named: {"trigger": call.reason, "custom_instructions": call.text},
    "after_compress": lambda call, named: {"trigger": call.reason, "compact_summary": call.text},
    "stop": _describe_stop,
    "subagent_stop": lambda call, named: {**_describe_stop(call, named), "agent_id": call.agent},
    "after_llm_call": lambda call, named: {"text": call.text, "tools": list(call.tools)},
    "agent_error": lambda call, named: {"error": call.text, "error_kind": call.reason},
    "idle": lambda call, named: {"reason": call.reason, "text": call.text},
}
