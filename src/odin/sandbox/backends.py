"""The sandbox backends, strongest first, and the command lines that create them.

bubblewrap creates namespaces with their own mounts and network. Landlock can only allow whole folders; to hide a file,
all its siblings are allowed one by one instead of its folder.
"""

import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from odin.core.effects import ViewMode
from odin.core.path_names import contains
from odin.core.timing import DEFAULT_TIMING
from odin.sandbox.layout import EMPTY_LAYOUT, SandboxLayout, has_reachable_socket, list_view_roots
from odin.sandbox.probe import SandboxCandidate, find_program
from odin.sandbox.supervisor import (
    SandboxCommand,
    SandboxSetupError,
    SandboxSupervisor,
    build_init_argv,
    open_supervisor,
)
from odin.sandbox.views.setup import ViewSetup

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")
"""The only devices in a Landlock sandbox. Disks and terminals would be those of the user."""

_MAX_ENTRIES = 2_000
"""Maximum number of entries of a folder that are allowed one by one."""

_VISIBLE_RUN_PATHS = (
    "/run/current-system",
    "/run/opengl-driver",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
)
"""Parts of /run that programs need: system software and name resolution. The rest, with its sockets, is hidden."""

_EMPTY_FILE = f"{os.path.dirname(os.path.realpath(__file__))}/__init__.py"  # noqa: PTH120
"""Any empty file that can be seen in every sandbox. Errors would disturb programs that read a whole project."""

_MAX_LOOKED_AT = 200
"""Entries of a project that are checked for another group."""

_VIEWS = "/dev/.views"
"""Where what views are made of is mounted. No command can reach it."""

NESTED_FD = 3

_SOCKET_FAMILIES = "1,2,10,16,38"
"""Unix, Internet, netlink and crypto sockets. Others, such as vsock to a virtual machine's host, would bypass the
network namespace."""


def build_landlock_args(layout: SandboxLayout, *, network: bool) -> list[str]:
    """Return the setup arguments of `lockdown` for a Landlock sandbox."""
    # Landlock cannot show another /tmp, so commands have only the private folders, which $TMPDIR names.
    temporary = layout.temporaries.values() if layout.private else ()
    writable = (*_DEVICES, *temporary, *_expand(layout.writable, layout.hidden))
    readable = list_readable((*layout.hidden, *layout.temporary, "/dev"))
    readable += _expand(layout.persistent, (*layout.hidden, *layout.temporary))
    words = ["landlock", *(f"+{path}" for path in writable), *(f"-{path}" for path in (*readable, *layout.visible))]
    return [*words, *(["net"] if network else []), f"={_choose_socket_families(layout, network=network)}"]


def _choose_socket_families(layout: SandboxLayout, *, network: bool) -> str:
    """Return the socket families to allow, or "" for all.

    Landlock cannot restrict Unix sockets, so they are forbidden if one is reachable. Of the network it can restrict
    only TCP connections, so without network access Internet sockets are forbidden, too.
    """
    unix = "" if has_reachable_socket(layout.hidden) else "1"
    if network:
        return "" if unix else "2,10,16,17,38"
    return f"{unix},16".lstrip(",")


def _expand(folders: Sequence[str], hidden: Sequence[str]) -> list[str]:
    """Return these paths; a folder that contains a hidden one is replaced by its other entries."""
    paths: list[str] = []
    for place in folders:
        secrets = [path for path in hidden if contains(place, path) and path != place]
        if secrets:
            paths.extend(path for path in list_readable(secrets) if contains(place, path))
        else:
            paths.append(place)
    return paths


def list_readable(hidden: Sequence[str]) -> list[str]:
    """Return paths that cover everything except `hidden`: the siblings of each hidden path and of its parents."""
    above = {"/"}
    for path in hidden:
        folder = path.rpartition("/")[0]
        while folder:
            above.add(folder)
            folder = folder.rpartition("/")[0]
    paths: list[str] = []
    for folder in sorted(above):
        if any(contains(path, folder) for path in hidden):
            continue
        inside = sorted(_list_real_entries(folder))[:_MAX_ENTRIES]
        paths.extend(path for path in inside if path not in above and path not in hidden)
    return paths


