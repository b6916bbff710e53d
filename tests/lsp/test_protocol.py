"""Frames, JSON-RPC messages, positions and URIs of the language server protocol."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odin.lsp import protocol
from odin.lsp.protocol import (
    MAX_WINDOW_MESSAGES,
    FrameReader,
    JsonRpcConnection,
    Position,
    PositionMap,
    ServerFault,
    path_to_uri,
    uri_to_path,
)
from tests.table import each

TEXT = "a = 1\r\nß = 'ä😀b'\n\rend"


def connect(on_broken: Callable[[str], None]) -> JsonRpcConnection:
    return JsonRpcConnection(lambda data: None, lambda method, params: None, lambda method, params: None, on_broken)


def test_frames_are_parsed_however_they_are_split():
    data = b"Content-Length: 2\r\nContent-Type: x\r\n\r\n{}content-length: 4\r\n\r\nnullContent-Length: 0\r\n\r\n"
    for size in (1, 3, 7, len(data)):
        frames = FrameReader()
        found = [body for at in range(0, len(data), size) for body in frames.feed(data[at : at + size])]
        assert found == [b"{}", b"null", b""]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello\r\n\r\n", "not the language server protocol"),
        (b"x" * 5000, "not the language server protocol"),
        (b"Content-Length: -5\r\n\r\n", "not the language server protocol"),
        (b"Content-Length: 99999999999\r\n\r\n", "a message of 99,999,999,999 bytes"),
        (b"Content-Length: 3\r\n\r\n{[}", "broken JSON"),
        (b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000, "broken JSON"),
    ],
)
async def test_invalid_output_ends_the_connection(data: bytes, reason: str):
    broken: list[str] = []
    connection = connect(broken.append)
    waiting = asyncio.ensure_future(connection.request("a", {}, 5))
    await asyncio.sleep(0)
    connection.receive(data)
    connection.receive(data)
    assert len(broken) == 1 and reason in broken[0]
    for later in (waiting, connection.request("b", {}, 5)):
        with pytest.raises(ServerFault, match=reason):
            await later


async def test_flood_of_messages_ends_the_connection():
    broken: list[str] = []
    connection = connect(broken.append)
    connection.receive(MAX_WINDOW_MESSAGES * b"Content-Length: 2\r\n\r\n{}")
    assert broken == []
    connection.receive(b"Content-Length: 2\r\n\r\n{}")
    assert broken == ["it sent more than Odin reads"]


async def test_requests_and_answers_in_both_directions():
    sent: list[bytes] = []
    notifications: list[Any] = []

    def answer(method: str, params: Any) -> Any:
        if method != "known":
            raise protocol.UnknownMethod(method)
        return params

    connection = JsonRpcConnection(
        sent.append, lambda method, params: notifications.append((method, params)), answer, pytest.fail
    )

    def receive(body: bytes) -> None:
        connection.receive(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    asked = asyncio.ensure_future(connection.request("a", {}, 5))
    failed = asyncio.ensure_future(connection.request("b", {}, 5))
    await asyncio.sleep(0)
    for body in (b"[]", b'{"id": 99}', b'{"id": "1", "result": 7}', b'{"id": {}, "method": "known"}', b'{"method": 5}'):
        receive(body)
    receive(b'{"id": 1, "result": 5}')
    receive(b'{"id": 1, "result": 6}')
    receive(b'{"id": 2, "error": {"message": "no"}}')
    assert await asked == 5
    with pytest.raises(ServerFault, match="no"):
        await failed
    sent.clear()
    receive(b'{"id": 4, "method": "known", "params": [1]}')
    receive(b'{"id": "x", "method": "other"}')
    receive(b'{"method": "news", "params": 1}')
    assert b'"result":[1]' in sent[0] and b"-32601" in sent[1] and notifications == [("news", 1)]
    sent.clear()
    with pytest.raises(ServerFault, match="no answer to slow within"):
        await connection.request("slow", {}, 0.01)
    assert b"$/cancelRequest" in sent[1]


@each(
    ("encoding", "character"),
    [("utf-8", 12), ("utf-16", 8), ("utf-32", 7)],
)
def test_positions_are_converted_in_every_encoding(encoding: Any, character: int):
    positions = PositionMap(TEXT, encoding)
    offset = TEXT.index("b'")
    assert positions.to_position(offset) == Position(1, character)
    assert positions.to_offset(Position(1, character)) == offset
    assert positions.to_place(Position(1, character)) == (2, 8)
    assert positions.find_offset(2, 8) == offset
    assert positions.get_line(2) == "ß = 'ä😀b'"
    assert positions.to_place(Position(3, 0)) == (3, 2)  # a lone carriage return ends a line only in the protocol


@each(
    ("position", "offset"),
    [
        (Position(-1, -1), 0),
        (Position(0, 99), 5),
        (Position(99, 0), len(TEXT)),
        (Position(1, 7), TEXT.index("😀")),  # inside a surrogate pair
    ],
)
def test_invalid_position_is_moved_to_a_valid_one(position: Position, offset: int):
    assert PositionMap(TEXT, "utf-16").to_offset(position) == offset


@each(
    ("uri", "path"),
    [
        ("file:///a/b%20c%C3%A4.py", "/a/b cä.py"),
        ("file://host/a/../b", "/b"),
        ("FILE:///x", "/x"),
        ("file:///a%00b", ""),
        ("untitled:1", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_file_uri_becomes_a_path(uri: object, path: str):
    assert uri_to_path(uri) == path


@each("path", ["/a b/ä#?%.py", "/tmp/\udcff.py"])
def test_path_survives_conversion_to_a_uri(path: str):
    assert uri_to_path(path_to_uri(path)) == path
