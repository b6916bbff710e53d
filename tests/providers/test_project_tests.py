"""Test commands of a project, and what their output says about a change."""

import shlex
import subprocess
from pathlib import Path

from odin.providers.whole_files.project_tests import (
    PYTEST,
    find_doctest_command,
    find_test_command,
    has_new_failure,
    is_module_still_missing,
    is_test,
    is_unavailable,
    list_failing,
)
from tests.table import each


@each(
    "files, expected",
    [
        ({"Makefile": "test:\n\ttrue\n", "test_a.py": ""}, "make test"),
        ({"package.json": '{"scripts": {"test": "node t.js"}}'}, "npm test --silent"),
        ({"go.mod": "", "a_test.go": ""}, "go test ./..."),
        ({"a.test.js": "require('node:test')"}, "node --test"),
        ({"test_a.py": "import unittest"}, "python3 -B -m unittest discover"),
        ({"tests/test_a.py": "import unittest"}, "python3 -B -m unittest discover -s tests"),
        ({"tests/test_a.py": "import unittest\nfrom . import b"}, "python3 -B -m unittest discover -s tests -t ."),
        ({"a_test.py": "import unittest"}, "python3 -B -m unittest discover -p '*_test.py'"),
        (
            {"a/test_a.py": "import unittest", "b/test_b.py": "import unittest"},
            "python3 -B -m unittest discover -s a && python3 -B -m unittest discover -s b",
        ),
        ({"test_a.py": "import unittest", "test_b.py": "def test_x():"}, PYTEST),
        ({"tests/test_a.py": "assert True\n"}, "PYTHONPATH=. python3 -B tests/test_a.py"),
        ({"test/a.js": "assert(1)", "test/b.js": "assert(1)"}, "node test/a.js && node test/b.js"),
        ({"a.spec.js": "describe('a', () => {})"}, ""),
        ({"test_a.py": "def test_x():\n    assert True\n"}, PYTEST),
        ({"a.py": ""}, ""),
    ],
)
def test_test_command_is_chosen_by_the_files(files: dict[str, str], expected: str) -> None:
    assert find_test_command(files, files) == expected


@each(
    "name", ["a$(>PWN)", "a`>PWN`", "a;>PWN;", "a&&>PWN&&", "a|>PWN|", "a\n>PWN\n", "a >PWN ", "-a >PWN", "a'$(>PWN)'"]
)
def test_a_file_name_stays_one_word_of_a_command(name: str, tmp_path: Path) -> None:
    """An empty redirect needs no program: the shell itself would make the file."""
    commands = [
        find_test_command({f"test/{name}.test.js": ""}, {}),
        find_test_command({f"{name}/tests/test.py": ""}, {}),
        find_test_command({f"{name}/test_a.py": ""}, {f"{name}/test_a.py": "import unittest\n"}),
        find_doctest_command({f"{name}.py": "def f():\n    >>> f()\n"}),
    ]
    for command in commands:
        assert name in " ".join(shlex.split(command))
        assert not any(word.startswith("-a") for word in shlex.split(command))
        subprocess.run(
            ["/bin/sh", "-c", command], cwd=tmp_path, env={"PATH": "/nowhere"}, capture_output=True, check=False
        )
    assert not list(tmp_path.iterdir())


def test_unavailable_command_is_not_chosen() -> None:
    files = {"test_a.py": "import unittest\n", "test_b.py": "def test_x():\n"}
    missing = {PYTEST}
    assert find_test_command(files, files, missing) == "python3 -B -m unittest discover"


@each(
    "output, prompt, expected",
    [
        ("bash: jest: command not found (exit code 127)", "", True),
        ("/usr/bin/python3: No module named pytest (exit code 1)", "", True),
        ("python3: can't open file '/a/script': [Errno 2] (exit code 2)", "", True),
        ("make: *** No rule to make target 'sure'. Stop. (exit code 2)", "", True),
        ("make: pytest: No such file or directory\nmake: *** [Makefile:2: test] Error 127 (exit code 2)", "", True),
        ("no tests ran in 0.01s (exit code 5)", "", True),
        ("a.go:3: no required module provides package x (exit code 1)", "", True),
        ("Error: Cannot find module '/a/server.js'\n  requireStack: [] (exit code 1)", "", True),
        ("ModuleNotFoundError: No module named 'requests' (exit code 1)", "Fetch it with requests.", True),
        ("ModuleNotFoundError: No module named 'calk' (exit code 1)", "Add a docstring.", False),
        ("Error: Cannot find module './utlis' (exit code 1)", "", False),
        ("AssertionError (exit code 1)", "", False),
    ],
)
def test_missing_program_or_module_is_unavailable_and_not_a_failure(output: str, prompt: str, expected: bool) -> None:
    assert is_unavailable(output, prompt) is expected


@each(
    "before, after, expected",
    [
        (None, "FAIL: test_a (t.A)", True),
        ("FAIL: test_a (t.A)\nRan 2 tests in 0.1s", "FAIL: test_a (t.A)\nRan 3 tests in 0.2s", False),
        ("FAIL: test_a (t.A)", "FAIL: test_a (t.A)\nERROR: test_b (t.A)", True),
        ("FAILED test_a.py::test_x - assert", "FAILED test_a.py::test_x - other", False),
        ("not ok 1 - adds", "not ok 1 - adds\nnot ok 2 - subtracts", True),
        ("--- FAIL: TestA (0.00s)", "--- FAIL: TestA (0.10s)", False),
        ('File "a.py", line 3, in a.half\nGot: 1', 'File "a.py", line 4, in a.half\nGot: 2', False),
        ("Error at line 3 after 10ms", "Error at line 4 after 12ms", False),
        ("No module named 'flask'", "SyntaxError", True),
    ],
)
def test_only_a_new_failure_counts_against_a_change(before: str | None, after: str, expected: bool) -> None:
    assert has_new_failure(before, after) is expected


def test_a_module_that_was_missing_before_is_still_missing() -> None:
    assert is_module_still_missing("No module named 'flask'", "x\nNo module named 'flask.app'")
    assert not is_module_still_missing("No module named 'flask'", "No module named 'flsk'")
    assert not is_module_still_missing("No module named 'flask'", "AssertionError")


def test_names_of_failing_tests_are_listed() -> None:
    assert list_failing("✖ adds (1.5ms)\nnot ok 3 - x\nFAIL: test_a (t.A)\nok") == ["adds", "x", "test_a (t.A)"]


@each("path", ["test_a.py", "a_test.go", "a.spec.ts", "tests/helper.py", "__tests__/x.js", "spec/y.rb"])
def test_test_files_are_recognized(path: str) -> None:
    assert is_test(path)
    assert not is_test("latest/a.py")
    assert not is_test("tests/data.json")
