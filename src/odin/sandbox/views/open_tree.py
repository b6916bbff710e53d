"""A tree of files that is reached by descriptors alone, so that a link put into a path meanwhile redirects nothing.

Paths are relative to the top; "" is the top itself. Every folder on the way is opened relative to the one above it and
without following links. What has no call of its own with a descriptor goes through `/proc/self/fd`.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
from types import TracebackType

from odin.core.event_values import FileKind
from odin.core.path_names import make_temporary_name

NOREPLACE, EXCHANGE = 1, 2

_PASSED = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIBC = ctypes.CDLL(None, use_errno=True)
_RENAMEAT2 = 316 if os.uname().machine == "x86_64" else 276

_ORIGIN_HEAD, _MAX_HANDLE = 21, 128
"""The mark `origin` is a file handle of the kernel behind version, type and UUID of the file system."""

Place = tuple[int, str]
"""The descriptor of a folder and a name in it."""


class OpenTree:
    """`writable` makes the user's own folders writable on the way; the caller sets their modes again."""

    def __init__(self, path: str, *, writable: bool = False) -> None:
        self.path = path
        self.fd = os.open(path, _PASSED)
        self.writable = writable and os.geteuid() != 0
        self._last: tuple[str, int] | None = None

    def __enter__(self) -> "OpenTree":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.forget()
        os.close(self.fd)

    def forget(self) -> None:
        """Close the folder that was entered last: its name may mean another one from now on."""
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def enter(self, folder: str) -> int:
        """Return the descriptor of a folder, valid until the next call."""
        last, fd = self._last or ("", self.fd)
        if self._last is not None and last == folder:
            return fd
        rest = folder
        if last and folder.startswith(f"{last}/"):
            rest = folder[len(last) + 1 :]
            self._last = None
        else:
            self.forget()
            fd = os.open(".", _PASSED, dir_fd=self.fd)
        try:
            for name in rest.split("/") if rest else ():
                self._unlock(fd, 0o100)
                inner = os.open(name, _PASSED, dir_fd=fd)
                os.close(fd)
                fd = inner
            self._unlock(fd, 0o700)
        except BaseException:
            os.close(fd)
            raise
        self._last = (folder, fd)
        return fd

    def _unlock(self, fd: int, needed: int) -> None:
        if self.writable and (mode := os.fstat(fd).st_mode) & needed != needed:
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) | 0o700)  # noqa: PTH101

    def locate(self, path: str) -> Place:
        folder, _, name = path.rpartition("/")
        return self.enter(folder), name or "."

    def find(self, path: str) -> os.stat_result | None:
        try:
            return find_status(self.locate(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list_names(self, folder: str) -> list[str]:
        """Return the names in a folder; none if the user cannot read it."""
        try:
            fd = os.open(".", _LISTED, dir_fd=self.enter(folder))
        except PermissionError:
            return []
        try:
            return sorted(os.listdir(fd))  # noqa: PTH208
        finally:
            os.close(fd)

    def open_file(self, path: str) -> int:
        fd, name = self.locate(path)
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)


def find_status(place: Place) -> os.stat_result | None:
    try:
        return os.stat(place[1], dir_fd=place[0], follow_symlinks=False)
    except FileNotFoundError:
        return None


def get_kind(status: os.stat_result | None) -> FileKind:
    if status is None:
        return "absent"
    kinds: dict[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}
    return kinds.get(stat.S_IFMT(status.st_mode), "other")


def point_at(place: Place) -> str:
    """Return a path for calls that take no descriptor. They must not follow links."""
    return f"/proc/self/fd/{place[0]}/{place[1]}"


def rename(source: Place, target: Place, flags: int) -> None:
    """Rename a path: NOREPLACE raises FileExistsError if the target exists, EXCHANGE swaps both."""
    names = os.fsencode(source[1]), os.fsencode(target[1])
    if _LIBC.syscall(_RENAMEAT2, source[0], names[0], target[0], names[1], ctypes.c_uint(flags)) < 0:
        number = ctypes.get_errno()
        if flags and number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            rename_simply(source, target, flags)
            return
        raise OSError(number, os.strerror(number), source[1])


def rename_simply(source: Place, target: Place, flags: int) -> None:
    """Rename a path on a file system that knows no flags, such as NFS: the target is complete at any moment.

    Unlike there, whoever changes the target between the steps is not noticed. Folders are not exchanged.
    """
    old = ""
    if flags == EXCHANGE:
        old = make_temporary_name(target[1])
        os.link(target[1], old, src_dir_fd=target[0], dst_dir_fd=source[0], follow_symlinks=False)
    elif find_status(target) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target[1])
    os.rename(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0])
    if old:
        os.rename(old, source[1], src_dir_fd=source[0], dst_dir_fd=source[0])


def read_marks(path: str, prefix: str) -> dict[str, bytes]:
    """Return overlayfs' own attributes of a path in an upper layer, without their prefix."""
    marks: dict[str, bytes] = {}
    with contextlib.suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            if name.startswith(prefix):
                with contextlib.suppress(OSError):
                    marks[name.removeprefix(prefix)] = os.getxattr(path, name, follow_symlinks=False)
                marks.setdefault(name.removeprefix(prefix), b"")
    return marks


def is_origin(origin: bytes, place: Place) -> bool:
    """True unless the mark of a folder in an upper layer says that it was copied from another folder than this one."""
    call, fid = getattr(_LIBC, "name_to_handle_at", None), origin[_ORIGIN_HEAD:]
    handle = ctypes.create_string_buffer(struct.pack("Ii", _MAX_HANDLE, 0), 8 + _MAX_HANDLE)
    mount = ctypes.c_int()
    if not fid or call is None or call(place[0], os.fsencode(place[1]), handle, ctypes.byref(mount), 0) < 0:
        return True
    return handle.raw[8 : 8 + struct.unpack_from("I", handle)[0]] == fid


