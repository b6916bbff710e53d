"""One prompt, one answer: standard output carries the answer or its JSON and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Protocol, TextIO

import msgspec

from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope, ThinkingEnded, TurnEnded
from odin.core.op import Prompt
from odin.ui.event_lines import EventLines
from odin.ui.exit import EXIT_READER_GONE, OUTPUT_CLOSED, StopSignals, describe_ending, exit_code_of
from odin.ui.pipes import PipeWriter
from odin.ui.plain.questions import QuestionQueue
from odin.ui.progress import ProgressLine
from odin.ui.terminal import escape_control, write_line, write_text

_MIN_THOUGHT_S = 1.0
"""Shorter thoughts leave no line in a conversation."""


class LiveAnswer(Protocol):
    """An answer that is shown while it is written."""

    @property
    def broken(self) -> bool: ...

    def handle_event(self, envelope: Envelope) -> None: ...

    def flush_lines(self) -> None: ...

    def finish(self, ended: TurnEnded) -> None: ...


class TurnKeyboard(Protocol):
    """Where somebody may type while a turn runs, beside its progress."""

    def attach(self, progress: ProgressLine) -> None: ...

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
    events: AsyncIterator[Envelope] | None = None,
    verbose: bool = False,
    keyboard: TurnKeyboard | None = None,
    answer: LiveAnswer | None = None,
    on_event: Callable[[Envelope], None] | None = None,
    on_finish: Callable[[], None] | None = None,
) -> int:
    """Print the answer. Why a turn ended early is said on `err`; text it has until then is printed all the same.

    What there is to say about the session is said with the `first` prompt only, and more of it when `verbose`. `begun`
    is what happens in a turn that nobody has to ask for any more. `keyboard` is where somebody may type meanwhile, and
    `answer` shows the text while it is written; `watch` sees what happens, too; `after` takes the signals over again.
    """
    run = _TurnRun(client, err, tty_in, first, verbose, keyboard, answer, on_finish)
    if out is None:
        return run.refuse()
    ended = await run.follow(prompt, on_event, started_events=events)
    if ended is None:
        return run.code
    if answer is not None:
        answer.finish(ended)
        return EXIT_READER_GONE if answer.broken else await run.deliver(ended, out, b"")
    text = escape_control(ended.text) if out.isatty() else ended.text
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
    from odin.ui.stream_json.translator import StreamTranslator  # the text format starts faster without it

    run = _TurnRun(client, err, tty_in, verbose=verbose)
    if out is None:
        return run.refuse()
    translator = StreamTranslator(await client.get_info())
    messages: list[dict[str, Any]] = []

    def translate(envelope: Envelope) -> None:
        messages[:] = translator.translate(envelope)

    ended = await run.follow(prompt, translate)
    if ended is None:
        return run.code
    return await run.deliver(ended, out, msgspec.json.encode(messages[-1]) + b"\n")


class _TurnRun:
    """Follows one turn to its end while the terminal shows what happens."""

    def __init__(
        self,
        client: Client,
        err: TextIO | None,
        tty_in: TextIO | None,
        first: bool = True,
        verbose: bool = False,
        keyboard: TurnKeyboard | None = None,
        answer: LiveAnswer | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self.code = 0
        self._first = first
        self._verbose = verbose
        self._client = client
        self._err = err
        self._progress = ProgressLine(err, keep_calls=keyboard is not None)
        self._event_lines = EventLines(failures=keyboard is not None)
        self._keyboard = keyboard
        self._answer = answer
        self._on_finish = after
        held = keyboard or self._progress
        self._questions = QuestionQueue(client, tty_in, err, held) if tty_in is not None else None

    def refuse(self) -> int:
        """Somebody closed standard output before we began."""
        write_text(self._err, f"{OUTPUT_CLOSED}\n")
        return EXIT_READER_GONE

    async def follow(
        self,
        prompt: Prompt,
        on_event: Callable[[Envelope], None] | None = None,
        started_events: AsyncIterator[Envelope] | None = None,
    ) -> TurnEnded | None:
        """The end of the turn, or None when we left without it; `code` is then the exit code."""
        with StopSignals(
            self._client, queue="inject" if self._keyboard else "pause", on_exit=self._on_finish
        ) as stopping:
            watches = (stopping.handle_event, on_event) if on_event is not None else (stopping.handle_event,)
            events = started_events or self._client.stream_events()
            if started_events is None:
                await self._client.submit(prompt)
            self._introduce(await self._client.get_info())
            pump = asyncio.get_running_loop().create_task(self._pump(events, prompt.id, watches))
            try:
                await asyncio.wait({pump, stopping.abandoned}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pump.cancel()
                await self._close_views()
            self.code = stopping.code
            ended = pump.result() if pump.done() and not pump.cancelled() else None
        if ended is None and not self.code:
            self.code = 1
            write_text(self._err, "The session was closed before the answer was complete.\n")
        return ended

    async def deliver(self, ended: TurnEnded, out: TextIO, data: bytes) -> int:
        """Write the answer to the last byte, however slow its reader is."""
        out.flush()
        output = PipeWriter(out.fileno())
        output.write(data)
        if not await output.drain():
            return EXIT_READER_GONE
        if said := describe_ending(ended):
            for line in said.split("\n"):
                write_line(self._err, line)
        return self.code or exit_code_of(ended)

    def _introduce(self, info: SessionInfo) -> None:
        more = f"Commands run in {info.sandbox}." if self._verbose and info.sandbox else ""
        for line in (info.notice, *info.warnings, more) if self._first else ():
            if line:
                self._progress.print_line(line)
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
            self._answer.handle_event(envelope)
        self._progress.handle_event(envelope)
        if isinstance(envelope.event, ThinkingEnded):
            self._show_thought(envelope.event, envelope.agent)
        if line := self._event_lines.format_line(envelope):
            self._print_line(line)
        if self._questions is not None:
            self._questions.handle_event(envelope)

    def _print_line(self, line: str) -> None:
        """Below what has come of the answer."""
        if self._answer is not None:
            self._answer.flush_lines()
        self._progress.print_line(line)

    def _show_thought(self, thought: ThinkingEnded, agent: str) -> None:
        if not self._verbose:
            if self._keyboard is not None and not agent and thought.seconds >= _MIN_THOUGHT_S:
                self._print_line(f"· Thought for {thought.seconds:.0f} s")
            return
        self._progress.print_line(f"Thought for {thought.seconds:.0f} s:")
        for line in thought.text.strip().split("\n"):
            self._progress.print_line(f"  {line}")

    async def _close_views(self) -> None:
        if self._questions is not None:
            await self._questions.close()
        if self._keyboard is not None:
            self._keyboard.detach()
        self._progress.close()
