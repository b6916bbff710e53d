"""One prompt, one answer: standard output carries the answer or its JSON and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Protocol, TextIO

import msgspec

from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope, ThinkingEnded, TurnEnded
from odin.core.op import Prompt
from odin.ui.ending import NOWHERE, READER_GONE, exit_code, sentence
from odin.ui.pipes import Output
from odin.ui.progress import Progress
from odin.ui.question.dialog import Questions
from odin.ui.stopping import Stopping
from odin.ui.telling import Telling
from odin.ui.terminal import harmless, put, say

_WORTH_TELLING_S = 1.0
"""Shorter thoughts leave no line in a conversation."""


class Written(Protocol):
    """An answer that is shown while it is written."""

    @property
    def broken(self) -> bool: ...

    def see(self, envelope: Envelope) -> None: ...

    def write(self) -> None: ...

    def end(self, ended: TurnEnded) -> None: ...


class Keyboard(Protocol):
    """Where somebody may type while a turn runs, beside its progress."""

    def attach(self, progress: Progress) -> None: ...

    def detach(self) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...


async def run_text(
    client: Client,
    prompt: Prompt,
    *,
    out: TextIO | None,
    err: TextIO | None,
    tty_in: TextIO | None = None,
    first: bool = True,
    begun: AsyncIterator[Envelope] | None = None,
    verbose: bool = False,
    keyboard: Keyboard | None = None,
    answer: Written | None = None,
    watch: Callable[[Envelope], None] | None = None,
    after: Callable[[], None] | None = None,
) -> int:
    """Print the answer. Why a turn ended early is said on `err`; text it has until then is printed all the same.

    What there is to say about the session is said with the `first` prompt only, and more of it when `verbose`. `begun`
    is what happens in a turn that nobody has to ask for any more. `keyboard` is where somebody may type meanwhile, and
    `answer` shows the text while it is written; `watch` sees what happens, too; `after` takes the signals over again.
    """
    run = _Run(client, err, tty_in, first, verbose, keyboard, answer, after)
    if out is None:
        return run.refuse()
    ended = await run.follow(prompt, watch, begun=begun)
    if ended is None:
        return run.code
    if answer is not None:
        answer.end(ended)
        return READER_GONE if answer.broken else await run.deliver(ended, out, b"")
    text = harmless(ended.text) if out.isatty() else ended.text
    data = text.rstrip("\n") + "\n" if text else ""
    return await run.deliver(ended, out, data.encode(out.encoding or "utf-8", "replace"))


async def run_json(
    client: Client,
    prompt: Prompt,
    *,
    out: TextIO | None,
    err: TextIO | None,
    tty_in: TextIO | None = None,
    verbose: bool = False,
) -> int:
    """Print the result message as one JSON object. An error is in it and on `err`."""
    from odin.ui.stream.messages import Translator  # the text format starts faster without it

    run = _Run(client, err, tty_in, verbose=verbose)
    if out is None:
        return run.refuse()
    translator = Translator(await client.info())
    messages: list[dict[str, Any]] = []

    def translate(envelope: Envelope) -> None:
        messages[:] = translator.messages(envelope)

    ended = await run.follow(prompt, translate)
    if ended is None:
        return run.code
    return await run.deliver(ended, out, msgspec.json.encode(messages[-1]) + b"\n")


class _Run:
    """Follows one turn to its end while the terminal shows what happens."""

    def __init__(
        self,
        client: Client,
        err: TextIO | None,
        tty_in: TextIO | None,
        first: bool = True,
        verbose: bool = False,
        keyboard: Keyboard | None = None,
        answer: Written | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self.code = 0
        self._first = first
        self._verbose = verbose
        self._client = client
        self._err = err
        self._progress = Progress(err, keep_calls=keyboard is not None)
        self._telling = Telling(failures=keyboard is not None)
        self._keyboard = keyboard
        self._answer = answer
        self._after = after
        held = keyboard or self._progress
        self._questions = Questions(client, tty_in, err, held) if tty_in is not None else None

    def refuse(self) -> int:
        """Somebody closed standard output before we began."""
        put(self._err, f"{NOWHERE}\n")
        return READER_GONE

    async def follow(
        self,
        prompt: Prompt,
        watch: Callable[[Envelope], None] | None = None,
        begun: AsyncIterator[Envelope] | None = None,
    ) -> TurnEnded | None:
        """The end of the turn, or None when we left without it; `code` is then the exit code."""
        with Stopping(self._client, queue="join" if self._keyboard else "rest", after=self._after) as stopping:
            watches = (stopping.see, watch) if watch is not None else (stopping.see,)
            events = begun or self._client.events()
            if begun is None:
                await self._client.submit(prompt)
            self._introduce(await self._client.info())
            pump = asyncio.get_running_loop().create_task(self._pump(events, prompt.id, watches))
            try:
                await asyncio.wait({pump, stopping.gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pump.cancel()
                await self._quiet()
            self.code = stopping.code
            ended = pump.result() if pump.done() and not pump.cancelled() else None
        if ended is None and not self.code:
            self.code = 1
            put(self._err, "The session was closed before the answer was complete.\n")
        return ended

    async def deliver(self, ended: TurnEnded, out: TextIO, data: bytes) -> int:
        """Write the answer to the last byte, however slow its reader is."""
        out.flush()
        output = Output(out.fileno())
        output.write(data)
        if not await output.drain():
            return READER_GONE
        if said := sentence(ended):
            for line in said.split("\n"):
                say(self._err, line)
        return self.code or exit_code(ended)

    def _introduce(self, info: SessionInfo) -> None:
        more = f"Commands run in {info.sandbox}." if self._verbose and info.sandbox else ""
        for line in (info.notice, *info.warnings, more) if self._first else ():
            if line:
                self._progress.line(line)
        self._progress.start()
        if self._keyboard is not None:
            self._keyboard.attach(self._progress)

    async def _pump(
        self, events: AsyncIterator[Envelope], prompt_id: str, watches: Iterable[Callable[[Envelope], None]]
    ) -> TurnEnded | None:
        async for envelope in events:
            for watch in watches:
                watch(envelope)
            event = envelope.event
            if isinstance(event, TurnEnded) and event.id == prompt_id:
                return event
            self._show(envelope)
        return None

    def _show(self, envelope: Envelope) -> None:
        if self._answer is not None:
            self._answer.see(envelope)
        self._progress.see(envelope)
        if isinstance(envelope.event, ThinkingEnded):
            self._show_thought(envelope.event, envelope.agent)
        if line := self._telling.line(envelope):
            self._line(line)
        if self._questions is not None:
            self._questions.see(envelope)

    def _line(self, line: str) -> None:
        """Below what has come of the answer."""
        if self._answer is not None:
            self._answer.write()
        self._progress.line(line)

    def _show_thought(self, thought: ThinkingEnded, agent: str) -> None:
        if not self._verbose:
            if self._keyboard is not None and not agent and thought.seconds >= _WORTH_TELLING_S:
                self._line(f"· Thought for {thought.seconds:.0f} s")
            return
        self._progress.line(f"Thought for {thought.seconds:.0f} s:")
        for line in thought.text.strip().split("\n"):
            self._progress.line(f"  {line}")

    async def _quiet(self) -> None:
        if self._questions is not None:
            await self._questions.close()
        if self._keyboard is not None:
            self._keyboard.detach()
        self._progress.close()
