"""The work of LS and Glob: list a folder, find files by name.

Glob shows the newest files. Stat takes longer than listing, so a thread reads modification times while ripgrep still
prints, and only the files that are shown are sorted.
"""

import asyncio
import functools
import heapq
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue

from odin.context.file_cache import FileCache
from odin.core.format import pluralize
from odin.core.path_names import is_temporary
from odin.core.profile import OWN
from odin.core.tool import ToolContext, ToolOutput
from odin.policy.paths import FolderCursor, OpenFolder
from odin.sandbox.runner import ProcessRunner
from odin.tools.files import (
    Refusal,
    find_resolved_path,
    find_working_folder,
    open_listed_folder,
    to_printable,
)
from odin.tools.ripgrep import HERE, build_base_argv, compile_glob, extract_name_glob, find_ripgrep, walk_files
from odin.tools.search import SearchSource, describe_hidden, make_timeout_refusal, split_hidden
from odin.tools.search_args import FindProgram, GlobArgs, LSArgs

MAX_ENTRIES = 200

NameFilter = Callable[[list[str]], Iterable[str]]
"""Returns the names that match."""

MAX_SHOWN = 100
_STOP_BYTES = 64_000_000
_MAX_SIBLINGS = 200
_BATCH_SIZE = 1000
_SKIPPED = ("node_modules", "vendor", "__pycache__")


async def list_folder(args: LSArgs, ctx: ToolContext, files: FileCache) -> ToolOutput:
    place = find_resolved_path(args.path, ctx)
    folder = place.shown
    ignored = [compile_glob(glob) for glob in args.ignore]
    with open_listed_folder(place, ctx.cwd) as opened:
        entries, total = await asyncio.to_thread(_list_first, opened.fd, ignored)
        lines = [_format_entry(entry, opened, files) for entry in entries]
    if total > MAX_ENTRIES:
        lines.append(f"(showing the first {MAX_ENTRIES} of {total} entries; use Glob or ignore to narrow it down)")
    text = "\n".join([f"{folder.rstrip('/')}/", *(lines or ["(empty directory)"])])
    return ToolOutput(
        text=to_printable(text), note=to_printable(f"Listed {folder}: {pluralize(total, 'entry', 'entries')}")
    )


def _format_entry(entry: "os.DirEntry[str]", folder: OpenFolder, files: FileCache) -> str:
    if entry.is_symlink():
        try:
            target = os.readlink(entry.name, dir_fd=folder.fd)
            return f"  {entry.name}{'/' if entry.is_dir() else ''} -> {target}"
        except OSError:
            return f"  {entry.name}"
    if entry.is_dir():
        return f"  {entry.name}/"
    cached = files.get_cached_file(folder.get_path(entry.name))
    if cached is None:
        return f"  {entry.name}"
    return f"  {entry.name} [{'cached, modified' if cached.modified else 'cached'}]"


def _list_first(folder: int, ignored: list[Callable[[str], bool]]) -> "tuple[list[os.DirEntry[str]], int]":
    """Return the first entries by name, and the total count. A directory may have a million entries."""
    total = 0

    def counted(entries: "Iterable[os.DirEntry[str]]") -> "Iterator[os.DirEntry[str]]":
        nonlocal total
        for entry in entries:
            if not is_temporary(entry.name) and not any(matches(entry.name) for matches in ignored):
                total += 1
                yield entry

    with os.scandir(folder) as entries:
        first = heapq.nsmallest(MAX_ENTRIES, counted(entries), key=lambda entry: entry.name)
    return first, total


class NewestFiles:
    """Collects files of a folder, by their names in it, with their modification times.

    A name counts only if it leads to a file without links: another process could exchange a folder with a link while
    the names are listed. `complete` is false if time ran out.
    """

    def __init__(self, folder: OpenFolder, seconds: float) -> None:
        self.complete = True
        self._folder = folder
        self._deadline = time.monotonic() + seconds
        self._dated: list[tuple[int, str]] = []

    @property
    def total(self) -> int:
        return len(self._dated)

    def list_newest(self, count: int) -> list[str]:
        """Return the newest files, newest first; files of the same age sorted by name."""
        return [name for _, name in heapq.nsmallest(count, self._dated)]

    def read_chunks(self, next_chunk: Callable[[], bytes | None], choose: NameFilter) -> None:
        """Read names that start with HERE and end with NUL, in chunks of any size, until `next_chunk` returns None."""
        rest = b""
        with FolderCursor(self._folder) as cursor:
            while (chunk := next_chunk()) is not None:
                whole, separator, rest = (rest + chunk).rpartition(b"\0")
                if separator:
                    names = os.fsdecode(whole).removeprefix(HERE).split(f"\0{HERE}")
                    self._add_names(choose(names), cursor)

    def read_names(self, names: Iterator[str], choose: NameFilter) -> None:
        with FolderCursor(self._folder) as cursor:
            while batch := list(itertools.islice(names, _BATCH_SIZE)):
                self._add_names(choose(batch), cursor)

    def _add_names(self, names: Iterable[str], cursor: FolderCursor) -> None:
        """Add files, except those deleted meanwhile. Names in one folder are looked up together."""
        folders: dict[str, list[str]] = {}
        for name in names:
            folders.setdefault(name.rpartition("/")[0], []).append(name)
        stat, keep = os.stat, self._dated.append
        for folder in sorted(folders):
            start = len(folder) + 1 if folder else 0
            try:
                fd = cursor.enter(folder)
            except OSError:
                continue
            for name in folders[folder]:
                try:
                    keep((-stat(name[start:], dir_fd=fd, follow_symlinks=False).st_mtime_ns, name))
                except OSError:
                    continue
        self.complete = self.complete and time.monotonic() < self._deadline


