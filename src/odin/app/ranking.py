"""Which paths some letters mean: the name, its beginning, a part of it or of the path, or the letters in this order.

A search goes through large texts with the fastest means there are and lets others run every few milliseconds. What it
finds for some letters is kept, because the next key adds one to them.
"""

import asyncio
import heapq
import re
import time
from collections.abc import Callable, Iterator, Sequence

EXACT, PREFIX, NAME, PATH, LETTERS, SCATTERED = range(6)

TIME_SLICE_S = 0.004
"""How long others wait at most, or little more."""

_MAX_MATCHES = 20_000
"""Matches of one kind after which the search goes no further: such letters mean nothing in particular."""

_MAX_NARROW_CHARS = 8_000_000

PathHit = tuple[int, int, str]
"""How well it matches, how long it is, and the path: the smaller the better."""


TextPair = tuple[str, str]
"""A text, and the same in small letters."""


class Superseded(Exception):
    """Somebody asked for something else meanwhile."""


class PathSearch:
    """One question after the other about texts that only become more. `wanted` says whether the answer is still."""

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
        """At most `count`, the best first. Raises Superseded."""
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
        whole = await self._collect(
            texts, lambda text, low: _match_scattered(text, low, pattern, query), found, is_current, narrow
        )
        if whole:
            self._letters, self._searched, self._narrowed = letters, len(self._folded), narrow
        return heapq.nsmallest(count, found.values())

    async def _select_texts(
        self, chunks: Sequence[str], letters: str, is_current: Callable[[], bool]
    ) -> list[TextPair]:
        """What has to be looked through: all of it, or only what fitted the beginning of these letters."""
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
        """Adds what is new to `found`, and to `narrow` the lines. False when there is far more than was looked at."""
        matches = chars = 0
        for text, low in texts:
            lines: list[str] = []
            for hit in kind(text, low):
                matches += 1
                lines.append(hit[2])
                if hit[2] not in found and len(found) < 2 * _MAX_MATCHES:
                    found[hit[2]] = hit
            if narrow is not None and lines:
                kept = "\n" + "\n".join(lines) + "\n"
                narrow.append((kept, fold_case(kept)))
                chars += len(kept)
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
    """In small letters, each in its place."""
    low = text.lower()
    if len(low) == len(text):
        return text if low == text else low
    return "".join(small if len(small := char.lower()) == 1 else char for char in text)


def _match_prefixes(text: str, low: str, query: str) -> Iterator[PathHit]:
    """Lines whose last name begins with the query, or is it."""
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
    """Lines that hold the query somewhere."""
    at = low.find(query)
    while at >= 0:
        end = low.find("\n", at)
        start = low.rfind("\n", 0, at) + 1
        name = low.rfind("/", start, end - 1) + 1 or start
        kind = NAME if low.find(query, max(name, start), end) >= 0 else PATH
        yield kind, end - start, text[start:end]
        at = low.find(query, end)


def _compile_in_order(letters: str) -> "re.Pattern[str]":
    """A line that has these letters one after the other. Nothing is tried twice, so no line can take long."""
    steps = (f"[^\\n{re.escape(letter)}]*+{re.escape(letter)}" for letter in letters)
    return re.compile("\\n" + "".join(steps))


def _match_scattered(text: str, low: str, pattern: "re.Pattern[str]", query: str) -> Iterator[PathHit]:
    for match in pattern.finditer(low):
        start = match.start() + 1
        end = low.find("\n", match.end())
        name = low.rfind("/", start, end - 1)
        in_name = name > start and pattern.match("\n" + low[name + 1 : end]) is not None
        yield LETTERS if in_name else SCATTERED, end - start, text[start:end]
