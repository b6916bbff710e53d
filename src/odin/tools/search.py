"""Searches files with ripgrep or, without it, with the built-in search, which prints the same format.

What is searched is held open, so that the program cannot be led elsewhere: it starts in the folder by its descriptor
and prints names relative to it, and a single file is its standard input. The program walks the folder by itself and
follows no links, but another process could exchange a folder below with a link while it looks. So what is shown is
compared with the files afterwards, opened without links (`confirm_lines` in staleness). If a folder has changed during
the search, all results are, and names and counts are taken from lines that are in the files (`is_settled`).
"""

import contextlib
import functools
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from io import FileIO
from types import TracebackType
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from odin.core.profile import OWN
from odin.core.text import join_some
from odin.core.tool import ResolvedPath, hide_nothing
from odin.policy.paths import FolderCursor, OpenFolder, open_folder, read_status
from odin.sandbox.runner import CapturedOutput, ProcessRunner
from odin.tools.files import Refusal, open_listed_folder, open_regular
from odin.tools.ripgrep import HERE, INPUT, SearchMode, SearchQuery, build_ripgrep_argv

_LINES_BYTES = 8_000_000
_FIRST_BYTES = 1_000_000
_PATHS_BYTES = 64_000_000
_RANGE_BYTES = 2_000_000_000

_PROBED_BYTES = 65_536
_MAX_FOLDERS = 20_000
_CLOCK_STEP_NS = 20_000_000
"""Times of files are older than the clock by up to this."""

_ROW_PATTERN = rb"(\d+)([:-])(.*)"

T = TypeVar("T")

MAX_NAMED = 5


class SearchSource:
    """`argument` names the source for the search program; `cwd` is the folder to start it in."""

    def __init__(self, place: ResolvedPath, opened: FileIO | OpenFolder) -> None:
        self.place = place
        self._opened: AbstractContextManager[object] = opened
        self._file = opened if isinstance(opened, FileIO) else None
        self.is_file = self._file is not None
        self.cwd = opened.fd if isinstance(opened, OpenFolder) else "/"
        self.argument = INPUT if self.is_file else HERE
        self._opened_at = time.time_ns() - _CLOCK_STEP_NS
        self._shown_top = place.shown.rstrip("/")
        self._real_top = place.path.rstrip("/")

    def __enter__(self) -> "SearchSource":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._opened.__exit__(kind, error, at)

    def open_input(self) -> int:
        """Return the standard input for the program: the file, from its start."""
        if self._file is None:
            return subprocess.DEVNULL
        self._file.seek(0)
        return self._file.fileno()

    def get_path(self, printed: str) -> str:
        """Return the path to show for a name that the program printed."""
        return self.place.shown if self.is_file else f"{self._shown_top}/{printed.removeprefix(HERE)}"

    def get_real_path(self, shown: str) -> str:
        """Return the path without links of a path to show."""
        return self.place.path if self.is_file else f"{self._real_top}{shown[len(self._shown_top) :]}"

    def is_settled(self, shown: Iterable[str]) -> bool:
        """True if no folder on the way to these paths has changed since the source was opened.

        Exchanging a folder with a link, and back, changes the time of the folder that contains it.
        """
        if self.is_file:
            return True
        folders = {self._real_top}
        for path in shown:
            folder = self.get_real_path(path).rpartition("/")[0]
            while folder not in folders:
                folders.add(folder)
                folder = folder.rpartition("/")[0]
            if len(folders) > _MAX_FOLDERS:
                return False
        with open_folder("/") as top, FolderCursor(top) as cursor:
            return all(self._is_unchanged(folder, cursor) for folder in sorted(folders))

    def _is_unchanged(self, folder: str, cursor: FolderCursor) -> bool:
        try:
            return os.fstat(cursor.enter(folder[1:])).st_ctime_ns < self._opened_at
        except OSError:
            return False

    def hide(self, is_hidden: Callable[[str], bool]) -> Callable[[str], bool]:
        """Return the filter for paths to show, which also applies to the paths without links."""
        if self._shown_top == self._real_top or is_hidden is hide_nothing:
            return is_hidden
        return lambda shown: is_hidden(shown) or is_hidden(self.get_real_path(shown))


