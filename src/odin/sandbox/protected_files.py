"""Protected files: what makes other programs run something (git hooks, editor tasks), at any depth of a project.

bubblewrap makes those that exist read-only. Landlock cannot, and a new one can always be created, so their content is
compared before and after each command. A folder is listed again only if its times changed; ctime is one of them, which
no program can set. The walk is bounded, but breadth-first with installed packages last, so only far places are missed.
"""

import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice

from msgspec import Struct

from odin.core.path_names import BUILD_SERVER_NAMES, classify_entry, contains, fold_name

_GIT_PROTECTED = ("config", "config.worktree", "hooks", "commondir", "info/attributes")
"""Entries of a git folder that configure git. Everything else in it is data, which commits must be able to write."""

_BARE_REPOSITORY = frozenset(("HEAD", "objects", "refs"))
"""Entries that make a folder of any name a git folder."""

INSTALLED = frozenset(
    """
    node_modules bower_components site-packages dist-packages vendor venv .venv .tox .nox target __pycache__ .cache
    .pnpm-store pods
    """.split()  # noqa: SIM905
)
"""Folders of installed packages and build results. They are walked last, and their files can be deleted."""

_MAX_FOLDERS = 5_000
_MAX_INSTALLED = 1_000
_MAX_SECONDS = 0.5
_MAX_GIT_FOLDERS = 200
_MAX_READ_ONLY = 200
_MAX_INNER = 300
"""Maximum number of entries compared inside one protected folder."""

_MAX_PROGRAMS = 3_000

_MAX_HASHED_BYTES = 1_000_000
"""Larger files are compared by their times and size."""

_UNSETTLED_NS = 50_000_000
"""What changed this recently may change again within the resolution of timestamps, so it is read again next time."""

Times = tuple[int, int, int]
"""inode, size and ctime, which changes with every change."""


class FolderListing(Struct, frozen=True):
    """What matters of one folder, as paths. `is_installed`: the folder is one of `INSTALLED`, or lies in one.

    `watched` are protected files that ordinary commands write, and `programs` those that package managers install: they
    are never read-only.
    """

    subfolders: tuple[str, ...]
    installed: tuple[str, ...]
    protected: tuple[str, ...]
    watched: tuple[str, ...]
    programs: tuple[str, ...]
    git_folders: tuple[str, ...]
    is_installed: bool


class ProtectedState(Struct, frozen=True):
    """The protected files at one moment: the content by path, and the folders that were listed to find them."""

    content: dict[str, str]
    folders: dict[str, FolderListing]


