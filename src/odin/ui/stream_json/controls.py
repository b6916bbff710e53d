"""Control requests of a stream-json client, and requests for the hooks it registers.

The client gives each hook callback an ID when it initializes. Odin then sends `hook_callback` requests with that ID and
the payload that a hook program would read; the response holds what the program would print.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError, UsageError
from odin.core.event_values import Mode, ServerStatus
from odin.core.op import (
    Answer,
    ControlProcess,
    ControlServers,
    DefineAgents,
    SetMode,
    SetModel,
    SetPermissionMode,
    SetRole,
    SetSkills,
    SetSystemPrompt,
    SetTools,
)
from odin.core.policy import CallbackHook
from odin.core.structured_output import check_schema
from odin.ui.plan_text import SDK_PLAN_MODE
from odin.ui.stream_json.permissions import apply_update
from odin.ui.stream_json.translator import describe_server

Raw = dict[str, Any]

DEFAULT_TIMEOUT_S = 60.0
_SERVER_TIMEOUT_S = 86_400.0
"""A call of a tool has a timeout of its own."""

_MARGIN_S = 5.0
"""The session waits this much longer, so that the timeout here decides what a late answer means."""

_BLOCKING_EVENTS = ("PreToolUse", "UserPromptSubmit", "PermissionRequest")
"""Events at which a hook can deny. There, a failed hook that is set to block denies, too."""


class HookRequestFailed(Exception):
    """The client did not answer a hook request."""


class HookRequests:
    """Pending requests to the client: for its hooks, and for the MCP servers that it hosts."""

    def __init__(self, client: Client, send: Callable[[Raw], None]) -> None:
        self._client = client
        self._send = send
        self._waiting: dict[str, asyncio.Future[Raw]] = {}
        self._count = 0
        self._closed = False

    def register(self, hooks: Raw) -> None:
        """Add the client's hooks to the session. Raise UsageError for an unknown event."""
        for event, matchers in hooks.items():
            for matcher in _to_objects(matchers, event):
                for callback in cast("list[Any]", matcher.get("hookCallbackIds") or []):
                    self._client.add_hook(self._make_hook(event, str(callback), matcher))

    def take_answer(self, response: Raw) -> bool:
        """Handle a response. Return False if no hook request has its ID."""
        waiting = self._waiting.pop(str(response.get("request_id")), None)
        if waiting is None or waiting.done():
            return waiting is not None
        if response.get("subtype") == "success":
            given = response.get("response")
            waiting.set_result(cast("Raw", given) if isinstance(given, dict) else {})
        else:
            waiting.set_exception(HookRequestFailed(str(response.get("error") or "The hook callback failed.")))
        return True

    def close(self) -> None:
        """Fail all pending requests: the client's input ended."""
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(HookRequestFailed("The input was closed before the hook answered."))

    def _make_hook(self, event: str, callback: str, matcher: Raw) -> CallbackHook:
        seconds = matcher.get("timeout")
        timeout = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else DEFAULT_TIMEOUT_S
        blocks = matcher.get("onFailure") not in (None, "continue") and event in _BLOCKING_EVENTS

        async def call(payload: Raw) -> Raw:
            try:
                request = {
                    "subtype": "hook_callback",
                    "callback_id": callback,
                    "input": payload,
                    "tool_use_id": payload.get("tool_use_id"),
                }
                return await self._request("hook", request, timeout)
            except HookRequestFailed as error:
                if not blocks:
                    raise
                return {"decision": "block", "reason": f"A required hook failed: {error}"}

        return CallbackHook(f"sdk {callback}", event, call, str(matcher.get("matcher") or ""), timeout + _MARGIN_S)

    def connect_servers(self, servers: Sequence[ServerStatus]) -> None:
        """Connect the MCP servers that the client hosts. Their messages are control requests, too."""
        for server in servers:
            if server.transport == "sdk":
                self._client.add_server(server.name, partial(self._forward_message, server.name))

    async def _forward_message(self, server: str, message: Raw) -> Raw | None:
        request = {"subtype": "mcp_message", "server_name": server, "message": message}
        answer = await self._request("mcp", request, _SERVER_TIMEOUT_S)
        response: Any = answer.get("mcp_response")
        return cast("Raw", response) if isinstance(response, dict) else None

    async def _request(self, kind: str, request: Raw, timeout: float) -> Raw:
        if self._closed:
            raise HookRequestFailed("The input is closed.")
        self._count += 1
        request_id = f"{kind}-{self._count}"
        waiting: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiting
        self._send({"type": "control_request", "request_id": request_id, "request": request})
        try:
            async with asyncio.timeout(timeout):
                return await waiting
        except TimeoutError:
            raise HookRequestFailed(f"No answer within {timeout:g} s.") from None
        finally:
            if self._waiting.pop(request_id, None) is not None:
                self._send({"type": "control_cancel_request", "request_id": request_id})


