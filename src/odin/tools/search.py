"""Searches files with ripgrep or, without it, with the built-in search, which prints the same format."""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from odin.core.text import join_some
from odin.sandbox.runner import CapturedOutput, ProcessRunner
from odin.tools.files import Refusal
from odin.tools.ripgrep import SearchMode, SearchQuery, build_ripgrep_argv

SEARCH_SECONDS = 60.0

_LINES_BYTES = 8_000_000
_FIRST_BYTES = 1_000_000
_PATHS_BYTES = 64_000_000
_RANGE_BYTES = 2_000_000_000

_ROW_PATTERN = rb"(\d+)([:-])(.*)"

T = TypeVar("T")

MAX_NAMED = 5


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


async def find_lines(query: SearchQuery, rg: str | None, runner: ProcessRunner) -> SearchResult:
    """Return the matching lines. Ripgrep prints files in no order; if there are too many matches to read, it is
    run again with sorting, so that the same search gives the same first lines."""
    output = await _run_search(query, "lines", rg, runner, _LINES_BYTES)
    if not output.stopped:
        return SearchResult(parse_lines(output.data, query.context))
    first = await _run_search(query, "lines", rg, runner, _FIRST_BYTES, in_order=True)
    whole = first.data[: first.data.rfind(b"\n")] if b"\n" in first.data else first.data
    return SearchResult(parse_lines(whole, query.context), complete=False)


async def find_in_range(
    query: SearchQuery, first: int, last: int, rg: str | None, runner: ProcessRunner
) -> SearchResult:
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

    await _run_search(query, "lines", rg, runner, _RANGE_BYTES, on_data=keep_in_range)
    body = b"\n".join(lines_in_range)
    return SearchResult(
        [_make_file_hits(query.path, body, query.context)] if lines_in_range else [], size < _LINES_BYTES
    )


async def count_matches(query: SearchQuery, rg: str | None, runner: ProcessRunner) -> FileCounts:
    """Return the number of matching lines per file. Multiline: ripgrep would count matches, so count lines here."""
    if query.across_lines:
        lines = await find_lines(replace(query, before=0, after=0), rg, runner)
        return FileCounts([(file.path, file.matches) for file in lines.files], lines.complete)
    output = await _run_search(query, "counts", rg, runner, _PATHS_BYTES)
    return FileCounts(parse_counts(output.data), not output.stopped)


async def find_paths(query: SearchQuery, rg: str | None, runner: ProcessRunner) -> FileCounts:
    output = await _run_search(query, "paths", rg, runner, _PATHS_BYTES)
    return FileCounts(parse_paths(output.data), not output.stopped)


def _sort_by_path(found: Iterable[tuple[bytes, T]]) -> list[tuple[bytes, T]]:
    """Sort folder by folder: `src/b` comes before `src-a`."""
    return sorted(found, key=lambda item: item[0].replace(b"/", b"\0"))


async def _run_search(
    query: SearchQuery,
    mode: SearchMode,
    rg: str | None,
    runner: ProcessRunner,
    stop_after: int,
    *,
    in_order: bool = False,
    on_data: Callable[[bytes], None] | None = None,
) -> CapturedOutput:
    """Run the search, in the searched folder, because ripgrep applies a glob with a slash relative to its cwd.

    Falls back to the built-in search if ripgrep cannot be started.
    """
    folder = query.path if Path(query.path).is_dir() else str(Path(query.path).parent)
    run = functools.partial(runner.capture, cwd=folder, timeout=SEARCH_SECONDS, stop_after=stop_after, on_data=on_data)
    output = None
    if rg is not None:
        with contextlib.suppress(OSError):
            output = await run(build_ripgrep_argv(rg, query, mode, in_order))
    if output is None:
        from odin.tools.fallback_search import build_scan_argv

        output = await run(build_scan_argv(query, mode))
    if output.timed_out:
        raise make_timeout_refusal()
    if output.code == 2 and output.errors and not output.data:
        raise Refusal(f"The search is not valid: {output.errors.removeprefix('rg: ').strip()}")
    if output.code not in (0, 1, 2) and not output.stopped:
        raise Refusal(f"The search program exited with code {output.code}. Search a smaller folder. {output.errors}")
    return output


def make_timeout_refusal() -> Refusal:
    return Refusal(f"The search took longer than {SEARCH_SECONDS:g}s and was stopped. Search in a smaller folder.")


def parse_counts(data: bytes) -> list[tuple[str, int]]:
    pairs = re.findall(rb"([^\0]+)\0(\d+)\r?\n", data)
    return [(os.fsdecode(path), int(count)) for path, count in _sort_by_path(pairs)]


def parse_paths(data: bytes) -> list[tuple[str, int]]:
    paths = _sort_by_path((path, 1) for path in data.split(b"\0") if path)
    return [(os.fsdecode(path), count) for path, count in paths]


def parse_lines(data: bytes, context: bool) -> list[FileHits]:
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
    return [_make_file_hits(os.fsdecode(path), body, context) for path, body in _sort_by_path(bodies)]


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
