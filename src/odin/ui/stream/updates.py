"""Permission updates in the words of agent SDKs: what they are offered with a question, and what they send back."""

import re
from collections.abc import Sequence
from typing import Any, cast

from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.op import AddRule, RemoveRule
from odin.core.registry import canonical
from odin.core.rule import Action, RememberScope, RuleLine

Raw = dict[str, Any]

_SCOPES: dict[str, RememberScope] = {
    "session": "session",
    "cliArg": "session",
    "projectSettings": "project",
    "localSettings": "project",
    "userSettings": "user",
}
_ACTIONS: dict[str, Action] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_FORM = re.compile(r"\s*([^()\s]+)\s*(?:\(([\s\S]*)\))?\s*")


def suggestions(rules: Sequence[str]) -> list[Raw]:
    """The narrowest rule, for this session: clients like to give back everything they were offered, unread."""
    for rule in rules[:1]:
        value = rule_value(rule)
        return [{"type": "addRules", "rules": [value], "behavior": "allow", "destination": "session"}]
    return []


def rule_value(text: str) -> Raw:
    """`Tool(pattern)` in two fields."""
    found = _FORM.fullmatch(text)
    if found is None:
        return {"toolName": text}
    name, pattern = found[1], found[2]
    return {"toolName": name} if pattern is None else {"toolName": name, "ruleContent": pattern}


def rule_text(value: Raw) -> str:
    name, pattern = str(value.get("toolName") or ""), value.get("ruleContent")
    return name if pattern is None else f"{name}({pattern})"


async def apply(client: Client, wanted: Raw) -> list[str]:
    """Change the rules as a client wants it; a sentence for everything that could not be done."""
    kind = wanted.get("type")
    if kind not in ("addRules", "removeRules", "replaceRules"):
        return [f"The permission update {kind!r} is not supported and was left out."]
    scope = _SCOPES.get(str(wanted.get("destination") or "session"))
    action = _ACTIONS.get(str(wanted.get("behavior") or "allow"))
    if scope is None or action is None:
        return [f"A permission update for {wanted.get('destination')!r} and {wanted.get('behavior')!r} was left out."]
    texts = [rule_text(value) for value in _values(wanted)]
    try:
        if kind == "replaceRules":
            await _remove(client, None, action, scope)
        if kind == "removeRules":
            await _remove(client, texts, action, scope)
            return []
        return [said for text in texts if (said := await _add(client, AddRule(text, action, scope)))]
    except OdinError as error:
        return [error.sentence()]


async def _add(client: Client, op: AddRule) -> str:
    try:
        await client.submit(op)
    except OdinError as error:
        return error.sentence()
    return ""


async def _remove(client: Client, texts: list[str] | None, action: Action, scope: RememberScope) -> None:
    """Every rule of that scope, or those with these texts. Numbers change with each removal, so they are read again."""
    keys = None if texts is None else {_same(text) for text in texts}
    left = len(await client.rules())
    while left:
        left -= 1
        found = next((rule for rule in await client.rules() if _meant(rule, keys, action, scope)), None)
        if found is None:
            return
        await client.submit(RemoveRule(found.number))


def _meant(rule: RuleLine, keys: set[tuple[str, Any]] | None, action: Action, scope: RememberScope) -> bool:
    if not rule.number or rule.action != action or rule.layer != scope:
        return False
    return keys is None or _same(rule.text) in keys


def _same(text: str) -> tuple[str, Any]:
    """What makes two texts the same rule: a tool may be called by any of its names."""
    value = rule_value(text)
    return canonical(value["toolName"]), value.get("ruleContent")


def _values(wanted: Raw) -> list[Raw]:
    rules = wanted.get("rules")
    return (
        [cast("Raw", item) for item in cast("list[Any]", rules) if isinstance(item, dict)]
        if isinstance(rules, list)
        else []
    )