class ProtectedFiles:
    """Finds the protected files of a project and of other folders. `skipped` folders are not entered."""

    def __init__(self, *roots: str, skipped: Iterable[str] = ()) -> None:
        self._roots = roots
        self._skipped = frozenset(skipped)
        self._listings: dict[str, tuple[tuple[int, int], FolderListing]] = {}
        self._hashes: dict[str, tuple[Times, str]] = {}
        self._folders: dict[str, FolderListing] = {}
        self._repositories: list[str] = []
        self._lock = threading.Lock()  # threads look, and so does the event loop

    def read_state(self, cwd: str = "") -> ProtectedState:
        """Return the current state; `cwd` is where the command runs, if not in the project."""
        with self._lock:
            self._folders = folders = self._walk(cwd)
            content: dict[str, str] = {}
            watched = (path for listing in folders.values() for path in listing.watched)
            for path in chain(self._list_paths(folders), watched):
                self._read_path(path, content)
            for listing in folders.values():
                for path in listing.programs:
                    # Add an installed program or a folder of them by their times: there are many, and links lead to
                    # other packages.
                    with suppress(OSError):
                        status = os.lstat(path)
                        content[path] = f"{status.st_ino} {status.st_ctime_ns}"
                        if stat.S_ISDIR(status.st_mode):
                            content[path] = "folder"
                            with os.scandir(path) as entries:
                                for entry in islice(entries, _MAX_PROGRAMS):
                                    status = entry.stat(follow_symlinks=False)
                                    content[entry.path] = f"{status.st_ino} {status.st_ctime_ns}"
            content.update(dict.fromkeys(self._repositories, "folder"))
            for folder, listing in folders.items():
                content.update({path: "folder" for path in listing.git_folders if path != folder})
            return ProtectedState(content, folders)

    def list_read_only(self, *, is_fresh: bool = False) -> list[str]:
        """Return the existing protected files that a sandbox makes read-only, those near the root first.

        Left out are files behind a symbolic link, which lie elsewhere, and those that ordinary commands write: the
        watched ones, and those of installed packages. `is_fresh`: the state was read just before, so nothing is listed
        again.
        """
        with self._lock:
            if not is_fresh or not self._folders:
                self._folders = self._walk("")
            own = ((path, listing) for path, listing in self._folders.items() if self._has(path))
            folders = {path: listing for path, listing in own if not listing.is_installed}
            reals = {root: os.path.realpath(root) for root in self._roots}
            paths = [(path, self._find_root(path)) for path in dict.fromkeys(self._list_paths(folders))]
            paths.sort(key=lambda item: item[0].removeprefix(item[1]).count("/"))
            found = [path for path, root in paths if _is_own_path(path, root, reals[root])]
            return found[: _MAX_READ_ONLY * len(reals)]

    def _find_root(self, path: str) -> str:
        """Return the folder that a path lies in; for any other path, the project."""
        return next((root for root in self._roots if contains(root, path)), self._roots[0])

    def _has(self, path: str) -> bool:
        return any(contains(root, path) for root in self._roots)

    def _list_paths(self, folders: dict[str, FolderListing]) -> Iterator[str]:
        for repository in self._repositories:
            yield from list_git_paths(repository)
        for listing in folders.values():
            yield from listing.protected
            for path in listing.git_folders:
                if path not in self._repositories:
                    yield from list_git_paths(path)

    def _walk(self, cwd: str) -> dict[str, FolderListing]:
        self._repositories = list_git_folders(self._roots)
        folders: dict[str, FolderListing] = {}
        later: list[str] = []
        deadline = time.monotonic() + _MAX_SECONDS
        starts = list(dict.fromkeys((*self._roots, *([cwd] if cwd else ()))))
        self._walk_level(starts, later, folders, is_installed=False, limit=_MAX_FOLDERS, deadline=deadline)
        self._walk_level(
            later, later, folders, is_installed=True, limit=len(folders) + _MAX_INSTALLED, deadline=deadline
        )
        if len(self._listings) > 2 * (_MAX_FOLDERS + _MAX_INSTALLED):
            self._listings = {path: known for path, known in self._listings.items() if path in folders}
        if len(self._hashes) > 2 * _MAX_FOLDERS:
            self._hashes.clear()
        return folders

    def _walk_level(
        self,
        level: list[str],
        later: list[str],
        folders: dict[str, FolderListing],
        *,
        is_installed: bool,
        limit: int,
        deadline: float,
    ) -> None:
        """List these folders, then those in them, and so on. Folders of installed packages are put into `later`."""
        while level:
            inner: list[str] = []
            for folder in level:
                if len(folders) >= limit or time.monotonic() > deadline:
                    return
                if folder in folders or folder in self._skipped:
                    continue
                listing = self._list_folder(folder, is_installed)
                if listing is not None:
                    folders[folder] = listing
                    inner.extend(listing.subfolders)
                    (inner if is_installed else later).extend(listing.installed)
            level = inner

    def _list_folder(self, folder: str, is_installed: bool) -> FolderListing | None:
        try:
            status = os.lstat(folder)
            known = self._listings.get(folder)
            if known is not None and known[0] == (status.st_ino, status.st_ctime_ns):
                return known[1]
            listing = _list_folder(folder, is_installed)
        except OSError:
            return None
        if is_settled(status):
            self._listings[folder] = ((status.st_ino, status.st_ctime_ns), listing)
        else:
            self._listings.pop(folder, None)
        return listing

    def _read_path(self, path: str, content: dict[str, str]) -> None:
        """Add what is at a protected path: a file, a link and what it leads to in the project, or a whole folder."""
        queue = deque([path])
        left = _MAX_INNER
        while queue and left:
            left -= 1
            path = queue.popleft()
            try:
                status = os.lstat(path)
                real = content[path] = ""
                if stat.S_ISLNK(status.st_mode):
                    content[path] = f"link {os.readlink(path)} "  # noqa: PTH115
                    real = os.path.realpath(path)
                    if not self._has(real):
                        continue
                    status = os.lstat(real)
                if stat.S_ISDIR(status.st_mode):
                    content[path] += "folder"
                    queue.extend(f"{path}/{name}" for name in sorted(os.listdir(path))[:_MAX_INNER])  # noqa: PTH208
                else:
                    content[path] += self._describe_file(real or path, status)
            except OSError:
                continue

    def _describe_file(self, path: str, status: os.stat_result) -> str:
        """Return a text that changes with the content of a file and whether it is executable."""
        times = (status.st_ino, status.st_size, status.st_ctime_ns)
        mode = f"{stat.S_IFMT(status.st_mode) | (status.st_mode & 0o111):o}"
        known = self._hashes.get(path)
        if known is not None and known[0] == times:
            return f"{mode} {known[1]}"
        data = _read_small_file(path) if stat.S_ISREG(status.st_mode) else None
        if data is None:
            return f"{mode} {times}"
        from hashlib import sha256

        digest = sha256(data).hexdigest()
        if is_settled(status):
            self._hashes[path] = (times, digest)
        else:
            self._hashes.pop(path, None)
        return f"{mode} {digest}"


