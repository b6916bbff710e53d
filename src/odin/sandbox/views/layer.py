"""The upper layer of a view: the folders in which overlayfs keeps what a command writes.

    FOLDER/0/u, FOLDER/0/w   upper layer and work folder of the first root, and so on

The kernel notes in extended attributes what a folder means: `trusted.overlay.*` if root mounted the view,
`user.overlay.*` if an ordinary user did. A program in the view can write the other kind, so only the kind of the mount
counts.
"""

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from odin.core.effects import ViewLayer, ViewMode, ViewRoot
from odin.sandbox.views.open_tree import read_attributes, remove_tree

_REALTIME_COARSE = 5
"""The clock that file systems read, which `time` does not name."""


def make_layer(folder: str, reals: Sequence[str], mode: ViewMode) -> ViewLayer:
    """Make the folders for a view of these resolved folders. Raise OSError."""
    os.makedirs(folder, mode=0o700)  # noqa: PTH103
    roots: list[ViewRoot] = []
    for number, real in enumerate(reals):
        root = ViewRoot(real, f"{folder}/{number}/u", f"{folder}/{number}/w")
        for path in (f"{folder}/{number}", root.upper, root.work):
            os.mkdir(path, mode=0o700)  # noqa: PTH102
        roots.append(root)
    return ViewLayer(folder, tuple(roots), mode)


def begin_layer(layer: ViewLayer) -> ViewLayer:
    """Give the upper layers owner, mode and times of the roots they stand for. Return the layer as of now."""
    for root in layer.roots:
        status = Path(root.real).stat()
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()) and layer.mode == "trusted":
            os.chown(root.upper, status.st_uid, status.st_gid)
        for name, value in (read_attributes(root.real, layer.prefix) or {}).items():
            os.setxattr(root.upper, name, value)
        Path(root.upper).chmod(stat.S_IMODE(status.st_mode))
        os.utime(root.upper, ns=(status.st_atime_ns, status.st_mtime_ns))
    # A file system gives all changes within some milliseconds the same time. Since Linux 6.13 a change of what has been
    # looked at gets a time of its own, which later ones reach and earlier ones do not. Else those of this very moment
    # count as earlier: the command has yet to start.
    upper = Path(layer.roots[0].upper)
    status = upper.stat()
    os.utime(upper, ns=(status.st_atime_ns, status.st_mtime_ns))
    since = upper.stat().st_ctime_ns
    is_own = since > time.clock_gettime_ns(_REALTIME_COARSE)
    return replace(layer, since=since if is_own else since + 1)


def remove_layer(layer: ViewLayer) -> None:
    """Remove a layer with all effects in it. The kernel's work folder has mode 000."""
    remove_tree(layer.folder)