def open_source(place: ResolvedPath, cwd: str) -> SearchSource:
    """Open what is to be searched. Raise Refusal for a missing, unreadable, special or binary file."""
    try:
        mode = read_status(place.path).st_mode
    except OSError:
        mode = 0
    if stat.S_ISDIR(mode):
        folder = open_listed_folder(place, cwd)
        if not os.access(".", os.R_OK | os.X_OK, dir_fd=folder.fd):
            os.close(folder.fd)
            raise Refusal(f"{place.shown} cannot be read: permission denied.")
        return SearchSource(place, folder)
    file, _ = open_regular(place, cwd)
    head = file.read(_PROBED_BYTES) or b""
    if b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        file.close()
        raise Refusal(f"{place.shown} is a binary file without lines to search. Use a command such as strings.")
    return SearchSource(place, file)


class LineHit(Struct, frozen=True):
    """One line of one file: a match, or context around one."""

    path: str
    line: int
    is_match: bool
    text: str


class FileHits(Struct, frozen=True):
    """The hits of one file. `rows` is the number of output lines, including `--` separators."""

    path: str
    rows: int
    matches: int
    hits: Callable[[], list[LineHit]]


class SearchResult(Struct, frozen=True):
    """Hits sorted by path. `complete=False`: only the first of many more."""

    files: list[FileHits]
    complete: bool = True


class FileCounts(Struct, frozen=True):
    """Number of matching lines per file, sorted by path. `complete=False`: there are more."""

    files: list[tuple[str, int]]
    complete: bool = True


class SearchProgram(Struct, frozen=True):
    """The program that searches a source: ripgrep or, without it, the built-in search."""

    source: SearchSource
    rg: str | None
    runner: ProcessRunner
    seconds: float


async def find_lines(query: SearchQuery, program: SearchProgram) -> SearchResult:
    """Return the matching lines. Ripgrep prints files in no order; if there are too many matches to read, it is
    run again with sorting, so that the same search gives the same first lines."""
    path_of = program.source.get_path
    output = await _run_search(query, "lines", program, _LINES_BYTES)
    if not output.stopped:
        return SearchResult(parse_lines(output.data, query.context, path_of))
    first = await _run_search(query, "lines", program, _FIRST_BYTES, in_order=True)
    whole = first.data[: first.data.rfind(b"\n")] if b"\n" in first.data else first.data
    return SearchResult(parse_lines(whole, query.context, path_of), complete=False)


async def find_in_range(query: SearchQuery, first: int, last: int, program: SearchProgram) -> SearchResult:
    """Return the matches of one file within the line range, however many lie outside of it."""
    lines_in_range: list[bytes] = []
    rest, size = b"", 0
    number = re.compile(rb"(?:[^\0]*\0)?(\d+)[:-]", re.DOTALL)

    def keep_in_range(chunk: bytes) -> None:
        nonlocal rest, size
        whole, separator, rest = (rest + chunk).rpartition(b"\n")
        for line in whole.split(b"\n") if separator else ():
            match = number.match(line)
            if match is not None and first <= int(match[1]) <= last and size < _LINES_BYTES:
                lines_in_range.append(line[match.start(1) :])
                size += len(line)

    await _run_search(query, "lines", program, _RANGE_BYTES, on_data=keep_in_range)
    body = b"\n".join(lines_in_range)
    path = program.source.place.shown
    return SearchResult([_make_file_hits(path, body, query.context)] if lines_in_range else [], size < _LINES_BYTES)


async def count_matches(query: SearchQuery, program: SearchProgram) -> FileCounts:
    """Return the number of matching lines per file. Multiline: ripgrep would count matches, so count lines here."""
    if query.across_lines:
        lines = await find_lines(replace(query, before=0, after=0), program)
        return FileCounts([(file.path, file.matches) for file in lines.files], lines.complete)
    output = await _run_search(query, "counts", program, _PATHS_BYTES)
    return FileCounts(parse_counts(output.data, program.source.get_path), not output.stopped)


async def find_paths(query: SearchQuery, program: SearchProgram) -> FileCounts:
    output = await _run_search(query, "paths", program, _PATHS_BYTES)
    return FileCounts(parse_paths(output.data, program.source.get_path), not output.stopped)


def _sort_by_path(found: Iterable[tuple[bytes, T]]) -> list[tuple[bytes, T]]:
    """Sort folder by folder: `src/b` comes before `src-a`."""
    return sorted(found, key=lambda item: item[0].replace(b"/", b"\0"))


