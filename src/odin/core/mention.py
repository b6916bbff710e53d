"""`@path` in what a person writes: which files may be meant. Whether there is such a file only the disk can tell."""

import re
from collections.abc import Iterator
from itertools import islice

from odin.core.attachment import Attachment

MOST = 50
"""Mentions that are looked at in one text."""

_LONGEST = 4096
_WAYS = 40
_MENTION = re.compile(r'(?<![\w@/.+-])@(?:"([^"\n]{1,4096})"(:\d{1,9}(?:-\d{1,9})?)?|([^\s"@][^\s"]*))')
_LINES = re.compile(r"(.+?):(\d{1,9})(?:-(\d{1,9}))?")
_ENDS = frozenset(".,;:!?)]}>'`*_…。，、；：！？）」』》")
"""What may follow a path without being part of it."""


def mentions(text: str) -> Iterator[tuple[Attachment, ...]]:
    """For every `@` the ways to read it, the longest first: punctuation may be part of a name, or of the sentence."""
    if "@" not in text:
        return
    for count, found in enumerate(_MENTION.finditer(text)):
        if count == MOST:
            return
        if found[1] is not None:
            yield (_ranged(f"{found[1]}{found[2] or ''}") or Attachment(found[1]),)
        elif len(found[3]) <= _LONGEST and (ways := tuple(islice(_ways(found[3]), _WAYS))):
            yield ways


def _ways(word: str) -> Iterator[Attachment]:
    for part in (word, *(word[:at] for at in range(len(word) - 1, 0, -1) if word[at] in _ENDS)):
        if not part.strip("./~"):
            continue
        yield Attachment(part)
        if (ranged := _ranged(part)) is not None:
            yield ranged


def _ranged(word: str) -> Attachment | None:
    """`a.py:10` is one line, `a.py:10-20` eleven of them, in either order."""
    found = _LINES.fullmatch(word)
    if found is None:
        return None
    first = int(found[2])
    last = int(found[3] or first)
    return Attachment(found[1], max(1, min(first, last)), max(1, first, last))
