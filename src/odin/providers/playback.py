"""A provider that replays the recorded replies of a session, agent by agent and turn by turn.

It ignores the request: replay compares the outcome instead. Where a turn was cut off, it stays silent until the turn is
cut off again, so an interrupt happens at the same place.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

import msgspec

from odin.core import errors
from odin.core.errors import BadReply, ProviderError
from odin.core.message import ReplyMessage, Text, Thinking, Usage
from odin.core.provider import CallChunk, Chunk, Provider, Request, StopChunk, TextChunk, ThinkingChunk, UsageChunk
from odin.providers.offline import OfflinePlanner

JOB_MARKER = "odin-job: "


class RecordedReply(msgspec.Struct, frozen=True):
    """One reply. `seq` is its event number.

    `error` names the failure after the message; `discarded` says why a reply was not stored. `is_unfinished`: it was
    cut off.
    """

    seq: int
    message: ReplyMessage | None = None
    usage: Usage = Usage()
    error: str = ""
    error_text: str = ""
    discard_reason: str = ""
    is_unfinished: bool = False


class PlaybackHooks(msgspec.Struct, frozen=True):
    """Callbacks of a replay.

    `turn` returns the current prompt, `ready` waits until everything before an event has happened, and `silent` is
    called when a cut-off turn has nothing more to say.
    """

    get_turn: Callable[[], Awaitable[str]]
    wait_ready: Callable[[int], Awaitable[None]]
    on_silence: Callable[[str], None]


class RecordedProvider:
    """`replies` by agent and turn; `interrupted` are the turns that were cut off.

    `jobs` are the answers to small jobs by name.
    """

    def __init__(
        self,
        replies: Mapping[tuple[str, str], Iterable[RecordedReply]],
        interrupted: Iterable[str],
        jobs: Mapping[str, Iterable[str]],
        hooks: PlaybackHooks,
    ) -> None:
        self.name = "recorded"
        self._replies = {place: deque(said) for place, said in replies.items()}
        self._interrupted = frozenset(interrupted)
        self._jobs = {job: deque(answers) for job, answers in jobs.items()}
        self._hooks = hooks
        self._offline: Provider = OfflinePlanner()

    async def close(self) -> None:
        return

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        first = request.system[0] if request.system else ""
        job = first.split("\n", 1)[0].removeprefix(JOB_MARKER) if first.startswith(JOB_MARKER) else ""
        if job:
            async for chunk in self._stream_background_prompt(job, request):
                yield chunk
            return
        agent = request.agent
        turn = self._find_turn(agent) if agent else await self._hooks.get_turn()
        left = self._replies.get((agent, turn))
        if not left:
            if turn not in self._interrupted:
                raise BadReply("The recording has no reply to this request.", "What happened before it is different.")
            await self._wait_for_interrupt(turn)
            return
        speech = left.popleft()
        await self._hooks.wait_ready(speech.seq)
        for chunk in _make_chunks(speech):
            yield chunk
        if speech.is_unfinished:
            await self._wait_for_interrupt(turn)

    def _find_turn(self, agent: str) -> str:
        """Return the first turn of a sub-agent with replies that were not played yet."""
        return next((turn for (name, turn), left in self._replies.items() if name == agent and left), agent)

    async def _wait_for_interrupt(self, turn: str) -> None:
        self._hooks.on_silence(turn)
        await asyncio.Event().wait()

    async def _stream_background_prompt(self, job: str, request: Request) -> AsyncIterator[Chunk]:
        answers = self._jobs.get(job)
        if answers:
            yield TextChunk(answers.popleft())
            yield StopChunk("end_turn")
            return
        async for chunk in self._offline.stream(request):
            yield chunk


def _make_chunks(speech: RecordedReply) -> Iterable[Chunk]:
    """Yield the reply as streamed chunks, then raise its failure, if any."""
    if speech.message is not None:
        index = 0
        for part in speech.message.parts:
            if isinstance(part, Text):
                yield TextChunk(part.text)
            elif isinstance(part, Thinking):
                yield ThinkingChunk(part.text, part.signature)
            else:
                args = msgspec.json.encode(part.args).decode()
                yield CallChunk(index, part.id, part.name, args, done=True, signature=part.signature)
                index += 1
    if speech.usage.total:
        yield UsageChunk(speech.usage)
    if speech.error:
        raise _make_error(speech)
    if speech.discard_reason:
        yield CallChunk(0, "discarded", "Read", '{"file_path": "', done=True)
        yield StopChunk("max_tokens" if "length limit" in speech.discard_reason else "tool_use")
    elif speech.message is not None and not speech.is_unfinished:
        yield StopChunk(speech.message.stop, speech.message.model)


def _make_error(speech: RecordedReply) -> ProviderError:
    kind = getattr(errors, speech.error, None)
    if isinstance(kind, type) and issubclass(kind, ProviderError):
        return kind(speech.error_text)
    return ProviderError(speech.error_text)
