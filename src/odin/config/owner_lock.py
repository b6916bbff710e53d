"""A lock that says who holds it: one process runs a service, and whoever asks finds its id."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from odin.core.errors import UsageError
from odin.core.private_folders import make_private_folder

_TRIES = 10
_PAUSE_S = 0.02


@contextmanager
def hold_owner_lock(path: Path, what: str, hint: str = "Stop it first.") -> Generator[None]:
    """Hold the lock in this file. Raise UsageError that names the process which holds it; `what` is what that does."""
    import fcntl

    make_private_folder(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for left in reversed(range(_TRIES)):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if left:  # somebody may only be asking, which takes no time
                    time.sleep(_PAUSE_S)
                    continue
                pid = os.read(fd, 20).decode(errors="replace").strip()
                raise UsageError(f"{what} already (process {pid}).", hint) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


def find_owner(path: Path) -> str:
    """Return the id of the process that holds the lock in this file, or ""."""
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(fd, 20).decode(errors="replace").strip()
    finally:
        os.close(fd)
    return ""
