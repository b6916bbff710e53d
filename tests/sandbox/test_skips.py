"""A test run names the sandbox tests that it skipped."""

import subprocess
import sys
from pathlib import Path

_TESTS = """
import pytest

@pytest.mark.parametrize("use", ["bubblewrap", "landlock"])
def test_it(use):
    if use == "landlock":
        pytest.skip("no such sandbox here: the kernel has none")
"""


def test_a_run_says_which_sandbox_tests_were_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_sandbox_copy.py").write_text(_TESTS)
    (tmp_path / "test_other.py").write_text(_TESTS)
    repository = Path(__file__).parent.parent.parent
    options = ["-n", "0", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", str(tmp_path)]
    argv = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    done = subprocess.run(argv, cwd=repository, capture_output=True, text=True, check=False, timeout=60)
    summary = done.stdout.partition("skipped sandbox tests")[2]
    assert "no such sandbox here: the kernel has none:\n  test_sandbox_copy.py::test_it[landlock]\n" in summary, (
        done.stdout
    )
    assert "test_other" not in summary
