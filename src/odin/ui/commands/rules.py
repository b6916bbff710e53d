"""Rules in words: the list of them, and the one that somebody typed."""

from collections.abc import Sequence

from odin.core.errors import UsageError
from odin.core.op import AddRule
from odin.core.rule import RememberScope, RuleAction, RuleLine
from odin.ui.terminal import escape_hidden

RULES_USAGE = "Write /rules add [--deny|--ask] [--project|--user] TEXT, or /rules remove N."

_ACTION_OPTIONS: dict[str, RuleAction] = {"--allow": "allow", "--ask": "ask", "--deny": "deny"}
_SCOPE_OPTIONS: dict[str, RememberScope] = {"--session": "session", "--project": "project", "--user": "user"}


def format_rules(rules: Sequence[RuleLine]) -> str:
    """One line for each rule. Only what has a number can be removed here."""
    if not rules:
        return "There are no rules beside the defaults. /rules add TEXT adds one.\n"
    lines: list[str] = []
    for rule in rules:
        number = str(rule.number) if rule.number else "–"
        source = f"   ({escape_hidden(rule.source)})" if rule.source else ""
        lines.append(f"{number:>3}  {rule.layer:<8} {rule.action:<6} {escape_hidden(rule.text)}{source}")
    if any(rule.number for rule in rules):
        lines.append("/rules remove N takes a numbered one back.")
    return "\n".join(lines) + "\n"


def parse_rule(text: str) -> AddRule:
    """The rule that was typed, with the options before it."""
    action: RuleAction = "allow"
    scope: RememberScope = "session"
    rest = text.strip()
    while rest.startswith("--"):
        word, _, rest = rest.partition(" ")
        rest = rest.lstrip()
        if word in _ACTION_OPTIONS:
            action = _ACTION_OPTIONS[word]
        elif word in _SCOPE_OPTIONS:
            scope = _SCOPE_OPTIONS[word]
        else:
            raise UsageError(f"/rules add does not know {word!r}.", RULES_USAGE)
    if not rest:
        raise UsageError("/rules add needs the text of a rule.", "Such as Bash(git push:*) or Edit(src/**).")
    return AddRule(rest, action, scope)


def find_rule(rules: Sequence[RuleLine], text: str) -> RuleLine:
    """The rule with the number that was typed. Raises UsageError."""
    number = int(text) if text.isdecimal() and len(text) < 7 else 0
    found = next((rule for rule in rules if number and rule.number == number), None)
    if found is None:
        raise UsageError(f"There is no rule number {text!r} to remove.", "/rules lists them.")
    return found
