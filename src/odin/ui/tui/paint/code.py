"""Syntax highlighting. Imported late, because Pygments is slow to load."""

from functools import lru_cache
from typing import Any

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename  # pyright: ignore[reportUnknownVariableType]
from pygments.util import ClassNotFound
from rich.segment import Segment
from rich.style import Style
from rich.syntax import PygmentsSyntaxTheme

from odin.ui.tui.paint.canvas import Line

MAX_CHARS = 200_000
"""Longer code is not highlighted."""


@lru_cache(maxsize=64)
def find_lexer_by_name(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False) if language else None
    except ClassNotFound:
        return None


@lru_cache(maxsize=64)
def find_lexer_by_file(name: str) -> Lexer | None:
    """Return the lexer for a file name."""
    try:
        return get_lexer_for_filename(name, stripnl=False, ensurenl=False) if name else None
    except ClassNotFound:
        return None


@lru_cache(maxsize=4)
def _load_theme(name: str) -> PygmentsSyntaxTheme:
    return PygmentsSyntaxTheme(name)


@lru_cache(maxsize=2048)
def _style_of(theme: str, token: Any) -> Style:
    """Return the style of a token, without the theme's background."""
    style = _load_theme(theme).get_style_for_token(token)
    return Style(color=style.color, bold=style.bold or None, italic=style.italic or None)


def highlight_code(code: str, lexer: Lexer | None, theme: str, plain: Style) -> list[Line]:
    """Return the highlighted lines, exactly as many as the code has."""
    if lexer is None or len(code) > MAX_CHARS:
        return [[Segment(line, plain)] if line else [] for line in code.split("\n")]
    lines: list[Line] = [[]]
    for token, text in lexer.get_tokens(code):
        style = _style_of(theme, token)
        first, *others = text.split("\n")
        if first:
            lines[-1].append(Segment(first, style))
        for other in others:
            lines.append([Segment(other, style)] if other else [])
    count = code.count("\n") + 1
    return (lines + [[] for _ in range(count - len(lines))])[:count]
