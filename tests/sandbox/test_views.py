"""Commands in a private view of what they may write: nothing real changes, and nothing leads out of the view."""

import asyncio
import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.core.profile import ProcessProfile, SandboxGrants
from odin.core.root import Root
from odin.core.timing import Timing
from odin.sandbox.layout import SandboxSession, SecretPaths, has_exposed_files
from odin.sandbox.probe import SandboxOptions, ViewLimits
from odin.sandbox.runner import CommandResult, SandboxUnavailable, ViewUnavailable
from odin.sandbox.sandbox import WRITING, Sandbox
from odin.sandbox.views.layer import begin_layer, remove_layer
from odin.sandbox.views.setup import ViewSetup
from tests.waiting import wait_until

from ..waiting import LIMIT_S, until, within_limit
from .processes import is_running, list_helpers
from .sandboxes import READ_ONLY, WRITE, SandboxedProject
from .test_sandbox_attacks import WAYS_OUT
from .users import AS_NOBODY, NOBODY, find_python, make_prefix, run_process, shared_folder

VIEW = ProcessProfile("project", view=True)

OpenProject = Callable[..., SandboxedProject]

pytestmark = pytest.mark.usefixtures("only_own_sockets")


@pytest.fixture
async def open_project(tmp_path: Path) -> AsyncIterator[OpenProject]:
    """Return a function that makes a project whose commands can have views, with another root, home or options."""
    opened: list[SandboxedProject] = []

    def open_one(**more: Any) -> SandboxedProject:
        places = {name: str(more.pop(name)) for name in ("root", "home") if name in more}
        options = more.pop("options", None)
        idle_s = more.get("idle_s", 60.0)
        project = SandboxedProject(tmp_path, "bubblewrap", views=f"{tmp_path}/state/views", **more)
        opened.append(project)
        if places or options:
            session = replace(project.sandbox._session, **places)  # pyright: ignore[reportPrivateUsage]
            project.sandbox = Sandbox(
                session, options or SandboxOptions("bubblewrap"), timing=Timing(sandbox_idle_s=idle_s)
            )
        return project.skip_without_views()

    yield open_one
    for project in opened:
        await project.close()


def find_upper(done: CommandResult, number: int = 0) -> Path:
    """Return the folder with what a command has written."""
    assert done.view is not None
    return Path(done.view.roots[number].upper)


def describe_tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Return content, mode, owner and times of everything in a folder."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else path.is_symlink() and os.readlink(path)
        owner = status.st_uid, status.st_gid, status.st_nlink, status.st_ino
        found[str(path)] = (content, status.st_mode, *owner, status.st_mtime_ns, status.st_ctime_ns)
    return found


CHANGES = """
echo more >>file; echo new >new; rm gone; chmod 700 script; mv file2 moved; ln -s a link; rm -r folder/inner
mkdir -p made/inner; echo x >made/inner/x; touch -d @0 folder; mv whole other; ln script hard; truncate -s 1M sparse
git init -q .; git add -A; git -c user.name=a -c user.email=a@b commit -qm message; echo evil >.git/hooks/pre-commit
"""


async def test_command_in_a_view_changes_nothing_real(open_project: OpenProject) -> None:
    project = open_project()
    for name in ("file", "file2", "gone", "script", "folder/inner/a", "folder/b", "whole/c"):
        path = project.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    project.root.chmod(0o750)
    os.utime(project.root, ns=(1_000_000_007, 2_000_000_009))
    before = describe_tree(project.root)
    look = "stat -c '%a %.9Y' ."
    done = await project.run(f"{look}; set -e; {CHANGES} git status --short; cat file; ls; exit 7", VIEW)
    assert done.code == 7, done.output
    assert (
        done.output.splitlines()
        == [
            *("750 2.000000009", "filemore"),
            *("folder", "hard", "link", "made", "moved", "new", "other", "script", "sparse"),
        ]
        or "file" in done.output.splitlines()
    )
    assert describe_tree(project.root) == before
    upper = find_upper(done)
    assert (upper / "file").read_text() == "filemore\n"
    assert stat.S_ISCHR((upper / "gone").lstat().st_mode)
    assert (upper / "other/c").exists() == (done.view is not None and done.view.mode == "user")
    done = await project.run("ls; cat file", VIEW)
    assert done.output.split() == ["file", "file2", "folder", "gone", "script", "whole", "file"]


