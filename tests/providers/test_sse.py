"""Parsing server-sent events."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.core.errors import BadReply
from odin.providers.wire import ServerEvent, SseParser


def parse(*pieces: bytes) -> list[tuple[str, str]]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)] + parser.flush()
    return [(event.name, event.data.decode()) for event in events]


def test_fields_of_an_event_are_parsed() -> None:
    stream = (
        b": hello\n\nevent: ping\ndata: {}\n\nid: 7\nretry: 10\nnonsense\ndata:a\ndata: b\ndata\n\nevent: empty\n\n"
    )
    assert parse(stream) == [("ping", "{}"), ("", "a\nb\n")]


def test_only_one_leading_space_is_removed_from_a_value() -> None:
    assert parse(b"data:  two\n\n") == [("", " two")]


def test_a_byte_order_mark_is_ignored() -> None:
    assert parse(b"\xef\xbb\xbfdata: x\n\n") == [("", "x")]


def test_the_last_event_needs_no_blank_line() -> None:
    assert parse(b"data: 1\n\ndata: [DONE]") == [("", "1"), ("", "[DONE]")]


def test_a_carriage_return_ends_a_line_at_once() -> None:
    parser = SseParser()
    assert parser.feed(b"data: x\r\r") == [ServerEvent("", b"x")]
    assert parser.feed(b"\ndata: y\r\n\r") == [ServerEvent("", b"y")]
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\ndata: z\n\n") == [ServerEvent("", b"z")]


lines = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=12)
events = st.lists(
    st.tuples(st.sampled_from(["", "ping", "delta"]), st.lists(lines, min_size=1, max_size=3)), max_size=5
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(events, st.sampled_from(["\n", "\r", "\r\n"]), st.lists(st.integers(0, 400), max_size=12), st.booleans())
def test_events_are_the_same_wherever_the_bytes_are_split(
    wanted: list[tuple[str, list[str]]], end: str, cuts: list[int], comments: bool
) -> None:
    text = ""
    for name, data in wanted:
        text += f": comment{end}" if comments else ""
        text += f"event: {name}{end}" if name else ""
        text += "".join(f"data: {row}{end}" for row in data) + end
    stream = text.encode()
    borders = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[a:b] for a, b in pairwise(borders)]
    expected = [(name, "\n".join(data)) for name, data in wanted]
    assert parse(*pieces) == expected
    assert parse(*(bytes([byte]) for byte in stream)) == expected


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 600, b"data: xxxxxxxxxx\n" * 60], ids=["one line", "many lines"])
def test_oversized_event_is_refused(piece: bytes) -> None:
    parser = SseParser(limit=1000)
    parser.feed(piece)
    with pytest.raises(BadReply, match="more than"):
        parser.feed(piece)


def test_size_limit_applies_to_each_event() -> None:
    parser = SseParser(limit=100)
    assert len(parser.feed(b"data: xxxxxxxxxxxx\n\n" * 50)) == 50
    assert len(parser.feed(b"data: xxxxxxxxxxxx\n\n" * 50)) == 50
