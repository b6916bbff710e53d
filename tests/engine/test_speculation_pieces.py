"""Early calls of providers that change their mind: the pieces of a reply come from the test itself."""

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


class Played:
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


def written(path: Path, content: str, index: int = 0) -> CallChunk:
    args = f'{{"file_path": "{path}", "content": "{content}"}}'
    return CallChunk(index, f"w{index}", "WriteFile", args, done=True)


DONE: list[Chunk | asyncio.Event] = [TextChunk("ok"), StopChunk("end_turn")]


async def play(workspace: Path, provider: Played, gate: asyncio.Event, seen: Callable[[], bool]) -> list[AnyEvent]:
    """Run one prompt. When a change was made early, look, then let the reply go on."""
    options = Options(cwd=str(workspace), yes=True, env=dict(os.environ))
    client: Client = await open_session(options, provider=(provider, ModelInfo("m", "played", tools="native")))
    heard: list[AnyEvent] = []
    try:
        events = client.stream_events()
        await client.submit(Prompt("p", "go"))
        async with asyncio.timeout(30):
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


def kinds(heard: list[AnyEvent]) -> list[str]:
    wanted = (CallSpeculated, CallDiscarded, ToolEnded)
    return [f"{type(event).__name__} {event.call_id}" for event in heard if isinstance(event, wanted)]


async def test_a_provider_that_begins_its_reply_again(home: Path, workspace: Path) -> None:
    gate = asyncio.Event()
    again: list[Chunk | asyncio.Event] = [written(workspace / "a", "first"), gate, RollbackChunk("another key")]
    again += [written(workspace / "b", "second"), StopChunk("tool_use")]
    heard = await play(workspace, Played(again, DONE), gate, lambda: (workspace / "a").exists())
    assert not (workspace / "a").exists()
    assert (workspace / "b").read_text() == "second"
    discarded = [event for event in heard if isinstance(event, CallDiscarded)]
    assert [event.reason for event in discarded] == ["rollback"]
    assert kinds(heard)[:2] == ["CallSpeculated w0", "CallDiscarded w0"]
    assert [kind.split()[0] for kind in kinds(heard)].count("ToolEnded") == 1


async def test_arguments_that_go_on_after_they_were_complete(home: Path, workspace: Path) -> None:
    """A call that looked complete was not: its change is rolled back and the reply is requested again."""
    gate = asyncio.Event()
    more = CallChunk(0, json='{"more": 1}')
    reply: list[Chunk | asyncio.Event] = [written(workspace / "a", "half"), gate, more, StopChunk("tool_use")]
    heard = await play(workspace, Played(reply, DONE), gate, lambda: (workspace / "a").exists())
    assert not (workspace / "a").exists()
    assert [event.reason for event in heard if isinstance(event, CallDiscarded)] == ["args_invalid"]
    assert not [event for event in heard if isinstance(event, ToolEnded)]


async def test_calls_that_are_written_side_by_side_begin_in_their_order(home: Path, workspace: Path) -> None:
    """The second call is complete before the first: it waits for it."""
    gate, first = asyncio.Event(), '{"command": "pwd"}'
    reply: list[Chunk | asyncio.Event] = [
        CallChunk(0, "c0", "ExecuteCommand", first[:5]),
        written(workspace / "a", "x", 1),
        CallChunk(0, json=first[5:], done=True),
        gate,
        StopChunk("tool_use"),
    ]
    heard = await play(workspace, Played(reply, DONE), gate, lambda: (workspace / "a").exists())
    assert kinds(heard) == ["CallSpeculated c0", "CallSpeculated w1", "ToolEnded c0", "ToolEnded w1"]


@pytest.mark.parametrize("cut", [5, 20, 60])
async def test_a_call_that_was_received_in_part_never_runs(home: Path, workspace: Path, cut: int) -> None:
    whole = written(workspace / "a", "x")
    half = CallChunk(0, "w0", "WriteFile", whole.json[:cut])
    reply: list[Chunk | asyncio.Event] = [half, CallChunk(0, done=True), StopChunk("max_tokens")]
    heard = await play(workspace, Played(reply, DONE), asyncio.Event(), lambda: False)
    assert kinds(heard) == []
    assert not (workspace / "a").exists()
