"""Finds the values in secret files that git or a search prints: in diffs, and in lines that start with a file name."""

import re
from collections.abc import Iterator

from odin.core.path_names import is_secret_path

_DIFF_FILE = re.compile(
    r"(?:diff --git a/.* b/(?P<both>.+)|(?:\+\+\+ b|--- a)/(?P<one>.+)|(?P<end>commit [0-9a-f]{7,64}))"
)
_LISTED = re.compile(r"(?:[\w./@~^-]+:)?(?P<path>[\w./@+-]+)[:-](?:\d+[:-])?")
_SETTING = re.compile(r"[+\- ]?\s*(?:export\s+)?[\"']?(?P<name>[A-Za-z_][\w.-]*)[\"']?\s*[=:]\s*(?P<value>\S.*)")
_PLAIN_VALUE = re.compile(r"[\"']?(?:true|false|yes|no|on|off|null|none|\d{1,5}|localhost|)[\"']?[,;]?", re.IGNORECASE)


def find_listed_values(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of every value of a secret file in the output of git or a search."""
    secret_section = False
    at = 0
    for line in text.split("\n"):
        mark = _DIFF_FILE.match(line)
        if mark is not None:
            secret_section = mark["end"] is None and is_secret_path(mark["both"] or mark["one"] or "")
        else:
            start = 0 if secret_section else _find_listed_start(line)
            setting = _SETTING.match(line, start) if start >= 0 else None
            if setting is not None and not _PLAIN_VALUE.fullmatch(setting["value"]):
                yield at + setting.start("value"), at + setting.end("value")
        at += len(line) + 1


def _find_listed_start(line: str) -> int:
    """Return where the text of a secret file starts in a line such as `.env:3:KEY=value`, or -1."""
    listed = _LISTED.match(line)
    if listed is None or not is_secret_path(listed["path"]):
        return -1
    return listed.end()