def _list_real_entries(folder: str) -> list[str]:
    """Return the entries of a folder except symbolic links: access to their targets is decided separately."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return []


class BubblewrapVariant(Struct, frozen=True):
    """Which namespaces bubblewrap creates: `user` for a user namespace, `processes` for a pid namespace."""

    user: bool = False
    processes: bool = True


BUBBLEWRAP_VARIANTS = (BubblewrapVariant(), BubblewrapVariant(user=True), BubblewrapVariant(user=True, processes=False))
"""From the strongest to the one that works on most machines."""


def build_bubblewrap_argv(
    bwrap: str,
    variant: BubblewrapVariant,
    layout: SandboxLayout,
    python: str,
    fd: int,
    *,
    network: bool,
    joins: bool = False,
    views: ViewSetup | None = None,
) -> list[str]:
    """Return the bwrap command line: a read-only root, over it writable mounts, over those protected and hidden ones.

    `joins`: bwrap already starts in a network namespace other than the machine's. `views`: commands can have views.
    """
    spaces = ["--unshare-ipc"]
    if variant.user:
        spaces.append("--unshare-user")
    if variant.processes:
        spaces += ["--unshare-pid", "--as-pid-1", "--proc", "/proc"]
        if os.getuid() == 0:  # root may change kernel settings there even without capabilities
            spaces += ["--remount-ro", "/proc"]
    if not (network or joins):
        spaces.append("--unshare-net")
    argv = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", *spaces, *_list_capability_flags(views=views is not None)]
    argv += _list_run_mounts()
    argv += _list_granted_mounts(layout, temporary=False)
    argv += _list_temporary_mounts(layout, layout.temporaries)
    argv += _list_granted_mounts(layout, temporary=True)
    inside_hidden = [path for path in layout.writable if any(contains(folder, path) for folder in layout.hidden)]
    for path in (*layout.writable, *layout.pinned):
        if path not in inside_hidden:
            argv += ["--bind", path, path]
    for path in layout.protected:
        argv += ["--ro-bind-try", path, path]
    hidden = (*layout.hidden, *layout.sockets)
    argv += _list_hidden_mounts(path for path in hidden if path not in layout.concealed)
    argv += _list_hidden_mounts(layout.concealed, _EMPTY_FILE)
    for path in layout.visible:
        argv += ["--ro-bind-try", path, path]
    for path in inside_hidden:
        argv += ["--bind", path, path]
    setup = ["private", *(["net", "="] if network else [f"={_SOCKET_FAMILIES}"])]
    setup += [] if variant.processes else ["pids"]
    for option, source, path in dict.fromkeys(zip(argv, argv[1:], [*argv[2:], ""], strict=False)):
        if option == "--tmpfs":
            setup.append(f"*{source}")
        elif option == "--bind" and (path in inside_hidden or not any(contains(place, path) for place in hidden)):
            setup.append(_identify(source, path))
    if views is not None:
        argv += ["--dir", _VIEWS, "--bind", views.folder, f"{_VIEWS}/up"]
        setup += [f"%{views.mode}:{_VIEWS}", _identify(views.folder, f"{_VIEWS}/up")]
        for number, root in enumerate(views.roots):  # an overlay accepts no folder with the mounts from above in it
            argv += ["--ro-bind", root, f"{_VIEWS}/l{number}"]
            setup += [f"#{root}", _identify(root, f"{_VIEWS}/l{number}")]
    return [*argv, "--", *build_init_argv(python, fd, *setup)]


def _identify(path: str, place: str = "") -> str:
    """Return the word that makes `lockdown` check that this file was mounted, and not what a link led to meanwhile.

    `place` is where it was mounted, if that is not the same path.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    except OSError as error:
        raise SandboxSetupError(f"{path}: {error.strerror}") from None
    try:
        if os.readlink(f"/proc/self/fd/{fd}") != path:  # noqa: PTH115
            raise SandboxSetupError(f"{path}: replaced while the sandbox was created")
        status = os.fstat(fd)
    finally:
        os.close(fd)
    return f"@{status.st_dev}:{status.st_ino}:{place or path}"


