"""Attacks from inside a sandbox: breaking out, forcing a weaker one, and planting something for later."""

import asyncio
import errno
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from odin.core.profile import ProcessProfile
from odin.sandbox.backends import (
    BUBBLEWRAP_VARIANTS,
    BubblewrapVariant,
    build_bubblewrap_argv,
    build_landlock_args,
    find_landlock_abi,
    open_sandbox,
)
from odin.sandbox.layout import EMPTY_LAYOUT, SandboxSession, find_writable_folders, plan_layout
from odin.sandbox.probe import SandboxCandidate, SandboxOptions, find_program, load_probe
from odin.sandbox.process import RunningProcess
from odin.sandbox.runner import SandboxUnavailable
from odin.sandbox.sandbox import Sandbox, SandboxUse
from odin.sandbox.supervisor import (
    SandboxCommand,
    SandboxSetupError,
    SandboxSupervisor,
    build_init_argv,
    open_supervisor,
)
from tests.waiting import LIMIT_S, until

from .sandboxes import READ_ONLY, WRITE, SandboxedProject, skip_without_sandbox

OpenProject = Callable[..., SandboxedProject]

WAYS_OUT = {
    "through the root of a process": "for p in 1 $$ $PPID self; do echo dead >/proc/$p/root$CANARY; done",
    "through the folder of the init program": "echo dead >/proc/1/cwd$CANARY; ls /proc/1/fd",
    "by mounting over it": "mount --bind $HERE $(dirname $CANARY); mount -o remount,rw /; echo dead >$CANARY",
    "in namespaces of its own": "unshare -Urm sh -c 'mount -o remount,rw,bind /; umount -l /; echo dead >$CANARY'",
    "by its links": "ln -s $CANARY link; echo dead >link; cp --remove-destination link $CANARY; ln $CANARY hard",
    "by tracing the init program": "strace -p 1; gdb -p 1 -batch; echo x >/proc/1/mem",
    "by renaming what is above": "mv $(dirname $CANARY) /tmp/moved-canary; mv $HERE $HERE.moved",
}


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def open_project(tmp_path: Path) -> AsyncIterator[OpenProject]:
    opened: list[SandboxedProject] = []

    def open_one(backend: str, **more: object) -> SandboxedProject:
        folder = tmp_path / f"project{len(opened)}"
        folder.mkdir()
        opened.append(SandboxedProject(folder, backend, **more))  # pyright: ignore[reportArgumentType]
        return opened[-1]

    yield open_one
    for project in opened:
        await project.close()


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_command_cannot_escape(open_project: OpenProject, backend: str, way: str) -> None:
    project = open_project(backend).skip_if_unavailable()
    canary = project.beside / "canary"
    canary.write_text("alive")
    for profile in (WRITE, READ_ONLY):
        await project.run(f"export CANARY={canary} HERE={project.root}; {WAYS_OUT[way]}", profile)
        assert canary.read_text() == "alive"
        assert canary.stat().st_nlink == 1
        assert os.listdir(project.beside) == ["canary"]
        assert project.root.is_dir()


@pytest.mark.parametrize("network", [False, True])
async def test_command_has_no_dangerous_capabilities(open_project: OpenProject, backend: str, network: bool) -> None:
    project = open_project(backend, network=network).skip_if_unavailable()
    for profile in (WRITE, READ_ONLY, ProcessProfile("project", scope=())):
        done = await project.run("grep -E '^(CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs)' /proc/self/status", profile)
        found = dict(line.split(":\t") for line in done.output.splitlines())
        assert found.pop("NoNewPrivs") == "1"
        dangerous = ~0b11011
        assert len(found) == 4
        assert all(int(value, 16) & dangerous == 0 for value in found.values()), found


