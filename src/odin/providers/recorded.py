"""A recorded session is a provider, too: it says again what the model said then, agent by agent and turn by turn.

What it was asked is not its business: whoever plays a session compares what came of it. Where the recording has nothing
more to say in a turn that was cut off, it stays silent until somebody cuts it off again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

import msgspec

from odin.core import errors
from odin.core.errors import BadReply, ProviderError
from odin.core.message import AssistantMessage, Text, Thinking, Usage, UserMessage
from odin.core.provider import (
    CallPiece,
    Piece,
    Provider,
    Request,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from odin.providers.offline import OfflinePlanner

MARKER = "odin-job: "


class Speech(msgspec.Struct, frozen=True):
    """One reply. `seq` is the number of its event and `turn` the prompt it belongs to.

    `error` names a failure, after what the message holds; `discarded` says why a reply was not stored. With `holds` it
    was never finished.
    """

    seq: int
    turn: str
    message: AssistantMessage | None = None
    usage: Usage = Usage()
    error: str = ""
    words: str = ""
    discarded: str = ""
    holds: bool = False


class Stage(msgspec.Struct, frozen=True):
    """What goes on while a recording speaks.

    `turn` gives the prompt that is being answered, `ready` waits until everything before that event has been done, and
    `silent` is called when there is nothing more to say in a turn that was cut off.
    """

    turn: Callable[[], Awaitable[str]]
    ready: Callable[[int], Awaitable[None]]
    silent: Callable[[str], None]


class Recorded:
    """`speeches` by agent, `tasks` what each sub-agent was told, `cut` the turns that did not come to their end.

    `jobs` are the answers to small jobs, by their names.
    """

    def __init__(
        self,
        speeches: Mapping[str, Iterable[Speech]],
        tasks: Mapping[str, str],
        cut: Iterable[str],
        jobs: Mapping[str, Iterable[str]],
        stage: Stage,
        name: str = "recorded",
    ) -> None:
        self.name = name
        self._speeches: dict[tuple[str, str], deque[Speech]] = {}
        for agent, said in speeches.items():
            for speech in said:
                self._speeches.setdefault((agent, speech.turn), deque()).append(speech)
        self._tasks = tasks
        self._cut = frozenset(cut)
        self._jobs = {job: deque(answers) for job, answers in jobs.items()}
        self._stage = stage
        self._said: dict[str, int] = {}
        self._offline: Provider = OfflinePlanner()

    async def close(self) -> None:
        return

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        job = _job(request)
        if job:
            async for piece in self._small_job(job, request):
                yield piece
            return
        agent = self._whose(request)
        turn = agent or await self._stage.turn()
        left = self._speeches.get((agent, turn))
        if not left:
            if turn not in self._cut:
                raise BadReply("The recording has no reply to this request.", "What happened before it is different.")
            await self._silence(turn)
            return
        speech = left.popleft()
        self._said[agent] = self._said.get(agent, 0) + 1
        await self._stage.ready(speech.seq)
        for piece in _pieces(speech):
            yield piece
        if speech.holds:
            await self._silence(turn)

    async def _silence(self, turn: str) -> None:
        self._stage.silent(turn)
        await asyncio.Event().wait()

    async def _small_job(self, job: str, request: Request) -> AsyncIterator[Piece]:
        answers = self._jobs.get(job)
        if answers:
            yield TextPiece(answers.popleft())
            yield StopPiece("end_turn")
            return
        async for piece in self._offline.stream(request):
            yield piece

    def _whose(self, request: Request) -> str:
        """Sub-agents begin with their task. Of several with the same one, it is the one that has said as much."""
        first = request.messages[0] if request.messages else None
        if not isinstance(first, UserMessage) or any(tool.name == "AgentTool" for tool in request.tools):
            return ""
        answered = sum(isinstance(message, AssistantMessage) for message in request.messages)
        same = [
            agent for agent, task in self._tasks.items() if task == first.text and self._speeches.get((agent, agent))
        ]
        told = [agent for agent in same if self._said.get(agent, 0) == answered]
        return (told or same or [""])[0]


def _job(request: Request) -> str:
    first = request.system[0] if request.system else ""
    return first.split("\n", 1)[0].removeprefix(MARKER) if first.startswith(MARKER) else ""


def _pieces(speech: Speech) -> Iterable[Piece]:
    """The reply as a model would have streamed it. Raises the failure it ended in."""
    if speech.message is not None:
        yield from _spoken(speech.message)
    if speech.usage.total:
        yield UsagePiece(speech.usage)
    if speech.error:
        raise _failure(speech)
    if speech.discarded:
        yield CallPiece(0, "discarded", "Read", '{"file_path": "', done=True)
        yield StopPiece("max_tokens" if "length limit" in speech.discarded else "tool_use")
    elif speech.message is not None and not speech.holds:
        yield StopPiece(speech.message.stop, speech.message.model)


def _spoken(message: AssistantMessage) -> Iterable[Piece]:
    index = 0
    for part in message.parts:
        if isinstance(part, Text):
            yield TextPiece(part.text)
        elif isinstance(part, Thinking):
            yield ThinkingPiece(part.text, part.signature)
        else:
            yield CallPiece(index, part.id, part.name, msgspec.json.encode(part.args).decode(), done=True)
            index += 1


def _failure(speech: Speech) -> ProviderError:
    kind = getattr(errors, speech.error, None)
    if isinstance(kind, type) and issubclass(kind, ProviderError):
        return kind(speech.words)
    return ProviderError(speech.words)
