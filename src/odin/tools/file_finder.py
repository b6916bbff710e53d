"""Files by a few letters of their path, for front ends that complete what a person types.

Nothing is looked at before somebody asks. Then the project is looked through in the background, and whoever asks is
answered from what is known by then. What is older than a few seconds is looked up again, also in the background.
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
"""How long what was found counts as what is there."""

_GRACE_S = 0.05
"""How long the first question waits for the whole project, and again for anything at all."""

_STAT_BUDGET_S = 0.1
_MAX_ENTRIES = 2000
_MAX_QUERY_CHARS = 200
_HOUR_S, _DAY_S = 3600.0, 86_400.0


class FileFinder:
    """`recent` are the files that the session knows."""

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
        """A question that a newer one has overtaken gets no answer."""
        self._query_count += 1
        mine = self._query_count
        words = words[:_MAX_QUERY_CHARS]
        if self._closed or limit < 1 or "\n" in words or "\0" in words:
            return ()
        if words.startswith(("/", "~/", "../", "./")):
            return await self._run_bounded(self._list_folder, words, limit)
        catalogue = await self._get_index()
        if not words.strip():
            return await self._run_bounded(self._suggest_recent, catalogue.top_level, limit)
        from odin.tools.path_index import PathSearch, Superseded

        self._search = self._search or PathSearch()
        catalogue.flush()
        try:
            hits = await self._search.find_best(catalogue.chunks, words, 3 * limit, lambda: mine == self._query_count)
        except Superseded:
            return ()
        return await self._run_bounded(self._rank_hits, hits, limit)

    @property
    def is_walking(self) -> bool:
        """Whether the project is being looked through."""
        return self._walk_task is not None and not self._walk_task.done()

    async def close(self) -> None:
        self._closed = True
        self._query_count += 1
        if self._walk_task is not None and self.is_walking:
            self._walk_task.cancel()
            await asyncio.wait([self._walk_task])

    # --- what there is ---

    async def _get_index(self) -> "PathIndex":
        from odin.tools.path_index import PathIndex

        if not self.is_walking and (self._index is None or time.monotonic() - self._finished_at > FRESH_S):
            coming = PathIndex()
            self._index = self._index or coming
            self._walk_task = asyncio.create_task(self._build_index(coming))
        for _ in range(2):
            if self._walk_task is not None and self._index is not None and not self._index.count:
                await asyncio.wait([self._walk_task], timeout=_GRACE_S)
        return self._index or PathIndex()

    async def _build_index(self, coming: "PathIndex") -> None:
        from odin.tools.path_index import fill_index

        await fill_index(coming, self._cwd, self._env)
        self._index = coming
        self._finished_at = time.monotonic()

    # --- in which order ---

    async def _run_bounded(self, work: "Callable[..., list[str]]", *args: object) -> tuple[str, ...]:
        """The disk is asked in a thread; one that does not answer keeps nobody waiting."""
        try:
            async with asyncio.timeout(_STAT_BUDGET_S * 10):
                return tuple(await asyncio.to_thread(work, *args))
        except TimeoutError:
            return ()

    def _rank_hits(self, hits: "Sequence[PathHit]", limit: int) -> list[str]:
        """As well as they match; among equals what the session knows, what changed lately, and what is short."""
        known = {path: place for place, path in enumerate(self._list_session_files())}
        began, now = time.monotonic(), time.time()
        ranked: list[tuple[int, int, int, int, str]] = []
        for kind, length, path in hits:
            age = _age_of(Path(self._cwd, path), now) if time.monotonic() - began < _STAT_BUDGET_S else _UNKNOWN_AGE
            if age is not None and _is_valid_text(path):
                ranked.append((kind, known.get(path, len(known)), age, length, path))
        return [path for *_, path in sorted(ranked)[:limit]]

    def _list_session_files(self) -> list[str]:
        """The files of the session inside the folder, the newest first."""
        start = f"{os.path.realpath(self._cwd).rstrip('/')}/"
        files = sorted(self._recent(), key=lambda file: -file.cached_at)
        return [file.path[len(start) :] for file in files if file.path.startswith(start)]

    def _suggest_recent(self, tops: Sequence[str], limit: int) -> list[str]:
        used = [path for path in self._list_session_files()[:limit] if os.path.lexists(Path(self._cwd, path))]
        top = sorted(dict.fromkeys(tops), key=lambda path: (path.startswith("."), not path.endswith("/"), path.lower()))
        return [path for path in dict.fromkeys((*used, *top)) if _is_valid_text(path)][:limit]

    def _list_folder(self, words: str, limit: int) -> list[str]:
        """What lies in a folder that is named from the root, the home, or from here."""
        written, _, begun = words.rpartition("/")
        home = self._env.get("HOME", "")
        folder = f"{home}{written[1:]}" if words.startswith("~/") else written or "/"
        try:
            with os.scandir(Path(self._cwd, folder)) as entries:
                found = [
                    f"{written}/{entry.name}{'/' if entry.is_dir() else ''}"
                    for _, entry in zip(range(_MAX_ENTRIES), entries, strict=False)
                    if entry.name.lower().startswith(begun.lower()) and (begun or not entry.name.startswith("."))
                ]
        except OSError:
            return []
        return [path for path in sorted(found) if _is_valid_text(path) and "\n" not in path][:limit]


_UNKNOWN_AGE = 3


def _age_of(path: Path, now: float) -> int | None:
    """In steps: this hour, this day, before. None when it is gone."""
    try:
        age = now - path.lstat().st_mtime
    except (OSError, ValueError):
        return None
    return 0 if age < _HOUR_S else 1 if age < _DAY_S else 2


def _is_valid_text(path: str) -> bool:
    """Whether the name is text at all: what is not cannot be typed."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