def _list_temporary_mounts(layout: SandboxLayout, sources: Mapping[str, str]) -> list[str]:
    argv: list[str] = []
    for path in sorted({*layout.temporary, *layout.persistent}, key=len):  # inner folders after the outer ones
        argv += ["--ro-bind", path, path] if path in layout.persistent else ["--bind", sources[path], path]
    return argv


def _list_granted_mounts(layout: SandboxLayout, *, temporary: bool) -> list[str]:
    """Return the mounts for the granted paths inside or outside temporary folders, which are mounted in between."""
    argv: list[str] = []
    for granted in layout.granted:
        if any(contains(folder, granted.path) for folder in layout.temporary) == temporary:
            argv += ["--bind", granted.path, granted.path]
            for path in granted.kept:
                argv += ["--ro-bind-try", path, path]
    return argv


def build_nested_argv(bwrap: str, python: str, layout: SandboxLayout) -> list[str]:
    """Return the command line of a read-only sandbox inside a sandbox. Network and pids stay the same."""
    argv = [bwrap, "--unshare-user", "--ro-bind", "/", "/", "--dev", "/dev", "--cap-drop", "ALL"]
    argv += _list_temporary_mounts(layout, {path: path for path in layout.temporary})
    setup = [_identify(source, path) for path, source in layout.temporaries.items() if path not in layout.persistent]
    argv += _list_hidden_mounts(layout.concealed, _EMPTY_FILE)
    setup += [f"*{path}" for path in layout.concealed]
    return [*argv, "--", *build_init_argv(python, NESTED_FD, "plain", *setup)]


def _list_capability_flags(*, views: bool) -> list[str]:
    """Return the flags for the capabilities that `lockdown` needs and those that root keeps."""
    wanted = ["CAP_SYS_ADMIN"]
    if views:
        wanted.append("CAP_SETPCAP")
    if views or os.getuid() == 0:
        wanted += ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"]
    return ["--cap-drop", "ALL", *(word for name in wanted for word in ("--cap-add", name))]


def _list_run_mounts() -> list[str]:
    argv: list[str] = []
    for folder in dict.fromkeys(os.path.realpath(path) for path in ("/run", "/var/run")):
        if os.path.isdir(folder):  # noqa: PTH112
            argv += ["--tmpfs", folder]
    for path in _VISIBLE_RUN_PATHS:
        argv += ["--ro-bind-try", path, path]
    return argv


def _list_hidden_mounts(paths: Iterable[str], cover: str = "/dev/null") -> list[str]:
    """Mount an empty folder over each folder and `cover` over each file. Opening /dev/null there is not permitted."""
    argv: list[str] = []
    for path in paths:
        argv += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", cover, path]  # noqa: PTH112
    return argv


def list_candidates(backend: str) -> list[SandboxCandidate]:
    """Return the candidates for a backend setting, strongest first. Without root a user namespace is always created.

    If the setting is off, what must not run without a sandbox gets the strongest one.
    """
    variants = [
        SandboxCandidate("bubblewrap", at)
        for at, variant in enumerate(BUBBLEWRAP_VARIANTS)
        if os.getuid() == 0 or variant != BubblewrapVariant(user=True)
    ]
    by_backend = {"bubblewrap": variants, "landlock": [SandboxCandidate("landlock")]}
    return by_backend.get(backend, [*variants, SandboxCandidate("landlock")])


