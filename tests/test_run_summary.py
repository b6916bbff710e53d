"""A test run names the tests that it skipped, and those that failed once."""

import os
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

_UNSTEADY = """
from pathlib import Path

FOLDER = Path(__file__).parent

def test_unsteady():
    if not (FOLDER / "second").exists():
        (FOLDER / "second").touch()
        raise AssertionError("the first time")

def test_broken():
    assert not (FOLDER / "broken").exists()
"""

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_summary_lists_the_skipped_tests_with_reasons(tmp_path: Path) -> None:
    for name, text in (("test_sandbox_copy", _TESTS), ("test_network", _TESTS), ("test_other", _OTHER)):
        (tmp_path / f"{name}.py").write_text(text)
    options = ["-n", "0", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", str(tmp_path)]
    argv = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    summary = done.stdout.partition("skipped tests")[2]
    names = "".join(f"  {name}.py::test_it[landlock]\n" for name in ("test_network", "test_sandbox_copy"))
    assert f"no such sandbox here: the kernel has none:\n{names}" in summary, done.stdout
    assert "there is no curl here:\n  test_other.py::test_it\n" in summary


@pytest.mark.slow
@pytest.mark.parametrize("is_broken", [False, True])
def test_a_failed_test_is_repeated_once_and_named(tmp_path: Path, is_broken: bool) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "prepare").write_text("")
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "test_it.py").write_text(_UNSTEADY)
    if is_broken:
        (tmp_path / "sample" / "broken").touch()
    argv = ["make", "test", f"VENV={sys.prefix}", "ARGS=-p tests.conftest sample"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode != 0) is is_broken, done.stdout + done.stderr
    repeated = done.stdout.partition("Repeating the failed tests alone:")[2]
    assert "FAILED ONCE sample/test_it.py::test_unsteady\n" in repeated
    assert ("FAILED sample/test_it.py::test_broken" in repeated) is is_broken
    assert (tmp_path / ".pytest_cache/failed-once").read_text() == "FAILED ONCE sample/test_it.py::test_unsteady\n"
