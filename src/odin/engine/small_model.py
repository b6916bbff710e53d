"""The small model: a cheap model for small jobs, such as the title of a session."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from odin.core.errors import EmptyReply, OdinError, ProviderError
from odin.core.event import TitleSet, TurnEnded, UsageRecorded
from odin.core.message import PromptMessage, Usage
from odin.core.provider import ModelInfo, Provider, Request, TextChunk, UsageChunk
from odin.core.small_jobs import TITLE_JOB, SmallJob
from odin.engine.budget import CostBudget
from odin.engine.recorder import Recorder

ConnectModel = Callable[[], Awaitable[tuple[Provider, ModelInfo]]]


class SmallModel:
    """Runs small jobs on the model that `connect` returns: the configured small model, else the offline planner.

    A job is not retried: it raises, and the caller continues without it.
    """

    def __init__(self, connect: ConnectModel, recorder: Recorder, budget: CostBudget) -> None:
        self._connect = connect
        self._recorder = recorder
        self._budget = budget

    async def ask(self, job: SmallJob, text: str, agent: str = "") -> str:
        provider, info = await self._connect()
        self._budget.check(info)
        request = Request(
            model=info.id,
            messages=(PromptMessage(text),),
            system=job.system,
            max_tokens=job.max_tokens,
            schema=job.schema,
        )
        parts: list[str] = []
        usage = Usage()
        try:
            async for piece in provider.stream(request):
                if isinstance(piece, TextChunk):
                    parts.append(piece.text)
                elif isinstance(piece, UsageChunk):
                    usage = piece.usage
        finally:
            if usage.total:
                spent = UsageRecorded(
                    f"{info.provider}/{info.id}", usage, info.cost_of(usage), info.context, job.name, info.free
                )
                self._recorder.emit(spent, agent)
        answer = "".join(parts).strip()
        if not answer:
            raise EmptyReply(f"The small model returned nothing for the job {job.name!r}.")
        return answer

    async def ask_or_default(self, job: SmallJob, text: str, default: str, agent: str = "") -> str:
        """Return the answer, or `default` if the request fails."""
        try:
            return await self.ask(job, text, agent)
        except ProviderError:
            return default


MAX_TITLE = 60
TITLE_DELAY_S = 0.2
"""Delay of the title after the first turn, so that a session with one prompt can end without waiting for it."""


async def give_title(recorder: Recorder, small_model: SmallModel) -> None:
    """Set the title of the session after its first turn. A session that ends before keeps its first line as title."""
    subscription = recorder.bus.subscribe("agent")
    async for envelope in subscription:
        if isinstance(envelope.event, TurnEnded) and not envelope.agent and recorder.state.turns:
            break
    subscription.close()
    await asyncio.sleep(TITLE_DELAY_S)
    turns = recorder.state.turns
    if turns and not recorder.state.title:
        first = turns[0].body
        title = await small_model.ask_or_default(TITLE_JOB, first[:2000], default=first)
        if not recorder.state.title:
            with suppress(OdinError):  # the turn that needs the log reports that it cannot be written
                recorder.emit(TitleSet(" ".join(title.split())[:MAX_TITLE]))
