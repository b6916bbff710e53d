"""Paints Markdown as lines, including tables and highlighted code. The parser and Pygments, which are slow to load, are
imported for the first text that needs them.

Link addresses are always shown; images are never fetched.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from odin.ui.clean_text import sanitize
from odin.ui.tui.paint.canvas import Canvas, Line, drop_soft_wrap_markers, prefix_lines, wrap_cells

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from pygments.lexer import Lexer
    from rich.syntax import PygmentsSyntaxTheme

MAX_CHARS = 200_000
"""Longer code is not highlighted."""


@lru_cache(maxsize=64)
def find_lexer_by_name(language: str) -> "Lexer | None":
    if not language:
        return None
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=64)
def find_lexer_by_file(name: str) -> "Lexer | None":
    """Return the lexer for a file name."""
    if not name:
        return None
    from pygments.lexers import get_lexer_for_filename  # pyright: ignore[reportUnknownVariableType]
    from pygments.util import ClassNotFound

    try:
        return get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=4)
def _load_theme(name: str) -> "PygmentsSyntaxTheme":
    from rich.syntax import PygmentsSyntaxTheme

    return PygmentsSyntaxTheme(name)


@lru_cache(maxsize=2048)
def _get_style(theme: str, token: Any) -> Style:
    """Return the style of a token, without the theme's background."""
    style = _load_theme(theme).get_style_for_token(token)
    return Style(color=style.color, bold=style.bold or None, italic=style.italic or None)


def highlight_code(code: str, lexer: "Lexer | None", theme: str, plain: Style) -> list[Line]:
    """Return the highlighted lines, exactly as many as the code has."""
    if lexer is None or len(code) > MAX_CHARS:
        return [[Segment(line, plain)] if line else [] for line in code.split("\n")]
    lines: list[Line] = [[]]
    for token, text in lexer.get_tokens(code):
        style = _get_style(theme, token)
        first, *others = text.split("\n")
        if first:
            lines[-1].append(Segment(first, style))
        for other in others:
            lines.append([Segment(other, style)] if other else [])
    count = code.count("\n") + 1
    return (lines + [[] for _ in range(count - len(lines))])[:count]


_MIN_COLUMN = 8
"""Minimum width of a readable column; with less room, tables are painted field by field."""


class MarkdownTable(Struct, frozen=True):
    """The first row is the header. `alignments` has left, right, center or "" for each column."""

    rows: list[list[Text]]
    alignments: list[str]


def paint_table(table: MarkdownTable, canvas: Canvas, width: int) -> list[Line]:
    columns = len(table.rows[0]) if table.rows else 0
    if not columns:
        return []
    wanted = [max(max((row[i].cell_len for row in table.rows if i < len(row)), default=1), 1) for i in range(columns)]
    room = width - 3 * (columns - 1)
    if sum(wanted) > room and room < sum(min(want, _MIN_COLUMN) for want in wanted):
        return _paint_stacked(table, canvas, width)
    widths = _fit_widths(wanted, room)
    bar = Segment(" │ ", canvas.palette.dim)
    lines: list[Line] = []
    for number, row in enumerate(table.rows):
        cells = [canvas.wrap(row[i] if i < len(row) else Text(), widths[i]) for i in range(columns)]
        for height in range(max(len(cell) for cell in cells)):
            line: Line = []
            for i, cell in enumerate(cells):
                line += [bar] if i else []
                shown = drop_soft_wrap_markers(cell[height]) if height < len(cell) else []
                alignment = table.alignments[i]
                left = max(widths[i] - sum(segment.cell_length for segment in shown), 0)
                before = left if alignment == "right" else left // 2 if alignment == "center" else 0
                line += [Segment(" " * before), *shown, Segment(" " * (left - before))]
            lines.append(line)
        if not number:
            lines.append([Segment("─┼─".join("─" * size for size in widths), canvas.palette.dim)])
    return lines