def find_tampered_files(before: ProtectedState, after: ProtectedState, root: str) -> tuple[str, ...]:
    """Return the protected files that are new or changed; a new folder without its files.

    Those of the project are relative to it.
    """
    found: list[str] = []
    for path in sorted(after.content, key=lambda path: path.split("/")):
        is_new = path not in before.content
        if not is_new and before.content[path] == after.content[path]:
            continue
        if (is_new and _was_out_of_sight(path, before)) or any(contains(known, path) for known in found):
            continue
        found.append(path)
    return tuple(sorted(path.removeprefix(f"{root}/") for path in found))


def _was_out_of_sight(path: str, before: ProtectedState) -> bool:
    """True if the path may have existed before, in a folder that was not listed."""
    folder = path.rpartition("/")[0]
    while folder:
        listing = before.folders.get(folder)
        if listing is not None:
            return path in listing.subfolders or path in listing.installed
        if folder in before.content:
            return False
        path, folder = folder, folder.rpartition("/")[0]
    return True


def _list_folder(folder: str, is_installed: bool) -> FolderListing:
    parents = tuple(folder.split("/")[-2:])
    subfolders: list[str] = []
    installed: list[str] = []
    protected: list[str] = []
    watched: list[str] = []
    programs: list[str] = []
    git_folders: list[str] = []
    names: set[str] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            names.add(name)
            is_folder = entry.is_dir(follow_symlinks=False)
            if name == ".git" and is_folder:
                git_folders.append(entry.path)
                continue
            kind = classify_entry(parents, name)
            if kind == "installed":
                programs.append(entry.path)
            elif kind == "watched" and not is_installed:
                watched.append(entry.path)
            elif kind == "protected" and not (is_installed and _is_for_build_server(parents, name)):
                protected.append(entry.path)
            elif is_folder:
                (installed if name.lower() in INSTALLED else subfolders).append(entry.path)
    if names >= _BARE_REPOSITORY:
        git_folders.append(folder)
    return FolderListing(
        tuple(sorted(subfolders)),
        tuple(sorted(installed)),
        tuple(protected),
        tuple(watched),
        tuple(programs),
        tuple(git_folders),
        is_installed,
    )


def _is_for_build_server(parents: Sequence[str], name: str) -> bool:
    """True for what a build server obeys at the top of a repository, and nowhere below it."""
    return fold_name(name) in BUILD_SERVER_NAMES or fold_name(parents[-1]) == ".github"


def is_settled(status: os.stat_result) -> bool:
    """True if what has these times cannot change again without new ones."""
    return status.st_ctime_ns < time.time_ns() - _UNSETTLED_NS


