"""Writes files atomically: a reader, or a crash, sees the old file or the new one and never half of it.

New bytes go to a temporary file `.NAME.odin-PID-TIME` next to the target, which is then renamed. Its writer holds a
lock on it, so a leftover of a killed writer is recognizable, even from another container; the first write of a process
in a folder removes such leftovers. A copy `.NAME.odin-copy-PID-TIME` may be the only complete text of a file that is
being rewritten in place, so other processes never remove it.

Everything happens relative to the descriptor of the target's folder, which is opened without following links: a folder
that another process exchanges with a link meanwhile does not redirect the write.
"""

import contextlib
import errno
import os
import stat
import sys

from odin.core.errors import ExternalModification
from odin.core.path_names import make_copy_name, make_temporary_name, parse_writer_pid
from odin.policy.paths import OpenFolder, PathChanged, name_in, open_parent
from odin.sandbox.process import open_filled_file, run_own
from odin.tools.files import Refusal

_MAX_ENTRIES = 20_000

_swept: set[str] = set()
"""Folders that were swept. Whose session did it does not matter: the leftovers are those of ended processes."""

_REWRITE_SECONDS = 60.0

_RENAME_REFUSED = {errno.EBUSY, errno.EPERM, errno.EACCES, errno.EXDEV}
"""Errors of rename() for a file that cannot be replaced: a mount point, or a file in a folder we cannot change."""

_REWRITE_SCRIPT = (
    '{ [ -z "$1" ] || mv -f "$1" "$2"; } && : >/proc/self/fd/1 && cat && '
    '{ sync /proc/self/fd/1 2>/dev/null || sync; } && { [ -z "$1" ] || rm -f "$2"; }'
)
"""Copies its standard input, the temporary file, to its standard output, the file to rewrite. Runs in their folder.

No name is opened: a link in the place of one of the files would redirect the copy. /proc/self/fd/1 is the open file."""

_REWRITE_PROGRAM = """
import os, sys
temporary, copy = sys.argv[1:3]
try:
    temporary and os.rename(temporary, copy)
    os.ftruncate(1, 0)
    while chunk := os.read(0, 1 << 20):
        while chunk:
            chunk = chunk[os.write(1, chunk):]
    os.fsync(1)
    temporary and os.unlink(copy)
except OSError as error:
    sys.exit(error.strerror)
"""
"""The same where there is no /proc."""

_HAS_PROC = os.path.exists("/proc/self/fd/0")  # noqa: PTH110


