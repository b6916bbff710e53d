"""Regular expressions as ripgrep reads them, for Python's own engine.

Where the two read the same characters differently, the pattern is rewritten, or refused with a sentence: a wrong answer
would look like a right one. Bytes that are not UTF-8 are lone surrogates in our text, and as with ripgrep no dot and no
negated class matches them.
"""

import re

from odin.tools.files.path import Refusal
from odin.tools.searching.query import Query

_ODD = r"\udc80-\udcff"

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "ascii": r"\x00-\x7f",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9a-fA-F",
}

_ESCAPES = {
    "<": r"(?:\b(?=\w))",
    ">": r"(?:\b(?<=\w))",
    "h": r"[ \t]",
    "W": rf"[^\w{_ODD}]",
    "D": rf"[^\d{_ODD}]",
    "S": rf"[^\s{_ODD}]",
}

_BOUNDARIES = {
    "{start}": _ESCAPES["<"],
    "{end}": _ESCAPES[">"],
    "{start-half}": r"(?<!\w)",
    "{end-half}": r"(?!\w)",
}

_BEGIN = r"(?:\A|(?<=\n)|(?<=\r)(?!\n))"
_END = r"(?:\Z|(?=\r)|(?<!\r)(?=\n))"
"""Where a line begins and ends, if a carriage return alone ends one too."""

_FOREIGN = "pPKRXGQEAzZNCHV"
"""Escapes that only ripgrep's engines know."""


def compile_pattern(query: Query) -> "re.Pattern[str]":
    flags = re.MULTILINE | (re.IGNORECASE if query.ignore_case else 0) | (re.DOTALL if query.across_lines else 0)
    text = re.escape(query.pattern) if query.literal else _Reader(query.pattern, query.across_lines).all()
    try:
        return re.compile(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refusal(f"regex parse error: {error}") from None


class _Reader:
    """Goes through a pattern once, from left to right."""

    def __init__(self, pattern: str, across_lines: bool) -> None:
        self._pattern = pattern
        self._across_lines = across_lines
        self._at = 0

    def all(self) -> str:
        out: list[str] = []
        while self._at < len(self._pattern):
            out.append(self._next())
        return "".join(out)

    def _take(self, count: int) -> str:
        taken = self._pattern[self._at : self._at + count]
        self._at += count
        return taken

    def _next(self) -> str:
        rest = self._pattern[self._at :]
        if rest[0] == "\\" and len(rest) > 1:
            return self._escape()
        if rest[0] == "[":
            return self._set()
        if rest[0] == ".":
            self._at += 1
            return f"[^{_ODD}]" if self._across_lines else rf"[^\r\n{_ODD}]"
        if rest[0] in "^$" and self._across_lines:
            return _BEGIN if self._take(1) == "^" else _END
        if named := re.match(r"\(\?<([A-Za-z_]\w*)>", rest):
            self._at += named.end()
            return f"(?P<{named[1]}>"
        if flags := re.match(r"\(\?([a-zA-Z]*)(?:-[a-zA-Z]+)?[:)]", rest):
            return self._flags(flags)
        return self._take(1)

    def _flags(self, flags: "re.Match[str]") -> str:
        """Python wants flags for everything at the very start, and knows some under other names."""
        if re.search(r"[^imsx)(?:-]", flags[0]):
            raise _unknown(flags[0])
        if flags[0].endswith(")") and self._at > 0:
            self._at += flags.end()
            depth_end = self._rest_of_group()
            inner = _Reader(self._pattern[self._at : depth_end], self._across_lines).all()
            self._at = depth_end
            return f"{flags[0][:-1]}:{inner})"
        return self._take(flags.end())

    def _rest_of_group(self) -> int:
        """Where the group ends in which we are."""
        depth, at, in_set = 0, self._at, False
        while at < len(self._pattern):
            char = self._pattern[at]
            if char == "\\":
                at += 1
            elif in_set:
                in_set = char != "]"
            elif char == "[":
                in_set = True
            elif char in "()":
                depth += 1 if char == "(" else -1
                if depth < 0:
                    return at
            at += 1
        return len(self._pattern)

    def _escape(self) -> str:
        rest = self._pattern[self._at :]
        if point := re.match(r"\\[xuU]\{([0-9a-fA-F]{1,6})\}", rest):
            self._at += point.end()
            return re.escape(chr(min(int(point[1], 16), 0x10FFFF)))
        if border := re.match(r"\\b(\{[a-z-]+\})", rest):
            self._at += border.end()
            if border[1] not in _BOUNDARIES:
                raise _unknown(border[0])
            return _BOUNDARIES[border[1]]
        if rest[1] in _FOREIGN:
            raise _unknown(rest[:2])
        known = _ESCAPES.get(rest[1])
        taken = self._take(2)
        return taken if known is None else known

    def _set(self) -> str:
        """A set in brackets. Ripgrep also knows sets within sets, and what two sets share."""
        out = [self._take(1)]
        if self._pattern[self._at : self._at + 1] == "^":
            out.append(f"{self._take(1)}{_ODD}")
        if self._pattern[self._at : self._at + 1] == "]":
            out.append(f"\\{self._take(1)}")
        while self._at < len(self._pattern):
            rest = self._pattern[self._at :]
            if rest[0] == "]":
                return "".join([*out, self._take(1)])
            out.append(self._member(rest))
        raise Refusal("regex parse error: unclosed character class")

    def _member(self, rest: str) -> str:
        if named := re.match(r"\[:([a-z]+):\]", rest):
            if named[1] not in _CLASSES:
                raise _unknown(named[0])
            self._at += named.end()
            return _CLASSES[named[1]]
        if rest[0] == "[" or rest[:2] in ("&&", "--", "~~"):
            raise _unknown(f"{rest[:2]}\N{HORIZONTAL ELLIPSIS} inside brackets")
        if point := re.match(r"\\[xuU]\{([0-9a-fA-F]{1,6})\}", rest):
            self._at += point.end()
            return re.escape(chr(min(int(point[1], 16), 0x10FFFF)))
        if rest[0] == "\\" and rest[1:2] in {*_FOREIGN, *"WDSh"}:
            raise _unknown(f"{rest[:2]} inside brackets")
        return self._take(2 if rest[0] == "\\" else 1)


def _unknown(what: str) -> Refusal:
    return Refusal(
        f"{what} is not known here, because ripgrep was not found and the built-in search has a smaller "
        "regular-expression language. Write the pattern without it."
    )
