"""Rules as people write them in files, in the forms of several agents:

    "Bash(git log:*)"                                             allowed
    {"rule": "Bash(git push:*)", "action": "ask"}
    {"tool": "shell", "argument": "git *", "action": "allow"}     also with "pattern"
    ["shell", "git *", "allow"]
    {"allow": ["Read(~/notes/**)"], "ask": [], "deny": []}        also inside "permissions"
    {"bash": {"*": "ask", "git *": "allow"}, "edit": "deny"}      tool, pattern and action

What cannot be understood is reported with its place and ignored; the rest holds.
"""

from collections.abc import Iterable
from typing import Any, cast, get_args

from odin.core.errors import UsageError
from odin.core.registry import canonical_name_of
from odin.core.rule import RuleAction, RuleLayer
from odin.policy.rule.rule import Rule, find_objection, rule_of

_ACTIONS: tuple[str, ...] = get_args(RuleAction)
_WILDCARDS = ("*", "**")
_MAX_DEPTH = 20
_IGNORED_KEYS = ("defaultMode", "additionalDirectories", "disableBypassPermissionsMode")


class RuleReader:
    """Reads the rules of one place. `trusted` is false where only stricter rules count."""

    def __init__(self, layer: RuleLayer, source: str, *, trusted: bool = True) -> None:
        self.rules: list[Rule] = []
        self.warnings: list[str] = []
        self._layer: RuleLayer = layer
        self._source = source
        self._trusted = trusted

    def read(self, value: Any, at: str = "rules", depth: int = 0) -> "RuleReader":
        match value:
            case str():
                self._add(value, "allow", at)
            case [str(tool), str(argument), "allow" | "ask" | "deny" as action]:
                self._read_entry({"tool": tool, "argument": argument, "action": action}, at)
            case list() | dict() if depth > _MAX_DEPTH:
                self._warn(at, "is nested too deeply")
            case list():
                for number, item in enumerate(cast("list[Any]", value)):
                    self.read(item, f"{at}[{number}]", depth + 1)
            case dict():
                self._read_object(cast("dict[str, Any]", value), at, depth)
            case _:
                self._warn(at, "must be a rule, a list or an object")
        return self

    def _read_object(self, value: dict[str, Any], at: str, depth: int) -> None:
        if "tool" in value or "rule" in value:
            self._read_entry(value, at)
        elif "permissions" in value:
            self.read(value["permissions"], f"{at}.permissions", depth + 1)
        elif set(value) & set(_ACTIONS):
            self._read_actions(value, at)
        else:
            begun = len(self.rules)
            for tool, wanted in sorted(value.items(), key=lambda item: item[0] != "*"):
                self._read_tool(tool, wanted, f"{at}.{tool}")
            self._add_exceptions(begun, "*")

    def _read_entry(self, value: dict[str, Any], at: str) -> None:
        """One rule in fields of its own."""
        tool, argument = value.get("tool", ""), value.get("argument", value.get("pattern", ""))
        text, action = value.get("rule", ""), value.get("action", "")
        if not all(isinstance(part, str) for part in (tool, argument, text, action)):
            self._warn(at, "must have texts in its fields")
            return
        if action not in _ACTIONS:
            self._warn(at, f'needs an "action": one of {", ".join(_ACTIONS)}')
            return
        if not text:
            text = tool if argument in ("", *_WILDCARDS) else f"{tool}({argument})"
        self._add(text, cast("RuleAction", action), at)

    def _read_actions(self, value: dict[str, Any], at: str) -> None:
        for action in ("allow", "ask", "deny"):
            entries = value.get(action, [])
            if not isinstance(entries, list):
                self._warn(f"{at}.{action}", "must be a list of rules")
                continue
            for number, text in enumerate(cast("list[Any]", entries)):
                if isinstance(text, str):
                    self._add(text, action, f"{at}.{action}[{number}]")
                else:
                    self._warn(f"{at}.{action}[{number}]", "must be a text such as Bash(git log:*)")
        for key in value:
            if key not in _ACTIONS:
                why = "has no effect here" if key in _IGNORED_KEYS else "is not one of allow, ask and deny"
                self._warn(f"{at}.{key}", why)

    def _read_tool(self, tool: str, wanted: Any, at: str) -> None:
        """Patterns of one tool. `*` stands for the rest, wherever it is written."""
        found: dict[Any, Any] = cast("dict[Any, Any]", wanted) if isinstance(wanted, dict) else {"*": wanted}
        begun = len(self.rules)
        for pattern, action in sorted(found.items(), key=lambda item: item[0] not in _WILDCARDS):
            if action not in _ACTIONS:
                self._warn(f"{at}.{pattern}" if found is wanted else at, f"must be one of {', '.join(_ACTIONS)}")
                continue
            text = _whole_rule_of(tool) if pattern in _WILDCARDS else f"{tool}({pattern})"
            self._add(text, action, f"{at}.{pattern}")
        self._add_exceptions(begun)

    def _add_exceptions(self, start: int, tool: str = "") -> None:
        """A denial of the rest, of one tool or of all, is not one of what is allowed beside it."""
        allowed = tuple(rule for rule in self.rules[start:] if rule.action == "allow")
        for number in range(start, len(self.rules)):
            rule = self.rules[number]
            if rule.action == "deny" and rule.everything and allowed and tool in ("", rule.tool):
                from msgspec.structs import replace

                self.rules[number] = replace(rule, exceptions=allowed)

    def _add(self, text: str, action: RuleAction, at: str) -> None:
        try:
            rule = rule_of(text, action, self._layer, self._source)
        except UsageError as error:
            self._warn(at, str(error).rstrip(".").removeprefix(f"{text!r} "), f"{text!r} ")
            return
        why = "it is no tool." if text in _ACTIONS else find_objection(rule)
        if why:
            self.warnings.append(f"{self._source}: {at} is ignored: {why}")
        elif action == "allow" and not self._trusted:
            self.warnings.append(
                f"{self._source}: {at} ({text}) is ignored: this folder is not trusted, so it may deny and ask only."
            )
        else:
            self.rules.append(rule)

    def _warn(self, at: str, why: str, what: str = "") -> None:
        self.warnings.append(f"{self._source}: {at} is ignored: {what or 'it '}{why}.")


def _whole_rule_of(tool: str) -> str:
    """All that is done with a tool; where one stands for every way to read or to change files, all of those."""
    return f"{tool}(**)" if canonical_name_of(tool) in ("Read", "EditTool") else tool


def build_list_rules(
    *,
    allowed_tools: Iterable[str] = (),
    disallowed_tools: Iterable[str] = (),
    allowed_commands: Iterable[str] = (),
    forbidden_commands: Iterable[str] = (),
    layer: RuleLayer = "session",
    where: str = "",
) -> list[Rule]:
    """The rules in the four plain lists of the settings. Raises UsageError when one is not a rule."""
    suffix = f" in {where}" if where else ""
    lists: tuple[tuple[Iterable[str], RuleAction, str], ...] = (
        (map(_command_rule_of, allowed_commands), "allow", "AllowedCommands"),
        (allowed_tools, "allow", "allowed_tools"),
        (map(_command_rule_of, forbidden_commands), "deny", "ForbiddenCommands"),
        (disallowed_tools, "deny", "disallowed_tools"),
    )
    return [
        rule_of(text, action, layer, f"{name}{suffix}")
        for texts, action, name in lists
        for text in texts
        if text.strip()
    ]


def _command_rule_of(text: str) -> str:
    """The first words of a command as a rule; no words at all name no command."""
    return f"Bash({text.strip()}:*)" if text.strip() else ""
