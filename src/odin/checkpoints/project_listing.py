"""A listing of all files of a project and of the other writable roots, within limits, and the changes between two.

Files that version control ignores or does not know are included, because nothing else could restore them. Temporary
files of Odin's own writes are left out: they come and go while a command runs, and undo must not bring them back.
`skipped` counts files beyond the limits.
"""

import contextlib
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Sequence

from msgspec import Struct

from odin.checkpoints.file_state import (
    UNHASHED_PREFIX,
    decode_path,
    describe_path,
    encode_path,
    is_same_state,
    make_absent_state,
    read_file_state,
)
from odin.checkpoints.store import CheckpointManifest, CheckpointStore, HashCache, compute_sha256
from odin.core.errors import OdinError
from odin.core.event_values import FileChange, FileState
from odin.core.path_names import contains, parse_writer_pid
from odin.policy.paths import OpenFolder, name_in, open_folder, open_for_reading

CACHE_FOLDERS = frozenset(("node_modules", "__pycache__"))
CACHE_MARKERS = ("CACHEDIR.TAG", "pyvenv.cfg")
"""Files that mark a folder as reproducible: caches and virtual environments."""

_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK
_UNSETTLED_NS = 50_000_000
"""A file changed this recently may change again within the timestamp resolution, so its hash is not cached."""

_SAVE_HASHES_AFTER = 500
"""After this many new hashes, the cache is written to disk."""


Stamp = tuple[int, int, int, int]
"""mtime, ctime, size and inode of a file."""


class ListingLimits(Struct, frozen=True):
    """The limits of a listing. `seconds` bounds one walk."""

    max_files: int = 20_000
    max_bytes: int = 200_000_000
    max_file_bytes: int = 10_000_000
    seconds: float = 10.0


class ListingStopped(OdinError):
    """The walk was cancelled."""

    def __init__(self) -> None:
        super().__init__("The listing of files was cancelled.")


class ProjectListing(Struct, frozen=True):
    """`others` are the roots besides the project `root`. `is_complete` is False if even a root could not be listed. A
    folder with `saved` False was not entered."""

    root: str
    states: dict[str, FileState]
    skipped: int = 0
    is_complete: bool = True
    others: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        return (self.root, *self.others)

    @classmethod
    def from_manifest(cls, manifest: CheckpointManifest) -> "ProjectListing":
        states = {state.path: state for state in manifest.files}
        return cls(manifest.root, states, is_complete=manifest.whole, others=manifest.others)

    def set_state(self, state: FileState) -> None:
        """Make `state` the state of its path, if the path lies in a listed root."""
        if any(contains(root, state.path) for root in self.roots):
            if state.kind == "absent":
                self.states.pop(state.path, None)
            else:
                self.states[state.path] = state

    def to_manifest(self) -> CheckpointManifest:
        files = tuple(self.states[path] for path in sorted(self.states))
        return CheckpointManifest(self.root, files, self.is_complete, self.others)


