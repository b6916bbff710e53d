"""The last steps of creating a sandbox, done by the init program from inside, before it starts any command.

The first word of the setup is the kind of sandbox:
- `private`: bubblewrap has made the mounts. Those made on the machine later do not appear in the sandbox, where they
  would be writable. `@DEVICE:INODE:PATH` is mounted writable and must be this file; `*PATH` is a new file system.
- `plain`: a read-only sandbox inside a private one.
- `landlock`: the kernel limits this process and its children to the named files: `+PATH` is writable, `-PATH` readable.

In a private sandbox, `%MODE:PATH` is where bubblewrap has mounted what views (`view_mounter.py`) are made of: the
writable folders `#PATH` as `l0`, `l1` …, and the folder of the views' layers as `up`. No command can reach it.

`net` and `pids`: the machine's network or processes are shared, so Landlock blocks abstract sockets or signals instead.
`=1,2`: only sockets of these families can be created; `=`: of all. In both cases the kernel's keyrings, which hold
tickets and passwords of the user, cannot be used (seccomp).

Finally, all privileges needed for this are dropped; what mounting views needs is kept, but commands do not get it.
Every step raises OSError if it fails, so that the sandbox is not created. Uses system calls through ctypes and no
library.
"""

import ctypes
import errno
import os
import stat
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWPID = 0x20000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 5, 1 << 12, 1 << 14, 1 << 18
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 36, 38
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS = 24, 28
_PR_CAP_AMBIENT, _AMBIENT_RAISE = 47, 2

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_VERSION = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP_RIGHTS = 0b11
_ABSTRACT_SOCKET_SCOPE, _SIGNAL_SCOPE = 0b01, 0b10
_ABI_WITH_SCOPES = 6

_ROOT_CAPABILITIES = 0b11011
"""Capabilities to change file ownership and modes. Root's tools need them; read-only mounts stay read-only."""

_MOUNT_CAPABILITIES = _ROOT_CAPABILITIES | 1 << 21
"""SYS_ADMIN, and what an overlay uses of those who have mounted it: its work folder has mode 000."""

_CAPABILITIES_V3 = 0x20080522

_NO_ROOT = 0b11
"""Root gets no capabilities by starting a program, except ambient ones. This cannot be undone."""

_PR_SET_SECCOMP = 22
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_AT_CALL, _AT_ARCH, _AT_FIRST = 0, 4, 16
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_IO_URING, _X32 = 425, 0x40000000

