"""Finds files by a few letters of their path, for `@` completion in the front ends.

The project is walked in the background after the first query, and queries are answered from the paths known so far. An
index older than a few seconds is rebuilt, also in the background. Paths are stored in a few large strings, because
300,000 `str` objects would take too much memory. A search scans these strings, yields to the event loop every few
milliseconds, and keeps the matching lines, because the next keystroke usually narrows the same query.
"""

import asyncio
import heapq
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from odin.core.effects import CACHE_NAMES, PACKAGE_NAMES
from odin.core.event_values import CachedFile
from odin.core.profile import OWN
from odin.sandbox.runner import ProcessRunner
from odin.tools.files import Refusal
from odin.tools.ripgrep import build_base_argv, find_ripgrep, walk_files

MAX_PATHS = 600_000
MAX_CHARS = 80_000_000
WALK_TIMEOUT_S = 30.0
_CHUNK_CHARS = 48_000
_MAX_TOP_LEVEL = 1000
_BATCH_SIZE = 1000
_BATCH_S = 0.5
_FOLDER_PATTERN = r"(?m)^(.+)/[^/\n]*$"
_TOP_LEVEL_PATTERN = r"(?m)^[^/\n]+$"

EXACT, PREFIX, NAME, PATH, LETTERS, SCATTERED, GENERATED = range(7)
"""The kinds of matches; `GENERATED` is added to the kind of a file that programs made."""

_GENERATED_FOLDERS = "|".join(map(re.escape, sorted(CACHE_NAMES | PACKAGE_NAMES)))
_GENERATED_PATH = re.compile(rf"(?:^|/)(?:{_GENERATED_FOLDERS})/|\.(?:pyc|pyo|class|o|so)$")

TIME_SLICE_S = 0.004
"""Seconds of work after which the search yields to the event loop."""

_MAX_MATCHES = 20_000
"""Maximum matches of one kind; a query with more is too unspecific to search further."""

_MAX_NARROW_CHARS = 8_000_000

PathHit = tuple[int, int, str]
"""Match kind, length and path; smaller is better."""

TextPair = tuple[str, str]
"""A text and its case-folded form."""

FRESH_S = 10.0
"""Seconds after which the index is rebuilt."""

_GRACE_S = 0.05
"""Seconds the first query waits for the first paths, twice at most."""

_STAT_BUDGET_S = 0.1
_MAX_ENTRIES = 2000
_MAX_QUERY_CHARS = 200
_HOUR_S, _DAY_S = 3600.0, 86_400.0
_UNKNOWN_AGE = 3


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
        new_folders: list[str] = []
        for folder in set(re.findall(_FOLDER_PATTERN, lines)) - self._folders:
            while folder not in self._folders:
                self._folders.add(folder)
                new_folders.append(f"{folder}/")
                folder = folder.rpartition("/")[0]
        new = "\n".join(new_folders)
        text = f"{lines}\n{new}" if new else lines
        if len(self.top_level) < _MAX_TOP_LEVEL:
            self.top_level += re.findall(_TOP_LEVEL_PATTERN, lines)
            self.top_level += [folder for folder in new.split("\n") if folder.find("/") == len(folder) - 1 >= 1]
        self.count += text.count("\n") + 1
        self._chars += len(text)
        self._pending.append(text)
        self._pending_chars += len(text)
        if self._pending_chars >= _CHUNK_CHARS:
            self.flush()

    def flush(self) -> None:
        """Make the paths added so far searchable."""
        if self._pending:
            self.chunks.append("\n" + "\n".join(self._pending) + "\n")
            self._pending, self._pending_chars = [], 0

    def finish(self) -> None:
        self.flush()
        self._folders = {""}
        self.is_complete = True


