"""Runs one turn and prints its answer: only the answer, or its JSON, goes to standard output."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from msgspec import Struct

from odin.core.call_events import PlanAsked, ThinkingEnded
from odin.core.client import Client
from odin.core.event import Envelope, TurnEnded, WorkEnded
from odin.core.op import Answer, Prompt
from odin.core.prompt_follower import PromptFollower
from odin.core.text import SAID_ONCE
from odin.ui.exit import (
    ALL_DENIED,
    EXIT_DENIED,
    EXIT_READER_GONE,
    OUTPUT_CLOSED,
    StopSignals,
    describe_ending,
    describe_verification,
    get_exit_code,
    report_broken_output,
    suggest_next_step,
)
from odin.ui.pipes import PipeWriter
from odin.ui.progress import EventLines, ProgressLine
from odin.ui.terminal import escape_control, escape_json, write_line, write_text

if TYPE_CHECKING:
    from odin.ui.plain.dialog_queue import TerminalDialogs
    from odin.ui.plain.keyboard import Keyboard
    from odin.ui.plain.turn_output import StreamedAnswer

_MIN_THOUGHT_S = 1.0
"""Plain mode prints no line for shorter thinking."""

_HEAD_START_S = 0.02
"""The request is sent first; what is known of the session is collected and printed while the model works."""


class StartedTurn(Struct, frozen=True):
    """A turn of plain mode, which is already running.

    `on_event` also receives the events; `stopping` stops it. Warnings of the session are printed with its `first` turn.
    """

    events: AsyncIterator[Envelope]
    keyboard: "Keyboard"
    answer: "StreamedAnswer"
    on_event: Callable[[Envelope], None]
    stopping: StopSignals
    dialogs: "TerminalDialogs"
    first: bool = True


async def run_text(
    client: Client,
    prompt: Prompt,
    *,
    out: TextIO | None,
    err: TextIO | None,
    tty_in: TextIO | None = None,
    verbose: bool = False,
    started: StartedTurn | None = None,
    owns_process: bool = False,
) -> int:
    """Send the prompt, unless its turn has already `started`, and print the answer. Return the exit code.

    If the turn fails, its text so far is printed, and the reason goes to `err`; so does the text if the answer should
    match a schema. If it `owns_process`, signals end it.
    """
    run = _TurnRun(client, err, tty_in, verbose=verbose, started=started, owns_process=owns_process)
    if out is None:
        return run.report_closed_output()
    ended = await run.follow(prompt, started.on_event if started is not None else None)
    if ended is None:
        return run.code
    if started is not None:
        started.answer.finish(ended)
        if started.answer.broken:
            return report_broken_output(started.answer.error, err)
        return await run.deliver(ended, out, b"")
    text = escape_control(ended.text) if out.isatty() else ended.text
    if prompt.output_schema is not None and ended.structured_output is None:  # a program expects JSON or nothing
        write_text(err, f"{escape_control(ended.text)}\n" if text else "")
        text = ""
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
    owns_process: bool = False,
) -> int:
    """Send the prompt and print the result message as one JSON object. Return the exit code."""
    from odin.ui.stream_json.translator import StreamTranslator  # the text format starts faster without it

    run = _TurnRun(client, err, tty_in, verbose=verbose, owns_process=owns_process)
    if out is None:
        return run.report_closed_output()
    translator = StreamTranslator(await client.get_info())
    results: list[dict[str, Any]] = []

    def translate(envelope: Envelope) -> None:
        results.extend(one for one in translator.translate(envelope) if one["type"] == "result")

    ended = await run.follow(prompt, translate)
    if ended is None:
        return run.code
    data = msgspec.json.encode(results[-1])
    return await run.deliver(ended, out, (escape_json(data) if out.isatty() else data) + b"\n")


class _TurnRun:
    """Follows one turn to its end and shows its progress."""

    def __init__(
        self,
        client: Client,
        err: TextIO | None,
        tty_in: TextIO | None,
        *,
        verbose: bool = False,
        started: StartedTurn | None = None,
        owns_process: bool,
    ) -> None:
        keyboard = started.keyboard if started is not None else None
        self.code = 0
        self._loss = "The session was closed before the answer was complete."
        self._started = started
        self._owns_process = owns_process
        self._verbose = verbose
        self._client = client
        self._err = err
        self._progress = ProgressLine(err, show=keyboard.show_progress if keyboard is not None else None)
        self._event_lines = EventLines(failures=keyboard is not None)
        self._keyboard = keyboard
        self._answer = started.answer if started is not None else None
        self._dialogs = started.dialogs if started is not None else None
        if tty_in is not None and started is None:
            from odin.ui.plain.dialog_queue import TerminalDialogs
            from odin.ui.plain.tty import Tty

            self._dialogs = TerminalDialogs(client, Tty(tty_in, err), self._progress)

    def report_closed_output(self) -> int:
        """Report that standard output is closed. Return the exit code."""
        write_text(self._err, f"{OUTPUT_CLOSED}\n")
        return EXIT_READER_GONE

    async def follow(self, prompt: Prompt, on_event: Callable[[Envelope], None] | None = None) -> TurnEnded | None:
        """Return the end of the prompt's turn, or None if there is no answer; `code` is then the exit code.

        If a headless turn has delegated work, wait for it and return the end of the turn that reads its result.
        """
        started = self._started
        with started.stopping if started else StopSignals(self._client, owns_process=self._owns_process) as stopping:
            watches = (stopping.handle_event, on_event) if on_event is not None else (stopping.handle_event,)
            events = started.events if started is not None else self._client.stream_events()
            if started is None:
                await self._client.submit(prompt)
                await asyncio.sleep(_HEAD_START_S)
            info = await self._client.get_info()
            sandbox = f"Sandbox: {info.sandbox}" if self._verbose and info.sandbox else ""
            first = self._started is None or self._started.first
            for line in (info.notice, *info.warnings, sandbox) if first else ():
                if line and not line.endswith(SAID_ONCE):
                    self._progress.print_line(line)
            if self._keyboard is not None:
                self._keyboard.start_turn()
            self._progress.start()
            pump = asyncio.get_running_loop().create_task(self._pump(events, prompt.id, watches))
            try:
                await asyncio.wait({pump, stopping.abandoned}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pump.cancel()
                if self._dialogs is not None:
                    await self._dialogs.end(main_only=self._started is not None)
                if self._keyboard is not None:
                    self._keyboard.end_turn()
                self._progress.close()
            self.code = stopping.code
            ended = pump.result() if pump.done() and not pump.cancelled() else None
        if ended is None and not self.code:
            self.code = 1
            write_text(self._err, f"{self._loss}\n")
        return ended

    async def deliver(self, ended: TurnEnded, out: TextIO, data: bytes) -> int:
        """Write the answer completely, however slow its reader is. Return the exit code."""
        out.flush()
        output = PipeWriter(out.fileno())
        output.write(data)
        if not await output.drain():
            return report_broken_output(output.error, self._err)
        if checks := describe_verification(ended.verification):
            failed = ended.verification is not None and ended.verification.is_failed
            write_line(self._err, escape_control(checks), "red" if failed else "dim")
        is_chat = self._started is not None  # in which the user knows what he denied
        if ended.all_denied and not is_chat:
            write_line(self._err, ALL_DENIED, "red")
        if message := describe_ending(ended):
            next_step = suggest_next_step(ended) if is_chat else ""
            for line in f"{message} {next_step}".rstrip().split("\n"):
                write_line(self._err, line, "red" if ended.reason == "error" else None)
        code = self.code or get_exit_code(ended)
        return 0 if is_chat and code == EXIT_DENIED else code

    async def _pump(
        self, events: AsyncIterator[Envelope], prompt_id: str, watches: Iterable[Callable[[Envelope], None]]
    ) -> TurnEnded | None:
        follower, ended = PromptFollower(), None
        prompt = follower.follow(prompt_id)
        if self._started is not None:
            prompt.state, prompt.turn = "running", prompt_id
        async for envelope in events:
            for watch in watches:
                watch(envelope)
            event = envelope.event
            follower.apply(envelope)
            if isinstance(event, TurnEnded) and not envelope.agent and prompt.ended is not None:
                ended = event
            if self._started is not None and ended is not None:
                break
            if prompt.loss or (isinstance(event, WorkEnded) and not prompt.is_pending):
                self._loss = prompt.loss
                break
            if isinstance(event, PlanAsked) and self._started is None:  # the plan is the answer
                await self._client.submit(Answer(event.ask_id, "keep_planning", by="headless"))
            else:
                self._show(envelope)
        return ended

    def _show(self, envelope: Envelope) -> None:
        if self._answer is not None:
            self._answer.handle_event(envelope)
        self._progress.handle_event(envelope)
        if isinstance(envelope.event, ThinkingEnded):
            self._show_thought(envelope.event, envelope.agent)
        if line := self._event_lines.format_line(envelope):
            self._print_line(line)
        if self._dialogs is not None:
            self._dialogs.handle_event(envelope)

    def _print_line(self, line: str) -> None:
        """Print a line below the answer so far."""
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
