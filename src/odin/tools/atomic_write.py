"""Writes files atomically: a reader, or a crash, sees the old file or the new one and never half of it.

New bytes go to a temporary file `.NAME.odin-PID-TIME` next to the target, which is then renamed. Its writer holds a
lock on it, so a leftover of a killed writer is recognizable, even from another container; the first write of a process
in a folder removes such leftovers. A copy `.NAME.odin-copy-PID-TIME` may be the only complete text of a file that is
being rewritten in place, so other processes never remove it.
"""

import contextlib
import errno
import os
import re
import stat
import time
from pathlib import Path

from odin.core.errors import ExternalModification
from odin.sandbox.process import SYSTEM_PATH
from odin.tools.files import Refusal

_MAX_NAME_BYTES = 200
_NAME_PATTERN = re.compile(r"\..+\.odin-(copy-)?(\d+)-[0-9a-f]+")
_MAX_ENTRIES = 20_000

_swept: set[str] = set()

_REWRITE_SECONDS = 60.0

_RENAME_REFUSED = {errno.EBUSY, errno.EPERM, errno.EACCES, errno.EXDEV}
"""Errors of rename() for a file that cannot be replaced: a mount point, or a file in a folder we cannot change."""

_REWRITE_SCRIPT = 'mv -f "$1" "$2" && cat "$2" >"$3" && { sync "$3" 2>/dev/null || sync; } && rm -f "$2"'


def is_temporary(path: str) -> bool:
    """True if this is the name of one of Odin's temporary files."""
    return ".odin-" in path and _NAME_PATTERN.fullmatch(path.rpartition("/")[2]) is not None


def make_sibling_name(target: str) -> str:
    """Return a new temporary name next to `target`."""
    return _make_name(os.path.dirname(target), target)  # noqa: PTH120


def make_temp_folder_name(target: str) -> str:
    """Return a new name in the system's temporary folder, for a target whose folder is not writable."""
    import tempfile

    return _make_name(tempfile.gettempdir(), target)


def make_copy_name(temporary: str) -> str:
    head, _, tail = temporary.rpartition(".odin-")
    return f"{head}.odin-copy-{tail}"


def _make_name(folder: str, target: str) -> str:
    short = os.fsencode(Path(target).name)[:_MAX_NAME_BYTES].decode("utf-8", "ignore") or "file"
    return f"{folder.rstrip('/')}/.{short}.odin-{os.getpid()}-{time.time_ns():x}"


