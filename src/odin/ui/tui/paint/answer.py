"""Paints an answer while it streams in: splits the Markdown into final chunks, which are painted only once.

Where a chunk ends depends only on the text before it, so a streamed answer and a loaded one are split and painted
alike. The Markdown parser is imported on first use, because it is a fifth of the start-up time.
"""

import re
from typing import Literal

from msgspec import Struct
from textual.strip import Strip

from odin.ui.transcript.blocks import AnswerBlock
from odin.ui.tui.paint.canvas import Canvas, Line, make_blank, make_strips

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})\s*([^`\s]*)[^`]*$")
_INNER_FENCE = re.compile(r"\s*(?:>\s*|[-*+]\s+|\d{1,9}[.)]\s+)*(`{3,}|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_DELIMITER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")

CUT_LINES = 60
"""A list, paragraph or code block longer than this may be split between two lines."""
MAX_LINES = 200
MAX_CHARS = 6_000
MAX_LINE_CHARS = 2_000
"""Longer lines are added in parts, so that an endless line is not painted as a whole in every frame."""

ChunkKind = Literal["words", "code"]


class MarkdownChunk(Struct, frozen=True):
    """`is_continuation`: the chunk continues the list, paragraph or code block of the one before."""

    kind: ChunkKind
    text: str
    language: str = ""
    is_continuation: bool = False


class MarkdownSplitter:
    """Splits streamed text: `take_done` returns the final chunks, `peek_rest` the ones that may still change."""

    def __init__(self) -> None:
        self._pending = ""
        self._lines: list[str] = []
        self._is_continuation = False
        self._fence = ""
        self._language = ""
        self._inner = ""
        self._chars = 0
        self._is_line_open = False
        self._done: list[MarkdownChunk] = []

    def feed(self, text: str) -> None:
        self._pending += text
        *whole, self._pending = self._pending.split("\n")
        for line in whole:
            self._add_long_line(line, ended=True)
        if len(self._pending) > MAX_LINE_CHARS:
            self._pending = self._add_long_line(self._pending, ended=False)

    def take_done(self) -> list[MarkdownChunk]:
        done, self._done = self._done, []
        return done

    def peek_rest(self) -> list[MarkdownChunk]:
        """Return the unfinished chunks as if the text ended here."""
        last = MarkdownSplitter()
        last._lines, last._is_continuation, last._chars = list(self._lines), self._is_continuation, self._chars
        last._fence, last._language, last._inner = self._fence, self._language, self._inner
        last._is_line_open = self._is_line_open
        if self._pending:
            last._add_line(self._pending)
        last._end_chunk()
        return last._done

    def _add_long_line(self, line: str, ended: bool) -> str:
        """Add a line, in parts if very long; return the part that is left if the line has not `ended`."""
        while len(line) > MAX_LINE_CHARS:
            place = line.rfind(" ", MAX_LINE_CHARS // 2, MAX_LINE_CHARS) + 1 or MAX_LINE_CHARS
            self._add_line(line[:place])
            self._is_line_open = True
            line = line[place:]
        if ended:
            self._add_line(line.removesuffix("\r"))
            return ""
        return line

    def _add_line(self, line: str) -> None:
        continues, self._is_line_open = self._is_line_open, False
        if continues and self._lines and self._chars <= MAX_CHARS:
            self._lines[-1] += line
            self._chars += len(line)
            return
        if self._fence:
            self._add_code_line(line)
            return
        opened = _FENCE.match(line)
        if opened and not self._inner and not (opened[1] and self._is_list()):
            self._end_chunk()
            self._fence, self._language, self._is_continuation = opened[2], opened[3], False
            return
        if self._lines and not self._inner:
            self._cut_before(line)
        self._append(line)
        # Track code fences within lists and quotes, where a blank line does not end the chunk.
        match = _INNER_FENCE.match(line)
        if self._lines[0].startswith(">") and not line.startswith(">"):
            self._inner = ""
        elif not self._inner:
            self._inner = match[1] if match else ""
        elif line.strip().strip(">").strip().startswith(self._inner) or self._is_long(len(self._lines), False):
            self._inner = ""
        if _HEADING.match(line) and len(self._lines) == 1:
            self._end_chunk()

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._chars += len(line)

    def _add_code_line(self, line: str) -> None:
        stripped = line.strip()
        if stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
            self._end_chunk()
            self._fence = self._language = ""
            return
        count = len(self._lines)
        fresh = bool(line) and not line[0].isspace() and self._lines[-1:] == [""]
        if self._is_long(count, fresh) or self._chars > MAX_CHARS:
            self._emit("code", continues_next=True)
        self._append(line)

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
            self._emit("words", continues_next=item and _ITEM.match(line) is not None)
        elif _HEADING.match(line):
            self._emit("words")
        elif self._is_long(count, _ITEM.match(line) is not None if item else not self._is_table()):
            self._emit("words", continues_next=True)

    def _is_long(self, count: int, good_place: bool) -> bool:
        """True if the chunk should be split here; at a good place earlier than at a bad one."""
        if good_place:
            return count >= CUT_LINES or self._chars > MAX_CHARS
        return count >= MAX_LINES or self._chars > 2 * MAX_CHARS

    def _is_table(self) -> bool:
        return len(self._lines) > 1 and "|" in self._lines[0] and _DELIMITER.match(self._lines[1]) is not None

    def _end_chunk(self) -> None:
        """End the chunk. An empty code block is emitted, too, because its fence is open."""
        if self._lines or (self._fence and not self._is_continuation):
            self._emit("code" if self._fence else "words")
        self._is_continuation = False

    def _emit(self, kind: ChunkKind, continues_next: bool = False) -> None:
        lines, self._lines = self._lines, []
        header = lines[:2] if kind == "words" and continues_next and _is_table_head(lines) else []
        text = "\n".join(lines)
        if kind == "code" or text.strip():
            self._done.append(
                MarkdownChunk(kind, text if kind == "code" else text.rstrip(), self._language, self._is_continuation)
            )
        self._is_continuation = continues_next
        self._lines = header
        self._chars = 0
        self._inner = ""


def _is_table_head(lines: list[str]) -> bool:
    return len(lines) > 1 and "|" in lines[0] and _DELIMITER.match(lines[1]) is not None


def close_open_markup(text: str) -> str:
    """Close code spans, bold text and tables left open at the end, so that the layout does not jump later."""
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


class AnswerPainter:
    """The lines of one answer, painted incrementally. All calls must use the same canvas settings."""

    def __init__(self) -> None:
        self.lines: list[Strip] = [make_blank()]
        self._splitter = MarkdownSplitter()
        self._text = ""
        self._settled_count = 1
        self._last: MarkdownChunk | None = None

    def fits(self, text: str) -> bool:
        """True if `text` continues the text painted so far."""
        return text.startswith(self._text)

    def paint(self, block: AnswerBlock, canvas: Canvas) -> list[Strip]:
        text = block.text
        del self.lines[self._settled_count :]
        self._splitter.feed(text[len(self._text) :])
        self._text = text
        for chunk in self._splitter.take_done():
            self.lines += _paint_chunk(chunk, self._last, canvas)
            self._last = chunk
        self._settled_count = len(self.lines)
        last = self._last
        rest = self._splitter.peek_rest()
        for number, chunk in enumerate(rest):
            if block.live and number == len(rest) - 1 and chunk.kind == "words":
                chunk = MarkdownChunk("words", close_open_markup(chunk.text), is_continuation=chunk.is_continuation)
            self.lines += _paint_chunk(chunk, last, canvas)
            last = chunk
        if block.interrupted:
            self.lines.append(canvas.paint_row(("– interrupted here", canvas.palette.warn)))
        return self.lines


def _paint_chunk(chunk: MarkdownChunk, before: MarkdownChunk | None, canvas: Canvas) -> list[Strip]:
    from odin.ui.tui.paint.markdown import paint_code, paint_markdown

    gap = [] if before is None or chunk.is_continuation or _is_heading(before) else [make_blank()]
    lines: list[Line]
    if chunk.kind == "code":
        lines = paint_code(chunk.text, chunk.language, canvas, canvas.width)
    else:
        lines = paint_markdown(chunk.text, canvas)
        if chunk.is_continuation and before is not None and _is_table_continuation(chunk, before):
            lines = lines[len(paint_markdown("\n".join(chunk.text.split("\n")[:2]), canvas)) :]
    return [*gap, *make_strips(lines)]


def _is_heading(chunk: MarkdownChunk) -> bool:
    return chunk.kind == "words" and chunk.text.startswith("#") and "\n" not in chunk.text


def _is_table_continuation(chunk: MarkdownChunk, before: MarkdownChunk) -> bool:
    """True if the chunk continues a long table; its header was repeated only to parse the columns."""
    return "|" in chunk.text.split("\n")[0] and before.text.split("\n")[:2] == chunk.text.split("\n")[:2]
