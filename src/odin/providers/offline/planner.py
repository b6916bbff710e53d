"""The offline planner: a provider that needs no model.

It looks at the conversation it is given and nothing else, so the same history always gives the same reply. Every file
and every command goes through the tools it was offered, with their permissions, in the same loop as a model's.
"""

from collections.abc import AsyncIterator, Iterator

import msgspec

from odin.core.message import Usage
from odin.core.provider import CallPiece, Piece, Request, StopPiece, TextPiece, UsagePiece
from odin.providers.offline.history import call_ids
from odin.providers.offline.jobs import do_job, job_of

_CHUNK = 240


class OfflinePlanner:
    name = "offline"

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        for piece in reply(request):
            yield piece

    async def close(self) -> None:
        """Nothing is held open."""


def reply(request: Request) -> Iterator[Piece]:
    """The pieces of one reply: calls, or the words of an answer, then the usage, which is none, and the stop."""
    job = job_of(request)
    if job:
        yield from _said(do_job(job, request))
        return
    # The grammar and the plans load with the first prompt, so that a session without a model opens as fast as one with.
    from odin.providers.offline.turn import next_move

    move = next_move(request)
    if not move.acts:
        yield from _said(move.answer)
        return
    names = {spec.name.casefold(): spec.name for spec in request.tools}
    ids = call_ids(request, len(move.acts))
    for index, act in enumerate(move.acts):
        name = names.get(act.tool.casefold(), act.tool)
        yield CallPiece(index, ids[index], name, msgspec.json.encode(act.args).decode(), done=True)
    yield UsagePiece(Usage())
    yield StopPiece("tool_use", OfflinePlanner.name)


def _said(text: str) -> Iterator[Piece]:
    for start in range(0, len(text), _CHUNK):
        yield TextPiece(text[start : start + _CHUNK])
    yield UsagePiece(Usage())
    yield StopPiece("end_turn", OfflinePlanner.name)
