"""Sandboxed commands cannot reach kernel settings, devices or the user's terminal.

Every test runs as root and as an ordinary user, with bubblewrap and with Landlock, in writable and read-only sandboxes.
Kernel files are only opened, never written.
"""

import fcntl
import os
import sys
import termios
from collections.abc import Iterator

import pytest

from tests.sandbox.users import BACKENDS, USERS, UserProject, run_process, shared_folder


@pytest.fixture(params=[(user, backend) for user in USERS for backend in BACKENDS], ids=lambda pair: "-".join(pair))
def project(request: pytest.FixtureRequest) -> Iterator[UserProject]:
    with shared_folder() as folder:
        yield UserProject(folder, *request.param)


_OPEN_FOR_WRITING = r"""
import ctypes, os, re, sys

# What everyone on the machine may write is no privilege, nor are the limits of an ordinary user's own namespaces.
OWN_NAMESPACES = "/sys/(fs/mqueue|kernel/(auto_msg|msg|pid_max|sem|shm)|user/max_)"

def writable(top):
    for folder, folders, files in os.walk(top):
        if folder == top:
            folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self")]
        for name in files:
            try:
                fd = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                continue
            mode = os.fstat(fd).st_mode
            os.close(fd)
            path = f"{folder}/{name}"
            if not mode & 0o002 and not (os.getuid() and re.search(OWN_NAMESPACES, path)):
                yield path

def enter_namespaces():
    # A user namespace without a uid map, as a command could create one, then a /proc of its own.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000 | 0x20000000 | 0x20000):
        return
    if os.fork():
        os.wait()
        os._exit(0)
    os.makedirs("/dev/shm/fresh", exist_ok=True)
    for flags in (0, 1):
        if not libc.mount(b"proc", b"/dev/shm/fresh", b"proc", flags, None):
            libc.mount(None, b"/dev/shm/fresh", None, 32 | 4096, None)  # remount writable
            break

if len(sys.argv) > 2:
    enter_namespaces()
found = [path for top in sys.argv[1].split(",") for path in writable(top)]
print(f"{len(found)} writable", *found[:5], flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("writes", [True, False], ids=["writable", "read-only"])
def test_no_kernel_setting_can_be_opened_for_writing(project: UserProject, writes: bool) -> None:
    (project.root / "open.py").write_text(_OPEN_FOR_WRITING)
    done = project.run(
        "python3 open.py /proc,/sys", "python3 open.py /dev/shm/fresh,/proc in-own-namespaces", writes=writes
    )
    assert [one.output for one in done] == ["0 writable\n"] * 2


def test_proc_stays_readable(project: UserProject) -> None:
    """It is read-only, not hidden: programs read about processors, memory and themselves there."""
    (done,) = project.run("grep -c processor /proc/cpuinfo >/dev/null && cat /proc/sys/kernel/ostype /proc/self/comm")
    assert done.output == "Linux\ncat\n"


_IN_CHROOT = """
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
assert not libc.unshare(0x20000), "no mount namespace"
assert not libc.mount(None, b"/", None, 0x4000 | 0x40000, None)
target = sys.argv[1].encode()
assert not libc.mount(b"proc", target, b"proc", 0, None), "no proc"
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_chroot_in_the_project_exposes_no_kernel_setting(backend: str) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can mount a second /proc")
    with shared_folder() as folder:
        project = UserProject(folder, "root", backend)
        inner = project.root / "a chroot" / "proc"
        inner.mkdir(parents=True)
        (project.root / "open.py").write_text(_OPEN_FOR_WRITING)
        probe = run_process([sys.executable, "-c", _IN_CHROOT, str(inner), "true"])
        if probe.returncode:
            pytest.skip(f"nothing can be mounted here: {probe.stderr.strip()[-80:]}")
        project.container = [sys.executable, "-c", _IN_CHROOT, str(inner)]
        (done,) = project.run("python3 open.py 'a chroot/proc'")
        assert done.output == "0 writable\n"


_REACH_TERMINAL = r"""
import fcntl, os, sys, termios
paths = [sys.argv[1], *(f"/dev/{name}" for name in "tty console tty0 ttyS0 vda sda mem kmsg".split())]
paths += [f"/proc/{pid}/fd/{fd}" for pid in os.listdir("/proc") if pid.isdigit() for fd in (0, 1, 2)]
for path in paths:
    for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
        try:
            fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            continue
        if os.isatty(fd) or path.startswith("/dev/"):
            print("opened", path, flags)
            for byte in b"echo planted\n":
                try:
                    fcntl.ioctl(fd, termios.TIOCSTI, bytes([byte]))
                except OSError:
                    break
            if flags != os.O_RDONLY and path == sys.argv[1]:
                os.write(fd, b"\x1b]0;planted\x07")
        os.close(fd)
print(os.getsid(0) != 0 and "done")
"""

_WITH_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)
os.execvp(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize("writes", [True, False], ids=["writable", "read-only"])
def test_the_users_terminal_is_out_of_reach(project: UserProject, writes: bool) -> None:
    """A command cannot write to it, which would forge Odin's output, read from it or type into it (TIOCSTI)."""
    master, slave = os.openpty()
    name = os.ttyname(slave)
    try:
        os.fchown(slave, project.owner, -1)
        (project.root / "reach.py").write_text(_REACH_TERMINAL)
        project.wrapper = [sys.executable, "-c", _WITH_TERMINAL, str(slave)]
        (done,) = project.run(f"python3 reach.py {name}", writes=writes, pass_fds=(slave,))
        assert done.output == "done\n"
        os.set_blocking(master, False)
        with pytest.raises(BlockingIOError):
            os.read(master, 1)
        assert fcntl.ioctl(slave, termios.FIONREAD, b"\0\0\0\0") == b"\0\0\0\0", "something was typed"
    finally:
        os.close(master)
        os.close(slave)
