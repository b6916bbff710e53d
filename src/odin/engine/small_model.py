"""The lesser model: small jobs that must not cost what the planner costs.

Gives a session its title once its first turn is over. A session that ends with that turn keeps its first line.
"""

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
    """Asks the model that `connect` gives: the configured small one, else the offline planner.

    It asks once. A job that fails raises, and its caller goes on without it.
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
            raise EmptyReply(f"The lesser model gave nothing for the job {job.name!r}.")
        return answer

    async def ask_or_default(self, job: SmallJob, text: str, default: str, agent: str = "") -> str:
        """The answer, or `otherwise` when the model cannot be asked."""
        try:
            return await self.ask(job, text, agent)
        except ProviderError:
            return default


MAX_TITLE = 60
TITLE_DELAY_S = 0.2
"""A session that answers one prompt and ends is gone by then, and is not held up."""


async def give_title(recorder: Recorder, small_model: SmallModel) -> None:
    subscription = recorder.hub.subscribe("agent")
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
            with suppress(OdinError):  # a log that cannot be written is told by the turn that needs it
                recorder.emit(TitleSet(" ".join(title.split())[:MAX_TITLE]))