_CALLS = {
    "x86_64": {
        0xC000003E: (41, (_IO_URING, _X32 + 41, _X32 + _IO_URING), (*range(248, 251), *range(_X32 + 248, _X32 + 251))),
        0x40000003: (359, (_IO_URING, 102), range(286, 289)),
    },
    "aarch64": {0xC00000B7: (198, (_IO_URING,), range(217, 220)), 0x40000028: (281, (_IO_URING,), range(309, 312))},
}
"""By machine architecture: for each ABI, the numbers of socket(), of other calls that can create a socket, and of the
calls for keyrings: add_key, request_key and keyctl."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _SeccompProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def read_landlock_abi() -> int:
    """Return the Landlock ABI version of this kernel; 0 if it has none or it is disabled."""
    version: int = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    return max(version, 0)


def collect_orphans() -> None:
    """Become the parent of processes below this one whose own parent ends, as the first process of a namespace is."""
    _set_process_option(_PR_SET_CHILD_SUBREAPER, 1)


def lock_down(setup: "tuple[str, ...]") -> int:
    """Apply the setup, then drop privileges. Raise OSError if a step fails.

    Return the descriptor of what views are made of, or -1.
    """
    kind, *words = setup
    network = "net" in words
    views = -1

    def list_marked(mark: str) -> "list[str]":
        return [word[1:] for word in words if word.startswith(mark)]

    _set_process_option(_PR_SET_NO_NEW_PRIVS, 1)
    if kind == "landlock":
        restrict_files(list_marked("+"), list_marked("-"), network=network)
    else:
        mounted = [word.split(":", 2) for word in list_marked("@")]
        writable = [path for _, _, path in mounted]
        scoped = _ABSTRACT_SOCKET_SCOPE * network | _SIGNAL_SCOPE * ("pids" in words)
        if kind == "private":
            keep_mounts_out([*writable, "/dev", "/proc"])
        for device, inode, path in mounted:
            check_identity(path, int(device), int(inode))
        check_mounts(writable, ["/dev", "/proc", *list_marked("*")])
        for place in list_marked("%"):
            views = _cover_views(place.partition(":")[2], list_marked("#"))
        if scoped and read_landlock_abi() >= _ABI_WITH_SCOPES:
            _enforce(_Ruleset(0, 0, scoped))
    for families in list_marked("="):
        filter_calls([int(number) for number in families.split(",") if number])
    _drop_privileges(mounts=views >= 0)
    return views


def keep_mounts_out(writable: "list[str]") -> None:
    """Make sure that no command can write to what is mounted on the machine from now on, except in these paths.

    For ordinary users bubblewrap's mount namespace belongs to a user namespace that it has left, so that its mounts
    cannot be made private any more, but those of a copy can. Where AppArmor allows capabilities only to bubblewrap
    itself, new mounts appear, and Landlock makes them read-only.
    """
    try:
        unshare(CLONE_NEWNS)
        mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    except PermissionError:
        if not read_landlock_abi():
            raise
        handled = _compute_rights(read_landlock_abi()) & ~(EXECUTE | READ_FILE | READ_DIR)
        _enforce(_Ruleset(handled, 0, 0), [(path, handled) for path in writable])


def check_identity(path: str, device: int, inode: int) -> None:
    """Raise OSError if another file than the planned one was mounted, because a link was put in its place meanwhile."""
    status = os.stat(path)  # noqa: PTH116
    if (status.st_dev, status.st_ino) != (device, inode):
        raise OSError(errno.ESTALE, "replaced while the sandbox was created", path)


def check_mounts(writable: "list[str]", new: "list[str]") -> None:
    """Raise OSError if anything but these paths, what was mounted below them before, and new file systems is writable.

    It was mounted while the sandbox was created, or a link led bubblewrap there.
    """
    planned: set[str] = set()
    for number, parent, path, options in _list_mounts():
        if "ro" in options.split(","):
            continue
        if path in writable or parent in planned or any(f"{path}/".startswith(f"{place}/") for place in new):
            planned.add(number)
        elif _find_mount(path) == number:
            raise OSError(errno.EBUSY, "mounted while the sandbox was created", path)


def _list_mounts() -> "list[tuple[str, str, str, str]]":
    """Return number, parent, path and options of all mounts, each after the one that it is mounted on."""
    mounts: list[tuple[str, str, str, str]] = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        for line in file:
            number, parent, _, _, path, options, *_ = line.split(" ")
            for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                path = path.replace(code, character)
            mounts.append((number, parent, path, options))
    return mounts


def _cover_views(place: str, roots: "list[str]") -> int:
    """Hide what views are made of. Return its descriptor. Raise OSError if something is mounted in a root.

    A view would show the empty folder below it.
    """
    for _, _, path, _ in _list_mounts():
        for number, root in enumerate(roots):
            if path.startswith(f"{place}/l{number}/"):
                raise OSError(errno.EXDEV, "a file system is mounted there", root + path[len(f"{place}/l{number}") :])
    fd = os.open(place, os.O_PATH)
    mount("tmpfs", place, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k")
    return fd


def unshare(spaces: int) -> None:
    _check_result(_LIBC.unshare(spaces), "unshare")


def mount(source: "str | None", path: str, kind: "str | None", flags: int, options: str = "") -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, path, kind)]
    _check_result(_LIBC.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) or None), "mount")


def unmount(path: str) -> None:
    _check_result(_LIBC.umount2(os.fsencode(path), 0), "umount")


def _find_mount(path: str) -> str:
    """Return the number of the uppermost mount at this path, or "" if the user cannot reach it."""
    try:
        fd = os.open(path, os.O_PATH)
    except OSError:
        return ""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:  # noqa: PTH123
        fields = dict(line.split(":", 1) for line in file)
    os.close(fd)
    return fields["mnt_id"].strip()


def restrict_files(writable: "list[str]", readable: "list[str]", *, network: bool) -> None:
    """Limit this process with Landlock to these paths. Directories can be listed everywhere."""
    version = read_landlock_abi()
    handled = _compute_rights(version)
    scoped = _ABSTRACT_SOCKET_SCOPE | _SIGNAL_SCOPE if version >= _ABI_WITH_SCOPES else 0
    rules = [("/", READ_DIR), *((path, EXECUTE | READ_FILE | READ_DIR) for path in readable)]
    rules += [(path, handled) for path in writable]
    _enforce(_Ruleset(handled, _TCP_RIGHTS if version >= 4 and not network else 0, scoped), rules)


def _enforce(ruleset: _Ruleset, rules: "list[tuple[str, int]] | tuple[()]" = ()) -> None:
    version = read_landlock_abi()
    size = 24 if version >= _ABI_WITH_SCOPES else 16 if version >= 4 else 8
    created = _LIBC.syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    fd = _check_result(created, "landlock_create_ruleset")
    for path, allowed in rules:
        _allow(fd, path, allowed)
    _check_result(_LIBC.syscall(_RESTRICT_SELF, ctypes.c_int(fd), ctypes.c_uint32(0)), "landlock_restrict_self")
    os.close(fd)


def _compute_rights(version: int) -> int:
    """Return the access rights this version can restrict: 13 at first, then refer, truncate and ioctl."""
    bits = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    return (1 << bits) - 1


def _allow(ruleset: int, path: str, allowed: int) -> None:
    """Add a rule for a path, unless it is gone or was replaced by a link. A rule for a file has only file rights."""
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if os.readlink(f"/proc/self/fd/{fd}") != path:  # noqa: PTH115
            return
        rights = allowed if stat.S_ISDIR(os.fstat(fd).st_mode) else allowed & _FILE_RIGHTS
        rule = _PathRule(rights & _compute_rights(read_landlock_abi()), fd)
        _check_result(
            _LIBC.syscall(_ADD_RULE, ctypes.c_int(ruleset), _RULE_PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0)),
            "landlock_add_rule",
        )
    finally:
        os.close(fd)


def filter_calls(families: "list[int]") -> None:
    """Forbid keyrings and, unless the list is empty, all sockets but those of these families.

    io_uring is then disabled as well, because it could create sockets past the filter; programs work without it.
    Machines whose system calls are not known have no filter.
    """
    if not can_filter_sockets():
        return
    program: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, _AT_ARCH)]
    for arch, (socket_call, other_calls, key_calls) in _CALLS[os.uname().machine].items():
        block = [(_LOAD, 0, 0, _AT_CALL)]
        for number in (*key_calls, *(other_calls if families else ())):
            block += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _FAIL | errno.ENOSYS)]
        if families:
            block += [(_EQUAL, 1, 0, socket_call), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _AT_FIRST)]
            for family in families:
                block += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
        block += [(_RETURN, 0, 0, _FAIL | errno.ENETUNREACH if families else _ALLOW)]
        program += [(_EQUAL, 0, len(block), arch), *block]
    code = b"".join(struct.pack("HBBI", *step) for step in [*program, (_RETURN, 0, 0, _ALLOW)])
    filtered = _LIBC.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(_SeccompProgram(len(code) // 8, code)), 0, 0)
    _check_result(filtered, "seccomp")


def can_filter_sockets() -> bool:
    return os.uname().machine in _CALLS


def _drop_privileges(*, mounts: bool) -> None:
    """Drop capabilities, and make this process undumpable: it holds the socket to Odin.

    `mounts`: keep what mounting a view needs. Commands get nothing of it: not even root's get any capability but those
    that are ambient, and the bounding set has no others.
    """
    had = _read_capabilities()
    kept = had & (_ROOT_CAPABILITIES if os.getuid() == 0 else 0)
    if mounts:
        _set_process_option(_PR_SET_SECUREBITS, _NO_ROOT)
        for number in range(had.bit_length()):
            if had & ~kept & 1 << number:
                _set_process_option(_PR_CAPBSET_DROP, number)
    _set_capabilities(had & _MOUNT_CAPABILITIES if mounts else kept, kept if mounts else 0)
    for number in range(kept.bit_length() if mounts else 0):
        if kept & 1 << number:
            _check_result(_LIBC.prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, number, 0, 0), "prctl")
    _set_process_option(_PR_SET_DUMPABLE, 0)


def drop_mount_privileges() -> None:
    """Drop what `lock_down` has kept for views."""
    kept = _read_capabilities() & (_ROOT_CAPABILITIES if os.getuid() == 0 else 0)
    _set_capabilities(kept, kept)


def _read_capabilities() -> int:
    current = (ctypes.c_uint32 * 6)()
    _check_result(_LIBC.capget((ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), current), "capget")
    return int(current[1])


def _set_capabilities(permitted: int, inheritable: int) -> None:
    sets = (ctypes.c_uint32 * 6)(permitted, permitted, inheritable, 0, 0, 0)
    _check_result(_LIBC.capset((ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), sets), "capset")


def _set_process_option(option: int, value: int) -> None:
    _check_result(_LIBC.prctl(option, value, 0, 0, 0), "prctl")


def _check_result(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)
    return result