USE_KEYRINGS = """python3 -c "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
first = {'x86_64': 248, 'aarch64': 217}[os.uname().machine]
for call in range(first, first + 3):
    print(libc.syscall(call, 0, -3, 0, 0, 0), os.strerror(ctypes.get_errno()))
" """


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="no filter for this machine")
@pytest.mark.parametrize("network", [False, True])
async def test_keyrings_cannot_be_used(open_project: OpenProject, backend: str, network: bool) -> None:
    project = open_project(backend, network=network).skip_if_unavailable()
    for profile in (WRITE, READ_ONLY):
        assert (await project.run(USE_KEYRINGS, profile)).output == 3 * f"-1 {os.strerror(errno.ENOSYS)}\n"


async def test_commands_cannot_access_the_init_program(open_project: OpenProject, backend: str) -> None:
    """Neither its file descriptors nor its memory."""
    project = open_project(backend).skip_if_unavailable()
    look = "p=$PPID; ls -l /proc/$p/fd /proc/$p/root; cat /proc/$p/environ /proc/$p/maps"
    done = await project.run(f"{look}; for n in 3 4 5 6 7; do : 9<>/proc/$p/fd/$n && echo opened; done")
    assert "socket:" not in done.output
    assert "opened" not in done.output


async def test_link_in_the_place_of_a_scope_does_not_widen_it(open_project: OpenProject, backend: str) -> None:
    """A scope is a list of names, and a command may put a link to another place there before the next one."""
    project = open_project(backend).skip_if_unavailable()
    (project.beside / "file").write_text("alive")
    await project.run(f"mkdir a; ln -s {project.beside} a/b; ln -s {project.beside}/file a/c; ln -s {project.beside} d")
    scope = tuple(str(project.root / name) for name in ("a", "a/b", "a/c", "d", "d/file"))
    done = await project.run(
        f"echo x >a/own; echo dead >a/b/new; echo dead >a/c; echo dead >{project.beside}/new; ls a",
        ProcessProfile("project", scope=scope),
    )
    assert done.output.splitlines()[-3:] == ["b", "c", "own"]
    assert os.listdir(project.beside) == ["file"]
    assert (project.beside / "file").read_text() == "alive"


@pytest.mark.parametrize("what", ["root", "writable", "temporary"])
async def test_link_in_the_place_of_a_writable_folder_does_not_lead_out(
    open_project: OpenProject, backend: str, what: str
) -> None:
    project = open_project(backend)
    outer = project.root
    place = outer / "a/place"
    place.mkdir(parents=True)
    session = SandboxSession(
        root=str(place if what == "root" else outer),
        home=str(project.home),
        env={**os.environ, **({"TMPDIR": str(place)} if what == "temporary" else {})},
        writable=(str(outer), *([str(place)] if what == "writable" else [])),
    )
    project.sandbox = Sandbox(session, SandboxOptions(backend))
    project.skip_if_unavailable()
    await project.run("touch a/place/before")
    await project.run(f"mv a old; mkdir a; ln -s {project.beside} a/place")
    assert place.is_symlink()
    for profile in (WRITE, ProcessProfile("project", scope=(str(outer / "old"),))):
        with suppress(SandboxUnavailable):
            await project.run(f"touch {project.beside}/after", profile)
        assert os.listdir(project.beside) == []


def keep_unchanged(argv: list[str]) -> None:
    return


async def plan_sandbox(
    project: SandboxedProject, backend: str, change: Callable[[list[str]], object]
) -> Callable[[], Awaitable[SandboxSupervisor]]:
    """Return a function that opens a sandbox for the present layout. `change` is called when the mounts are planned."""
    project.skip_if_unavailable()
    await project.sandbox.probe()
    candidate = project.sandbox._load_probe().candidate  # pyright: ignore
    session = project.sandbox._session
    layout = plan_layout(session, writes=True, scope=(str(project.root / "a/b"),))
    env = {"PATH": os.environ["PATH"]}

    def plan(fd: int) -> SandboxCommand:
        if backend == "landlock":
            argv = build_init_argv(sys.executable, fd, *build_landlock_args(layout, network=False))
        else:
            variant = BUBBLEWRAP_VARIANTS[candidate.variant]
            bwrap = find_program("bwrap", env["PATH"])
            argv = build_bubblewrap_argv(bwrap, variant, layout, sys.executable, fd, network=False)
        change(argv)
        return SandboxCommand(argv)

    return lambda: open_supervisor(plan, env)