async def fill_index(index: PathIndex, folder: str, env: Mapping[str, str], runner: ProcessRunner) -> None:
    """Walk the folder once, without ignored files and links, for a limited time."""
    rg = find_ripgrep()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(WALK_TIMEOUT_S):
            if rg:
                await _fill_by_ripgrep(index, folder, _build_arguments(rg, folder, env.get("HOME", "")), runner)
            else:
                await _fill_by_walk(index, folder)
    index.finish()


def _build_arguments(rg: str, folder: str, home: str) -> list[str]:
    """Return the ripgrep command. Hidden files are included except in the home, which is full of them."""
    hidden = [] if os.path.realpath(folder) == os.path.realpath(home or "/") else ["--hidden"]
    skipped = [f"--glob=!{name}" for name in (".git", ".hg", ".svn")]
    return [*build_base_argv(rg, folder), "--files", "--null", "--threads=2", *hidden, *skipped]


async def _fill_by_ripgrep(index: PathIndex, folder: str, argv: Sequence[str], runner: ProcessRunner) -> None:
    rest = b""

    def add(chunk: bytes) -> None:
        nonlocal rest
        whole, _, rest = (rest + chunk).rpartition(b"\0")
        if whole and not index.is_full:
            # Convert NUL-separated names to lines. Names that contain LF are dropped.
            names = whole
            if b"\n" in names:
                names = b"\0".join(name for name in names.split(b"\0") if b"\n" not in name)
            index.add(names.replace(b"\0", b"\n").decode("utf-8", "surrogateescape"))

    await runner.capture(argv, cwd=folder, timeout=WALK_TIMEOUT_S, stop_after=MAX_CHARS, profile=OWN, on_data=add)


async def _fill_by_walk(index: PathIndex, folder: str) -> None:
    """Add the files without ripgrep, walking in a thread."""
    start = len(folder.rstrip("/")) + 1
    paths = walk_files(folder, hidden=True, seconds=WALK_TIMEOUT_S)
    while not index.is_full:
        names = await asyncio.to_thread(_take_batch, paths, start)
        if names is None:
            return
        if names:
            index.add("\n".join(names))


def _take_batch(paths: Iterator[str], start: int) -> list[str] | None:
    """Return the next names; None at the end."""
    start_time = time.monotonic()
    names: list[str] = []
    try:
        for path in islice(paths, _BATCH_SIZE):
            if "\n" not in path:
                names.append(path[start:])
            if time.monotonic() - start_time > _BATCH_S:
                return names
    except Refusal:
        return None
    return names or None


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
        # The texts to search: all, or only the lines that matched a prefix of these letters.
        if self._chunks is not chunks:
            self._chunks, self._folded, self._narrowed = chunks, [], None
        while len(self._folded) < len(chunks):
            text = chunks[len(self._folded)]
            self._folded.append((text, fold_case(text)))
            await self._yield_or_stop(is_current)
        if self._narrowed is None or not letters.startswith(self._letters):
            texts = list(self._folded)
        else:
            texts = [*self._narrowed, *self._folded[self._searched :]]
        found: dict[str, PathHit] = {}
        for kind in (_match_prefixes, _match_parts):
            await self._collect(texts, lambda text, low, kind=kind: kind(text, low, query), found, is_current)
            if sum(hit[0] < GENERATED for hit in found.values()) >= count:
                return heapq.nsmallest(count, found.values())
        # A pattern for lines with these letters in order, without backtracking.
        steps = (f"[^\\n{re.escape(letter)}]*+{re.escape(letter)}" for letter in letters)
        pattern = re.compile("\\n" + "".join(steps))
        narrow: list[TextPair] = []
        complete = await self._collect(
            texts, lambda text, low: _match_scattered(text, low, pattern, query), found, is_current, narrow
        )
        if complete:
            self._letters, self._searched, self._narrowed = letters, len(self._folded), narrow
        return heapq.nsmallest(count, found.values())

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
                    is_generated = _GENERATED_PATH.search(hit[2]) is not None
                    found[hit[2]] = (hit[0] + GENERATED, *hit[1:]) if is_generated else hit
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
        wanted = edge + query
        at = low.find(wanted)
        while at >= 0:
            after = at + len(wanted)
            end = low.find("\n", after)
            if end < 0:
                break
            if low.find("/", after, end - 1) < 0:
                start = low.rfind("\n", 0, at + 1) + 1
                kind = EXACT if low[after:end] in ("", "/") else PREFIX
                yield kind, end - start, text[start:end]
                after = end
            at = low.find(wanted, after)


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