def create_locked(folder: OpenFolder, name: str, *, private: bool) -> int:
    """Create a file that is locked while it is open. `private`: only the owner can read it."""
    fd = folder.open_file(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    _try_lock(fd)
    return fd


def sweep_leftovers(folder: OpenFolder) -> None:
    """Remove temporary files that killed processes left in this folder. Each folder is checked once per process."""
    if folder.path in _swept:
        return
    if len(_swept) >= _MAX_ENTRIES:
        _swept.clear()
    _swept.add(folder.path)
    with contextlib.suppress(OSError):
        for name in folder.list_names()[:_MAX_ENTRIES]:
            pid = parse_writer_pid(name)
            if pid is not None and not _is_alive(pid):
                with contextlib.suppress(OSError):
                    fd = folder.open_file(name, os.O_RDONLY | os.O_NONBLOCK)
                    try:
                        if _try_lock(fd):
                            folder.unlink(name)
                    finally:
                        os.close(fd)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


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


def replace_file(target: str, data: bytes, before: bytes | None) -> os.stat_result:
    """Write `data` to a file that contained `before` (None: it did not exist). Return its new stat result.

    `target` must be a resolved path; the missing folders of a new file are made. Mode, owner and extended attributes
    are preserved. A file that cannot be replaced without changing it otherwise (hard links, a mount point, an owner
    that cannot be set) is rewritten in place instead. Raise Refusal if the file changed meanwhile, and PathChanged if a
    part of its path is a link now.
    """
    with open_parent(target, create=before is None) as folder:
        return _Replacement(folder, name_in(target), before).write(data)


class _Replacement:
    """The replacement of one file of an open folder."""

    def __init__(self, folder: OpenFolder, name: str, before: bytes | None) -> None:
        self._folder = folder
        self._name = name
        self._target = folder.get_path(name)
        self._before = before

    def write(self, data: bytes) -> os.stat_result:
        folder, before = self._folder, self._before
        if before is not None and not os.access(self._name, os.W_OK, dir_fd=folder.fd):
            raise Refusal(f"{self._target} is read-only.")
        sweep_leftovers(folder)
        if before is not None and not os.access(".", os.W_OK | os.X_OK, dir_fd=folder.fd):
            with open_filled_file(data) as file:
                self._check_unchanged()
                return self._rewrite_in_place("", file.fileno())
        temporary = make_temporary_name(self._name)
        fd = create_locked(folder, temporary, private=before is not None)
        try:
            _write_all(fd, data)
            replaceable = self._copy_metadata(fd)
            os.fsync(fd)
            self._check_unchanged()
            if replaceable and self._move_into_place(temporary):
                return self._check_moved(fd)
            return self._rewrite_in_place(temporary, fd)
        except BaseException:
            folder.unlink(temporary, missing_ok=True)
            raise
        finally:
            os.close(fd)

    def _copy_metadata(self, fd: int) -> bool:
        """Copy mode, owner and attributes of the old file, if it exists. False if the new file cannot replace it."""
        info = self._folder.find(self._name)
        if info is None:
            return True
        if stat.S_ISLNK(info.st_mode):
            raise PathChanged(self._target)
        if info.st_nlink > 1:
            return False
        try:
            old = self._folder.open_file(self._name, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            # Copy mode, owner and extended attributes. False if that is not permitted.
            current = os.fstat(fd)
            try:
                if (current.st_uid, current.st_gid) != (info.st_uid, info.st_gid):
                    os.fchown(fd, info.st_uid, info.st_gid)
                if stat.S_IMODE(current.st_mode) != stat.S_IMODE(info.st_mode):
                    os.fchmod(fd, stat.S_IMODE(info.st_mode))
                _copy_xattrs(fd, old)
            except OSError:
                return False
            return True
        finally:
            os.close(old)

    def _check_unchanged(self) -> None:
        """Raise Refusal if the file no longer contains `before`. Called last, right before the rename."""
        before = self._before
        try:
            fd = self._folder.open_file(self._name, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            if before is None:
                return
            message = f"{self._target} was deleted in the meantime. Nothing was written."
            raise Refusal(message, ExternalModification) from None
        with open(fd, "rb", buffering=0) as file:  # noqa: PTH123
            if before is None or file.readall() != before:
                raise self._make_changed_refusal()

    def _make_changed_refusal(self) -> Refusal:
        message = f"{self._target} changed on disk in the meantime. Nothing was written. Read it again first."
        return Refusal(message, ExternalModification)

    def _move_into_place(self, temporary: str) -> bool:
        """Rename the temporary file to the target. False if the old file can only be rewritten in place."""
        folder, name = self._folder, self._name
        if self._before is None:
            try:
                os.link(temporary, name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd, follow_symlinks=False)
            except FileExistsError:
                raise self._make_changed_refusal() from None
            except OSError:
                folder.rename(temporary, name)
            else:
                folder.unlink(temporary)
            return True
        try:
            folder.rename(temporary, name)
        except OSError as error:
            if error.errno not in _RENAME_REFUSED:
                raise
            return False
        return True

    def _check_moved(self, fd: int) -> os.stat_result:
        """Return the stat result. Raise Refusal if something else than the temporary file has the name now."""
        written, found = os.fstat(fd), self._folder.find(self._name)
        if found is None or (found.st_dev, found.st_ino) != (written.st_dev, written.st_ino):
            message = f"{self._target} was replaced by another process at the same moment. Read it again."
            raise Refusal(message, ExternalModification)
        return written

    def _rewrite_in_place(self, temporary: str, fd: int) -> os.stat_result:
        """Copy the temporary file into the old file. Return its stat result.

        A separate process in its own session does it, so that it finishes even if this process is killed. The copy it
        reads from stays until it is done, unless it has no name ("") because nothing can be created in the folder; if
        it fails, the old bytes are restored. It is not started by the command runner, because it is not a command of
        the model and must not end with the session.
        """
        folder, copy = self._folder, make_copy_name(temporary) if temporary else ""
        kept = f" The complete new text is in {folder.get_path(copy)}." if copy else ""
        program = ["/bin/sh", "-c", _REWRITE_SCRIPT, "sh"]
        if not _HAS_PROC:
            program = [sys.executable, "-I", "-S", "-c", _REWRITE_PROGRAM]
        argv = [*program, temporary, copy, self._target]
        out = self._folder.open_file(self._name, os.O_WRONLY)
        try:
            os.lseek(fd, 0, os.SEEK_SET)
            try:
                code, _, errors = run_own(
                    argv, folder.fd, timeout=_REWRITE_SECONDS, stdin=fd, stdout=out, survives=True
                )
            except TimeoutError:
                message = f"{self._target} is still being rewritten after {_REWRITE_SECONDS:g} s."
                raise Refusal(f"{message}{kept}") from None
            if code:
                reason = errors.strip().rpartition(": ")[2]
                raise self._restore_old_bytes(copy, out, reason or f"code {code}", kept)
            return os.fstat(out)
        finally:
            os.close(out)

    def _restore_old_bytes(self, copy: str, out: int, reason: str, kept: str) -> Refusal:
        before = self._before or b""
        try:
            os.lseek(out, 0, os.SEEK_SET)
            _write_all(out, before)
            os.ftruncate(out, len(before))
            os.fsync(out)
        except OSError:
            return Refusal(f"{self._target} could not be rewritten ({reason}) and may be damaged.{kept}")
        if copy:
            with contextlib.suppress(OSError):
                self._folder.unlink(copy)
        return Refusal(f"{self._target} could not be rewritten ({reason}). It was left unchanged.")


def _copy_xattrs(fd: int, old: int) -> None:
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(old)
    except OSError:
        return
    for name in names:
        value = os.getxattr(old, name)
        if name not in os.listxattr(fd) or os.getxattr(fd, name) != value:
            os.setxattr(fd, name, value)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
