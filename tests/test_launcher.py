"""bin/prepare, which sets up the environment for the launcher. No test installs packages from an index."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the launcher and nothing installed."""
    folder = tmp_path / "checkout"
    (folder / "bin").mkdir(parents=True)
    for name in ("odin", "bin/prepare", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def prepare(checkout: Path, *extra: str, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["/bin/sh", "bin/prepare", str(checkout / ".venv"), *extra],
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
    first.communicate(timeout=LIMIT_S)
    assert first.returncode != 0
    assert not (checkout / ".venv.lock").exists()
    assert not (checkout / ".venv" / ".odin-ready").exists()
    output, _ = prepare(checkout).communicate(timeout=100)
    assert "No module named pip" not in output
    assert ("odin: fetching uv and installing" in output) == (shutil.which("uv") is None)
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
    output, _ = second.communicate(timeout=LIMIT_S)
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


def test_uv_on_the_path_installs_from_the_index_of_pip(checkout: Path) -> None:
    tools = checkout / "tools"
    tools.mkdir()
    (tools / "uv").write_text('#!/bin/sh\nprintf "%s " "$@" > "$0.args"\n')
    (tools / "uv").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    output, _ = prepare(checkout, PATH=path, PIP_INDEX_URL="http://mirror.example/simple").communicate(timeout=100)
    assert "odin: ready." in output and "fetching uv" not in output
    assert (checkout / ".venv/.odin-ready").exists()
    args = (tools / "uv.args").read_text()
    assert args.startswith("pip install ") and "--compile-bytecode" not in args, "compiling takes most of the time"
    assert f"--python {checkout}/.venv/bin/python " in args
    assert "--default-index http://mirror.example/simple " in args
    assert args.endswith(f"-e {checkout} ")


def test_setup_for_tests_goes_on_if_bubblewrap_cannot_be_installed(checkout: Path) -> None:
    tools = checkout / "tools"
    tools.mkdir()
    for name in ("cat", "dirname", "mkdir", "python3", "rm", "sh", "timeout"):
        (tools / name).symlink_to(shutil.which(name) or name)
    programs = {"uv": "", "id": "echo 0", "apt-get": 'echo "$@" >> "$0.args"; exit 100'}
    for name, text in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    setup = prepare(checkout, "dev", PATH=str(tools))
    output, _ = setup.communicate(timeout=100)
    assert setup.returncode == 0, output
    assert "odin: bubblewrap could not be installed; what needs it is not tested.\n" in output
    assert output.endswith("odin: ready.\n")
    assert (tools / "apt-get.args").read_text() == "update -qq\n"
