"""When Odin is killed, all processes of its commands end, also those that ignore every signal that can be ignored.

On the machine of the test, and in a container whose first process reaps no orphans.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..waiting import wait_until
from .processes import find_running
from .sandboxes import CONTAINER, explain_missing, explain_missing_container, explain_missing_view

PROGRAM = """
import asyncio, sys
from pathlib import Path
from odin.core.profile import ProcessProfile
from odin.sandbox.output import HeadTailBuffer
from tests.sandbox.sandboxes import SandboxedProject

DEAF = "trap '' TERM HUP INT QUIT;"
PROFILES = {
    "no sandbox": ProcessProfile("none"),
    "read-only": ProcessProfile("read"),
    "view": ProcessProfile("project", view=True),
}

async def main(folder, place, words):
    backend = place if place in ("bubblewrap", "landlock") else "bubblewrap"
    project = SandboxedProject(Path(folder), backend, views=folder + "/state/views")
    profile = PROFILES.get(place, ProcessProfile("project"))
    run = lambda name: f"exec -a {words}-{name} sleep 1000"
    start = f"({DEAF} {run('deaf')}) & setsid -f bash -c \\"{DEAF} {run('moved')}\\";"
    start += f"env -i bash -c '{run('unmarked')}' & env -i setsid -f bash -c '{run('lost')}';"
    start += f"(sh -c 'setsid -f bash -c \\"{run('daemon')}\\" &') & {run('stopped')} & kill -STOP $!;"
    if place == "no sandbox":
        start = start.replace(f"env -i setsid -f bash -c '{run('lost')}'", "true")
    await project.run(f"setsid -f bash -c '{run('earlier')}' >/dev/null 2>&1", profile)
    background = HeadTailBuffer(100)
    await project.runner.start_detached(run("background"), cwd=str(project.root), sink=background, profile=profile)
    await project.run(f"{start} {run('plain')}", profile, timeout=1000)

asyncio.run(main(*sys.argv[1:]))
"""

NAMES = ("deaf", "moved", "unmarked", "lost", "daemon", "stopped", "earlier", "background", "plain")
OTHERS = {"no sandbox": {"lost"}, "view": {"earlier"}}
"""What is not there: nothing finds a process that has left its group and its mark, unless it is in a sandbox; and
nothing outlives a command in a view."""

PLACES = ("no sandbox", "bubblewrap", "read-only", "landlock", "view")

WITHOUT_REAPING = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, *sys.argv[1:]])
while True:
    signal.pause()
"""


@contextmanager
def start_odin(argv: list[str], words: str) -> "Generator[int]":
    """Start the program, and yield the process that runs it."""
    with subprocess.Popen(argv, start_new_session=True) as process:
        try:
            (pid,) = wait_until(lambda: [found for found in find_running(words) if is_odin(found)][-1:])
            yield pid
        finally:
            process.kill()
            for pid in find_running(words):
                os.kill(pid, signal.SIGKILL)


def is_odin(pid: int) -> bool:
    """Return whether a process with the words runs Odin itself, and not `unshare` or the first process."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[1:3] == [b"-c", PROGRAM.encode()]


def list_sandboxes(folder: Path) -> set[int]:
    """Return the init programs of the sandboxes for this folder."""
    return {*find_running("init.main(")} & {*find_running(str(folder))}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("machine", ["here", "in a container"])
def test_all_processes_end_with_a_killed_odin(tmp_path: Path, place: str, machine: str) -> None:
    prefix: tuple[str, ...] = CONTAINER if machine == "in a container" else ()
    if missing := machine == "in a container" and explain_missing_container():
        pytest.skip(missing)
    backend = "landlock" if place == "landlock" else "bubblewrap"
    if missing := place != "no sandbox" and explain_missing(backend, prefix):
        pytest.skip(missing)
    if missing := place == "view" and explain_missing_view(tmp_path, prefix):
        pytest.skip(missing)
    words = f"odin-canary-{os.getpid()}-{place.replace(' ', '-')}"
    first = [*prefix, sys.executable, "-c", WITHOUT_REAPING] if prefix else [sys.executable]
    names = [f"{words}-{name}" for name in NAMES if name not in OTHERS.get(place, ())]
    with start_odin([*first, "-c", PROGRAM, str(tmp_path), place, words], words) as odin:
        wait_until(lambda: all(map(find_running, names)))
        assert bool(list_sandboxes(tmp_path)) == (place != "no sandbox")
        os.kill(odin, signal.SIGKILL)
        wait_until(lambda: not any(map(find_running, names)), lambda: f"the end of {[*filter(find_running, names)]}")
        wait_until(lambda: not list_sandboxes(tmp_path))
