"""`odin cleanup`: show disk usage, and with --yes remove old data.

Only files that Odin created are removed, by name and in its own folders; links are not followed. Open sessions stay,
and so does the cost of deleted ones.
"""

import argparse
import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from odin.app.sandbox import PROBE_FILE
from odin.app.worktrees import REMOVED_FOLDER
from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_output
from odin.config import find_project_root, get_cache_dir, get_state_dir, resolve_folder
from odin.config.paths import (
    LOG_FILE_NAME,
    LOG_FOLDER,
    SERVER_LOG_NAME,
    SHARE_FOLDER,
    WORKTREE_FOLDER,
    find_worktree_origin,
)
from odin.core.errors import OdinError, UsageError
from odin.core.format import format_size
from odin.fleet.run_folder import get_runs_folder, list_runs
from odin.server.shares import remove_ended_shares
from odin.session.index import SessionIndex
from odin.session.store import SessionStore
from odin.ui.terminal import escape_hidden, shorten

CACHE_FILES = (PROBE_FILE,)
"""The files that Odin writes to the cache folder. All others stay."""

LOG_FILES = tuple(f"{name}{suffix}" for name in (LOG_FILE_NAME, SERVER_LOG_NAME) for suffix in ("", ".1"))

_DURATION = re.compile(r"(\d{1,9})([smhdw]?)")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "": 86_400}


class DiskUsage(Struct, frozen=True):
    """Disk usage of one kind of data."""

    what: str
    path: str
    count: int
    bytes: int


class CleanupItem(Struct, frozen=True):
    """Something to remove. `why_not` is the reason if it stays."""

    what: str
    name: str
    path: str
    modified: float
    bytes: int
    title: str = ""
    why_not: str = ""


class Retention(Struct, frozen=True):
    """What to keep: items younger than this many seconds, and the newest sessions of each project."""

    younger_than: float = 0.0
    newest: int = 0


