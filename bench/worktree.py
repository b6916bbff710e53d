"""The scratch folder for replaying a history. Names are bytes, as in git."""

import os
from collections.abc import Iterator
from pathlib import Path

from gitread import ABSENT, LINK, SUBMODULE


class Worktree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._root = os.fsencode(root)

    def put(self, path: bytes, mode: str, data: bytes) -> None:
        """Write a path with git's mode and content."""
        target = self._at(path)
        if os.path.lexists(target) and (os.path.islink(target) or not os.path.isdir(target)):
            os.unlink(target)
        if mode in (ABSENT, SUBMODULE):
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if mode == LINK:
            os.symlink(data, target)
            return
        with open(target, "wb") as file:
            file.write(data)
        self.set_executable(path, mode == "100755")

    def set_executable(self, path: bytes, wanted: bool) -> bool:
        """Set or clear the executable bit; True if it changed."""
        target = self._at(path)
        if os.path.islink(target) or not os.path.isfile(target):
            return False
        mode = os.stat(target).st_mode & 0o777
        if bool(mode & 0o111) == wanted:
            return False
        os.chmod(target, mode | 0o111 if wanted else mode & ~0o111)
        return True

    def remove_empty(self, path: bytes) -> None:
        """Remove the empty folders above a path."""
        folder = os.path.dirname(path)
        while folder:
            try:
                os.rmdir(self._at(folder))
            except OSError:
                return
            folder = os.path.dirname(folder)

    def present(self, path: bytes) -> bytes | None:
        """Return the bytes of a file, the target of a link, or None if the path does not exist."""
        target = self._at(path)
        if os.path.islink(target):
            return os.readlink(target)
        try:
            with open(target, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def paths(self) -> Iterator[bytes]:
        for folder, folders, names in os.walk(self._root):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in [*names, *links]:
                yield os.path.relpath(os.path.join(folder, name), self._root)

    def _at(self, path: bytes) -> bytes:
        return os.path.join(self._root, path)
