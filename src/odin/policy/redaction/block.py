"""Private keys in the PEM form: the whole block, also when its end was cut off."""

import re
from collections.abc import Iterator

from odin.policy.redaction.shape import Span

MARK = "PRIVATE KEY"
LONGEST = 30_000
"""Characters a block may have, with what a listing puts before its lines."""

_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{2,10} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]{2,10} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(r"[A-Za-z0-9+/=]{32}")
_LINES = re.compile(r"(?:(?:\\[nr]|\s|[ \t\d:|>→+-])*+[A-Za-z0-9+/=]{20,}+)+")


def by_block(text: str) -> Iterator[Span]:
    if MARK not in text:
        return
    starts = list(_BEGIN.finditer(text))
    for number, begin in enumerate(starts):
        limit = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        limit = min(limit, begin.end() + LONGEST)
        end = _END.search(text, begin.end(), limit)
        if end is not None and _BODY.search(text, begin.end(), end.start()):
            yield Span(begin.start(), end.end(), "private key")
        elif end is None and (lines := _LINES.match(text, begin.end(), limit)):
            yield Span(begin.start(), lines.end(), "private key")
