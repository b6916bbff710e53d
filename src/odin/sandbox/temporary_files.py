"""The temporary files of commands, for tools that read and write files.

Commands have temporary folders of their own. Under a path in one of them, a file tool means the file that commands made
or changed there. Any other such path is one of the machine, and commands see a copy of what a tool has read or written.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress

from odin.core.path_names import contains, make_temporary_name
from odin.sandbox.views.open_tree import OpenTree, find_status

_MAX_COPIED = 50_000_000


class TemporaryFiles:
    """`folders` are the temporary folders of the machine, and where those of commands lie.

    The paths in `persistent` lie in them but are no temporary files, such as a project in /tmp.
    """

    def __init__(self, folders: Mapping[str, str], persistent: Sequence[str]) -> None:
        self._folders = folders
        self._persistent = persistent
        self._copies: dict[str, tuple[int, int, int]] = {}

    def find(self, path: str) -> str:
        """Return where the file that commands made or changed under this path lies, or ""."""
        top, rest = self._locate(path)
        place = f"{top}/{rest}"
        if not rest or not os.path.lexists(place):
            return ""
        real = os.path.realpath(place)
        with suppress(OSError):
            if contains(top, real) and _identify(os.stat(real)) != self._copies.get(path):  # noqa: PTH116
                return real
        return ""

    def share(self, path: str) -> None:
        """Show commands a regular file of the machine, as it is now. Raise OSError.

        Commands can put links into their folders at any time, so no path in them is followed.
        """
        top, rest = self._locate(path)
        if not rest or self.find(path):
            return
        with OpenTree(top) as tree:
            try:
                source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                if self._copies.pop(path, None):
                    folder, name = tree.locate(rest)
                    os.unlink(name, dir_fd=folder)
                return
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_COPIED:
                os.close(source)
                return
            with open(source, "rb") as file:  # noqa: PTH123
                names = rest.split("/")[:-1]
                for depth in range(len(names)):
                    folder, name = tree.locate("/".join(names[: depth + 1]))
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                folder, name = tree.locate(rest)
                draft = make_temporary_name(name)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with open(os.open(draft, flags, stat.S_IMODE(status.st_mode), dir_fd=folder), "wb") as copy:  # noqa: PTH123
                    copy.write(file.read(_MAX_COPIED))
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
                copied = find_status((folder, name))
                if copied is not None:
                    self._copies[path] = _identify(copied)

    def list_unseen(self, text: str) -> list[str]:
        """Return the files of the machine that a command names and cannot see."""
        words = (word.strip("'\"`();<>&|,:") for word in text.split())
        named = (os.path.realpath(word) for word in words if word.startswith("/"))
        return [path for path in dict.fromkeys(named) if self._is_unseen(path)]

    def _is_unseen(self, path: str) -> bool:
        top, rest = self._locate(path)
        return bool(rest) and os.path.isfile(path) and not os.path.lexists(f"{top}/{rest}")  # noqa: PTH113

    def _locate(self, path: str) -> tuple[str, str]:
        """Return the folder of commands that holds a path, and the path in it; "" if it is not temporary."""
        found = [folder for folder in (*self._folders, *self._persistent) if contains(folder, path)]
        folder = max(found, key=len, default="")
        top = "" if folder in self._persistent else self._folders.get(folder, "")
        return (top, path[len(folder) + 1 :]) if top else ("", "")


def _identify(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns
