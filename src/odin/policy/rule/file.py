"""`rules.json`: the rules a person has given, for every project and for single ones, in the person's own folder.

    {"rules": [{"rule": "Bash(npm test)", "action": "allow"}], "projects": {"/home/me/shop": [...]}}

A project is known by its real folder; nothing is ever written into the project itself. Whatever else is in the file
stays in it. A file that cannot be read is left as it is: its rules do not hold, and that is said.
"""

import json
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from odin.core.errors import ConfigError, UsageError
from odin.core.rule import RememberScope, RuleAction
from odin.policy.rule.rule import Rule
from odin.policy.rule.shapes import RuleReader

MAX_RULE_FILE_BYTES = 1_000_000
_LOCK_TIMEOUT_S = 5.0
_REPAIR_HINT = "Correct it, or move it away to begin anew."


class RuleFile:
    def __init__(self, path: Path, root: str) -> None:
        self.path = path
        self.warnings: list[str] = []
        self._root = os.path.realpath(root)

    def load_rules(self) -> list[Rule]:
        """What holds here: the rules for every project, then those for this one."""
        self.warnings.clear()
        try:
            value = self._read()
        except ConfigError as error:
            self.warnings.append(f"{error.describe()} Its rules do not hold until then.")
            return []
        found: list[Rule] = []
        for shapes, entries, at in (
            (RuleReader("user", str(self.path)), value.get("rules", []), "rules"),
            (
                RuleReader("project", str(self.path)),
                self._projects_of(value).get(self._root, []),
                f"projects.{self._root}",
            ),
        ):
            found += shapes.read(entries, at).rules
            self.warnings += shapes.warnings
        return found

    def add(self, text: str, action: RuleAction, scope: RememberScope) -> None:
        """Write a rule down, after the others. One that is there already moves to the end."""

        def change(entries: list[Any]) -> list[Any]:
            others = [entry for entry in entries if not _is_entry_for(entry, text, action)]
            return [*others, {"rule": text, "action": action}]

        self._change(scope, change)

    def remove(self, text: str, action: RuleAction, scope: RememberScope) -> None:
        def change(entries: list[Any]) -> list[Any]:
            kept = [entry for entry in entries if not _is_entry_for(entry, text, action)]
            if len(kept) == len(entries):
                raise UsageError(f"{self.path} does not hold the rule {text} as an entry of its own.", "Edit the file.")
            return kept

        self._change(scope, change)

    def _change(self, scope: RememberScope, change: Callable[[list[Any]], list[Any]]) -> None:
        try:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            with self._hold_lock():
                value = self._read()
                if scope == "user":
                    value["rules"] = change(_entries_of(value.get("rules", [])))
                else:
                    projects = self._projects_of(value)
                    mine = change(_entries_of(projects.pop(self._root, [])))
                    value["projects"] = {**projects, self._root: mine} if mine else projects
                self._write(value)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"{self.path} cannot be written: {why}.", "Make it writable.") from error

    def _projects_of(self, value: dict[str, Any]) -> dict[str, Any]:
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
            raise ConfigError(f"{self.path} is longer than {MAX_RULE_FILE_BYTES:,} bytes.", _REPAIR_HINT)
        try:
            value = json.loads(raw.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path} is not valid JSON: {error}.", _REPAIR_HINT) from error
        if not isinstance(value, dict):
            raise ConfigError(f"{self.path} must hold one JSON object.", _REPAIR_HINT)
        found = cast("dict[str, Any]", value)
        self._projects_of(found)
        return found

    def _write(self, value: dict[str, Any]) -> None:
        """Whole or not at all. A link is followed, so that a file kept elsewhere stays there."""
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
        """Alone among processes, or a clear sentence when another one does not let go."""
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
                        raise ConfigError(f"{self.path} is held by another process.", "Try again.") from None
                    time.sleep(0.02)
            yield
        finally:
            os.close(fd)


def _entries_of(value: Any) -> list[Any]:
    """The entries as a list; a group that somebody wrote as an object stays one entry."""
    return list(cast("list[Any]", value)) if isinstance(value, list) else [value]


def _is_entry_for(entry: Any, text: str, action: RuleAction) -> bool:
    """Whether an entry is this rule and nothing else."""
    if isinstance(entry, dict) and not ({"rule", "tool"} & set(cast("dict[str, Any]", entry))):
        return False
    found = RuleReader("user", "").read(entry).rules
    return len(found) == 1 and (found[0].text, found[0].action) == (text, action)
