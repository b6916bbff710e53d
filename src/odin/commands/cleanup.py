"""`odin cleanup`: what Odin keeps on disk, and removing what is not needed any more.

Only what Odin itself has made is ever removed, by its name and in its own place; links are not followed. A session that
is open somewhere stays. What deleted sessions have cost stays known.

`odin cleanup`: what Odin keeps on disk. Nothing is removed without --yes.
"""

import argparse
import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.app.crash_log import LOG_FILE_NAME as LOG_FILE
from odin.app.crash_log import LOG_FOLDER as LOGS
from odin.app.sandbox import PROBE_FILE
from odin.commands.command_line import Parser, make_formatter, write_message, write_output
from odin.config import find_project_root, get_cache_dir, get_current_folder, get_state_dir
from odin.core.errors import OdinError, UsageError
from odin.session.index import SessionIndex
from odin.session.store import SessionStore
from odin.ui.terminal import escape_hidden, shorten

CACHE_FILES = (PROBE_FILE,)
"""The files that Odin puts into the cache. Whatever else is there is somebody else's."""

LOG_FILES = (LOG_FILE, f"{LOG_FILE}.1")
WORKTREE_FOLDER = "worktrees"
REMOVED_FOLDER = ".removed"
"""Where work trees are put that held something when they were removed."""

_DURATION = re.compile(r"(\d{1,9})([smhdw]?)")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "": 86_400}


class DiskUsage(Struct, frozen=True):
    """One kind of thing on disk: how many there are and what they take."""

    what: str
    path: str
    count: int
    bytes: int


class CleanupItem(Struct, frozen=True):
    """Something that is removed. `why_not` says why it stays after all."""

    what: str
    name: str
    path: str
    modified: float
    bytes: int
    title: str = ""
    why_not: str = ""


class Retention(Struct, frozen=True):
    """What stays whatever else is said: what is younger than so many seconds, and the newest ones of each project."""

    younger_than: float = 0.0
    newest: int = 0


def seconds_of(text: str) -> float:
    """How long `30d`, `12h` or `2w` is; a bare number means days. Raises UsageError."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"{text!r} is no length of time.", "Write it as 30d, 12h or 2w.")
    return float(int(found[1]) * _UNIT_SECONDS[found[2]])


class Cleanup:
    """Everything of one user, seen from the project around `cwd`."""

    def __init__(self, env: Mapping[str, str], cwd: str = "") -> None:
        folder = os.path.realpath(cwd or get_current_folder())
        if not Path(folder).is_dir():
            raise UsageError(f"There is no folder {folder}.", "Name an existing one with --cwd.")
        self._state = get_state_dir(env)
        self._cache = get_cache_dir(env)
        self._store = SessionStore(self._state, find_project_root(folder, env))
        self._key = self._store.folder.name

    # --- what there is ---

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
            _measure_folder("work trees", state / WORKTREE_FOLDER),
            _measure_files("logs", state / LOGS, LOG_FILES),
            _measure_files("cache", self._cache, CACHE_FILES),
        )

    # --- what can go ---

    def find_sessions(self, keep: Retention, *, everywhere: bool = False) -> list[CleanupItem]:
        """The sessions that are old enough, oldest first."""
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
        return _find_old_files("log", self._state / LOGS, LOG_FILES, keep)

    def find_project_data(self, keep: Retention) -> list[CleanupItem]:
        """Everything of this project: its sessions, what they saved of files, and removed work trees."""
        found = self.find_sessions(keep)
        gone = {item.name for item in found if not item.why_not}
        stays = [row.id for row in SessionIndex(self._store.folder).list_entries() if row.id not in gone]
        saved = self._state / "checkpoints" / self._key
        if saved.is_dir():
            why = f"needed to undo what session {stays[0]} did" if stays else ""
            found.append(_make_folder_item("checkpoints", saved, why))
        trees = self._state / WORKTREE_FOLDER / self._key / REMOVED_FOLDER
        before = time.time() - keep.younger_than
        found += [
            _make_folder_item("removed work tree", path)
            for path in _list_folders(trees)
            if path.stat().st_mtime <= before
        ]
        return found

    # --- and goes ---

    def remove(self, going: Sequence[CleanupItem]) -> list[CleanupItem]:
        """Remove them, as far as nothing speaks against it. Gives what became of each."""
        done: list[CleanupItem] = []
        refused = False
        for item in going:
            why = item.why_not
            if not why and item.what == "checkpoints" and refused:
                why = "a session of this project is still there"
            if not why:
                why = self._try_remove(item)
                refused = refused or bool(why)
            done.append(CleanupItem(item.what, item.name, item.path, item.modified, item.bytes, item.title, why))
        return done

    def _try_remove(self, item: CleanupItem) -> str:
        """Why it could not be removed, or ""."""
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
        """Its folder is where it seems to be, below one of Odin's own: no link on the way leads elsewhere."""
        real = Path(os.path.realpath(path.parent))
        own = [Path(os.path.realpath(base)) for base in (self._state, self._cache)]
        if not any(real == base or base in real.parents for base in own):
            raise UsageError(f"{path} leads elsewhere, so it is not removed.")