def create_locked(path: str, *, private: bool) -> int:
    """Create a file that is locked while it is open. `private`: only the owner can read it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if private else 0o666)
    _try_lock(fd)
    return fd


def sweep_leftovers(folder: str) -> None:
    """Remove temporary files that killed processes left in this folder. Each folder is checked once per process."""
    if folder in _swept:
        return
    _swept.add(folder)
    with contextlib.suppress(OSError), os.scandir(folder or "/") as entries:
        for entry, _ in zip(entries, range(_MAX_ENTRIES), strict=False):
            match = _NAME_PATTERN.fullmatch(entry.name) if ".odin-" in entry.name else None
            if match and not match[1] and not _is_alive(int(match[2])):
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
    """Lock the file. True also where locks are not supported; then the process id alone decides."""
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True


def replace_file(target: str, data: bytes, before: bytes | None) -> int:
    """Write `data` to a file that contained `before` (None: it did not exist). Return its mtime in nanoseconds.

    `target` must be a real path; a symbolic link would be replaced by a file. Mode, owner and extended attributes are
    preserved. A file that cannot be replaced without changing it otherwise (hard links, a mount point, an owner that
    cannot be set) is rewritten in place instead. Raise Refusal if the file changed meanwhile.
    """
    if before is not None and not os.access(target, os.W_OK):
        raise Refusal(f"{target} is read-only.")
    folder = os.path.dirname(target)  # noqa: PTH120
    sweep_leftovers(folder)
    closed = before is not None and not os.access(folder or "/", os.W_OK | os.X_OK)
    temporary = make_temp_folder_name(target) if closed else make_sibling_name(target)
    fd = create_locked(temporary, private=before is not None)
    try:
        _write_all(fd, data)
        replaceable = _copy_metadata(fd, target) and not closed
        os.fsync(fd)
        _check_unchanged(target, before)
        if not (replaceable and _move_into_place(temporary, target, new=before is None)):
            _rewrite_in_place(temporary, target, before or b"")
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    return Path(target).stat().st_mtime_ns


def _copy_metadata(fd: int, target: str) -> bool:
    """Copy mode, owner and attributes of the old file, if it exists. False if the new file cannot replace it."""
    try:
        info = Path(target).stat()
    except FileNotFoundError:
        return True
    return info.st_nlink == 1 and _copy_attributes(fd, target, info)


def _check_unchanged(target: str, before: bytes | None) -> None:
    """Raise Refusal if the file no longer contains `before`. Called last, right before the rename."""
    try:
        fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if before is None:
            return
        raise Refusal(f"{target} was deleted in the meantime. Nothing was written.", ExternalModification) from None
    with open(fd, "rb", buffering=0) as file:  # noqa: PTH123
        if before is None or file.readall() != before:
            raise _make_changed_refusal(target)


def _make_changed_refusal(target: str) -> Refusal:
    message = f"{target} changed on disk in the meantime. Nothing was written. Read it again first."
    return Refusal(message, ExternalModification)


def _copy_attributes(fd: int, target: str, info: os.stat_result) -> bool:
    """Copy mode, owner and extended attributes. False if that is not permitted."""
    current = os.fstat(fd)
    try:
        if (current.st_uid, current.st_gid) != (info.st_uid, info.st_gid):
            os.fchown(fd, info.st_uid, info.st_gid)
        if stat.S_IMODE(current.st_mode) != stat.S_IMODE(info.st_mode):
            os.fchmod(fd, stat.S_IMODE(info.st_mode))
        _copy_xattrs(fd, target)
    except OSError:
        return False
    return True


def _copy_xattrs(fd: int, target: str) -> None:
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(target)
    except OSError:
        return
    for name in names:
        value = os.getxattr(target, name)
        if name not in os.listxattr(fd) or os.getxattr(fd, name) != value:
            os.setxattr(fd, name, value)


def _move_into_place(temporary: str, target: str, *, new: bool) -> bool:
    """Rename the temporary file to `target`. False if the old file can only be rewritten in place."""
    if new:
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise _make_changed_refusal(target) from None
        except OSError:
            Path(temporary).rename(target)
        else:
            Path(temporary).unlink()
        return True
    try:
        Path(temporary).rename(target)
    except OSError as error:
        if error.errno not in _RENAME_REFUSED:
            raise
        return False
    return True


def _rewrite_in_place(temporary: str, target: str, before: bytes) -> None:
    """Copy the temporary file into the old file.

    A separate process in its own session does it, so that it finishes even if this process is killed. The copy it reads
    from stays until it is done; if it fails, the old bytes are restored. It is not started by the command runner,
    because it is not a command of the model and must not end with the session.
    """
    import subprocess

    copy = make_copy_name(temporary)
    argv = ["/bin/sh", "-c", _REWRITE_SCRIPT, "sh", temporary, copy, target]
    devnull = subprocess.DEVNULL
    env = {**os.environ, "PATH": SYSTEM_PATH}
    process = subprocess.Popen(
        argv, stdin=devnull, stdout=devnull, stderr=subprocess.PIPE, start_new_session=True, cwd="/", env=env
    )
    try:
        _, errors = process.communicate(timeout=_REWRITE_SECONDS)
    except subprocess.TimeoutExpired:
        raise Refusal(
            f"{target} is still being rewritten after {_REWRITE_SECONDS:g} s; its new text is in {copy}."
        ) from None
    if process.returncode:
        reason = errors.decode("utf-8", "replace").strip().rpartition(": ")[2] or f"code {process.returncode}"
        raise _restore_old_bytes(target, copy, before, reason)


def _restore_old_bytes(target: str, copy: str, before: bytes, reason: str) -> Refusal:
    try:
        fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
        try:
            _write_all(fd, before)
            os.ftruncate(fd, len(before))
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError:
        return Refusal(
            f"{target} could not be rewritten ({reason}) and may be damaged. The complete new text is in {copy}."
        )
    with contextlib.suppress(OSError):
        Path(copy).unlink()
    return Refusal(f"{target} could not be rewritten ({reason}). It was left unchanged.")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
