"""Permission rules: `Tool` or `Tool(pattern)` with an action, and the rule set that all agents of a session share.

An allow rule must cover the whole call. A deny or ask rule applies as soon as it matches any part of the call.

A prefix rule such as `Bash(git log:*)` does not cover options that make the command write a file or start another
program, such as `git log --output=FILE` (see `programs.find_escape_option`).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, get_args

from msgspec import Struct
from msgspec.structs import replace

from odin.core.errors import UsageError
from odin.core.path_names import contains, is_secret_path
from odin.core.policy import RememberScope, RuleAction, RuleLayer, RuleLine, SessionRule
from odin.core.tool import Kind, ResolvedPath, get_canonical_name
from odin.policy import paths
from odin.policy.rules.pattern import (
    CommandPattern,
    compile_wildcard,
    has_wildcard,
    is_exact,
    matches_path_loosely,
    matches_path_strictly,
    matches_tool_name,
    matches_url_loosely,
    matches_url_strictly,
    parse_command_pattern,
    resolve_pattern,
)

if TYPE_CHECKING:
    from odin.core.server_tool import ServerTool
    from odin.policy.commands.syntax import ExtractedCommand
    from odin.policy.policy_call import PolicyCall

_RULE_SYNTAX = r"(?s)\s*([\w*?.:-]+)\s*(?:\((.*)\))?\s*"
_WHOLE_KINDS: dict[str, Kind] = {"Read": "read", "EditTool": "edit"}
"""`Read(pattern)` applies to all tools that read, `Edit(pattern)` to all that change files."""

_MATCH_ALL_PATTERNS = ("", "*", "**", ":*")


_VARIANTS = {"Spawn": "ExecuteCommand", "apply_patch": "EditTool"}
"""Tools to which the rules for another tool also apply: Spawn runs commands, apply_patch edits files."""


class Rule(Struct, frozen=True):
    """One rule. `source` is the file or setting it comes from.

    `exceptions` are allow rules that a deny rule for everything does not override. `home` is the folder of a skill
    whose own program an allow rule names: the command may run there and name other files in it. `role` is the role in
    which the user allowed it for the session, "": the rule holds in every role. `root` is the folder besides the
    project whose settings it comes from: its paths are relative to it, and it allows nothing outside of it.
    `is_converted`: in the settings of another agent that it comes from, an ask rule decides before it even if it names
    exactly the command.
    """

    text: str
    tool: str
    pattern: str
    command: CommandPattern
    action: RuleAction = "allow"
    layer: RuleLayer = "session"
    source: str = ""
    exceptions: tuple["Rule", ...] = ()
    home: str = ""
    role: str = ""
    root: str = ""
    is_converted: bool = False

    @property
    def label(self) -> str:
        """The rule as named in a decision."""
        where = f", {self.source}" if self.source not in ("", _SESSION) else ""
        return f"{self.action} {self.text} ({self.layer}{where})"

    @property
    def bare(self) -> bool:
        """True if the rule applies to every call of its tool. `Edit(**)` applies to other tools, too, so it is not.

        Calls of MCP tools have nothing that a pattern could match, so a pattern does not limit what is denied.
        """
        is_closed = self.action != "allow" and self.tool.startswith("mcp_")
        return not self.pattern or is_closed or (self.everything and self.tool not in _WHOLE_KINDS)

    @property
    def everything(self) -> bool:
        return self.pattern in _MATCH_ALL_PATTERNS

    def matches_tool(self, name: str, server_tool: "ServerTool | None" = None) -> bool:
        """True if the rule names this tool, or the tool that this one is a variant of."""
        if server_tool is not None and self.tool.startswith("mcp_"):
            return server_tool.is_named_by(self.tool, loosely=self.action != "allow")
        name = get_canonical_name(name)
        return matches_tool_name(self.tool, name) or (name in _VARIANTS and self.tool == _VARIANTS[name])

    def is_about_tool(self, call: "PolicyCall") -> bool:
        return self.matches_tool(call.name, call.target.server_tool)

    # --- allow rules ---

    def is_exactly(self, call: "PolicyCall") -> bool:
        """True if the pattern is exactly this command. Patterns with wildcards never are."""
        if self.bare or self.is_converted or self.command.is_prefix or has_wildcard(self.pattern):
            return False
        return self.pattern == call.command.strip() and self.is_about_tool(call)

    def covers_path(self, item: ResolvedPath, call: "PolicyCall") -> bool:
        """True if one path of a call is allowed. Protected and secret files must be named without wildcards.

        A deletion is allowed only by a `Delete` rule with the exact path.
        """
        if item.fault:
            return False
        if call.is_removed(item):
            return self.tool == "Delete" and resolve_pattern(self.pattern, call.scope, self.root) == item.path
        if not self._covers_tool(call):
            return False
        if self.bare:
            is_inside = contains(self.root, item.path) if self.root else bool(call.scope.find_root(item.path))
            return is_inside and not explain_sensitivity(item, call)
        if not matches_path_strictly(self.pattern, item.path, call.scope, self.root):
            return False
        return is_exact(self.pattern) or not explain_sensitivity(item, call)

    def covers_url(self, call: "PolicyCall") -> bool:
        return self.is_about_tool(call) and (self.bare or matches_url_strictly(self.pattern, call.target.url))

    def covers_all(self, call: "PolicyCall") -> bool:
        """True if the rule allows a call without a command, path or URL."""
        covers = self.bare or any(map(compile_wildcard(self.pattern, flat=True), call.target.names))
        return covers and self.is_about_tool(call) and get_canonical_name(call.name) != "Delete"

    # --- deny and ask rules ---

    def matches_call(self, call: "PolicyCall") -> bool:
        """True if any part of the call matches. `Read` and `Edit` patterns also apply to the words of a command.

        An ask rule of a root is about calls that name something in it.
        """
        is_asking = self.root and self.action == "ask"
        if is_asking and not any(contains(self.root, form) for form in call.list_path_forms()):
            return False
        runs = call.analysis is not None
        names_tool = self.is_about_tool(call) or (runs and self.tool == "ExecuteCommand")
        if names_tool and self.bare:
            return True
        if names_tool and call.analysis is not None:
            if self.pattern == call.command.strip() or any(
                self._matches_command(part) for part in call.analysis.commands
            ):
                return True
            return not call.analysis.is_complete and self.command.is_mentioned_in(call.command)
        if call.target.url:
            return names_tool and matches_url_loosely(self.pattern, call.target.url)
        if call.target.name:
            matches = compile_wildcard(self.pattern, loose=True, flat=True)
            return names_tool and any(map(matches, call.target.names))
        if self.bare:
            return False
        covers = self._covers_tool(call)
        if self.everything:
            return covers
        if self.tool == "Delete" and call.target.removes:
            forms = [form for item in call.list_paths() if call.is_removed(item) for form in call.list_forms(item)]
            return any(matches_path_loosely(self.pattern, form, call.scope, self.root) for form in forms)
        if not covers and not (call.analysis is not None and self.tool in _WHOLE_KINDS):
            return False
        forms = call.list_path_forms()
        return any(matches_path_loosely(self.pattern, form, call.scope, self.root) for form in forms)

    def matches_part(self, part: "ExtractedCommand", call: "PolicyCall") -> bool:
        names_tool = self.is_about_tool(call) or self.tool == "ExecuteCommand"
        return names_tool and (self.bare or self._matches_command(part))

    def _matches_command(self, part: "ExtractedCommand") -> bool:
        """True if a command matches, or mentions a matching command in code it is given."""
        if self.command.matches(part):
            return True
        from odin.policy.commands.programs import INTERPRETERS, find_escape_option

        if not any(self.command.is_mentioned_in(text) for text in part.texts[1:]):
            return False
        return bool(INTERPRETERS.fullmatch(part.name) or find_escape_option(part.texts, part.texts[1:]))

    def _covers_tool(self, call: "PolicyCall") -> bool:
        is_whole_kind = not self.bare and _WHOLE_KINDS.get(self.tool) == call.kind
        return is_whole_kind or self.is_about_tool(call)


def explain_sensitivity(item: ResolvedPath, call: "PolicyCall") -> str:
    """Return why a path needs approval even if a wildcard rule allows it, as a clause, or ""."""
    forms = call.list_forms(item)
    if call.kind == "read":
        return "may contain secrets" if any(map(is_secret_path, forms)) else ""
    name = call.scope.find_protected_form(forms)
    if name:
        return f"is protected: programs or agents run or obey {name}"
    if not call.is_removed(item) and paths.has_hard_links(item.path, "/"):
        return "has several hard links, so writing to it also changes files with other names"
    return ""


def parse_rule(text: str, action: RuleAction = "allow", layer: RuleLayer = "session", source: str = "") -> Rule:
    """Parse a rule. Raises UsageError if the text is not a rule."""
    match = re.fullmatch(_RULE_SYNTAX, text)
    if match is None:
        raise UsageError(f"{text!r} is not a rule.", "Write Tool or Tool(pattern), such as Bash(git log:*).")
    pattern = (match[2] or "").strip()
    return Rule(
        text.strip(), get_canonical_name(match[1]), pattern, parse_command_pattern(pattern), action, layer, source
    )


def find_objection(rule: Rule) -> str:
    """Return why an allow rule is not accepted, or "".

    It has invisible characters, allows deletions by wildcard, or lets a program run whatever its arguments say.
    """
    if rule.action != "allow":
        return ""
    if not rule.text.isprintable():
        return f"{rule.text!r} contains invisible characters, so it may allow more than it shows."
    if rule.tool == "Delete" and (rule.bare or has_wildcard(rule.pattern)):
        return f"{rule.text} would allow any deletion. Delete takes exact paths only, such as Delete(build/old.log)."
    if rule.command.is_open and any(map(rule.matches_tool, ("ExecuteCommand", "Spawn"))):
        from odin.policy.rules.breadth import find_open_program

        if program := find_open_program(rule.command.words):
            what = "any program" if has_wildcard(program) else f"whatever {program} can run"
            hint = (
                "Allow the exact command, or name what runs, as in Bash(python3 build.py:*) or Bash(timeout 60 make:*)."
            )
            return f"{rule.text} would allow {what}. {hint}"
    return ""


LAYERS: tuple[RuleLayer, ...] = get_args(RuleLayer)

_SESSION = "this session"


class RuleStore(Protocol):
    """Stores rules that outlive the session."""

    def load_rules(self) -> Sequence[Rule]: ...

    def add(self, text: str, action: RuleAction, scope: RememberScope) -> None: ...

    def remove(self, text: str, action: RuleAction, scope: RememberScope) -> None: ...


class RuleSet:
    """All rules of a session; a rule added by one agent applies to all of them at once.

    Layers, weakest first: default, user, project, session. A deny rule of any layer applies. Between ask and
    allow, the strongest layer with a matching rule decides, and within a layer the rule added last. `fixed` rules come
    from settings; remembered ones can be removed by number. What the user allows for the session holds only in the role
    that `get_role` returns then; ask and deny rules hold in every role.
    """

    def __init__(
        self,
        fixed: Iterable[Rule] = (),
        *,
        store: RuleStore | None = None,
        warnings: Iterable[str] = (),
        get_role: Callable[[], str] = lambda: "",
    ):
        self.warnings = tuple(warnings)
        self._get_role = get_role
        self._fixed = tuple(fixed)
        self._store = store
        self._stored = tuple(store.load_rules()) if store else ()
        self._session: tuple[Rule, ...] = ()
        self._of_roots: tuple[Rule, ...] = ()
        self.deny_rules: tuple[Rule, ...] = ()
        self._ask_allow_rules: tuple[Rule, ...] = ()
        self._sort()

    @property
    def ask_allow_rules(self) -> tuple[Rule, ...]:
        role = self._get_role()
        return tuple(rule for rule in self._ask_allow_rules if rule.role in ("", role))

    def _sort(self) -> None:
        ordered = self._sort_by_layer()
        self.deny_rules = tuple(rule for rule in ordered if rule.action == "deny")
        self._ask_allow_rules = tuple(rule for rule in reversed(ordered) if rule.action != "deny")

    def _sort_by_layer(self) -> list[Rule]:
        """Return the rules weakest layer first; within a layer, settings before remembered rules."""
        every = (*self._fixed, *self._of_roots, *self._stored, *self._session)
        return sorted(every, key=lambda rule: LAYERS.index(rule.layer))

    def restore(self, rules: Iterable[SessionRule]) -> None:
        """Restore the session rules of an earlier run."""
        for rule in rules:
            with suppress(UsageError):  # an older version accepted it
                self._session = (*self._session, replace(self.check(rule.text, rule.action), role=rule.role))
        self._sort()

    def set_root_rules(self, rules: Iterable[Rule]) -> None:
        """Set the rules in the settings of the folders besides the project."""
        self._of_roots = tuple(rules)
        self._sort()

    def with_rule(self, rule: Rule) -> "RuleSet":
        """Return a copy that also contains this rule."""
        copy = RuleSet((*self._fixed, *self._of_roots, *self._stored), get_role=self._get_role)
        copy._session = (*self._session, rule)
        copy._sort()
        return copy

    def check(self, text: str, action: RuleAction) -> Rule:
        """Return the rule that `add` would add. Raises UsageError if it is not accepted."""
        rule = parse_rule(text, action, "session", _SESSION)
        why = find_objection(rule)
        if why:
            raise UsageError(why)
        return rule

    def add(self, text: str, action: RuleAction = "allow", scope: RememberScope = "session") -> Rule:
        rule = self.check(text, action)
        if scope == "session":
            rule = replace(rule, role=self._get_role() if action == "allow" else "")
            same = (rule.text, action, rule.role)
            self._session = (*(old for old in self._session if (old.text, old.action, old.role) != same), rule)
        else:
            if self._store is None:
                raise UsageError("Rules can only be saved for this session here.")
            self._store.add(rule.text, action, scope)
            self._stored = tuple(self._store.load_rules())
        self._sort()
        return rule

    def remove(self, number: int) -> Rule:
        """Remove a remembered rule by number and return it. Raises UsageError if there is none."""
        rule = dict(self._number_rules()).get(number)
        if rule is None:
            raise UsageError(f"No removable rule with number {number}.", "Run `odin rules` to list them.")
        if rule.layer == "session":
            self._session = tuple(other for other in self._session if other is not rule)
        elif self._store is not None:
            self._store.remove(rule.text, rule.action, get_scope(rule))
            self._stored = tuple(self._store.load_rules())
        self._sort()
        return rule

    def list_rules(self) -> tuple[RuleLine, ...]:
        """Return all rules for display, strongest last."""
        numbers = {id(rule): number for number, rule in self._number_rules()}
        return tuple(
            RuleLine(numbers.get(id(rule), 0), rule.layer, rule.action, rule.text, rule.source, rule.role)
            for rule in self._sort_by_layer()
        )

    def _number_rules(self) -> list[tuple[int, Rule]]:
        remembered = {id(rule) for rule in (*self._stored, *self._session)}
        return list(enumerate((rule for rule in self._sort_by_layer() if id(rule) in remembered), 1))


def get_scope(rule: Rule) -> RememberScope:
    return rule.layer if rule.layer in ("project", "user") else "session"
