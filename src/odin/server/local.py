"""The Unix socket of a process that has sessions open, for other Odin processes of the same user.

Nothing of the server is loaded before the first connection. A client presents the secret that lies beside the socket,
which commands cannot read in the sandbox. The kernel says which process connects: one that the session has started, or
that runs below such a one, is refused.
"""

import asyncio
import os
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odin.config import Options, make_private_folder
from odin.config.paths import locate_socket, make_environment
from odin.core.errors import OdinError
from odin.core.rights import Right
from odin.host.manager import SessionManager
from odin.remote.local import locate_secret, shorten_path
from odin.session.lock import read_start_time

if TYPE_CHECKING:
    from odin.remote.protocol import Paired, Pairing, ShareLink
    from odin.server.http import HttpServer
    from odin.server.sessions import HostedSessions
    from odin.server.shares import OpenedShare

_IDLE_S = 60.0
_COMMAND_MARK = b"ODIN_COMMAND="
"""The variable in the environment of everything that a session starts."""

CLIENT_NAME = "another terminal"


class LocalListener:
    """Serves the sessions of one manager. Use it as a context: it closes the sessions that only its clients have."""

    def __init__(self, manager: SessionManager, options: Options, state: Path) -> None:
        self._manager = manager
        self._options = options
        self._state = state
        self._path: Path | None = None
        self._listener: socket.socket | None = None
        self._secret = ""
        self._server: asyncio.Task[HttpServer] | None = None
        self._sessions: HostedSessions | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "LocalListener":
        """Listen. Without a socket, other processes cannot attach, and everything else works."""
        with suppress(OSError, OdinError):
            self._listen()
        return self

    def _listen(self) -> None:
        path = locate_socket(self._state, os.getpid(), read_start_time(os.getpid()))
        make_private_folder(path.parent)
        remove_unused_sockets(path.parent)
        self._secret = os.urandom(32).hex()
        secret = locate_secret(path)
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(self._secret)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            with shorten_path(path) as name:
                listener.bind(name)
            path.chmod(0o600)
            listener.listen(64)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._path, self._listener = path, listener
        asyncio.get_running_loop().add_reader(listener, self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(OSError):
            connection, _ = self._listener.accept()
            task = asyncio.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        if not is_foreign(connection):
            connection.close()
            return
        if self._server is None:
            self._server = asyncio.create_task(self._start_server())
        connection.setblocking(False)
        try:
            server = await asyncio.shield(self._server)
        except BaseException as error:
            connection.close()
            if isinstance(error, OdinError | OSError):  # the client says that it cannot attach
                self._server = None
                return
            raise
        await server.accept(connection)

    async def _start_server(self) -> "HttpServer":
        await asyncio.to_thread(load_server)
        from odin.config import load
        from odin.server.application import Application
        from odin.server.http import HttpServer
        from odin.server.sessions import HostedSessions

        environment = make_environment(self._options.env, self._options.cwd, self._options.state_dir)
        root = load(environment.cwd, environment.variables, trust=self._options.trust).root
        self._sessions = HostedSessions(self._manager, self._options, (root,), idle_s=_IDLE_S, answers=False)
        return HttpServer(Application(self._sessions, SecretAccess(self._secret), environment))

    async def __aexit__(self, *_: object) -> None:
        if self._listener is None or self._path is None:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        for path in (self._path, locate_secret(self._path)):
            path.unlink(missing_ok=True)
        if self._sessions is not None:
            await self._sessions.close()
        if self._server is not None:
            self._server.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await (await self._server).close()


def load_server() -> None:
    """Import the server, and keep what its libraries log off the terminal: Odin says itself what matters."""
    import logging
    from importlib import import_module

    logging.getLogger("uvicorn").addHandler(logging.NullHandler())
    logging.getLogger("uvicorn").propagate = False
    for name in ("odin.server.application", "odin.server.http"):
        import_module(name)


class SecretAccess:
    """Who knows the secret may do everything."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def check_origin(self, scope: Any) -> None:
        """No page can open a Unix socket."""

    def identify(self, token: str, scope: Any) -> tuple[str, Right]:
        import hmac

        from odin.server.application import Unauthorized

        if not hmac.compare_digest(token.encode(), self._secret.encode()):
            raise Unauthorized("The secret is wrong.", "Try again: the process may have been restarted.")
        return CLIENT_NAME, "approve"

    def is_valid(self, token: str) -> bool:
        return True

    async def pair(self, pairing: "Pairing", scope: Any) -> "Paired":
        from odin.core.errors import UsageError

        raise UsageError("Nothing is paired here.", "Use `odin serve`.")

    async def open_share(self, link: "ShareLink", scope: Any) -> "OpenedShare":
        from odin.core.errors import UsageError

        raise UsageError("Nothing is shared here.", "Use `odin serve`.")

    def log(self, scope: Any, name: str, status: int, what: str = "") -> None:
        pass


def is_foreign(connection: socket.socket) -> bool:
    """True if a process of the same user connects that no Odin session has started."""
    pid = find_peer(connection)
    if pid == 0:
        return True
    if pid == (own := os.getpid()):
        return True
    is_peer = True
    while pid > 1:
        try:
            is_marked = _COMMAND_MARK in Path(f"/proc/{pid}/environ").read_bytes()
        except PermissionError:
            is_marked = is_peer  # parents may belong to others, such as sshd
        except OSError:
            return False
        if is_marked or (pid == own and not is_peer):
            return False
        pid, is_peer = _read_parent(pid), False
    return pid >= 0


def _read_parent(pid: int) -> int:
    """Return the parent of a process; -1 if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1


def find_peer(connection: socket.socket) -> int:
    """Return the process at the other end; -1 for one of another user or container, 0 if the system does not say."""
    if sys.platform != "linux":
        return 0
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid if pid > 0 and user == os.getuid() else -1


def remove_unused_sockets(folder: Path) -> None:
    """Remove the sockets and secrets of processes that are gone."""
    for path in folder.iterdir():
        pid, _, birth = path.stem.partition("-")
        if pid.isdigit() and read_start_time(int(pid)) != birth:
            path.unlink(missing_ok=True)
