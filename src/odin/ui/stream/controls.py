"""What a client of the stream-json protocol may ask of the session, beside prompts."""

import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError, UsageError
from odin.core.event import Mode
from odin.core.op import SetModel, SetPermissionMode
from odin.ui.stream.hookcalls import HookRequests
from odin.ui.stream.updates import apply_update

Raw = dict[str, Any]


class ControlRequests:
    """Answers control requests. `mode` is that of the next prompt that names none; `warn` tells the client a thing."""

    def __init__(
        self,
        client: Client,
        info: SessionInfo,
        mode: Mode,
        *,
        hooks: HookRequests,
        interrupt: Callable[[], Awaitable[None]],
        warn: Callable[[str], None],
    ) -> None:
        self.mode: Mode = mode
        self._first_mode: Mode = mode
        self._client = client
        self._info = info
        self._hooks = hooks
        self._stop = interrupt
        self._warn = warn
        self._handlers: dict[str, Callable[[Raw], Awaitable[Raw]]] = {
            "initialize": self._initialize,
            "interrupt": self._interrupt,
            "set_permission_mode": self._set_permission_mode,
            "set_model": self._set_model,
            "get_context_usage": self._get_context_usage,
            "mcp_status": self._get_mcp_status,
        }

    async def answer(self, request_id: str, request: Raw) -> Raw:
        """The response to a request, whatever became of it."""
        subtype = str(request.get("subtype"))
        control = self._handlers.get(subtype)
        try:
            if control is None:
                raise UsageError(f"Odin does not support the control request {subtype!r}.")
            response = {"subtype": "success", "request_id": request_id, "response": await control(request)}
        except OdinError as error:
            response = {"subtype": "error", "request_id": request_id, "error": error.describe()}
        return {"type": "control_response", "response": response}

    async def apply_permission_update(self, wanted: Raw) -> None:
        """A change of permissions that came with an answer. What cannot be done is said and holds nothing up."""
        if wanted.get("type") != "setMode":
            for said in await apply_update(self._client, wanted):
                self._warn(said)
            return
        try:
            await self._set_permission_mode(wanted)
        except OdinError as error:
            self._warn(error.describe())

    async def _initialize(self, request: Raw) -> Raw:
        hooks: Any = request.get("hooks")
        if isinstance(hooks, dict):
            self._hooks.register(cast("Raw", hooks))
        for name in ("agents", "skills"):
            if request.get(name):
                self._warn(f"Odin does not use the {name} of an SDK client yet.")
        model = self._info.model
        return {
            "commands": [
                {"name": item.name, "description": item.description, "argumentHint": item.hint}
                for item in await self._client.list_commands()
            ],
            "agents": [],
            "output_style": "default",
            "available_output_styles": ["default"],
            "models": [{"value": model, "displayName": model, "description": ""}],
            "account": {},
            "pid": os.getpid(),
            "hooks_applied": isinstance(hooks, dict),
            "hook_on_failure_supported": True,
        }

    async def _interrupt(self, request: Raw) -> Raw:
        await self._stop()
        return {}

    async def _set_permission_mode(self, request: Raw) -> Raw:
        """The permission mode `plan` of other agents is Odin's plan mode for the prompts that follow."""
        mode = str(request.get("mode"))
        await self._client.submit(SetPermissionMode(mode))
        self.mode = "plan_mode" if mode == "plan" else self._first_mode
        return {"mode": mode}

    async def _set_model(self, request: Raw) -> Raw:
        await self._client.submit(SetModel(str(request.get("model") or self._info.model)))
        return {}

    async def _get_context_usage(self, request: Raw) -> Raw:
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
            "memoryFiles": [],
            "mcpTools": [],
            "agents": [],
            "gridRows": [],
        }

    async def _get_mcp_status(self, request: Raw) -> Raw:
        return {"mcpServers": []}
