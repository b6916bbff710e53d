"""What a client of the stream-json protocol is asked: may a tool be used, and what a tool wants to know of a person.

Both are `can_use_tool` requests, because that is what SDK clients have a callback for.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from odin.core.client import Client
from odin.core.event import PermissionAsked, QuestionsAsked
from odin.core.op import Answer, AnswerQuestions, Interrupt, Op
from odin.ui.questions import SDK_TOOL, sdk_answers, sdk_input
from odin.ui.stream.updates import suggestions

Raw = dict[str, Any]
Asked = PermissionAsked | QuestionsAsked

_CLOSED = "Nobody can answer: the input was closed."


class Asking:
    """Requests that wait for the client. `update` is called with every change of permissions it sends along."""

    def __init__(self, client: Client, send: Callable[[Raw], None], update: Callable[[Raw], Awaitable[None]]) -> None:
        self.open = False
        self._client = client
        self._send = send
        self._update = update
        self._asks: dict[str, Asked] = {}

    async def ask(self, event: Asked, agent: str) -> None:
        if not self.open:
            await self._refuse(event, _CLOSED)
            return
        self._asks[event.ask_id] = event
        request = {"subtype": "can_use_tool", "tool_use_id": event.call_id, **_about(event)}
        if agent:
            request["agent_id"] = agent
        self._send({"type": "control_request", "request_id": event.ask_id, "request": request})

    def take_back(self, ask_id: str) -> None:
        """The question was answered elsewhere or no longer matters."""
        if self._asks.pop(ask_id, None) is not None:
            self._send({"type": "control_cancel_request", "request_id": ask_id})

    def take_all_back(self) -> None:
        for ask_id in tuple(self._asks):
            self.take_back(ask_id)

    async def close(self) -> None:
        """The client will say nothing more."""
        self.open = False
        waiting, self._asks = self._asks, {}
        for event in waiting.values():
            await self._refuse(event, _CLOSED)

    async def answered(self, response: Raw) -> None:
        event = self._asks.pop(str(response.get("request_id")), None)
        if event is None:
            return
        if response.get("subtype") != "success":
            await self._refuse(event, str(response.get("error") or "The permission callback failed."))
            return
        given = _object(response.get("response"))
        updates = given.get("updatedPermissions")
        for update in cast("list[Any]", updates) if isinstance(updates, list) else ():
            await self._update(_object(update))
        await self._client.submit(_answer(event, given))

    async def _refuse(self, event: Asked, why: str) -> None:
        if isinstance(event, QuestionsAsked):
            await self._client.submit(AnswerQuestions(event.ask_id, cancelled=True, by="sdk"))
        else:
            await self._client.submit(Answer(event.ask_id, allow=False, reason=why, by="sdk"))


def _about(event: Asked) -> Raw:
    """In the fields that SDK clients know; what else a person would be shown is beside them."""
    if isinstance(event, QuestionsAsked):
        text = "; ".join(question.text for question in event.questions)
        return {
            "tool_name": SDK_TOOL,
            "input": sdk_input(event.questions),
            "permission_suggestions": [],
            "blocked_path": None,
            "decision_reason": "The model asks the user.",
            "description": text,
        }
    more = {
        "rules": list(event.rules),
        "preview": event.preview,
        "sandbox": event.sandbox,
        "outside": event.outside,
        "asked_paths": list(event.asked_paths),
        "allowed_paths": list(event.allowed_paths),
    }
    what = "run this again outside the sandbox" if event.outside else f"use {event.name}"
    return {
        "tool_name": event.name,
        "input": event.args,
        "permission_suggestions": [] if event.outside else suggestions(event.rules),
        "blocked_path": _path(event),
        "decision_reason": event.reason,
        "title": f"Odin asks to {what}",
        "display_name": event.name,
        "description": event.subject,
        **{name: value for name, value in more.items() if value},
    }


def _path(event: PermissionAsked) -> str | None:
    """The file it is about, when it is about one."""
    if event.asked_paths:
        return event.asked_paths[0]
    return event.subject if event.subject.startswith("/") and "command" not in event.args else None


def _answer(event: Asked, given: Raw) -> Op:
    allow, changed = given.get("behavior") == "allow", given.get("updatedInput")
    if isinstance(event, QuestionsAsked):
        if not allow and given.get("interrupt") is True:
            return Interrupt()
        answers = sdk_answers(event.questions, changed) if allow else ()
        return AnswerQuestions(event.ask_id, answers, cancelled=not allow, by="sdk")
    return Answer(
        event.ask_id,
        allow=allow,
        reason=str(given.get("message") or ""),
        args=_object(changed) if isinstance(changed, dict) else None,
        by="sdk",
        interrupt=given.get("interrupt") is True,
    )


def _object(value: Any) -> Raw:
    return cast("Raw", value) if isinstance(value, dict) else {}
