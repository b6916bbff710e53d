"""Serves a program that exchanges lines with one session over two pipes; the base of stream-json and JSON lines."""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal, TextIO, cast, get_args

from odin.core.client import Client, Snapshot
from odin.core.errors import OdinError, UnknownMode
from odin.core.event import Envelope, TurnEnded, TurnStarted, WorkEnded
from odin.core.event_values import ExitReason, Mode
from odin.core.op import Interrupt, Prompt
from odin.core.prompt_follower import PromptFollower
from odin.ui.exit import StopSignals, get_exit_code, report_broken_output
from odin.ui.pipes import PipeWriter

INPUT_CLOSED = "No answer: the input was closed."

Outcome = Literal["completed", "cancelled", "error"]

_OUTCOMES: dict[ExitReason, Outcome] = {"end_turn": "completed", "interrupted": "cancelled", "aborted": "cancelled"}


def get_outcome(ended: TurnEnded) -> Outcome:
    return _OUTCOMES.get(ended.reason, "error")


def parse_mode(name: str) -> Mode:
    """Parse `ask`, `plan` or `edit`, with or without `_mode`. Raise UnknownMode."""
    full = name if name.endswith("_mode") else f"{name}_mode"
    if full not in get_args(Mode):
        raise UnknownMode(name)
    return cast("Mode", full)


