"""Lets commands in a view of an ordinary user rename folders of the real tree.

Such an overlay may not record that a folder was renamed: the call fails with EXDEV, which `git mv`, Python and node do
not expect. So the kernel tells the first process of the view about every rename (seccomp user notification) before it
is made. If it would fail like this, the files are moved to a new folder, which lies in the upper layer as a whole and
takes the place of the old one, and then the call continues. All this happens in the view and with the rights of the
command, so it does not matter if the command changes the arguments meanwhile. Runs in the interpreter of the init
program, see there.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)

_CALLS = {"x86_64": (0xC000003E, 317, 316, (264, 82)), "aarch64": (0xC00000B7, 277, 276, (38,))}
"""By machine: the ABI, and the numbers of seccomp, renameat2 and the older calls, of which 82 has no descriptors."""

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_AT_CALL, _AT_ARCH, _AT_LAST = 0, 4, 56
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_SET_FILTER, _NEW_LISTENER = 1, 8
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_CONTINUE = 1
_HERE, _NOREPLACE, _EXCHANGE = -100, 1, 2

_OWN = 0x0D1
"""A sixth argument, which the kernel ignores: our own renames are not notified. A command that uses it gets EXDEV."""

_MAX_ENTRIES, _MAX_BYTES = 50_000, 1 << 30
"""A larger folder stays: the call fails, and `mv` copies it itself."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