async def test_two_views_are_isolated_and_see_what_changes_before_they_start(open_project: OpenProject) -> None:
    project = open_project()
    (project.root / "file").write_text("0\n")
    gates = [project.beside / name for name in "12"]
    for gate in gates:
        os.mkfifo(gate)
    runs = [
        asyncio.create_task(project.run(f"echo {gate.name} >>file; read x <{gate}; cat file; ls", VIEW))
        for gate in gates
    ]
    ends = [await asyncio.to_thread(os.open, gate, os.O_WRONLY) for gate in gates]  # when both have written
    for end in ends:
        os.close(end)
    done = await asyncio.gather(*runs)
    assert [one.output.split() for one in done] == [["0", "1", "file"], ["0", "2", "file"]]
    assert (project.root / "file").read_text() == "0\n"
    (project.root / "file").unlink()
    (project.root / "folder").mkdir()
    (project.root / "folder/later").write_text("")
    done = await project.run("ls . folder; rmdir folder 2>&1", VIEW)
    assert done.output.split()[:4] == [".:", "folder", "folder:", "later"]


@pytest.mark.parametrize("profile", [VIEW, replace(VIEW, grants=SandboxGrants(network=True))], ids=["shared", "own"])
async def test_hidden_paths_are_hidden_in_a_view(
    open_project: OpenProject, tmp_path: Path, profile: ProcessProfile
) -> None:
    """Each kind of hidden path, inside the project: an overlay covers what hides them outside of views."""
    root = tmp_path / "both"
    root.mkdir()
    project = open_project(root=root, home=root, odin_folders=(f"{root}/own",), visible=(f"{root}/own/shown",))
    for name in (".ssh/key", ".netrc", "own/key", "own/shown/text", "keys/.env", "also/key"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"content of {name}")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{root}/daemon.sock")
        server.listen()
        hidden = (f"{root}/keys/.env", f"{root}/also", f"{root}/missing")
        look = "cat .ssh/key .netrc own/key keys/.env also/key own/shown/text; echo; ls -A .ssh; echo x >.ssh/y"
        connect = f"{sys.executable} -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"daemon.sock\")'"
        done = await project.run(f"{look}; {connect}; mv own own2", replace(profile, hidden=hidden), cwd=str(root))
    assert [line for line in done.output.splitlines() if "content of" in line] == ["content of own/shown/text"]
    assert "Read-only file system" in done.output
    assert "Connection refused" in done.output
    assert sorted(os.listdir(find_upper(done))) in ([], [".local"])


@pytest.mark.parametrize("is_inside", [True, False])
async def test_writable_folder_in_a_hidden_one_belongs_to_the_view(
    open_project: OpenProject, tmp_path: Path, is_inside: bool
) -> None:
    """Whether the hidden folder lies in the project or not."""
    home = tmp_path / "both"
    inner = home / ".config/gh/project"
    inner.mkdir(parents=True)
    (inner.parent / "key").write_text("secret")
    (inner / ".env").write_text("secret")
    project = open_project(root=home if is_inside else tmp_path / "project", home=home, writable=(str(inner),))
    profile = replace(VIEW, hidden=(f"{inner}/.env",))
    done = await project.run(f"ls {inner.parent}; cat {inner.parent}/key {inner}/.env; echo x >{inner}/new", profile)
    assert done.output.splitlines()[0] == "project"
    assert "secret" not in done.output
    assert os.listdir(inner) == [".env"]
    assert (find_upper(done, 1) / "new").read_text() == "x\n"


async def test_path_to_hide_that_vanishes_while_the_view_is_mounted_does_no_harm(
    open_project: OpenProject, tmp_path: Path
) -> None:
    """Sockets of other programs appear and vanish at any time."""
    folder = tmp_path.resolve() / "library"
    folder.mkdir()
    project = open_project(roots=(Root(str(folder), "read"),))
    profile = replace(VIEW, hidden=tuple(f"{folder}/{number}" for number in range(50)))
    flicker = "import os\nwhile True:\n for name in map(str, range(50)):\n  open(name, 'w').close(); os.unlink(name)"
    with subprocess.Popen([sys.executable, "-c", flicker], cwd=folder) as other:
        try:
            for _ in range(20):
                assert (await project.run("echo ok", profile)).output == "ok\n"
        finally:
            other.kill()


