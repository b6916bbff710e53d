"""Renaming a word by exact edits: each changed run of lines, with as many lines around it as make it unique."""

import re


def build_word_edits(text: str, old: str, new: str) -> list[tuple[str, str]]:
    """Pairs of exact texts that, applied in order, replace `old` wherever it is a word of its own."""
    word = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
    lines = text.split("\n")
    edits: list[tuple[str, str]] = []
    at = 0
    while at < len(lines):
        if not word.search(lines[at]):
            at += 1
            continue
        end = at
        while end + 1 < len(lines) and word.search(lines[end + 1]):
            end += 1
        first, last = _widen_to_unique(lines, at, end)
        before = "\n".join(lines[first : last + 1])
        for number in range(at, end + 1):
            lines[number] = word.sub(lambda _: new, lines[number])
        edits.append((before, "\n".join(lines[first : last + 1])))
        at = end + 1
    return edits


def _widen_to_unique(lines: list[str], first: int, last: int) -> tuple[int, int]:
    """Widen a run of lines, above and below in turn, until its text occurs once in the whole."""
    text = "\n".join(lines)
    while first > 0 or last < len(lines) - 1:
        part = "\n".join(lines[first : last + 1])
        if len(re.findall(f"(?={re.escape(part)})", text)) == 1:
            break
        if first > 0:
            first -= 1
        if last < len(lines) - 1:
            last += 1
    return first, last