async def run_in(supervisor: SandboxSupervisor, command: str) -> str:
    """Run a shell command in a sandbox and return its output."""
    with tempfile.TemporaryFile() as file:
        child = await supervisor.start(["sh", "-c", command], "/", os.environ, file.fileno(), file.fileno())
        running = RunningProcess(child, "", 0.0)
        running.watch()
        await running.done
        return Path(f"/proc/self/fd/{file.fileno()}").read_text()


@pytest.mark.parametrize("is_planned", [False, True], ids=["before_the_plan", "after_the_plan"])
async def test_link_put_in_while_the_sandbox_is_created_does_not_lead_out(
    open_project: OpenProject, backend: str, is_planned: bool
) -> None:
    project = open_project(backend)
    for folder in (project.root / "a/b", project.beside / "b"):
        folder.mkdir(parents=True)

    def put_link(argv: object = None) -> None:
        (project.root / "a").rename(project.root / "old")
        (project.root / "a").symlink_to("../beside")

    open_it = await plan_sandbox(project, backend, put_link if is_planned else keep_unchanged)
    if not is_planned:
        put_link()
    try:
        supervisor = await open_it()
    except SandboxSetupError as error:
        assert str(error) == f"{project.root}/a/b: replaced while the sandbox was created"
    else:
        assert backend == "landlock"
        await run_in(supervisor, f"touch {project.beside}/b/new")
        supervisor.kill()
    assert os.listdir(project.beside / "b") == []


async def test_mount_made_while_the_sandbox_is_created_prevents_it(open_project: OpenProject) -> None:
    project = open_project("bubblewrap")
    (project.root / "a/b").mkdir(parents=True)
    place = str(project.beside / "with a space")
    Path(place).mkdir()

    def add_mount(argv: list[str]) -> None:
        at = argv.index("--")
        argv[at:at] = ["--bind", place, place]

    open_it = await plan_sandbox(project, "bubblewrap", add_mount)
    with pytest.raises(SandboxSetupError, match=f"^{place}: mounted while the sandbox was created$"):
        await open_it()


async def test_landlock_keeps_later_mounts_read_only_if_the_sandbox_has_no_capabilities(
    open_project: OpenProject,
) -> None:
    """As with the AppArmor profile of some distributions. /run stands for a file system that was mounted later."""
    project = open_project("bubblewrap")
    (project.root / "a/b").mkdir(parents=True)

    def drop_capabilities(argv: list[str]) -> None:
        at = argv.index("CAP_SYS_ADMIN")
        del argv[at - 1 : at + 1]

    for change, is_writable in ((keep_unchanged, True), (drop_capabilities, False)):
        open_it = await plan_sandbox(project, "bubblewrap", change)
        if not find_landlock_abi():
            with pytest.raises(SandboxSetupError, match=r"^unshare: Operation not permitted$"):
                await open_it()
            return
        supervisor = await open_it()
        done = await run_in(
            supervisor, f"touch /run/new && echo written; cd {project.root}/a/b && echo own >x && mv x y; cat y"
        )
        supervisor.kill()
        assert ("written" in done) is is_writable
        assert done.endswith("own\n")


async def test_processes_of_the_machine_cannot_be_signaled_without_a_pid_namespace(tmp_path: Path) -> None:
    if find_landlock_abi() < 6:
        pytest.skip("this kernel cannot block signals")
    variant = SandboxCandidate("bubblewrap", BUBBLEWRAP_VARIANTS.index(BubblewrapVariant(user=True, processes=False)))
    skip_without_sandbox("bubblewrap")
    supervisor = await open_sandbox(variant, EMPTY_LAYOUT, network=False, path=os.environ["PATH"])
    try:
        assert "not permitted" in await run_in(supervisor, f"sleep 9 & kill $! && kill -0 {os.getpid()}")
    finally:
        supervisor.kill()


