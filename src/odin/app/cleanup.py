"""`odin cleanup`: what Odin keeps on disk, and removing what is not needed any more.

Only what Odin itself has made is ever removed, by its name and in its own place; links are not followed. A session that
is open somewhere stays. What deleted sessions have cost stays known.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from odin.app.logfile import FOLDER as LOGS
from odin.app.logfile import NAME as LOG_FILE
from odin.app.sandbox import PROOFS
from odin.config import cache_dir, current_folder, project_root, state_dir
from odin.core.errors import OdinError, UsageError
from odin.session.index import Index
from odin.session.store import Store

CACHED = (PROOFS,)
"""The files that Odin puts into the cache. Whatever else is there is somebody else's."""

LOGGED = (LOG_FILE, f"{LOG_FILE}.1")
WORKTREES = "worktrees"
REMOVED = ".removed"
"""Where work trees are put that held something when they were removed."""

_DAYS = re.compile(r"(\d{1,9})([smhdw]?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "": 86_400}


class Kept(Struct, frozen=True):
    """One kind of thing on disk: how many there are and what they take."""

    what: str
    path: str
    count: int
    bytes: int


class Going(Struct, frozen=True):
    """Something that is removed. `why_not` says why it stays after all."""

    what: str
    name: str
    path: str
    modified: float
    bytes: int
    title: str = ""
    why_not: str = ""


class Keep(Struct, frozen=True):
    """What stays whatever else is said: what is younger than so many seconds, and the newest ones of each project."""

    younger_than: float = 0.0
    newest: int = 0


def seconds_of(text: str) -> float:
    """How long `30d`, `12h` or `2w` is; a bare number means days. Raises UsageError."""
    found = _DAYS.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"{text!r} is no length of time.", "Write it as 30d, 12h or 2w.")
    return float(int(found[1]) * _SECONDS[found[2]])


class Cleanup:
    """Everything of one user, seen from the project around `cwd`."""

    def __init__(self, env: Mapping[str, str], cwd: str = "") -> None:
        folder = os.path.realpath(cwd or current_folder())
        if not Path(folder).is_dir():
            raise UsageError(f"There is no folder {folder}.", "Name an existing one with --cwd.")
        self._state = state_dir(env)
        self._cache = cache_dir(env)
        self._store = Store(self._state, project_root(folder, env))
        self._key = self._store.folder.name

    # --- what there is ---

    def status(self) -> tuple[Kept, ...]:
        state = self._state
        here = self._store.folder
        return (
            _kept("sessions of this project", here, len(Index(here).rows())),
            _kept(
                "sessions of all projects", here.parent, sum(len(Index(path).rows()) for path in _folders(here.parent))
            ),
            _kept("checkpoints of this project", state / "checkpoints" / self._key),
            _kept("checkpoints of all projects", state / "checkpoints"),
            _kept("work trees", state / WORKTREES),
            _named("logs", state / LOGS, LOGGED),
            _named("cache", self._cache, CACHED),
        )

    # --- what can go ---

    def sessions(self, keep: Keep, *, everywhere: bool = False) -> list[Going]:
        """The sessions that are old enough, oldest first."""
        folders = _folders(self._store.folder.parent) if everywhere else [self._store.folder]
        before = time.time() - keep.younger_than
        found: list[Going] = []
        for folder in folders:
            newest_first = sorted(Index(folder).summaries(), key=lambda item: -item.modified)
            for item in newest_first[keep.newest :]:
                if item.modified <= before:
                    path = folder / item.id
                    why = f"open: {item.locked}" if item.locked else ""
                    size = _size(path)[0]
                    found.append(Going("session", item.id, str(path), item.modified, size, item.title, why))
        return sorted(found, key=lambda item: item.modified)

    def cache(self, keep: Keep) -> list[Going]:
        return _files("cache", self._cache, CACHED, keep)

    def logs(self, keep: Keep) -> list[Going]:
        return _files("log", self._state / LOGS, LOGGED, keep)

    def project(self, keep: Keep) -> list[Going]:
        """Everything of this project: its sessions, what they saved of files, and removed work trees."""
        found = self.sessions(keep)
        gone = {item.name for item in found if not item.why_not}
        stays = [row.id for row in Index(self._store.folder).rows() if row.id not in gone]
        saved = self._state / "checkpoints" / self._key
        if saved.is_dir():
            why = f"needed to undo what session {stays[0]} did" if stays else ""
            found.append(_folder("checkpoints", saved, why))
        trees = self._state / WORKTREES / self._key / REMOVED
        before = time.time() - keep.younger_than
        found += [_folder("removed work tree", path) for path in _folders(trees) if path.stat().st_mtime <= before]
        return found

    # --- and goes ---

    def remove(self, going: Sequence[Going]) -> list[Going]:
        """Remove them, as far as nothing speaks against it. Gives what became of each."""
        done: list[Going] = []
        refused = False
        for item in going:
            why = item.why_not
            if not why and item.what == "checkpoints" and refused:
                why = "a session of this project is still there"
            if not why:
                why = self._removed(item)
                refused = refused or bool(why)
            done.append(Going(item.what, item.name, item.path, item.modified, item.bytes, item.title, why))
        return done

    def _removed(self, item: Going) -> str:
        """Why it could not be removed, or ""."""
        path = Path(item.path)
        try:
            if item.what == "session":
                from odin.session.remove import delete, sweep

                self._must_be_ours(path)
                store = Store.at(path.parent)
                sweep(store)
                delete(store, item.name)
            elif path.is_dir() and not path.is_symlink():
                import shutil

                self._must_be_ours(path)
                shutil.rmtree(path)
            else:
                self._must_be_ours(path)
                path.unlink()
        except OdinError as error:
            return error.sentence()
        except OSError as error:
            return f"{error.strerror or error}"
        return ""

    def _must_be_ours(self, path: Path) -> None:
        """Its folder is where it seems to be, below one of Odin's own: no link on the way leads elsewhere."""
        real = Path(os.path.realpath(path.parent))
        own = [Path(os.path.realpath(base)) for base in (self._state, self._cache)]
        if not any(real == base or base in real.parents for base in own):
            raise UsageError(f"{path} leads elsewhere, so it is not removed.")


def _kept(what: str, path: Path, count: int | None = None) -> Kept:
    size, files = _size(path)
    return Kept(what, str(path), files if count is None else count, size)


def _named(what: str, folder: Path, names: Sequence[str]) -> Kept:
    there = [folder / name for name in names if (folder / name).is_file()]
    return Kept(what, str(folder), len(there), sum(path.stat().st_size for path in there))


def _files(what: str, folder: Path, names: Sequence[str], keep: Keep) -> list[Going]:
    before = time.time() - keep.younger_than
    found: list[Going] = []
    for name in names:
        with contextlib.suppress(OSError):
            info = (folder / name).lstat()
            if info.st_mtime <= before:
                found.append(Going(what, name, str(folder / name), info.st_mtime, info.st_size))
    return found


def _folder(what: str, path: Path, why_not: str = "") -> Going:
    return Going(what, path.name, str(path), path.stat().st_mtime, _size(path)[0], why_not=why_not)


def _folders(base: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(path for path in base.iterdir() if path.is_dir() and not path.is_symlink())
    return []


def _size(folder: Path) -> tuple[int, int]:
    """Bytes and files below a folder. Links count as themselves."""
    sizes = list(_sizes(folder))
    return sum(sizes), len(sizes)


def _sizes(folder: Path) -> Iterator[int]:
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118