def parse_duration(text: str) -> float:
    """Return the seconds in `30d`, `12h` or `2w`; a bare number means days. Raise UsageError."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"Invalid duration {text!r}.", "Use e.g. 30d, 12h or 2w.")
    return float(int(match[1]) * _UNIT_SECONDS[match[2]])


class Cleanup:
    """The user's data on disk, seen from the project around `cwd`."""

    def __init__(self, env: Mapping[str, str], cwd: str = "") -> None:
        folder = resolve_folder(cwd)
        self._env = env
        self._state = get_state_dir(env)
        self._cache = get_cache_dir(env)
        self._store = SessionStore(self._state, find_worktree_origin(find_project_root(folder, env), self._state))
        self._key = self._store.folder.name

    def measure_usage(self) -> tuple[DiskUsage, ...]:
        state = self._state
        here = self._store.folder
        return (
            _measure_folder("sessions of this project", here, len(SessionIndex(here).list_entries())),
            _measure_folder(
                "sessions of all projects",
                here.parent,
                sum(len(SessionIndex(path).list_entries()) for path in _list_folders(here.parent)),
            ),
            _measure_folder("checkpoints of this project", state / "checkpoints" / self._key),
            _measure_folder("checkpoints of all projects", state / "checkpoints"),
            _measure_folder("worktrees", state / WORKTREE_FOLDER),
            _measure_folder("fleet runs", get_runs_folder(self._env), len(list_runs(self._env))),
            _measure_folder("shared copies", state / SHARE_FOLDER, len(_list_folders(state / SHARE_FOLDER))),
            _measure_files("logs", state / LOG_FOLDER, LOG_FILES),
            _measure_files("cache", self._cache, CACHE_FILES),
        )

    def find_sessions(self, keep: Retention, *, everywhere: bool = False) -> list[CleanupItem]:
        """Return the sessions that `keep` does not protect, oldest first."""
        folders = _list_folders(self._store.folder.parent) if everywhere else [self._store.folder]
        before = time.time() - keep.younger_than
        found: list[CleanupItem] = []
        for folder in folders:
            newest_first = sorted(SessionIndex(folder).list_summaries(), key=lambda item: -item.modified)
            for item in newest_first[keep.newest :]:
                if item.modified <= before:
                    path = folder / item.id
                    why = f"open: {item.locked}" if item.locked else ""
                    size = _measure_size(path)[0]
                    found.append(CleanupItem("session", item.id, str(path), item.modified, size, item.title, why))
        return sorted(found, key=lambda item: item.modified)

    def find_cache_files(self, keep: Retention) -> list[CleanupItem]:
        return _find_old_files("cache", self._cache, CACHE_FILES, keep)

    def find_log_files(self, keep: Retention) -> list[CleanupItem]:
        return _find_old_files("log", self._state / LOG_FOLDER, LOG_FILES, keep)

    def find_project_data(self, keep: Retention) -> list[CleanupItem]:
        """Return all data of this project: sessions, checkpoints and removed worktrees."""
        found = self.find_sessions(keep)
        removed = {item.name for item in found if not item.why_not}
        remaining = [row.id for row in SessionIndex(self._store.folder).list_entries() if row.id not in removed]
        checkpoints = self._state / "checkpoints" / self._key
        if checkpoints.is_dir():
            why = f"session {remaining[0]} needs them for undo" if remaining else ""
            found.append(_make_folder_item("checkpoints", checkpoints, why))
        trees = self._state / WORKTREE_FOLDER / self._key / REMOVED_FOLDER
        before = time.time() - keep.younger_than
        found += [
            _make_folder_item("removed worktree", path)
            for path in _list_folders(trees)
            if path.stat().st_mtime <= before
        ]
        return found

    def remove(self, items: Sequence[CleanupItem]) -> list[CleanupItem]:
        """Remove the items, and return them with `why_not` set for those that stayed."""
        done: list[CleanupItem] = []
        refused = False
        for item in items:
            why = item.why_not
            if not why and item.what == "checkpoints" and refused:
                why = "a session of this project still exists"
            if not why:
                why = self._try_remove(item)
                refused = refused or bool(why)
            done.append(CleanupItem(item.what, item.name, item.path, item.modified, item.bytes, item.title, why))
        return done

    def _try_remove(self, item: CleanupItem) -> str:
        """Remove an item. Return the reason if that fails, else ""."""
        path = Path(item.path)
        try:
            if item.what == "session":
                from odin.session.lifecycle import delete_session, sweep_leftovers

                self._require_own_path(path)
                store = SessionStore.from_folder(path.parent)
                sweep_leftovers(store)
                delete_session(store, item.name)
            elif path.is_dir() and not path.is_symlink():
                import shutil

                self._require_own_path(path)
                shutil.rmtree(path)
            else:
                self._require_own_path(path)
                path.unlink()
        except OdinError as error:
            return error.describe()
        except OSError as error:
            return f"{error.strerror or error}"
        return ""

    def _require_own_path(self, path: Path) -> None:
        """Raise UsageError if a link leads the path out of Odin's own folders."""
        real = Path(os.path.realpath(path.parent))
        own = [Path(os.path.realpath(base)) for base in (self._state, self._cache)]
        if not any(real == base or base in real.parents for base in own):
            raise UsageError(f"{path} points outside Odin's folders, so it is not removed.")


def _measure_folder(what: str, path: Path, count: int | None = None) -> DiskUsage:
    size, files = _measure_size(path)
    return DiskUsage(what, str(path), files if count is None else count, size)


def _measure_files(what: str, folder: Path, names: Sequence[str]) -> DiskUsage:
    files = [folder / name for name in names if (folder / name).is_file()]
    return DiskUsage(what, str(folder), len(files), sum(path.stat().st_size for path in files))


def _find_old_files(what: str, folder: Path, names: Sequence[str], keep: Retention) -> list[CleanupItem]:
    before = time.time() - keep.younger_than
    found: list[CleanupItem] = []
    for name in names:
        with contextlib.suppress(OSError):
            info = (folder / name).lstat()
            if info.st_mtime <= before:
                found.append(CleanupItem(what, name, str(folder / name), info.st_mtime, info.st_size))
    return found


def _make_folder_item(what: str, path: Path, why_not: str = "") -> CleanupItem:
    return CleanupItem(what, path.name, str(path), path.stat().st_mtime, _measure_size(path)[0], why_not=why_not)


