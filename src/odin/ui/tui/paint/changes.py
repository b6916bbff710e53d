"""Reads a unified diff: which lines went, which came, and which words of them."""

import re
from dataclasses import dataclass, field
from typing import Literal

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_WORD = re.compile(r"\w+|\s+|.", re.DOTALL)
_MAX_COMPARED = 400
"""Longer lines are not compared word by word."""

_MIN_RATIO = 0.5
_MAX_CANDIDATES = 6
"""Lines that are looked at to find the one that a line became."""

Sign = Literal[" ", "-", "+"]
Span = tuple[int, int]


@dataclass(slots=True)
class DiffRow:
    """One line of a hunk with its numbers, 0 where it is not, and the places of its words that changed."""

    sign: Sign
    text: str
    old: int = 0
    new: int = 0
    words: list[Span] = field(default_factory=list[Span])


@dataclass(slots=True)
class DiffHunk:
    rows: list[DiffRow]
    skipped: int = 0
    """Lines between the hunk before, or the beginning of the file, and this one."""


@dataclass(slots=True)
class FileDiff:
    path: str
    hunks: list[DiffHunk]
    trailer: str = ""
    """What follows the diff: that it was cut."""

    @property
    def row_count(self) -> int:
        return sum(len(hunk.rows) for hunk in self.hunks)

    @property
    def added_count(self) -> int:
        return sum(row.sign == "+" for hunk in self.hunks for row in hunk.rows)

    @property
    def removed_count(self) -> int:
        return sum(row.sign == "-" for hunk in self.hunks for row in hunk.rows)


def is_diff(text: str) -> bool:
    return text.startswith("--- ") and "\n@@ -" in text[:4000]


def parse_diff(text: str) -> list[FileDiff]:
    """The files of a diff. What belongs to none of its hunks is what is said at its end."""
    reader = _DiffParser()
    for line in text.rstrip("\n").split("\n"):
        reader.read(line)
    for changes in reader.files:
        for hunk in changes.hunks:
            _mark_words(hunk.rows)
    return reader.files


class _DiffParser:
    """A hunk says how long it is: a line that went may look like the head of another file and is none."""

    def __init__(self) -> None:
        self.files: list[FileDiff] = []
        self._old = self._new = self._old_left = self._new_left = 0

    def read(self, line: str) -> None:
        sign = line[:1]
        if (sign == "-" and self._old_left) or (sign == "+" and self._new_left):
            self._add_row(sign, line[1:])
        elif sign in (" ", "") and self._old_left and self._new_left:
            self._add_row(" ", line[1:])
        elif line.startswith("--- "):
            self.files.append(FileDiff(line[4:], []))
            self._old = 0
        elif line.startswith("+++ ") and self.files:
            self.files[-1].path = line[4:]
        elif self.files:
            self._read_header(line)

    def _add_row(self, sign: str, text: str) -> None:
        went, came = sign != "+", sign != "-"
        row = DiffRow("+" if not went else "-" if not came else " ", text, self._old * went, self._new * came)
        self.files[-1].hunks[-1].rows.append(row)
        self._old, self._new = self._old + went, self._new + came
        self._old_left, self._new_left = self._old_left - went, self._new_left - came

    def _read_header(self, line: str) -> None:
        head = _HUNK.match(line)
        changes = self.files[-1]
        if head:
            start = int(head[1])
            changes.hunks.append(DiffHunk([], max(start - max(self._old, 1), 0)))
            self._old, self._new = start, int(head[3])
            self._old_left, self._new_left = int(head[2] or 1), int(head[4] or 1)
        elif line.strip() and not line.startswith("\\"):
            changes.trailer = f"{changes.trailer}\n{line}".strip()


def group_rows(rows: list[DiffRow]) -> list[list[DiffRow]]:
    """Rows in groups: what went and what came in its place together, what stayed by itself."""
    groups: list[list[DiffRow]] = []
    for row in rows:
        last = groups[-1][-1] if groups else None
        joins = last is not None and (row.sign == last.sign or (last.sign == "-" and row.sign == "+"))
        if joins:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _mark_words(rows: list[DiffRow]) -> None:
    for group in group_rows(rows):
        gone = [row for row in group if row.sign == "-"]
        came = [row for row in group if row.sign == "+"]
        first = 0
        for old in gone:
            found = next(
                (i for i in range(first, min(first + _MAX_CANDIDATES, len(came))) if _compare(old, came[i])), None
            )
            first = first if found is None else found + 1


def _compare(old: DiffRow, new: DiffRow) -> bool:
    """Marks the words that differ, when the lines have enough in common for that to help."""
    if max(len(old.text), len(new.text)) > _MAX_COMPARED:
        return False
    from difflib import SequenceMatcher

    before, after = _WORD.findall(old.text), _WORD.findall(new.text)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.real_quick_ratio() < _MIN_RATIO or matcher.quick_ratio() < _MIN_RATIO or matcher.ratio() < _MIN_RATIO:
        return False
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            old.words += _spans_of(before, a, b)
            new.words += _spans_of(after, c, d)
    return True


def _spans_of(words: list[str], first: int, last: int) -> list[Span]:
    start = sum(map(len, words[:first]))
    size = sum(map(len, words[first:last]))
    return [(start, start + size)] if size else []
