"""Conversion of terminal output to plain text."""

from hypothesis import given
from hypothesis import strategies as st

from odin.sandbox.output import AnsiStripper, HeadTailBuffer, decode_output, strip_ansi
from tests.table import each


def strip_pieces(*pieces: bytes) -> bytes:
    plain = AnsiStripper()
    return b"".join([plain.add(piece) for piece in pieces]) + plain.peek_rest()


@each(
    ("printed", "seen"),
    [
        (b"\x1b[31mred\x1b[0m\n", b"red\n"),
        (b"\x1b[1;38;5;196mbold\x1b[K\n", b"bold\n"),
        (b"\x1b]0;title\x07text\n", b"text\n"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", b"link\n"),
        (b"\x1bPq1;1\x1b\\after\n", b"after\n"),
        (b"\x1b(Bplain\x1b=\x1b7\n", b"plain\n"),
        (b"a\x1b]0;never ended\nb\n", b"a\nb\n"),
        (b"cut\x1b[3", b"cut"),
        (b"10%\r50%\r100%\n", b"100%\n"),
        (b"10%\r50%\r", b"50%"),
        (b"10%\r50%\r\r\nnext\n", b"50%\r\r\nnext\n"),
        (b"dos\r\nlines\r\n", b"dos\r\nlines\r\n"),
        (b"\x1b[2K\r\x1b[1G50%\x1b[2K\r\x1b[1Gdone\n", b"done\n"),
        (b"no end", b"no end"),
        (b"", b""),
    ],
)
def test_text_is_what_a_terminal_would_show(printed: bytes, seen: bytes) -> None:
    assert strip_pieces(printed) == seen
    assert strip_pieces(*(printed[at : at + 1] for at in range(len(printed)))) == seen, "in pieces of one byte"


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\x1b[1m", b"\x1b", b"]", b"\x07", "é".encode()])), st.data())
def test_text_does_not_depend_on_how_output_is_split(parts: list[bytes], data: st.DataObject) -> None:
    printed = b"".join(parts)
    cut = data.draw(st.integers(0, len(printed)))
    assert strip_pieces(printed[:cut], printed[cut:]) == strip_pieces(printed)


def test_progress_bar_becomes_one_line() -> None:
    sink = HeadTailBuffer(1000)
    for number in range(20_000):
        sink.add(b"\r\x1b[K[%d of 20000] building" % number)
    sink.add(b"\ndone\n")
    assert sink.render_text() == ("[19999 of 20000] building\ndone\n", False)


def test_line_without_end_is_passed_on_and_not_buffered() -> None:
    plain = AnsiStripper()
    total = sum(len(plain.add(b"x" * 65_536)) for _ in range(100))
    assert total + len(plain.peek_rest()) == 6_553_600
    assert len(plain.peek_rest()) <= 4096


def test_escape_sequence_split_between_two_pieces_is_removed() -> None:
    line = b"x" * 10_000
    assert strip_pieces(line + b"\x1b[3", b"1mred" + line) == line + b"red" + line


def test_long_line_with_a_carriage_return_takes_no_quadratic_time() -> None:
    """Quadratic work would exceed the time limit of the test."""
    line = b"x" * 5_000_000
    assert strip_ansi(line + b"\r" + line[:10] + b"\n" + line) == line[:10] + b"\n" + line


def test_invalid_bytes_and_control_characters_are_replaced() -> None:
    assert decode_output(b"ok\xff\x00\x08\t\r\n\x7f") == "ok\ufffd\ufffd\ufffd\t\r\n\ufffd"


def test_unterminated_title_is_not_buffered() -> None:
    plain = AnsiStripper()
    plain.add(b"\x1b]0;")
    assert sum(len(plain.add(b"x" * 65_536)) for _ in range(10)) <= 655_360
    assert len(plain.peek_rest()) <= 4096
