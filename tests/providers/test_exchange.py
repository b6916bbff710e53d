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
from odin.providers import wire
from odin.providers.http import HttpClient
from odin.providers.openai_chat import ChatProvider
from odin.providers.wire import WireOptions
from odin.testing import ScriptedServer, fault, retry_after, say

from .servers import Line, Listener, answering, chunked, collect, listening, whole

REQUEST = Request("some-model", (PromptMessage("hi"),))
HELLO = b'data: {"model":"some-model","choices":[{"delta":{"content":"hello"}}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def provider(url: str, idle: float = 5.0, header: float = 5.0) -> AsyncGenerator[ChatProvider]:
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


async def test_the_pieces_tell_how_far_it_is_and_end_with_the_stop() -> None:
    async with answering(chunked(HELLO, STOP, USAGE, DONE)) as server, provider(server.url) as local:
        pieces = [piece async for piece in local.stream(REQUEST)]
    waits = [piece.activity for piece in pieces if isinstance(piece, WaitChunk)]
    assert waits == ["connecting", "waiting_headers", "waiting_token"]
    assert isinstance(pieces[-1], StopChunk)
    assert isinstance(pieces[-2], UsageChunk)
    assert sum(isinstance(piece, StopChunk) for piece in pieces) == 1


async def test_the_connection_of_one_answer_serves_the_next_request() -> None:
    answer = chunked(HELLO, STOP, USAGE, DONE)
    async with answering(answer, answer, answer) as server, provider(server.url) as local:
        for _ in range(3):
            await collect(local, REQUEST)
        assert server.accepted == 1


async def test_an_end_that_comes_late_does_not_delay_the_stop_and_keeps_the_connection() -> None:
    heard = asyncio.Event()

    async def play(line: Line) -> None:
        for _ in range(2):
            await line.request()
            answer = chunked(HELLO, STOP, USAGE, DONE)
            await line.send(answer.removesuffix(b"0\r\n\r\n"))
            await heard.wait()
            await line.send(b"0\r\n\r\n")

    async with listening(play) as server, provider(server.url) as local:
        await collect(local, REQUEST)
        heard.set()
        await asyncio.sleep(0.05)
        await collect(local, REQUEST)
        assert server.accepted == 1


async def test_one_byte_at_a_time() -> None:
    with ScriptedServer([say("grüße, 世界 🌍").trickle()]) as server:
        async with provider(server.openai_url) as local:
            pieces = await collect(local, REQUEST)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == "grüße, 世界 🌍"


async def test_a_compressed_stream() -> None:
    with ScriptedServer([say("squeezed").gzip()]) as server:
        async with provider(server.openai_url) as local:
            pieces = await collect(local, REQUEST)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == "squeezed"


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (chunked(HELLO), StreamCut, "ended before it was complete"),
        (chunked(), StreamCut, "ended before it was complete"),
        (chunked(DONE), StreamCut, "ended before it was complete"),
        (chunked(HELLO, b'data: {"choices":[{"del'), StreamCut, "ended before it was complete"),
        (chunked(HELLO, STOP)[:-20], StreamCut, "cut off"),
        (chunked(b"data: not json\n\n"), BadReply, "not its API: 'not json'"),
        (chunked(b'data: {"choices": 7}\n\n'), BadReply, "not its API"),
        (whole(b"<!doctype html><h1>Login</h1>"), BadReply, "web page"),
        (whole(b"  <html></html>", "content-type: text/event-stream\r\n"), BadReply, "web page"),
        (whole(b'{"error": {"message": "busy", "type": "server_error"}}'), Overloaded, "busy"),
        (whole(b'{"choices": [{"message": {"content": "hi"}}]}'), BadReply, "did not stream"),
        (whole(b"", "location: https://other.test/v1\r\n", "308 Moved"), BadReply, r"redirects to other\.test"),
        (whole(b'{"error": {"message": "slow down"}}', "retry-after: 9\r\n", "429 No"), RateLimited, "slow down"),
        (whole(b'{"error": "model not found"}', status="404 Not Found"), ModelNotFound, "no model 'some-model'"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 99\r\n\r\npartial", Overloaded, "503"),
    ],
    ids=range(15),
)
async def test_a_failure_is_named(answer: bytes, error: type[ProviderError], words: str) -> None:
    async def play(line: Line) -> None:
        await line.request()
        await line.send(answer)

    async with listening(play) as server, provider(server.url) as local:
        with pytest.raises(error, match=words) as caught:
            await collect(local, REQUEST)
        assert server.accepted == 1
    assert "secret-key" not in caught.value.describe()