async def open_sandbox(
    candidate: SandboxCandidate,
    layout: SandboxLayout,
    *,
    network: bool,
    path: str,
    join_network: str = "",
    python: str = sys.executable,
    views: str = "",
    answer_s: float = DEFAULT_TIMING.sandbox_answer_s,
) -> SandboxSupervisor:
    """Create a sandbox. `join_network` is a network namespace to enter. Raise SandboxSetupError.

    `views`: the folder for the layers of views, if commands can have them.
    """

    def plan(fd: int) -> SandboxCommand:
        if not sys.platform.startswith("linux"):
            raise SandboxSetupError("Linux is required")
        if not python:
            raise SandboxSetupError("the path of the Python interpreter is unknown")
        if candidate.kind == "landlock":
            if not find_landlock_abi():
                raise SandboxSetupError("the kernel has no Landlock, or it is disabled")
            return SandboxCommand(build_init_argv(python, fd, *build_landlock_args(layout, network=network)))
        bwrap = find_program("bwrap", path)
        if not bwrap:
            raise SandboxSetupError("bwrap is not installed")
        before = [find_program("nsenter", path) or "nsenter", f"--net={join_network}", "--"] if join_network else []
        variant = BUBBLEWRAP_VARIANTS[candidate.variant]
        setup = _plan_views(views, variant, layout) if views else None
        argv = build_bubblewrap_argv(
            bwrap, variant, layout, python, fd, network=network, joins=bool(join_network), views=setup
        )
        return SandboxCommand([*before, *argv], variant.processes, setup)

    return await open_supervisor(plan, {"PATH": path}, answer_s=answer_s)


def _plan_views(folder: str, variant: BubblewrapVariant, layout: SandboxLayout) -> ViewSetup:
    """Return what views of this sandbox are made of. Raise SandboxSetupError if a command could write past them."""
    roots = list_view_roots(layout)
    for path in roots:
        if not os.path.isdir(path):  # noqa: PTH112
            raise SandboxSetupError(f"{path} is no folder")
    if not roots:
        raise SandboxSetupError("there is no folder that commands may write")
    try:
        # Real root can use attributes that no command can set, and with them overlays can record renamed folders.
        is_real = Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]
    except OSError as error:
        raise SandboxSetupError(f"{error.filename}: {error.strerror}") from None
    mode: ViewMode = "trusted" if os.getuid() == 0 and is_real and not variant.user else "user"
    for path in roots if mode == "user" else ():
        if foreign := _find_foreign(path):
            raise SandboxSetupError(f"{foreign} belongs to another group or user, so a view could not change it")
    return ViewSetup(folder, roots, mode)


def _find_foreign(folder: str) -> str:
    """Return a file near the top of a folder that the user can write but whose group or owner is another one, or "".

    The user namespace of a view knows only those of the user.
    """
    with os.scandir(folder) as entries:
        paths = [folder, *(entry.path for entry in islice(entries, _MAX_LOOKED_AT))]
    for path in paths:
        with suppress(OSError):
            status = os.lstat(path)
            is_own = (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
            if not is_own and not stat.S_ISLNK(status.st_mode) and os.access(path, os.W_OK):
                return path
    return ""


async def can_open(candidate: SandboxCandidate, *, network: bool, path: str) -> bool:
    """Try to create a sandbox of this kind with an empty layout. A transient failure counts as success."""
    try:
        (await open_sandbox(candidate, EMPTY_LAYOUT, network=network, path=path)).kill()
    except SandboxSetupError as error:
        return error.is_transient
    return True


def find_landlock_abi() -> int:
    """Return the Landlock ABI version of the kernel, or 0."""
    if not sys.platform.startswith("linux"):
        return 0
    from odin.sandbox.lockdown import read_landlock_abi

    return read_landlock_abi()


def can_leak_network(candidate: SandboxCandidate) -> bool:
    """True if the network cannot be turned off: Landlock without a socket filter restricts only TCP connections."""
    from odin.sandbox.lockdown import can_filter_sockets

    return candidate.kind == "landlock" and not can_filter_sockets()
