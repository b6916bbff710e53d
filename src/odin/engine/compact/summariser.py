"""Asks a model for the summary of a conversation, in portions that it can hold, and judges what it answers."""

from collections.abc import Sequence

import msgspec

from odin.context.compact import split_into_portions
from odin.context.headings import find_weakness, parse_sections, render_sections
from odin.core.errors import OdinError
from odin.core.job import COMPACTION_JOB, SmallJob
from odin.core.message import Message
from odin.core.provider import ModelInfo, Provider
from odin.engine.compact.compaction import ContextBudget
from odin.engine.kit import Planner
from odin.engine.lesser import SmallModel

MAX_PORTIONS = 6
_UNKNOWN_WINDOW = 32_768
_MAX_INPUT_TOKENS = 100_000
_OFFLINE_PROVIDER = "offline"


class UnusableSummary(OdinError):
    """The model answered, but not with a summary."""


async def summarize(
    keeper: ContextBudget, planner: Planner, messages: Sequence[Message], earlier: str, focus: str, most: int
) -> str:
    """A summary of the messages and of the earlier one, of at most about `most` tokens; "" when there is no model.

    A conversation that does not fit one question is asked about in portions, each with the summary of those before.
    """
    provider, info = await keeper.deps.connect_summarizer(planner)
    if info.provider == _OFFLINE_PROVIDER:
        return ""
    window = keeper.deps.windows.window_of(info) or _UNKNOWN_WINDOW
    room = max(1_000, min(_MAX_INPUT_TOKENS, window * 6 // 10 - most))
    job = msgspec.structs.replace(COMPACTION_JOB, max_tokens=max(512, min(COMPACTION_JOB.max_tokens, window // 4)))
    text = earlier
    for portion in split_into_portions(messages, room, MAX_PORTIONS):
        text = await _ask_model(keeper, provider, info, job, _build_question(portion, text, focus, most))
        why = find_weakness(text, most * 2)
        if why:
            raise UnusableSummary(f"The summary was not usable: {why}.")
    return render_sections(parse_sections(text))


async def _ask_model(keeper: ContextBudget, provider: Provider, info: ModelInfo, job: SmallJob, question: str) -> str:
    async def connect() -> tuple[Provider, ModelInfo]:
        return provider, info

    return await SmallModel(connect, keeper.deps.recorder, keeper.deps.budget).ask(job, question, keeper.agent)


def _build_question(portion: str, earlier: str, focus: str, most: int) -> str:
    parts = [f"Write at most {most * 3 // 4} words."]
    if focus:
        parts.append(f"What matters most: {focus}")
    if earlier:
        parts.append(f"=====> the summary of what came before\n{earlier}")
    parts.append(f"=====> the conversation\n{portion}")
    return "\n\n".join(parts)
