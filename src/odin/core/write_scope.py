"""What an agent may change: a list of files and folders of the project, or nothing.

A scope is a value of names relative to the project, so that it can be recorded in the log and means the same in a
worktree. `policy/write_scope.py` makes one from what a model or a user wrote. It is enforced twice: the policy refuses
edits outside it, and the sandbox makes only its paths writable for commands.
"""

from msgspec import Struct

from odin.core.path_names import contains


class WriteScope(Struct, frozen=True):
    """The files, and the files and folders below `path_prefixes`, that an agent may change; "." is the whole project.

    A scope without any of them is not limited. With `read_only` nothing may be changed.
    """

    files: tuple[str, ...] = ()
    path_prefixes: tuple[str, ...] = ()
    read_only: bool = False

    @property
    def is_limited(self) -> bool:
        return self.read_only or bool(self.files or self.path_prefixes)

    def list_paths(self, root: str) -> tuple[str, ...]:
        """Return the absolute paths of what may be changed in the project at `root`."""
        names = () if self.read_only else (*self.files, *self.path_prefixes)
        return tuple(root if name == "." else f"{root.rstrip('/')}/{name}" for name in names)

    def allows(self, path: str, root: str) -> bool:
        """True if an absolute path without links may be changed in the project at `root`."""
        if not self.is_limited:
            return True
        places = self.list_paths(root)
        return path in places[: len(self.files)] or any(contains(place, path) for place in places[len(self.files) :])

    def restrict_to(self, other: "WriteScope") -> "WriteScope":
        """Return the scope of what both allow; it is read-only if that is nothing."""
        if not (self.is_limited and other.is_limited):
            return self if self.is_limited else other
        if self.read_only or other.read_only:
            return WriteScope(read_only=True)
        files = [*filter(other._includes, self.files), *filter(self._includes, other.files)]
        folders = [
            *filter(other._includes_below, self.path_prefixes),
            *filter(self._includes_below, other.path_prefixes),
        ]
        both = WriteScope(tuple(dict.fromkeys(files)), tuple(dict.fromkeys(folders)))
        return both if both.is_limited else WriteScope(read_only=True)

    def _includes(self, name: str) -> bool:
        return name in self.files or self._includes_below(name)

    def _includes_below(self, name: str) -> bool:
        return any(_is_below(name, folder) for folder in self.path_prefixes)

    def conflicts_with(self, other: "WriteScope") -> bool:
        """True if both allow changes of the same file. A scope that is not limited declares nothing, so it conflicts
        with none."""
        if not (self.is_limited and other.is_limited):
            return False
        return bool(self.find_overlap(other))

    def find_overlap(self, other: "WriteScope") -> str:
        """Return a name that both scopes list or contain, or ""."""
        for one in () if self.read_only else (*self.files, *self.path_prefixes):
            for two in () if other.read_only else (*other.files, *other.path_prefixes):
                if one == two or (one in self.path_prefixes and _is_below(two, one)):
                    return two
                if two in other.path_prefixes and _is_below(one, two):
                    return one
        return ""

    def describe(self) -> str:
        """Return the scope in a few words: "src/api/, README.md"; "nothing (read-only)"; "the project"."""
        if self.read_only:
            return "nothing (read-only)"
        folders = ("the project" if name == "." else name for name in self.path_prefixes)
        return ", ".join((*folders, *self.files)) or "the project"


def _is_below(name: str, folder: str) -> bool:
    return folder == "." or contains(folder, name)
