"""The user's own files are written whole or not at all, by one process at a time, and for nobody else's eyes."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from odin.config.places import make_private_folder
from odin.core.errors import ConfigError

PRIVATE_MODE = 0o600


@contextmanager
def lock_file(path: Path, patience: float = 10.0) -> Generator[None]:
    """Alone among the writers of this file: each reads what the one before has written."""
    beside = make_private_folder(path.parent) / f"{path.name}.lock"
    try:
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
    except OSError as error:
        raise make_write_error(beside, error) from error
    try:
        _wait_for_lock(fd, beside, patience)
        yield
    finally:
        os.close(fd)


def _wait_for_lock(fd: int, path: Path, patience: float) -> None:
    try:
        import fcntl
    except ImportError:  # Windows has no flock; there the last writer wins.
        return
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise ConfigError(f"{path} is held by another process.", "Try again when it has ended.") from error
            time.sleep(0.02)
        else:
            return


def write_atomically(path: Path, data: bytes, mode: int = PRIVATE_MODE) -> None:
    """New bytes in the place of the old ones. A link is followed, so that a file kept elsewhere stays there."""
    target = Path(os.path.realpath(path))
    fresh = target.with_name(f".{target.name}.{os.getpid()}.{time.monotonic_ns():x}")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode != PRIVATE_MODE:
            fresh.chmod(mode)
        fresh.replace(target)
    except BaseException as error:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise make_write_error(path, error) from error
        raise


def make_write_error(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror or error}.", "Make its folder writable.")
