"""Rules in words: the list of them, and the one that somebody typed.

How much a person is asked: what /permissions and /yolo do and say.
"""

from collections.abc import Sequence

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.op import AddRule, SetPermissionMode
from odin.core.policy import RememberScope, RuleAction, RuleLine
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


BYPASS = "bypassPermissions"
PERMISSION_MODES = "default, acceptEdits, plan, dontAsk, bypassPermissions"


class PermissionModeSwitch:
    """The permission mode of the conversation, and the one to go back to when a bypass ends."""

    def __init__(self, client: Client, mode: str) -> None:
        self._client = client
        self.mode = mode
        self._previous_mode = "default" if mode == BYPASS else mode

    @property
    def warning(self) -> str:
        """What stands in the prompt while nothing is asked."""
        return " (yolo: nothing is asked)" if self.mode == BYPASS else ""

    def record_mode(self, mode: str) -> None:
        """Somebody chose this mode."""
        if mode != BYPASS:
            self._previous_mode = mode
        self.mode = mode

    async def run_command(self, name: str, rest: str) -> str:
        """Do what was typed and say what holds now."""
        if name == "/yolo":
            return await self._switch_yolo(rest.strip().casefold())
        if not rest.strip():
            return f"Permission mode: {self.mode} (of {PERMISSION_MODES})"
        await self._submit_mode(rest.strip())
        return f"Permission mode: {self.mode}"

    async def _switch_yolo(self, word: str) -> str:
        if word == "on":
            await self._submit_mode(BYPASS)
            return "Nothing is asked any more. What rules deny, and what never runs, still does not. /yolo off ends it."
        if word == "off":
            await self._submit_mode(self._previous_mode)
            return f"Questions are asked again. Permission mode: {self.mode}"
        if word:
            raise UsageError(f"/yolo does not know {word!r}.", "Write /yolo on or /yolo off.")
        return f"/yolo is {'on' if self.mode == BYPASS else 'off'}. Permission mode: {self.mode}"

    async def _submit_mode(self, mode: str) -> None:
        await self._client.submit(SetPermissionMode(mode))
        self.record_mode(mode)