class ProjectLister:
    """Lists a project repeatedly. Files whose times are unchanged are not read again.

    `excluded` folders are skipped: Odin's own state folder may be inside the project.
    """

    def __init__(self, store: CheckpointStore, limits: ListingLimits, *, excluded: Container[str] = ()) -> None:
        self.store = store
        self.limits = limits
        self.excluded = excluded
        self._hashes: HashCache | None = None
        self._stored: set[str] = set()
        self._new_hashes = 0
        self._lock = threading.Lock()

    def list(
        self,
        root: str,
        *,
        keep: bool,
        others: Sequence[str] = (),
        like: ProjectListing | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> ProjectListing:
        """List every file below the root and the `others`. With `keep`, save their content to the store.

        `like` is the earlier listing to compare with: files it identifies by signature are not hashed either.
        """
        with self._lock:
            try:
                with self.store.keep_many() as save:
                    listing = _ListingWalk(self, root, others, save if keep else None, like, stopped).run()
            except BaseException:
                self._hashes = None  # the new hashes refer to content that was not stored
                raise
        if self._new_hashes >= _SAVE_HASHES_AFTER:
            self.save_hashes()
        return listing

    def save_hashes(self) -> None:
        """Write the hash cache for the next process. Errors are ignored: it is only a cache."""
        with self._lock, contextlib.suppress(OdinError):
            if self._hashes is not None and self._new_hashes:
                self._new_hashes = 0
                self.store.keep_hash_cache(self._hashes)

    def get_current_state(self, before: FileState) -> FileState:
        """The current state of a path of an earlier listing, read only if its times changed."""

        def content(path: str, info: os.stat_result) -> str:
            if before.sha256.startswith(UNHASHED_PREFIX):
                return ""
            return self.find_hash(before.path, _make_stamp(info), keep=False) or hash_file(path, info)

        return read_file_state(decode_path(before.path), content)

    def find_changes(self, before: ProjectListing, after: ProjectListing) -> tuple[FileChange, ...]:
        """The changes between two listings, by path. Paths missing in `after` are checked on disk."""
        changes: list[FileChange] = []
        for path, earlier in before.states.items():
            now = after.states.get(path) or self.get_current_state(earlier)
            if has_changed(earlier, now):
                changes.append(FileChange(earlier, now))
        created: set[str] = set()
        for path in sorted(after.states.keys() - before.states.keys()):
            now = after.states[path]
            if now.kind != "other" and was_absent(path, before, created):
                created.add(path)
                changes.append(FileChange(make_absent_state(decode_path(path)), now))
        return tuple(sorted(changes, key=lambda change: change.before.path))

    def find_hash(self, name: str, stamp: Stamp, keep: bool) -> str:
        """The cached hash of an unchanged file; "" if it must be read."""
        if self._hashes is None:
            self._hashes = self.store.load_hash_cache()
            self._stored = self.store.list_names()
        found = self._hashes.get(name)
        if found is None or found[:4] != stamp or (keep and found[4] not in self._stored):
            return ""
        return found[4]

    def remember_hash(self, name: str, stamp: Stamp, sha256: str, keep: bool) -> None:
        if keep:
            self._stored.add(sha256)
        if self._hashes is not None and stamp[1] < time.time_ns() - _UNSETTLED_NS:
            self._hashes[name] = (*stamp, sha256)
            self._new_hashes += 1


class _ListingWalk:
    """One breadth-first walk, so that files near the root are covered before a limit is reached."""

    def __init__(
        self,
        lister: ProjectLister,
        root: str,
        others: Sequence[str],
        save: Callable[[bytes], str] | None,
        like: ProjectListing | None,
        stopped: Callable[[], bool],
    ) -> None:
        self._lister = lister
        self._limits = lister.limits
        self._roots = (root, *others)
        self._root = root  # the one that is being listed
        self._save = save
        self._keep = save is not None
        self._like = like.states if like is not None else {}
        self._stopped = stopped
        self._deadline = time.monotonic() + self._limits.seconds
        self._queue = deque[str]()
        self._states: dict[str, FileState] = {}
        self._bytes = 0
        self._skipped = 0
        self._is_complete = True
        self._device = -1

    def run(self) -> ProjectListing:
        for root in self._roots:
            self._root, self._device = root, -1
            self._queue.append(root)
            while self._queue:
                if self._stopped():
                    raise ListingStopped
                if not self._list_folder(self._queue.popleft()):
                    break
            while self._queue:
                self._leave_out(self._queue.popleft())
        root, *others = map(encode_path, self._roots)
        return ProjectListing(root, self._states, self._skipped, self._is_complete, tuple(others))

    def _list_folder(self, folder: str) -> bool:
        """List one folder. False if a limit is reached and the walk must end."""
        try:
            opened = open_folder(folder, readable=True)
        except OSError:
            self._leave_out(folder)
            return True
        with opened:
            try:
                with os.scandir(opened.fd) as found:
                    entries = list(found)
            except OSError:
                self._leave_out(folder)
                return True
            if folder != self._root and any(entry.name in CACHE_MARKERS for entry in entries):
                self._states[encode_path(folder)] = FileState(encode_path(folder), "other")
                return True
            is_full = len(self._states) + len(entries) > self._limits.max_files
            if is_full or time.monotonic() > self._deadline:
                self._leave_out(folder, len(entries))
                return False
            for entry in entries:
                path = opened.get_path(entry.name)
                if entry.name != ".git" and path not in self._lister.excluded and not _is_unfinished_write(entry):
                    self._add(entry, path, opened)
            return True

    def _add(self, entry: os.DirEntry[str], path: str, folder: OpenFolder) -> None:
        name = encode_path(path)
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if self._device < 0:
            self._device = info.st_dev
        if stat.S_ISDIR(info.st_mode):
            if entry.name in CACHE_FOLDERS or info.st_dev != self._device:
                self._states[name] = FileState(name, "other")
                return
            self._queue.append(path)
        self._states[name] = describe_path(path, info, lambda path, info: self._hash_content(path, info, folder))

    def _hash_content(self, path: str, info: os.stat_result, folder: OpenFolder) -> str:
        """The hash of a file, from the cache or by reading it; "" if it exceeds a limit or is unreadable."""
        name = encode_path(path)
        earlier = self._like.get(name)
        if earlier is not None and earlier.sha256.startswith(UNHASHED_PREFIX):
            return ""
        is_over = self._keep and self._bytes + info.st_size > self._limits.max_bytes
        if info.st_size > self._limits.max_file_bytes or is_over:
            self._skipped += 1
            return ""
        self._bytes += info.st_size
        stamp = _make_stamp(info)
        sha256 = self._lister.find_hash(name, stamp, self._keep)
        if sha256:
            return sha256
        data = self._read(path, folder)
        if data is None:
            self._skipped += 1
            return ""
        sha256 = (self._save or compute_sha256)(data)
        self._lister.remember_hash(name, stamp, sha256, self._keep)
        return sha256

    def _read(self, path: str, folder: OpenFolder) -> bytes | None:
        if self._stopped():
            raise ListingStopped
        if time.monotonic() > self._deadline:
            return None
        return _read_regular(lambda: folder.open_file(name_in(path), _READ_FLAGS), self._limits.max_file_bytes)

    def _leave_out(self, folder: str, files: int = 1) -> None:
        self._skipped += files
        if folder == self._root:
            self._is_complete = False
            return
        name = encode_path(folder)
        known = self._states.get(name)
        self._states[name] = FileState(name, "folder", mode=known.mode if known else 0, saved=False)


def _is_unfinished_write(entry: os.DirEntry[str]) -> bool:
    return parse_writer_pid(entry.name) is not None and not entry.is_dir(follow_symlinks=False)


def _make_stamp(info: os.stat_result) -> Stamp:
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino


def has_changed(before: FileState, now: FileState) -> bool:
    """True if the path changed. A folder that was skipped in one of the listings counts as unchanged."""
    if before.kind == "other":
        return False
    is_skipped = not before.saved or not now.saved or now.kind == "other"
    if before.kind == "folder" and now.kind in ("folder", "other") and is_skipped:
        return False
    return not is_same_state(before, now)


def was_absent(path: str, before: ProjectListing, created: set[str]) -> bool:
    """True if the path was certainly absent: its folder was listed without it, or did not exist."""
    parent = os.path.dirname(path)  # noqa: PTH120
    if parent in before.roots:
        return before.is_complete
    known = before.states.get(parent)
    if known is None:
        return parent in created
    return known.kind in ("file", "link") or (known.kind == "folder" and known.saved)


def is_unhashed(state: FileState) -> bool:
    """True if the content is known only by size and times, so that it cannot be compared with a hash."""
    return state.sha256.startswith(UNHASHED_PREFIX)


MAX_HASHED_BYTES = 200_000_000
"""Larger files are not hashed for comparison."""


def hash_file(path: str, info: os.stat_result) -> str:
    data = read_regular_file(path, MAX_HASHED_BYTES)
    return "" if data is None else compute_sha256(data)


def read_regular_file(path: str, limit: int) -> bytes | None:
    """The content of a regular file; None if it is unreadable, not a regular file, or larger than `limit`.

    The path must not contain a link.
    """
    return _read_regular(lambda: open_for_reading(path), limit)


def _read_regular(open_file: Callable[[], int], limit: int) -> bytes | None:
    try:
        fd = open_file()
    except OSError:
        return None
    with os.fdopen(fd, "rb", buffering=0) as file:
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_size > limit:
                return None
            data = file.readall()
        except OSError:
            return None
    return None if len(data) > limit else data
