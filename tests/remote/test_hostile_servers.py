"""A server that is not what it claims to be: one clear sentence, in bounded memory and time, and the token stays."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odin.core.errors import OdinError, SessionNotFound
from odin.remote.client import RemoteClient
from odin.remote.connection import Connection, ConnectionLost, is_loopback
from odin.remote.protocol import NewSession
from odin.version import __version__
from tests.table import each
from tests.waiting import within_limit

OWN = f"odin-version: {__version__}\r\n"
STREAM = f"HTTP/1.1 200 OK\r\n{OWN}content-type: text/event-stream\r\n\r\n"


def answer(body: str | bytes, *, status: str = "200 OK", headers: str = OWN) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\n{headers}content-length: {len(data)}\r\n\r\n".encode() + data


@asynccontextmanager
async def hostile_server(data: bytes, *, endless: bytes = b"") -> AsyncGenerator[tuple[Connection, list[bytes]]]:
    """Give a connection to a server that sends these bytes for each request, then `endless` again and again."""
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(data)
            while endless:
                writer.write(endless)
                await writer.drain()
                await asyncio.sleep(0)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    connection = Connection(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "odin_secret", place="the box")
    try:
        yield connection, seen
    finally:
        await connection.close()
        server.close()


PROBLEMS: list[tuple[bytes, str]] = [
    (answer("{}", headers=""), "the box did not answer as an Odin server does (status 200)"),
    (answer("<html>", status="502 Bad Gateway", headers=""), "did not answer as an Odin server does (status 502)"),
    (answer("{}", headers="odin-version: 0.0.1\r\n"), f"the box runs Odin 0.0.1, this is {__version__}."),
    (answer("{}", headers=f"odin-version: {'9' * 20_000}\r\n"), "the box runs Odin 999"),
    (answer("<html>"), f"the box did not answer as Odin {__version__} does."),
    (answer(b"\xff\xfe"), f"the box did not answer as Odin {__version__} does."),
    (answer("[" * 100_000), f"the box did not answer as Odin {__version__} does."),
    (answer('{"sessions": 1}'), f"the box did not answer as Odin {__version__} does."),
    (answer("", status="204 No Content"), "the box answered with status 204."),
    (answer("<html>", status="500 Oops"), "the box answered with status 500."),
    (answer("[" * 100_000, status="500 Oops"), "the box answered with status 500."),
    (answer('{"error": 1}', status="400 Bad"), "the box answered with status 400."),
    (answer('{"error":"a\\n\\u001b[2Jb","kind":"__class__"}', status="400 Bad"), "a"),
    (answer("{}", status="302 Found", headers=f"{OWN}location: http://127.0.0.1:1/\r\n"), "answered with status 302"),
    (answer("", status="101 Switching", headers=OWN), "the box cannot be reached"),
    (b"\x00" * 100_000, "the box cannot be reached"),
    (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000, "the box cannot be reached"),
    (f"HTTP/1.1 200 OK\r\n{OWN}content-length: 100\r\n\r\nshort".encode(), "the box cannot be reached"),
    (f"HTTP/1.1 200 OK\r\n{OWN}content-encoding: gzip\r\n\r\nnot gzip".encode(), "the box cannot be reached"),
    (b"", "the box cannot be reached"),
]


@each(("data", "said"), PROBLEMS)
def test_an_answer_that_is_none_gets_one_sentence(data: bytes, said: str) -> None:
    async def ask() -> None:
        async with hostile_server(data) as (connection, _):
            with pytest.raises(OdinError) as caught:
                await connection.call("all")
            text = str(caught.value)
            assert said in text
            assert len(text) < 1000 and "\n" not in text and caught.value.describe()
            assert "odin_secret" not in caught.value.describe()
            client = RemoteClient(connection, "x", sleep=no_sleep)
            with pytest.raises(OdinError) as caught:
                await within_limit(anext(client.stream_events(5)))
            await client.close()

    asyncio.run(ask())


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)
    raise ConnectionLost("It was tried again.")


async def test_errors_of_the_server_are_of_their_class() -> None:
    async with hostile_server(answer('{"error":"gone","kind":"SessionNotFound"}', status="404 Not Found")) as (one, _):
        with pytest.raises(SessionNotFound, match="gone"):
            await one.call("me")
    huge = answer('{"error":"%s"}' % ("x" * 1_000_000), status="400 Bad")
    async with hostile_server(huge) as (one, _):
        with pytest.raises(OdinError) as caught:
            await one.call("me")
        assert len(str(caught.value)) < 1000


async def test_endless_answers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odin.remote.connection._MAX_ANSWER_BYTES", 1_000_000)
    monkeypatch.setattr("odin.remote.client._MAX_EVENT_BYTES", 1_000_000)
    said = f"the box did not answer as Odin {__version__} does."
    for head in (f"HTTP/1.1 200 OK\r\n{OWN}\r\n", f"HTTP/1.1 500 Oops\r\n{OWN}\r\n"):
        async with hostile_server(head.encode(), endless=b" " * 65_536) as (connection, _):
            with pytest.raises(OdinError, match=said):
                await connection.call("all")
    for head in (f"HTTP/1.1 500 Oops\r\n{OWN}\r\n", STREAM):
        async with hostile_server(head.encode(), endless=b" " * 65_536) as (connection, _):
            client = RemoteClient(connection, "x")
            with pytest.raises(OdinError, match=said):
                await within_limit(anext(client.stream_events(5)))
    monkeypatch.setattr("odin.remote.connection._WHOLE_ANSWER_S", 0.05)
    async with hostile_server(f"HTTP/1.1 200 OK\r\n{OWN}\r\n".encode(), endless=b" ") as (connection, _):
        with pytest.raises(OdinError, match="did not finish its answer in time"):
            await connection.call("all")


@each(
    "data",
    [
        "data: {}\n\n",
        "event: open\n\n",
        'event: open\ndata: {"seq":"x"}\n\n',
        "event: open\ndata: []\n\n",
        "data: \n\n",
        "id: 1\n\n",
        "\n\n",
        "data: %s\n\n" % ("[" * 100_000),
        'data: {"seq":1,"time":0,"session":"x","event":{"type":"NoSuch"}}\n\n',
    ],
)
def test_an_event_that_is_none_ends_the_stream_with_one_sentence(data: str) -> None:
    async def watch() -> None:
        async with hostile_server(f"{STREAM}{data}".encode()) as (connection, _):
            client = RemoteClient(connection, "x")
            with pytest.raises(OdinError, match="did not answer as Odin"):
                await within_limit(anext(client.stream_events()))

    asyncio.run(watch())


async def test_a_stream_that_always_ends_is_not_asked_for_at_once() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise ConnectionLost("enough")

    start = 'event: open\ndata: {"seq":1}\n\n'
    async with hostile_server(f"{STREAM}{start}".encode()) as (connection, _):
        client = RemoteClient(connection, "x", sleep=sleep)
        with pytest.raises(ConnectionLost, match="enough"):
            await within_limit(anext(client.stream_events()))
    assert pauses == [0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]


async def test_the_token_goes_to_no_other_host_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hostile_server(answer("[]", headers=f"{OWN}set-cookie: a=b\r\n")) as (other, got):
        elsewhere = other._address.origin
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, elsewhere)
        for status in ("301 Moved", "302 Found", "307 Temporary", "308 Permanent"):
            moved = answer("", status=status, headers=f"{OWN}connection: close\r\nlocation: {elsewhere}\r\n")
            async with hostile_server(moved) as (connection, seen):
                with pytest.raises(OdinError):
                    await connection.call("all")
                with pytest.raises(OdinError):
                    await connection.call("new", body=NewSession())
                assert all(b"odin_secret" in head for head in seen) and len(seen) == 2
        assert got == []


async def test_only_a_question_is_asked_again_when_the_server_has_ended_a_kept_connection() -> None:
    heads: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for data in (answer("[]"), b""):
            head = await reader.readuntil(b"\r\n\r\n")
            heads.append(head.decode().partition(" ")[0])
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    connection = Connection(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "odin_secret")
    assert await connection.call("all") == await connection.call("all") == ()
    assert heads == ["GET", "GET", "GET"]
    with pytest.raises(ConnectionLost, match="closed the connection"):
        await connection.call("new", body=NewSession())
    assert heads == ["GET", "GET", "GET", "POST"]
    await connection.close()
    server.close()


@each(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: Any) -> None:
    assert is_loopback(host) is expected
