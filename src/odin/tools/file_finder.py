"""Finds files by a few letters of their path, for `@` completion in the front ends.

The project is walked in the background after the first query, and queries are answered from the paths known so far. An
index older than a few seconds is rebuilt, also in the background.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odin.core.event import CachedFile

if TYPE_CHECKING:
    from odin.tools.path_index import PathHit, PathIndex, PathSearch

FRESH_S = 10.0
"""Seconds after which the index is rebuilt."""

_GRACE_S = 0.05
"""Seconds the first query waits for the first paths, twice at most."""

_STAT_BUDGET_S = 0.1
_MAX_ENTRIES = 2000
_MAX_QUERY_CHARS = 200
_HOUR_S, _DAY_S = 3600.0, 86_400.0

_UNKNOWN_AGE = 3


class FileFinder:
    """Answers path queries for one working directory. `recent` returns the files of the session."""

    def __init__(self, cwd: str, *, recent: Callable[[], Sequence[CachedFile]], env: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._recent = recent
        self._env = env
        self._query_count = 0
        self._index: PathIndex | None = None
        self._finished_at = 0.0
        self._walk_task: asyncio.Task[None] | None = None
        self._search: PathSearch | None = None
        self._closed = False

    async def __call__(self, words: str, limit: int = 20) -> tuple[str, ...]:
        """Return the best paths for a query; () if a newer query has superseded it."""
        self._query_count += 1
        query_number = self._query_count
        words = words[:_MAX_QUERY_CHARS]
        if self._closed or limit < 1 or "\n" in words or "\0" in words:
            return ()
        if words.startswith(("/", "~/", "../", "./")):
            return await self._run_bounded(self._list_folder, words, limit)
        index = await self._get_index()
        if not words.strip():
            return await self._run_bounded(self._suggest_recent, index.top_level, limit)
        from odin.tools.path_index import PathSearch, Superseded

        self._search = self._search or PathSearch()
        index.flush()
        try:
            hits = await self._search.find_best(
                index.chunks, words, 3 * limit, lambda: query_number == self._query_count
            )
        except Superseded:
            return ()
        return await self._run_bounded(self._rank_hits, hits, limit)

    @property
    def is_walking(self) -> bool:
        """True while the project is being walked."""
        return self._walk_task is not None and not self._walk_task.done()

    async def close(self) -> None:
        self._closed = True
        self._query_count += 1
        if self._walk_task is not None and self.is_walking:
            self._walk_task.cancel()
            await asyncio.wait([self._walk_task])

    async def _get_index(self) -> "PathIndex":
        from odin.tools.path_index import PathIndex

        if not self.is_walking and (self._index is None or time.monotonic() - self._finished_at > FRESH_S):
            new_index = PathIndex()
            self._index = self._index or new_index
            self._walk_task = asyncio.create_task(self._build_index(new_index))
        for _ in range(2):
            if self._walk_task is not None and self._index is not None and not self._index.count:
                await asyncio.wait([self._walk_task], timeout=_GRACE_S)
        return self._index or PathIndex()

    async def _build_index(self, new_index: "PathIndex") -> None:
        from odin.tools.path_index import fill_index

        await fill_index(new_index, self._cwd, self._env)
        self._index = new_index
        self._finished_at = time.monotonic()

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
            age = _age_of(Path(self._cwd, path), now) if time.monotonic() - start < _STAT_BUDGET_S else _UNKNOWN_AGE
            if age is not None and _is_valid_text(path):
                ranked.append((kind, session_files.get(path, len(session_files)), age, length, path))
        return [path for *_, path in sorted(ranked)[:limit]]

    def _list_session_files(self) -> list[str]:
        """Return the files of the session below the working directory, newest first."""
        start = f"{os.path.realpath(self._cwd).rstrip('/')}/"
        files = sorted(self._recent(), key=lambda file: -file.cached_at)
        return [file.path[len(start) :] for file in files if file.path.startswith(start)]

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


def _age_of(path: Path, now: float) -> int | None:
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
