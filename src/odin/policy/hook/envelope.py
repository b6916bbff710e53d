"""What a hook is told: one JSON object, with the fields of Claude Code's contract and some of our own."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from odin.core.hook import HookCall, Point
from odin.policy.hook.declared import Hook
from odin.policy.hook.matching import MAIN, NOTIFICATIONS, names_of


class Session(Struct, frozen=True):
    """The session that hooks belong to. `transcript` is its log."""

    id: str
    transcript: str
    cwd: str
    root: str
    permission_mode: Callable[[], str]
    model: Callable[[], str]


def envelope(hook: Hook, call: HookCall, named: str, session: Session) -> dict[str, Any]:
    """`named` is the tool as the hook knows it."""
    return {
        "session_id": session.id,
        "transcript_path": session.transcript,
        "cwd": session.cwd,
        "permission_mode": session.permission_mode(),
        "hook_event_name": hook.event,
        "point": f"on_{call.point}",
        "agent": call.agent or MAIN,
        "mode": call.mode,
        "model": call.model,
        **_about(hook, call, named),
    }


def variables(hook: Hook, call: HookCall, named: str, session: Session) -> dict[str, str]:
    """What a hook finds in its environment."""
    return {
        "ODIN_HOOK_POINT": f"on_{call.point}",
        "ODIN_HOOK_EVENT": hook.event,
        "ODIN_SESSION_ID": session.id,
        "ODIN_PROJECT_DIR": session.root,
        "CLAUDE_PROJECT_DIR": session.root,
        "ODIN_TOOL": named or call.tool,
    }


def _about(hook: Hook, call: HookCall, named: str) -> dict[str, Any]:
    if hook.event == "Notification":
        return {"message": call.text or call.reason, "notification_type": NOTIFICATIONS[call.point]}
    describe = _FIELDS.get(call.point)
    return describe(call, named) if describe else {}


def _tool(call: HookCall, named: str) -> dict[str, Any]:
    return {
        "tool_name": named or call.tool,
        "odin_tool": call.tool,
        "tool_input": call.args or {},
        "tool_use_id": call.call_id,
        "paths": list(call.paths),
    }


def _result(call: HookCall, named: str) -> dict[str, Any]:
    response = {"content": call.output, "is_error": call.is_error}
    error = {"error": call.output} if call.is_error else {}
    return {**_tool(call, named), "tool_response": response, **error}


def _question(call: HookCall, named: str) -> dict[str, Any]:
    return {**_tool(call, named), "message": call.text or call.reason}


def _batch(call: HookCall, named: str) -> dict[str, Any]:
    return {
        "tools": list(call.tools),
        "tool_names": [names_of(tool, claude=True)[0] for tool in call.tools],
        "paths": list(call.paths),
        "changed_files": list(call.changed),
        "is_error": call.is_error,
    }


def _stop(call: HookCall, named: str) -> dict[str, Any]:
    return {"stop_hook_active": call.again, "last_assistant_message": call.text}


_FIELDS: dict[Point, Callable[[HookCall, str], dict[str, Any]]] = {
    "tool_call": _tool,
    "tool_result": _result,
    "before_tool_result_append": _result,
    "tool_batch_complete": _batch,
    "wait_confirm": _question,
    "wait_question": lambda call, named: {"message": call.text, "tool_use_id": call.call_id},
    "prompt_submit": lambda call, named: {"prompt": call.text},
    "session_start": lambda call, named: {"source": call.reason},
    "session_end": lambda call, named: {"reason": call.reason},
    "before_compress": lambda call, named: {"trigger": call.reason, "custom_instructions": call.text},
    "after_compress": lambda call, named: {"trigger": call.reason, "compact_summary": call.text},
    "stop": _stop,
    "subagent_stop": lambda call, named: {**_stop(call, named), "agent_id": call.agent},
    "after_llm_call": lambda call, named: {"text": call.text, "tools": list(call.tools)},
    "agent_error": lambda call, named: {"error": call.text, "error_kind": call.reason},
    "idle": lambda call, named: {"reason": call.reason, "text": call.text},
}