async def test_secret_that_appears_while_the_sandbox_is_in_use_is_hidden(
    open_project: OpenProject, tmp_path: Path
) -> None:
    root = tmp_path / "both"
    root.mkdir()
    project = open_project(root=root, home=root)
    assert (await project.run("sleep 1000 & echo started", cwd=str(root))).output == "started\n"
    (root / ".netrc").write_text("secret")
    done = await project.run("cat .netrc", VIEW, cwd=str(root))
    assert (done.code, done.output) == (0, "")


async def test_sockets_opened_during_a_command_cannot_be_reached(open_project: OpenProject, tmp_path: Path) -> None:
    root = tmp_path / "both"
    (root / ".gnupg").mkdir(parents=True)
    project = open_project(root=root, home=root, odin_folders=(f"{root}/own",))
    gate = project.beside / "gate"
    os.mkfifo(gate)
    names = [f"{root}/{name}" for name in ("daemon", ".gnupg/agent", "own/socket")]
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('reached')"
    tries = "; ".join(f"{sys.executable} -c {shlex.quote(connect)} {name} 2>&1" for name in names)
    running = asyncio.create_task(project.run(f"echo x >file; read x <{gate}; {tries}; true", VIEW, cwd=str(root)))
    end = await asyncio.to_thread(os.open, gate, os.O_WRONLY)
    servers = [socket.socket(socket.AF_UNIX) for _ in names]
    for server, name in zip(servers, names, strict=True):
        server.bind(name)
        server.listen()
    os.write(end, b"go\n")
    os.close(end)
    done = await running
    for server in servers:
        server.close()
    assert done.output.count("Error") == 3
    assert "reached" not in done.output


async def test_nothing_survives_a_command_in_a_view(open_project: OpenProject) -> None:
    project = open_project()
    (project.root / "log").write_text("")
    late = "exec 5>>log; while :; do echo late >&5; done"
    done = await project.run(f"setsid -f sh -c '{late} # survivor-{os.getpid()}' >/dev/null 2>&1; echo done", VIEW)
    assert (done.output, done.has_survivors) == ("done\n", False)
    assert not is_running(f"survivor-{os.getpid()}")
    log = find_upper(done) / "log"
    size = log.stat().st_size if log.exists() else 0
    assert (await project.run("set -- /proc/[0-9]*; echo $#", VIEW)).output == "2\n", "the shell and its parent"
    assert (log.stat().st_size if log.exists() else 0) == size
    assert (project.root / "log").read_text() == ""


async def test_command_that_cannot_start_in_a_view_leaves_no_process(open_project: OpenProject) -> None:
    sandbox = open_project().sandbox
    for _ in range(10):
        with pytest.raises(PermissionError):
            await sandbox.start(["/"], "/", {}, 2, 2, VIEW)
        assert await sandbox._supervisors[WRITING].count_children() == 0  # pyright: ignore[reportPrivateUsage]


async def test_first_sandbox_on_a_machine_is_used(open_project: OpenProject, tmp_path: Path) -> None:
    """Although what it learns is saved in a folder that is to be hidden and does not exist yet."""
    project = open_project()
    project.sandbox.kill()
    cache = tmp_path / "home/.cache/odin"
    session = replace(project.sandbox._session, odin_folders=(str(cache),))  # pyright: ignore[reportPrivateUsage]
    project.sandbox = sandbox = Sandbox(session, SandboxOptions("bubblewrap"), cache / "sandbox.json")
    await sandbox.probe()
    assert (cache / "sandbox.json").exists()
    layout = sandbox._layouts[WRITING]  # pyright: ignore[reportPrivateUsage]
    assert not has_exposed_files(layout, SecretPaths(session))
    assert (await project.run(f"ls {cache}", VIEW)).output == ""


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_command_in_a_view_can_be_stopped(open_project: OpenProject, how: str) -> None:
    project = open_project(grace=LIMIT_S)
    command = (
        f"trap 'echo terminated; exit 3' TERM; echo x >file; setsid -f sleep 1000.{os.getpid()}; sleep 1000 & "
        "echo ready; wait"
    )
    if how == "timeout":
        done, seconds = await project.run(command, VIEW, timeout=0.5), 0.5
        while "ready" not in done.output and seconds < LIMIT_S:  # on a busy machine it takes longer to begin
            seconds *= 4
            done = await project.run(command, VIEW, timeout=seconds)
        assert done.timed_out
    else:
        printed, told = asyncio.Event(), list[CommandResult]()
        running = asyncio.create_task(
            project.runner.run(
                command,
                cwd=str(project.root),
                timeout=2 * LIMIT_S,
                profile=VIEW,
                on_output=lambda _: printed.set(),
                on_cancelled=told.append,
            )
        )
        await within_limit(printed.wait())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        (done,) = told
    assert done.output == "ready\nterminated\n"
    assert (find_upper(done) / "file").read_text() == "x\n"
    assert not is_running(f"sleep 1000.{os.getpid()}")


