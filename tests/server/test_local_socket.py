"""The Unix socket of a process with open sessions: who may attach, and what its commands may not do."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from odin.config import Options
from odin.config.paths import locate_socket
from odin.core.client import Client
from odin.core.errors import OdinError
from odin.core.op import Answer, Prompt, RunUserShell
from odin.host.manager import SessionManager
from odin.remote.connection import Connection
from odin.remote.local import LOCAL_URL, connect_local, locate_secret
from odin.remote.sessions import RemoteSessions
from odin.sandbox.layout import has_reachable_socket
from odin.server.local import LocalListener, find_peer, is_foreign
from odin.session.lock import read_start_time
from odin.testing import ScriptedServer, call, say
from tests.sandbox.sandboxes import SandboxedProject
from tests.waiting import TimeLimit

NOBODY = 65534

PROBE = """
import os, socket, sys
where, told = sys.argv[1:3]

def probe():
    try:
        secret = open(where.replace(".sock", ".secret")).read()
    except OSError:
        secret = ""
    try:
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(20)
        one.connect(where)
        one.sendall(f"GET /me HTTP/1.1\\r\\nHost: odin\\r\\nAuthorization: Bearer {secret}\\r\\n\\r\\n".encode())
        answer = one.recv(1000).decode()
    except OSError:
        answer = ""
    return ("secret, " if secret else "no secret, ") + ("served" if " 200 " in answer else "refused")

said = probe()
with open(told + ".new", "w") as file:
    file.write(said)
