"""A writer is killed at random moments: every file has its old or its new content, never a part of it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from odin.core.path_names import is_temporary
from tests.soak import SOAK, choose, soak
from tests.tools.killed_writer import WHOLE_FILE_SIZE, make_new_text, make_states
from tests.tools.toolbox import Toolbox
from tests.waiting import wait_until

KILLS = choose(sample=12, full=100)
ROOT = Path(__file__).parents[2]
SIZES = {"big.txt": 10_000_000, "linked.txt": 2_000_000, "whole.txt": WHOLE_FILE_SIZE}


def wait_for_kill_moment(folder: Path, chance: Random, old: set[str], sizes: dict[str, set[int]]) -> None:
    """Wait for a moment to kill: any, while a temporary file exists, or while the size of a file is in between.

    The last happens during a rewrite in place, which a separate process
    finishes, and would happen if files were not replaced atomically.
    """
    kind = chance.choice(("any", "waiting", "waiting", "growing", "growing"))
    longest = {"any": chance.uniform(0.0, 0.2), "waiting": 2.0, "growing": 0.3}
    deadline = time.monotonic() + longest[kind]
    paths = {str(folder / name): allowed for name, allowed in sizes.items()}
    while time.monotonic() < deadline:
        if kind == "waiting" and any(is_temporary(name) for name in os.listdir(folder) if name not in old):
            time.sleep(chance.choice((0.0, 0.0, 0.001, 0.004)))
            return
        if kind == "growing" and any(os.stat(path).st_size not in allowed for path, allowed in paths.items()):
            return


def wait_for_rewrite(folder: Path, writer: int) -> None:
    """Wait for the process that rewrites a file in place, which outlives its writer."""
    wait_until(lambda: all(pid == writer for pid in find_processes_in(folder)), "the end of a rewrite")
    assert not any(".odin-copy-" in name for name in os.listdir(folder))


def find_processes_in(folder: Path) -> Iterator[int]:
    """Yield the processes with the folder in their command line."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            with suppress(OSError):
                if bytes(folder) in Path("/proc", name, "cmdline").read_bytes():
                    yield int(name)


def check_files(folder: Path, texts: dict[str, tuple[bytes, bytes]]) -> set[str]:
    """Check that no file is torn; return the leftover temporary files."""
    for name, allowed in texts.items():
        found = (folder / name).read_bytes()
        assert found in allowed, f"{name} is torn: {len(found)} bytes, {found[:20]!r}"
    for path in folder.glob("new-*.txt"):
        assert path.read_text() == make_new_text(int(path.stem[4:])), f"{path.name} is torn"
        path.unlink()
    assert os.stat(folder / "linked.txt").st_nlink == 2
    strays = set(os.listdir(folder)) - {*texts, "twin.txt"}
    assert all(is_temporary(name) for name in strays), strays
    return strays


@pytest.fixture
def disk_folder() -> Iterator[Path]:
    """A folder on a disk: /tmp may be in memory, where a write is over before it can be killed."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@soak
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc to see when a rewrite is over")
async def test_a_killed_writer_leaves_no_torn_file(
    disk_folder: Path, record_property: Callable[[str, object], None]
) -> None:
    folder = disk_folder
    box = Toolbox(folder)
    texts = {
        name: (a.encode(), b.encode()) for name, (a, b) in ((name, make_states(size)) for name, size in SIZES.items())
    }
    for name, (text, _) in texts.items():
        box.write(name, text)
    os.link(folder / "linked.txt", folder / "twin.txt")
    sizes = {name: {len(a), len(b)} for name, (a, b) in texts.items()}
    chance = Random(7)
    hits = 0
    argv = [sys.executable, "-m", "tests.tools.killed_writer", str(folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for _ in range(KILLS):
            old = set(os.listdir(folder))
            writer.stdin.write("go\n")
            writer.stdin.flush()
            pid = sum(int(writer.stdout.readline()) for _ in ("its pid", "0 when it begins"))
            wait_for_kill_moment(folder, chance, old, sizes)
            os.kill(pid, signal.SIGKILL)
            assert int(writer.stdout.readline()) == -signal.SIGKILL, "the writer failed by itself"
            wait_for_rewrite(folder, writer.pid)
            hits += not check_files(folder, texts) <= old
    record_property("hits", hits)
    assert hits >= 2 or not SOAK, "so little was tried"
    box.write(".big.txt.odin-999999999-1f", "left by a process that is no more")
    listing = await box.ok("LS", path=str(folder))
    assert ".odin-" not in listing.text
    assert ".odin-" not in (await box.ok("Glob", pattern=".*", path=str(folder))).text
    await box.ok("WriteFile", file_path=str(folder / "last.txt"), content="x\n")
    assert not [name for name in os.listdir(folder) if is_temporary(name)], (
        "the next write removes leftover temporary files"
    )
