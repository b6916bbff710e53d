"""The query for the terminal's background color: its reply is parsed and never typed into the composer."""

from odin.ui.tui.palette import should_query_background
from odin.ui.tui.terminal_input import BACKGROUND_REQUEST, BackgroundQuery

LIGHT = "\x1b]11;rgb:ffff/fafa/f0f0\x1b\\"
DARK = "\x1b]11;rgb:14/17/1c\x07"


def start_query(now: list[float] | None = None) -> BackgroundQuery:
    clock = now or [100.0]
    query = BackgroundQuery(lambda: clock[0])
    written: list[str] = []
    query.ask(written.append)
    assert written == [BACKGROUND_REQUEST]
    return query


def test_a_reply_is_extracted_from_typed_input() -> None:
    assert start_query().extract(f"ab{LIGHT}cd") == ("abcd", [True])
    assert start_query().extract(DARK) == ("", [False])


def test_a_reply_in_parts_is_one_reply() -> None:
    for cut in range(2, len(LIGHT)):
        query = start_query()
        first, found = query.extract("x" + LIGHT[:cut])
        rest, more = query.extract(LIGHT[cut:] + "y")
        assert (first + rest, found + more) == ("xy", [True])


def test_keys_pass_through_while_a_reply_is_awaited() -> None:
    query = start_query()
    for keys in ("\x1b", "\x1b[A", "hello", "\x1b[<0;3;4M", "\x1bb"):
        assert query.extract(keys) == (keys, [])


def test_other_escape_sequences_pass_through() -> None:
    query = start_query()
    assert query.extract("\x1b]") == ("", [])
    assert query.extract("zz") == ("\x1b]zz", [])


def test_input_passes_through_without_a_pending_query() -> None:
    assert BackgroundQuery(lambda: 1.0).extract(LIGHT) == (LIGHT, [])
    clock = [0.0]
    query = start_query(clock)
    clock[0] = 60.0
    assert query.extract("\x1b]") == ("\x1b]", [])


def test_only_terminals_that_can_reply_are_queried() -> None:
    assert should_query_background("auto", {"TERM": "xterm-256color"})
    assert not should_query_background("auto", {"TERM": "xterm", "COLORFGBG": "0;15"})
    assert not should_query_background("auto", {"TERM": "linux"})
    assert not should_query_background("dark", {"TERM": "xterm"})
