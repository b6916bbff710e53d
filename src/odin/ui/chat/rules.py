"""`/rules` in a conversation: the rules that hold, one more, one less."""

from collections.abc import Sequence
from typing import TextIO

from odin.core.client import Client
from odin.core.errors import OdinError, UsageError
from odin.core.op import AddRule, RemoveRule
from odin.core.rule import Action, RememberScope, RuleLine
from odin.ui.telling import SCOPES
from odin.ui.terminal import put, say, visible

HELP = "/rules lists the rules; /rules add TEXT and /rules remove N change them."
_HOW = "Write /rules add [--deny|--ask] [--project|--user] TEXT, or /rules remove N."

_ACTIONS: dict[str, Action] = {"--allow": "allow", "--ask": "ask", "--deny": "deny"}
_SCOPES: dict[str, RememberScope] = {"--session": "session", "--project": "project", "--user": "user"}


async def rules_command(client: Client, rest: str, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    verb, _, more = rest.strip().partition(" ")
    try:
        if not verb:
            put(err, listing(await client.rules()))
        elif verb == "add":
            put(err, await _add(client, more))
        elif verb == "remove":
            put(err, await _remove(client, more.strip()))
        else:
            raise UsageError(f"/rules does not know {verb!r}.", _HOW)
    except OdinError as error:
        say(err, error.sentence())


def listing(rules: Sequence[RuleLine]) -> str:
    """One line for each rule. Only what has a number can be removed here."""
    if not rules:
        return "There are no rules beside the defaults. /rules add TEXT adds one.\n"
    lines: list[str] = []
    for rule in rules:
        number = str(rule.number) if rule.number else "–"
        source = f"   ({visible(rule.source)})" if rule.source else ""
        lines.append(f"{number:>3}  {rule.layer:<8} {rule.action:<6} {visible(rule.text)}{source}")
    if any(rule.number for rule in rules):
        lines.append("/rules remove N takes a numbered one back.")
    return "\n".join(lines) + "\n"


def wanted(text: str) -> AddRule:
    """The rule that was typed, with the options before it."""
    action: Action = "allow"
    scope: RememberScope = "session"
    rest = text.strip()
    while rest.startswith("--"):
        word, _, rest = rest.partition(" ")
        rest = rest.lstrip()
        if word in _ACTIONS:
            action = _ACTIONS[word]
        elif word in _SCOPES:
            scope = _SCOPES[word]
        else:
            raise UsageError(f"/rules add does not know {word!r}.", _HOW)
    if not rest:
        raise UsageError("/rules add needs the text of a rule.", "Such as Bash(git push:*) or Edit(src/**).")
    return AddRule(rest, action, scope)


async def _add(client: Client, text: str) -> str:
    op = wanted(text)
    await client.submit(op)
    return f"Remembered {SCOPES[op.scope]}: {op.action} {visible(op.text)}\n"


async def _remove(client: Client, text: str) -> str:
    number = int(text) if text.isdecimal() and len(text) < 7 else 0
    found = next((rule for rule in await client.rules() if number and rule.number == number), None)
    if found is None:
        raise UsageError(f"There is no rule number {text!r} to remove.", "/rules lists them.")
    await client.submit(RemoveRule(number))
    return f"Removed: {found.action} {visible(found.text)}\n"
