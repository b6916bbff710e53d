"""An index of the project's paths, and fuzzy search in it.

Paths are stored in a few large strings, because 300,000 `str` objects would take too much memory. A search scans these
strings with `str.find` and regular expressions, yields to the event loop every few milliseconds, and keeps the matching
lines, because the next keystroke usually narrows the same query.
"""

import asyncio
import heapq
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from odin.tools.files import Refusal
from odin.tools.ripgrep import build_base_argv, find_ripgrep
from odin.tools.walk import walk_files

MAX_PATHS = 600_000
MAX_CHARS = 80_000_000
WALK_TIMEOUT_S = 30.0
_CHUNK_CHARS = 48_000
_READ_BYTES = 65_536
_MAX_TOP_LEVEL = 1000
_BATCH_SIZE = 1000
_BATCH_S = 0.5
_FOLDER_PATTERN = re.compile(r"^(.+)/[^/\n]*$", re.MULTILINE)
_TOP_LEVEL_PATTERN = re.compile(r"^[^/\n]+$", re.MULTILINE)
_KEPT_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "SYSTEMROOT")


class PathIndex:
    """Paths below one folder, unsorted. Each of `chunks` starts and ends with LF and never changes."""

    def __init__(self) -> None:
        self.chunks: list[str] = []
        self.top_level: list[str] = []
        self.count = 0
        self.is_complete = False
        self._chars = 0
        self._pending: list[str] = []
        self._pending_chars = 0
        self._folders: set[str] = {""}

    @property
    def is_full(self) -> bool:
        return self.count >= MAX_PATHS or self._chars >= MAX_CHARS

    def add(self, lines: str) -> None:
        """Add paths of files, one per line, without a final LF. Their folders are added, too."""
        new = self._collect_new_folders(lines)
        text = f"{lines}\n{new}" if new else lines
        if len(self.top_level) < _MAX_TOP_LEVEL:
            self.top_level += _TOP_LEVEL_PATTERN.findall(lines)
            self.top_level += [folder for folder in new.split("\n") if folder.find("/") == len(folder) - 1 >= 1]
        self.count += text.count("\n") + 1
        self._chars += len(text)
        self._pending.append(text)
        self._pending_chars += len(text)
        if self._pending_chars >= _CHUNK_CHARS:
            self.flush()

    def _collect_new_folders(self, lines: str) -> str:
        found: list[str] = []
        for folder in set(_FOLDER_PATTERN.findall(lines)) - self._folders:
            while folder not in self._folders:
                self._folders.add(folder)
                found.append(f"{folder}/")
                folder = folder.rpartition("/")[0]
        return "\n".join(found)

    def flush(self) -> None:
        """Make the paths added so far searchable."""
        if self._pending:
            self.chunks.append("\n" + "\n".join(self._pending) + "\n")
            self._pending, self._pending_chars = [], 0

    def finish(self) -> None:
        self.flush()
        self._folders = {""}
        self.is_complete = True


async def fill_index(index: PathIndex, folder: str, env: Mapping[str, str]) -> None:
    """Walk the folder once, without ignored files and links, for a limited time."""
    rg = find_ripgrep()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(WALK_TIMEOUT_S):
            await (_fill_by_ripgrep(rg, index, folder, env) if rg else _fill_by_walk(index, folder))
    index.finish()


def _build_arguments(rg: str, folder: str, home: str) -> list[str]:
    """Return the ripgrep command. Hidden files are included except in the home, which is full of them."""
    hidden = [] if os.path.realpath(folder) == os.path.realpath(home or "/") else ["--hidden"]
    skipped = [f"--glob=!{name}" for name in (".git", ".hg", ".svn")]
    return [*build_base_argv(rg, folder), "--files", "--null", "--threads=2", *hidden, *skipped]


async def _fill_by_ripgrep(rg: str, index: PathIndex, folder: str, env: Mapping[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *_build_arguments(rg, folder, env.get("HOME", "")),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: env[name] for name in _KEPT_VARIABLES if name in env},
        start_new_session=True,
    )
    rest = b""
    try:
        while process.stdout is not None and not index.is_full:
            chunk = await process.stdout.read(_READ_BYTES)
            if not chunk:
                break
            whole, _, rest = (rest + chunk).rpartition(b"\0")
            if whole:
                index.add(_decode_names(whole))
            await asyncio.sleep(0)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())


def _decode_names(names: bytes) -> str:
    """Convert NUL-separated names to lines. Names that contain LF are dropped."""
    if b"\n" in names:
        names = b"\0".join(name for name in names.split(b"\0") if b"\n" not in name)
    return names.replace(b"\0", b"\n").decode("utf-8", "surrogateescape")


async def _fill_by_walk(index: PathIndex, folder: str) -> None:
    """Add the files without ripgrep, walking in a thread."""
    start = len(folder.rstrip("/")) + 1
    found = walk_files(folder, hidden=True, seconds=WALK_TIMEOUT_S)
    while not index.is_full:
        names = await asyncio.to_thread(_take_batch, found, start)
        if names is None:
            return
        if names:
            index.add("\n".join(names))


def _take_batch(found: Iterator[str], start: int) -> list[str] | None:
    """Return the next names; None at the end."""
    start_time = time.monotonic()
    names: list[str] = []
    try:
        for path in islice(found, _BATCH_SIZE):
            if "\n" not in path:
                names.append(path[start:])
            if time.monotonic() - start_time > _BATCH_S:
                return names
    except Refusal:
        return None
    return names or None


EXACT, PREFIX, NAME, PATH, LETTERS, SCATTERED = range(6)

TIME_SLICE_S = 0.004
"""Seconds of work after which the search yields to the event loop."""

