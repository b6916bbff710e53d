"""bin/prepare, which sets up the environment for the launcher. No test installs packages from an index."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the launcher and nothing installed."""
    folder = tmp_path / "checkout"
    (folder / "bin").mkdir(parents=True)
    for name in ("odin", "bin/prepare", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def prepare(checkout: Path, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["/bin/sh", "bin/prepare", str(checkout / ".venv")],
        cwd=checkout,
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_interrupted_setup_leaves_no_lock_and_can_be_repeated(checkout: Path) -> None:
    first = prepare(checkout)
    assert first.stdout is not None
    assert "making an environment" in first.stdout.readline()
    os.killpg(first.pid, signal.SIGINT)
    first.communicate(timeout=60)
    assert first.returncode != 0
    assert not (checkout / ".venv.lock").exists()
    assert not (checkout / ".venv" / ".odin-ready").exists()
    output, _ = prepare(checkout).communicate(timeout=100)
    assert "No module named pip" not in output
    assert "the installation failed" in output


def test_second_setup_waits_for_the_first_and_does_nothing(checkout: Path) -> None:
    lock = checkout / ".venv.lock"
    lock.mkdir()
    (lock / "pid").write_text(str(os.getpid()))
    second = prepare(checkout)
    assert second.stdout is not None
    assert "waiting for it" in second.stdout.readline()
    venv = checkout / ".venv"
    venv.mkdir()
    (venv / ".odin-ready").touch()
    future = time.time() + 5
    os.utime(venv / ".odin-ready", (future, future))
    shutil.rmtree(lock)
    output, _ = second.communicate(timeout=60)
    assert (second.returncode, output) == (0, "")


def test_lock_of_a_dead_process_is_taken_over(checkout: Path) -> None:
    lock = checkout / ".venv.lock"
    lock.mkdir()
    gone = subprocess.Popen(["true"])
    gone.wait()
    (lock / "pid").write_text(str(gone.pid))
    tools = checkout / "tools"  # without Python, so that no environment is made here
    tools.mkdir()
    for name in ("cat", "dirname", "mkdir", "rm", "sleep"):
        (tools / name).symlink_to(shutil.which(name) or name)
    output, _ = prepare(checkout, PYTHON="/nonexistent", PATH=str(tools)).communicate(timeout=100)
    assert not lock.exists()
    assert "odin: no Python 3.11 or newer was found" in output
