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
    from odin.app.catalogue import Catalogue
    from odin.app.ranking import Hit, Search

FRESH_S = 10.0
"""How long what was found counts as what is there."""

_GRACE_S = 0.05
"""How long the first question waits for the whole project, and again for anything at all."""

_STAT_S = 0.1
_LISTED = 2000
_LONGEST = 200
_HOUR_S, _DAY_S = 3600.0, 86_400.0


class Finder:
    """`recent` are the files that the session knows."""

    def __init__(self, cwd: str, *, recent: Callable[[], Sequence[CachedFile]], env: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._recent = recent
        self._env = env
        self._asked = 0
        self._catalogue: Catalogue | None = None
        self._finished = 0.0
        self._walking: asyncio.Task[None] | None = None
        self._search: Search | None = None
        self._closed = False

    async def __call__(self, words: str, limit: int = 20) -> tuple[str, ...]:
        """A question that a newer one has overtaken gets no answer."""
        self._asked += 1
        mine = self._asked
        words = words[:_LONGEST]
        if self._closed or limit < 1 or "\n" in words or "\0" in words:
            return ()
        if words.startswith(("/", "~/", "../", "./")):
            return await self._bounded(self._listed, words, limit)
        catalogue = await self._known()
        if not words.strip():
            return await self._bounded(self._lately, catalogue.tops, limit)
        from odin.app.ranking import Search, Superseded

        self._search = self._search or Search()
        catalogue.flush()
        try:
            hits = await self._search.best(catalogue.chunks, words, 3 * limit, lambda: mine == self._asked)
        except Superseded:
            return ()
        return await self._bounded(self._sorted, hits, limit)

    @property
    def walking(self) -> bool:
        """Whether the project is being looked through."""
        return self._walking is not None and not self._walking.done()

    async def close(self) -> None:
        self._closed = True
        self._asked += 1
        if self._walking is not None and self.walking:
            self._walking.cancel()
            await asyncio.wait([self._walking])

    # --- what there is ---

    async def _known(self) -> "Catalogue":
        from odin.app.catalogue import Catalogue

        if not self.walking and (self._catalogue is None or time.monotonic() - self._finished > FRESH_S):
            coming = Catalogue()
            self._catalogue = self._catalogue or coming
            self._walking = asyncio.create_task(self._walk(coming))
        for _ in range(2):
            if self._walking is not None and self._catalogue is not None and not self._catalogue.count:
                await asyncio.wait([self._walking], timeout=_GRACE_S)
        return self._catalogue or Catalogue()

    async def _walk(self, coming: "Catalogue") -> None:
        from odin.app.catalogue import fill

        await fill(coming, self._cwd, self._env)
        self._catalogue = coming
        self._finished = time.monotonic()

    # --- in which order ---

    async def _bounded(self, work: "Callable[..., list[str]]", *args: object) -> tuple[str, ...]:
        """The disk is asked in a thread; one that does not answer keeps nobody waiting."""
        try:
            async with asyncio.timeout(_STAT_S * 10):
                return tuple(await asyncio.to_thread(work, *args))
        except TimeoutError:
            return ()

    def _sorted(self, hits: "Sequence[Hit]", limit: int) -> list[str]:
        """As well as they match; among equals what the session knows, what changed lately, and what is short."""
        known = {path: place for place, path in enumerate(self._used())}
        began, now = time.monotonic(), time.time()
        ranked: list[tuple[int, int, int, int, str]] = []
        for kind, length, path in hits:
            age = _age(Path(self._cwd, path), now) if time.monotonic() - began < _STAT_S else _OLD
            if age is not None and _speakable(path):
                ranked.append((kind, known.get(path, len(known)), age, length, path))
        return [path for *_, path in sorted(ranked)[:limit]]

    def _used(self) -> list[str]:
        """The files of the session inside the folder, the newest first."""
        start = f"{os.path.realpath(self._cwd).rstrip('/')}/"
        files = sorted(self._recent(), key=lambda file: -file.cached_at)
        return [file.path[len(start) :] for file in files if file.path.startswith(start)]

    def _lately(self, tops: Sequence[str], limit: int) -> list[str]:
        used = [path for path in self._used()[:limit] if os.path.lexists(Path(self._cwd, path))]
        top = sorted(dict.fromkeys(tops), key=lambda path: (path.startswith("."), not path.endswith("/"), path.lower()))
        return [path for path in dict.fromkeys((*used, *top)) if _speakable(path)][:limit]

    def _listed(self, words: str, limit: int) -> list[str]:
        """What lies in a folder that is named from the root, the home, or from here."""
        written, _, begun = words.rpartition("/")
        home = self._env.get("HOME", "")
        folder = f"{home}{written[1:]}" if words.startswith("~/") else written or "/"
        try:
            with os.scandir(Path(self._cwd, folder)) as entries:
                found = [
                    f"{written}/{entry.name}{'/' if entry.is_dir() else ''}"
                    for _, entry in zip(range(_LISTED), entries, strict=False)
                    if entry.name.lower().startswith(begun.lower()) and (begun or not entry.name.startswith("."))
                ]
        except OSError:
            return []
        return [path for path in sorted(found) if _speakable(path) and "\n" not in path][:limit]


_OLD = 3


def _age(path: Path, now: float) -> int | None:
    """In steps: this hour, this day, before. None when it is gone."""
    try:
        age = now - path.lstat().st_mtime
    except (OSError, ValueError):
        return None
    return 0 if age < _HOUR_S else 1 if age < _DAY_S else 2


def _speakable(path: str) -> bool:
    """Whether the name is text at all: what is not cannot be typed."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
