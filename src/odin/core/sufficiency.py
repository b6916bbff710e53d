"""Has enough of a file been seen for an edit? The question and the answer, as tools ask it and models give it."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct


class PlannedEdit(Struct, frozen=True, omit_defaults=True):
    old_string: str
    new_string: str
    replace_all: bool = False


class EditQuestion(Struct, frozen=True):
    """What is asked, as JSON. In `cached_content` each part that was seen stands below a "Lines a-b" header."""

    file_path: str
    edits: tuple[PlannedEdit, ...]
    cached_content: str
    is_partial: bool = False
    segment_keys: tuple[str, ...] = ()
    total_lines: int = 0


class LineRange(Struct, frozen=True):
    """Lines to read, counted from 1, both ends included."""

    start_line: int
    end_line: int
    reason: str = ""


class Sufficiency(Struct, frozen=True):
    """Whether what was seen of a file is enough for the edits, and if not, what to read."""

    is_sufficient: bool
    explanation: str = ""
    suggested_line_ranges: tuple[LineRange, ...] = ()


_RANGE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "start_line": {"type": "integer"},
        "end_line": {"type": "integer"},
        "reason": {"type": "string"},
    },
    "required": ["start_line", "end_line", "reason"],
    "additionalProperties": False,
}

SUFFICIENCY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "is_sufficient": {"type": "boolean"},
        "explanation": {"type": "string"},
        "suggested_line_ranges": {"type": "array", "items": _RANGE_SCHEMA},
    },
    "required": ["is_sufficient", "explanation", "suggested_line_ranges"],
    "additionalProperties": False,
}
"""The answer as strict providers want it described: nothing optional, nothing else."""


def add_line_headers(parts: Iterable[tuple[int, list[str]]]) -> str:
    """Each part, given by its first line's number and its lines, below its header."""
    shown: list[str] = []
    for first, lines in parts:
        shown.append(f"--- Lines {first}-{first + len(lines) - 1} ---")
        shown += lines
    return "".join(f"{line}\n" for line in shown)


def split_line_headers(content: str) -> list[tuple[int, str]]:
    """The parts again. A header says how many lines follow, so text that looks like one is not taken for one.

    Content without a header is one part from line 1.
    """
    lines = content.split("\n")
    parts: list[tuple[int, str]] = []
    at = 0
    while at < len(lines):
        header = re.fullmatch(r"\W*Lines (\d+)-(\d+)\W*", lines[at])
        at += 1
        if header:
            end = at + max(0, int(header[2]) - int(header[1]) + 1)
            parts.append((int(header[1]), "".join(f"{line}\n" for line in lines[at:end])))
            at = end
    return parts or [(1, content)]


def parse_sufficiency(text: str) -> Sufficiency | None:
    """The answer in a model's reply, also when it put words or a fence around it; None when there is none."""
    start, end = text.find("{"), text.rfind("}")
    if not 0 <= start < end:
        return None
    try:
        return msgspec.convert(msgspec.json.decode(text[start : end + 1]), Sufficiency, strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError):
        return None