_MAX_MATCHES = 20_000
"""Maximum matches of one kind; a query with more is too unspecific to search further."""

_MAX_NARROW_CHARS = 8_000_000

PathHit = tuple[int, int, str]
"""Match kind, length and path; smaller is better."""


TextPair = tuple[str, str]
"""A text and its case-folded form."""


class Superseded(Exception):
    """A newer query replaced this one."""


class PathSearch:
    """Runs queries on a growing list of chunks. `is_current` tells whether the result is still needed."""

    def __init__(self) -> None:
        self._letters = ""
        self._searched = 0
        self._narrowed: list[TextPair] | None = None
        self._chunks: Sequence[str] = ()
        self._folded: list[TextPair] = []
        self._slice = 0.0

    async def find_best(
        self, chunks: Sequence[str], words: str, count: int, is_current: Callable[[], bool]
    ) -> list[PathHit]:
        """Return at most `count` hits, best first. Raise Superseded."""
        query = fold_case(words.strip())
        letters = "".join(query.split())
        self._slice = time.perf_counter()
        texts = await self._select_texts(chunks, letters, is_current)
        found: dict[str, PathHit] = {}
        for kind in (_match_prefixes, _match_parts):
            await self._collect(texts, lambda text, low, kind=kind: kind(text, low, query), found, is_current)
            if len(found) >= count:
                return heapq.nsmallest(count, found.values())
        pattern = _compile_in_order(letters)
        narrow: list[TextPair] = []
        complete = await self._collect(
            texts, lambda text, low: _match_scattered(text, low, pattern, query), found, is_current, narrow
        )
        if complete:
            self._letters, self._searched, self._narrowed = letters, len(self._folded), narrow
        return heapq.nsmallest(count, found.values())

    async def _select_texts(
        self, chunks: Sequence[str], letters: str, is_current: Callable[[], bool]
    ) -> list[TextPair]:
        """Return the texts to search: all, or only the lines that matched a prefix of these letters."""
        if self._chunks is not chunks:
            self._chunks, self._folded, self._narrowed = chunks, [], None
        while len(self._folded) < len(chunks):
            text = chunks[len(self._folded)]
            self._folded.append((text, fold_case(text)))
            await self._yield_or_stop(is_current)
        if self._narrowed is None or not letters.startswith(self._letters):
            return list(self._folded)
        return [*self._narrowed, *self._folded[self._searched :]]

    async def _collect(
        self,
        texts: Sequence[TextPair],
        kind: Callable[[str, str], Iterator[PathHit]],
        found: dict[str, PathHit],
        is_current: Callable[[], bool],
        narrow: list[TextPair] | None = None,
    ) -> bool:
        """Add new hits to `found` and their lines to `narrow`. False if it stopped because there are too many."""
        matches = chars = 0
        for text, low in texts:
            lines: list[str] = []
            for hit in kind(text, low):
                matches += 1
                lines.append(hit[2])
                if hit[2] not in found and len(found) < 2 * _MAX_MATCHES:
                    found[hit[2]] = hit
            if narrow is not None and lines:
                matching_lines = "\n" + "\n".join(lines) + "\n"
                narrow.append((matching_lines, fold_case(matching_lines)))
                chars += len(matching_lines)
            if matches > _MAX_MATCHES or chars > _MAX_NARROW_CHARS:
                return False
            await self._yield_or_stop(is_current)
        return True

    async def _yield_or_stop(self, is_current: Callable[[], bool]) -> None:
        if time.perf_counter() - self._slice > TIME_SLICE_S:
            await asyncio.sleep(0)
            self._slice = time.perf_counter()
        if not is_current():
            raise Superseded


def fold_case(text: str) -> str:
    """Lower-case the text, keeping every character at its position."""
    low = text.lower()
    if len(low) == len(text):
        return text if low == text else low
    return "".join(small if len(small := char.lower()) == 1 else char for char in text)


def _match_prefixes(text: str, low: str, query: str) -> Iterator[PathHit]:
    """Yield lines whose file name starts with or equals the query."""
    for edge in ("/", "\n"):
        sought = edge + query
        at = low.find(sought)
        while at >= 0:
            after = at + len(sought)
            end = low.find("\n", after)
            if end < 0:
                break
            if low.find("/", after, end - 1) < 0:
                start = low.rfind("\n", 0, at + 1) + 1
                kind = EXACT if low[after:end] in ("", "/") else PREFIX
                yield kind, end - start, text[start:end]
                after = end
            at = low.find(sought, after)


def _match_parts(text: str, low: str, query: str) -> Iterator[PathHit]:
    """Yield lines that contain the query."""
    at = low.find(query)
    while at >= 0:
        end = low.find("\n", at)
        start = low.rfind("\n", 0, at) + 1
        name = low.rfind("/", start, end - 1) + 1 or start
        kind = NAME if low.find(query, max(name, start), end) >= 0 else PATH
        yield kind, end - start, text[start:end]
        at = low.find(query, end)


def _compile_in_order(letters: str) -> "re.Pattern[str]":
    """Return a pattern for lines with these letters in order, without backtracking."""
    steps = (f"[^\\n{re.escape(letter)}]*+{re.escape(letter)}" for letter in letters)
    return re.compile("\\n" + "".join(steps))


def _match_scattered(text: str, low: str, pattern: "re.Pattern[str]", query: str) -> Iterator[PathHit]:
    for match in pattern.finditer(low):
        start = match.start() + 1
        end = low.find("\n", match.end())
        name = low.rfind("/", start, end - 1)
        in_name = name > start and pattern.match("\n" + low[name + 1 : end]) is not None
        yield LETTERS if in_name else SCATTERED, end - start, text[start:end]
