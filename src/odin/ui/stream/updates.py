"""Permission updates in the words of agent SDKs: what they are offered with a question, and what they send back."""

import re
from collections.abc import Sequence
from typing import Any, cast

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.op import AddRule, RemoveRule
from odin.core.registry import canonical_name_of
from odin.core.rule import RememberScope, RuleAction, RuleLine

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
