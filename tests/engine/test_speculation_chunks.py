"""Speculative calls of providers that revise their reply: the test itself sends the chunks."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from odin.app import open_session
from odin.config import Options
from odin.core.call_events import CallDiscarded, CallSpeculated, ToolEnded
from odin.core.client import Client
from odin.core.event import AnyEvent, FilesChanged, TurnEnded
from odin.core.op import Prompt
from odin.core.provider import CallChunk, Chunk, ModelInfo, Request, RollbackChunk, StopChunk, TextChunk
from tests.waiting import TimeLimit


class ChunkProvider:
    """A provider that sends the chunks of a list, reply by reply, and waits at events."""

    name = "played"

    def __init__(self, *replies: list[Chunk | asyncio.Event]) -> None:
        self._replies = list(replies)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        for piece in self._replies.pop(0):
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                yield piece

    async def close(self) -> None:
        return


def write_chunk(path: Path, content: str, index: int = 0) -> CallChunk:
    args = f'{{"file_path": "{path}", "content": "{content}"}}'
    return CallChunk(index, f"w{index}", "WriteFile", args, done=True)


DONE: list[Chunk | asyncio.Event] = [TextChunk("ok"), StopChunk("end_turn")]


async def play(
    workspace: Path, provider: ChunkProvider, gate: asyncio.Event, seen: Callable[[], bool]
) -> list[AnyEvent]:
    """Run one prompt. After the speculative change, assert `seen()`, then let the reply continue."""
    options = Options(cwd=str(workspace), yes=True, env=dict(os.environ))
    client: Client = await open_session(options, provider=(provider, ModelInfo("m", "played", tools="native")))
    heard: list[AnyEvent] = []
    try:
        events = client.stream_events()
        await client.submit(Prompt("p", "go"))
        async with TimeLimit():
            async for envelope in events:
                heard.append(envelope.event)
                if isinstance(envelope.event, FilesChanged) and not gate.is_set():
                    assert seen()
                    gate.set()
                if isinstance(envelope.event, TurnEnded):
                    return heard
    finally:
        await client.close()
    raise AssertionError("the events ended before the turn did")


def list_call_events(heard: list[AnyEvent]) -> list[str]:
    wanted = (CallSpeculated, CallDiscarded, ToolEnded)
    return [f"{type(event).__name__} {event.call_id}" for event in heard if isinstance(event, wanted)]


async def test_restarted_reply_rolls_back_its_speculative_call(home: Path, workspace: Path) -> None:
    gate = asyncio.Event()
    again: list[Chunk | asyncio.Event] = [write_chunk(workspace / "a", "first"), gate, RollbackChunk("another key")]
    again += [write_chunk(workspace / "b", "second"), StopChunk("tool_use")]
    heard = await play(workspace, ChunkProvider(again, DONE), gate, lambda: (workspace / "a").exists())
    assert not (workspace / "a").exists()
    assert (workspace / "b").read_text() == "second"
    discarded = [event for event in heard if isinstance(event, CallDiscarded)]
    assert [event.reason for event in discarded] == ["rollback"]
    assert list_call_events(heard)[:2] == ["CallSpeculated w0", "CallDiscarded w0"]
    assert [kind.split()[0] for kind in list_call_events(heard)].count("ToolEnded") == 1


async def test_call_whose_arguments_continue_is_rolled_back(home: Path, workspace: Path) -> None:
    """A call that looked complete was not: its change is rolled back and the reply is requested again."""
    gate = asyncio.Event()
    more = CallChunk(0, json='{"more": 1}')
    reply: list[Chunk | asyncio.Event] = [write_chunk(workspace / "a", "half"), gate, more, StopChunk("tool_use")]
    heard = await play(workspace, ChunkProvider(reply, DONE), gate, lambda: (workspace / "a").exists())
    assert not (workspace / "a").exists()
    assert [event.reason for event in heard if isinstance(event, CallDiscarded)] == ["args_invalid"]
    assert not [event for event in heard if isinstance(event, ToolEnded)]


async def test_interleaved_calls_start_in_their_order(home: Path, workspace: Path) -> None:
    """The second call is complete before the first and waits for it."""
    gate, first = asyncio.Event(), '{"command": "pwd"}'
    reply: list[Chunk | asyncio.Event] = [
        CallChunk(0, "c0", "ExecuteCommand", first[:5]),
        write_chunk(workspace / "a", "x", 1),
        CallChunk(0, json=first[5:], done=True),
        gate,
        StopChunk("tool_use"),
    ]
    heard = await play(workspace, ChunkProvider(reply, DONE), gate, lambda: (workspace / "a").exists())
    assert list_call_events(heard) == ["CallSpeculated c0", "CallSpeculated w1", "ToolEnded c0", "ToolEnded w1"]


@pytest.mark.parametrize("cut", [5, 20, 60])
async def test_incomplete_call_never_runs(home: Path, workspace: Path, cut: int) -> None:
    whole = write_chunk(workspace / "a", "x")
    half = CallChunk(0, "w0", "WriteFile", whole.json[:cut])
    reply: list[Chunk | asyncio.Event] = [half, CallChunk(0, done=True), StopChunk("max_tokens")]
    heard = await play(workspace, ChunkProvider(reply, DONE), asyncio.Event(), lambda: False)
    assert list_call_events(heard) == []
    assert not (workspace / "a").exists()
