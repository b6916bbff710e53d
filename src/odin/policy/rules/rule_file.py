"""Reads rules from settings, and stores the rules the user has saved in `rules.json`.

Settings may use the syntax of several agents:

    "Bash(git log:*)"                                             allowed
    {"rule": "Bash(git push:*)", "action": "ask"}
    {"tool": "shell", "argument": "git *", "action": "allow"}     also with "pattern"
    ["shell", "git *", "allow"]
    {"allow": ["Read(~/notes/**)"], "ask": [], "deny": []}        also inside "permissions"
    {"bash": {"*": "ask", "git *": "allow"}, "edit": "deny"}      tool, pattern and action

Invalid entries are reported with their location and ignored.

`rules.json` lies in the user's own folder and holds rules for all projects and for single ones:

    {"rules": [{"rule": "Bash(npm test)", "action": "allow"}], "projects": {"/home/me/shop": [...]}}

A project is identified by its resolved folder; nothing is written into the project itself. Other keys in the file are
preserved. A file that cannot be read is reported and left unchanged.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast, get_args

from msgspec.structs import replace

from odin.core.errors import ConfigError, UsageError
from odin.core.policy import RememberScope, RuleAction, RuleLayer
from odin.core.tool import get_canonical_name
from odin.policy.rules.rule import Rule, find_objection, parse_rule

_ACTIONS: tuple[str, ...] = get_args(RuleAction)
_WILDCARDS = ("*", "**")
_MAX_DEPTH = 20
_IGNORED_KEYS = ("defaultMode", "additionalDirectories", "disableBypassPermissionsMode")


class RuleReader:
    """Reads the rules of one source. If it is not `trusted`, allow rules are ignored.

    With `only_restrict`, an allow rule is an exception to a deny rule and allows nothing, so it may be broad.
    `problems` are the ignored entries: where (`rules.Bash`) and why.
    """

    def __init__(self, layer: RuleLayer, source: str, *, trusted: bool = True, only_restrict: bool = False) -> None:
        self.rules: list[Rule] = []
        self.problems: list[tuple[str, str]] = []
        self._layer: RuleLayer = layer
        self._source = source
        self._trusted = trusted
        self._only_restrict = only_restrict

    @property
    def warnings(self) -> list[str]:
        return [f"{self._source}: {at} {text}" for at, text in self.problems]

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
            for action in ("allow", "ask", "deny"):
                entries = value.get(action, [])
                if not isinstance(entries, list):
                    self._warn(f"{at}.{action}", "must be a list of rules")
                    continue
                for number, text in enumerate(cast("list[Any]", entries)):
                    if isinstance(text, str):
                        self._add(text, action, f"{at}.{action}[{number}]")
                    else:
                        self._warn(f"{at}.{action}[{number}]", "must be a string such as Bash(git log:*)")
            for key in value:
                if key not in _ACTIONS:
                    why = "has no effect here" if key in _IGNORED_KEYS else "is not one of allow, ask and deny"
                    self._warn(f"{at}.{key}", why)
        else:
            start = len(self.rules)
            for tool, entry in sorted(value.items(), key=lambda item: item[0] != "*"):
                self._read_tool(tool, entry, f"{at}.{tool}")
            self._add_exceptions(start, "*")

    def _read_entry(self, value: dict[str, Any], at: str) -> None:
        tool, argument = value.get("tool", ""), value.get("argument", value.get("pattern", ""))
        text, action, written = value.get("rule", ""), value.get("action", ""), value.get("text", "")
        if not all(isinstance(part, str) for part in (tool, argument, text, action, written)):
            self._warn(at, "must have strings in its fields")
            return
        if action not in _ACTIONS:
            self._warn(at, f'needs an "action": one of {", ".join(_ACTIONS)}')
            return
        if not text:
            text = tool if argument in ("", *_WILDCARDS) else f"{tool}({argument})"
        self._add(text, cast("RuleAction", action), at, written)

    def _read_tool(self, tool: str, value: Any, at: str) -> None:
        """Read the patterns of one tool. `*` is the default for all others, wherever it is written."""
        patterns: dict[Any, Any] = cast("dict[Any, Any]", value) if isinstance(value, dict) else {"*": value}
        start = len(self.rules)
        for pattern, action in sorted(patterns.items(), key=lambda item: item[0] not in _WILDCARDS):
            if action not in _ACTIONS:
                self._warn(f"{at}.{pattern}" if patterns is value else at, f"must be one of {', '.join(_ACTIONS)}")
                continue
            text = _make_whole_rule(tool) if pattern in _WILDCARDS else f"{tool}({pattern})"
            self._add(text, action, f"{at}.{pattern}")
        self._add_exceptions(start)

    def _add_exceptions(self, start: int, tool: str = "") -> None:
        """Exempt the allow rules since `start` from a deny rule for everything else, of one tool or of all."""
        allowed = tuple(rule for rule in self.rules[start:] if rule.action == "allow")
        for number in range(start, len(self.rules)):
            rule = self.rules[number]
            if rule.action == "deny" and rule.everything and allowed and tool in ("", rule.tool):
                self.rules[number] = replace(rule, exceptions=allowed)

    def _add(self, text: str, action: RuleAction, at: str, written: str = "") -> None:
        """Add a rule. One that was converted from the settings of another agent is shown as it is `written` there."""
        try:
            rule = parse_rule(text, action, self._layer, self._source)
            rule = replace(rule, text=written, is_converted=True) if written else rule
        except UsageError as error:
            self._warn(at, str(error).rstrip(".").removeprefix(f"{text!r} "), f"{text!r} ")
            return
        why = "it is not a tool." if text in _ACTIONS else "" if self._only_restrict else find_objection(rule)
        if why:
            self.problems.append((at, f"is ignored: {why}"))
        elif action == "allow" and not self._trusted:
            why = "this folder is not trusted, so it can only deny and ask."
            self.problems.append((at, f"({text}) is ignored: {why}"))
        else:
            self.rules.append(rule)

    def _warn(self, at: str, why: str, what: str = "") -> None:
        self.problems.append((at, f"is ignored: {what or 'it '}{why}."))


def _make_whole_rule(tool: str) -> str:
    """Return the rule for every use of a tool; for Read and Edit, of every tool that reads or changes files."""
    return f"{tool}(**)" if get_canonical_name(tool) in ("Read", "EditTool") else tool


def build_list_rules(
    *,
    allowed_tools: Iterable[str] = (),
    disallowed_tools: Iterable[str] = (),
    allowed_commands: Iterable[str] = (),
    forbidden_commands: Iterable[str] = (),
    layer: RuleLayer = "session",
    where: str = "",
) -> list[Rule]:
    """Return the rules of the four plain lists in the settings. Raises UsageError for an invalid one."""
    suffix = f" in {where}" if where else ""
    lists: tuple[tuple[Iterable[str], RuleAction, str], ...] = (
        (map(_make_command_rule, allowed_commands), "allow", "AllowedCommands"),
        (allowed_tools, "allow", "allowed_tools"),
        (map(_make_command_rule, forbidden_commands), "deny", "ForbiddenCommands"),
        (disallowed_tools, "deny", "disallowed_tools"),
    )
    return [
        parse_rule(text, action, layer, f"{name}{suffix}")
        for texts, action, name in lists
        for text in texts
        if text.strip()
    ]


def _make_command_rule(text: str) -> str:
    """Return a prefix rule for a command, or "" without words."""
    return f"Bash({text.strip()}:*)" if text.strip() else ""


MAX_RULE_FILE_BYTES = 1_000_000
_LOCK_TIMEOUT_S = 5.0
_REPAIR_HINT = "Fix the file, or move it away to start over."


class RuleFile:
    """The `rules.json` of the user, as seen from one project."""

    def __init__(self, path: Path, root: str) -> None:
        self.path = path
        self.warnings: list[str] = []
        self._root = os.path.realpath(root)

    def load_rules(self) -> list[Rule]:
        """Return the rules for all projects, then those for this one."""
        self.warnings.clear()
        try:
            value = self._read()
        except ConfigError as error:
            self.warnings.append(f"{error.describe()} Its rules are ignored until then.")
            return []
        rules: list[Rule] = []
        for reader, entries, at in (
            (RuleReader("user", str(self.path)), value.get("rules", []), "rules"),
            (
                RuleReader("project", str(self.path)),
                self._get_projects(value).get(self._root, []),
                f"projects.{self._root}",
            ),
        ):
            rules += reader.read(entries, at).rules
            self.warnings += reader.warnings
        return rules

    def add(self, text: str, action: RuleAction, scope: RememberScope) -> None:
        """Append a rule. An existing one moves to the end."""

        def change(entries: list[Any]) -> list[Any]:
            others = [entry for entry in entries if not _is_entry_for(entry, text, action)]
            return [*others, {"rule": text, "action": action}]

        self._change(scope, change)

    def remove(self, text: str, action: RuleAction, scope: RememberScope) -> None:
        def change(entries: list[Any]) -> list[Any]:
            others = [entry for entry in entries if not _is_entry_for(entry, text, action)]
            if len(others) == len(entries):
                raise UsageError(f"{self.path} has no separate entry for the rule {text}.", "Edit the file.")
            return others

        self._change(scope, change)

    def _change(self, scope: RememberScope, change: Callable[[list[Any]], list[Any]]) -> None:
        try:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            with self._hold_lock():
                value = self._read()
                if scope == "user":
                    value["rules"] = change(_list_entries(value.get("rules", [])))
                else:
                    projects = self._get_projects(value)
                    own = change(_list_entries(projects.pop(self._root, [])))
                    value["projects"] = {**projects, self._root: own} if own else projects
                self._write(value)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"{self.path} cannot be written: {why}.", "Make it writable.") from error

    def _get_projects(self, value: dict[str, Any]) -> dict[str, Any]:
        projects = value.get("projects", {})
        if not isinstance(projects, dict):
            raise ConfigError(f"{self.path}: projects must be an object.", _REPAIR_HINT)
        return cast("dict[str, Any]", projects)

    def _read(self) -> dict[str, Any]:
        try:
            if self.path.exists() and not self.path.is_file():
                raise ConfigError(f"{self.path} is not a regular file.", _REPAIR_HINT)
            with self.path.open("rb") as file:
                raw = file.read(MAX_RULE_FILE_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror or error}.", _REPAIR_HINT) from error
        if len(raw) > MAX_RULE_FILE_BYTES:
            raise ConfigError(f"{self.path} is larger than {MAX_RULE_FILE_BYTES:,} bytes.", _REPAIR_HINT)
        import json

        try:
            value = json.loads(raw.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path} is not valid JSON: {error}.", _REPAIR_HINT) from error
        if not isinstance(value, dict):
            raise ConfigError(f"{self.path} must contain one JSON object.", _REPAIR_HINT)
        content = cast("dict[str, Any]", value)
        self._get_projects(content)
        return content

    def _write(self, value: dict[str, Any]) -> None:
        """Replace the file atomically. A symbolic link is followed, so that its target is replaced."""
        import json

        target = Path(os.path.realpath(self.path))
        new = target.with_name(f".{target.name}.{os.getpid()}.{time.monotonic_ns():x}")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(value, file, indent=2, ensure_ascii=False)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(target)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    @contextmanager
    def _hold_lock(self) -> Generator[None]:
        """Lock the file against other processes. Raises ConfigError if the lock is not released in time."""
        try:
            import fcntl
        except ImportError:  # Windows has no flock; there the last writer wins.
            yield
            return
        fd = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + _LOCK_TIMEOUT_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise ConfigError(f"{self.path} is locked by another process.", "Try again.") from None
                    time.sleep(0.02)
            yield
        finally:
            os.close(fd)


def _list_entries(value: Any) -> list[Any]:
    """Return the entries as a list; an object counts as one entry."""
    return list(cast("list[Any]", value)) if isinstance(value, list) else [value]


def _is_entry_for(entry: Any, text: str, action: RuleAction) -> bool:
    """True if an entry is exactly this rule."""
    if isinstance(entry, dict) and not ({"rule", "tool"} & set(cast("dict[str, Any]", entry))):
        return False
    rules = RuleReader("user", "").read(entry).rules
    return len(rules) == 1 and (rules[0].text, rules[0].action) == (text, action)