def read_attributes(path: str, prefix: str = "", *, is_open: bool = False) -> dict[str, bytes] | None:
    """Return the extended attributes of a path, in an upper layer those that a program in the view sees.

    The kernel escapes attributes of programs that look like its own. `is_open`: the path is that of a descriptor. None
    if the attributes cannot be read.
    """
    found: dict[str, bytes] = {}
    try:
        for name in os.listxattr(path, follow_symlinks=is_open):
            shown = name
            if name.startswith("security.") and name != "security.capability":
                continue  # labels that the system gives to files by their place
            if prefix and name.startswith(prefix):
                if not name.startswith(f"{prefix}overlay."):
                    continue
                shown = prefix + name.removeprefix(f"{prefix}overlay.")
            found[shown] = os.getxattr(path, name, follow_symlinks=is_open)
    except OSError as error:
        return {} if error.errno == errno.ENOTSUP else None
    return found


def strip_marks(place: Place, prefix: str, mode: int) -> None:
    """Remove overlayfs' own attributes from a path in an upper layer. Set the mode of a file, which this may need."""
    path = point_at(place)
    names = [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith(prefix)]
    if names and os.geteuid():
        os.chmod(path, mode | 0o600)  # noqa: PTH101
    escaped = [name for name in names if name.startswith(f"{prefix}overlay.")]
    for name in names:
        if name not in escaped:
            os.removexattr(path, name, follow_symlinks=False)
    for name in escaped:  # a program has set them, maybe with the name of a mark
        value = os.getxattr(path, name, follow_symlinks=False)
        os.setxattr(path, prefix + name.removeprefix(f"{prefix}overlay."), value, follow_symlinks=False)
        os.removexattr(path, name, follow_symlinks=False)
    status = find_status(place)
    if get_kind(status) == "file" and status is not None and stat.S_IMODE(status.st_mode) != mode:
        os.chmod(path, mode)  # noqa: PTH101


def copy_file(source: Place, target: Place, mode: int, prefix: str = "") -> None:
    """Copy a file or a link with its attributes to another file system. It appears complete or not at all."""
    status = os.stat(source[1], dir_fd=source[0], follow_symlinks=False)
    partial = (target[0], f"{target[1]}.part")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial[1], dir_fd=partial[0])
    try:
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(source[1], dir_fd=source[0]), partial[1], dir_fd=partial[0])
            os.chown(partial[1], status.st_uid, status.st_gid, dir_fd=partial[0], follow_symlinks=False)
        else:
            if os.geteuid() and status.st_mode & 0o400 == 0:
                os.chmod(point_at(source), 0o600)  # noqa: PTH101
            read = os.open(source[1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source[0])
            with os.fdopen(read, "rb"):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                write = os.open(partial[1], flags, 0o600, dir_fd=partial[0])
                with os.fdopen(write, "wb"):
                    _copy_content(read, write, status.st_size)
                    for name, value in (read_attributes(f"/proc/self/fd/{read}", prefix, is_open=True) or {}).items():
                        os.setxattr(write, name, value)
                    copied = os.fstat(write)
                    if (copied.st_uid, copied.st_gid) != (status.st_uid, status.st_gid):
                        os.fchown(write, status.st_uid, status.st_gid)
                    os.fchmod(write, mode)
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(partial[1], ns=times, dir_fd=partial[0], follow_symlinks=False)
    except OSError:  # such as a full disk
        with contextlib.suppress(OSError):
            os.unlink(partial[1], dir_fd=partial[0])
        raise
    rename(partial, target, 0)


def _copy_content(source: int, target: int, size: int) -> None:
    """Copy the data between the holes of a file."""
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(source, at, os.SEEK_HOLE)
        while at < end:
            block = memoryview(os.pread(source, min(end - at, 1 << 20), at))
            if not block:
                return
            at += os.pwrite(target, block, at)


def remove_tree(path: str) -> None:
    """Remove a folder with everything in it, however deep and whatever its modes. Links are removed, not followed.

    Folders inside are moved to the top first, so that depth costs neither recursion nor descriptors.
    """
    try:
        top = os.open(path, _PASSED)
    except FileNotFoundError:
        return
    try:
        _unlock_folder(top)
        todo = _empty_folder(top)
        while todo:
            name = todo.pop()
            fd = os.open(name, _PASSED, dir_fd=top)
            try:
                _unlock_folder(fd)
                for inner in _empty_folder(fd):
                    moved = make_temporary_name("folder")
                    inner_fd = os.open(inner, _PASSED, dir_fd=fd)
                    _unlock_folder(inner_fd)  # moving a folder changes its `..`
                    os.close(inner_fd)
                    os.rename(inner, moved, src_dir_fd=fd, dst_dir_fd=top)
                    todo.append(moved)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)  # noqa: PTH106


def _unlock_folder(fd: int) -> None:
    if os.geteuid() and os.fstat(fd).st_mode & 0o700 != 0o700:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)  # noqa: PTH101


def _empty_folder(fd: int) -> list[str]:
    """Remove all but folders, and return the names of those."""
    listed = os.open(".", _LISTED, dir_fd=fd)
    try:
        with os.scandir(listed) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(listed)
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=fd)
    return [name for name, is_folder in found if is_folder]
