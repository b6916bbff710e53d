"""Hooks of a client of the stream-json protocol: it names them when it begins, and is asked when they are due.

The client gives each of its functions an id. A due one is a `hook_callback` request with that id and the object that a
program would read as a hook; the answer holds what the program would print.

What a client of the stream-json protocol may ask of the session, beside prompts.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError, UsageError
from odin.core.event import Mode
from odin.core.op import SetModel, SetPermissionMode
from odin.core.policy import CallbackHook
from odin.ui.stream_json.permissions import apply_update

Raw = dict[str, Any]

DEFAULT_TIMEOUT_S = 60.0
_MARGIN_S = 5.0
"""The session waits a little longer than we do, so that it is we who say what a late answer means."""

_BLOCKING_EVENTS = ("PreToolUse", "UserPromptSubmit", "PermissionRequest")
"""Events at which a hook can say no, and a failed one that is set to block does."""


class HookRequestFailed(Exception):
    """The client could not say anything about it."""


class HookRequests:
    """Requests for hooks that wait for the client."""

    def __init__(self, client: Client, send: Callable[[Raw], None]) -> None:
        self._client = client
        self._send = send
        self._waiting: dict[str, asyncio.Future[Raw]] = {}
        self._count = 0
        self._closed = False

    def register(self, hooks: Raw) -> None:
        """Take over what the client listens to. Raises UsageError for what there is not."""
        for event, matchers in hooks.items():
            for matcher in _to_objects(matchers, event):
                for callback in cast("list[Any]", matcher.get("hookCallbackIds") or []):
                    self._client.add_hook(self._make_hook(event, str(callback), matcher))

    def take_answer(self, response: Raw) -> bool:
        """False when no hook waits for this."""
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
        """The client will say nothing more."""
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(HookRequestFailed("The input was closed before the hook answered."))

    def _make_hook(self, event: str, callback: str, matcher: Raw) -> CallbackHook:
        seconds = matcher.get("timeout")
        timeout = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else DEFAULT_TIMEOUT_S
        blocks = matcher.get("onFailure") not in (None, "continue") and event in _BLOCKING_EVENTS

        async def call(told: Raw) -> Raw:
            try:
                return await self._request(callback, told, timeout)
            except HookRequestFailed as error:
                if not blocks:
                    raise
                return {"decision": "block", "reason": f"A hook that must not fail did: {error}"}

        return CallbackHook(f"sdk {callback}", event, call, str(matcher.get("matcher") or ""), timeout + _MARGIN_S)

    async def _request(self, callback: str, told: Raw, timeout: float) -> Raw:
        if self._closed:
            raise HookRequestFailed("The input is closed, so the hook cannot be asked.")
        self._count += 1
        request_id = f"hook-{self._count}"
        waiting: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiting
        request = {
            "subtype": "hook_callback",
            "callback_id": callback,
            "input": told,
            "tool_use_id": told.get("tool_use_id"),
        }
        self._send({"type": "control_request", "request_id": request_id, "request": request})
        try:
            async with asyncio.timeout(timeout):
                return await waiting
        except TimeoutError:
            raise HookRequestFailed(f"It did not answer within {timeout:g} s.") from None
        finally:
            if self._waiting.pop(request_id, None) is not None:
                self._send({"type": "control_cancel_request", "request_id": request_id})


def _to_objects(value: Any, event: str) -> list[Raw]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("list[Any]", value)):
        raise UsageError(f"The hooks for {event!r} are no list of matchers.")
    return cast("list[Raw]", value)


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