def _fit_widths(wanted: list[int], room: int) -> list[int]:
    """Shrink the widest columns until all fit into `room`."""
    widths = list(wanted)
    over = sum(widths) - room
    while over > 0:
        widest = max(widths)
        places = [i for i, size in enumerate(widths) if size == widest]
        second = max((size for size in widths if size < widest), default=_MIN_COLUMN)
        step = max(1, min(widest - max(second, _MIN_COLUMN), over // len(places)))
        for i in places:
            if over <= 0:
                break
            widths[i] -= step
            over -= step
    return widths


def _paint_stacked(table: MarkdownTable, canvas: Canvas, width: int) -> list[Line]:
    """Paint each row as `name: value` lines, for screens too narrow for columns."""
    head, *rows = table.rows
    lines: list[Line] = []
    for number, row in enumerate(rows or [head]):
        lines += [[Segment("─" * min(width, 20), canvas.palette.dim)]] if number else []
        for name, cell in zip(head, row, strict=False):
            field = Text(end="")
            if rows and name.plain:
                field.append_text(name)
                field.append(": ", canvas.palette.dim)
            field.append_text(cell)
            lines += canvas.wrap(field, width)
    return lines


_BULLETS = "•◦▪"
_PLAIN_TEXT = re.compile(r"[^\W\d_][^\x00-\x1f\\`*_\[\]<>&|~]*(?:\n[^\W\d_][^\x00-\x1f\\`*_\[\]<>&|~]*)*")
"""Lines that start with a letter and contain no Markdown syntax; they are painted without the parser."""


@lru_cache(maxsize=1)
def _get_parser() -> "MarkdownIt":
    """Return a parser without HTML and link reference definitions, so that no text of the model is hidden."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return parser.disable(["reference", "html_block", "html_inline"])


def paint_markdown(text: str, canvas: Canvas) -> list[Line]:
    if _PLAIN_TEXT.fullmatch(text) and "  \n" not in text:
        words = sanitize("\n".join(line.strip(" ") for line in text.split("\n")))
        return canvas.wrap(Text(words, style=canvas.palette.text, end=""), canvas.width)
    return paint_parsed(text, canvas)


def paint_parsed(text: str, canvas: Canvas) -> list[Line]:
    return _MarkdownPainter(canvas, text.split("\n")).paint_blocks(_get_parser().parse(text), canvas.width, 0)


def paint_code(code: str, language: str, canvas: Canvas, width: int) -> list[Line]:
    """Paint code on its own background; wrapped lines are marked with `↪`."""
    palette = canvas.palette
    background = palette.code_block
    room = max(width - 4, 4)
    lines: list[Line] = []
    for line in highlight_code(sanitize(code), find_lexer_by_name(language.lower()), palette.code, palette.text):
        for number, piece in enumerate(wrap_cells(line, room)):
            used = sum(segment.cell_length for segment in piece)
            row = [Segment("↪ " if number else "  ", palette.dim), *piece, Segment(" " * max(width - 2 - used, 0))]
            lines.append(list(Segment.apply_style(row, background)))
    return lines


class _MarkdownPainter:
    def __init__(self, canvas: Canvas, source: list[str]) -> None:
        self._canvas = canvas
        self._palette = canvas.palette
        self._source = source

    def paint_blocks(self, tokens: "list[Token]", width: int, depth: int) -> list[Line]:
        """Paint blocks below each other, with a blank line where the source has one."""
        lines: list[Line] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            end = _find_end(tokens, index)
            if lines and token.map and self._has_blank_before(token.map[0]):
                lines.append([])
            lines += self._paint_block(tokens[index : end + 1], width, depth)
            index = end + 1
        return lines

    def _has_blank_before(self, line: int) -> bool:
        return 0 < line <= len(self._source) and not self._source[line - 1].strip(" >\t")

    def _paint_block(self, tokens: "list[Token]", width: int, depth: int) -> list[Line]:
        palette, token = self._palette, tokens[0]
        match token.type:
            case "heading_open":
                style = palette.heading if token.tag in ("h1", "h2") else palette.strong
                return self._canvas.wrap(self._render_inline(tokens[1], style), width)
            case "paragraph_open":
                return self._canvas.wrap(self._render_inline(tokens[1], palette.text), width)
            case "fence" | "code_block":
                language = token.info.split()[0] if token.info.split() else ""
                return paint_code(token.content.removesuffix("\n"), language, self._canvas, width)
            case "blockquote_open":
                bar = [Segment("▎ ", palette.dim)]
                return prefix_lines(self.paint_blocks(tokens[1:-1], max(width - 2, 8), depth), bar, bar)
            case "bullet_list_open" | "ordered_list_open":
                return self._paint_list(tokens, width, depth)
            case "table_open":
                return self._paint_table(tokens, width)
            case "hr":
                return [[Segment("─" * min(width, 40), palette.dim)]]
            case _:
                shown = sanitize(token.content)
                return self._canvas.wrap(Text(shown, style=palette.text), width) if shown else []

    def _paint_list(self, tokens: "list[Token]", width: int, depth: int) -> list[Line]:
        ordered = tokens[0].type == "ordered_list_open"
        number = int(tokens[0].attrs.get("start", 1))
        lines: list[Line] = []
        index = 1
        while index < len(tokens) - 1:
            end = _find_end(tokens, index)
            mark = f"{number}. " if ordered else f"{_BULLETS[min(depth, len(_BULLETS) - 1)]} "
            room = max(width - len(mark), 8)
            item = self.paint_blocks(tokens[index + 1 : end], room, depth + 1) or [[]]
            start = tokens[index].map
            if lines and start and self._has_blank_before(start[0]) and len(item) > 1:
                lines.append([])
            lines += prefix_lines(item, [Segment(mark, self._palette.accent)], [Segment(" " * len(mark))])
            number += 1
            index = end + 1
        return lines

    def _paint_table(self, tokens: "list[Token]", width: int) -> list[Line]:
        rows: list[list[Text]] = []
        aligned: list[str] = []
        head = False
        for number, token in enumerate(tokens):
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                head = token.type == "th_open"
                style = self._palette.strong if head else self._palette.text
                rows[-1].append(self._render_inline(tokens[number + 1], style))
                if head:
                    aligned.append(str(token.attrs.get("style", "")).removeprefix("text-align:"))
        return paint_table(MarkdownTable(rows, aligned), self._canvas, width)

    def _render_inline(self, token: "Token", style: Style) -> Text:
        text = Text(style=style, end="")
        styles = [Style.null()]
        addresses: list[str] = []
        for child in token.children or []:
            match child.type:
                case "text":
                    text.append(sanitize(child.content), styles[-1])
                case "code_inline":
                    text.append(sanitize(child.content), styles[-1] + self._palette.inline_code)
                case "softbreak" | "hardbreak":
                    text.append("\n")
                case "image":
                    alt, address = sanitize(child.content) or "image", sanitize(str(child.attrs.get("src", "")))
                    text.append(f"[image: {alt}]", self._palette.dim)
                    text.append(f" ({address})", self._palette.dim)
                case "link_open":
                    addresses.append(sanitize(str(child.attrs.get("href", ""))))
                    styles.append(styles[-1] + self._palette.link)
                    addresses.append(str(len(text)))
                case "link_close":
                    styles.pop()
                    label, address = text.plain[int(addresses.pop()) :], addresses.pop()
                    if label not in (address, address.removeprefix("mailto:")):
                        text.append(f" ({address})", self._palette.dim)
                case "strong_open" | "em_open" | "s_open":
                    styles.append(styles[-1] + _EMPHASIS[child.tag])
                case "strong_close" | "em_close" | "s_close":
                    styles.pop()
                case _:
                    text.append(sanitize(child.content), styles[-1])
        return text


_EMPHASIS = {"strong": Style(bold=True), "em": Style(italic=True), "s": Style(strike=True)}


def _find_end(tokens: "list[Token]", start: int) -> int:
    """Return the index of the token that closes the one at `start`."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += tokens[index].nesting
        if depth <= 0:
            return index
    return len(tokens) - 1
