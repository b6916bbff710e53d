"""Folders and logs that only the user can access."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from odin.core.errors import StateUnwritable


def make_private_folder(folder: Path) -> Path:
    """Create this folder and its missing parents, accessible only to the user, and return it. Raise StateUnwritable."""
    try:
        for parent in (*reversed(folder.parents), folder):
            if not parent.is_dir():
                parent.mkdir(0o700, exist_ok=True)
    except OSError as error:
        raise _make_error(folder, error) from error
    return folder


def append_to_log(path: Path, entry: bytes, max_bytes: int) -> None:
    """Append an entry to a log. One that is larger than `max_bytes` becomes `NAME.1` first.

    Raise StateUnwritable or OSError.
    """
    make_private_folder(path.parent)
    with suppress(FileNotFoundError):
        if path.lstat().st_size > max_bytes:
            path.replace(path.with_name(f"{path.name}.1"))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, entry)
    finally:
        os.close(fd)


@contextmanager
def open_scratch(parent: Path) -> Generator[Path]:
    """Create a folder in `parent`, and remove it at the end. Raise StateUnwritable."""
    import tempfile

    try:
        scratch = tempfile.TemporaryDirectory(dir=make_private_folder(parent), ignore_cleanup_errors=True)
    except OSError as error:
        raise _make_error(parent, error) from error
    with scratch as folder:
        yield Path(os.path.realpath(folder))


def _make_error(folder: Path, error: OSError) -> StateUnwritable:
    return StateUnwritable(
        f"The folder {folder} cannot be created or written: {error.strerror or error}.",
        "Make it writable, or set another one with ODIN_STATE_DIR.",
    )
