"""One gateway runs with a folder of the state: it holds the lock there, and whoever asks finds its process."""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from odin.core.errors import UsageError
from odin.core.private_folders import make_private_folder

GATEWAY_FOLDER = "gateway"
"""The folder of the gateway in the state folder."""

_TRIES = 10
_PAUSE_S = 0.02


@contextmanager
def hold_lock(folder: Path) -> Generator[None]:
    """Hold the lock of the gateway with this folder. Raise UsageError if another one runs."""
    fd = os.open(make_private_folder(folder) / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
                raise UsageError(f"A gateway is running already (process {pid}).", "Stop it first.") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


def find_running(folder: Path) -> str:
    """Return the id of the process of the gateway with this folder, or ""."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(fd, 20).decode(errors="replace").strip()
    finally:
        os.close(fd)
    return ""
