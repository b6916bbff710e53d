"""The files that new bytes wait in until they take their place.

A temporary is named `.NAME.odin-PID-TIME` and lies beside the file it is for. Its writer holds a lock on it, so one
whose writer was killed can be told from one in use, also when the writer runs in another container. The first write of
a process in a folder removes those that were left there. A copy (`.NAME.odin-copy-PID-TIME`) may be the only whole text
of a file that is being rewritten in place: nobody else removes it.
"""

import contextlib
import os
import re
import time
from pathlib import Path

_MAX_NAME_BYTES = 200
_NAME_PATTERN = re.compile(r"\..+\.odin-(copy-)?(\d+)-[0-9a-f]+")
_MAX_ENTRIES = 20_000

_swept: set[str] = set()


def is_temporary(path: str) -> bool:
    """Whether a file of this name is Odin's own, for a moment or left by a crash, and not the user's."""
    return ".odin-" in path and _NAME_PATTERN.fullmatch(path.rpartition("/")[2]) is not None


def make_sibling_name(target: str) -> str:
    """A new name next to `target`."""
    return _make_name(os.path.dirname(target), target)  # noqa: PTH120


def make_temp_folder_name(target: str) -> str:
    """A new name in the system's folder for temporary files, for a target whose own folder takes no new ones."""
    import tempfile

    return _make_name(tempfile.gettempdir(), target)


def make_copy_name(temporary: str) -> str:
    head, _, tail = temporary.rpartition(".odin-")
    return f"{head}.odin-copy-{tail}"


def _make_name(folder: str, target: str) -> str:
    short = os.fsencode(Path(target).name)[:_MAX_NAME_BYTES].decode("utf-8", "ignore") or "file"
    return f"{folder.rstrip('/')}/.{short}.odin-{os.getpid()}-{time.time_ns():x}"


def create_locked(path: str, *, private: bool) -> int:
    """Make a new file, locked for as long as it is open. `private`: nobody else may read it until it is told so."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if private else 0o666)
    _try_lock(fd)
    return fd


def sweep_leftovers(folder: str) -> None:
    """Remove what killed processes left in this folder. It is looked through once in the life of a process."""
    if folder in _swept:
        return
    _swept.add(folder)
    with contextlib.suppress(OSError), os.scandir(folder or "/") as entries:
        for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False):
            found = _NAME_PATTERN.fullmatch(entry.name) if ".odin-" in entry.name else None
            if found and not found[1] and not _is_alive(int(found[2])):
                _remove_if_free(entry.path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _remove_if_free(path: str) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if _try_lock(fd):
                Path(path).unlink()
        finally:
            os.close(fd)


def _try_lock(fd: int) -> bool:
    """Take the file for ourselves. Where there are no locks the process id alone decides."""
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True
