"""The tests of a project: which files they are, the command that runs them, and what its output says.

A command that cannot run says nothing about a change, and neither does a test that failed before it.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from odin.core.path_names import quote_path

TEST_LINE = (
    r"^\s*(?:import|from)\s+(?:unittest|pytest)\b|^(?:async )?def test_|unittest\.TestCase"
    r"|^test\s*:|\"test\"\s*:|node:test|^\s*(?:describe|it|test)\("
)
"""Lines of tests, of a Makefile and of package.json that tell how the tests run."""

PYTEST = "python3 -B -m pytest -q -p no:cacheprovider"
"""pytest without files of its own: the working directory is on the path, no bytecode, no cache."""
_NAMED_TEST = re.compile(
    r"test_\w+\.py$|\w+_test\.(?:py|go)$|.+\.(?:test|spec)\.[cm]?[jt]sx?$|tests?\.(?:py|js|mjs|sh)$"
)
_TEST_FOLDER = re.compile(r"(?:^|/)(?:tests?|__tests__|specs?)/")
_CODE = re.compile(r"\.(?:py|[cm]?[jt]sx?|go|rb|rs|sh)$")
_SCRIPT = re.compile(r"\.[cm]?js$")
_MAX_SCRIPTS = 5

_UNAVAILABLE = re.compile(
    r"\(exit code 12[67]\)\s*$|No module named '?(?:pytest|unittest)\b|can't open file|No rule to make target"
    r"|^make: \S+: No such file or directory|^make: \*\*\* .* Error 127|no tests ran\b|\(exit code 5\)\s*$"
    r"|no required module provides package|missing go\.sum entry|cannot find module providing|requireStack: \[\]"
    r"|attempted relative import with no known parent",
    re.MULTILINE | re.IGNORECASE,
)
"""A program, a file or a module that is not there, or tests that are not there."""
_MISSING_MODULE = re.compile(r"No module named '?([\w.]+)|Cannot find module '([^./'][^']*)'")
_FAILING = re.compile(
    r"^\s*(?:FAIL|ERROR): (?P<unittest>\S+(?: \(\S+\))?)|^(?:FAILED|ERROR) (?P<pytest>\S+)"
    r"|^File \"[^\"\n]+\", line \d+, in (?P<doctest>[\w.]+)$|^\s*not ok \d+ - (?P<tap>.+)"
    r"|^\s*✖ (?P<node>.+?)(?: \([\d.]+ms\))?$|^\s*--- FAIL: (?P<go>\S+)",
    re.MULTILINE,
)
_VARIABLE = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s)\b|0x[0-9a-f]+|line \d+|:\d+\b")
"""What differs between two outputs although the same failed."""


def is_test(path: str) -> bool:
    """True for a file of the tests, helpers among them."""
    is_inside = _TEST_FOLDER.search(path) is not None and _CODE.search(path) is not None
    return is_inside or _is_named_test(path)


def _is_named_test(path: str) -> bool:
    return _NAMED_TEST.match(path.rpartition("/")[2]) is not None


def find_test_command(paths: Collection[str], texts: Mapping[str, str], missing: Collection[str] = ()) -> str:
    """Return the command that runs the project's tests, or "" if it has none that can run.

    `texts` are the contents of files, or at least their TEST_LINEs; `missing` are commands that cannot run here.
    """
    found = (command for command in _list_test_commands(paths, texts) if command not in missing)
    return next(found, "")


def _list_test_commands(paths: Collection[str], texts: Mapping[str, str]) -> list[str]:
    if re.search(r"^test\s*:", texts.get("Makefile", ""), re.MULTILINE):
        return ["make test"]
    if re.search(r'"test"\s*:\s*"(?!echo)', texts.get("package.json", "")):
        return ["npm test --silent"]
    tests = [path for path in paths if is_test(path)]
    if "go.mod" in paths and any(path.endswith("_test.go") for path in tests):
        return ["go test ./..."]
    python = [path for path in tests if path.endswith(".py") and _is_named_test(path)]
    scripts = [path for path in tests if _SCRIPT.search(path)]
    return _list_python_commands(python, texts) if python else _list_node_commands(scripts, texts)


def _list_node_commands(tests: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    if any("node:test" in texts.get(path, "") for path in tests):
        return ["node --test"]
    needs_runner = re.compile(r"^\s*(?:describe|it|test)\(", re.MULTILINE)
    own = [path for path in tests if not needs_runner.search(texts.get(path, ""))]
    return [" && ".join(f"node {quote_path(path)}" for path in own[:_MAX_SCRIPTS])] if own else []


def _list_python_commands(tests: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    """Return commands without bytecode files: with them, Python would miss the second change within a second."""
    cases = [path for path in tests if "unittest" in texts.get(path, "")]
    functions = re.compile(r"^(?:async )?def test_|import pytest", re.MULTILINE)
    commands: list[str] = []
    if any(functions.search(texts.get(path, "")) for path in tests):
        commands.append(PYTEST)
    if cases:
        commands.append(_join_discoveries(cases, texts))
    if not commands:
        here = "PYTHONPATH=. " if any("/" in path for path in tests) else ""
        commands.append(" && ".join(f"{here}python3 -B {quote_path(path)}" for path in tests[:_MAX_SCRIPTS]))
    return commands


def _join_discoveries(tests: Sequence[str], texts: Mapping[str, str]) -> str:
    """Return the unittest command for each folder. `-t .` would need an __init__.py, but relative imports need it."""
    commands: list[str] = []
    for folder in dict.fromkeys(path.rpartition("/")[0] for path in tests):
        inside = [path for path in tests if path.rpartition("/")[0] == folder]
        command = "python3 -B -m unittest discover" + (f" -s {quote_path(folder)}" if folder else "")
        if folder and any(re.search(r"^\s*from\s+\.", texts.get(path, ""), re.MULTILINE) for path in inside):
            command += " -t ."
        if not any(path.rpartition("/")[2].startswith("test") for path in inside):
            command += " -p '*_test.py'"
        commands.append(command)
    return " && ".join(commands)


def find_doctest_command(texts: Mapping[str, str]) -> str:
    """Return the command that checks the examples in the docstrings of Python files, or "" if they have none."""
    example = re.compile(r"^\s+>>> ", re.MULTILINE)
    paths = [path for path, text in texts.items() if path.endswith(".py") and example.search(text)]
    return f"PYTHONPATH=. python3 -B -m doctest {' '.join(map(quote_path, paths))}" if paths else ""


def is_unavailable(output: str, prompt: str) -> bool:
    """True if a command failed because something is not installed or not there, not because of the code.

    A module that is not installed is the task's own choice if the prompt names it.
    """
    if _UNAVAILABLE.search(output):
        return True
    names = _list_missing_modules(output)
    return any(re.search(rf"\b{re.escape(name)}\b", prompt, re.IGNORECASE) for name in names)


def is_module_still_missing(before: str, after: str) -> bool:
    """True if two outputs fail because of modules that are not installed, and none was missing only afterwards."""
    missing = _list_missing_modules(after)
    return bool(missing) and missing <= _list_missing_modules(before)


def _list_missing_modules(output: str) -> set[str]:
    return {(match[1] or match[2]).split(".")[0] for match in _MISSING_MODULE.finditer(output)}


def has_new_failure(before: str | None, after: str) -> bool:
    """True if something fails that did not fail before the change. `before` is None if it did not fail."""
    if before is None:
        return True
    old, new = list_failing(before), list_failing(after)
    if new:
        return not set(new) <= set(old)
    return _VARIABLE.sub("#", before) != _VARIABLE.sub("#", after)


def list_failing(output: str) -> list[str]:
    """Return the names of the tests that an output reports as failed."""
    found = (next(filter(None, match.groups())).strip() for match in _FAILING.finditer(output))
    return list(dict.fromkeys(found))
