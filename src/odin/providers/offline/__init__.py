"""The offline planner: a provider that needs no model.

It carries out the requests of a table (`requests.py`), word for word, and says that it needs a model for any other. It
depends only on the conversation it is given, so the same history always gives the same reply. Every file access and
command goes through the offered tools, with their permissions, in the same loop as a model's.
"""

from collections.abc import AsyncIterator, Iterator

import msgspec

from odin.core.errors import NeedsModel
from odin.core.message import Usage
from odin.core.provider import CallChunk, Chunk, Request, StopChunk, TextChunk, UsageChunk
from odin.core.structured_output import get_output_tool
from odin.providers.offline.background import answer_background, is_background

__all__ = ["OfflinePlanner", "stream_reply"]

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
    if is_background(request):
        yield from _stream_text(answer_background(request))
        return
    if get_output_tool(request) is not None:
        raise NeedsModel(
            "An answer that matches a JSON schema needs a model.", "`odin models` lists those you can use."
        )
    # Import the table and the plans with the first prompt, to keep start-up fast.
    from odin.providers.offline.conversation import CALL_ID_PREFIX, choose_move

    move = choose_move(request)
    if not move.calls:
        yield from _stream_text(move.answer)
        return
    names = {spec.name.casefold(): spec.name for spec in request.tools}
    for index, call in enumerate(move.calls):
        name = names.get(call.tool.casefold(), call.tool)
        call_id = f"{CALL_ID_PREFIX}{len(request.messages)}-{index}"
        yield CallChunk(index, call_id, name, msgspec.json.encode(call.args).decode(), done=True)
    yield UsageChunk(Usage())
    yield StopChunk("tool_use", OfflinePlanner.name)


def _stream_text(text: str) -> Iterator[Chunk]:
    for start in range(0, len(text), _CHUNK_CHARS):
        yield TextChunk(text[start : start + _CHUNK_CHARS])
    yield UsageChunk(Usage())
    yield StopChunk("end_turn", OfflinePlanner.name)
