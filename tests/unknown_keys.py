"""Finds unknown configuration keys in tests: a test that sets one by mistake tests nothing."""

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from odin.config.files import ConfigValidator, parse_json_object, read_config_file
from odin.config.settings import ConfigKeys
from odin.core.errors import ConfigError
from odin.hooks import declaration


def record_unknown_keys(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return a set to which every warning about an unknown configuration key or hook event is added."""
    warnings: set[str] = set()
    report, parse = ConfigValidator.report, declaration.parse_hooks

    def report_and_record(self: ConfigValidator, path: str, text: str) -> None:
        report(self, path, text)
        warnings.update(_filter_unknown([text]))

    def parse_and_record(value: Any, source: str, prefix: str = "") -> declaration.HookDeclarations:
        parsed = parse(value, source, prefix)
        warnings.update(_filter_unknown(warning.removeprefix(f"{source}: ") for warning in parsed.warnings))
        return parsed

    monkeypatch.setattr(ConfigValidator, "report", report_and_record)
    monkeypatch.setattr(declaration, "parse_hooks", parse_and_record)
    return warnings


def find_unknown_keys(*files: Path) -> set[str]:
    """Return warnings about unknown keys in these files, if they exist. Other processes may have read them."""
    found: set[str] = set()
    for path in files:
        with suppress(ConfigError):
            if content := read_config_file(path):
                found |= _find_unknown_in(content)
    return found


@cache
def _find_unknown_in(content: bytes) -> frozenset[str]:
    """Many tests have the same settings."""
    path = Path("odinconfig.json")
    keys, _ = parse_json_object(content, path)
    validator = ConfigValidator(path, {}, variables="none")
    validator.validate_keys(keys, ConfigKeys)
    hooks = declaration.parse_hooks(keys.get("hooks", {}), "")
    texts = [problem.text for problem in validator.problems]
    texts += [warning.removeprefix(": ") for warning in hooks.warnings]
    return frozenset(_filter_unknown(texts))


def _filter_unknown(texts: Iterable[str]) -> Iterable[str]:
    return (text for text in texts if text.startswith(("unknown key ", "unknown hook event ")))