@pytest.mark.parametrize(("command", "code"), [("exit 300", 44), ("kill -9 $$", -9), ("kill -TERM $$", -15)])
async def test_exit_code_of_a_command_in_a_view(open_project: OpenProject, command: str, code: int) -> None:
    assert (await open_project().run(command, VIEW)).code == code


async def test_program_that_cannot_be_started_in_a_view(open_project: OpenProject) -> None:
    project = open_project()
    views = project.sandbox._folder.layers  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(FileNotFoundError):
        await project.runner.run(["/no/such/program"], cwd=str(project.root), timeout=LIMIT_S, profile=VIEW)
    assert (await project.run("echo x >a", VIEW)).code == 0
    assert len(os.listdir(views)) <= 2, "the view of the first is gone; one waits for the next"


async def test_shared_memory_is_private(open_project: OpenProject) -> None:
    project = open_project()
    await project.run("echo outside >/dev/shm/plain", WRITE)
    done = await project.run("ls /dev/shm; echo inside >/dev/shm/view && cat /dev/shm/view", VIEW)
    assert done.output == "inside\n"
    assert (await project.run("ls /dev/shm", WRITE)).output == "plain\n"
    assert (await project.run("ls /dev/shm", VIEW)).output == ""


FORGE = """python3 -c "
import os
for name in ('opaque', 'redirect', 'origin', 'metacopy', 'whiteout', 'nlink'):
    for prefix in ('user.overlay.', 'trusted.overlay.'):
        for path in ('folder', 'file', 'new'):
            try:
                os.setxattr(path, prefix + name, b'/secret')
                print(prefix)
            except OSError:
                pass
try:
    os.mknod('device', 0o20600, 0)
    print('whiteout')
except OSError:
    pass
os.setxattr('file', 'user.mine', b'kept')
" """


async def test_forged_attributes_reach_no_layer(open_project: OpenProject) -> None:
    """Only those of the mode's own prefix are believed, so no command may set one of them in the upper layer."""
    project = open_project()
    (project.root / "folder").mkdir()
    (project.root / "file").write_text("1")
    done = await project.run(f"mkdir new; {FORGE}", VIEW)
    assert done.code == 0, done.output
    assert done.view is not None
    assert "whiteout" not in done.output
    assert "trusted" not in done.output
    upper = find_upper(done)
    for name in ("folder", "file", "new"):
        if not (upper / name).exists():
            continue
        for attribute in os.listxattr(upper / name):
            prefix = f"{done.view.mode}.overlay."
            if attribute.startswith(prefix) and not attribute.startswith(f"{prefix}overlay."):  # those are escaped
                assert os.getxattr(upper / name, attribute) != b"/secret", attribute
    assert os.getxattr(upper / "file", "user.mine") == b"kept"


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_command_cannot_escape_where_views_are_possible(open_project: OpenProject, way: str) -> None:
    project = open_project()
    canary = project.beside / "canary"
    canary.write_text("alive")
    for profile in (VIEW, WRITE, READ_ONLY):
        await project.run(f"export CANARY={canary} HERE={project.root}; {WAYS_OUT[way]}", profile)
        assert canary.read_text() == "alive"
        assert os.listdir(project.beside) == ["canary"]
        assert project.root.is_dir()


PEEL = """
umount -l $HERE; umount -l /dev/.views; umount -l /dev/.views
unshare -Urm sh -c 'umount -l $HERE; umount -l /dev/.views; echo real >$HERE/real; ls -A /dev/.views'
nsenter -t 1 -m ls; nsenter -t $PPID -m ls
for p in 1 $PPID; do ls -A /proc/$p/cwd/ /proc/$p/root/; for n in 3 4 5 6 7 8 9; do ls -A /proc/$p/fd/$n/; done; done
ls -A /dev/.views; mount -t overlay x -o lowerdir=/,upperdir=$HERE,workdir=$HERE $HERE; strace -p 1; strace -p $PPID
"""


