"""Finds configuration keys that do not exist: a test that sets one does not test what its name says."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from odin.config.files import ConfigValidator, parse_json_object, read_config_file
from odin.config.settings import ConfigKeys
from odin.core.errors import ConfigError
from odin.policy import hook_declaration


def record_unknown_keys(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return a set that collects what this process says about unknown keys of a configuration or its hooks."""
    said: set[str] = set()
    report, parse = ConfigValidator.report, hook_declaration.parse_hooks

    def report_and_record(self: ConfigValidator, path: str, text: str) -> None:
        report(self, path, text)
        said.update(_unknown([text]))

    def parse_and_record(value: Any, source: str) -> hook_declaration.HookDeclarations:
        parsed = parse(value, source)
        said.update(_unknown(warning.removeprefix(f"{source}: ") for warning in parsed.warnings))
        return parsed

    monkeypatch.setattr(ConfigValidator, "report", report_and_record)
    monkeypatch.setattr(hook_declaration, "parse_hooks", parse_and_record)
    return said


def find_unknown_keys(*files: Path) -> set[str]:
    """Return what is unknown in these files, if they exist: other processes read them, too."""
    found: set[str] = set()
    for path in files:
        try:
            keys, _ = parse_json_object(read_config_file(path) or b"{}", path)
        except ConfigError:
            continue
        validator = ConfigValidator(path, {}, variables="none")
        validator.validate_keys(keys, ConfigKeys)
        hooks = hook_declaration.parse_hooks(keys.get("hooks", {}), "")
        found.update(_unknown(problem.text for problem in validator.problems))
        found.update(_unknown(warning.removeprefix(": ") for warning in hooks.warnings))
    return found


def _unknown(texts: Iterable[str]) -> Iterable[str]:
    return (text for text in texts if text.startswith(("unknown key ", "unknown hook event ")))
