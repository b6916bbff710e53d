"""The lesser model: small jobs that must not cost what the planner costs."""

from collections.abc import Awaitable, Callable

from odin.core.errors import EmptyReply, ProviderError
from odin.core.event import UsageRecorded
from odin.core.job import Job
from odin.core.message import Usage, UserMessage
from odin.core.provider import ModelInfo, Provider, Request, TextPiece, UsagePiece
from odin.engine.budget import Budget
from odin.engine.recorder import Recorder

Connect = Callable[[], Awaitable[tuple[Provider, ModelInfo]]]


class Lesser:
    """Asks the model that `connect` gives: the configured small one, else the offline planner.

    It asks once. A job that fails raises, and its caller goes on without it.
    """

    def __init__(self, connect: Connect, recorder: Recorder, budget: Budget) -> None:
        self._connect = connect
        self._recorder = recorder
        self._budget = budget

    async def ask(self, job: Job, text: str, agent: str = "") -> str:
        provider, info = await self._connect()
        self._budget.check(info)
        request = Request(
            model=info.id,
            messages=(UserMessage(text),),
            system=job.system,
            max_tokens=job.max_tokens,
            schema=job.schema,
        )
        parts: list[str] = []
        usage = Usage()
        try:
            async for piece in provider.stream(request):
                if isinstance(piece, TextPiece):
                    parts.append(piece.text)
                elif isinstance(piece, UsagePiece):
                    usage = piece.usage
        finally:
            if usage.total:
                spent = UsageRecorded(
                    f"{info.provider}/{info.id}", usage, info.cost(usage), info.context, job.name, info.free
                )
                self._recorder.emit(spent, agent)
        answer = "".join(parts).strip()
        if not answer:
            raise EmptyReply(f"The lesser model gave nothing for the job {job.name!r}.")
        return answer

    async def attempt(self, job: Job, text: str, otherwise: str, agent: str = "") -> str:
        """The answer, or `otherwise` when the model cannot be asked."""
        try:
            return await self.ask(job, text, agent)
        except ProviderError:
            return otherwise