async def test_the_wait_a_server_asks_for_is_told() -> None:
    with ScriptedServer([fault(429, retry_after(7)), fault(529, retry_after(0.25, "ms"))]) as server:
        async with provider(server.openai_url) as local:
            for seconds in (7.0, 0.25):
                with pytest.raises((RateLimited, Overloaded)) as caught:
                    await collect(local, REQUEST)
                assert caught.value.retry_after == seconds


async def test_silence_in_the_middle_is_bounded() -> None:
    with ScriptedServer([say("never finished").stall(after=1)]) as server:
        async with provider(server.openai_url, idle=0.05) as local:
            with pytest.raises(StreamStalled, match=r"silent for 0\.05 s"):
                await collect(local, REQUEST)


async def test_pings_alone_are_silence_in_the_end() -> None:
    with ScriptedServer([say("never finished").pings(after=1, every=0.01)]) as server:
        async with provider(server.openai_url, idle=0.05) as local:
            with pytest.raises(StreamStalled, match=r"silent for 0\.2 s"):
                await collect(local, REQUEST)


async def test_waiting_for_the_first_byte_is_bounded() -> None:
    with ScriptedServer([say("late").delay(5)]) as server:
        async with provider(server.openai_url, header=0.05) as local:
            with pytest.raises(StreamStalled, match="did not begin to answer"):
                await collect(local, REQUEST)


async def test_a_known_stop_needs_no_proper_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "TRAILER_WAIT", 0.05)

    async def play(line: Line) -> None:
        await line.request()
        await line.send(chunked(HELLO, STOP).removesuffix(b"0\r\n\r\n"))
        if line.number == 1:
            await line.closed()

    async with listening(play) as server, provider(server.url) as local:
        for _ in range(2):
            pieces = await collect(local, REQUEST)
            assert pieces[-1] == StopChunk("end_turn", "some-model")
        assert server.accepted == 2


async def hangs_up(server: Listener, steps: int) -> None:
    async with provider(server.url) as local:
        stream = local.stream(REQUEST)
        for _ in range(steps):
            await anext(stream)
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
async def test_leaving_at_any_moment_closes_the_connection(steps: int) -> None:
    gone = asyncio.Event()

    async def play(line: Line) -> None:
        try:
            await line.request()
            await line.send(chunked(HELLO).removesuffix(b"0\r\n\r\n"))
            await line.closed()
        finally:
            gone.set()

    async with listening(play) as server:
        await hangs_up(server, steps)
        if steps > 1:
            await asyncio.wait_for(gone.wait(), 5)
        assert server.accepted == (steps > 1)


async def test_cancelling_in_the_middle_closes_the_connection() -> None:
    gone = asyncio.Event()
    heard = asyncio.Event()

    async def play(line: Line) -> None:
        await line.request()
        await line.send(chunked(HELLO).removesuffix(b"0\r\n\r\n"))
        await line.closed()
        gone.set()

    async with listening(play) as server, provider(server.url) as local:

        async def listen() -> None:
            async for piece in local.stream(REQUEST):
                if isinstance(piece, TextChunk):
                    heard.set()

        task = asyncio.create_task(listen())
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), 5)


async def test_a_dead_kept_connection_costs_no_error() -> None:
    async def play(line: Line) -> None:
        await line.request()
        await line.send(chunked(HELLO, STOP, USAGE, DONE))
        if line.number == 1:
            await line.request()

    async with listening(play) as server, provider(server.url) as local:
        await collect(local, REQUEST)
        pieces = await collect(local, REQUEST)
        assert isinstance(pieces[-1], StopChunk)
        assert server.accepted == 2


async def test_no_server_at_all() -> None:
    async with answering() as server:
        url = server.url
    async with provider(url) as local:
        with pytest.raises(Unreachable, match="connection refused"):
            await collect(local, REQUEST)
