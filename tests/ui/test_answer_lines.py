"""`AnswerLines`: plain mode wraps prose between words, keeps code lines, and colors only where wanted."""

import os
import pty
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from odin.ui.plain.turn_output import AnswerLines
from odin.ui.terminal import TextPainter


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """A terminal of 30 columns."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    outer, inner = pty.openpty()
    termios.tcsetwinsize(inner, (24, 30))
    with os.fdopen(inner, "w") as stream:
        yield stream
    os.close(outer)


def format_answer(screen: TextIO, text: str) -> list[str]:
    layout = AnswerLines(screen)
    return [row for line in text.split("\n") for row in layout.format_line(line).split("\n")]


def test_prose_is_wrapped_between_words_and_code_is_not(screen: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    code = "value = call_with_many(arguments, and_more)"
    prose = "A sentence that is longer than the row.\n- an item that needs a second row"
    answer = f"{prose}\n```\n{code}\n```\n| a | {'b' * 40} |"
    assert format_answer(screen, answer) == [
        "A sentence that is longer",
        "than the row.",
        "- an item that needs a second",
        "  row",
        "```",
        code,
        "```",
        f"| a | {'b' * 40} |",
    ]


def test_headings_and_code_have_the_colors_of_the_terminal(screen: TextIO) -> None:
    heading, _, code, _, text = format_answer(screen, "# Plan\n```\nx = 1\n```\nDone \x1b[31m.")
    assert heading == "\x1b[1m# Plan\x1b[0m"
    assert code == "\x1b[36mx = 1\x1b[0m"
    assert text == "Done \\x1b[31m."


def test_no_color_dumb_terminals_and_pipes_get_no_colors(screen: TextIO) -> None:
    assert TextPainter(screen).paint("a", "red") == "\x1b[31ma\x1b[0m"
    for env in ({"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}):
        assert TextPainter(screen, env).paint("a", "red") == "a"
    assert TextPainter(None).paint("a", "red") == "a"
