"""How many processes sessions keep: one watchdog for all, one process per sandbox, none for idle sandboxes."""

import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odin.core.profile import ProcessProfile
from odin.sandbox import supervisor
from odin.sandbox.output import HeadTailBuffer
from odin.sandbox.process import Watchdog
from tests.waiting import LIMIT_S, until

from .processes import is_alive, list_helpers, list_more_helpers
from .sandboxes import (
    CONTAINER,
    READ_ONLY,
    UNSANDBOXED,
    WRITE,
    SandboxedProject,
    explain_missing,
    explain_missing_container,
    run_program,
)

OpenProject = Callable[..., SandboxedProject]


@pytest.fixture
async def watchdog() -> AsyncIterator[Watchdog]:
    watchdog = Watchdog()
    yield watchdog
    await watchdog.close()


@pytest.fixture
async def open_project(
    tmp_path: Path, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OpenProject]:
    # An earlier test in this process may have learned that the first process of this machine reaps late.
    monkeypatch.setattr(supervisor, "_orphans_stay", threading.Event())
    opened: list[SandboxedProject] = []

    def open_one(backend: str = "bubblewrap", idle_s: float = 60.0) -> SandboxedProject:
        folder = tmp_path / f"project{len(opened)}"
        folder.mkdir()
        opened.append(SandboxedProject(folder, backend, idle_s=idle_s, watchdog=watchdog))
        return opened[-1].skip_if_unavailable()

    yield open_one
    for project in opened:
        await project.close()


@contextmanager
def listening(path: Path) -> Generator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        yield
    path.unlink()


async def wait_for_helpers(before: dict[int, str], count: int) -> None:
    await until(lambda: len(list_more_helpers(before)) == count)


async def run_git(project: SandboxedProject) -> int:
    """Return the first process of the only sandbox that is kept for git."""
    await project.runner.capture(
        ["git", "--version"], cwd=str(project.root), timeout=LIMIT_S, stop_after=1000, profile=ProcessProfile("git")
    )
    (kept,) = project.sandbox._own
    return kept.pid


@pytest.mark.usefixtures("only_own_sockets")
async def test_each_session_keeps_one_process_per_sandbox_and_all_share_a_watchdog(open_project: OpenProject) -> None:
    before = list_helpers()
    projects = [open_project() for _ in range(3)]
    for project in projects:
        await project.run("true")
        await project.run("true", READ_ONLY)
        await run_git(project)
        await run_git(project)
    await wait_for_helpers(before, 1 + 3 * 3)
    assert sum("odin-watchdog" in line for line in list_more_helpers(before).values()) == 1


@pytest.mark.usefixtures("only_own_sockets")
async def test_a_sandbox_is_kept_for_git_until_there_is_more_to_hide(open_project: OpenProject, tmp_path: Path) -> None:
    project = open_project()
    path = tmp_path / "socket"
    first = await run_git(project)
    with listening(path):
        second = await run_git(project)
        assert second == await run_git(project) != first
    await until(lambda: not is_alive(first))
    assert await run_git(project) == second, "what has vanished makes no difference"
    with listening(path):
        assert await run_git(project) != second, "what was mounted over the socket ended with it"
    await until(lambda: not is_alive(second))


async def test_runners_of_one_watchdog_end_only_their_own_processes(open_project: OpenProject) -> None:
    one, other = open_project(), open_project()
    for project in (one, other):
        for profile in (WRITE, UNSANDBOXED):
            sink = HeadTailBuffer(1000)
            await project.runner.start_detached(
                "setsid sleep 1000 & wait", cwd=str(project.root), sink=sink, profile=profile
            )
    await one.close()
    assert other.runner.has_background()
    assert all([await running.is_alive() for running in other.runner._processes.values()])
    sandboxes = {supervisor.group for supervisor in other.sandbox._supervisors.values()}
    assert set(other.runner._watchdog._groups) == set(other.runner._processes) | sandboxes


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_idle_sandboxes_end_and_start_again(open_project: OpenProject, backend: str) -> None:
    before = list_helpers()
    project = open_project(backend, idle_s=0.05)
    for _ in range(2):
        assert (await project.run("echo a")).output == "a\n"
        assert (await project.run("echo b", READ_ONLY)).output == "b\n"
        await run_git(project)
        await wait_for_helpers(before, 1)
        assert project.sandbox._idle_timer is None


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("command", ["sleep 1000", "setsid -f sleep 1000 >/dev/null 2>&1"])
async def test_a_sandbox_with_a_process_in_it_does_not_end(
    open_project: OpenProject, backend: str, command: str
) -> None:
    project = open_project(backend, idle_s=0.01)
    sink = HeadTailBuffer(1000)
    running = await project.runner.start_detached(command, cwd=str(project.root), sink=sink, profile=WRITE)
    if command.startswith("setsid"):
        await running.done
    looked = 0
    is_idle = project.sandbox._is_idle

    async def look(supervisor: object) -> bool:
        nonlocal looked
        looked += 1
        return await is_idle(supervisor)  # pyright: ignore[reportArgumentType]

    project.sandbox._is_idle = look
    await until(lambda: looked >= 3)
    assert await running.is_alive()


ZOMBIES = """
import asyncio, os, sys, threading
from pathlib import Path
from odin.sandbox import layout, supervisor
from tests.sandbox.processes import is_zombie
from tests.sandbox.sandboxes import SandboxedProject
from tests.waiting import wait_until

supervisor._REAP_SECONDS = 0.1

def find_zombies():
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and is_zombie(int(pid))]

async def main():
    project = SandboxedProject(Path(sys.argv[1]), "bubblewrap")
    for _ in range(3):
        await project.run("true")
        project.sandbox.kill()
        for thread in threading.enumerate():
            if "_reap" in thread.name:
                thread.join()
    wait_until(lambda: len(find_zombies()) == int(sys.argv[2]))  # others have a parent that is about to reap them

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False])
def test_ended_sandboxes_leave_no_zombies_where_the_first_process_reaps_none(tmp_path: Path, is_first: bool) -> None:
    """At most one, from which Odin learns it. As the first process, Odin reaps them itself."""
    parent = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)"
    if missing := explain_missing_container() or explain_missing("bubblewrap", CONTAINER):
        pytest.skip(missing)
    argv = [
        sys.executable,
        *([] if is_first else ["-c", parent]),
        "-c",
        ZOMBIES,
        str(tmp_path),
        "0" if is_first else "1",
    ]
    done = run_program(*CONTAINER, *argv)
    assert done.returncode == 0, done.stderr