def _read_small_file(path: str) -> bytes | None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        data = file.read(_MAX_HASHED_BYTES + 1)
    return data if len(data) <= _MAX_HASHED_BYTES else None


def _is_own_path(path: str, root: str, real: str) -> bool:
    below = path.removeprefix(root) if path.startswith(f"{root}/") else ""
    return os.path.realpath(path) == (f"{real}{below}" if below else path)


def list_git_folders(roots: Iterable[str]) -> list[str]:
    """Return the git folders of these projects."""
    return list(dict.fromkeys(chain.from_iterable(map(find_git_folders, roots))))


def find_git_folders(root: str) -> list[str]:
    """Return the git folder of the project, or the main repository's if the project is a linked worktree."""
    found = locate_git_folders(root)
    return [found[1]] if found else []


def locate_git_folders(root: str) -> tuple[str, str] | None:
    """Return the git folder of a worktree and that of its repository, the same for a main worktree; None without one.

    A `.git` file comes with the project and could name any folder, so that folder must point back to the project.
    """
    dot_git = f"{root}/.git"
    try:
        mode = os.lstat(dot_git).st_mode
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return dot_git, dot_git
    if stat.S_ISLNK(mode):
        return None
    gitdir = read_first_line(dot_git).removeprefix("gitdir:").strip()
    folder = os.path.realpath(os.path.join(root, gitdir))  # noqa: PTH118
    if not gitdir or not os.path.isfile(f"{folder}/HEAD"):  # noqa: PTH113
        return None
    if os.path.realpath(read_first_line(f"{folder}/gitdir") or "/") == os.path.realpath(dot_git):
        common = os.path.realpath(os.path.join(folder, read_first_line(f"{folder}/commondir") or "."))  # noqa: PTH118
        return folder, common if folder.startswith(f"{common}/worktrees/") else folder
    return (folder, folder) if _is_submodule_of(folder, root) else None


def list_git_paths(folder: str) -> list[str]:
    """Return the existing entries of a git folder, its submodules and worktrees that could make git run something."""
    paths: list[str] = []
    queue = deque([folder])
    seen = 0
    while queue and seen < _MAX_GIT_FOLDERS:
        folder = queue.popleft()
        seen += 1
        paths.extend(path for path in (f"{folder}/{name}" for name in _GIT_PROTECTED) if os.path.lexists(path))
        for kind in ("modules", "worktrees"):
            queue.extend(_find_inner_git_folders(f"{folder}/{kind}"))
    return paths


def _find_inner_git_folders(folder: str) -> list[str]:
    """Return the git folders below a folder. The name of a submodule may contain slashes."""
    found: list[str] = []
    queue = deque([folder])
    for _ in range(_MAX_GIT_FOLDERS):
        if not queue:
            break
        for path in _list_folders(queue.popleft()):
            is_git_folder = os.path.lexists(f"{path}/HEAD") or os.path.lexists(f"{path}/commondir")
            (found if is_git_folder else queue).append(path)
    return found


def _is_submodule_of(folder: str, root: str) -> bool:
    """True if this is a submodule's git folder whose configured worktree is `root`."""
    if "/.git/modules/" not in folder:
        return False
    worktree = re.search(r"^\s*worktree\s*=\s*(\S+)\s*$", read_head(f"{folder}/config"), re.MULTILINE)
    if worktree is None:
        return False
    return os.path.realpath(os.path.join(folder, worktree[1])) == os.path.realpath(root)  # noqa: PTH118


def _list_folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            folders = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
            return [folder for folder, _ in zip(folders, range(_MAX_GIT_FOLDERS), strict=False)]
    except OSError:
        return []


def read_first_line(path: str) -> str:
    return read_head(path).partition("\n")[0].strip()


def read_head(path: str) -> str:
    """Return the start of a regular file; "" for anything else, such as a pipe, which would block."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, encoding="utf-8") as file:
            return file.read(20_000) if stat.S_ISREG(os.fstat(fd).st_mode) else ""
    except (OSError, ValueError):
        return ""
