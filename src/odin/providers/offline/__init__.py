"""The offline planner: a provider that needs no model, and a replacement for the small model.

It depends only on the conversation it is given, so the same history always gives the same reply. Every file access and
command goes through the offered tools, with their permissions, in the same loop as a model's.
"""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import msgspec

from odin.core.message import Usage
from odin.core.provider import CallChunk, Chunk, Request, StopChunk, TextChunk, UsageChunk
from odin.providers.offline.jobs import (
    JOB_SUFFICIENCY,
    JOB_SUMMARY,
    JOB_TITLE,
    do_job,
    job_of,
    make_offline_summary,
    make_offline_title,
)
from odin.providers.offline.results import make_call_ids

if TYPE_CHECKING:
    from odin.providers.offline.turn import PlannerMove

__all__ = [
    "JOB_SUFFICIENCY",
    "JOB_SUMMARY",
    "JOB_TITLE",
    "OfflinePlanner",
    "make_offline_summary",
    "make_offline_title",
]


_CHUNK_CHARS = 240


class OfflinePlanner:
    name = "offline"

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        for chunk in stream_reply(request):
            yield chunk

    async def close(self) -> None:
        """Nothing to close."""


def stream_reply(request: Request) -> Iterator[Chunk]:
    """Yield one reply: tool calls or an answer, then empty usage and the stop. Raise NeedsModel if it cannot help."""
    job = job_of(request)
    if job:
        yield from _stream_text(do_job(job, request))
        return
    # Import the grammar and the plans with the first prompt, to keep start-up fast.
    from odin.providers.offline.turn import choose_move

    move = choose_move(request)
    if not move.calls:
        yield from _stream_answer(move)
        return
    names = {spec.name.casefold(): spec.name for spec in request.tools}
    ids = make_call_ids(request, len(move.calls))
    for index, act in enumerate(move.calls):
        name = names.get(act.tool.casefold(), act.tool)
        yield CallChunk(index, ids[index], name, msgspec.json.encode(act.args).decode(), done=True)
    yield UsageChunk(Usage())
    yield StopChunk("tool_use", OfflinePlanner.name)


def _stream_answer(move: "PlannerMove") -> Iterator[Chunk]:
    if move.failure is None:
        yield from _stream_text(move.answer)
        return
    yield from _split_text(move.answer)
    raise move.failure


def _split_text(text: str) -> Iterator[Chunk]:
    for start in range(0, len(text), _CHUNK_CHARS):
        yield TextChunk(text[start : start + _CHUNK_CHARS])


def _stream_text(text: str) -> Iterator[Chunk]:
    yield from _split_text(text)
    yield UsageChunk(Usage())
    yield StopChunk("end_turn", OfflinePlanner.name)
