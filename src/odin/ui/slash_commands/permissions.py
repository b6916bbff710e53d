"""Text and parsing of /rules, /permissions and /yolo."""

from collections.abc import Sequence

from odin.core.client import Client
from odin.core.errors import UsageError
from odin.core.op import AddRule, SetPermissionMode
from odin.core.policy import RememberScope, RuleAction, RuleLine
from odin.core.slash_commands import make_argument_error
from odin.ui.terminal import escape_hidden

_ADD_USAGE = "Usage: /rules add [--deny|--ask] [--project|--user] RULE, for example /rules add Bash(git push:*)"

_ACTION_OPTIONS: dict[str, RuleAction] = {"--allow": "allow", "--ask": "ask", "--deny": "deny"}
_SCOPE_OPTIONS: dict[str, RememberScope] = {"--session": "session", "--project": "project", "--user": "user"}


def format_rules(rules: Sequence[RuleLine]) -> str:
    """Return one line for each rule; rules that cannot be removed here have no number."""
    if not rules:
        return "No rules besides the defaults. /rules add RULE adds one.\n"
    lines: list[str] = []
    for rule in rules:
        number = str(rule.number) if rule.number else "–"
        source = f"   ({escape_hidden(rule.source)})" if rule.source else ""
        lines.append(f"{number:>3}  {rule.layer:<8} {rule.action:<6} {escape_hidden(rule.text)}{source}")
    if any(rule.number for rule in rules):
        lines.append("/rules remove N removes a numbered rule.")
    return "\n".join(lines) + "\n"


def parse_rule(text: str) -> AddRule:
    """Parse the arguments of `/rules add`. Raise UsageError for an unknown option or a missing rule."""
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
            raise UsageError(f"Unknown option {word!r}.", _ADD_USAGE)
    if not rest:
        raise UsageError("/rules add needs a rule.", _ADD_USAGE)
    return AddRule(rest, action, scope)


def find_rule(rules: Sequence[RuleLine], text: str) -> RuleLine:
    """Return the rule with this number. Raise UsageError if there is none."""
    number = int(text) if text.isdecimal() and len(text) < 7 else 0
    found = next((rule for rule in rules if number and rule.number == number), None)
    if found is None:
        raise UsageError(f"No rule number {text!r}.", "/rules lists the rules.")
    return found


BYPASS = "bypassPermissions"
PERMISSION_MODES = "default, acceptEdits, auto, plan, dontAsk, bypassPermissions"


class PermissionModeSwitch:
    """The permission mode of a session, and the mode that `/yolo off` restores."""

    def __init__(self, mode: str = "default") -> None:
        self.enter_session(mode)

    def enter_session(self, mode: str) -> None:
        self.mode = mode
        self._previous_mode = "default" if mode == BYPASS else mode

    @property
    def warning(self) -> str:
        """The part of the input prompt that warns while permission prompts are off."""
        return " (yolo: no permission prompts)" if self.mode == BYPASS else ""

    def record_mode(self, mode: str) -> None:
        if mode != BYPASS:
            self._previous_mode = mode
        self.mode = mode

    async def set_mode(self, client: Client, mode: str) -> str:
        """Set the permission mode, if one is given, and return the message to show."""
        if not mode:
            return f"Permission mode: {self.mode} (one of {PERMISSION_MODES})"
        await self._submit_mode(client, mode)
        return f"Permission mode: {self.mode}"

    async def set_yolo(self, client: Client, word: str) -> str:
        if word == "on":
            await self._submit_mode(client, BYPASS)
            return "Permission prompts are off. Deny rules and built-in protections still apply. /yolo off undoes this."
        if word == "off":
            await self._submit_mode(client, self._previous_mode)
            return f"Permission prompts are on. Permission mode: {self.mode}"
        if word:
            raise make_argument_error("yolo", word)
        return f"/yolo is {'on' if self.mode == BYPASS else 'off'}. Permission mode: {self.mode}"

    async def _submit_mode(self, client: Client, mode: str) -> None:
        await client.submit(SetPermissionMode(mode))
        self.record_mode(mode)