@pytest.mark.parametrize("profile", [VIEW, WRITE], ids=["view", "plain"])
async def test_layers_and_real_files_cannot_be_reached(open_project: OpenProject, profile: ProcessProfile) -> None:
    project = open_project()
    done = await project.run(f"export HERE={project.root}; ({PEEL}) 2>/dev/null", profile)
    assert done.output == ""
    assert profile is WRITE or os.listdir(project.root) == []


@pytest.mark.parametrize("network", [False, True])
async def test_views_give_commands_no_capabilities(tmp_path: Path, open_project: OpenProject, network: bool) -> None:
    """What the init program keeps to mount views reaches no command, neither in a view nor beside it."""
    project = open_project(network=network)
    other = tmp_path / "without"
    other.mkdir()
    without = SandboxedProject(other, "bubblewrap", network=network)
    look = "grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status; bash -c 'grep ^CapEff /proc/$$/status'"
    try:
        today = [int(line.split()[1], 16) for line in (await without.run(look, WRITE)).output.splitlines()]
        for profile in (VIEW, WRITE, READ_ONLY, replace(VIEW, scope=(str(project.root),))):
            found = [int(line.split()[1], 16) for line in (await project.run(look, profile)).output.splitlines()]
            assert (found[0], found[1], found[3]) == (today[0], today[1], today[3])
            assert found[2] & ~today[2] == 0
    finally:
        await without.close()
    if os.getuid() == 0:
        (project.root / "file").write_text("")
        assert (await project.run("chown 1:1 file && stat -c %u:%g file", VIEW)).output == "1:1\n"


RENAMES = {
    "mv": "mv folder other",
    "python": 'python3 -c \'import os; os.rename("folder", "other")\'',
    "absolute": 'python3 -c \'import os; os.rename(os.path.abspath("folder"), os.path.abspath("other"))\'',
    "descriptor": """python3 -c "
import os
here = os.open('.', os.O_RDONLY)
os.chdir('/')
os.rename('folder', 'other', src_dir_fd=here, dst_dir_fd=here)
" """,
    "git": "git mv folder other",
    "exchange": """mkdir other; touch other/mine; python3 -c "
import ctypes
number = {'x86_64': 316, 'aarch64': 276}[__import__('os').uname().machine]
assert ctypes.CDLL(None).syscall(number, -100, b'folder', -100, b'other', 2) == 0
"; test -e folder/mine && rm -r folder""",
    "lower exchange": """python3 -c "
import ctypes
number = {'x86_64': 316, 'aarch64': 276}[__import__('os').uname().machine]
assert ctypes.CDLL(None).syscall(number, -100, b'folder', -100, b'second', 2) == 0
"; test -e folder/mine && mv second other && rm -r folder""",
}


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="renames of this machine are not known")
@pytest.mark.parametrize("way", RENAMES)
async def test_folder_of_the_real_tree_can_be_renamed(open_project: OpenProject, way: str) -> None:
    project = open_project()
    folder = project.root / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/file").write_text("content")
    (folder / "locked").mkdir()
    (folder / "locked/file").write_text("locked")
    (folder / "locked").chmod(0o555)
    (folder / "link").symlink_to("inner/file")
    os.link(folder / "inner/file", folder / "hard")
    (project.root / "second").mkdir()
    (project.root / "second/mine").write_text("")
    os.utime(folder, (1, 1))
    init = "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm x"
    subprocess.run(init, shell=True, cwd=project.root, check=True)
    before = describe_tree(project.root)
    look = "stat -c '%n %a %Y' other other/locked other/hard; stat -c %h other/hard; cat other/link other/locked/file"
    done = await project.run(f"{RENAMES[way]} && test ! -e folder && {look}; ls -A other", VIEW)
    (folder / "locked").chmod(0o755)
    words = done.output.split()
    assert words[:5] == ["other", "755", "1", "other/locked", "555"], done.output
    assert words[9:] == ["2", "contentlockedhard", "inner", "link", "locked"]
    (folder / "locked").chmod(0o555)
    after = describe_tree(project.root)
    for tree in (before, after):
        tree.pop(str(folder / "locked"))  # its ctime
    assert after == before
    (folder / "locked").chmod(0o755)