LINKS = [".github", ".vscode", ".git/modules", ".git/worktrees", ".git/hooks", ".config", ".cargo"]


@pytest.mark.parametrize("name", LINKS)
async def test_links_in_a_project_do_not_cause_a_weaker_sandbox(
    open_project: OpenProject, name: str, tmp_path: Path
) -> None:
    project = open_project("bubblewrap").skip_if_unavailable()
    project.sandbox.kill()
    elsewhere = tmp_path / "elsewhere"
    for folder in ("workflows", "part/hooks", "git", "odin"):
        (elsewhere / folder).mkdir(parents=True)
    (elsewhere / "settings.json").write_text("{}")
    (project.root / ".git").mkdir()
    (project.root / name).symlink_to(elsewhere)
    chosen = Sandbox(
        SandboxSession(root=str(project.root), home=str(project.home), env=os.environ), SandboxOptions("auto")
    )
    try:
        await chosen.probe()
        assert (chosen.kind, chosen.problem) == ("bubblewrap", "")
        assert await chosen.should_sandbox("true", WRITE)
    finally:
        chosen.kill()


async def test_sandbox_that_cannot_be_created_is_not_replaced_by_a_weaker_one(
    open_project: OpenProject, tmp_path: Path
) -> None:
    """A sandbox that works on the machine but cannot be created now is not replaced by a weaker one."""
    skip_without_sandbox("bubblewrap")
    project = open_project("auto")
    await project.sandbox.probe()
    assert project.sandbox.kind == "bubblewrap"
    project.sandbox.kill()
    probe_file = tmp_path / "probe_file.json"
    session = SandboxSession(
        root=str(project.root), home=str(project.home), env=os.environ, visible=("/proc/self/gone",)
    )
    sandbox = SandboxWithMissingPaths(session, SandboxOptions("auto"), probe_file)
    try:
        sandbox.missing_paths = ("/sys/kernel/no/such/project",)
        assert await sandbox.should_sandbox("true", WRITE)
        with pytest.raises(SandboxUnavailable, match="works on this machine but could not be created now"):
            await sandbox.start(["true"], "/", {}, 1, 2, WRITE)
        assert sandbox.kind == "bubblewrap"
        assert load_probe(probe_file, lambda: "") is None
        assert not probe_file.exists()
        sandbox.missing_paths = ()
        assert await sandbox.should_sandbox("true", WRITE)
        (await sandbox.start(["true"], "/", {}, 1, 2, WRITE)).detach()
        assert sandbox.problem == ""
    finally:
        sandbox.kill()


class SandboxWithMissingPaths(Sandbox):
    """A sandbox whose layout hides a path that does not exist."""

    missing_paths: tuple[str, ...] = ()

    async def _plan(self, use: SandboxUse):
        plan = plan_layout(self._session, writes=use[0])
        self._layouts[use] = type(plan)(
            plan.temporary,
            plan.persistent,
            plan.writable,
            plan.pinned,
            plan.protected,
            self.missing_paths,
            plan.visible,
        )
        return self._layouts[use]


