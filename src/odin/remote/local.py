"""Finds the process on this machine that has a session open, and connects to it.

Such a process listens on a Unix socket, which its id and start time locate; the locks of its sessions tell them. Beside
it lies the secret that a client presents.
"""

import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odin.remote.connection import Connection

LOCAL_URL = "http://odin"
_MAX_SOCKET_PATH = 100


def locate_secret(socket: Path) -> Path:
    return socket.with_suffix(".secret")


@contextmanager
def shorten_path(path: Path) -> Generator[str]:
    """Give a name for this socket that is short enough for the kernel, in which a path has at most 107 bytes."""
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


def connect_local(socket: Path, place: str) -> "Connection | None":
    """Return a connection to the process that listens there; None if none does."""
    from odin.remote.connection import Connection

    try:
        secret = locate_secret(socket).read_text(encoding="ascii")
    except (OSError, UnicodeError):
        return None
    resources = ExitStack()
    name = resources.enter_context(shorten_path(socket))
    return Connection(LOCAL_URL, secret, socket=name, place=place, resources=resources)
