"""Mounts a private view of the writable folders for one command, inside the sandbox.

A view is a mount namespace in which every writable folder is an overlay: the real folder is its lower layer, and what
the command writes goes to an upper layer that Odin has made (`views/`). An overlay covers what was mounted below it,
so secrets and sockets are hidden again on top. The overlays are mounted in advance, but nothing is looked up in them
until the command starts: they would show the state of that moment for ever.

Runs in the interpreter of the init program, see there.
"""

import os

TYPE_CHECKING = False  # `typing` takes longer to import than the interpreter to start
if TYPE_CHECKING or __package__:
    from odin.sandbox import lockdown
    from odin.sandbox.renames import RenameHelper
else:
    import lockdown
    from renames import RenameHelper

_SAFE = lockdown.MS_NOSUID | lockdown.MS_NODEV
_OPTIONS = {"trusted": "redirect_dir=on,index=off,metacopy=off", "user": "userxattr"}
"""By the prefix of the overlay's extended attributes: `trusted` where real root mounts it, `user` in a user namespace.
"""

_EMPTY = "/dev/shm/empty"

_FILE_BYTES = 20_000
"""What a file counts at least, even an empty one: somebody has to look through all of them."""


class ViewMounter:
    """`place` is the descriptor that `lockdown` returned, `roots` are the writable folders as in the setup."""

    def __init__(self, place: int, mode: str, roots: "list[str]") -> None:
        self.place = place
        self._mode = mode
        self._roots = roots
        self._layers = -1

    def unshare_processes(self) -> None:
        """Give the next child of this process a pid namespace of its own."""
        lockdown.unshare(lockdown.CLONE_NEWPID)

    def mount(self, view: str) -> "RenameHelper | None":
        """Enter a mount namespace and mount the overlays with the layers of this view. Raise OSError.

        Return what must answer its renames, if they are limited, else None. The view's /proc shows only its own
        processes, and it has its own shared memory.
        """
        os.fchdir(self.place)  # overlays accept only layers in the mount namespace of the mounter
        lockdown.unshare(lockdown.CLONE_NEWNS)
        for number, root in enumerate(self._roots):
            layer = f"up/{view}/{number}"
            layers = f"lowerdir=l{number},upperdir={layer}/u,workdir={layer}/w"
            lockdown.mount("overlay", root, "overlay", _SAFE, f"{layers},volatile,{_OPTIONS[self._mode]}")
        is_root = os.getuid() == 0  # root may change kernel settings there even without capabilities
        lockdown.mount("proc", "/proc", "proc", _SAFE | lockdown.MS_NOEXEC | is_root * lockdown.MS_RDONLY)
        lockdown.mount("tmpfs", "/dev/shm", "tmpfs", _SAFE, "mode=1777")
        self._layers = os.open(f"up/{view}", os.O_PATH)
        os.chdir("/")
        os.close(self.place)
        helper = RenameHelper(self._roots) if self._mode == "user" else None
        return helper if helper is not None and helper.fd >= 0 else None

    def hide(self, hidden: "list[str]", shown: "list[str]") -> None:
        """Hide these paths of the view, except `shown`, which lie in them: roots stay writable, others do not."""
        opened = {path: os.open(path, os.O_PATH) for path in shown}
        inner = [path for path in hidden if any(path.startswith(f"{place}/") for place in shown)]
        os.close(os.open(_EMPTY, os.O_CREAT | os.O_WRONLY, 0o644))
        # What is bound from a read-only mount is read-only.
        self._bind(_EMPTY, _EMPTY, lockdown.MS_RDONLY)
        outer = [path for path in hidden if path not in inner]
        open_folders = [path for path in outer if any(place.startswith(f"{path}/") for place in shown)]
        self._cover([path for path in outer if path not in open_folders])
        self._cover(open_folders, 0)
        for path, fd in opened.items():
            is_folder = os.path.isdir(f"/proc/self/fd/{fd}")  # noqa: PTH112
            os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
            if not is_folder:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            self._bind(f"/proc/self/fd/{fd}", path, 0 if path in self._roots else lockdown.MS_RDONLY)
            os.close(fd)
        self._cover(inner)
        for path in open_folders:  # what is written there would be lost without a word
            lockdown.mount(None, path, None, lockdown.MS_REMOUNT | _SAFE | lockdown.MS_RDONLY)
        lockdown.unmount(_EMPTY)
        os.unlink(_EMPTY)  # noqa: PTH108

    def _cover(self, paths: "list[str]", flags: int = lockdown.MS_RDONLY) -> None:
        """Mount an empty folder over each folder and an empty file over each file.

        Sockets are removed and made again at any time. So each is one step: a second one would find something else in
        that place. What has just been removed needs no cover.
        """
        for path in paths:
            try:
                if os.path.isdir(path):  # noqa: PTH112
                    lockdown.mount("tmpfs", path, "tmpfs", _SAFE | flags, "mode=755")
                elif os.path.exists(path):  # noqa: PTH110
                    lockdown.mount(_EMPTY, path, None, lockdown.MS_BIND)
            except FileNotFoundError:
                continue

    def _bind(self, source: str, path: str, flags: int) -> None:
        lockdown.mount(source, path, None, lockdown.MS_BIND)
        lockdown.mount(None, path, None, lockdown.MS_REMOUNT | lockdown.MS_BIND | _SAFE | flags)

    def drop_privileges(self) -> None:
        lockdown.drop_mount_privileges()

    def find_exceeded(self, memory: int, processes: int, disk: int) -> int:
        """Return the index of the limit that the processes of the view exceed, or -1. A limit of 0 is none."""
        shared = os.statvfs("/dev/shm")
        used = (shared.f_blocks - shared.f_bfree) * shared.f_frsize
        pids = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        for pid in pids:
            try:
                with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
                    _, resident, common, *_ = map(int, file.read().split())
            except OSError:
                continue
            used += (resident - common) * os.sysconf("SC_PAGE_SIZE")
        if 0 < memory < used:
            return 0
        if 0 < processes < len(pids) - 1:  # without this one
            return 1
        return 2 if 0 < disk < self._measure_layers(disk) else -1

    def _measure_layers(self, enough: int) -> int:
        """Return how many bytes the layers take, at least; no more are counted than `enough`."""
        size, pending = 0, [f"/proc/self/fd/{self._layers}"]
        while pending and size <= enough:
            try:
                with os.scandir(pending.pop()) as entries:
                    for entry in entries:
                        size += max(entry.stat(follow_symlinks=False).st_blocks * 512, _FILE_BYTES)
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
            except OSError:  # the command is changing it
                continue
        return size
