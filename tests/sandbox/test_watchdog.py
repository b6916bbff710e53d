"""The watchdog: it ends all commands when Odin is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odin.config.paths import make_environment
from odin.core.profile import UNSANDBOXED
from odin.sandbox.process import Watchdog
from odin.sandbox.runner import ProcessRunner
from tests.waiting import LIMIT_S, wait_until

from .processes import is_alive, wait_for_pids, wait_until_gone

PROGRAM = """
import asyncio, sys
from odin.config.paths import make_environment
from odin.core.profile import UNSANDBOXED
from odin.sandbox.runner import ProcessRunner

async def main():
    runner = ProcessRunner(make_environment(cwd="/"), linger=0.05)
    for command in sys.argv[1:-1]:
        await runner.run(command, cwd=".", timeout=60, profile=UNSANDBOXED)
    await runner.run(sys.argv[-1], cwd=".", timeout=60, profile=UNSANDBOXED)

asyncio.run(main())
"""


@contextmanager
def start_odin(folder: Path, *commands: str) -> "Generator[subprocess.Popen[bytes]]":
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *commands], cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "command",
    [
        "echo $$ >>pids; sleep 1000 & echo $! >>pids; wait",
        "trap '' TERM HUP INT; echo $$ >>pids; (sleep 1000 & echo $! >>pids; wait); wait",
        "echo $$ >>pids; setsid bash -c 'echo $$ >>pids; exec sleep 1000' & wait; sleep 1000",
        "echo $$ >>pids; env -i sleep 1000 & echo $! >>pids; wait",
        "echo $$ >>pids; sleep 1000 & echo $! >>pids; kill -STOP $! $$",
    ],
)
def test_no_process_survives_a_killed_odin(tmp_path: Path, command: str) -> None:
    with start_odin(tmp_path, command) as process:
        found = wait_for_pids(tmp_path / "pids", 2)
        assert all(is_alive(pid) for pid in found)
        process.send_signal(signal.SIGKILL)
        wait_until_gone(found)


def test_unregistered_process_group_is_found_by_its_mark(tmp_path: Path) -> None:
    """The group leader still has the mark, which leads to its group."""
    watchdog = Watchdog("untold-test.")
    watchdog.start()
    command = "echo $$ >>pids; env -i sleep 1000 & echo $! >>pids; wait"
    env = {**os.environ, "ODIN_COMMAND": "untold-test.1."}
    with subprocess.Popen(["bash", "-c", command], cwd=tmp_path, env=env, start_new_session=True) as process:
        found = wait_for_pids(tmp_path / "pids", 2)
        del watchdog
        wait_until_gone(found)
        process.wait(LIMIT_S)


def test_children_of_earlier_commands_are_killed_too(tmp_path: Path) -> None:
    left = "setsid sleep 1000 >/dev/null 2>&1 & echo $! >>pids"
    with start_odin(tmp_path, left, "sleep 1000 & echo $! >>pids", "echo $$ >>pids; sleep 1000") as process:
        found = wait_for_pids(tmp_path / "pids", 3)
        process.send_signal(signal.SIGKILL)
        wait_until_gone(found)


def test_killed_odin_does_not_affect_the_commands_of_another(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    command = "echo $$ >>pids; sleep 1000"
    with start_odin(tmp_path / "a", command) as first, start_odin(tmp_path / "b", command):
        ours, others = wait_for_pids(tmp_path / "a" / "pids", 1), wait_for_pids(tmp_path / "b" / "pids", 1)
        first.send_signal(signal.SIGKILL)
        wait_until_gone(ours)
        assert is_alive(others[0])


def list_watchdogs(mark: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if b"odin-watchdog" in words and mark.encode() in words:
            found.append(int(entry.name))
    return found


def wait_for_watchdog(mark: str) -> int:
    wait_until(lambda: len(list_watchdogs(mark)) == 1)
    return list_watchdogs(mark)[0]


@pytest.fixture
def sleeper() -> "Generator[subprocess.Popen[bytes]]":
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


async def test_close_ends_the_watchdog_and_kills_nothing(sleeper: "subprocess.Popen[bytes]") -> None:
    watchdog = Watchdog("goodbye-test.")
    watchdog.start()
    watchdog.add(sleeper.pid)
    wait_for_watchdog("goodbye-test.")
    await watchdog.close()
    wait_until(lambda: not list_watchdogs("goodbye-test."))
    assert sleeper.poll() is None


async def test_watchdog_survives_signals_and_holds_no_files_open() -> None:
    watchdog = Watchdog("signals-test.")
    watchdog.start()
    pid = wait_for_watchdog("signals-test.")
    wait_until(lambda: _ignores_signal(pid, signal.SIGTERM))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    files = {name: os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    assert files.pop("0").startswith("pipe:")
    assert set(files.values()) == {"/dev/null"}
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert is_alive(pid)
    await watchdog.close()


def _ignores_signal(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.split("SigIgn:")[1].split()[0], 16)
    return bool(mask >> (number - 1) & 1)


def test_killed_watchdog_is_replaced(sleeper: "subprocess.Popen[bytes]") -> None:
    watchdog = Watchdog("again-test.")
    watchdog.start()
    watchdog.add(sleeper.pid)
    first = wait_for_watchdog("again-test.")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_alive(first))
    watchdog.add(2_000_000_000)
    watchdog.remove(2_000_000_000)
    wait_for_watchdog("again-test.")
    del watchdog
    assert sleeper.wait(LIMIT_S) == -signal.SIGKILL


async def test_cleanup_after_a_command_spares_the_watchdog_until_close(tmp_path: Path) -> None:
    runner = ProcessRunner(make_environment(cwd="/"), term_grace=0.1)
    await runner.run("sleep 1000", cwd=str(tmp_path), timeout=0.1, profile=UNSANDBOXED)
    mark = runner._watchdog._mark
    wait_for_watchdog(mark)
    await runner.close()
    wait_until(lambda: not list_watchdogs(mark))


async def test_ended_process_groups_are_removed_from_the_watchdog(tmp_path: Path) -> None:
    """Their pids may be reused by other processes, which must not be killed."""
    runner = ProcessRunner(make_environment(cwd="/"), linger=0.05)
    finished = await runner.run("sleep 1000 & echo $!", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    assert finished.pid in runner._watchdog._groups
    os.kill(int(finished.output), signal.SIGKILL)
    wait_until_gone([int(finished.output)])
    await runner.run("true", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    await runner.run("true", cwd=str(tmp_path), timeout=LIMIT_S, profile=UNSANDBOXED)
    assert runner._watchdog._groups == {}
    await runner.close()
