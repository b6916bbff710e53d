"""Permission requests, questions and plans to a stream-json client, and the permission updates it sends back.

All are `can_use_tool` requests, because SDK clients have a callback for those.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from odin.core.call_events import AskEvent, PermissionAsked, PlanAsked, QuestionsAsked
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.op import AddRule, AnswerPermission, AnswerPlan, AnswerQuestions, Interrupt, Op, RemoveRule
from odin.core.policy import RememberScope, RuleAction, RuleLine
from odin.core.tool import get_canonical_name, get_display_name
from odin.ui.callbacks import SDK_TOOL, parse_sdk_answers, to_sdk_input
from odin.ui.plan_text import SDK_PLAN_TOOL, make_plan_answer, to_plan_input

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
    """Suggest only the narrowest rule, for this session: clients tend to accept every suggestion unread."""
    for rule in rules[:1]:
        value = to_rule_value(rule)
        return [{"type": "addRules", "rules": [value], "behavior": "allow", "destination": "session"}]
    return []


def to_rule_value(text: str) -> Raw:
    """Return the two fields of a rule `Tool(pattern)`."""
    found = _RULE_FORM.fullmatch(text)
    if found is None:
        return {"toolName": text}
    name, pattern = found[1], found[2]
    return {"toolName": name} if pattern is None else {"toolName": name, "ruleContent": pattern}


def to_rule_text(value: Raw) -> str:
    name, pattern = str(value.get("toolName") or ""), value.get("ruleContent")
    return name if pattern is None else f"{name}({pattern})"


async def apply_update(client: Client, update: Raw) -> list[str]:
    """Apply a permission update of a client. Return a message for everything that failed."""
    kind = update.get("type")
    if kind not in ("addRules", "removeRules", "replaceRules"):
        return [f"Permission update {kind!r} is not supported."]
    scope = _SCOPES.get(str(update.get("destination") or "session"))
    action = _ACTIONS.get(str(update.get("behavior") or "allow"))
    if scope is None or action is None:
        return [f"Permission update for {update.get('destination')!r} and {update.get('behavior')!r} is not supported."]
    texts = [to_rule_text(value) for value in _list_rule_values(update)]
    try:
        if kind == "replaceRules":
            await _remove_rules(client, None, action, scope)
        if kind == "removeRules":
            await _remove_rules(client, texts, action, scope)
            return []
        return [error for text in texts if (error := await _add_rule(client, AddRule(text, action, scope)))]
    except OdinError as error:
        return [error.describe()]


async def _add_rule(client: Client, op: AddRule) -> str:
    try:
        await client.submit(op)
    except OdinError as error:
        return error.describe()
    return ""


async def _remove_rules(client: Client, texts: list[str] | None, action: RuleAction, scope: RememberScope) -> None:
    """Remove all rules of a scope, or those with these texts. Removing changes the numbers, so list them each time."""
    keys = None if texts is None else {_make_rule_key(text) for text in texts}
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
    return keys is None or _make_rule_key(rule.text) in keys


def _make_rule_key(text: str) -> tuple[str, Any]:
    """Return a key that is equal for texts of the same rule: a tool may be named by any alias."""
    value = to_rule_value(text)
    return get_canonical_name(value["toolName"]), value.get("ruleContent")


def _list_rule_values(update: Raw) -> list[Raw]:
    rules = update.get("rules")
    return (
        [cast("Raw", item) for item in cast("list[Any]", rules) if isinstance(item, dict)]
        if isinstance(rules, list)
        else []
    )


_INPUT_CLOSED = "No answer: the input was closed."


class PermissionRequests:
    """Pending permission requests. `update` is called with every permission update that comes with an answer."""

    def __init__(self, client: Client, send: Callable[[Raw], None], update: Callable[[Raw], Awaitable[None]]) -> None:
        self.is_open = False
        self._client = client
        self._send = send
        self._update = update
        self._pending: dict[str, AskEvent] = {}

    async def ask(self, event: AskEvent, agent: str) -> None:
        if not self.is_open:
            await self._refuse(event, _INPUT_CLOSED)
            return
        self._pending[event.ask_id] = event
        request = {"subtype": "can_use_tool", "tool_use_id": event.call_id, **_describe_request(event)}
        if agent:
            request["agent_id"] = agent
        self._send({"type": "control_request", "request_id": event.ask_id, "request": request})

    def cancel(self, ask_id: str) -> None:
        """Cancel a request that was answered elsewhere or is outdated."""
        if self._pending.pop(ask_id, None) is not None:
            self._send({"type": "control_cancel_request", "request_id": ask_id})

    def cancel_all(self) -> None:
        for ask_id in tuple(self._pending):
            self.cancel(ask_id)

    async def close(self) -> None:
        """Deny all pending requests: the client's input ended."""
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

    async def _refuse(self, event: AskEvent, why: str) -> None:
        if isinstance(event, QuestionsAsked):
            await self._client.submit(AnswerQuestions(event.ask_id, cancelled=True, by="sdk"))
        elif isinstance(event, PlanAsked):
            await self._client.submit(AnswerPlan(event.ask_id, "keep_planning", why, by="sdk"))
        else:
            await self._client.submit(AnswerPermission(event.ask_id, allow=False, reason=why, by="sdk"))


def _describe_request(event: AskEvent) -> Raw:
    """Return the SDK fields of a request, and extra fields for what Odin would show a user."""
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
    if isinstance(event, PlanAsked):
        return {
            "tool_name": SDK_PLAN_TOOL,
            "input": to_plan_input(event),
            "permission_suggestions": [],
            "blocked_path": None,
            "decision_reason": "The model presents a plan.",
            "title": event.title,
            "display_name": SDK_PLAN_TOOL,
            "description": event.path,
        }
    more = {
        "rules": list(event.rules),
        "preview": event.preview,
        "sandbox": event.sandbox,
        "unsandboxed": event.unsandboxed,
        "granted_paths": list(event.granted_paths),
        "granted_network": event.granted_network,
        "asked_paths": list(event.asked_paths),
        "allowed_paths": list(event.allowed_paths),
        "danger": event.danger,
        "effect": event.effect,
        "permission_modes": list(event.permission_modes),
    }
    name = get_display_name(event.name)
    return {
        "tool_name": event.name,
        "input": event.args,
        "permission_suggestions": [] if event.unsandboxed else suggest_updates(event.rules),
        "blocked_path": _get_path(event),
        "decision_reason": event.reason,
        "title": "Run this again outside the sandbox" if event.unsandboxed else event.title or name,
        "display_name": name,
        "description": event.subject,
        **{name: value for name, value in more.items() if value},
    }


def _get_path(event: PermissionAsked) -> str | None:
    """Return the path that the request is about, or None."""
    if event.asked_paths:
        return event.asked_paths[0]
    return event.subject if event.subject.startswith("/") and "command" not in event.args else None


def _make_answer(event: AskEvent, given: Raw) -> Op:
    allow, changed = given.get("behavior") == "allow", given.get("updatedInput")
    if isinstance(event, QuestionsAsked):
        if not allow and given.get("interrupt") is True:
            return Interrupt("keep")
        answers = parse_sdk_answers(event.questions, changed) if allow else ()
        return AnswerQuestions(event.ask_id, answers, cancelled=not allow, by="sdk")
    if isinstance(event, PlanAsked):
        message, interrupt = str(given.get("message") or ""), given.get("interrupt") is True
        return make_plan_answer(event, allow=allow, message=message, changed=changed, interrupt=interrupt, by="sdk")
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
