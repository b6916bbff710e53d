"""Hooks of a client of the stream-json protocol: it names them when it begins, and is asked when they are due.

The client gives each of its functions an id. A due one is a `hook_callback` request with that id and the object that a
program would read as a hook; the answer holds what the program would print.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.hook import CallbackHook

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