async def test_very_large_folder_is_not_moved_to_be_renamed(open_project: OpenProject) -> None:
    project = open_project()
    (project.root / "folder").mkdir()
    with (project.root / "folder/sparse").open("wb") as file:
        file.truncate(2 << 30)
    done = await project.run(RENAMES["python"], VIEW)
    assert done.view is not None
    assert ("Invalid cross-device link" in done.output) == (done.view.mode == "user")
    assert sorted(os.listdir(find_upper(done))) == ([] if done.view.mode == "user" else ["folder", "other"])


INTERRUPTED = """python3 -c "
import ctypes, os, signal, threading
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for n in range(20):
    pid = os.fork()
    if not pid:
        os.rename(f'folder{n}', f'other{n}')
        os._exit(0)
    if n % 2:
        os.kill(pid, 9)
    os.waitpid(pid, 0)
name = ctypes.create_string_buffer(b'folder20')
def flip():
    for n in range(20000):
        name.raw = b'folder21\\\\0' if n % 2 else b'nothing2\\\\0'
thread = threading.Thread(target=flip)
thread.start()
libc = ctypes.CDLL(None)
for _ in range(50):
    libc.rename(name, b'last')
    libc.rename(b'last', b'folder21')
for address in (1, -1, 2 ** 62):
    libc.rename(ctypes.c_void_p(address), b'last')
thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
"; for n in $(seq 0 19); do cat folder$n/file other$n/file 2>/dev/null; done; ls -d folder21 last 2>/dev/null | wc -l"""


async def test_callers_of_rename_may_die_or_change_their_mind(open_project: OpenProject) -> None:
    project = open_project()
    for n in range(22):
        (project.root / f"folder{n}").mkdir()
        (project.root / f"folder{n}/file").write_text("x")
    before = describe_tree(project.root)
    done = await project.run(INTERRUPTED, VIEW)
    assert done.output == 20 * "x" + "1\n"
    assert describe_tree(project.root) == before


EXCESSES = {
    "memory": ("python3 -c 'x = bytearray(300_000_000); input()' <&9", "0.2 GB of memory"),
    "shared memory": ("head -c 300000000 /dev/zero >/dev/shm/x; read x <&9", "0.2 GB of memory"),
    "processes": ("for n in $(seq 60); do sleep 1000 & done; read x <&9", "50 processes"),
    "disk": ("mkdir a; head -c 30000000 /dev/zero >a/x; read x <&9", "0.02 GB or 1,000 files"),
    "files": ("touch $(seq 1200); read x <&9", "0.02 GB or 1,000 files"),
}


LOOKED_AT_TWICE = "sleep 1.2; echo fine"


@pytest.mark.parametrize("what", EXCESSES)
async def test_command_that_exceeds_a_limit_is_killed(open_project: OpenProject, what: str) -> None:
    command, amount = EXCESSES[what]
    limits = ViewLimits(memory=200_000_000, processes=50, disk=20_000_000)
    project = open_project(options=SandboxOptions("bubblewrap", limits=limits))
    ended = await project.run(f"mkfifo /dev/shm/gate; exec 9<>/dev/shm/gate; {command}; echo survived", VIEW)
    assert (ended.code, ended.output) == (-9, "")
    assert ended.excess == f"It was stopped because it used more than {amount}."
    assert (await project.run(LOOKED_AT_TWICE if what == "memory" else "echo fine", VIEW)).excess == ""


async def test_next_view_waits_unless_it_is_outdated(open_project: OpenProject) -> None:
    project = open_project()
    views = Path(project.sandbox._folder.layers)  # pyright: ignore[reportPrivateUsage]
    done = await project.run("true", VIEW)
    assert done.view is not None
    assert Path(done.view.folder) in views.iterdir()
    remove_layer(done.view)
    (waiting,) = os.listdir(views)
    assert (await project.run("true", WRITE)).code == 0
    done = await project.run("true", VIEW)
    assert done.view is not None
    assert done.view.name == waiting
    remove_layer(done.view)
    (outdated,) = os.listdir(views)
    (project.home / ".netrc").write_text("secret")
    done = await project.run("true", VIEW)
    assert done.view is not None
    remove_layer(done.view)
    assert done.view.name != outdated
    wait_until(lambda: outdated not in os.listdir(views))