class GlobSearch:
    """Finds files with the program that `rg` returns, by default ripgrep if it is installed."""

    def __init__(self, runner: ProcessRunner, rg: FindProgram | None = None) -> None:
        self._runner = runner
        self._rg = rg or find_ripgrep

    async def find_files(self, args: GlobArgs, ctx: ToolContext) -> ToolOutput:
        if args.path in ("undefined", "null"):
            raise Refusal(f"path is {args.path!r}. Leave it out to search the working directory.")
        pattern, path = args.pattern, args.path
        if pattern.startswith("/"):
            path, pattern = split_pattern(pattern)
        place = find_working_folder(ctx) if path is None else find_resolved_path(path, ctx)
        if not pattern or "\0" in pattern or to_printable(pattern) != pattern:
            raise Refusal("pattern is empty or contains characters that no file name can contain.")
        withheld: list[str] = []
        with open_listed_folder(place, ctx.cwd) as folder:
            source = SearchSource(place, folder)
            seconds = ctx.environment.timing.search_s
            found = await self._find_newest(source, folder, pattern, source.hide(ctx.is_hidden), withheld, seconds)
            lines = [source.get_path(name) for name in found.list_newest(MAX_SHOWN)]
        note = to_printable(f"Found {pluralize(found.total, 'file')} for {args.pattern}")
        if not lines:
            return ToolOutput(text=to_printable("\n".join(["No files found", *describe_hidden(withheld)])), note=note)
        if len(lines) < found.total or not found.complete:
            total = f"{found.total}" if found.complete else f"more than {found.total}"
            lines = [*lines, f"(showing the newest {len(lines)} of {total} files; use a narrower pattern or path)"]
        return ToolOutput(text=to_printable("\n".join([*lines, *describe_hidden(withheld)])), note=note)

    async def _find_newest(
        self,
        source: SearchSource,
        folder: OpenFolder,
        pattern: str,
        is_hidden: Callable[[str], bool],
        withheld: list[str],
        seconds: float,
    ) -> NewestFiles:
        """Return the matching files that are neither ignored nor dotfiles, unless the pattern names them.

        Files that the permission rules withhold are added to `withheld` instead.
        """
        hidden = bool(re.search(r"(?:^|/)\.(?!\.?/)", pattern))
        skip = frozenset(name for name in _SKIPPED if name not in pattern)
        matches = compile_glob(pattern)
        names, exact = extract_name_glob(pattern)

        def choose(found: list[str], exact: bool = False) -> Iterable[str]:
            if hidden:
                visible = [name for name in found if not is_temporary(name)]
            else:  # no part of the path starts with a dot
                visible = [name for name in found if name[0] != "." and "/." not in name]
            matching = visible if exact else [name for name in visible if matches(name)]
            chosen, rest = split_hidden(matching, source.get_path, is_hidden)
            withheld.extend(rest)
            return chosen

        rg = self._rg()
        if rg is not None:
            try:
                skipped = [*sorted(skip), *_list_siblings(folder, pattern)]
                argv = _build_argv(rg, folder.path, names, hidden, skipped)
                return await self._list_with_ripgrep(argv, folder, functools.partial(choose, exact=exact), seconds)
            except OSError:
                pass
        found = NewestFiles(folder, seconds)
        start = len(folder.path.rstrip("/")) + 1
        walked = (path[start:] for path in walk_files(folder.path, hidden=hidden, skip=skip, seconds=seconds))
        await asyncio.to_thread(found.read_names, walked, choose)
        return found

    async def _list_with_ripgrep(
        self, argv: list[str], folder: OpenFolder, choose: NameFilter, seconds: float
    ) -> NewestFiles:
        found = NewestFiles(folder, seconds)
        chunks: SimpleQueue[bytes | None] = SimpleQueue()
        reading = asyncio.get_running_loop().run_in_executor(None, found.read_chunks, chunks.get, choose)
        try:
            listed = await self._runner.capture(
                argv, cwd=folder.fd, timeout=seconds, stop_after=_STOP_BYTES, profile=OWN, on_data=chunks.put
            )
        finally:
            chunks.put(None)
        await reading
        if listed.timed_out:
            raise make_timeout_refusal(seconds)
        found.complete = found.complete and not listed.stopped
        return found


def _build_argv(rg: str, folder: str, names: str, hidden: bool, skip: list[str]) -> list[str]:
    """Build the ripgrep command. A custom type filters by name and respects ignore files, which a glob does not."""
    argv = [*build_base_argv(rg, folder), "--files", "--null", *(f"--glob=!{name}" for name in skip)]
    argv += ["--glob=!.git", *(["--hidden"] if hidden else [])]
    argv += [f"--type-add=wanted:{names}", "--type=wanted"] if names else []
    return [*argv, "--", HERE]


def _list_siblings(folder: OpenFolder, pattern: str) -> list[str]:
    """Return the siblings of the folder that contains every match, so that ripgrep skips them."""
    first, separator, _ = pattern.removeprefix("./").partition("/")
    plain = re.compile(r"[\w.-]+", re.ASCII)
    if not separator or not plain.fullmatch(first):
        return []
    try:
        names = folder.list_names()
    except OSError:
        return []
    others = [f"/{name}" for name in names if name != first and plain.fullmatch(name)]
    return others if len(others) <= _MAX_SIBLINGS else []


def split_pattern(pattern: str) -> tuple[str, str]:
    """Split an absolute pattern into its literal folder and the rest."""
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if re.search(r"[*?\[{]", part)), len(parts) - 1)
    return "/".join(parts[:plain]) or "/", "/".join(parts[plain:])