def _measure_folder(what: str, path: Path, count: int | None = None) -> DiskUsage:
    size, files = _measure_size(path)
    return DiskUsage(what, str(path), files if count is None else count, size)


def _measure_files(what: str, folder: Path, names: Sequence[str]) -> DiskUsage:
    there = [folder / name for name in names if (folder / name).is_file()]
    return DiskUsage(what, str(folder), len(there), sum(path.stat().st_size for path in there))


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
    """Bytes and files below a folder. Links count as themselves."""
    sizes = list(_walk_sizes(folder))
    return sum(sizes), len(sizes)


def _walk_sizes(folder: Path) -> Iterator[int]:
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118


DEFAULT_AGE = "30d"

EPILOG = """\
  odin cleanup [status]       what there is and how much room it takes
  odin cleanup sessions       sessions of this project older than 30 days; --all for every project
  odin cleanup cache          what can be made again
  odin cleanup logs           what Odin wrote down about its own failures
  odin cleanup project        everything of this project: its sessions, checkpoints and removed work trees

Without --yes it is only said what would go. Sessions that are open stay, and so does what deleted ones have cost.
"""


def run_cleanup(argv: list[str]) -> int:
    args = _parse_args(argv)

    cleanup = Cleanup(os.environ, args.cwd)
    if args.what == "status":
        return _print_usage(args, cleanup)
    keep = _retention_of(args)
    if args.what == "sessions":
        going = cleanup.find_sessions(keep, everywhere=args.all)
    else:
        going = {
            "cache": cleanup.find_cache_files,
            "logs": cleanup.find_log_files,
            "project": cleanup.find_project_data,
        }[args.what](keep)
    if not args.yes:
        return _print_items(args, going)
    done = cleanup.remove(going)
    refused = any(after.why_not and not before.why_not for before, after in zip(going, done, strict=True))
    return _print_items(args, done) or int(refused)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="odin cleanup", description="What Odin keeps on disk.", epilog=EPILOG, formatter_class=make_formatter
    )
    add = parser.add_argument
    kinds = ("status", "sessions", "cache", "logs", "project")
    add("what", nargs="?", choices=kinds, default="status", metavar="WHAT", help="(status)")
    add("--older-than", default="", metavar="TIME", help="only what is older: 30d, 12h or 2w")
    add("--keep", type=int, default=0, metavar="N", help="keep the newest N sessions of a project, however old")
    add("--all", action="store_true", help="sessions: of all projects")
    add("-y", "--yes", action="store_true", help="remove it")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    if args.keep < 0:
        raise UsageError("--keep is a number of sessions.")
    if args.all and args.what != "sessions":
        raise UsageError("--all is for `odin cleanup sessions`.")
    return args


def _retention_of(args: argparse.Namespace) -> "Retention":
    """Old sessions only, unless something else was said."""

    said = args.older_than or (DEFAULT_AGE if args.what == "sessions" and not args.keep else "0")
    return Retention(seconds_of(said), args.keep)


def _print_usage(args: argparse.Namespace, cleanup: Any) -> int:
    found = cleanup.measure_usage()
    if args.json:
        return _print_json(found)
    width = max(len(item.what) for item in found)
    return write_output(
        "".join(
            f"{item.what:{width}}  {item.count:>7,}  {format_size(item.bytes):>9}  {escape_hidden(item.path)}\n"
            for item in found
        )
    )


def _print_items(args: argparse.Namespace, going: "list[CleanupItem]") -> int:
    if args.json:
        return _print_json({"removed": args.yes, "items": going})
    if not going:
        return write_output("There is nothing to remove.\n")
    write_output("".join(f"{_format_item(item)}\n" for item in going))
    goes = [item for item in going if not item.why_not]
    total = f"{len(goes)} {'thing' if len(goes) == 1 else 'things'}, {format_size(sum(item.bytes for item in goes))}"
    if args.yes:
        return write_output(f"Removed {total}.\n")
    write_message(f"This would remove {total}. Add --yes to do it.")
    return 0


def _format_item(item: "CleanupItem") -> str:
    when = time.strftime("%Y-%m-%d", time.localtime(item.modified))
    title = f"  {shorten(escape_hidden(' '.join(item.title.split())), 60)}" if item.title else ""
    stays = f"  (stays: {escape_hidden(item.why_not)})" if item.why_not else ""
    return f"{item.what} {escape_hidden(item.name)}  {when}  {format_size(item.bytes)}{title}{stays}"


def format_size(count: int) -> str:
    """Bytes as people read them."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


def _print_json(value: Any) -> int:
    import msgspec

    return write_output(msgspec.json.encode(value).decode() + "\n")