async def test_next_view_of_an_idle_project_is_given_up(open_project: OpenProject) -> None:
    project = open_project(idle_s=0.2)
    views = Path(project.sandbox._folder.layers)  # pyright: ignore[reportPrivateUsage]
    done = await project.run("true", VIEW)
    assert done.view is not None
    remove_layer(done.view)
    await until(lambda: not os.listdir(views) and not any("init.main" in line for line in list_helpers().values()))
    assert (await project.run("echo again", VIEW)).output == "again\n"


async def test_replaced_project_gets_a_new_view(open_project: OpenProject) -> None:
    project = open_project()
    assert (await project.run("ls", VIEW)).output == ""
    project.root.rename(project.root.with_name("old"))
    project.root.mkdir()
    (project.root / "new").write_text("")
    assert (await project.run("ls", VIEW)).output == "new\n"


async def test_views_of_several_roots(open_project: OpenProject, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "file").write_text("1")
    project = open_project(writable=(str(more),))
    (project.root / "part").mkdir()
    done = await project.run(f"echo 2 >{more}/file; mv {more}/file here", VIEW)
    assert done.view is not None
    assert tuple(root.real for root in done.view.roots) == (str(project.root), str(more))
    assert (find_upper(done, 0) / "here").read_text() == "2\n"
    assert stat.S_ISCHR((find_upper(done, 1) / "file").lstat().st_mode)
    assert (more / "file").read_text() == "1"
    scope = replace(VIEW, scope=(str(project.root / "part"),))
    done = await project.run("echo x >part/x; echo x >y", scope)
    assert done.view is not None
    assert tuple(root.real for root in done.view.roots) == (str(project.root / "part"), str(more))
    assert (find_upper(done) / "x").exists()
    assert os.listdir(project.root / "part") == []
    assert not (project.root / "y").exists()


@pytest.mark.parametrize("backend", ["landlock", "off"])
async def test_where_views_are_not_possible_the_command_does_not_run(tmp_path: Path, backend: str) -> None:
    project = SandboxedProject(tmp_path, backend, views=f"{tmp_path}/views")
    if backend == "landlock":
        project.skip_if_unavailable()
        with pytest.raises(ViewUnavailable, match="only bubblewrap"):
            await project.run("touch x", VIEW)
    await project.sandbox.examine()
    assert project.sandbox.explain_no_view()
    assert os.listdir(project.root) == []
    await project.close()


async def test_scope_that_is_a_file_has_no_view(open_project: OpenProject) -> None:
    project = open_project()
    file = project.root / "file"
    file.write_text("1")
    with pytest.raises(SandboxUnavailable, match="no folder"):
        await project.run("echo 2 >file", replace(VIEW, scope=(str(file),)))
    assert file.read_text() == "1"
    assert (await project.run("true", VIEW)).code == 0


EXPLAIN = """
import asyncio, sys
from odin.sandbox.layout import SandboxSession, SecretPaths, has_exposed_files
from odin.sandbox.probe import SandboxOptions, ViewLimits
from odin.sandbox.sandbox import WRITING, Sandbox
root, home, views = sys.argv[1:]
env = {"PATH": "/usr/bin:/bin"}
sandbox = Sandbox(SandboxSession(root=root, home=home, env=env, views=views), SandboxOptions("bubblewrap"))
asyncio.run(sandbox.examine())
print(sandbox.explain_no_view())
sandbox.kill()
"""


async def test_sockets_that_vanish_while_a_sandbox_is_made_cost_no_view(
    open_project: OpenProject, tmp_path: Path
) -> None:
    """Some programs make many in a second. Here one vanishes at every attempt."""
    library = tmp_path.resolve() / "library"
    library.mkdir()
    places = [library / str(number) for number in range(25)]
    programs = tmp_path / "programs"
    programs.mkdir()
    removed = " ".join(map(str, places))
    remove = f'for one in {removed}; do [ -e "$one" ] && rm "$one" && break; done; exec {shutil.which("bwrap")} "$@"'
    (programs / "bwrap").write_text(f"#!/bin/sh\n{remove}\n")
    (programs / "bwrap").chmod(0o755)
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(place))
        path = f"{programs}:{os.environ['PATH']}"
        project = open_project(environ={"PATH": path}, roots=(Root(str(library), "read"),))
        assert (await project.run("echo ok >made", VIEW)).code == 0
    assert not any(place.exists() for place in places)
    assert not (project.root / "made").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount it")
