"""`@path` in what a person writes: which files may be meant. Whether there is such a file only the disk can tell."""

import re
from collections.abc import Iterator
from itertools import islice

from odin.core.attachment import Attachment

MAX_MENTIONS = 50
"""Mentions that are looked at in one text."""

_MAX_LENGTH = 4096
_MAX_CANDIDATES = 40
_MENTION = re.compile(r'(?<![\w@/.+-])@(?:"([^"\n]{1,4096})"(:\d{1,9}(?:-\d{1,9})?)?|([^\s"@][^\s"]*))')
_LINES = re.compile(r"(.+?):(\d{1,9})(?:-(\d{1,9}))?")
_TRAILING_PUNCTUATION = frozenset(".,;:!?)]}>'`*_…。，、；：！？）」』》")
"""What may follow a path without being part of it."""


def find_mentions(text: str) -> Iterator[tuple[Attachment, ...]]:
    """For every `@` the ways to read it, the longest first: punctuation may be part of a name, or of the sentence."""
    if "@" not in text:
        return
    for count, found in enumerate(_MENTION.finditer(text)):
        if count == MAX_MENTIONS:
            return
        if found[1] is not None:
            yield (_parse_line_range(f"{found[1]}{found[2] or ''}") or Attachment(found[1]),)
        elif len(found[3]) <= _MAX_LENGTH and (ways := tuple(islice(_list_candidates(found[3]), _MAX_CANDIDATES))):
            yield ways


def _list_candidates(word: str) -> Iterator[Attachment]:
    for part in (word, *(word[:at] for at in range(len(word) - 1, 0, -1) if word[at] in _TRAILING_PUNCTUATION)):
        if not part.strip("./~"):
            continue
        yield Attachment(part)
        if (ranged := _parse_line_range(part)) is not None:
            yield ranged


def _parse_line_range(word: str) -> Attachment | None:
    """`a.py:10` is one line, `a.py:10-20` eleven of them, in either order."""
    found = _LINES.fullmatch(word)
    if found is None:
        return None
    first = int(found[2])
    last = int(found[3] or first)
    return Attachment(found[1], max(1, min(first, last)), max(1, first, last))