def _to_objects(value: Any, event: str) -> list[Raw]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("list[Any]", value)):
        raise UsageError(f"The hooks for {event!r} must be a list of matchers.")
    return cast("list[Raw]", value)


class ControlRequests:
    """Answers control requests, each with the method that has its subtype in the name.

    `mode` is the mode of prompts that name none, `output_schema` the JSON schema of their answers; `warn` sends a
    warning to the client.
    """

    def __init__(
        self,
        client: Client,
        info: SessionInfo,
        mode: Mode,
        output_schema: Raw | None,
        *,
        hooks: HookRequests,
        interrupt: Callable[[], Awaitable[None]],
        warn: Callable[[str], None],
    ) -> None:
        self.mode: Mode = mode
        self.output_schema = output_schema
        self._working_mode: Mode = "edit_mode" if mode == "plan_mode" else mode
        self._client = client
        self._info = info
        self._hooks = hooks
        self._stop = interrupt
        self._warn = warn

    async def answer(self, request_id: str, request: Raw) -> Raw:
        """Run a control request and return its response or error."""
        subtype = str(request.get("subtype"))
        control: Callable[[Raw], Awaitable[Raw]] | None = getattr(self, f"answer_{subtype}", None)
        try:
            if control is None:
                raise UsageError(f"Control request {subtype!r} is not supported.")
            response = {"subtype": "success", "request_id": request_id, "response": await control(request)}
        except OdinError as error:
            response = {"subtype": "error", "request_id": request_id, "error": error.describe()}
        return {"type": "control_response", "response": response}

    async def apply_permission_update(self, update: Raw) -> None:
        """Apply a permission update that came with an answer. Failures become warnings."""
        if update.get("type") != "setMode":
            for error in await apply_update(self._client, update):
                self._warn(error)
            return
        try:
            await self.answer_set_permission_mode(update)
        except OdinError as error:
            self._warn(error.describe())

    async def answer_initialize(self, request: Raw) -> Raw:
        hooks: Any = request.get("hooks")
        if isinstance(hooks, dict):
            self._hooks.register(cast("Raw", hooks))
        agents: Any = request.get("agents")
        if isinstance(agents, dict) and agents:
            await self._client.submit(DefineAgents(cast("Raw", agents)))
        if (schema := request.get("jsonSchema")) is not None:
            self.output_schema = check_schema(schema)
        skills: Any = request.get("skills")
        if isinstance(skills, list):
            await self._client.submit(SetSkills(tuple(map(str, cast("list[Any]", skills)))))
        model = self._info.model
        return {
            "commands": [
                {"name": item.name, "description": item.description, "argumentHint": item.hint}
                for item in await self._client.list_commands()
            ],
            "agents": [
                {"name": item.name, "description": item.description, "model": item.model or "inherit"}
                for item in await self._client.list_agents()
                if item.use != "main"
            ],
            "roles": [
                {"name": item.name, "description": item.description}
                for item in await self._client.list_agents()
                if item.is_role
            ],
            "output_style": self._info.output_style,
            "available_output_styles": [self._info.output_style],
            "models": [{"value": model, "displayName": model, "description": ""}],
            "account": {},
            "pid": os.getpid(),
            "hooks_applied": isinstance(hooks, dict),
            "hook_on_failure_supported": True,
        }

    async def answer_interrupt(self, request: Raw) -> Raw:
        await self._stop()
        return {}

    async def answer_answer(self, request: Raw) -> Raw:
        """Answer an interaction with the fields of the op; `accepted` is false if it is not pending any more."""
        try:
            answer = msgspec.convert({"by": "sdk", **request, "type": "Answer"}, Answer)
        except msgspec.ValidationError as error:
            raise UsageError(f"The answer is not valid: {error}.") from None
        return {"accepted": await self._client.submit(answer)}

    async def answer_set_permission_mode(self, request: Raw) -> Raw:
        """Set the permission mode. SDK clients have plan mode as a permission mode, so `plan` switches to that."""
        mode = str(request.get("mode"))
        await self._client.submit(SetPermissionMode("default" if mode == SDK_PLAN_MODE else mode))
        self.mode = "plan_mode" if mode == SDK_PLAN_MODE else self._working_mode
        await self._client.submit(SetMode(self.mode))
        return {"mode": mode}

    async def answer_set_model(self, request: Raw) -> Raw:
        await self._client.submit(SetModel(str(request.get("model") or self._info.model)))
        return {}

    async def answer_set_role(self, request: Raw) -> Raw:
        """Switch the role; the response has the active one. An unknown role is an error and changes nothing."""
        await self._client.submit(SetRole(str(request.get("role") or "")))
        return {"role": (await self._client.get_info()).role}

    async def answer_set_system_prompt(self, request: Raw) -> Raw:
        """Replace the main text of the system prompt; null restores the usual one."""
        text = request.get("system_prompt")
        if text is not None and not isinstance(text, str):
            raise UsageError("system_prompt must be a text or null.")
        await self._client.submit(SetSystemPrompt(text))
        return {}

    async def answer_set_tools(self, request: Raw) -> Raw:
        """Offer only these tools; null offers the usual ones. The response has those that are offered now."""
        names: Any = request.get("tools")
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):  # pyright: ignore[reportUnknownVariableType]
            raise UsageError("tools must be a list of names or null.")
        await self._client.submit(SetTools(None if names is None else tuple(cast("list[str]", names))))
        return {"tools": list((await self._client.get_info()).tools)}

    async def answer_get_context_usage(self, request: Raw) -> Raw:
        report = await self._client.report_context()
        used, limit = report.used, report.limit
        return {
            "categories": [{"name": part.source, "tokens": part.tokens, "color": "blue"} for part in report.parts],
            "totalTokens": used,
            "maxTokens": limit,
            "rawMaxTokens": limit,
            "percentage": 100 * used / limit if limit else 0.0,
            "measured": report.measured,
            "model": report.model,
            "isAutoCompactEnabled": report.threshold > 0,
            "autoCompactThreshold": report.threshold,
            "memoryFiles": [
                {"path": item.name, "type": item.why or "project", "tokens": item.tokens}
                for item in report.instructions
            ],
            "mcpTools": [],
            "agents": [],
            "gridRows": [],
        }

    async def answer_stop_task(self, request: Raw) -> Raw:
        await self._client.submit(ControlProcess("stop", str(request.get("task_id"))))
        return {}

    async def answer_mcp_status(self, request: Raw) -> Raw:
        servers = (await self._client.get_info()).servers
        return {"mcpServers": [describe_server(server) for server in servers]}

    async def answer_mcp_toggle(self, request: Raw) -> Raw:
        action = "enable" if request.get("enabled") else "disable"
        await self._client.submit(ControlServers(action, (str(request.get("serverName")),), force=True))
        return {}

    async def answer_mcp_reconnect(self, request: Raw) -> Raw:
        await self._client.submit(ControlServers("reconnect", (str(request.get("serverName")),)))
        return {}
