"""What changed, for people (a unified diff) and for the model (the lines around the change)."""

from collections.abc import Iterator

from msgspec import Struct

VIEW_CHARS = 60_000
_CONTEXT = 3
_COMPARED = 20_000

_Op = tuple[str, int, int, int, int]


class Diff(Struct, frozen=True):
    """A unified diff, the number of lines added and removed, and where in the new text the change lies."""

    text: str
    added: int
    removed: int
    first: int
    last: int

    @property
    def counts(self) -> str:
        return f"+{self.added} -{self.removed}"


def compare(before: str, after: str, path: str) -> Diff:
    old, new = lines_of(before), lines_of(after)
    ops = [op for op in _opcodes(old, new) if op[0] != "equal"]
    added = sum(op[4] - op[3] for op in ops)
    removed = sum(op[2] - op[1] for op in ops)
    text = "".join(_render(old, new, ops, path))
    if len(text) > VIEW_CHARS:
        text = f"{text[:VIEW_CHARS]}\n... diff cut: {VIEW_CHARS} of {len(text)} characters shown\n"
    first = min((op[3] for op in ops), default=0) + 1
    return Diff(text, added, removed, first, max((op[4] for op in ops), default=0))


def lines_of(text: str) -> list[str]:
    """The lines with their ends. Only a line feed ends a line, as in every other tool."""
    parts = [f"{part}\n" for part in text.split("\n")]
    parts[-1] = parts[-1][:-1]
    return parts if parts[-1] else parts[:-1]


def _opcodes(old: list[str], new: list[str]) -> list[_Op]:
    """How `old` becomes `new`. Equal ends are set aside; a middle too large to compare is replaced as one block."""
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if not left and not right:
        return []
    if not left or not right or len(left) + len(right) > _COMPARED:
        tag = "replace" if left and right else ("delete" if left else "insert")
        return [(tag, head, head + len(left), head, head + len(right))]
    import difflib

    inner = difflib.SequenceMatcher(None, left, right).get_opcodes()
    return [(tag, head + a, head + b, head + c, head + d) for tag, a, b, c, d in inner]


def _render(old: list[str], new: list[str], ops: list[_Op], path: str) -> Iterator[str]:
    if not ops:
        return
    yield f"--- {path}\n+++ {path}\n"
    for group in _groups(ops):
        start, end = max(0, group[0][1] - _CONTEXT), min(len(old), group[-1][2] + _CONTEXT)
        new_start = group[0][3] - (group[0][1] - start)
        new_end = group[-1][4] + (end - group[-1][2])
        yield f"@@ -{_range(start, end)} +{_range(new_start, new_end)} @@\n"
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
