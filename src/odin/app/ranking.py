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

SLICE_S = 0.004
"""How long others wait at most, or little more."""

_ENOUGH = 20_000
"""Matches of one kind after which the search goes no further: such letters mean nothing in particular."""

_NARROW_CHARS = 8_000_000

Hit = tuple[int, int, str]
"""How well it matches, how long it is, and the path: the smaller the better."""


Both = tuple[str, str]
"""A text, and the same in small letters."""


class Superseded(Exception):
    """Somebody asked for something else meanwhile."""


class Search:
    """One question after the other about texts that only become more. `wanted` says whether the answer is still."""

    def __init__(self) -> None:
        self._letters = ""
        self._searched = 0
        self._narrow: list[Both] | None = None
        self._of: Sequence[str] = ()
        self._low: list[Both] = []
        self._slice = 0.0

    async def best(self, chunks: Sequence[str], words: str, count: int, wanted: Callable[[], bool]) -> list[Hit]:
        """At most `count`, the best first. Raises Superseded."""
        query = folded(words.strip())
        letters = "".join(query.split())
        self._slice = time.perf_counter()
        texts = await self._texts(chunks, letters, wanted)
        found: dict[str, Hit] = {}
        for kind in (_prefixes, _parts):
            await self._collect(texts, lambda text, low, kind=kind: kind(text, low, query), found, wanted)
            if len(found) >= count:
                return heapq.nsmallest(count, found.values())
        pattern = _in_order(letters)
        narrow: list[Both] = []
        whole = await self._collect(
            texts, lambda text, low: _scattered(text, low, pattern, query), found, wanted, narrow
        )
        if whole:
            self._letters, self._searched, self._narrow = letters, len(self._low), narrow
        return heapq.nsmallest(count, found.values())

    async def _texts(self, chunks: Sequence[str], letters: str, wanted: Callable[[], bool]) -> list[Both]:
        """What has to be looked through: all of it, or only what fitted the beginning of these letters."""
        if self._of is not chunks:
            self._of, self._low, self._narrow = chunks, [], None
        while len(self._low) < len(chunks):
            text = chunks[len(self._low)]
            self._low.append((text, folded(text)))
            await self._breathe(wanted)
        if self._narrow is None or not letters.startswith(self._letters):
            return list(self._low)
        return [*self._narrow, *self._low[self._searched :]]

    async def _collect(
        self,
        texts: Sequence[Both],
        kind: Callable[[str, str], Iterator[Hit]],
        found: dict[str, Hit],
        wanted: Callable[[], bool],
        narrow: list[Both] | None = None,
    ) -> bool:
        """Adds what is new to `found`, and to `narrow` the lines. False when there is far more than was looked at."""
        matches = chars = 0
        for text, low in texts:
            lines: list[str] = []
            for hit in kind(text, low):
                matches += 1
                lines.append(hit[2])
                if hit[2] not in found and len(found) < 2 * _ENOUGH:
                    found[hit[2]] = hit
            if narrow is not None and lines:
                kept = "\n" + "\n".join(lines) + "\n"
                narrow.append((kept, folded(kept)))
                chars += len(kept)
            if matches > _ENOUGH or chars > _NARROW_CHARS:
                return False
            await self._breathe(wanted)
        return True

    async def _breathe(self, wanted: Callable[[], bool]) -> None:
        if time.perf_counter() - self._slice > SLICE_S:
            await asyncio.sleep(0)
            self._slice = time.perf_counter()
        if not wanted():
            raise Superseded


def folded(text: str) -> str:
    """In small letters, each in its place."""
    low = text.lower()
    if len(low) == len(text):
        return text if low == text else low
    return "".join(small if len(small := char.lower()) == 1 else char for char in text)


def _prefixes(text: str, low: str, query: str) -> Iterator[Hit]:
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


def _parts(text: str, low: str, query: str) -> Iterator[Hit]:
    """Lines that hold the query somewhere."""
    at = low.find(query)
    while at >= 0:
        end = low.find("\n", at)
        start = low.rfind("\n", 0, at) + 1
        name = low.rfind("/", start, end - 1) + 1 or start
        kind = NAME if low.find(query, max(name, start), end) >= 0 else PATH
        yield kind, end - start, text[start:end]
        at = low.find(query, end)


def _in_order(letters: str) -> "re.Pattern[str]":
    """A line that has these letters one after the other. Nothing is tried twice, so no line can take long."""
    steps = (f"[^\\n{re.escape(letter)}]*+{re.escape(letter)}" for letter in letters)
    return re.compile("\\n" + "".join(steps))


def _scattered(text: str, low: str, pattern: "re.Pattern[str]", query: str) -> Iterator[Hit]:
    for match in pattern.finditer(low):
        start = match.start() + 1
        end = low.find("\n", match.end())
        name = low.rfind("/", start, end - 1)
        in_name = name > start and pattern.match("\n" + low[name + 1 : end]) is not None
        yield LETTERS if in_name else SCATTERED, end - start, text[start:end]
