"""Painting of Markdown answers, while they stream and when they are finished."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.ui.transcript.blocks import AnswerBlock
from odin.ui.tui.paint.answer import AnswerPainter, MarkdownSplitter, close_open_markup
from odin.ui.tui.paint.canvas import Canvas
from odin.ui.tui.palette import DARK, make_palette

CANVAS = Canvas(60, make_palette(DARK))

PIECES = st.sampled_from(
    [
        "# Head\n",
        "words **bold** and `code`\n",
        "\n",
        "\n\n",
        "- item\n",
        "  - inner\n",
        "1. first\n",
        "> quote\n",
        "| a | b |\n",
        "|---|---|\n",
        "| 1 | 2 |\n",
        "```python\n",
        "```\n",
        "  ```\n",
        "~~~\n",
        "def f():\n",
        "    return 1\n",
        "---\n",
        "**half",
        "` odd",
        "文字👩‍👩‍👧 ",
        "\t\x1b[31m\u202e\r\n",
        "x" * 90,
    ]
)


def answer_block(text: str, live: bool = False) -> AnswerBlock:
    block = AnswerBlock(key="a", live=live)
    block.text = text
    return block


def paint_lines(text: str, width: int = 60, live: bool = False) -> list[str]:
    canvas = Canvas(width, make_palette(DARK))
    lines = AnswerPainter().paint(answer_block(text, live), canvas)
    assert all(line.cell_length <= width for line in lines), "wider than the screen"
    return [line.text.rstrip() for line in lines][1:]


@pytest.mark.slow
@given(st.lists(PIECES, max_size=30), st.integers(1, 9))
def test_a_streamed_answer_is_painted_like_a_complete_one(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    block, growing = AnswerBlock(key="a", live=True), AnswerPainter()
    for start in range(0, len(text), size * 7):
        block.append(text[start : start + size * 7])
        growing.paint(block, CANVAS)
    block.text, block.live = text, False
    assert growing.fits(text)
    fresh = AnswerPainter().paint(answer_block(text), CANVAS)
    assert [list(line) for line in growing.paint(block, CANVAS)] == [list(line) for line in fresh]


@given(st.lists(PIECES, max_size=20), st.integers(0, 400))
def test_finished_chunks_do_not_change_when_text_is_added(pieces: list[str], at: int) -> None:
    text = "".join(pieces)
    part, whole = MarkdownSplitter(), MarkdownSplitter()
    part.feed(text[:at])
    whole.feed(text)
    before, after = part.take_done(), whole.take_done()
    assert after[: len(before)] == before


@pytest.mark.parametrize(
    "text",
    [
        "one line of words\n" * 3_000,
        "- an item\n" * 3_000,
        "```\n" + "code = 1\n" * 3_000,
        "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 3_000,
        "word " * 30_000,
        "> quoted\n" * 3_000,
        "- ```\n" + "  code\n" * 3_000,
    ],
    ids=["lines", "list", "code", "table", "one line", "quote", "code in a list"],
)
def test_the_unfinished_rest_stays_short(text: str) -> None:
    splitter = MarkdownSplitter()
    splitter.feed(text)
    assert sum(len(chunk.text) for chunk in splitter.peek_rest()) < 9_000


def test_a_long_paragraph_is_broken_only_where_the_line_is_full() -> None:
    words = [f"word{number}" for number in range(700)]
    rows = paint_lines(" ".join(words))
    assert " ".join(rows).split() == words and len(" ".join(words)) > 5_000
    assert min(len(row) for row in rows[:-1]) > 60 - len(" word699")


def test_only_the_last_lines_are_repainted() -> None:
    block, growing = AnswerBlock(key="a", live=True), AnswerPainter()
    block.append("First.\n\nSecond.\n\nThird\nfour")
    before = list(growing.paint(block, CANVAS))
    block.append(" and more")
    after = growing.paint(block, CANVAS)
    assert [one is other for one, other in zip(before[:4], after[:4], strict=True)] == [True] * 4
    assert after[-1].text == "four and more"


def test_headings_lists_quotes_and_rules() -> None:
    text = "# Head\nText\n\n1. one\n   - inner\n2. two\n\n> said\n> twice\n\n---\nEnd"
    assert paint_lines(text) == [
        "Head",
        "Text",
        "",
        "1. one",
        "   ◦ inner",
        "2. two",
        "",
        "▎ said",
        "▎ twice",
        "",
        "─" * 40,
        "End",
    ]


def test_a_loose_list_is_one_list_with_its_numbers() -> None:
    assert paint_lines("3. three\n\n4. four\n\n5. five") == ["3. three", "4. four", "5. five"]


def test_links_show_their_url_and_images_are_only_named() -> None:
    lines = " ".join(
        paint_lines("[docs](https://a.example/x) ![p](https://evil.example/?q=secret) <https://b.example>", 200)
    )
    assert "docs (https://a.example/x)" in lines
    assert "[image: p] (https://evil.example/?q=secret)" in lines
    assert lines.count("https://b.example") == 1
    assert "[ref]: https://c.example" in " ".join(paint_lines("[ref]: https://c.example"))
    assert "<b>raw</b>" in " ".join(paint_lines("<b>raw</b>"))


def test_a_table_fits_the_width_or_becomes_a_list_of_fields() -> None:
    table = "| Name | What it does |\n|---|--:|\n| parser | reads all tokens of a file |\n| 文字 | wide |"
    assert paint_lines(table, 60)[:3] == [
        "Name   │               What it does",
        "───────┼───────────────────────────",
        "parser │ reads all tokens of a file",
    ]
    assert all(len(line) <= 24 for line in paint_lines(table, 24))
    wide = (
        "| " + " | ".join(f"column{n}" for n in range(8)) + " |\n|" + "---|" * 8 + "\n| " + " | ".join("v" * 8) + " |"
    )
    assert paint_lines(wide, 38)[:2] == ["column0: v", "column1: v"]


def test_code_is_highlighted_and_wrapped_lines_are_marked() -> None:
    lines = AnswerPainter().paint(answer_block("```python\ndef f(): return 'x'\n```"), CANVAS)
    assert len({segment.style.color for segment in lines[-1] if segment.style and segment.text.strip()}) > 2
    assert lines[-1].cell_length == 60
    long = paint_lines("```\n" + "abcdefghij" * 5 + "\n```", 30)
    assert [line[:2] for line in long] == ["  ", "↪ "]
    assert "".join(line[2:].strip() for line in long) == "abcdefghij" * 5


def test_unfinished_markup_is_painted_as_if_it_were_closed() -> None:
    assert paint_lines("some **bold wor", live=True) == ["some bold wor"]
    assert paint_lines("some `cod", live=True) == ["some cod"]
    assert paint_lines("text\n``", live=True) == ["text"]
    assert paint_lines("| a | b", live=True)[0] == "a │ b"
    assert paint_lines("text\n\n```py", live=True)[0] == "text"
    assert close_open_markup("a **b** c") == "a **b** c"


def test_control_and_invisible_characters_are_escaped() -> None:
    lines = "\n".join(paint_lines("a\x1b[2Jb \u202eevil\u2066 zero\u200bwidth &#x202E;entity \x07", 120))
    assert "\x1b" not in lines and "\u202e" not in lines and "\u200b" not in lines and "\x07" not in lines
    assert "\\x1b[2J" in lines and "\\u202eevil" in lines


def test_wide_characters_are_not_cut_in_two() -> None:
    for width in range(16, 40):
        paint_lines("文字" * 30 + "\n\n```\n" + "文字" * 30 + "\n```\n\n- 👩‍👩‍👧 " + "é" * 40, width)


def test_an_interrupted_answer_says_so() -> None:
    block = answer_block("I was abou")
    block.interrupted = True
    assert "interrupted" in AnswerPainter().paint(block, CANVAS)[-1].text
