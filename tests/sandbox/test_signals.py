"""Each process of a command that is stopped gets TERM exactly once, wherever the command runs and however it ends."""

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from odin.core.profile import ProcessProfile, SandboxGrants
from odin.sandbox.output import HeadTailBuffer
from odin.sandbox.process import RunningProcess

from ..waiting import until
from . import count_signals
from .sandboxes import READ_ONLY, UNSANDBOXED, WRITE, SandboxedProject

VIEW = ProcessProfile("project", view=True)
KINDS = ("member", "session", "unmarked", "pipeline")
"""Those that are found everywhere. One that has left its group and has lost its mark is found only in a view."""

PLACES = {
    "no sandbox": ("bubblewrap", UNSANDBOXED),
    "bubblewrap": ("bubblewrap", WRITE),
    "read-only": ("bubblewrap", READ_ONLY),
    "landlock": ("landlock", WRITE),
    "view": ("bubblewrap", VIEW),
    "view of its own": ("bubblewrap", replace(VIEW, grants=SandboxGrants(network=True))),
}


class Counters:
    """A command in one of the places that counts its signals, and what it has printed."""

    running: RunningProcess

    def __init__(self, project: SandboxedProject, profile: ProcessProfile) -> None:
        self.project = project
        self.printed = HeadTailBuffer(10_000)
        kinds = (*KINDS, "lost") if profile.view else KINDS
        self.names = [
            "main",
            *(name for kind in kinds for name in (("first", "last") if kind == "pipeline" else [kind])),
        ]
        self._profile = profile
        self._program = shlex.join([sys.executable, "-S", count_signals.__file__, "main", *kinds])

    async def start(self) -> None:
        self.running = await self.project.runner.start_detached(
            f"exec {self._program}", cwd=str(self.project.root), sink=self.printed, profile=self._profile
        )
        await until(lambda: "main ready" in self.list_lines())

    def list_lines(self) -> list[str]:
        return self.printed.render_text()[0].splitlines()


async def by_stop(counters: Counters) -> None:
    await counters.project.runner.terminate(counters.running)


async def by_close(counters: Counters) -> None:
    await counters.project.runner.close()


async def by_stop_and_close(counters: Counters) -> None:
    """The session is closed while a command that was stopped still cleans up."""
    stopping = asyncio.create_task(by_stop(counters))
    await until(lambda: counters.running.was_asked_to_end)
    await by_close(counters)
    await stopping


@pytest.fixture(params=PLACES)
async def counters(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Counters]:
    backend, profile = PLACES[request.param]
    project = SandboxedProject(tmp_path, backend, views=f"{tmp_path}/state/views", grace=60.0).skip_if_unavailable()
    if profile.view:
        project.skip_without_views()
    found = Counters(project, profile)
    await found.start()
    yield found
    await project.close()


@pytest.mark.parametrize("end", [by_stop, by_close, by_stop_and_close])
async def test_each_process_gets_term_exactly_once(
    counters: Counters, end: Callable[[Counters], Awaitable[None]]
) -> None:
    await end(counters)
    await counters.running.done
    lines = [line for line in counters.list_lines() if not line.endswith("ready")]
    assert sorted(lines) == sorted(f"{name} 1" for name in counters.names)
