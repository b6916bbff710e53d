"""The kernel limits processes and memory of a sandbox where control groups are delegated."""

from pathlib import Path

import pytest

from odin.sandbox.control_group import find_parent
from odin.sandbox.probe import SandboxOptions, ViewLimits
from tests.waiting import wait_until

from .test_views import VIEW, OpenProject, open_project

__all__ = ["open_project"]

FORK_MANY = """python3 -c '
import os, signal
made = 0
try:
    while made < 300:
        if os.fork() == 0:
            signal.pause()
        made += 1
except BlockingIOError:
    print(made)
'"""


async def test_kernel_stops_a_burst_of_processes(open_project: OpenProject) -> None:
    parent = find_parent()
    if parent is None or "pids" not in (parent / "cgroup.subtree_control").read_text():
        pytest.skip("no control group is delegated here")
    project = open_project(options=SandboxOptions("bubblewrap", limits=ViewLimits(processes=50)))
    groups = (await project.run("cat /proc/self/cgroup", VIEW)).output.split()
    group = parent / next(line for line in groups if line.startswith("0::")).rpartition("/")[2]
    assert (group / "pids.max").read_text() == "100\n"
    (group / "pids.max").write_text("20")  # fewer than are noticed
    done = await project.run(FORK_MANY, VIEW)
    assert 10 < int(done.output) < 20
    assert done.excess == ""
    project.sandbox.kill()
    wait_until(lambda: not (group / "cgroup.procs").read_text())
    assert (await project.run("echo fine", VIEW)).output == "fine\n"
    assert not group.exists()


@pytest.mark.parametrize(
    ("own", "enabled", "expected"),
    [
        ("user/app/terminal", {"": "cpu memory pids", "user": "memory pids", "user/app": "pids"}, "user/app"),
        ("user/app/terminal", {"": "memory", "user": "memory pids", "user/app": "cpu"}, "user"),
        ("user/app/terminal", {"user/app/terminal": "memory"}, None),
        ("user/app/terminal", {"": "cpu"}, None),
        ("", {"": "pids"}, ""),
    ],
    ids=["beside", "around", "own", "none", "root"],
)
def test_parent_is_the_innermost_group_with_limits(
    tmp_path: Path, own: str, enabled: dict[str, str], expected: str | None
) -> None:
    top = tmp_path / "cgroup"
    for name in ("", "user", "user/app", "user/app/terminal"):
        (top / name).mkdir(parents=True, exist_ok=True)
        (top / name / "cgroup.procs").write_text("")
        (top / name / "cgroup.subtree_control").write_text(enabled.get(name, "") + "\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "mountinfo").write_text(
        f"28 26 0:24 / /run rw - tmpfs tmpfs rw\n30 28 0:26 / {top} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
    )
    (tmp_path / "proc" / "cgroup").write_text(f"4:memory:/x\n0::/{own}\n")
    assert find_parent(tmp_path / "proc") == (None if expected is None else top / expected)
