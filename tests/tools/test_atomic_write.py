"""Atomic writes in difficult cases: links, owners, full disks, concurrent changes, killed writers, leftover files."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from odin.core.path_names import is_temporary
from odin.tools import atomic_write
from odin.tools.atomic_write import replace_file
from odin.tools.files import Refusal
from tests.tools.toolbox import Toolbox
from tests.waiting import LIMIT_S, wait_until

ROOT = Path(__file__).parents[2]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

REPLACE_WITH_LIMIT = """
import resource, sys
from odin.tools.atomic_write import replace_file
from odin.tools.files import Refusal
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
target = sys.argv[1]
with open(target, "rb") as file:
    before = file.read()
try:
    replace_file(target, b"n" * 50_000, before)
except (OSError, Refusal) as error:
    print(error)
"""


def replace_with_limit(path: str, size: int) -> str:
    """Replace a file in a process with a file size limit, which simulates a full disk."""
    argv = [sys.executable, "-B", "-c", REPLACE_WITH_LIMIT, path, str(size)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_a_full_disk_leaves_the_old_file_and_nothing_else(box: Toolbox) -> None:
    path = box.write("a.txt", b"o" * 1000)
    assert "File too large" in replace_with_limit(path, 20_000)
    assert Path(path).read_bytes() == b"o" * 1000
    assert os.listdir(box.folder) == ["a.txt"]


def test_a_hard_linked_file_is_restored_when_its_rewrite_fails(box: Toolbox, tmp_path: Path) -> None:
    """The temporary copy fits but the rewrite does not: the shell that copies has a smaller limit."""
    path = box.write("a.txt", b"o" * 1000)
    os.link(path, box.folder / "twin.txt")
    shell = tmp_path / "cat"
    shell.write_text("#!/bin/sh\nulimit -f 8\nexec /bin/cat\n")
    shell.chmod(0o755)
    code = (
        f"from odin.sandbox import process; process.SYSTEM_PATH = {f'{tmp_path}:/usr/bin:/bin'!r}\n"
        + REPLACE_WITH_LIMIT
    )
    argv = [sys.executable, "-c", code, path, "100000"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "could not be rewritten" in said
    assert "It was left unchanged" in said
    assert Path(path).read_bytes() == b"o" * 1000
    assert os.stat(path).st_nlink == 2
    assert sorted(os.listdir(box.folder)) == ["a.txt", "twin.txt"]


@needs_root
def test_owner_group_mode_and_attributes_are_kept(box: Toolbox) -> None:
    path = box.write("a.txt", b"old")
    os.chown(path, 12345, 23456)
    os.chmod(path, 0o2751)
    os.setxattr(path, "user.note", b"kept")
    replace_file(path, b"new", b"old")
    info = os.stat(path)
    assert (info.st_uid, info.st_gid, info.st_mode & 0o7777) == (12345, 23456, 0o2751)
    assert os.getxattr(path, "user.note") == b"kept"


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users can reach. Pytest makes its own folders private again whenever another run starts."""
    with tempfile.TemporaryDirectory(prefix="odin-test-") as name:
        yield Path(name)


@needs_root
@pytest.mark.parametrize("mode", [0o777, 0o755], ids=["open folder", "closed folder"])
def test_a_writable_file_of_another_user_keeps_its_owner(public_folder: Path, mode: int) -> None:
    """A user who can write the file, but cannot set its owner or create files next to it, rewrites it in place."""
    path = public_folder / "a.txt"
    path.write_bytes(b"old")
    os.chown(path, 12345, 12345)
    path.chmod(0o666)
    public_folder.chmod(mode)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgid(54321)
            os.setuid(54321)
            os.environ["TMPDIR"] = tempfile.tempdir = "/nowhere"  # the new text is never in a temporary folder
            replace_file(str(path), b"new", b"old")
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert path.read_bytes() == b"new"
    assert path.stat().st_uid == 12345
    assert os.listdir(public_folder) == ["a.txt"]


def test_a_new_file_does_not_replace_a_file_created_meanwhile(box: Toolbox) -> None:
    path = box.write("a.txt", b"theirs")
    with pytest.raises(Refusal, match="changed on disk"):
        replace_file(path, b"mine", None)
    assert Path(path).read_bytes() == b"theirs"


@pytest.mark.parametrize("links", [1, 2])
def test_a_concurrent_change_is_not_overwritten(box: Toolbox, monkeypatch: pytest.MonkeyPatch, links: int) -> None:
    """Another process is most likely to write during the fsync, which takes longest."""
    path = Path(box.write("a.txt", "old\n"))
    if links == 2:
        os.link(path, box.folder / "twin.txt")
    fsync = os.fsync

    def write_during_fsync(fd: int) -> None:
        path.write_text("of somebody else\n")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", write_during_fsync)
    with pytest.raises(Refusal, match="changed on disk in the meantime"):
        replace_file(str(path), b"new\n", b"old\n")
    assert path.read_text() == "of somebody else\n"

    def delete_during_fsync(_: int) -> None:
        path.unlink()

    monkeypatch.setattr(os, "fsync", delete_during_fsync)
    with pytest.raises(Refusal, match="deleted in the meantime"):
        replace_file(str(path), b"new\n", b"of somebody else\n")
    assert not [name for name in os.listdir(box.folder) if name != "twin.txt"]


