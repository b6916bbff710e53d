"""Which characters the bytes of a page stand for: its byte order mark says it, else its header, else the page."""

import codecs
import re

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_HEAD_BYTES = 4096
_CHARSET_DECLARATION = (
    rb"""(?i)<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^>]{0,100}encoding\s*=\s*["']([\w.:-]+)"""
)
_WEB_NAMES = {"iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252"}
"""Browsers read these as windows-1252, and pages are written for browsers."""

_REFUSED_CODECS = frozenset(("punycode", "idna", "utf-7", "unicode_escape", "raw_unicode_escape", "unicode-escape"))
"""Python knows them and browsers do not. The first takes hours for a large page, others make half characters."""


def decode_page(body: bytes, content_type: str) -> str:
    """The text of a page. It never fails: what is said of it counts where it fits, else UTF-8, else windows-1252."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    names = _list_declared_charsets(body, content_type)
    for name in (*names, "utf-8"):
        text = _try_decode(name, body)
        if text is not None:
            return text
    return body.decode("utf-8" if "utf-8" in names else "cp1252", "replace")


def _list_declared_charsets(body: bytes, content_type: str) -> list[str]:
    """What header and page say. A page that can be read so far is not in 16-bit characters, whatever it says."""
    header = re.search(r"(?i)charset\s*=\s*[\"']?([\w.:-]+)", content_type)
    declared = re.search(_CHARSET_DECLARATION, body[:_HEAD_BYTES])
    written = (declared[1] or declared[2]).decode("ascii").lower() if declared else ""
    names = [header[1].lower() if header else "", "utf-8" if written.startswith(("utf-16", "utf-32")) else written]
    return [_WEB_NAMES.get(name.replace("_", "-"), name) for name in names if name]


def _try_decode(name: str, body: bytes) -> str | None:
    """The text, but for a character cut in half at its end; None when it is not in that encoding or there is none."""
    try:
        if codecs.lookup(name).name in _REFUSED_CODECS:
            return None
        b" ".decode(name, "replace")  # refuses what turns bytes into other bytes
        return codecs.getincrementaldecoder(name)("strict").decode(body, False)
    except (LookupError, ValueError):
        return None
