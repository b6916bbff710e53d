"""Where a command runs, what it may read there, and which paths are protected."""

import os
from collections.abc import Iterable

from msgspec import Struct, structs

from odin.core.environment import ExecutionEnvironment
from odin.core.path_names import contains, find_protected_name, is_secret_path
from odin.core.root import Root
from odin.policy.paths import is_special_file, join_path, look_up_once, resolve_path


class CommandScope(Struct, frozen=True):
    """The folder a command runs in, the roots that it must not leave, and the environment of the session.

    `root` is the project; `roots` are the folders besides it.
    """

    cwd: str
    root: str
    environment: ExecutionEnvironment
    roots: tuple[Root, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """The project and the other roots."""
        return (self.root, *(root.path for root in self.roots)) if self.roots else (self.root,)

    def find_root(self, path: str) -> str:
        """Return the root that a resolved path lies in, or ""."""
        if contains(self.root, path):
            return self.root
        return next((root.path for root in self.roots if contains(root.path, path)), "")

    def find_read_only_root(self, path: str) -> str:
        """Return the root that a resolved path lies in, if it is read-only, or ""."""
        return next((root.path for root in self.roots if not root.is_writable and contains(root.path, path)), "")

    def leave_read_only(self) -> "CommandScope":
        """Return the scope without the read-only roots, for a command that no sandbox keeps from writing there."""
        return structs.replace(self, roots=tuple(root for root in self.roots if root.is_writable))

    def enter(self, folder: str) -> "CommandScope":
        """Return the scope of a command that runs in another folder."""
        return self if folder == self.cwd else CommandScope(folder, self.root, self.environment, self.roots)

    def allows(self, path: str, *, content: bool) -> bool:
        """True if a path may be looked at unasked: a file or folder of a root or the temporary folders.

        With `content`, it may be printed, so its name must not suggest secrets.
        """
        resolved = resolve_path(path, self.cwd)
        if resolved is None or not (self.find_root(resolved) or self.is_temporary(resolved)):
            return False
        if is_special_file(path, self.cwd):
            return False
        return not content or not (is_secret_path(join_path(self.cwd, path)) or is_secret_path(resolved))

    def is_temporary(self, path: str) -> bool:
        """True if a resolved path lies in a temporary folder, but not where a root or the home lies in it."""
        kept = (*self.folders, os.path.realpath(self.environment.home))
        for folder in _find_temporary_folders(self.environment):
            if contains(folder, path):
                return not any(_share_first_name(folder, path, other) for other in kept)
        return False

    def find_protected_part(self, path: str, *, in_command: bool = False) -> str:
        """Return the part of a path that makes it protected, or "".

        Protected files make other programs run something, or belong to Odin. Folders above its root do not count. With
        `in_command`, the path is a word of a command, which may name installed programs.
        """
        written = os.path.normpath(join_path(self.cwd, path))
        return self.find_protected_form((written, resolve_path(path, self.cwd) or written), in_command=in_command)

    def find_protected_form(self, forms: Iterable[str], *, in_command: bool = False) -> str:
        """Return the part that makes one of these absolute paths protected, or ""."""
        tops = (resolve_path(self.root, "/") or self.root, *self.folders[1:])
        for form in dict.fromkeys(forms):
            top = next((root for root in tops if contains(root, form)), "")
            names = form[len(top) :].split("/")
            name = find_protected_name(names, in_command=in_command)
            if name:
                return name
            own_folders = _resolve_own_folders(self.environment)
            if any(contains(own, form) and not contains(own, top or tops[0]) for own in own_folders):
                return "Odin's own folder"
        return ""


def resolve_scope(cwd: str, root: str, environment: ExecutionEnvironment, roots: tuple[Root, ...] = ()) -> CommandScope:
    """Return the scope with the links in its folders resolved."""
    return CommandScope(resolve_path(cwd, "/") or cwd, resolve_path(root, "/") or root, environment, roots)


def _share_first_name(folder: str, path: str, other: str) -> bool:
    """True if two paths are in the same entry of a folder."""
    if path == folder:
        return False
    entry = f"{folder}/{path[len(folder) + 1 :].partition('/')[0]}"
    return contains(entry, other)


@look_up_once
def _find_temporary_folders(environment: ExecutionEnvironment) -> tuple[str, ...]:
    """Return /tmp, /var/tmp and the folder of TMPDIR, the innermost first."""
    home = os.path.realpath(environment.home)
    found = {os.path.realpath(path) for path in ("/tmp", "/var/tmp", environment.get("TMPDIR")) if path.startswith("/")}
    return tuple(sorted((path for path in found if path not in ("/", home)), key=len, reverse=True))


@look_up_once
def _resolve_own_folders(environment: ExecutionEnvironment) -> tuple[str, ...]:
    return tuple(map(os.path.realpath, environment.own_folders))
