"""Private keys in the PEM form: the whole block, also when its end was cut off."""

import re
from collections.abc import Iterator

from odin.policy.redaction.shape import SecretSpan

PRIVATE_KEY_MARK = "PRIVATE KEY"
MAX_BLOCK_CHARS = 30_000
"""Characters a block may have, with what a listing puts before its lines."""

_BLOCK_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{2,10} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BLOCK_END = re.compile(r"-----END (?:[A-Z0-9]{2,10} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_BLOCK_BODY = re.compile(r"[A-Za-z0-9+/=]{32}")
_BLOCK_LINES = re.compile(r"(?:(?:\\[nr]|\s|[ \t\d:|>→+-])*+[A-Za-z0-9+/=]{20,}+)+")


def find_key_blocks(text: str) -> Iterator[SecretSpan]:
    if PRIVATE_KEY_MARK not in text:
        return
    starts = list(_BLOCK_BEGIN.finditer(text))
    for number, begin in enumerate(starts):
        limit = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        limit = min(limit, begin.end() + MAX_BLOCK_CHARS)
        end = _BLOCK_END.search(text, begin.end(), limit)
        if end is not None and _BLOCK_BODY.search(text, begin.end(), end.start()):
            yield SecretSpan(begin.start(), end.end(), "private key")
        elif end is None and (lines := _BLOCK_LINES.match(text, begin.end(), limit)):
            yield SecretSpan(begin.start(), lines.end(), "private key")
