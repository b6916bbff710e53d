"""Streaming a reply over HTTP: chunks, connections, timeouts and errors."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from odin.core.errors import (
    BadReply,
    ModelNotFound,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamCut,
    StreamStalled,
    Unreachable,
)
from odin.core.message import PromptMessage
from odin.core.provider import Request, StopChunk, TextChunk, UsageChunk, WaitChunk
from odin.providers.http import HttpClient
from odin.providers.openai_chat import ChatProvider
from odin.providers.wire import WireOptions
from odin.testing import ScriptedServer, fault, retry_after, say
from tests.waiting import within_limit

from .servers import Connection, Listener, collect, make_chunked_response, make_response, serve, serve_answers

REQUEST = Request("some-model", (PromptMessage("hi"),))
HELLO = b'data: {"model":"some-model","choices":[{"delta":{"content":"hello"}}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def open_provider(url: str, idle: float = 5.0, header: float = 5.0) -> AsyncGenerator[ChatProvider]:
    http = HttpClient({})
    try:
        yield ChatProvider(
            name="local",
            base_url=url,
            api_key="secret-key",
            http=http,
            options=WireOptions(idle_timeout=idle, header_timeout=header),
        )
    finally:
        await http.close()


async def test_stream_reports_progress_and_ends_with_the_stop() -> None:
    async with (
        serve_answers(make_chunked_response(HELLO, STOP, USAGE, DONE)) as server,
        open_provider(server.url) as local,
    ):
        pieces = [piece async for piece in local.stream(REQUEST)]
    waits = [piece.activity for piece in pieces if isinstance(piece, WaitChunk)]
    assert waits == ["connecting", "waiting_headers", "waiting_token"]
    assert isinstance(pieces[-1], StopChunk)
    assert isinstance(pieces[-2], UsageChunk)
    assert sum(isinstance(piece, StopChunk) for piece in pieces) == 1


async def test_connection_is_reused_for_the_next_request() -> None:
    answer = make_chunked_response(HELLO, STOP, USAGE, DONE)
    async with serve_answers(answer, answer, answer) as server, open_provider(server.url) as local:
        for _ in range(3):
            await collect(local, REQUEST)
        assert server.accepted == 1


async def test_late_end_of_the_body_does_not_delay_the_stop_and_keeps_the_connection() -> None:
    received = asyncio.Event()

    async def handle(connection: Connection) -> None:
        for _ in range(2):
            await connection.read_request()
            answer = make_chunked_response(HELLO, STOP, USAGE, DONE)
            await connection.send(answer.removesuffix(b"0\r\n\r\n"))
            await received.wait()
            await connection.send(b"0\r\n\r\n")

    async with serve(handle) as server, open_provider(server.url) as local:
        await collect(local, REQUEST)
        received.set()
        await asyncio.sleep(0.05)
        await collect(local, REQUEST)
        assert server.accepted == 1


async def test_stream_is_read_one_byte_at_a_time() -> None:
    with ScriptedServer([say("grüße, 世界 🌍").trickle()]) as server:
        async with open_provider(server.openai_url) as local:
            pieces = await collect(local, REQUEST)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == "grüße, 世界 🌍"


async def test_compressed_stream_is_read() -> None:
    with ScriptedServer([say("squeezed").gzip()]) as server:
        async with open_provider(server.openai_url) as local:
            pieces = await collect(local, REQUEST)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == "squeezed"


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (make_chunked_response(HELLO), StreamCut, "ended before it was complete"),
        (make_chunked_response(), StreamCut, "ended before it was complete"),
        (make_chunked_response(DONE), StreamCut, "ended before it was complete"),
        (make_chunked_response(HELLO, b'data: {"choices":[{"del'), StreamCut, "ended before it was complete"),
        (make_chunked_response(HELLO, STOP)[:-20], StreamCut, "cut off"),
        (make_chunked_response(b"data: not json\n\n"), BadReply, "not its API: 'not json'"),
        (make_chunked_response(b'data: {"choices": 7}\n\n'), BadReply, "not its API"),
        (make_response(b"<!doctype html><h1>Login</h1>"), BadReply, "web page"),
        (make_response(b"  <html></html>", "content-type: text/event-stream\r\n"), BadReply, "web page"),
        (make_response(b'{"error": {"message": "busy", "type": "server_error"}}'), Overloaded, "busy"),
        (make_response(b'{"greeting": "hi"}'), BadReply, "did not stream"),
        (make_response(b"", "location: https://other.test/v1\r\n", "308 Moved"), BadReply, r"redirects to other\.test"),
        (
            make_response(b'{"error": {"message": "slow down"}}', "retry-after: 9\r\n", "429 No"),
            RateLimited,
            "slow down",
        ),
        (
            make_response(b'{"error": "model not found"}', status="404 Not Found"),
            ModelNotFound,
            "no model 'some-model'",
        ),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 99\r\n\r\npartial", Overloaded, "503"),
    ],
    ids=range(15),
)
async def test_failure_raises_its_error_type(answer: bytes, error: type[ProviderError], words: str) -> None:
    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(answer)

    async with serve(handle) as server, open_provider(server.url) as local:
        with pytest.raises(error, match=words) as caught:
            await collect(local, REQUEST)
        assert server.accepted == 1
    assert "secret-key" not in caught.value.describe()


async def test_retry_after_is_passed_on() -> None:
    with ScriptedServer([fault(429, retry_after(7)), fault(529, retry_after(0.25, "ms"))]) as server:
        async with open_provider(server.openai_url) as local:
            for seconds in (7.0, 0.25):
                with pytest.raises((RateLimited, Overloaded)) as caught:
                    await collect(local, REQUEST)
                assert caught.value.retry_after == seconds


async def test_silence_in_the_middle_of_a_stream_times_out() -> None:
    with ScriptedServer([say("never finished").stall(after=1)]) as server:
        async with open_provider(server.openai_url, idle=0.05) as local:
            with pytest.raises(StreamStalled, match=r"silent for 0\.05 s"):
                await collect(local, REQUEST)


async def test_stream_of_nothing_but_pings_times_out() -> None:
    with ScriptedServer([say("never finished").pings(after=1, every=0.01)]) as server:
        async with open_provider(server.openai_url, idle=0.5) as local:
            with pytest.raises(StreamStalled, match=r"silent for 2 s"):
                await collect(local, REQUEST)


async def test_waiting_for_the_first_byte_times_out() -> None:
    with ScriptedServer([say("late").delay(5)]) as server:
        async with open_provider(server.openai_url, header=0.05) as local:
            with pytest.raises(StreamStalled, match="did not begin to answer"):
                await collect(local, REQUEST)


async def test_stream_with_a_stop_reason_needs_no_proper_end() -> None:
    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(make_chunked_response(HELLO, STOP).removesuffix(b"0\r\n\r\n"))
        if connection.number == 1:
            await connection.wait_closed()

    async with serve(handle) as server, open_provider(server.url, idle=0.5) as local:
        for _ in range(2):
            pieces = await collect(local, REQUEST)
            assert pieces[-1] == StopChunk("end_turn", "some-model")
        assert server.accepted == 2


async def close_stream_after(server: Listener, steps: int) -> None:
    async with open_provider(server.url) as local:
        stream = local.stream(REQUEST)
        for _ in range(steps):
            await anext(stream)
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
async def test_closing_the_stream_at_any_step_closes_the_connection(steps: int) -> None:
    gone = asyncio.Event()

    async def handle(connection: Connection) -> None:
        try:
            await connection.read_request()
            await connection.send(make_chunked_response(HELLO).removesuffix(b"0\r\n\r\n"))
            await connection.wait_closed()
        finally:
            gone.set()

    async with serve(handle) as server:
        await close_stream_after(server, steps)
        if steps > 1:
            await within_limit(gone.wait())
        assert server.accepted == (steps > 1)


async def test_cancelling_in_the_middle_of_a_stream_closes_the_connection() -> None:
    gone = asyncio.Event()
    received = asyncio.Event()

    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(make_chunked_response(HELLO).removesuffix(b"0\r\n\r\n"))
        await connection.wait_closed()
        gone.set()

    async with serve(handle) as server, open_provider(server.url) as local:

        async def listen() -> None:
            async for piece in local.stream(REQUEST):
                if isinstance(piece, TextChunk):
                    received.set()

        task = asyncio.create_task(listen())
        await received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await within_limit(gone.wait())


async def test_dead_idle_connection_is_replaced_without_an_error() -> None:
    async def handle(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(make_chunked_response(HELLO, STOP, USAGE, DONE))
        if connection.number == 1:
            await connection.read_request()

    async with serve(handle) as server, open_provider(server.url) as local:
        await collect(local, REQUEST)
        pieces = await collect(local, REQUEST)
        assert isinstance(pieces[-1], StopChunk)
        assert server.accepted == 2


async def test_refused_connection_raises_unreachable() -> None:
    async with serve_answers() as server:
        url = server.url
    async with open_provider(url) as local:
        with pytest.raises(Unreachable, match="connection refused"):
            await collect(local, REQUEST)
