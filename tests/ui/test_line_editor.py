"""`LineEditor`: the input line of plain mode."""

from hypothesis import given
from hypothesis import strategies as st

from odin.ui.plain.editors import LineEditor, can_edit_line
from tests.table import each


@each(
    ("keys", "text"),
    [
        ("!", "make test!"),
        ("\x7f\x7f", "make te"),
        ("\x15ls", "ls"),
        ("\x01g", "gmake test"),
        ("\x1b[Hg", "gmake test"),
        ("\x1b[1~\x1b[3~", "ake test"),
        ("\x1b[D\x1b[Dx", "make texst"),
        ("\x1bOD\x1bOCx", "make testx"),
        ("\x1b[D\x05x", "make testx"),
        ("\x02\x02\x06\x0b", "make tes"),
        ("\x1b[A\x1b[5~\x1b[1;5D\t\x00", "make test"),
        ("ä漢", "make testä漢"),
        ("\u00a0now\u3000", "make test now "),
        ("\x17", "make "),
        (" it all \x17\x17!", "make test !"),
        ("\x1b[A\x10\x1b[B", "make test"),
        ("\x1b[200~:\r\tone\r\n\x04two\nthree\x1b[A\x1b[201~!", "make test:\n\tone\ntwo\nthree!"),
        ("\u202e\u200b", "make test"),
    ],
)
def test_keys_edit_the_line(keys: str, text: str) -> None:
    line = LineEditor("make test")
    assert line.press(keys) == ""
    assert line.text == text


def test_paste_in_pieces_is_shown_in_one_row() -> None:
    line = LineEditor("")
    for piece in ("\x1b[20", "0~a\r", "\nb\r", "c\x1b[2", "01~\r"):
        state = line.press(piece)
    assert state == "done"
    assert line.text == "a\nb\nc"
    assert line.render("> ", 80) == "\r\x1b[K> a↵b↵c"


def test_history_is_recalled_and_the_draft_is_kept() -> None:
    line = LineEditor("", ["first", "second"])
    seen: list[str] = []
    for keys in ("ne", "\x1b[A", "\x1bOA", "\x1b[A", "\x1b[B", "\x0e", "\x1b[B", "w"):
        line.press(keys)
        seen.append(line.text)
    assert seen == ["ne", "second", "first", "first", "second", "ne", "ne", "new"]


def test_text_after_enter_is_ignored() -> None:
    line = LineEditor("a")
    assert line.press("b\rc") == "done"
    assert line.text == "ab"


def test_ctrl_d_closes_an_empty_line_only() -> None:
    line = LineEditor("a")
    assert line.press("\x04") == ""
    assert line.press("\x7f\x04") == "closed"


def test_key_sequence_in_pieces_is_recognized() -> None:
    line = LineEditor("ab")
    assert [line.press("\x1b"), line.press("["), line.press("D"), line.press("x")] == [""] * 4
    assert line.text == "axb"


@given(st.text(), st.lists(st.text()))
def test_hidden_characters_are_not_inserted(first: str, keys: list[str]) -> None:
    line = LineEditor(first if can_edit_line(first) else "")
    for key in keys:
        if line.press(key):
            break
    assert can_edit_line(line.text.replace(" " * 16, ""))
    assert 0 <= line.cursor <= len(line.text)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Mn", "Me", "Zl", "Zp", "Zs"])), st.integers(0, 60))
def test_rendered_line_fits_the_terminal(text: str, at: int) -> None:
    from unicodedata import east_asian_width

    line = LineEditor(text)
    line.cursor = min(at, len(text))
    drawn = line.render("Rule: ", 40).removeprefix("\r\x1b[KRule: ").partition("\x1b")[0]
    assert sum(2 if east_asian_width(char) in "WF" else 1 for char in drawn) <= 33
    assert drawn in text


def test_several_lines_or_hidden_characters_need_an_editor() -> None:
    assert [can_edit_line(text) for text in ("ls -l", "a\nb", "a\u200bb", "a\x1bb")] == [True, False, False, False]