def _match_scattered(text: str, low: str, pattern: "re.Pattern[str]", query: str) -> Iterator[PathHit]:
    for match in pattern.finditer(low):
        start = match.start() + 1
        end = low.find("\n", match.end())
        name = low.rfind("/", start, end - 1)
        in_name = name > start and pattern.match("\n" + low[name + 1 : end]) is not None
        yield LETTERS if in_name else SCATTERED, end - start, text[start:end]


class PathIndexer:
    """Lists the paths below a folder in the background, again if that was a while ago. Shared by several finders."""

    def __init__(
        self, cwd: str, runner: ProcessRunner, env: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.cwd = cwd
        self.env = env
        self._clock = clock
        self._runner = runner
        self._index: PathIndex | None = None
        self._finished_at = 0.0
        self._walk_task: asyncio.Task[None] | None = None

    async def get_index(self) -> "PathIndex":
        """Return the paths as far as they are known; wait a little for the first ones."""
        if not self.is_walking and (self._index is None or self._clock() - self._finished_at > FRESH_S):
            new_index = PathIndex()
            self._index = self._index or new_index
            self._walk_task = asyncio.create_task(self._build_index(new_index))
        for _ in range(2):
            if self._walk_task is not None and self._index is not None and not self._index.count:
                await asyncio.wait([self._walk_task], timeout=_GRACE_S)
        return self._index or PathIndex()

    @property
    def is_walking(self) -> bool:
        """True while the project is being walked."""
        return self._walk_task is not None and not self._walk_task.done()

    async def close(self) -> None:
        if self._walk_task is not None and self.is_walking:
            self._walk_task.cancel()
            await asyncio.wait([self._walk_task])

    async def _build_index(self, new_index: "PathIndex") -> None:
        await fill_index(new_index, self.cwd, self.env, self._runner)
        self._index = new_index
        self._finished_at = self._clock()


class FileFinder:
    """Answers the path queries of one client. `recent` returns the files of the session, `list_others` the folders
    besides the project, whose files are found by their absolute paths.

    `find_resources` finds resources of servers, which come first.
    """

    def __init__(
        self,
        paths: PathIndexer,
        *,
        recent: Callable[[], Sequence[CachedFile]],
        find_resources: Callable[[str, int], Sequence[str]] | None = None,
        list_others: Callable[[], Sequence[PathIndexer]] = tuple,
    ) -> None:
        self._list_others = list_others
        self.paths = paths
        self._cwd = paths.cwd
        self._env = paths.env
        self._recent = recent
        self._find_resources = find_resources
        self._query_count = 0
        self._searches: dict[str, PathSearch] = {}
        self._closed = False

    async def __call__(self, words: str, limit: int = 20) -> tuple[str, ...]:
        """Return the best paths for a query; () if a newer query has superseded it."""
        found = () if self._find_resources is None else self._find_resources(words, limit)
        return (*found, *await self._find_paths(words, limit - len(found)))

    async def _find_paths(self, words: str, limit: int) -> tuple[str, ...]:
        self._query_count += 1
        query_number = self._query_count
        words = words[:_MAX_QUERY_CHARS]
        if self._closed or limit < 1 or "\n" in words or "\0" in words:
            return ()
        if words.startswith(("/", "~/", "../", "./")):
            return await self._run_bounded(self._list_folder, words, limit)
        others = self._list_others()
        if not words.strip():
            tops = (await self.paths.get_index()).top_level
            return await self._run_bounded(self._suggest_recent, [*tops, *(f"{other.cwd}/" for other in others)], limit)
        hits: list[PathHit] = []
        for paths in (self.paths, *others):
            index = await paths.get_index()
            index.flush()
            search = self._searches.setdefault(paths.cwd, PathSearch())
            try:
                found = await search.find_best(
                    index.chunks, words, 3 * limit, lambda: query_number == self._query_count
                )
            except Superseded:
                return ()
            start = "" if paths is self.paths else f"{paths.cwd}/"
            hits += ((kind, length, f"{start}{path}") for kind, length, path in found)
        return await self._run_bounded(self._rank_hits, hits, limit)

    async def close(self) -> None:
        self._closed = True
        self._query_count += 1

    async def _run_bounded(self, work: "Callable[..., list[str]]", *args: object) -> tuple[str, ...]:
        """Run disk access in a thread, with a timeout for disks that do not answer."""
        try:
            async with asyncio.timeout(_STAT_BUDGET_S * 10):
                return tuple(await asyncio.to_thread(work, *args))
        except TimeoutError:
            return ()

    def _rank_hits(self, hits: "Sequence[PathHit]", limit: int) -> list[str]:
        """Sort by match quality, then files of the session, recently changed ones, and short paths first."""
        session_files = {path: place for place, path in enumerate(self._list_session_files())}
        start, now = time.monotonic(), time.time()
        ranked: list[tuple[int, int, int, int, str]] = []
        for kind, length, path in hits:
            age = (
                _get_age_bucket(Path(self._cwd, path), now)
                if time.monotonic() - start < _STAT_BUDGET_S
                else _UNKNOWN_AGE
            )
            if age is not None and _is_valid_text(path):
                ranked.append((kind, session_files.get(path, len(session_files)), age, length, path))
        return [path for *_, path in sorted(ranked)[:limit]]

    def _list_session_files(self) -> list[str]:
        """Return the files of the session below the working directory and in the other folders, newest first."""
        start = f"{os.path.realpath(self._cwd).rstrip('/')}/"
        places = (start, *(f"{other.cwd}/" for other in self._list_others()))
        files = sorted(self._recent(), key=lambda file: -file.cached_at)
        return [file.path.removeprefix(start) for file in files if file.path.startswith(places)]

    def _suggest_recent(self, tops: Sequence[str], limit: int) -> list[str]:
        used = [path for path in self._list_session_files()[:limit] if os.path.lexists(Path(self._cwd, path))]
        top = sorted(dict.fromkeys(tops), key=lambda path: (path.startswith("."), not path.endswith("/"), path.lower()))
        return [path for path in dict.fromkeys((*used, *top)) if _is_valid_text(path)][:limit]

    def _list_folder(self, words: str, limit: int) -> list[str]:
        """Return the entries of a folder given as an absolute path, from the home, or relative with `./` or `../`."""
        written, _, prefix = words.rpartition("/")
        home = self._env.get("HOME", "")
        folder = f"{home}{written[1:]}" if words.startswith("~/") else written or "/"
        try:
            with os.scandir(Path(self._cwd, folder)) as entries:
                found = [
                    f"{written}/{entry.name}{'/' if entry.is_dir() else ''}"
                    for _, entry in zip(range(_MAX_ENTRIES), entries, strict=False)
                    if entry.name.lower().startswith(prefix.lower()) and (prefix or not entry.name.startswith("."))
                ]
        except OSError:
            return []
        return [path for path in sorted(found) if _is_valid_text(path) and "\n" not in path][:limit]


def _get_age_bucket(path: Path, now: float) -> int | None:
    """Return 0 for a file changed within the hour, 1 within the day, 2 before; None if it is gone."""
    try:
        age = now - path.lstat().st_mtime
    except (OSError, ValueError):
        return None
    return 0 if age < _HOUR_S else 1 if age < _DAY_S else 2


def _is_valid_text(path: str) -> bool:
    """True if the path is valid UTF-8, so that it can be typed."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