def _list_folders(base: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(path for path in base.iterdir() if path.is_dir() and not path.is_symlink())
    return []


def _measure_size(folder: Path) -> tuple[int, int]:
    """Return the bytes and the number of files below a folder, without following links."""
    sizes = list(_walk_sizes(folder))
    return sum(sizes), len(sizes)


def _walk_sizes(folder: Path) -> Iterator[int]:
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118


DEFAULT_AGE = "30d"

EPILOG = """\
commands:
  odin cleanup [status]       show disk usage
  odin cleanup sessions       remove sessions of this project older than 30 days; --all for all projects
  odin cleanup cache          remove caches
  odin cleanup logs           remove Odin's own logs
  odin cleanup project        remove all data of this project: sessions, checkpoints and removed worktrees

`odin fleet remove RUN` removes a fleet run; its sessions are removed as others are. Without --yes, only print what
would be removed. Open sessions stay, and so does the cost of deleted ones.
"""


def run_cleanup(argv: list[str]) -> int:
    args = _parse_args(argv)
    cleanup = Cleanup(os.environ, args.cwd)
    if args.what == "status":
        usage = cleanup.measure_usage()
        if args.json:
            return write_json(usage)
        width = max(len(item.what) for item in usage)
        return write_output(
            "".join(
                f"{item.what:{width}}  {item.count:>7,}  {format_size(item.bytes):>9}  {escape_hidden(item.path)}\n"
                for item in usage
            )
        )
    age = args.older_than or (DEFAULT_AGE if args.what == "sessions" and not args.keep else "0")
    keep = Retention(parse_duration(age), args.keep)
    if args.what == "sessions":
        items = cleanup.find_sessions(keep, everywhere=args.all)
    else:
        items = {
            "cache": cleanup.find_cache_files,
            "logs": cleanup.find_log_files,
            "project": cleanup.find_project_data,
        }[args.what](keep)
    if not args.yes:
        return _print_items(args, items)
    done = cleanup.remove(items)
    remove_ended_shares(os.environ)
    refused = any(after.why_not and not before.why_not for before, after in zip(items, done, strict=True))
    return _print_items(args, done) or int(refused)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="odin cleanup",
        description="Show Odin's disk usage, or remove old data.",
        epilog=EPILOG,
        formatter_class=make_formatter,
    )
    add = parser.add_argument
    kinds = ("status", "sessions", "cache", "logs", "project")
    add(
        "what",
        nargs="?",
        choices=kinds,
        default="status",
        metavar="WHAT",
        help="status, sessions, cache, logs or project (default: status)",
    )
    add("--older-than", default="", metavar="TIME", help="only data older than this, e.g. 30d, 12h or 2w")
    add("--keep", type=int, default=0, metavar="N", help="keep the newest N sessions of each project")
    add("--all", action="store_true", help="sessions of all projects")
    add("-y", "--yes", action="store_true", help="remove instead of only listing")
    parser.add_common_flags()
    args = parser.parse_args(argv)
    if args.keep < 0:
        raise UsageError("--keep must be 0 or more.")
    if args.all and args.what != "sessions":
        raise UsageError("--all only works with `odin cleanup sessions`.")
    return args


def _print_items(args: argparse.Namespace, items: list[CleanupItem]) -> int:
    if args.json:
        return write_json({"removed": args.yes, "items": items})
    if not items:
        return write_output("Nothing to remove.\n")
    write_output("".join(f"{_format_item(item)}\n" for item in items))
    removed = [item for item in items if not item.why_not]
    size = format_size(sum(item.bytes for item in removed))
    total = f"{len(removed)} {'item' if len(removed) == 1 else 'items'}, {size}"
    if args.yes:
        return write_output(f"Removed {total}.\n")
    write_message(f"Would remove {total}. Add --yes to remove.")
    return 0


def _format_item(item: CleanupItem) -> str:
    when = time.strftime("%Y-%m-%d", time.localtime(item.modified))
    title = f"  {shorten(escape_hidden(' '.join(item.title.split())), 60)}" if item.title else ""
    kept = f"  (kept: {escape_hidden(item.why_not)})" if item.why_not else ""
    return f"{item.what} {escape_hidden(item.name)}  {when}  {format_size(item.bytes)}{title}{kept}"
