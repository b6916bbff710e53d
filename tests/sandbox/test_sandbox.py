"""Commands in real sandboxes: what they can and cannot do, and what they leave behind."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odin.core.profile import ProcessProfile
from odin.sandbox.backends import find_landlock_abi
from odin.sandbox.output import HeadTailBuffer
from odin.sandbox.runner import SandboxUnavailable
from tests.waiting import LIMIT_S, until

from .processes import is_alive, list_processes
from .sandboxes import READ_ONLY, UNSANDBOXED, WRITE, SandboxedProject

OpenProject = Callable[..., SandboxedProject]


@pytest.fixture
async def open_project(tmp_path: Path) -> AsyncIterator[OpenProject]:
    opened: list[SandboxedProject] = []

    def open_one(backend: str, **more: object) -> SandboxedProject:
        folder = tmp_path / f"project{len(opened)}"
        folder.mkdir()
        project = SandboxedProject(folder, backend, **more)  # pyright: ignore[reportArgumentType]
        opened.append(project)
        return project.skip_if_unavailable()

    yield open_one
    for project in opened:
        await project.close()


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@contextmanager
def listening_port() -> Generator[int]:
    """Listen on a port outside the sandbox and yield its number."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def make_connect_command(port: int) -> str:
    return f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"


async def test_the_project_and_temporary_files_can_be_written(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    done = await project.run('echo a >made && f=$(mktemp) && echo b >"$f" && cat made "$f" && rm "$f"; echo $?')
    assert done.output == "a\nb\n0\n"
    assert (project.root / "made").read_text() == "a\n"
    assert (done.code, done.denial, done.tampered_files) == (0, "", ())


async def test_other_folders_cannot_be_written(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    canary = project.beside / "canary"
    canary.write_text("alive")
    done = await project.run(
        f"echo dead >{canary}; touch {project.beside}/new; mv {canary} {canary}2; touch /etc/odin-canary"
    )
    assert canary.read_text() == "alive"
    assert os.listdir(project.beside) == ["canary"]
    assert not Path("/etc/odin-canary").exists()
    assert done.code != 0
    assert done.denial == f"writing {canary}"


async def test_read_only_sandbox_can_write_nothing(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    (project.root / "file").write_text("alive")
    done = await project.run("cat file; echo dead >file; touch new /tmp/odin-looks-canary; mkdir folder", READ_ONLY)
    assert done.output.startswith("alive")
    assert os.listdir(project.root) == ["file"]
    assert (project.root / "file").read_text() == "alive"
    assert not Path("/tmp/odin-looks-canary").exists()
    assert done.denial == f"writing {project.root}/file"


async def test_temporary_files_can_be_created_in_every_mode(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    for profile in (WRITE, READ_ONLY):
        done = await project.run('f=$(mktemp) && echo x >"$f" && cat "$f" && rm "$f"', profile)
        assert (done.code, done.output) == (0, "x\n")


async def test_temporary_folder_can_be_next_to_the_home(
    open_project: OpenProject, tmp_path: Path, backend: str
) -> None:
    (tmp_path / "tmp").mkdir()
    project = open_project(backend, environ={"TMPDIR": str(tmp_path / "tmp")})
    done = await project.run('f=$(mktemp) && echo x >"$f" && cat "$f" && dirname "$f"')
    folder = f"{tmp_path}/tmp"
    if backend == "landlock":  # it cannot show other files there
        folder = f"{project.sandbox._folder.temporary}/0"  # pyright: ignore[reportPrivateUsage]
    assert (done.code, done.output) == (0, f"x\n{folder}\n")
    assert not list((tmp_path / "tmp").iterdir())
    assert (await project.run(f"touch {project.home}/made {tmp_path}/made")).code == 1
    assert not (project.home / "made").exists()
    assert not (tmp_path / "made").exists()


async def test_link_does_not_allow_writing_outside_the_project(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    canary = project.beside / "canary"
    canary.write_text("alive")
    await project.run(f"ln -s {project.beside} out; echo dead >out/canary; rm out/canary")
    assert canary.read_text() == "alive"


async def test_network_is_off_by_default(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    with listening_port() as port:
        for profile in (WRITE, READ_ONLY):
            done = await project.run(make_connect_command(port), profile)
            assert "reached" not in done.output
            assert done.code != 0
    offline = await project.run("echo 'curl: (6) Could not resolve host: example.invalid' >&2; exit 6")
    assert offline.denial == "reaching the network"


async def test_the_network_is_on_when_it_is_allowed(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend, network=True)
    with listening_port() as port:
        for profile in (WRITE, READ_ONLY):
            assert (await project.run(make_connect_command(port), profile)).output == "reached\n"


async def test_denial_names_the_local_port_that_cannot_be_reached(open_project: OpenProject) -> None:
    project = open_project("bubblewrap")
    with listening_port() as port:
        done = await project.run(f"echo 'connect to localhost:{port}: Connection refused'; exit 1")
        assert done.denial == f"reaching port {port} of this machine"
    closed = await project.run(f"echo 'connect to localhost:{port}: Connection refused'; exit 1")
    assert closed.denial == ""


SERVER = """python3 -c "
import socket
server = socket.create_server(('127.0.0.1', 0))
print(server.getsockname()[1], flush=True)
while True:
    server.accept()
" """


async def test_sandboxed_server_is_reachable_for_later_commands_in_every_mode(open_project: OpenProject) -> None:
    project = open_project("bubblewrap")
    server = asyncio.create_task(project.run(f"{SERVER} >port", timeout=LIMIT_S))
    port = project.root / "port"
    await until(lambda: port.exists() and port.read_text().endswith("\n"))
    for profile in (WRITE, READ_ONLY, WRITE):
        assert (await project.run(make_connect_command(int(port.read_text())), profile)).output == "reached\n"
    server.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server


async def test_secrets_of_the_home_are_hidden(open_project: OpenProject, backend: str, tmp_path: Path) -> None:
    own = tmp_path / "odins"
    own.mkdir()
    (own / "odinconfig.json").write_text("SECRET")
    session = own / "session"
    session.mkdir()
    (session / "out.txt").write_text("shown")
    project = open_project(backend, odin_folders=(str(own),), visible=(str(session),))
    for name in (".ssh/id_ed25519", ".aws/credentials", ".netrc", ".config/gh/hosts.yml"):
        path = project.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SECRET")
    (project.home / ".gitconfig").write_text("plain")
    project.sandbox.kill()
    home = project.home
    read = f"cat {home}/.ssh/* {home}/.aws/* {home}/.netrc {home}/.config/gh/* {own}/*.json"
    for profile in (WRITE, READ_ONLY):
        done = await project.run(f"{read}; cat {project.home}/.gitconfig {session}/out.txt", profile)
        assert "SECRET" not in done.output
        assert done.output.endswith("plainshown")


async def test_sockets_of_agents_and_daemons_are_hidden(open_project: OpenProject) -> None:
    project = open_project(
        "bubblewrap", environ={"SSH_AUTH_SOCK": "/tmp/agent", "DISPLAY": ":0", "XDG_RUNTIME_DIR": "/run/user/0"}
    )
    done = await project.run("env; ls -A /run | head -3")
    assert "SSH_AUTH_SOCK" not in done.output
    assert "DISPLAY" not in done.output
    assert "docker.sock" not in done.output


@pytest.mark.parametrize("command", ["exit 7", "kill -TERM $$", "kill -KILL $$", "true", "sh -c 'exit 255'"])
async def test_exit_codes_are_the_same_as_outside(open_project: OpenProject, backend: str, command: str) -> None:
    project = open_project(backend)
    inside, outside = await project.run(command), await project.run(command, UNSANDBOXED)
    assert inside.code == outside.code


async def test_missing_working_directory_raises(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    with pytest.raises(FileNotFoundError):
        await project.run("true", cwd=str(project.root / "no"))
    assert (await project.run("echo on")).output == "on\n"


async def test_a_long_command_line_and_many_variables_arrive(open_project: OpenProject) -> None:
    project = open_project("bubblewrap", environ={f"V{number}": "x" * 1000 for number in range(500)})
    done = await project.run(f"word={'y' * 100_000}; echo ${{#word}} ${{#V499}}")
    assert done.output == "100000 1000\n"


async def test_command_inherits_no_file_descriptors(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    for profile in (WRITE, READ_ONLY):
        assert (await project.run("ls /proc/$$/fd | tr '\\n' ' '", profile)).output.split()[:3] == ["0", "1", "2"]
        assert (await project.run("ls /proc/self/fd", profile)).output.split() == ["0", "1", "2", "3"], (
            "3 was opened by ls"
        )


async def test_closed_pipe_ends_its_writer(open_project: OpenProject, backend: str) -> None:
    """SIGPIPE, which the init program's interpreter ignores, works in commands."""
    project = open_project(backend)
    done = await project.run("yes | head -1; echo ${PIPESTATUS[0]}")
    assert done.output == "y\n141\n"


EndCommand = Callable[[SandboxedProject, "asyncio.Task[object]"], Awaitable[None]]


async def by_cancel(project: SandboxedProject, task: "asyncio.Task[object]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_close(project: SandboxedProject, task: "asyncio.Task[object]") -> None:
    await project.runner.close()
    await task


async def by_timeout(project: SandboxedProject, task: "asyncio.Task[object]") -> None:
    await task


@pytest.mark.parametrize("end", [by_cancel, by_close, by_timeout])
@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000",
        "trap '' TERM INT HUP; while :; do sleep 1; done",
        "setsid -f sleep 1000; sleep 1000",
        "env -i setsid -f bash -c 'exec sleep 1000'; sleep 1000",
    ],
)
async def test_ended_command_leaves_no_process(
    open_project: OpenProject, backend: str, end: EndCommand, command: str
) -> None:
    project = open_project(backend)
    task, left = await start_sleeping(project, command, 0.5 if end is by_timeout else 60.0)
    await end(project, task)
    if "env -i" in command:
        await project.runner.close()  # its mark and its group are lost, so it ends with the sandbox
    await until(lambda: not any(is_alive(pid) for pid in left))


async def start_sleeping(
    project: SandboxedProject, command: str, seconds: float
) -> "tuple[asyncio.Task[object], set[int]]":
    """Run a command until it sleeps; retry with more time on a busy machine."""
    while True:
        task: asyncio.Task[object] = asyncio.create_task(project.run(command, timeout=seconds))
        await until(lambda task=task: task.done() or bool(list_processes("sleep", project.root)))
        left = list_processes("sleep", project.root)
        if left and not task.done():
            return task, left
        assert seconds < 60, "the command ended by itself"
        seconds *= 4


@pytest.mark.parametrize("scope", [(), None])
async def test_connected_program_survives_replacement_of_the_sandbox(
    open_project: OpenProject, backend: str, scope: tuple[str, ...] | None
) -> None:
    """Odin attributes later changes of files to it only if it may write."""
    project = open_project(backend)
    heard = bytearray()
    running, pipe = await project.runner.start_connected(
        ["sh", "-c", "touch there 2>/dev/null; read line; echo got $line; read line; echo got $line; sleep 1000"],
        cwd=str(project.root),
        env={},
        on_output=heard.extend,
        errors=HeadTailBuffer(1000),
        profile=ProcessProfile(scope=scope),
    )
    pipe.write(b"one\n")
    await until(lambda: heard.endswith(b"got one\n"))
    assert (project.root / "there").exists() == (scope is None)
    await project.run("true")
    (project.root / ".envrc").write_text("from outside")
    is_replaced = backend == "bubblewrap" and scope == ()
    assert (await project.run("echo x >> .envrc" if is_replaced else "true")).code == is_replaced
    assert project.runner.take_late_changes() == (() if scope == () else (".envrc",))
    pipe.write(b"two\n")
    await until(lambda: heard.endswith(b"got two\n"))
    project.runner.kill_process(running)
    await running.done
    pipe.close()


async def test_killed_sandbox_is_created_again(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    await project.run("true")
    task = asyncio.create_task(project.run("touch begun; sleep 1000", timeout=LIMIT_S))
    await until((project.root / "begun").exists)
    project.sandbox.kill()
    assert (await task).code == -signal.SIGKILL
    assert (await project.run("echo again")).output == "again\n"


async def test_command_cannot_kill_a_process_outside_the_sandbox(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    if backend == "landlock" and find_landlock_abi() < 6:
        pytest.skip("this kernel's Landlock does not hold signals back")
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            await project.run(f"kill -KILL {stranger.pid}")
            assert is_alive(stranger.pid)
            assert (await project.run("echo on")).output == "on\n"
        finally:
            stranger.kill()


async def test_background_children_live_on_and_end_with_the_session(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    done = await project.run("sleep 1000 & echo started")
    assert done.has_survivors
    await until(lambda: bool(list_processes("sleep", project.root)))
    left = list_processes("sleep", project.root)
    await project.runner.close()
    await until(lambda: not any(is_alive(pid) for pid in left))


async def test_profile_none_runs_outside(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    canary = project.beside / "made"
    await project.run(f"touch {canary}", UNSANDBOXED)
    assert canary.exists()


async def test_commands_of_the_unsandboxed_list_run_outside(open_project: OpenProject) -> None:
    project = open_project("bubblewrap", unsandboxed_commands=("touch",))
    await project.run(f"touch {project.beside}/made")
    assert (project.beside / "made").exists()
    await project.run(f"touch {project.beside}/more; true")
    assert not (project.beside / "more").exists(), "a compound command does not match the list"


async def test_more_folders_can_be_made_writable(open_project: OpenProject, backend: str, tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    project = open_project(backend, writable=(str(extra),))
    assert (await project.run(f"touch {extra}/made")).code == 0


async def test_recreated_project_folder_is_visible(open_project: OpenProject) -> None:
    project = open_project("bubblewrap")
    await project.run("echo old >file")
    project.root.rename(project.root.with_name("gone"))
    project.root.mkdir()
    assert (await project.run("ls -A; touch new")).output == ""
    assert (project.root / "new").exists()


async def test_unavailable_sandbox_runs_no_command(tmp_path: Path) -> None:
    project = SandboxedProject(tmp_path, "bubblewrap", environ={"PATH": "/nowhere"})
    with pytest.raises(SandboxUnavailable, match="bwrap is not installed"):
        await project.run("touch made")
    assert not (project.root / "made").exists()
    assert project.sandbox.describe() == "bubblewrap does not work, commands are disabled"
    await project.close()


async def test_commands_run_without_a_sandbox_if_it_is_off(tmp_path: Path) -> None:
    project = SandboxedProject(tmp_path, "off")
    assert (await project.run("echo x")).output == "x\n"
    assert project.sandbox.describe() == "no sandbox, as configured"
    await project.close()


async def test_auto_chooses_the_strongest_sandbox(open_project: OpenProject) -> None:
    project = open_project("auto")
    await project.sandbox.probe()
    assert "untried" not in project.sandbox.describe()
    strongest = "bubblewrap" if "bubblewrap" not in project.sandbox.list_failures() else "landlock"
    assert project.sandbox.kind == strongest
    assert project.sandbox.describe() == f"{strongest}, network off"


def test_sandbox_is_described_as_untried_before_the_probe(tmp_path: Path) -> None:
    project = SandboxedProject(tmp_path, "auto")
    assert project.sandbox.kind is None
    assert project.sandbox.describe().endswith(" (untried), network off")


async def test_process_left_by_a_short_command_is_noticed(open_project: OpenProject, backend: str) -> None:
    project = open_project(backend)
    for _ in range(20):
        done = await project.run("sleep 1000 >/dev/null 2>&1 &")
        assert done.has_survivors
        assert done.pid > 0
