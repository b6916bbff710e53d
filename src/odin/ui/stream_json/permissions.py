"""Permission updates in the words of agent SDKs: what they are offered with a question, and what they send back.

What a client of the stream-json protocol is asked: may a tool be used, and what a tool wants to know of a person.

Both are `can_use_tool` requests, because that is what SDK clients have a callback for.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.event import PermissionAsked, QuestionsAsked
from odin.core.op import AddRule, AnswerPermission, AnswerQuestions, Interrupt, Op, RemoveRule
from odin.core.policy import RememberScope, RuleAction, RuleLine
from odin.core.registry import canonical_name_of
from odin.ui.callbacks import SDK_TOOL, parse_sdk_answers, to_sdk_input

Raw = dict[str, Any]

_SCOPES: dict[str, RememberScope] = {
    "session": "session",
    "cliArg": "session",
    "projectSettings": "project",
    "localSettings": "project",
    "userSettings": "user",
}
_ACTIONS: dict[str, RuleAction] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_RULE_FORM = re.compile(r"\s*([^()\s]+)\s*(?:\(([\s\S]*)\))?\s*")


def suggest_updates(rules: Sequence[str]) -> list[Raw]:
    """The narrowest rule, for this session: clients like to give back everything they were offered, unread."""
    for rule in rules[:1]:
        value = to_rule_value(rule)
        return [{"type": "addRules", "rules": [value], "behavior": "allow", "destination": "session"}]
    return []


def to_rule_value(text: str) -> Raw:
    """`Tool(pattern)` in two fields."""
    found = _RULE_FORM.fullmatch(text)
    if found is None:
        return {"toolName": text}
    name, pattern = found[1], found[2]
    return {"toolName": name} if pattern is None else {"toolName": name, "ruleContent": pattern}


def to_rule_text(value: Raw) -> str:
    name, pattern = str(value.get("toolName") or ""), value.get("ruleContent")
    return name if pattern is None else f"{name}({pattern})"


async def apply_update(client: Client, wanted: Raw) -> list[str]:
    """Change the rules as a client wants it; a sentence for everything that could not be done."""
    kind = wanted.get("type")
    if kind not in ("addRules", "removeRules", "replaceRules"):
        return [f"The permission update {kind!r} is not supported and was left out."]
    scope = _SCOPES.get(str(wanted.get("destination") or "session"))
    action = _ACTIONS.get(str(wanted.get("behavior") or "allow"))
    if scope is None or action is None:
        return [f"A permission update for {wanted.get('destination')!r} and {wanted.get('behavior')!r} was left out."]
    texts = [to_rule_text(value) for value in _rule_values_of(wanted)]
    try:
        if kind == "replaceRules":
            await _remove_rules(client, None, action, scope)
        if kind == "removeRules":
            await _remove_rules(client, texts, action, scope)
            return []
        return [said for text in texts if (said := await _add_rule(client, AddRule(text, action, scope)))]
    except OdinError as error:
        return [error.describe()]


async def _add_rule(client: Client, op: AddRule) -> str:
    try:
        await client.submit(op)
    except OdinError as error:
        return error.describe()
    return ""


async def _remove_rules(client: Client, texts: list[str] | None, action: RuleAction, scope: RememberScope) -> None:
    """Every rule of that scope, or those with these texts. Numbers change with each removal, so they are read again."""
    keys = None if texts is None else {_identity_of(text) for text in texts}
    left = len(await client.list_rules())
    while left:
        left -= 1
        found = next((rule for rule in await client.list_rules() if _matches_rule(rule, keys, action, scope)), None)
        if found is None:
            return
        await client.submit(RemoveRule(found.number))


def _matches_rule(rule: RuleLine, keys: set[tuple[str, Any]] | None, action: RuleAction, scope: RememberScope) -> bool:
    if not rule.number or rule.action != action or rule.layer != scope:
        return False
    return keys is None or _identity_of(rule.text) in keys


def _identity_of(text: str) -> tuple[str, Any]:
    """What makes two texts the same rule: a tool may be called by any of its names."""
    value = to_rule_value(text)
    return canonical_name_of(value["toolName"]), value.get("ruleContent")


def _rule_values_of(wanted: Raw) -> list[Raw]:
    rules = wanted.get("rules")
    return (
        [cast("Raw", item) for item in cast("list[Any]", rules) if isinstance(item, dict)]
        if isinstance(rules, list)
        else []
    )


PendingQuestion = PermissionAsked | QuestionsAsked

_INPUT_CLOSED = "Nobody can answer: the input was closed."


class PermissionRequests:
    """Requests that wait for the client. `update` is called with every change of permissions it sends along."""

    def __init__(self, client: Client, send: Callable[[Raw], None], update: Callable[[Raw], Awaitable[None]]) -> None:
        self.is_open = False
        self._client = client
        self._send = send
        self._update = update
        self._pending: dict[str, PendingQuestion] = {}

    async def ask(self, event: PendingQuestion, agent: str) -> None:
        if not self.is_open:
            await self._refuse(event, _INPUT_CLOSED)
            return
        self._pending[event.ask_id] = event
        request = {"subtype": "can_use_tool", "tool_use_id": event.call_id, **_describe_request(event)}
        if agent:
            request["agent_id"] = agent
        self._send({"type": "control_request", "request_id": event.ask_id, "request": request})

    def cancel(self, ask_id: str) -> None:
        """The question was answered elsewhere or no longer matters."""
        if self._pending.pop(ask_id, None) is not None:
            self._send({"type": "control_cancel_request", "request_id": ask_id})

    def cancel_all(self) -> None:
        for ask_id in tuple(self._pending):
            self.cancel(ask_id)

    async def close(self) -> None:
        """The client will say nothing more."""
        self.is_open = False
        waiting, self._pending = self._pending, {}
        for event in waiting.values():
            await self._refuse(event, _INPUT_CLOSED)

    async def take_answer(self, response: Raw) -> None:
        event = self._pending.pop(str(response.get("request_id")), None)
        if event is None:
            return
        if response.get("subtype") != "success":
            await self._refuse(event, str(response.get("error") or "The permission callback failed."))
            return
        given = _to_object(response.get("response"))
        updates = given.get("updatedPermissions")
        for update in cast("list[Any]", updates) if isinstance(updates, list) else ():
            await self._update(_to_object(update))
        await self._client.submit(_make_answer(event, given))

    async def _refuse(self, event: PendingQuestion, why: str) -> None:
        if isinstance(event, QuestionsAsked):
            await self._client.submit(AnswerQuestions(event.ask_id, cancelled=True, by="sdk"))
        else:
            await self._client.submit(AnswerPermission(event.ask_id, allow=False, reason=why, by="sdk"))


def _describe_request(event: PendingQuestion) -> Raw:
    """In the fields that SDK clients know; what else a person would be shown is beside them."""
    if isinstance(event, QuestionsAsked):
        text = "; ".join(question.text for question in event.questions)
        return {
            "tool_name": SDK_TOOL,
            "input": to_sdk_input(event.questions),
            "permission_suggestions": [],
            "blocked_path": None,
            "decision_reason": "The model asks the user.",
            "description": text,
        }
    more = {
        "rules": list(event.rules),
        "preview": event.preview,
        "sandbox": event.sandbox,
        "outside": event.unsandboxed,
        "asked_paths": list(event.asked_paths),
        "allowed_paths": list(event.allowed_paths),
    }
    what = "run this again outside the sandbox" if event.unsandboxed else f"use {event.name}"
    return {
        "tool_name": event.name,
        "input": event.args,
        "permission_suggestions": [] if event.unsandboxed else suggest_updates(event.rules),
        "blocked_path": _path_of(event),
        "decision_reason": event.reason,
        "title": f"Odin asks to {what}",
        "display_name": event.name,
        "description": event.subject,
        **{name: value for name, value in more.items() if value},
    }


def _path_of(event: PermissionAsked) -> str | None:
    """The file it is about, when it is about one."""
    if event.asked_paths:
        return event.asked_paths[0]
    return event.subject if event.subject.startswith("/") and "command" not in event.args else None


def _make_answer(event: PendingQuestion, given: Raw) -> Op:
    allow, changed = given.get("behavior") == "allow", given.get("updatedInput")
    if isinstance(event, QuestionsAsked):
        if not allow and given.get("interrupt") is True:
            return Interrupt()
        answers = parse_sdk_answers(event.questions, changed) if allow else ()
        return AnswerQuestions(event.ask_id, answers, cancelled=not allow, by="sdk")
    return AnswerPermission(
        event.ask_id,
        allow=allow,
        reason=str(given.get("message") or ""),
        args=_to_object(changed) if isinstance(changed, dict) else None,
        by="sdk",
        interrupt=given.get("interrupt") is True,
    )


def _to_object(value: Any) -> Raw:
    return cast("Raw", value) if isinstance(value, dict) else {}
