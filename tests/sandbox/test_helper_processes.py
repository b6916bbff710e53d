"""How many processes sessions keep: one watchdog for all, one process per sandbox, none for idle sandboxes."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from odin.core.profile import ProcessProfile
from odin.sandbox import supervisor
from odin.sandbox.output import HeadTailBuffer
from odin.sandbox.process import Watchdog

from .processes import list_helpers, list_more_helpers
from .sandboxes import READ_ONLY, UNSANDBOXED, WRITE, SandboxedProject

OpenProject = Callable[..., SandboxedProject]


@pytest.fixture
async def watchdog() -> AsyncIterator[Watchdog]:
    watchdog = Watchdog()
    yield watchdog
    watchdog.close()


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


async def wait_for_helpers(before: dict[int, str], count: int) -> None:
    async with asyncio.timeout(20):
        while len(list_more_helpers(before)) != count:
            await asyncio.sleep(0.01)


async def run_git(project: SandboxedProject) -> None:
    await project.runner.capture(
        ["git", "--version"], cwd=str(project.root), timeout=20, stop_after=1000, profile=ProcessProfile("git")
    )


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


async def test_runners_of_one_watchdog_end_only_their_own_processes(open_project: OpenProject) -> None:
    one, other = open_project(), open_project()
    for project in (one, other):
        for profile in (WRITE, UNSANDBOXED):
            sink = HeadTailBuffer(1000)
            project.runner.start_detached("setsid sleep 1000 & wait", cwd=str(project.root), sink=sink, profile=profile)
    await one.close()
    assert other.runner.has_background()
    assert all(running.is_alive() for running in other.runner._processes.values())
    sandboxes = {supervisor.group for supervisor in other.sandbox._supervisors.values()}
    assert other.runner._watchdog._groups == set(other.runner._processes) | sandboxes


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
    running = project.runner.start_detached(command, cwd=str(project.root), sink=sink, profile=WRITE)
    if command.startswith("setsid"):
        await running.done
    looked = 0
    is_idle = project.sandbox._is_idle

    def look(supervisor: object) -> bool:
        nonlocal looked
        looked += 1
        return is_idle(supervisor)  # pyright: ignore[reportArgumentType]

    project.sandbox._is_idle = look
    async with asyncio.timeout(20):
        while looked < 3:
            await asyncio.sleep(0.01)
    assert running.is_alive()


ZOMBIES = """
import asyncio, os, sys, threading
from pathlib import Path
from odin.sandbox import supervisor
from tests.sandbox.sandboxes import SandboxedProject

supervisor._REAP_SECONDS = 0.1

async def main():
    project = SandboxedProject(Path(sys.argv[1]), "bubblewrap").skip_if_unavailable()
    for _ in range(3):
        await project.run("true")
        project.sandbox.kill()
        for thread in threading.enumerate():
            if "_reap" in thread.name:
                thread.join()
    print(sum(") Z " in Path(f"/proc/{pid}/stat").read_text() for pid in os.listdir("/proc") if pid.isdigit()))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False])
def test_ended_sandboxes_leave_no_zombies_where_the_first_process_reaps_none(tmp_path: Path, is_first: bool) -> None:
    """At most one, from which Odin learns it. As the first process, Odin reaps them itself."""
    parent = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
    argv = [sys.executable, *([] if is_first else ["-c", parent]), "-c", ZOMBIES, str(tmp_path)]
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", *argv], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        pytest.skip(f"no sandbox in a pid namespace here: {done.stderr[-200:]}")
    assert int(done.stdout) == (0 if is_first else 1)