class LineServer(ABC):
    """Serves one client of one session, until its input ends and nothing works any more.

    `watch` is called with every event. A subclass writes what the program is told, and handles its lines.
    """

    def __init__(self, client: Client, output: PipeWriter, watch: Callable[[Envelope], None]) -> None:
        self._client = client
        self._output = output
        self._watch = watch
        self._is_reading = False
        self._has_program = False
        self._is_stopping = False
        self._is_idle_told = True
        self._last_outcome: Outcome = "completed"
        """How the last turn of the main agent ended."""
        self._follower = PromptFollower()
        """Follows the prompts of this program that have no answer yet."""
        self._next_interrupt: Interrupt | None = None
        self._code = 0
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ordered: asyncio.Queue[Callable[[], Awaitable[None]] | None] = asyncio.Queue()

    # --- what a subclass adds ---

    @abstractmethod
    async def start(self, shot: Snapshot) -> None:
        """Tell what the program should know first: the session may be at work already, and wait for answers."""

    @abstractmethod
    async def tell_event(self, envelope: Envelope) -> None: ...

    @abstractmethod
    def tell_idle(self) -> None:
        """Nothing works any more. Called whenever that may be news."""

    @abstractmethod
    async def route_line(self, line: bytes, number: int) -> None:
        """Handle a line at once, or add it to `_ordered`: those are handled in their order, one after the other."""

    @abstractmethod
    def close_input(self) -> None:
        """The input ended: nobody answers any more."""

    @abstractmethod
    def refuse(self, prompt_id: str, error: OdinError) -> None:
        """Tell that a prompt was not accepted, or removed by another client."""

    # --- the run ---

    async def serve(
        self, events: AsyncIterator[Envelope], lines: AsyncIterator[bytes] | None, prompt: Prompt | None
    ) -> int:
        """Serve until all work is done or the program is gone. Return the exit code of the last turn."""
        self._output.broken.add_done_callback(lambda _: self.finish())
        self._is_reading = self._has_program = lines is not None
        try:
            shot = await self._client.snapshot()
            self._follower.is_working, self._follower.running = shot.is_working, shot.running_turn
            self._is_idle_told = not shot.is_working
            await self.start(shot)
            self._spawn(self._pump(events))
            if prompt is not None:
                await self._submit_prompt(prompt)
            if lines is not None:
                self._spawn(self._read(lines))
                self._spawn(self._handle_lines())
            self._finish_if_done()
            await self._done
        finally:
            for task in self._tasks:
                task.cancel()
        return self._code

    def stop(self) -> None:
        """After a signal, wait only for the running turn, which is being interrupted.

        Queued prompts stay paused in the log until the session is resumed.
        """
        self._is_stopping = True
        for prompt in tuple(self._follower.prompts.values()):
            if prompt.agent or prompt.state != "running":
                self._follower.forget(prompt.id)
        self._finish_if_done()

    def finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    @property
    def _expects_more(self) -> bool:
        """True if a prompt has no answer yet, or lines can still come."""
        return self._follower.is_waiting or (self._is_reading and not self._is_stopping)

    def _finish_if_done(self) -> None:
        """Finish if every prompt has its answer, no more input can come, and nothing works any more."""
        if self._expects_more or self._done.done():
            return
        if not self._is_stopping:
            if self._follower.is_working:
                return
            self.tell_idle()
        self.finish()

    def _note_end(self) -> None:
        """A prompt or all work has ended."""
        if not self._follower.is_waiting:
            self._next_interrupt = None
            if not self._follower.is_working:
                self.tell_idle()
        self._finish_if_done()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._report_failure)

    def _report_failure(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._done.done():
            return
        if error := task.exception():
            self._done.set_exception(error)

    # --- events out ---

    async def _pump(self, events: AsyncIterator[Envelope]) -> None:
        async for envelope in events:
            self._watch(envelope)
            await self.tell_event(envelope)
            await self._follow(envelope)
        self.finish()

    async def _follow(self, envelope: Envelope) -> None:
        event, changed = envelope.event, self._follower.apply(envelope)
        if isinstance(event, TurnStarted):
            self._is_idle_told = False
            if not envelope.agent and (op := self._next_interrupt) is not None:
                self._next_interrupt = None
                await self._client.submit(op)
        elif isinstance(event, TurnEnded) and not envelope.agent:
            self._last_outcome = get_outcome(event)
            # A program that sends the prompts reads about checks and denials; SDKs raise for other codes.
            is_well = event.reason == "interrupted" or (event.reason == "end_turn" and self._has_program)
            self._code = 0 if is_well else get_exit_code(event)
        for prompt in changed:
            if prompt.state == "dropped":  # by another client
                self.refuse(prompt.id, OdinError(prompt.loss))
            elif prompt.state in ("ended", "unanswered"):
                self._finish_prompt(prompt.id)
        if isinstance(event, WorkEnded):
            self._note_end()

    def _finish_prompt(self, prompt_id: str) -> None:
        self._follower.forget(prompt_id)
        self._note_end()

    async def _submit_prompt(self, prompt: Prompt) -> None:
        self._follower.follow(prompt.id, prompt.agent)
        try:
            await self._client.submit(prompt)
        except OdinError as error:
            self.refuse(prompt.id, error)

    async def _interrupt(self, op: Interrupt) -> bool:
        """Interrupt the running turn, or the next one if a prompt was just submitted; else stop the sub-agents.

        Return False if nothing works.
        """
        waiting = self._follower.prompts.values()
        if not self._follower.running and any(not one.agent and one.state == "submitted" for one in waiting):
            self._next_interrupt = op
            return True
        is_stopped = await self._client.submit(op)
        if is_stopped:
            self._last_outcome = "cancelled"
        return is_stopped

    # --- lines in ---

    async def _read(self, lines: AsyncIterator[bytes]) -> None:
        number = 0
        async for line in lines:
            number += 1
            if line.strip():
                await self.route_line(line, number)
        self.close_input()
        self._client.set_answering(False, INPUT_CLOSED)
        self._ordered.put_nowait(None)

    async def _handle_lines(self) -> None:
        while (handle := await self._ordered.get()) is not None:
            await handle()
        self._is_reading = False
        self._finish_if_done()


MakeServer = Callable[[PipeWriter, Callable[[Envelope], None]], LineServer]


async def run_server(
    make: MakeServer,
    client: Client,
    *,
    events: AsyncIterator[Envelope],
    out: TextIO,
    lines_in: AsyncIterator[bytes] | None,
    prompt: Prompt | None,
    owns_process: bool,
) -> int:
    """Serve until the end, and write everything. Return the exit code. If it `owns_process`, signals end it."""
    out.flush()
    output = PipeWriter(out.fileno())
    with StopSignals(client, owns_process=owns_process) as stopping:
        server = make(output, stopping.handle_event)
        stopping.requested.add_done_callback(lambda _: server.stop())
        stopping.abandoned.add_done_callback(lambda _: server.finish())
        code = await server.serve(events, lines_in, prompt)
        if not output.broken.done():
            drained = asyncio.ensure_future(output.drain())
            await asyncio.wait({drained, stopping.abandoned}, return_when=asyncio.FIRST_COMPLETED)
            drained.cancel()
    output.close()
    if stopping.code or not output.broken.done():
        return stopping.code or code
    return report_broken_output(output.error, sys.stderr)
