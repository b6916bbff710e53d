"""Line diff of two texts: a unified diff for people and the changed lines with context for the model."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct

VIEW_CHARS = 60_000
_CONTEXT = 3
_MAX_COMPARED = 250_000

_Op = tuple[str, int, int, int, int]


class Diff(Struct, frozen=True):
    """A unified diff, the counts of lines added and removed, and the new lines around the change from line `first`."""

    text: str
    added: int
    removed: int
    first: int
    around: list[str]

    @property
    def counts(self) -> str:
        return f"+{self.added} -{self.removed}"


def compare(before: str, after: str, path: str) -> Diff:
    """Diff two texts. Only the part between the first and last difference is compared, so small edits are fast."""
    head, tail = _measure_common_lines(before, after)
    lead, trail = _take_last_lines(before[:head]), _take_first_lines(before[len(before) - tail :])
    old = lead + split_lines(before[head : len(before) - tail]) + trail
    new = lead + split_lines(after[head : len(after) - tail]) + trail
    base = before.count("\n", 0, head) - len(lead)
    ops = _find_changes(old, new)
    text = "".join(_render_hunks(old, new, ops, base, path))
    if len(text) > VIEW_CHARS:
        text = f"{text[:VIEW_CHARS]}\n... diff cut: {VIEW_CHARS} of {len(text)} characters shown\n"
    added, removed = sum(op[4] - op[3] for op in ops), sum(op[2] - op[1] for op in ops)
    return Diff(text, added, removed, base + 1, new)


def split_lines(text: str) -> list[str]:
    """Split into lines with their line ends. Only LF ends a line, as in all tools."""
    parts = [f"{part}\n" for part in text.split("\n")]
    parts[-1] = parts[-1][:-1]
    return parts if parts[-1] else parts[:-1]


def _measure_common_lines(a: str, b: str) -> tuple[int, int]:
    """Return how many characters at the start and the end are equal in both texts, in whole lines."""
    shorter = min(len(a), len(b))
    head = _find_longest(shorter, lambda low, high: a[low:high] == b[low:high])
    head = a.rfind("\n", 0, head) + 1
    room = shorter - head
    tail = _find_longest(room, lambda low, high: a[len(a) - high : len(a) - low] == b[len(b) - high : len(b) - low])
    line = a.find("\n", len(a) - tail)
    return head, (len(a) - line - 1 if tail and line >= 0 else 0)


def _find_longest(limit: int, same: Callable[[int, int], bool]) -> int:
    """Return the largest n up to `limit` for which `same` holds, by bisection."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _take_last_lines(text: str) -> list[str]:
    start = len(text)
    for _ in range(_CONTEXT):
        if start:
            start = text.rfind("\n", 0, start - 1) + 1
    return split_lines(text[start:])


def _take_first_lines(text: str) -> list[str]:
    end = 0
    for _ in range(_CONTEXT):
        end = text.find("\n", end) + 1 or len(text)
    return split_lines(text[:end])


def _find_changes(old: list[str], new: list[str]) -> list[_Op]:
    """Return the differing ranges. Lines unique in both texts serve as anchors (patience diff), so the work does not
    grow quadratically; the ranges between anchors are compared in full unless they are very long."""
    ops: list[_Op] = []
    i = j = 0
    for a, b in [*_find_anchors(old, new), (len(old), len(new))]:
        ops += _compare_between(old, new, (i, a), (j, b))
        i, j = a + 1, b + 1
    return ops


def _find_anchors(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Return the longest increasing sequence of pairs of lines that occur once in each text."""
    counts = Counter(old)
    places = {line: number for number, line in enumerate(old) if counts[line] == 1}
    counts = Counter(new)
    pairs = [(places[line], number) for number, line in enumerate(new) if counts[line] == 1 and line in places]
    piles: list[int] = []
    tops: list[int] = []
    under: list[int] = []
    for at, (place, _) in enumerate(pairs):
        pile = bisect_left(piles, place)
        under.append(tops[pile - 1] if pile else -1)
        piles[pile : pile + 1] = [place]
        tops[pile : pile + 1] = [at]
    row: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        row.append(pairs[at])
        at = under[at]
    return row[::-1]


def _compare_between(
    old: list[str], new: list[str], old_range: tuple[int, int], new_range: tuple[int, int]
) -> list[_Op]:
    (i, a), (j, b) = old_range, new_range
    while i < a and j < b and old[i] == new[j]:
        i, j = i + 1, j + 1
    while i < a and j < b and old[a - 1] == new[b - 1]:
        a, b = a - 1, b - 1
    if i == a and j == b:
        return []
    if i == a or j == b or (a - i) * (b - j) > _MAX_COMPARED:
        return [("replace", i, a, j, b)]
    import difflib

    opcodes = difflib.SequenceMatcher(None, old[i:a], new[j:b], autojunk=False).get_opcodes()
    return [(tag, i + op[0], i + op[1], j + op[2], j + op[3]) for tag, *op in opcodes if tag != "equal"]


def _render_hunks(old: list[str], new: list[str], ops: list[_Op], base: int, path: str) -> Iterator[str]:
    if not ops:
        return
    yield f"--- {path}\n+++ {path}\n"
    for group in _group_ops(ops):
        start, end = max(0, group[0][1] - _CONTEXT), min(len(old), group[-1][2] + _CONTEXT)
        new_start = group[0][3] - (group[0][1] - start)
        new_end = group[-1][4] + (end - group[-1][2])
        yield f"@@ -{_format_range(base + start, base + end)} +{_format_range(base + new_start, base + new_end)} @@\n"
        at = start
        for _, a, b, c, d in group:
            yield from _mark_lines(" ", old[at:a])
            yield from _mark_lines("-", old[a:b])
            yield from _mark_lines("+", new[c:d])
            at = b
        yield from _mark_lines(" ", old[at:end])


def _group_ops(ops: list[_Op]) -> Iterator[list[_Op]]:
    group: list[_Op] = []
    for op in ops:
        if group and op[1] - group[-1][2] > 2 * _CONTEXT:
            yield group
            group = []
        group.append(op)
    if group:
        yield group


def _format_range(start: int, end: int) -> str:
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _mark_lines(sign: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        text = line.rstrip("\r\n")
        yield f"{sign}{text}\n" if line.endswith(("\n", "\r")) else f"{sign}{text}\n\\ No newline at end of file\n"
