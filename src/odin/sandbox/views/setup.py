"""How views are made: where their layers lie, and why one cannot be mounted."""

import errno
import os
from pathlib import Path

from msgspec import Struct

from odin.core.effects import ViewLayer, ViewMode
from odin.sandbox.views.layer import make_layer


class ViewSetup(Struct, frozen=True):
    """What views of one sandbox are made of: the folder for their layers, and the writable roots."""

    folder: str
    roots: tuple[str, ...]
    mode: ViewMode

    def make_layer(self) -> ViewLayer:
        """Make the folders of a new view. Raise OSError."""
        return make_layer(f"{self.folder}/{os.urandom(8).hex()}", self.roots, self.mode)


def describe_mount_error(number: int, setup: ViewSetup) -> str:
    """Return why the overlays of a view could not be mounted."""
    if number == errno.ENODEV:
        return "the kernel has no overlay file system"
    if number in (errno.EPERM, errno.EACCES):
        return "the sandbox may not mount an overlay (this needs Linux 5.11, and AppArmor must allow it)"
    stacked = next((root for root in setup.roots if _find_file_system(root) == "overlay"), "")
    if stacked:
        return f"{stacked} lies on an overlay itself, as in a container"
    return f"an overlay of {' and '.join(setup.roots)} cannot be mounted: {os.strerror(number)}"


def _find_file_system(path: str) -> str:
    """Return the type of the file system that this path lies on, or ""."""
    try:
        device = os.stat(path).st_dev  # noqa: PTH116
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    found = (line.partition(" - ")[2].split(" ")[0] for line in lines if line.split(" ")[2] == number)
    return next(found, "")