def test_a_private_file_is_never_readable_by_others(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    path = box.write("secret", b"old")
    os.chmod(path, 0o600)
    seen: list[int] = []
    write = os.write

    def record_mode(fd: int, data: bytes) -> int:
        seen.append(os.fstat(fd).st_mode & 0o777)
        return write(fd, data)

    monkeypatch.setattr(os, "write", record_mode)
    replace_file(path, b"new", b"old")
    assert seen == [0o600]


def test_temporary_files_of_dead_processes_are_removed_and_others_kept(box: Toolbox) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = box.write(f".a.txt.odin-{dead.pid}-1a2b", b"half")
    held = box.write(f".b.txt.odin-{dead.pid}-1a2c", b"half")
    alive = box.write(f".c.txt.odin-{os.getpid()}-1a2d", b"half")
    copy = box.write(f".d.txt.odin-copy-{dead.pid}-1a2e", b"the only whole text")
    users = [box.write(name, b"x") for name in (".odin-notes", "a.odin-1-2", f"x.odin-{dead.pid}-1a2f")]
    atomic_write._swept.clear()
    with open(held) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        replace_file(str(box.folder / "new.txt"), b"x", None)
    assert not Path(left).exists()
    assert all(Path(path).exists() for path in (held, alive, copy, *users))
    assert [is_temporary(path) for path in (left, held, alive, copy)] == [True] * 4
    assert not any(is_temporary(path) for path in users)


async def test_temporary_files_are_not_listed(box: Toolbox) -> None:
    box.write(".a.txt.odin-77-1a2b", b"half")
    box.write(".hidden", b"x")
    assert ".odin-" not in (await box.ok("LS", path=str(box.folder))).text
    found = (await box.ok("Glob", pattern=".*", path=str(box.folder))).text
    assert ".hidden" in found
    assert ".odin-" not in found


async def test_dangling_symlinks_are_written_through_and_loops_are_refused(box: Toolbox) -> None:
    os.symlink("loop", box.folder / "loop")
    assert "symbolic links" in await box.refused("WriteFile", file_path=str(box.folder / "loop"), content="x")
    os.symlink("not/yet/there.txt", box.folder / "link")
    assert "leads to " + str(box.folder / "not/yet/there.txt") + ", which does not exist" in await box.refused(
        "Read", file_path=str(box.folder / "link")
    )
    await box.ok("WriteFile", file_path=str(box.folder / "link"), content="x\n")
    assert (box.folder / "link").is_symlink()
    assert (box.folder / "not/yet/there.txt").read_text() == "x\n"


async def test_the_longest_file_name_works_and_a_longer_one_is_refused(box: Toolbox) -> None:
    longest = str(box.folder / ("é" * 127 + "x"))
    await box.ok("WriteFile", file_path=longest, content="x\n")
    assert Path(longest).read_text() == "x\n"
    assert "too long" in await box.refused("WriteFile", file_path=f"{longest}y", content="x\n")
    assert [name for name in os.listdir(box.folder) if is_temporary(name)] == []


SLOW_CAT = """#!/bin/sh
dd bs=1000 count=1 2>/dev/null
touch HOLD/begun
while [ ! -e HOLD/go ]; do sleep 0.01; done
exec /bin/cat
"""

REPLACE = """
import os, sys
from odin.sandbox import process
from odin.tools import atomic_write
process.SYSTEM_PATH = os.environ.get("TOOLS", process.SYSTEM_PATH)
atomic_write.replace_file(sys.argv[1], b"new" * 100_000, b"old" * 50_000)
"""


def test_a_rewrite_in_place_is_finished_when_its_process_is_killed(box: Toolbox, tmp_path: Path) -> None:
    """The process group is killed in the middle of the copy; the file still gets its new content."""
    path = box.write("a.txt", b"old" * 50_000)
    os.link(path, box.folder / "twin.txt")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "cat").write_text(SLOW_CAT.replace("HOLD", str(tmp_path)))
    (tools / "cat").chmod(0o755)
    env = {**os.environ, "TOOLS": f"{tools}:{os.environ['PATH']}"}
    writer = subprocess.Popen([sys.executable, "-c", REPLACE, path], cwd=ROOT, env=env, start_new_session=True)
    wait_until((tmp_path / "begun").exists)
    os.killpg(writer.pid, signal.SIGKILL)
    assert writer.wait() == -signal.SIGKILL
    assert Path(path).stat().st_size == 1000
    (tmp_path / "go").touch()
    wait_until(lambda: len(os.listdir(box.folder)) == 2)
    assert Path(path).read_bytes() == b"new" * 100_000
    assert (box.folder / "twin.txt").read_bytes() == b"new" * 100_000


def test_a_rewrite_in_place_works_without_proc(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_write, "_HAS_PROC", False)
    path = box.write("a.txt", b"old" * 50_000)
    os.link(path, box.folder / "twin.txt")
    replace_file(path, b"new", b"old" * 50_000)
    assert (box.folder / "twin.txt").read_bytes() == b"new"
    assert sorted(os.listdir(box.folder)) == ["a.txt", "twin.txt"]


def test_programs_of_the_project_are_not_used_for_a_rewrite(box: Toolbox) -> None:
    """A command could put programs into a folder of the PATH; Odin must not run them outside the sandbox."""
    path = box.write("a.txt", b"old" * 50_000)
    os.link(path, box.folder / "twin.txt")
    for name in ("mv", "cat", "sync", "rm"):
        (box.folder / name).write_text(f"#!/bin/sh\ntouch {box.folder}/ran\n")
        (box.folder / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{box.folder}:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-c", REPLACE, path], cwd=ROOT, env=env, check=True, timeout=LIMIT_S)
    assert (box.folder / "twin.txt").read_bytes() == b"new" * 100_000
    assert not (box.folder / "ran").exists()
