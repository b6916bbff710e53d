"""The terminal's answer about its background is understood and never typed into the composer."""

from odin.ui.tui.palette import should_query_background
from odin.ui.tui.terminal_input import BACKGROUND_REQUEST, BackgroundQuery

LIGHT = "\x1b]11;rgb:ffff/fafa/f0f0\x1b\\"
DARK = "\x1b]11;rgb:14/17/1c\x07"


def asked(now: list[float] | None = None) -> BackgroundQuery:
    clock = now or [100.0]
    answers = BackgroundQuery(lambda: clock[0])
    written: list[str] = []
    answers.ask(written.append)
    assert written == [BACKGROUND_REQUEST]
    return answers


def test_an_answer_is_taken_out_of_what_is_typed() -> None:
    assert asked().extract(f"ab{LIGHT}cd") == ("abcd", [True])
    assert asked().extract(DARK) == ("", [False])


def test_an_answer_in_pieces_is_one_answer() -> None:
    for cut in range(2, len(LIGHT)):
        answers = asked()
        first, told = answers.extract("x" + LIGHT[:cut])
        rest, more = answers.extract(LIGHT[cut:] + "y")
        assert (first + rest, told + more) == ("xy", [True])


def test_keys_go_through_while_an_answer_is_awaited() -> None:
    answers = asked()
    for keys in ("\x1b", "\x1b[A", "hello", "\x1b[<0;3;4M", "\x1bb"):
        assert answers.extract(keys) == (keys, [])


def test_what_is_no_answer_comes_back_with_what_follows() -> None:
    answers = asked()
    assert answers.extract("\x1b]") == ("", [])
    assert answers.extract("zz") == ("\x1b]zz", [])


def test_nothing_is_held_when_nobody_asked_or_the_answer_never_came() -> None:
    assert BackgroundQuery(lambda: 1.0).extract(LIGHT) == (LIGHT, [])
    clock = [0.0]
    answers = asked(clock)
    clock[0] = 60.0
    assert answers.extract("\x1b]") == ("\x1b]", [])


def test_only_a_terminal_that_may_answer_is_asked() -> None:
    assert should_query_background("auto", {"TERM": "xterm-256color"})
    assert not should_query_background("auto", {"TERM": "xterm", "COLORFGBG": "0;15"})
    assert not should_query_background("auto", {"TERM": "linux"})
    assert not should_query_background("dark", {"TERM": "xterm"})