@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        ("mkdir project/sub && mount -t tmpfs x project/sub", "project/sub: a file system is mounted there"),
        ("mount -t tmpfs x project", ""),
        ("mkdir l u w && mount -t overlay x -o lowerdir=l,upperdir=u,workdir=w project", ""),
        ("mkdir l u w && mount -t overlay x -o lowerdir=$PWD,upperdir=u,workdir=w $PWD && cd $PWD", "on an overlay"),
    ],
    ids=["nested", "tmpfs", "overlay", "same_overlay"],
)
def test_reason_why_a_project_has_no_view(open_project: OpenProject, tmp_path: Path, mount: str, reason: str) -> None:
    """In a mount namespace of its own."""
    open_project()
    other = tmp_path / "other"
    for name in ("project", "views"):
        (other / name).mkdir(parents=True)
    script = f'cd {other}; {mount} || exit 9; exec "$@" $PWD/project {tmp_path}/home $PWD/views'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", EXPLAIN]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert reason in done.stdout
    assert bool(done.stdout.strip()) == bool(reason), done.stdout


@pytest.mark.parametrize("inner", ["", "shared"])
def test_project_of_another_group_has_no_view(inner: str) -> None:
    """An ordinary user's view could not change its files."""
    groups = [word for word in make_prefix("user") if word != "--clear-groups"]
    if not groups:
        pytest.skip("only root can give files to other groups")
    with shared_folder() as folder:
        for name in ("project/shared", "home", "views"):
            (folder / name).mkdir(parents=True)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        argv = [*groups, "--groups=65534,12345", find_python(tuple(AS_NOBODY)), "-c", EXPLAIN]
        argv += [str(folder / name) for name in ("project", "home", "views")]
        before = run_process(argv).stdout.strip()
        os.chown(folder / "project" / inner, NOBODY, 12345)
        assert "belongs to another group" in run_process(argv).stdout
        assert "belongs to" not in before


def test_folders_of_a_view_can_be_cleared_whatever_is_in_them(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o751)
    outside = tmp_path / "outside"
    outside.write_text("alive")
    setup = ViewSetup(str(tmp_path / "views"), (str(root),), "user")
    view = begin_layer(setup.make_layer())
    (upper,) = [root.upper for root in view.roots]
    assert stat.S_IMODE(Path(upper).stat().st_mode) == 0o751
    assert Path(upper).stat().st_mtime_ns == root.stat().st_mtime_ns
    here = os.open(upper, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("nested", dir_fd=here)
        inner = os.open("nested", os.O_RDONLY, dir_fd=here)
        os.symlink(outside, "link", dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    (Path(upper) / "locked").mkdir()
    (Path(upper) / "locked/file").write_text("")
    (Path(upper) / "locked").chmod(0)
    os.mkfifo(f"{upper}/fifo")
    remove_layer(view)
    assert os.listdir(tmp_path / "views") == []
    assert outside.read_text() == "alive"
    remove_layer(view)  # again: there is nothing to do


async def test_session_without_a_folder_for_views_has_none(tmp_path: Path) -> None:
    session = SandboxSession(root=str(tmp_path), home=str(tmp_path), env=dict(os.environ))
    sandbox = Sandbox(session, SandboxOptions("bubblewrap"))
    await sandbox.examine()
    assert sandbox.explain_no_view()
    await sandbox.close()


async def test_views_are_examined_once_for_all_that_ask_also_if_the_first_is_cancelled(
    open_project: OpenProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = open_project().sandbox
    try_view, attempts, begun = sandbox._try_view, list[str](), asyncio.Event()

    async def note_attempt() -> str | None:
        attempts.append("begun")
        begun.set()
        return await try_view()

    monkeypatch.setattr(sandbox, "_try_view", note_attempt)
    await sandbox.probe()
    sandbox._no_view = None
    if sandbox._probe is not None:
        sandbox._probe = replace(sandbox._probe, with_views=())
    first = asyncio.create_task(sandbox.examine())
    await begun.wait()
    other = asyncio.create_task(sandbox.examine())
    first.cancel()
    await other
    assert attempts == ["begun"] and sandbox.explain_no_view() == ""
