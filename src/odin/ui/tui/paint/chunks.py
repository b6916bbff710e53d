"""Cuts Markdown that is still being written into pieces that will not change any more.

Where a piece ends depends only on what was written up to there. So a text that is cut while it arrives and one that is
cut as a whole fall into the same pieces, and what was painted of them once stays right.
"""

import re
from dataclasses import dataclass
from typing import Literal

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})\s*([^`\s]*)[^`]*$")
_INNER_FENCE = re.compile(r"\s*(?:>\s*|[-*+]\s+|\d{1,9}[.)]\s+)*(`{3,}|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_DELIMITER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")

LINES = 60
"""A list, a paragraph or code may be cut between two lines when it is longer than that."""
MOST_LINES = 200
MOST_CHARS = 6_000
LONGEST_LINE = 2_000
"""Longer lines are cut into lines, so that one that never ends is not painted again and again."""

Kind = Literal["words", "code"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """`glued` to the one before: it belongs to the same list, paragraph or code. `language` is that of code."""

    kind: Kind
    text: str
    language: str = ""
    glued: bool = False


class Splitter:
    """Takes text as it comes; `take` gives the pieces that are final, `rest` what is not."""

    def __init__(self) -> None:
        self._pending = ""
        self._lines: list[str] = []
        self._glued = False
        self._fence = ""
        self._language = ""
        self._inner = ""
        self._chars = 0
        self._done: list[Chunk] = []

    def feed(self, text: str) -> None:
        self._pending += text
        *whole, self._pending = self._pending.split("\n")
        for line in whole:
            self._long(line, ended=True)
        if len(self._pending) > LONGEST_LINE:
            self._pending = self._long(self._pending, ended=False)

    def take(self) -> list[Chunk]:
        done, self._done = self._done, []
        return done

    def rest(self) -> list[Chunk]:
        """What is not final yet, as it would be if nothing more came."""
        last = Splitter()
        last._lines, last._glued, last._chars = list(self._lines), self._glued, self._chars
        last._fence, last._language, last._inner = self._fence, self._language, self._inner
        if self._pending:
            last._line(self._pending)
        last._end()
        return last._done

    def _long(self, line: str, ended: bool) -> str:
        """The line, in several when it is very long; what is left when it has not ended."""
        while len(line) > LONGEST_LINE:
            place = line.rfind(" ", LONGEST_LINE // 2, LONGEST_LINE) + 1 or LONGEST_LINE
            self._line(line[:place])
            line = line[place:]
        if ended:
            self._line(line.removesuffix("\r"))
            return ""
        return line

    def _line(self, line: str) -> None:
        if self._fence:
            self._code(line)
            return
        opened = _FENCE.match(line)
        if opened and not self._inner and not (opened[1] and self._is_list()):
            self._end()
            self._fence, self._language, self._glued = opened[2], opened[3], False
            return
        if self._lines and not self._inner:
            self._cut_before(line)
        self._append(line)
        self._watch_inner(line)
        if _HEADING.match(line) and len(self._lines) == 1:
            self._end()

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._chars += len(line)

    def _code(self, line: str) -> None:
        stripped = line.strip()
        if stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
            self._end()
            self._fence = self._language = ""
            return
        count = len(self._lines)
        fresh = bool(line) and not line[0].isspace() and self._lines[-1:] == [""]
        if self._is_long(count, fresh) or self._chars > MOST_CHARS:
            self._emit("code", glued_next=True)
        self._append(line)

    def _watch_inner(self, line: str) -> None:
        """Fences within lists and quotes: a blank line in them ends nothing."""
        found = _INNER_FENCE.match(line)
        if self._lines[0].startswith(">") and not line.startswith(">"):
            self._inner = ""
        elif not self._inner:
            self._inner = found[1] if found else ""
        elif line.strip().strip(">").strip().startswith(self._inner) or self._is_long(len(self._lines), False):
            self._inner = ""

    def _is_list(self) -> bool:
        return bool(self._lines) and _ITEM.match(self._lines[0].lstrip()) is not None

    def _cut_before(self, line: str) -> None:
        count, after_blank = len(self._lines), not self._lines[-1].strip()
        if not line.strip():
            return
        item = self._is_list()
        if after_blank:
            if item and line[0].isspace():
                return
            self._emit("words", glued_next=item and _ITEM.match(line) is not None)
        elif _HEADING.match(line):
            self._emit("words")
        elif self._is_long(count, _ITEM.match(line) is not None if item else not self._is_table()):
            self._emit("words", glued_next=True)

    def _is_long(self, count: int, good_place: bool) -> bool:
        """Whether it is to be cut here; at a good place earlier than at a bad one."""
        if good_place:
            return count >= LINES or self._chars > MOST_CHARS
        return count >= MOST_LINES or self._chars > 2 * MOST_CHARS

    def _is_table(self) -> bool:
        return len(self._lines) > 1 and "|" in self._lines[0] and _DELIMITER.match(self._lines[1]) is not None

    def _end(self) -> None:
        """The piece ends here. Code that is empty is shown: a fence has been opened."""
        if self._lines or (self._fence and not self._glued):
            self._emit("code" if self._fence else "words")
        self._glued = False

    def _emit(self, kind: Kind, glued_next: bool = False) -> None:
        lines, self._lines = self._lines, []
        header = lines[:2] if kind == "words" and glued_next and _is_table_head(lines) else []
        text = "\n".join(lines)
        if kind == "code" or text.strip():
            self._done.append(Chunk(kind, text if kind == "code" else text.rstrip(), self._language, self._glued))
        self._glued = glued_next
        self._lines = header
        self._chars = 0
        self._inner = ""


def _is_table_head(lines: list[str]) -> bool:
    return len(lines) > 1 and "|" in lines[0] and _DELIMITER.match(lines[1]) is not None


def mended(text: str) -> str:
    """Words that are still being written, with what was opened in their last lines closed: nothing jumps later."""
    last = text.rsplit("\n\n", 1)[-1]
    if not last.rsplit("\n", 1)[-1].strip("` "):
        return text[: text.rfind("\n") + 1]
    if last.lstrip().startswith("|") and "\n" not in last.strip():
        columns = max(last.strip().strip("|").count("|") + 1, 1)
        head = last if last.rstrip().endswith("|") else f"{last}|"
        return f"{text[: len(text) - len(last)]}{head}\n|{'---|' * columns}"
    if last.count("`") % 2:
        return f"{text}`"
    bold = last.count("**") % 2
    return f"{text.rstrip('*')}**" if bold and not last.endswith("**") else text.removesuffix("**") if bold else text
