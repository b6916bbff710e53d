"""Searching in files, by ripgrep or by the built-in scan: two programs that print the same, run and read here."""

import functools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from odin.policy.process.runner import Captured, ProcessRunner
from odin.tools.files.path import Refusal
from odin.tools.searching.query import Answer, Query
from odin.tools.searching.ripgrep import ripgrep_arguments
from odin.tools.searching.scan import scan_arguments

SEARCH_SECONDS = 60.0

_LINES_BYTES = 8_000_000
_FIRST_BYTES = 1_000_000
_PATHS_BYTES = 64_000_000
_RANGE_BYTES = 2_000_000_000

_ROW = rb"(\d+)([:-])(.*)"

T = TypeVar("T")


class Hit(Struct, frozen=True):
    """One line of one file: a match, or context around one."""

    path: str
    line: int
    is_match: bool
    text: str


class FileHits(Struct, frozen=True):
    """What was found in one file. `rows` are the lines it fills when shown, marks of lines left out included."""

    path: str
    rows: int
    matches: int
    hits: Callable[[], list[Hit]]


class Found(Struct, frozen=True):
    """In order of path. Without `complete` these are only the first of far more."""

    files: list[FileHits]
    complete: bool = True


class Counts(Struct, frozen=True):
    """How many matching lines each file has, in order of path. Without `complete` these are some of far more."""

    files: list[tuple[str, int]]
    complete: bool = True


async def find_lines(query: Query, rg: str | None, runner: ProcessRunner) -> Found:
    """Ripgrep prints file by file in no order. When it is too much to wait for the end, the first ones are asked for
    in order, so that the same search gives the same lines."""
    found = await _run(query, "lines", rg, runner, _LINES_BYTES)
    if not found.stopped:
        return Found(read_lines(found.data, query.context))
    first = await _run(query, "lines", rg, runner, _FIRST_BYTES, in_order=True)
    whole = first.data[: first.data.rfind(b"\n")] if b"\n" in first.data else first.data
    return Found(read_lines(whole, query.context), complete=False)


async def find_in_range(query: Query, first: int, last: int, rg: str | None, runner: ProcessRunner) -> Found:
    """The lines of one file whose number is within the range, however many there are outside of it."""
    kept: list[bytes] = []
    rest, size = b"", 0
    number = re.compile(rb"(?:[^\0]*\0)?(\d+)[:-]", re.DOTALL)

    def keep(piece: bytes) -> None:
        nonlocal rest, size
        whole, ended, rest = (rest + piece).rpartition(b"\n")
        for line in whole.split(b"\n") if ended else ():
            found = number.match(line)
            if found is not None and first <= int(found[1]) <= last and size < _LINES_BYTES:
                kept.append(line[found.start(1) :])
                size += len(line)

    await _run(query, "lines", rg, runner, _RANGE_BYTES, on_data=keep)
    body = b"\n".join(kept)
    return Found([_file(query.path, body, query.context)] if kept else [], size < _LINES_BYTES)


async def count_lines(query: Query, rg: str | None, runner: ProcessRunner) -> Counts:
    """Ripgrep's own count is one of matches where these may reach across lines, so there the lines are counted."""
    if query.across_lines:
        lines = await find_lines(replace(query, before=0, after=0), rg, runner)
        return Counts([(file.path, file.matches) for file in lines.files], lines.complete)
    found = await _run(query, "counts", rg, runner, _PATHS_BYTES)
    return Counts(read_counts(found.data), not found.stopped)


async def find_paths(query: Query, rg: str | None, runner: ProcessRunner) -> Counts:
    found = await _run(query, "paths", rg, runner, _PATHS_BYTES)
    return Counts(read_paths(found.data), not found.stopped)


def _in_order(found: Iterable[tuple[bytes, T]]) -> list[tuple[bytes, T]]:
    """Folder by folder, as a person would walk through them: `src/b` comes before `src-a`."""
    return sorted(found, key=lambda item: item[0].replace(b"/", b"\0"))


async def _run(
    query: Query,
    answer: Answer,
    rg: str | None,
    runner: ProcessRunner,
    stop_after: int,
    *,
    in_order: bool = False,
    on_data: Callable[[bytes], None] | None = None,
) -> Captured:
    """In the searched folder, because ripgrep reads a glob with a slash relative to where it runs.

    A ripgrep that cannot be started is as good as none.
    """
    folder = query.path if Path(query.path).is_dir() else str(Path(query.path).parent)
    run = functools.partial(runner.capture, cwd=folder, timeout=SEARCH_SECONDS, stop_after=stop_after, on_data=on_data)
    own = scan_arguments(query, answer)
    try:
        found = await run(own if rg is None else ripgrep_arguments(rg, query, answer, in_order))
    except OSError:
        found = await run(own)
    if found.timed_out:
        raise took_too_long()
    if found.code == 2 and found.errors and not found.data:
        raise Refusal(f"The search is not valid: {found.errors.removeprefix('rg: ').strip()}")
    if found.code not in (0, 1, 2) and not found.stopped:
        raise Refusal(f"The search program ended with code {found.code}. Search in a smaller folder. {found.errors}")
    return found


def took_too_long() -> Refusal:
    return Refusal(f"The search took longer than {SEARCH_SECONDS:g}s and was stopped. Search in a smaller folder.")


def read_counts(data: bytes) -> list[tuple[str, int]]:
    pairs = re.findall(rb"([^\0]+)\0(\d+)\r?\n", data)
    return [(os.fsdecode(path), int(count)) for path, count in _in_order(pairs)]


def read_paths(data: bytes) -> list[tuple[str, int]]:
    paths = _in_order((path, 1) for path in data.split(b"\0") if path)
    return [(os.fsdecode(path), count) for path, count in paths]


def read_lines(data: bytes, context: bool) -> list[FileHits]:
    """The lines of each file, below its path. Only what is shown is taken apart further, by `FileHits.hits`.

    Every line begins with its number, so an empty one ends a file. A line without a number says that the file turned
    out to be binary.
    """
    found: list[tuple[bytes, bytes]] = []
    border, odd = re.compile(rb"\n\r?\n"), re.compile(rb"^(?!\d+[:-]|--\r?$)", re.MULTILINE)
    at = 0
    while (name_end := data.find(b"\0", at)) >= 0:
        end = border.search(data, name_end)
        body = data[name_end + 1 : end.start() if end else len(data)].removesuffix(b"\n")
        if odd.search(body) is None:
            found.append((data[at:name_end], body))
        at = end.end() if end else len(data)
    return [_file(os.fsdecode(path), body, context) for path, body in _in_order(found)]


def _file(path: str, body: bytes, context: bool) -> FileHits:
    rows = body.count(b"\n") + 1
    matches = len(re.findall(rb"^\d+:", body, re.MULTILINE)) if context else rows
    return FileHits(path, rows, matches, functools.partial(_hits, path, body))


def _hits(path: str, body: bytes) -> list[Hit]:
    row = re.compile(_ROW, re.DOTALL)
    parsed = (row.match(raw) for raw in body.split(b"\n"))
    return [
        Hit(path, int(number), sign == b":", text.removesuffix(b"\r").decode("utf-8", "surrogateescape"))
        for number, sign, text in (found.groups() for found in parsed if found is not None)
    ]
