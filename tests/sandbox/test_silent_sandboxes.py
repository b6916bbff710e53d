"""A sandbox that does not answer costs the command that needed it, and nothing else."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.core.profile import ProcessProfile
from odin.sandbox import supervisor
from odin.sandbox.output import HeadTailBuffer
from odin.sandbox.runner import CommandResult, SandboxUnavailable
from odin.sandbox.sandbox import WRITING
from odin.sandbox.supervisor import SandboxedChild

from ..waiting import until
from .processes import is_alive
from .sandboxes import READ_ONLY, WRITE, SandboxedProject

GIT = ProcessProfile("git")

pytestmark = pytest.mark.usefixtures("only_own_sockets")


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def projects(tmp_path: Path, backend: str) -> AsyncIterator[list[SandboxedProject]]:
    """Two sessions in one process, of which the first waits only a moment for its sandboxes."""
    opened: list[SandboxedProject] = []
    for name, answer_s in (("one", 3.0), ("other", 60.0)):
        (tmp_path / name).mkdir()
        opened.append(SandboxedProject(tmp_path / name, backend, answer_s=answer_s))
    opened[0].skip_if_unavailable()
    yield opened
    for project in opened:
        await project.close()


@contextmanager
def stopped(project: SandboxedProject) -> Generator[None]:
    """Stop the init program of the sandbox in which commands write."""
    pid = project.sandbox._supervisors[WRITING].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_what_runs_in_a_silent_sandbox_goes_on_and_the_next_command_gets_another(
    projects: list[SandboxedProject],
) -> None:
    one, other = projects
    log = HeadTailBuffer(1000)
    command = f"while [ ! -e {one.root}/go ]; do sleep 0.01; done; echo went on; exit 3"
    running = await one.runner.start_detached(command, cwd=str(one.root), sink=log, profile=WRITE)
    await other.run("true")
    silent = one.sandbox._supervisors[WRITING]
    with stopped(one):
        waiting = asyncio.ensure_future(one.run("touch late; echo ran"))
        while not waiting.done():  # the event loop goes on, and so do other sessions
            assert (await other.run("echo there")).output == "there\n"
        with pytest.raises(SandboxUnavailable, match=r"has not answered for 3 s, so this was not run"):
            await waiting
        for profile in (WRITE, READ_ONLY, GIT):
            assert (await one.run("echo again", profile)).output == "again\n"
        assert one.sandbox._supervisors[WRITING] is not silent
        assert await running.is_alive()
        (one.root / "go").touch()
    await running.done
    assert (running.code, log.render_text()[0]) == (3, "went on\n")
    await until(lambda: not silent.is_silent)
    assert await silent.count_children() == 0
    assert not (one.root / "late").exists(), "what was given up does not run later"


async def test_a_command_that_waits_for_a_silent_sandbox_can_be_cancelled(projects: list[SandboxedProject]) -> None:
    _, project = projects
    await project.run("true")
    with stopped(project):
        waiting = asyncio.ensure_future(project.run("touch late"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert (await project.run("echo again")).output == "again\n"
    assert not (project.root / "late").exists()


async def test_a_silent_sandbox_is_killed(projects: list[SandboxedProject], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_END_SECONDS", 0.05)
    _, project = projects
    await project.run("true")
    pid = project.sandbox._supervisors[WRITING].pid
    os.kill(pid, signal.SIGSTOP)
    await project.close()
    assert not is_alive(pid)


async def test_a_dead_sandbox_is_replaced_and_others_go_on(projects: list[SandboxedProject]) -> None:
    project, _ = projects
    log = HeadTailBuffer(1000)
    command = f"while [ ! -e {project.root}/go ]; do sleep 0.01; done; echo went on"
    profile = ProcessProfile("project", scope=(str(project.root),))
    running = await project.runner.start_detached(command, cwd=str(project.root), sink=log, profile=profile)
    os.kill(project.sandbox._supervisors[WRITING].pid, signal.SIGKILL)
    assert (await project.run("touch go; echo again")).output == "again\n"
    await running.done
    assert log.render_text()[0] == "went on\n"


async def test_a_command_that_is_cancelled_before_its_sandbox_has_answered_keeps_its_output(
    projects: list[SandboxedProject], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, *_ = projects
    start, answered, results = one.sandbox.start, asyncio.Event(), list[CommandResult]()

    async def start_late(*args: Any) -> SandboxedChild:
        child = await start(*args)
        await answered.wait()
        return child

    monkeypatch.setattr(one.sandbox, "start", start_late)
    command = "echo first; touch begun; sleep 1000"
    running = asyncio.create_task(
        one.runner.run(command, cwd=str(one.root), timeout=60, profile=WRITE, on_cancelled=results.append)
    )
    await until((one.root / "begun").exists)
    running.cancel()
    await asyncio.sleep(0)
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [result.output for result in results] == ["first\n"]
