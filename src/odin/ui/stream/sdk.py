"""The stream-json protocol: messages out as JSON lines, and with lines coming in also prompts and control requests.

It is what agent SDKs speak to the command they start: prompts arrive as `user` lines, each gets one `result`, and both
sides may ask the other something with a `control_request`, answered by a `control_response` of the same id.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TextIO, cast, get_args

import msgspec
from msgspec import Struct

from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError, UnknownMode, UsageError
from odin.core.event import (
    Envelope,
    Mode,
    PermissionAnswered,
    PermissionAsked,
    PromptDropped,
    PromptJoined,
    QuestionsAnswered,
    QuestionsAsked,
    TurnEnded,
    TurnStarted,
)
from odin.core.op import Interrupt, Prompt
from odin.ui.ending import READER_GONE, exit_code
from odin.ui.pipes import Output
from odin.ui.stopping import Stopping
from odin.ui.stream.asking import Asking
from odin.ui.stream.controls import Controls
from odin.ui.stream.hookcalls import HookCalls
from odin.ui.stream.messages import Raw, Translator, new_uuid
from odin.ui.stream.said import said as said_in


async def run_stream(
    client: Client,
    *,
    out: TextIO | None,
    lines_in: AsyncIterator[bytes] | None = None,
    prompt: Prompt | None = None,
    include_partial: bool = False,
    default_mode: Mode = "edit_mode",
    replay_prompts: bool = False,
) -> int:
    """Serve one client until its input ends and every prompt has its result; without input, until `prompt` has it.

    `default_mode` is the mode of a prompt that names none; `replay_prompts` echoes every prompt that was taken.
    """
    if out is None:
        return READER_GONE
    info = await client.info()
    events = client.events()
    translator = Translator(info, partial=include_partial)
    out.flush()
    output = Output(out.fileno())
    with Stopping(client) as stopping:
        stream = _Stream(client, info, translator, output, default_mode, replay_prompts, stopping.see)
        stopping.asked.add_done_callback(lambda _: stream.stop())
        stopping.gone.add_done_callback(lambda _: stream.leave())
        code = await stream.serve(events, lines_in, prompt)
        if not output.broken.done():
            drained = asyncio.ensure_future(output.drain())
            await asyncio.wait({drained, stopping.gone}, return_when=asyncio.FIRST_COMPLETED)
            drained.cancel()
    output.close()
    return stopping.code or (READER_GONE if output.broken.done() else code)


class _Line(Struct):
    """One line of the client; which fields matter depends on the type."""

    type: str
    request_id: str = ""
    request: dict[str, Any] = {}
    response: dict[str, Any] = {}
    message: "_Said | None" = None
    uuid: str | None = None
    mode: str | None = None


class _Said(Struct):
    content: str | list[dict[str, Any]]


class _Stream:
    """One client of one session, for as long as the process lives."""

    def __init__(
        self,
        client: Client,
        info: SessionInfo,
        translator: Translator,
        output: Output,
        mode: Mode,
        replay: bool,
        watch: Callable[[Envelope], None],
    ) -> None:
        self._client = client
        self._info = info
        self._translator = translator
        self._output = output
        self._replay = replay
        self._watch = watch
        self._reads = False
        self._stops = False
        self._prompts: set[str] = set()
        self._running = ""
        self._interrupts_next = False
        self._hooks = HookCalls(client, self._send)
        self._controls = Controls(client, info, mode, hooks=self._hooks, interrupt=self._interrupt, warn=self._warn)
        self._asking = Asking(client, self._send, self._controls.update)
        self._code = 0
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: asyncio.Queue[tuple[_Line | str, int] | None] = asyncio.Queue()
        self._states = _wanted_states()

    async def serve(
        self, events: AsyncIterator[Envelope], lines: AsyncIterator[bytes] | None, prompt: Prompt | None
    ) -> int:
        """Until there is nothing more to do or nobody to do it for. The exit code is that of the last result."""
        self._output.broken.add_done_callback(lambda _: self.leave())
        self._reads = self._asking.open = lines is not None
        try:
            self._spawn(self._pump(events))
            if prompt is not None:
                await self._submit_prompt(prompt)
            if lines is not None:
                self._spawn(self._read(lines))
                self._spawn(self._work())
            self._settle()
            await self._done
        finally:
            for task in self._tasks:
                task.cancel()
        return self._code

    def stop(self) -> None:
        """A signal came: wait for the running turn, which is being interrupted, and for nothing else.

        What waits rests in the log until the session is resumed.
        """
        self._stops = True
        self._prompts &= {self._running}
        self._settle()

    def leave(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _settle(self) -> None:
        """Leave when all that was asked for is done."""
        if not self._prompts and (self._stops or not self._reads):
            self.leave()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._done.done():
            return
        if error := task.exception():
            self._done.set_exception(error)

    def _send(self, message: Raw) -> None:
        self._output.write(msgspec.json.encode(message) + b"\n")

    # --- events out ---

    async def _pump(self, events: AsyncIterator[Envelope]) -> None:
        async for envelope in events:
            self._watch(envelope)
            for message in self._translator.messages(envelope):
                self._send(message)
            await self._follow(envelope)
        self.leave()

    async def _follow(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, PermissionAsked | QuestionsAsked):
            await self._asking.ask(event, envelope.agent)
        elif isinstance(event, PermissionAnswered | QuestionsAnswered):
            self._asking.take_back(event.ask_id)
        elif isinstance(event, PromptDropped | PromptJoined):
            self._forget(event.id)
        elif isinstance(event, TurnStarted) and not envelope.agent:
            self._running = event.id
            if self._interrupts_next:
                self._interrupts_next = False
                await self._client.submit(Interrupt("keep"))
        elif isinstance(event, TurnEnded) and not envelope.agent:
            self._running = ""
            self._code = 0 if event.reason == "interrupted" else exit_code(event)
            self._asking.take_all_back()
            self._forget(event.id)

    def _forget(self, prompt_id: str) -> None:
        """A prompt needs nothing more."""
        self._prompts.discard(prompt_id)
        if not self._prompts:
            self._tell_state("idle")
        self._settle()

    def _tell_state(self, state: str) -> None:
        if self._states is not None:
            self._send(self._translator.note("session_state_changed", state=state, **self._states))

    def _warn(self, text: str) -> None:
        self._send(self._translator.note("warning", text=text))

    async def _interrupt(self) -> None:
        """Stop what runs, or what was just submitted and is about to. What waits has a result of its own to get."""
        if self._running:
            await self._client.submit(Interrupt("keep"))
        else:
            self._interrupts_next = bool(self._prompts)

    # --- lines in ---

    async def _read(self, lines: AsyncIterator[bytes]) -> None:
        """Answers are taken at once, because what came before them may be waiting for one; the rest in its order."""
        number = 0
        async for line in lines:
            number += 1
            if line.strip():
                await self._sort(line, number)
        self._hooks.close()
        await self._asking.close()
        self._lines.put_nowait(None)

    async def _sort(self, line: bytes, number: int) -> None:
        try:
            said = msgspec.json.decode(line, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._lines.put_nowait((f"is not a message: {error}", number))
            return
        if said.type != "control_response":
            self._lines.put_nowait((said, number))
        elif not self._hooks.answered(said.response):
            await self._asking.answered(said.response)

    async def _work(self) -> None:
        while (item := await self._lines.get()) is not None:
            await self._take(*item)
        self._reads = False
        self._settle()

    async def _take(self, said: _Line | str, number: int) -> None:
        if isinstance(said, str):
            self._complain(number, said)
        elif said.type == "user":
            await self._take_prompt(said, number)
        elif said.type == "control_request":
            self._send(await self._controls.answer(said.request_id, said.request))
        elif said.type not in ("control_cancel_request", "keep_alive"):
            self._complain(number, f"has the unknown type {said.type!r}.")

    def _complain(self, number: int, what: str) -> None:
        self._send(self._translator.note("input_error", line=number, error=f"Line {number} of the input {what}"))

    async def _take_prompt(self, said: _Line, number: int) -> None:
        if said.message is None:
            self._complain(number, "is a user line without a message.")
            return
        words = said_in(said.message.content)
        if words.left_out:
            self._warn(f"Left out of the prompt: {', '.join(words.left_out)}.")
        prompt_id = said.uuid if said.uuid and said.uuid not in self._prompts else new_uuid()
        if self._replay:
            message = {"role": "user", "content": said.message.content}
            echo = {"type": "user", "message": message, "parent_tool_use_id": None, "isReplay": True}
            self._send({**echo, "session_id": self._info.session, "uuid": prompt_id})
        try:
            mode = mode_named(said.mode) if said.mode else self._controls.mode
        except UsageError as error:
            self._refuse(prompt_id, error)
            return
        await self._submit_prompt(Prompt(prompt_id, words.text, mode, lane="queue", attached=words.attached))

    async def _submit_prompt(self, prompt: Prompt) -> None:
        if not self._prompts:
            self._tell_state("running")
        self._prompts.add(prompt.id)
        try:
            await self._client.submit(prompt)
        except OdinError as error:
            self._refuse(prompt.id, error)

    def _refuse(self, prompt_id: str, error: OdinError) -> None:
        """A prompt that cannot be taken has its result too."""
        self._send(self._translator.failure(error.sentence(), error.kind, prompt_id))
        self._code = error.exit_code
        self._forget(prompt_id)


def mode_named(name: str) -> Mode:
    """`ask`, `plan`, `edit`, with or without `_mode`."""
    full = name if name.endswith("_mode") else f"{name}_mode"
    if full not in get_args(Mode):
        raise UnknownMode(name)
    return cast("Mode", full)


def _wanted_states() -> Raw | None:
    """SDK clients that want to be told when the session is idle say so in the environment; else they are not."""
    if os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"):
        return {}
    if os.environ.get("CLAUDE_CODE_SDK_READS_SESSION_STATE"):
        return {"sdk_host_only": True}
    return None
