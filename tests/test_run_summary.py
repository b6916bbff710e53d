"""A test run names the tests that it skipped and the long waits, and fails with any test."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.steady import STEADY, STEADY_SEEDS
from tests.waiting import LIMIT_S

_TESTS = """
import pytest

@pytest.mark.parametrize("use", ["bubblewrap", "landlock"])
def test_it(use):
    if use == "landlock":
        pytest.skip("no such sandbox here: the kernel has none")
"""

_OTHER = """
import pytest

def test_it():
    pytest.skip("there is no curl here")
"""

_WAITING = """
from tests import waiting

waiting.LONG_S = 0.01

def test_it():
    looks = iter([False] * 10 + [True])
    waiting.wait_until(lambda: next(looks), "the tenth look")
"""

_UNSTEADY = """
from pathlib import Path

SECOND = Path(__file__).with_name("second")

def test_it():
    if not SECOND.exists():
        SECOND.touch()
        raise AssertionError("the first time")
"""

ROOT = Path(__file__).parent.parent


def run_tests(folder: Path, plugin: str, workers: str, *options: str) -> str:
    """Run the tests of a folder with a plugin of the tests, and return what pytest prints."""
    words = ["--disable-plugin-autoload", "-p", "xdist", "-p", "asyncio", "-p", "no:cacheprovider", "-p", plugin]
    argv = [sys.executable, "-m", "pytest", *words, "-n", workers, *options, "--rootdir", str(folder), str(folder)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S).stdout


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_summary_lists_the_skipped_tests_with_reasons_and_the_long_waits(tmp_path: Path, workers: str) -> None:
    texts = {"test_sandbox_copy": _TESTS, "test_network": _TESTS, "test_other": _OTHER, "test_clock": _WAITING}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    output = run_tests(tmp_path, "tests.conftest", workers)
    waits, _, skips = output.partition("waits of more than 5 s")[2].partition("skipped tests")
    assert re.search(r"\n +[0-9.]+ s  test_clock.py::test_it: the tenth look\n", waits), output
    names = "".join(f"  {name}.py::test_it[landlock]\n" for name in ("test_network", "test_sandbox_copy"))
    assert f"no such sandbox here: the kernel has none:\n{names}" in skips, output
    assert "there is no curl here:\n  test_other.py::test_it\n" in skips


@pytest.mark.slow
def test_a_failed_test_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "prepare").write_text("")
    (tmp_path / "bin" / "in-memory").write_text('exec "$@"\n')
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (tmp_path / "test_it.py").write_text(_UNSTEADY)
    argv = ["make", "test", f"VENV={sys.prefix}", "ARGS=-p tests.conftest test_it.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode != 0
    assert "FAILED test_it.py::test_it" in done.stdout, done.stdout + done.stderr


_FAILING_LAST = """
import pytest

@pytest.fixture
def used():
    return []

@pytest.mark.parametrize("word", ["a", "b"])
def test_sync(word, used):
    used.append(word)
    assert used == [word], "the fixture of another round"

async def test_async(request, used):
    assert "#3" not in request.node.nodeid, "the third round"
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_each_round_of_a_repeated_test_is_a_test(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_it.py").write_text(_FAILING_LAST)
    output = run_tests(tmp_path, "tests.steady", workers, "--rounds=3", "-o", "asyncio_mode=auto")
    assert "1 failed, 8 passed" in output, output
    assert re.search(r"FAILED \S*test_it.py::test_async#3", output)


def test_the_tests_that_make_steady_repeats_exist() -> None:
    for name in (*STEADY, *(one for names in STEADY_SEEDS.values() for one in names)):
        path, _, function = name.partition("::")
        assert re.search(rf"^(async )?def {function.partition('[')[0]}\(", (ROOT / path).read_text(), re.MULTILINE), (
            name
        )


def find_skips_on_failure(tree: ast.AST) -> list[int]:
    """Return the lines that skip a test because of an exception, which may be a defect."""
    handlers = (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler))
    calls = (node for handler in handlers for node in ast.walk(handler) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if ast.unparse(call.func) in ("pytest.skip", "pytest.xfail", "skip", "xfail")]


def test_no_test_is_skipped_because_of_an_exception() -> None:
    """A skip names a missing program, kernel feature or module, found by asking for it."""
    sources = {str(path): path.read_text() for path in Path(__file__).parent.rglob("*.py")}
    skips = re.compile(r"except.*\b(skip|xfail)\(", re.DOTALL)  # parsing all of the tests takes seconds
    skipping = {path: ast.parse(source) for path, source in sources.items() if skips.search(source)}
    assert {path: lines for path, tree in skipping.items() if (lines := find_skips_on_failure(tree))} == {}


def test_a_skip_because_of_an_exception_is_found() -> None:
    source = "try:\n    work()\nexcept OSError:\n    if True:\n        pytest.skip('it does not work')\n"
    assert find_skips_on_failure(ast.parse(source)) == [5]
