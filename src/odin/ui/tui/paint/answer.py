"""What the model says, as Markdown. What is finished is painted once; only its end is painted with every frame.

The parser is loaded when it is needed: it would take a fifth of the time until the app is there.
"""

from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, Line, make_blank, make_strips
from odin.ui.tui.paint.chunks import MarkdownChunk, MarkdownSplitter, close_open_markup
from odin.ui.tui.story.block import AnswerBlock


class AnswerPainter:
    """The lines of one answer, on a canvas that stays the same. They are the same however the text has arrived."""

    def __init__(self) -> None:
        self.lines: list[Strip] = [make_blank()]
        self._splitter = MarkdownSplitter()
        self._text = ""
        self._settled_count = 1
        self._last: MarkdownChunk | None = None

    def fits(self, text: str) -> bool:
        """Whether the text only goes on where this one ended."""
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
            lines = lines[_measure_head(chunk, canvas) :]
    return [*gap, *make_strips(lines)]


def _is_heading(chunk: MarkdownChunk) -> bool:
    return chunk.kind == "words" and chunk.text.startswith("#") and "\n" not in chunk.text


def _is_table_continuation(chunk: MarkdownChunk, before: MarkdownChunk) -> bool:
    """A long table goes on; its head was repeated only for its columns."""
    return "|" in chunk.text.split("\n")[0] and before.text.split("\n")[:2] == chunk.text.split("\n")[:2]


def _measure_head(chunk: MarkdownChunk, canvas: Canvas) -> int:
    from odin.ui.tui.paint.markdown import paint_markdown

    return len(paint_markdown("\n".join(chunk.text.split("\n")[:2]), canvas))
