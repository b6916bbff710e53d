"""The folder in which one process keeps what only its sandboxes use. It is removed with the sandboxes, or after a crash
when another process makes its own.

    PLACE/NAME/lock        locked while the process lives
    PLACE/NAME/layers      the layers of views
    PLACE/NAME/temporary   the temporary files of commands
"""

import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path

from odin.core.effects import ViewLayer
from odin.sandbox.views.applier import DONE, JOURNAL, ApplyResult, resume_apply
from odin.sandbox.views.open_tree import remove_tree

_PREFIX = "odin-sandbox-"

_RECOVERY_S = 7 * 86_400.0

_MAX_KEPT = 5
"""Layers that could not be applied are kept for the user, but no more than this in one folder."""


class PrivateFolder:
    """Made on first use below `place`; if that is not possible, in the temporary folder of the machine."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._path = ""
        self._lock = -1

    @property
    def layers(self) -> str:
        return f"{self.open()}/layers"

    @property
    def temporary(self) -> str:
        return f"{self.open()}/temporary"

    def open(self) -> str:
        """Return the folder. Raise OSError."""
        if not self._path:
            place = os.path.realpath("/tmp")
            with contextlib.suppress(OSError):
                os.makedirs(self._place, mode=0o700, exist_ok=True)  # noqa: PTH103
                place = self._place if os.access(self._place, os.W_OK) else place
            recover_folders(place)
            name = f"{_PREFIX}{os.urandom(8).hex()}"
            os.mkdir(f"{place}/.{name}", mode=0o700)  # noqa: PTH102
            self._lock = os.open(f"{place}/.{name}/lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._path = f"{place}/{name}"
            os.rename(f"{place}/.{name}", self._path)  # noqa: PTH104  # others leave it alone: it is locked by now
            for name in ("layers", "temporary"):
                os.mkdir(f"{self._path}/{name}", mode=0o700)  # noqa: PTH102
        return self._path

    def remove(self) -> None:
        """Remove the folder, except layers that are being applied or whose changes are not yet recorded."""
        if self._path:
            path, self._path = self._path, ""
            if not list_unfinished(path):  # else it stays locked until this process ends
                _remove_folders([(path, self._lock)])


def recover_folders(place: str) -> tuple[ApplyResult, ...]:
    """Complete what processes that have ended were applying, then remove their folders, those in a thread.

    A layer that was applied stays for a while: its session records the changes when it is resumed.
    """
    results: list[ApplyResult] = []
    ended: list[tuple[str, int]] = []
    for name in os.listdir(place):  # noqa: PTH208
        path = f"{place}/{name}"
        with contextlib.suppress(OSError):
            if not name.startswith(_PREFIX) or os.lstat(path).st_uid != os.geteuid():
                continue
            lock = os.open(f"{path}/lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                resumed = [resume_apply(str(stage)) for stage in list_unfinished(path)]
                results += [result for result in resumed if result is not None]
            except OSError:
                os.close(lock)
                continue
            ended.append((path, lock))
    if ended:
        threading.Thread(target=_remove_folders, args=(ended,), daemon=True).start()
    return tuple(results)


def list_unfinished(path: str) -> list[Path]:
    """Return the stages of this folder in which an apply has begun and not ended."""
    stages = [journal.parent for journal in Path(path).glob(f"layers/*/stage/{JOURNAL}")]
    return [stage for stage in stages if not (stage / DONE).exists()]


def _remove_folders(ended: list[tuple[str, int]]) -> None:
    for path, lock in ended:
        with contextlib.suppress(OSError):  # what is still mounted goes next time
            oldest = time.time() - _RECOVERY_S
            journals = Path(path).glob(f"layers/*/stage/{JOURNAL}")
            kept = {journal.parents[1].name for journal in journals if journal.stat().st_mtime > oldest}
            for name in os.listdir(f"{path}/layers"):  # noqa: PTH208
                if name not in kept:
                    remove_tree(f"{path}/layers/{name}")
            remove_tree(f"{path}/temporary" if kept else path)
        os.close(lock)


def keep_layer(layer: ViewLayer, folder: str) -> str:
    """Move a layer that could not be applied to a folder of the session. Return where it is. Raise OSError.

    The folder holds the latest ones only, and nothing in it that the user cannot delete.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    kept = sorted(Path(folder).iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path in kept[: max(0, len(kept) - _MAX_KEPT + 1)]:
        remove_tree(str(path))
    target = f"{folder}/{layer.name}"
    os.rename(layer.folder, target)  # noqa: PTH104
    for root in layer.roots:
        remove_tree(f"{target}{root.work.removeprefix(layer.folder)}")
    for path, _, _ in os.walk(target):
        os.chmod(path, 0o700)  # noqa: PTH101
    return target
