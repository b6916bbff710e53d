"""Asks a model for the summary of a conversation, in portions that it can hold, and judges what it answers."""

from collections.abc import Sequence

import msgspec

from odin.context.compact import portions
from odin.context.headings import sections, weakness, written
from odin.core.errors import OdinError
from odin.core.job import COMPACTION, Job
from odin.core.message import Message
from odin.core.provider import ModelInfo, Provider
from odin.engine.compact.compaction import WindowKeeper
from odin.engine.kit import Planner
from odin.engine.lesser import Lesser

PORTIONS = 6
_UNKNOWN_WINDOW = 32_768
_MOST_INPUT = 100_000
_OFFLINE = "offline"


class Weak(OdinError):
    """The model answered, but not with a summary."""


async def summarise(
    keeper: WindowKeeper, planner: Planner, messages: Sequence[Message], earlier: str, focus: str, most: int
) -> str:
    """A summary of the messages and of the earlier one, of at most about `most` tokens; "" when there is no model.

    A conversation that does not fit one question is asked about in portions, each with the summary of those before.
    """
    provider, info = await keeper.means.summariser(planner)
    if info.provider == _OFFLINE:
        return ""
    window = keeper.means.windows.of(info) or _UNKNOWN_WINDOW
    room = max(1_000, min(_MOST_INPUT, window * 6 // 10 - most))
    job = msgspec.structs.replace(COMPACTION, max_tokens=max(512, min(COMPACTION.max_tokens, window // 4)))
    text = earlier
    for portion in portions(messages, room, PORTIONS):
        text = await _ask(keeper, provider, info, job, _question(portion, text, focus, most))
        why = weakness(text, most * 2)
        if why:
            raise Weak(f"The summary was not usable: {why}.")
    return written(sections(text))


async def _ask(keeper: WindowKeeper, provider: Provider, info: ModelInfo, job: Job, question: str) -> str:
    async def connect() -> tuple[Provider, ModelInfo]:
        return provider, info

    return await Lesser(connect, keeper.means.recorder, keeper.means.budget).ask(job, question, keeper.agent)


def _question(portion: str, earlier: str, focus: str, most: int) -> str:
    parts = [f"Write at most {most * 3 // 4} words."]
    if focus:
        parts.append(f"What matters most: {focus}")
    if earlier:
        parts.append(f"=====> the summary of what came before\n{earlier}")
    parts.append(f"=====> the conversation\n{portion}")
    return "\n\n".join(parts)