@pytest.mark.parametrize("folder", ["project", "project/.venv/bin", "writable"])
async def test_sandbox_programs_in_writable_folders_are_not_used(folder: str, tmp_path: Path) -> None:
    """A command could put them there, and Odin would start them unsandboxed."""
    planted = tmp_path / folder
    planted.mkdir(parents=True)
    (tmp_path / "project").mkdir(exist_ok=True)
    for name in ("bwrap", "nsenter"):
        (planted / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
        (planted / name).chmod(0o755)
    env = {"PATH": f"{planted}:{os.environ['PATH']}:.:", "HOME": str(tmp_path / "home")}
    session = SandboxSession(
        root=str(tmp_path / "project"), home=env["HOME"], env=env, writable=(str(tmp_path / "writable"),)
    )
    searched = find_writable_folders(session).filter_path(session.env["PATH"]).split(os.pathsep)
    assert str(planted) not in searched and "" not in searched
    sandbox = Sandbox(session)
    await sandbox.probe()
    await sandbox.close()
    assert not (tmp_path / "ran").exists()


async def test_odin_folders_are_protected_if_the_home_is_the_project(
    open_project: OpenProject, backend: str, tmp_path: Path
) -> None:
    """Settings with hooks, or a cached result that no sandbox works, would affect the next session."""
    project = open_project(backend)
    home = project.root
    own = [home / ".config/odin", home / ".local/state/odin", home / ".cache/odin"]
    own[2].mkdir(parents=True)
    (own[2] / "sandbox.json").write_text("true")
    (home / ".ssh").mkdir()
    (home / ".ssh/key").write_text("SECRET")
    session = SandboxSession(root=str(home), home=str(home), env=os.environ, odin_folders=tuple(map(str, own)))
    project.sandbox = Sandbox(session, SandboxOptions(backend))
    project.skip_if_unavailable()
    for name in (".config", ".local/state", ".cache"):
        await project.run(f"echo forged >{name}/odin/sandbox.json; echo '{{}}' >{name}/odin/odinconfig.json")
        await project.run(f"mv {name} away; mkdir -p {name}/odin; echo forged >{name}/odin/sandbox.json")
    assert (own[2] / "sandbox.json").read_text() == "true"
    assert [os.listdir(folder) for folder in own] == [[], [], ["sandbox.json"]]
    assert "SECRET" not in (await project.run("cat .ssh/key; mv .ssh open; cat open/key")).output
    if backend == "bubblewrap":
        assert (await project.run("mkdir -p src && echo x >src/file; cat src/file")).output == "x\n"


CONNECT = """python3 -c "
import os, socket, sys
os.chdir(os.path.dirname(sys.argv[1]))
socket.socket(socket.AF_UNIX).connect(os.path.basename(sys.argv[1])); print('reached')
" """


@contextmanager
def listening_socket() -> Generator[str]:
    """Listen on a named socket deep in a folder and yield its path, which may not be as long as those of tmp_path."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        path = Path(folder, "deep/er/daemon.sock").resolve()
        path.parent.mkdir(parents=True)
        server.bind(str(path))
        server.listen()
        yield str(path)


async def test_daemon_cannot_be_reached(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    with listening_socket() as path:
        project.skip_if_unavailable()
        for profile in (WRITE, READ_ONLY):
            done = await project.run(f"{CONNECT} {path}", profile)
            assert "reached" not in done.output
            assert done.code != 0


async def test_daemon_that_started_later_cannot_be_reached(open_project: OpenProject) -> None:
    project = open_project("bubblewrap").skip_if_unavailable()
    for profile in (WRITE, READ_ONLY):
        await project.run("true", profile)
    with listening_socket() as path:
        for profile in (WRITE, READ_ONLY):
            assert "reached" not in (await project.run(f"{CONNECT} {path}", profile)).output


async def test_secret_that_was_created_or_replaced_later_is_hidden(open_project: OpenProject) -> None:
    """Programs replace a file by renaming a new one, and the mount that hides the old file ends with it."""
    project = open_project("bubblewrap")
    (project.home / ".config").mkdir()
    (project.home / ".netrc").write_text("SECRET")
    (project.root / ".envrc").write_text("mine")
    project.skip_if_unavailable()
    for profile in (WRITE, READ_ONLY):
        await project.run("true", profile)
    for folder, name in ((project.home, ".netrc"), (project.root, ".envrc")):
        (folder / "new").write_text("SECRET")
        (folder / "new").rename(folder / name)
    (project.home / ".config/gh").mkdir()
    (project.home / ".config/gh/hosts.yml").write_text("SECRET")
    for profile in (WRITE, READ_ONLY):
        done = await project.run(
            f"cat {project.home}/.netrc {project.home}/.config/gh/hosts.yml; echo x >.envrc", profile
        )
        assert "SECRET" not in done.output
    assert (project.root / ".envrc").read_text() == "SECRET"


@pytest.mark.slow
async def test_server_in_the_same_sandbox_can_be_reached(open_project: OpenProject) -> None:
    project = open_project("bubblewrap").skip_if_unavailable()
    server = "import socket,time; s=socket.socket(socket.AF_UNIX); s.bind('own.sock'); s.listen(); time.sleep(100)"
    task = asyncio.create_task(project.run(f'python3 -c "{server}"', timeout=LIMIT_S))
    await until((project.root / "own.sock").exists)
    done = await project.run(
        f"until {CONNECT} {project.root}/own.sock 2>errors; do grep -q refused errors || exit; done"
    )
    assert done.output == "reached\n"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


TRY_SOCKET_FAMILIES = """python3 -c "
import socket
for family, kind in ((2, 1), (2, 2), (10, 1), (10, 2), (40, 1)):
    try:
        made = socket.socket(family, kind)
        made.connect({2: ('192.0.2.1', 9), 10: ('2001:db8::1', 9), 40: (2, 9)}[family])
        print('reached', family, kind)
    except OSError as error:
        print(error.strerror)
" """


async def test_no_socket_family_reaches_the_network(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend).skip_if_unavailable()
    for profile in (WRITE, READ_ONLY):
        done = await project.run(TRY_SOCKET_FAMILIES, profile)
        assert len(done.output.splitlines()) == 5, done.output
        assert "reached" not in done.output


async def test_abstract_sockets_cannot_be_reached_with_the_network_on(open_project: OpenProject) -> None:
    project = open_project("bubblewrap", network=True).skip_if_unavailable()
    name = f"odin-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}'); print('reached')"
        done = await project.run(f'python3 -c "{code}"')
    if find_landlock_abi() < 6:
        pytest.skip("this kernel cannot block abstract sockets")
    assert "reached" not in done.output


async def test_new_link_at_a_protected_path_is_reported(open_project: OpenProject) -> None:
    project = open_project("bubblewrap").skip_if_unavailable()
    done = await project.run("echo 'echo hi' >plain; ln -s plain .envrc; mkdir x; ln -s x .vscode")
    assert done.tampered_files == (".envrc", ".vscode")


async def test_many_submodules_do_not_displace_protected_files(open_project: OpenProject) -> None:
    project = open_project("bubblewrap")
    for number in range(60):
        folder = project.root / f".git/modules/m{number}"
        (folder / "hooks").mkdir(parents=True)
        for name in ("config", "commondir", "config.worktree"):
            (folder / name).write_text("")
    (project.root / ".envrc").write_text("mine")
    project.skip_if_unavailable()
    await project.run("echo yours >.envrc")
    assert (project.root / ".envrc").read_text() == "mine"


async def test_parent_of_a_protected_folder_cannot_be_moved(open_project: OpenProject) -> None:
    project = open_project("bubblewrap")
    (project.root / ".github/workflows").mkdir(parents=True)
    (project.root / ".github/workflows/ci.yml").write_text("mine")
    project.skip_if_unavailable()
    done = await project.run("mv .github away && mkdir -p .github/workflows && echo x >.github/workflows/ci.yml")
    assert (project.root / ".github/workflows/ci.yml").read_text() == "mine"
    assert done.denial == f"changing {project.root}/.github"


async def test_command_cannot_change_the_environment_of_the_next(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend).skip_if_unavailable()
    first = "export LD_PRELOAD=/tmp/x.so BASH_ENV=/tmp/x PATH=/tmp:$PATH; umask 0; cd /; ulimit -n 64; trap '' TERM"
    await project.run(first)
    done = await project.run('echo "$LD_PRELOAD$BASH_ENV"; echo "$PATH"; pwd')
    assert done.output == f"\n{os.environ['PATH']}\n{project.root}\n"