class RenameHelper:
    """`fd` is readable when a process of the view wants to rename something; -1 if the kernel does not tell us.

    This process and its later children are watched. `devices` are those of the overlays.
    """

    def __init__(self, roots: "list[str]") -> None:
        self._devices = {os.stat(root).st_dev for root in roots}  # noqa: PTH116
        self.hidden: list[str] = []
        self._abi, seccomp, self._rename, others = _CALLS.get(os.uname().machine, (0, 0, 0, ()))
        self.fd = -1
        if not seccomp:
            return
        calls = (self._rename, *others)
        steps = [(_LOAD, 0, 0, _AT_ARCH), (_EQUAL, 0, len(calls) + 1, self._abi), (_LOAD, 0, 0, _AT_CALL)]
        steps += [(_EQUAL, len(calls) - number, 0, call) for number, call in enumerate(calls)]
        steps += [(_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _AT_LAST), (_EQUAL, 0, 1, _OWN), (_RETURN, 0, 0, _ALLOW)]
        code = b"".join(struct.pack("HBBI", *step) for step in [*steps, (_RETURN, 0, 0, _NOTIFY)])
        program = _Program(len(code) // 8, code)
        self.fd = _LIBC.syscall(seccomp, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program))

    def answer(self) -> None:
        """Serve one notification."""
        request = bytearray(80)
        try:
            fcntl.ioctl(self.fd, _RECEIVE, request)
        except OSError:  # the caller was killed meanwhile
            return
        number, pid, _, call, _, _, *args = struct.unpack("QIIiIQ6Q", request)
        if call == 82 and self._abi == 0xC000003E:
            args = [_HERE, args[0], _HERE, args[1], 0]
        flags = args[4] if call == self._rename else 0
        error = 0
        try:
            old, new = _read_path(pid, *args[:2]), _read_path(pid, *args[2:4])
            fcntl.ioctl(self.fd, _IS_VALID, struct.pack("Q", number))
            error = self._make_movable(old, new, flags)
            if flags & _EXCHANGE:
                self._make_movable(new, old, flags)
        except (OSError, OverflowError):  # a path or an address that does not exist: the kernel tells the caller
            pass
        try:
            fcntl.ioctl(self.fd, _SEND, struct.pack("QqiI", number, 0, -error, 0 if error else _CONTINUE))
        except OSError:  # it was killed, or a signal made it call again
            return

    def _make_movable(self, path: str, target: str, flags: int) -> int:
        """Rebuild a folder if it cannot be renamed to `target` otherwise. Return the error for the caller, or 0."""
        (parent, _, name), (goal, _, new_name) = path.rpartition("/"), target.rpartition("/")
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_dev not in self._devices or {name, new_name} & {".", ".."}:
            return 0
        real, new = f"{os.path.realpath(parent)}/{name}", f"{os.path.realpath(goal)}/{new_name}"
        is_hidden = any(f"{covered}/".startswith(f"{real}/") for covered in self.hidden)
        is_same = os.path.samestat(os.lstat(real), status)  # not so if the caller has a root of its own
        if is_hidden or not is_same or f"{new}/".startswith(f"{real}/") or os.stat(goal).st_dev != status.st_dev:  # noqa: PTH116
            return 0
        before = os.stat(parent)  # noqa: PTH116
        try:
            if self._is_movable(real):
                return 0
            if not flags & _EXCHANGE and os.path.lexists(new):
                is_refused = not flags & _NOREPLACE and os.path.isdir(new) and not os.path.islink(new)  # noqa: PTH112, PTH114
                if not is_refused or os.listdir(new):  # noqa: PTH208
                    return errno.ENOTEMPTY * is_refused  # the kernel would say EXDEV before it looks
            self._rebuild(real)
        finally:
            os.utime(parent, ns=(before.st_atime_ns, before.st_mtime_ns))  # the call may still fail
        return 0

    def _is_movable(self, folder: str) -> bool:
        other = f"{folder}.odin-{os.urandom(4).hex()}"
        try:
            self._move(folder, other)
        except OSError as error:
            return error.errno != errno.EXDEV
        self._move(other, folder)
        return True

    def _rebuild(self, folder: str) -> None:
        """Move everything in the folder to a new one, and that to its place, if it is not too large. Raise OSError."""
        count, size, folders = 0, 0, [folder]
        for path in folders:
            with os.scandir(path) as entries:
                for entry in entries:
                    count += 1
                    size += entry.stat(follow_symlinks=False).st_size
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
            if count > _MAX_ENTRIES or size > _MAX_BYTES:
                return
        new = f"{folder}.odin-{os.urandom(4).hex()}"
        inner = set(folders)
        made: list[tuple[str, str, os.stat_result]] = []
        moved: list[tuple[str, str]] = []
        links: dict[tuple[int, int], str] = {}
        try:
            for old in folders:
                place, status = new + old[len(folder) :], os.stat(old)  # noqa: PTH116
                os.mkdir(place, 0o700)  # noqa: PTH102
                made.append((old, place, status))
                for name in os.listxattr(old):
                    os.setxattr(place, name, os.getxattr(old, name))
                if not status.st_mode & stat.S_IWUSR:  # a folder must be writable to be emptied, but not to be moved
                    os.chmod(old, 0o700)  # noqa: PTH101
                for name in os.listdir(old):  # noqa: PTH208
                    if f"{old}/{name}" in inner:
                        continue
                    file = os.lstat(f"{old}/{name}")
                    first = links.setdefault((file.st_dev, file.st_ino), f"{place}/{name}")
                    if first != f"{place}/{name}":  # moving a file of the real tree separates it from its other names
                        os.link(first, f"{place}/{name}", follow_symlinks=False)
                        os.unlink(f"{old}/{name}")  # noqa: PTH108
                    else:
                        self._move(f"{old}/{name}", first)
                    moved.append((f"{old}/{name}", f"{place}/{name}"))
        except OSError:
            for old, place in reversed(moved):
                self._move(place, old)
            for old, place, status in reversed(made):
                os.rmdir(place)  # noqa: PTH106
                _restore(old, status)
            raise
        for old, place, status in reversed(made):
            os.rmdir(old)  # noqa: PTH106
            _restore(place, status)
        self._move(new, folder)

    def _move(self, old: str, new: str) -> None:
        paths = [ctypes.c_char_p(os.fsencode(path)) for path in (old, new)]
        if _LIBC.syscall(self._rename, _HERE, paths[0], _HERE, paths[1], 0, _OWN) < 0:
            raise OSError(ctypes.get_errno(), "rename")


def _restore(folder: str, status: os.stat_result) -> None:
    os.chmod(folder, stat.S_IMODE(status.st_mode))  # noqa: PTH101
    os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))


def _read_path(pid: int, fd: int, address: int) -> str:
    """Return the path that arguments of a process name, as this process can use it."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        name = b""
        while b"\0" not in name and len(name) < 4096:
            at = address + len(name)
            name += os.pread(memory.fileno(), 4096 - at % 4096, at) or b"\0"
    path = os.fsdecode(name.partition(b"\0")[0].rstrip(b"/"))
    descriptor = ctypes.c_int(fd & 0xFFFFFFFF).value
    start = "root" if path.startswith("/") else "cwd" if descriptor == _HERE else f"fd/{descriptor}"
    return f"/proc/{pid}/{start}/{path}"
