"""Interactions with a stream-json client, and the permission updates it sends back.

All are `can_use_tool` requests, because SDK clients have a callback for those.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.interaction import Interaction
from odin.core.op import AddRule, Answer, RemoveRule
from odin.core.policy import RememberScope, RuleAction, RuleLine
from odin.core.tool import get_canonical_name, get_display_name
from odin.ui.callbacks import get_sdk_call, make_sdk_answer

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


class PermissionRequests:
    """What waits for the client's answer. `update` is called with every permission update that comes with one."""

    def __init__(self, client: Client, send: Callable[[Raw], None], update: Callable[[Raw], Awaitable[None]]) -> None:
        self.is_open = False
        self._client = client
        self._send = send
        self._update = update
        self._pending: dict[str, Interaction] = {}

    def ask(self, interaction: Interaction) -> None:
        if not self.is_open or interaction.id in self._pending:
            return
        self._pending[interaction.id] = interaction
        request = {"subtype": "can_use_tool", "tool_use_id": interaction.call_id, **_describe_request(interaction)}
        request["interaction"] = msgspec.to_builtins(interaction)
        if interaction.agent:
            request["agent_id"] = interaction.agent
        self._send({"type": "control_request", "request_id": interaction.id, "request": request})

    def cancel(self, ask_id: str) -> None:
        """Cancel a request that was answered elsewhere or is outdated."""
        if self._pending.pop(ask_id, None) is not None:
            self._send({"type": "control_cancel_request", "request_id": ask_id})

    def close(self) -> None:
        """The client's input ended: nobody answers any more, and what is pending is denied."""
        self.is_open = False
        self._pending.clear()

    async def take_answer(self, response: Raw) -> None:
        interaction = self._pending.pop(str(response.get("request_id")), None)
        if interaction is None:
            return
        if response.get("subtype") != "success":
            await self._refuse(interaction, str(response.get("error") or "The permission callback failed."))
            return
        given = _to_object(response.get("response"))
        updates = given.get("updatedPermissions")
        for update in cast("list[Any]", updates) if isinstance(updates, list) else ():
            await self._update(_to_object(update))
        answer = make_sdk_answer(
            interaction,
            "sdk",
            allow=given.get("behavior") == "allow",
            message=str(given.get("message") or ""),
            changed=given.get("updatedInput"),
            interrupt=given.get("interrupt") is True,
        )
        await self._client.submit(answer)

    async def _refuse(self, interaction: Interaction, why: str) -> None:
        await self._client.submit(Answer(interaction.id, interaction.default, why, by="sdk"))


def _describe_request(interaction: Interaction) -> Raw:
    """Return the SDK fields of a request, and extra fields for what Odin would show a user."""
    name, args = get_sdk_call(interaction)
    request: Raw = {
        "tool_name": name,
        "input": args,
        "permission_suggestions": [],
        "blocked_path": None,
        "decision_reason": interaction.reason,
    }
    if interaction.kind == "plan":
        request["permission_suggestions"] = [
            {"type": "setMode", "mode": mode, "destination": "session"} for mode in interaction.plan.permission_modes
        ]
        return {**request, "title": interaction.title, "display_name": name, "description": interaction.plan.path}
    if interaction.kind != "permission":
        return {**request, "description": "; ".join(question.text for question in interaction.questions)}
    asked, display_name = interaction.permission, get_display_name(name)
    blocked = asked.subject if asked.subject.startswith("/") and "command" not in asked.args else None
    more = {
        "rules": list(asked.rules),
        "preview": asked.preview,
        "sandbox": asked.sandbox,
        "unsandboxed": asked.unsandboxed,
        "granted_paths": list(asked.granted_paths),
        "granted_network": asked.granted_network,
        "asked_paths": list(asked.asked_paths),
        "allowed_paths": list(asked.allowed_paths),
        "danger": asked.danger,
        "effect": asked.effect,
        "permission_modes": list(asked.permission_modes),
        "effects": None if asked.effects is None else msgspec.to_builtins(asked.effects),
        "git_changes": list(asked.git_changes),
    }
    return {
        **request,
        "permission_suggestions": [] if asked.unsandboxed else suggest_updates(asked.rules),
        "blocked_path": next(iter(asked.asked_paths), blocked),
        "title": interaction.title if asked.unsandboxed or asked.effects else asked.title or display_name,
        "display_name": display_name,
        "description": asked.subject,
        **{name: value for name, value in more.items() if value},
    }


def _to_object(value: Any) -> Raw:
    return cast("Raw", value) if isinstance(value, dict) else {}
