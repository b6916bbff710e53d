"""Where a command runs, what it may read there, and which paths are protected."""

import os
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from odin.core.environment import ExecutionEnvironment
from odin.core.path_names import contains, find_protected_name, is_secret_path
from odin.policy.paths import is_special_file, join_path, look_up_once, resolve_path


class CommandScope(Struct, frozen=True):
    """The folder a command runs in, the project root that it must not leave, and the environment of the session."""

    cwd: str
    root: str
    environment: ExecutionEnvironment

    def enter(self, folder: str) -> "CommandScope":
        """Return the scope of a command that runs in another folder."""
        return self if folder == self.cwd else CommandScope(folder, self.root, self.environment)

    def allows_path(self, path: str) -> bool:
        """True if a path stays inside the root and is a regular file or folder."""
        resolved = resolve_path(path, self.cwd)
        return resolved is not None and contains(self.root, resolved) and not is_special_file(path, self.cwd)

    def allows_name(self, path: str) -> bool:
        """True if the name itself lies inside the root. Enough for commands that do not follow links."""
        folder, _, name = path.rstrip("/").rpartition("/")
        return name not in ("", ".", "..") and self.is_within(folder or ("/" if path.startswith("/") else "."))

    def allows_content(self, path: str) -> bool:
        """True if a file may be printed: it lies inside the root and its name does not suggest secrets."""
        if path == "-":
            return True
        resolved = resolve_path(path, self.cwd)
        if resolved is None or not contains(self.root, resolved) or is_special_file(path, self.cwd):
            return False
        return not is_secret_path(join_path(self.cwd, path)) and not is_secret_path(resolved)

    def is_within(self, path: str) -> bool:
        """True if a word, read as a path, stays inside the root."""
        resolved = resolve_path(path, self.cwd)
        return resolved is not None and contains(self.root, resolved)

    def walk_up(self) -> Iterator[str]:
        """Yield the current folder and its parents, up to the root."""
        folder = self.cwd
        while contains(self.root, folder):
            yield folder
            if folder == self.root:
                return
            folder = folder.rpartition("/")[0]

    def has_config(self, names: Sequence[str]) -> bool:
        """True if one of these files exists in the current folder or a parent, where a program would load it."""
        return any(os.path.lexists(f"{folder}/{name}") for folder in self.walk_up() for name in names)

    def find_protected_part(self, path: str, *, in_command: bool = False) -> str:
        """Return the part of a path that makes it protected, or "".

        Protected files make other programs run something, or belong to Odin. Folders above the root do not count. With
        `in_command`, the path is a word of a command, which may name installed programs.
        """
        written = os.path.normpath(join_path(self.cwd, path))
        return self.find_protected_form((written, resolve_path(path, self.cwd) or written), in_command=in_command)

    def find_protected_form(self, forms: Iterable[str], *, in_command: bool = False) -> str:
        """Return the part that makes one of these absolute paths protected, or ""."""
        top = resolve_path(self.root, "/") or self.root
        for form in dict.fromkeys(forms):
            names = (form[len(top) :] if contains(top, form) else form).split("/")
            name = find_protected_name(names, in_command=in_command)
            if name:
                return name
            if any(contains(own, form) and not contains(own, top) for own in _resolve_own_folders(self.environment)):
                return "Odin's own folder"
        return ""


def resolve_scope(cwd: str, root: str, environment: ExecutionEnvironment) -> CommandScope:
    """Return the scope with the links in its folders resolved."""
    return CommandScope(resolve_path(cwd, "/") or cwd, resolve_path(root, "/") or root, environment)


@look_up_once
def _resolve_own_folders(environment: ExecutionEnvironment) -> tuple[str, ...]:
    return tuple(map(os.path.realpath, environment.own_folders))
