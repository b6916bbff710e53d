"""What the model says, as Markdown. What is finished is painted once; only its end is painted with every frame.

The parser is loaded when it is needed: it would take a fifth of the time until the app is there.
"""

from textual.strip import Strip

from odin.ui.tui.paint.canvas import Canvas, Line, blank, strips
from odin.ui.tui.paint.chunks import Chunk, Splitter, mended
from odin.ui.tui.story.block import AnswerBlock


class AnswerPaint:
    """The lines of one answer, on a canvas that stays the same. They are the same however the text has arrived."""

    def __init__(self) -> None:
        self.lines: list[Strip] = [blank()]
        self._splitter = Splitter()
        self._seen = ""
        self._settled = 1
        self._last: Chunk | None = None

    def fits(self, text: str) -> bool:
        """Whether the text only goes on where this one ended."""
        return text.startswith(self._seen)

    def paint(self, block: AnswerBlock, canvas: Canvas) -> list[Strip]:
        text = block.text
        del self.lines[self._settled :]
        self._splitter.feed(text[len(self._seen) :])
        self._seen = text
        for chunk in self._splitter.take():
            self.lines += _painted(chunk, self._last, canvas)
            self._last = chunk
        self._settled = len(self.lines)
        last = self._last
        rest = self._splitter.rest()
        for number, chunk in enumerate(rest):
            if block.live and number == len(rest) - 1 and chunk.kind == "words":
                chunk = Chunk("words", mended(chunk.text), glued=chunk.glued)
            self.lines += _painted(chunk, last, canvas)
            last = chunk
        if block.interrupted:
            self.lines.append(canvas.row(("– interrupted here", canvas.palette.warn)))
        return self.lines


def _painted(chunk: Chunk, before: Chunk | None, canvas: Canvas) -> list[Strip]:
    from odin.ui.tui.paint.markdown import code_lines, markdown_lines

    gap = [] if before is None or chunk.glued or _is_heading(before) else [blank()]
    lines: list[Line]
    if chunk.kind == "code":
        lines = code_lines(chunk.text, chunk.language, canvas, canvas.width)
    else:
        lines = markdown_lines(chunk.text, canvas)
        if chunk.glued and before is not None and _continues_table(chunk, before):
            lines = lines[_head_height(chunk, canvas) :]
    return [*gap, *strips(lines)]


def _is_heading(chunk: Chunk) -> bool:
    return chunk.kind == "words" and chunk.text.startswith("#") and "\n" not in chunk.text


def _continues_table(chunk: Chunk, before: Chunk) -> bool:
    """A long table goes on; its head was repeated only for its columns."""
    return "|" in chunk.text.split("\n")[0] and before.text.split("\n")[:2] == chunk.text.split("\n")[:2]


def _head_height(chunk: Chunk, canvas: Canvas) -> int:
    from odin.ui.tui.paint.markdown import markdown_lines

    return len(markdown_lines("\n".join(chunk.text.split("\n")[:2]), canvas))