os.rename(told + ".new", told)
"""


def make_options(server: ScriptedServer, workspace: Path, **more: object) -> Options:
    return Options(env={**os.environ, **server.env("anthropic")}, cwd=str(workspace), **more)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def where(home: Path) -> Path:
    return locate_socket(home / ".local/state/odin", os.getpid(), read_start_time(os.getpid()))


def test_it_is_for_the_user_alone_and_leftovers_are_removed(workspace: Path, where: Path) -> None:
    async def listen() -> None:
        with ScriptedServer([]) as server:
            where.parent.mkdir(parents=True, mode=0o700)
            gone = subprocess.Popen(["true"])
            gone.wait()
            for name in (f"{gone.pid}-123.sock", f"{gone.pid}-123.secret", f"{os.getpid()}-1.sock"):
                (where.parent / name).touch()
            alive = where.parent / f"1-{read_start_time(1)}.sock"
            alive.touch()
            async with LocalListener(SessionManager(), make_options(server, workspace), where.parent.parent):
                modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in where.parent.iterdir()}
                assert stat.S_IMODE(where.parent.stat().st_mode) == 0o700
                secret = locate_secret(where)
                alive.unlink()
                assert modes.pop(alive.name)
                assert modes == {where.name: 0o600, secret.name: 0o600}
                assert len(secret.read_text()) == 64
            assert list(where.parent.iterdir()) == []

    mask = os.umask(0)
    try:
        asyncio.run(listen())
    finally:
        os.umask(mask)


async def test_a_wrong_secret_is_refused(workspace: Path, where: Path) -> None:
    with ScriptedServer([]) as server:
        async with LocalListener(SessionManager(), make_options(server, workspace), where.parent.parent):
            right = locate_secret(where).read_text()
            for secret in ("", "wrong", right[:-1], right + "x", right.upper()):
                connection = Connection(LOCAL_URL, secret or "none", socket=str(where))
                with pytest.raises(OdinError, match="The secret is wrong"):
                    await connection.call("all")
                await connection.close()
            known = connect_local(where, "it")
            assert known is not None
            assert (await known.call("me")).right == "approve"
            await known.close()


async def test_a_prompt_that_a_server_passes_on_stays_marked(workspace: Path, where: Path, tmp_path: Path) -> None:
    """`odin serve` attaches to a session of another process with all rights; its own client may have fewer."""
    secret = tmp_path / "secret.txt"
    secret.write_text("the launch code")
    with ScriptedServer([say("one")]) as server:
        options = make_options(server, workspace)
        manager = SessionManager()
        async with LocalListener(manager, options, where.parent.parent):
            client = await manager.open(options)
            connection = connect_local(where, "it")
            assert connection is not None
            remote = RemoteSessions(connection, client.session.id)
            await remote.client.submit(Prompt("p1", f"read @{secret}", source="channel"))
            async with TimeLimit():
                while (shot := await client.snapshot()).executing or not shot.messages:
                    await asyncio.sleep(0.01)
            assert shot.messages[0].source == "channel"
            assert "the launch code" not in repr(server.requests[0].body)
            await remote.close()
            await client.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        listener.bind(str(folder / "s"))
        (folder / "s").chmod(0o666)
        listener.listen()
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            with suppress(BaseException):
                os.chdir(folder)
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                with socket.socket(socket.AF_UNIX) as one:
                    one.connect("s")
                    one.recv(1)
            os._exit(0)
        listener.settimeout(10)
        connection, _ = listener.accept()
        with connection:
            assert find_peer(connection) == -1
            assert not is_foreign(connection)
        os.waitpid(pid, 0)


async def run_probes(client: Client, workspace: Path, names: list[str]) -> dict[str, str]:
    async with TimeLimit():
        while not all((workspace / name).exists() for name in names):
            for asked in (await client.snapshot()).interactions:
                await client.submit(Answer(asked.id, "allow_once"))
            await asyncio.sleep(0.02)
    return {name: (workspace / name).read_text() for name in names}


async def test_what_a_session_starts_cannot_attach(workspace: Path, home: Path, where: Path, tmp_path: Path) -> None:
    """Not in the sandbox, not after an approval, not in the background, as a hook, an MCP server or a `!` command."""
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    python = f"{sys.executable} -I -S {probe} {where}"
    hook = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": f"{python} {workspace}/hook"}]}]}
    arguments = ["-I", "-S", str(probe), str(where), str(workspace / "server")]
    config = {
        "hooks": hook,
        "mcp": {"mine": {"command": sys.executable, "args": arguments}},
        "sandbox": {"unsandboxed_commands": [f"{sys.executable} -I"]},
    }
    (home / ".config/odin").mkdir(parents=True)
    (home / ".config/odin/odinconfig.json").write_text(json.dumps(config))
    mine = {
        "shell": f"{python} shell",
        "scrubbed": f"env -i {python} scrubbed",
        "setsid": f"setsid {python} setsid; true",
        "daemon": f"(setsid {python} daemon &) ; true",
    }
    script = [
        call("Bash", {"command": f"{python} approved"}),
        call("Spawn", {"command": f"{python} background"}),
        call("Bash", {"command": f"true; {python} sandboxed"}),
        say("done"),
        *[say("done")] * 3,
    ]
    with ScriptedServer(script) as server:
        options = make_options(server, workspace, can_ask=True)
        manager = SessionManager()
        async with LocalListener(manager, options, where.parent.parent):
            client = await manager.open(options)
            await client.submit(Prompt("p1", "go"))
            names = ["hook", "server", "approved", "background"]
            for name, command in mine.items():
                await client.submit(RunUserShell(name, command))
            told = await run_probes(client, workspace, [*names, *mine, "sandboxed"])
            await client.close()
    in_sandbox = told.pop("sandboxed")
    assert set(told.values()) == {"secret, refused"}, told
    assert in_sandbox == "no secret, refused"


async def test_the_own_socket_does_not_forbid_sockets_in_a_landlock_sandbox(
    workspace: Path, where: Path, tmp_path: Path
) -> None:
    with ScriptedServer([]) as server:
        before = has_reachable_socket(())
        async with LocalListener(SessionManager(), make_options(server, workspace), where.parent.parent):
            assert has_reachable_socket(()), "the socket itself is reachable"
            assert has_reachable_socket((str(where.parent),)) is before
            locate_secret(where).unlink()
            assert has_reachable_socket((str(where.parent),)), "one without a secret is no exception"
    folder = tmp_path / "case"
    folder.mkdir()
    project = SandboxedProject(folder, "landlock", odin_folders=(str(where.parent),)).skip_if_unavailable()
    try:
        with ScriptedServer([]) as server:
            async with LocalListener(SessionManager(), make_options(server, workspace), where.parent.parent):
                secret = locate_secret(where).read_text()
                done = await project.run(f"cat {locate_secret(where)}; echo end")
        assert done.output.endswith("Permission denied\nend\n")
        assert secret not in done.output
    finally:
        await project.close()
