"""What changed, for people (a unified diff) and for the model (the lines around the change)."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

VIEW_CHARS = 60_000
_CONTEXT = 3
_COMPARED = 20_000

_Op = tuple[str, int, int, int, int]


class Diff(Struct, frozen=True):
    """A unified diff, the lines added and removed, and the new lines in and around the change from line `first` on."""

    text: str
    added: int
    removed: int
    first: int
    around: list[str]

    @property
    def counts(self) -> str:
        return f"+{self.added} -{self.removed}"


def compare(before: str, after: str, path: str) -> Diff:
    """Only what lies between the first and the last difference is looked at: a small edit of a large file is fast."""
    head, tail = _common_lines(before, after)
    lead, trail = _last_lines(before[:head]), _first_lines(before[len(before) - tail :])
    old = lead + lines_of(before[head : len(before) - tail]) + trail
    new = lead + lines_of(after[head : len(after) - tail]) + trail
    base = before.count("\n", 0, head) - len(lead)
    ops = [op for op in _opcodes(old, new, len(lead), len(trail)) if op[0] != "equal"]
    text = "".join(_render(old, new, ops, base, path))
    if len(text) > VIEW_CHARS:
        text = f"{text[:VIEW_CHARS]}\n... diff cut: {VIEW_CHARS} of {len(text)} characters shown\n"
    added, removed = sum(op[4] - op[3] for op in ops), sum(op[2] - op[1] for op in ops)
    return Diff(text, added, removed, base + 1, new)


def lines_of(text: str) -> list[str]:
    """The lines with their ends. Only a line feed ends a line, as in every other tool."""
    parts = [f"{part}\n" for part in text.split("\n")]
    parts[-1] = parts[-1][:-1]
    return parts if parts[-1] else parts[:-1]


def _common_lines(a: str, b: str) -> tuple[int, int]:
    """How many characters at the start and at the end are the same whole lines in both texts."""
    shorter = min(len(a), len(b))
    head = _longest(shorter, lambda low, high: a[low:high] == b[low:high])
    head = a.rfind("\n", 0, head) + 1
    room = shorter - head
    tail = _longest(room, lambda low, high: a[len(a) - high : len(a) - low] == b[len(b) - high : len(b) - low])
    line = a.find("\n", len(a) - tail)
    return head, (len(a) - line - 1 if tail and line >= 0 else 0)


def _longest(limit: int, same: Callable[[int, int], bool]) -> int:
    """The largest n up to `limit` for which the first n characters are the same, by halving."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _last_lines(text: str) -> list[str]:
    start = len(text)
    for _ in range(_CONTEXT):
        if start:
            start = text.rfind("\n", 0, start - 1) + 1
    return lines_of(text[start:])


def _first_lines(text: str) -> list[str]:
    end = 0
    for _ in range(_CONTEXT):
        end = text.find("\n", end) + 1 or len(text)
    return lines_of(text[:end])


def _opcodes(old: list[str], new: list[str], lead: int, trail: int) -> Sequence[_Op]:
    """How `old` becomes `new`. What is too large to compare is replaced as one block between the equal ends."""
    if len(old) + len(new) > _COMPARED:
        return [("replace", lead, len(old) - trail, lead, len(new) - trail)]
    import difflib

    return difflib.SequenceMatcher(None, old, new).get_opcodes()


def _render(old: list[str], new: list[str], ops: list[_Op], base: int, path: str) -> Iterator[str]:
    if not ops:
        return
    yield f"--- {path}\n+++ {path}\n"
    for group in _groups(ops):
        start, end = max(0, group[0][1] - _CONTEXT), min(len(old), group[-1][2] + _CONTEXT)
        new_start = group[0][3] - (group[0][1] - start)
        new_end = group[-1][4] + (end - group[-1][2])
        yield f"@@ -{_range(base + start, base + end)} +{_range(base + new_start, base + new_end)} @@\n"
        at = start
        for _, a, b, c, d in group:
            yield from _marked(" ", old[at:a])
            yield from _marked("-", old[a:b])
            yield from _marked("+", new[c:d])
            at = b
        yield from _marked(" ", old[at:end])


def _groups(ops: list[_Op]) -> Iterator[list[_Op]]:
    group: list[_Op] = []
    for op in ops:
        if group and op[1] - group[-1][2] > 2 * _CONTEXT:
            yield group
            group = []
        group.append(op)
    if group:
        yield group


def _range(start: int, end: int) -> str:
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _marked(sign: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        text = line.rstrip("\r\n")
        yield f"{sign}{text}\n" if line.endswith(("\n", "\r")) else f"{sign}{text}\n\\ No newline at end of file\n"
