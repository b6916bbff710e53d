"""What stands in a file where a text was expected: the block of lines most like it, found in bounded time."""

import re
from collections import Counter, defaultdict

from msgspec import Struct

_MAX_WANTED_LINES = 60
_MAX_LINE_CHARS = 400
_MAX_COMMON = 50
"""A line or word that occurs more often than this says nothing about the place."""
_MAX_SCANNED_CHARS = 2_000_000
_MAX_CHECKED = 8
_MIN_LIKENESS = 0.5

_WORD = re.compile(r"\w{2,}")


class SimilarBlock(Struct, frozen=True):
    """The lines from number `first` (counted from 1) on. `same`: they differ from what was wanted by spacing only."""

    first: int
    lines: list[str]
    is_same_but_spacing: bool


def find_nearest(text: str, wanted: str) -> SimilarBlock | None:
    """The block of `text` most like `wanted`, or None when nothing there is like it."""
    want = [line.strip()[:_MAX_LINE_CHARS] for line in wanted.split("\n")[:_MAX_WANTED_LINES]]
    lead = next((number for number, line in enumerate(want) if line), len(want))
    want = want[lead:]
    while want and not want[-1]:
        want.pop()
    if not want:
        return None
    lines = text[:_MAX_SCANNED_CHARS].removesuffix("\n").split("\n")
    have = [line.strip()[:_MAX_LINE_CHARS] for line in lines]
    starts = _rank_by_lines(have, want) or _rank_by_words(have, want)
    if not starts:
        return None
    alike, start = max((_score_likeness(have, start, want), -start) for start in starts[:_MAX_CHECKED])
    start = -start
    if alike < _MIN_LIKENESS:
        return None
    first = max(0, start - lead)
    block = have[start : start + len(want)]
    return SimilarBlock(
        first + 1,
        lines[first : start + len(want) + 1],
        [_strip_spaces(line) for line in block] == _strip_all_spaces(want),
    )


def _rank_by_lines(have: list[str], want: list[str]) -> list[int]:
    """Where the block would begin, going by lines that are the same but for the spaces around them; best first."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    wanted = {line for line in want if line}
    for number, line in enumerate(have):
        if line in wanted:
            places[line].append(number)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(want):
        if 0 < len(places.get(line, ())) <= _MAX_COMMON:
            for number in places[line]:
                votes[max(0, number - offset)] += 1 + min(len(line), 40)
    return [start for start, _ in votes.most_common(_MAX_CHECKED)]


def _rank_by_words(have: list[str], want: list[str]) -> list[int]:
    """The same, going by the words they have in common. Rare words weigh more."""
    offsets: dict[str, int] = {}
    for offset, line in enumerate(want):
        for word in _WORD.findall(line):
            offsets.setdefault(word, offset)
    places: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(have):
        for word in set(_WORD.findall(line)) & offsets.keys():
            places[word].append(number)
    votes: Counter[int] = Counter()
    for word, numbers in places.items():
        for number in numbers[: _MAX_COMMON * 4]:
            votes[max(0, number - offsets[word])] += max(1, _MAX_COMMON // len(numbers))
    return [start for start, _ in votes.most_common(_MAX_CHECKED)]


def _score_likeness(have: list[str], start: int, want: list[str]) -> float:
    from difflib import SequenceMatcher

    block = have[start : start + len(want)]
    total = sum(len(line) + 1 for line in want)
    score = 0.0
    for line, other in zip(want, block, strict=False):
        ratio = 1.0 if line == other else SequenceMatcher(None, line, other, autojunk=False).ratio()
        score += ratio * (len(line) + 1)
    return score / total


def _strip_spaces(line: str) -> str:
    return "".join(line.split())


def _strip_all_spaces(lines: list[str]) -> list[str]:
    return [_strip_spaces(line) for line in lines]


def measure_common_prefix(text: str, wanted: str) -> int:
    """How many characters at the start of `wanted` stand somewhere in `text`."""
    low, high = 0, min(len(wanted), 4000)
    while low < high:
        middle = (low + high + 1) // 2
        if wanted[:middle] in text:
            low = middle
        else:
            high = middle - 1
    return low