async def _run_search(
    query: SearchQuery,
    mode: SearchMode,
    program: SearchProgram,
    stop_after: int,
    *,
    in_order: bool = False,
    on_data: Callable[[bytes], None] | None = None,
) -> CapturedOutput:
    """Run the search, in the searched folder, because ripgrep applies a glob with a slash relative to its cwd.

    Falls back to the built-in search if ripgrep cannot be started.
    """
    source = program.source
    run = functools.partial(
        program.runner.capture,
        cwd=source.cwd,
        timeout=program.seconds,
        stop_after=stop_after,
        profile=OWN,
        on_data=on_data,
    )
    output = None
    if program.rg is not None:
        with contextlib.suppress(OSError):
            argv = build_ripgrep_argv(program.rg, query, mode, in_order, source.place.path)
            output = await run(argv, stdin=source.open_input())
    if output is None:
        from odin.tools.fallback_search import build_scan_argv

        output = await run(build_scan_argv(query, mode), stdin=source.open_input())
    if output.timed_out:
        raise make_timeout_refusal(program.seconds)
    if output.code == 2 and output.errors and not output.data:
        raise Refusal(f"The search is not valid: {output.errors.removeprefix('rg: ').strip()}")
    if output.code not in (0, 1, 2) and not output.stopped:
        raise Refusal(f"The search program exited with code {output.code}. Search a smaller folder. {output.errors}")
    return output


def make_timeout_refusal(seconds: float) -> Refusal:
    return Refusal(f"The search took longer than {seconds:g}s and was stopped. Search in a smaller folder.")


def _keep_path(printed: str) -> str:
    return printed


def parse_counts(data: bytes, path_of: Callable[[str], str] = _keep_path) -> list[tuple[str, int]]:
    """Parse the output. `get_path` returns the path for a name that the program printed."""
    pairs = re.findall(rb"([^\0]+)\0(\d+)\r?\n", data)
    return [(path_of(os.fsdecode(path)), int(count)) for path, count in _sort_by_path(pairs)]


def parse_paths(data: bytes, path_of: Callable[[str], str] = _keep_path) -> list[tuple[str, int]]:
    paths = _sort_by_path((path, 1) for path in data.split(b"\0") if path)
    return [(path_of(os.fsdecode(path)), count) for path, count in paths]


def parse_lines(data: bytes, context: bool, path_of: Callable[[str], str] = _keep_path) -> list[FileHits]:
    """Parse the output into one FileHits per file; the lines are parsed only when shown, by `FileHits.hits`.

    Every line starts with its number, so an empty line ends a file. A line without a number means that the file is
    binary.
    """
    bodies: list[tuple[bytes, bytes]] = []
    file_end, unnumbered = re.compile(rb"\n\r?\n"), re.compile(rb"^(?!\d+[:-]|--\r?$)", re.MULTILINE)
    at = 0
    while (name_end := data.find(b"\0", at)) >= 0:
        end = file_end.search(data, name_end)
        body = data[name_end + 1 : end.start() if end else len(data)].removesuffix(b"\n")
        if unnumbered.search(body) is None:
            bodies.append((data[at:name_end], body))
        at = end.end() if end else len(data)
    return [_make_file_hits(path_of(os.fsdecode(path)), body, context) for path, body in _sort_by_path(bodies)]


def _make_file_hits(path: str, body: bytes, context: bool) -> FileHits:
    rows = body.count(b"\n") + 1
    matches = len(re.findall(rb"^\d+:", body, re.MULTILINE)) if context else rows
    return FileHits(path, rows, matches, functools.partial(_parse_hits, path, body))


def _parse_hits(path: str, body: bytes) -> list[LineHit]:
    row = re.compile(_ROW_PATTERN, re.DOTALL)
    parsed = (row.match(raw) for raw in body.split(b"\n"))
    return [
        LineHit(path, int(number), sign == b":", text.removesuffix(b"\r").decode("utf-8", "surrogateescape"))
        for number, sign, text in (match.groups() for match in parsed if match is not None)
    ]


def split_hidden(
    found: Iterable[T], path: Callable[[T], str], is_hidden: Callable[[str], bool]
) -> tuple[list[T], list[str]]:
    """Return the items that may be shown, and the paths of those that permission rules withhold."""
    if is_hidden is hide_nothing:
        return list(found), []
    shown: list[T] = []
    withheld: list[str] = []
    for item in found:
        if is_hidden(path(item)):
            withheld.append(path(item))
        else:
            shown.append(item)
    return shown, withheld


def describe_hidden(withheld: Sequence[str]) -> list[str]:
    """Return the line about withheld files, or [] if there are none."""
    if not withheld:
        return []
    names = join_some(sorted(withheld), MAX_NAMED)
    return [
        f"(left out because a permission rule or secret protects them: {names}; search a file by path to ask for it)"
    ]
