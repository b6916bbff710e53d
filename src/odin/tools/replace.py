"""Exact replacement in text, tolerant of nothing but line endings.

Everything outside the replaced lines keeps its bytes: lines that the old and the new text share keep their own endings,
and new lines take the ending that is used where they go.
"""

import re

from msgspec import Struct

from odin.tools.diff import lines_of
from odin.tools.path import Refusal
from odin.tools.read import numbered

Span = tuple[int, int]

_ANY_END = r"(?:\r\n?|\n)"


class Edit(Struct, frozen=True):
    old: str
    new: str
    replace_all: bool = False


class Found(Struct, frozen=True):
    """Where `old` stands. `loose` says that only the line endings differ, `unended` that the file ends without one."""

    spans: list[Span]
    loose: bool = False
    unended: bool = False


class Draft:
    """A text under change, with the spans of it nobody has looked at: an edit may not touch those."""

    def __init__(self, text: str, unseen: list[tuple[int, int]] | None = None) -> None:
        self.text = text
        self._blind = _char_spans(text, unseen or [])

    def apply(self, edit: Edit) -> int:
        """Make one edit and say how many places changed. Raises Refusal and changes nothing when it is not certain."""
        if not edit.old:
            raise Refusal("old_string is empty. Use WriteFile to create or overwrite a file.")
        if edit.old == edit.new:
            raise Refusal("old_string and new_string are identical; there is nothing to change.")
        found = locate(self.text, edit.old)
        if not found.spans:
            raise Refusal(f"old_string was not found.{_hint(self.text, edit.old)}")
        if len(found.spans) > 1 and not edit.replace_all:
            raise Refusal(_ambiguous(self.text, found.spans))
        self._check_seen(found.spans)
        pieces = [self.text[start:end] for start, end in found.spans]
        fitted = [
            _fit(piece, edit, found, _ending(self.text, span)) for piece, span in zip(pieces, found.spans, strict=True)
        ]
        if fitted == pieces:
            raise Refusal("The edit would change nothing: only line endings differ, and those are kept.")
        self._splice(found.spans, fitted)
        return len(fitted)

    def _check_seen(self, spans: list[Span]) -> None:
        for start, end in spans:
            for blind_start, blind_end in self._blind:
                if start < blind_end and blind_start < end:
                    first, last = _line_at(self.text, start), _line_at(self.text, max(start, end - 1))
                    raise Refusal(
                        f"Must read lines {first}-{last} first: you have not seen the part of the file to change. "
                        f"Read it with offset={first} and limit={last - first + 1}, then repeat the edit."
                    )

    def _splice(self, spans: list[Span], fitted: list[str]) -> None:
        out: list[str] = []
        at = 0
        for (start, end), piece in zip(spans, fitted, strict=True):
            out += (self.text[at:start], piece)
            at = end
        out.append(self.text[at:])
        self.text = "".join(out)
        self._blind = [
            (first + _shift(spans, fitted, first), last + _shift(spans, fitted, last)) for first, last in self._blind
        ]


def locate(text: str, old: str) -> Found:
    spans = [match.span() for match in re.finditer(re.escape(old), text)]
    if spans:
        return Found([_with_return(text, span) for span in spans] if "\r" not in old else spans)
    if "\r" in text or "\r" in old:
        lines = [re.escape(line) for line in old.replace("\r\n", "\n").split("\n")]
        spans = [match.span() for match in re.finditer(_ANY_END.join(lines), text)] if len(lines) > 1 else []
        if spans:
            return Found(spans, loose=True)
    body = old[:-1].removesuffix("\r") if old.endswith("\n") else ""
    if body and text.endswith(body) and len(locate(text, body).spans) == 1:
        return Found(locate(text, body).spans, loose=True, unended=True)
    return Found([])


def _with_return(text: str, span: Span) -> Span:
    """A match that begins with a line feed owns the carriage return before it: the two are one line end."""
    start, end = span
    return (start - 1, end) if start and text[start] == "\n" and text[start - 1] == "\r" else span


def _fit(piece: str, edit: Edit, found: Found, ending: str) -> str:
    """The new text for one place, in the line endings of that place."""
    if not found.loose and ("\r" in edit.old or "\r" in edit.new):
        return edit.new
    old, new = lines_of(edit.old.replace("\r\n", "\n")), lines_of(edit.new.replace("\r\n", "\n"))
    if found.unended:
        old[-1] = old[-1].removesuffix("\n")
        new[-1:] = [new[-1].removesuffix("\n")] if new else []
    actual = re.findall(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+", piece) if "\r" in piece else lines_of(piece)
    shorter = min(len(old), len(new)) if len(actual) == len(old) else 0
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    middle = "".join(new[head : len(new) - tail]).replace("\n", ending)
    return "".join(actual[:head]) + middle + "".join(actual[len(actual) - tail :] if tail else [])


def _ending(text: str, span: Span) -> str:
    """The line ending in use at this place: inside it, after it, before it."""
    start, end = span
    at = text.find("\n", start)
    if at < 0:
        at = text.rfind("\n", 0, end)
    if at < 0:
        return "\r" if "\r" in text else "\n"
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _shift(spans: list[Span], fitted: list[str], place: int) -> int:
    return sum(len(piece) - (end - start) for (start, end), piece in zip(spans, fitted, strict=True) if end <= place)


def _char_spans(text: str, lines: list[tuple[int, int]]) -> list[Span]:
    """Where these line ranges lie in the text."""
    if not lines:
        return []
    starts = [0]
    for line in lines_of(text):
        starts.append(starts[-1] + len(line))
    last = len(starts) - 1
    return [(starts[min(first - 1, last)], starts[min(end, last)]) for first, end in lines]


def _line_at(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _ambiguous(text: str, spans: list[Span]) -> str:
    shown = ", ".join(str(_line_at(text, start)) for start, _ in spans[:20])
    more = ", ..." if len(spans) > 20 else ""
    return (
        f"old_string occurs {len(spans)} times (lines {shown}{more}). "
        "Add surrounding lines so that it is unique, or set replace_all."
    )


def _hint(text: str, old: str) -> str:
    bare = re.sub(r"^\s*\d+\t", "", old, flags=re.MULTILINE)
    if bare != old and locate(text, bare).spans:
        return " It seems to contain the line numbers of Read; leave them out."
    if "\ufffd" in old:
        return " U+FFFD stands for bytes that are not UTF-8; choose text without it."
    at, same = _nearest(text, old)
    if at < 0:
        return " It must match the file exactly, with all spaces. Read the file again."
    lines = text.split("\n")[at : at + min(old.count("\n") + 2, 12)]
    reason = " The spacing or the lines that follow differ." if same else ""
    return f"{reason} The nearest text in the file is:\n{numbered(lines, at + 1, 3000).text}"


def _nearest(text: str, old: str) -> tuple[int, bool]:
    """The line most like the first line of `old`, and whether only spacing differs."""
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")
    if not wanted:
        return -1, False
    lines = [line.strip() for line in text.split("\n")]
    if wanted in lines:
        return lines.index(wanted), True
    import difflib

    near = difflib.get_close_matches(wanted[:500], [line[:500] for line in lines[:5000]], n=1)
    return (next(i for i, line in enumerate(lines) if line[:500] == near[0]), False) if near else (-1, False)
