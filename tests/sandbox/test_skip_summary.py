"""A test run names the sandbox tests that it skipped."""

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_summary_lists_the_skipped_sandbox_tests_with_reasons(tmp_path: Path) -> None:
    for name, text in (("test_sandbox_copy", _TESTS), ("test_network", _TESTS), ("test_other", _OTHER)):
        (tmp_path / f"{name}.py").write_text(text)
    repository = Path(__file__).parent.parent.parent
    options = ["-n", "0", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", str(tmp_path)]
    argv = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    done = subprocess.run(argv, cwd=repository, capture_output=True, text=True, check=False, timeout=60)
    summary = done.stdout.partition("skipped sandbox tests")[2]
    names = "".join(f"  {name}.py::test_it[landlock]\n" for name in ("test_network", "test_sandbox_copy"))
    assert f"no such sandbox here: the kernel has none:\n{names}" in summary, done.stdout
    assert "test_other" not in summary
