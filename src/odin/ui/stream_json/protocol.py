"""What the content of a user message says: its words, and the pictures that come with them.

The stream-json protocol: messages out as JSON lines, and with lines coming in also prompts and control requests.

It is what agent SDKs speak to the command they start: prompts arrive as `user` lines, each gets one `result`, and both
sides may ask the other something with a `control_request`, answered by a `control_response` of the same id.
"""

import asyncio
import binascii
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
    PromptInjected,
    QuestionsAnswered,
    QuestionsAsked,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Attachment
from odin.core.op import Interrupt, Prompt
from odin.ui.exit import EXIT_READER_GONE, StopSignals, exit_code_of
from odin.ui.pipes import PipeWriter
from odin.ui.stream_json.controls import ControlRequests, HookRequests
from odin.ui.stream_json.permissions import PermissionRequests
from odin.ui.stream_json.translator import Raw, StreamTranslator, make_uuid


class UserContent(Struct, frozen=True):
    """`left_out` are the kinds of blocks that no prompt can hold."""

    text: str
    attached: tuple[Attachment, ...] = ()
    left_out: tuple[str, ...] = ()


def parse_content(content: str | list[dict[str, Any]]) -> UserContent:
    if isinstance(content, str):
        return UserContent(content)
    texts: list[str] = []
    attached: list[Attachment] = []
    left_out: list[str] = []
    for block in content:
        if block.get("type") == "text":
            texts.append(str(block.get("text", "")))
        elif (image := _parse_image(block, len(attached) + 1)) is not None:
            attached.append(image)
        else:
            left_out.append(str(block.get("type")))
    return UserContent("\n".join(texts), tuple(attached), tuple(left_out))


def _parse_image(block: dict[str, Any], number: int) -> Attachment | None:
    """The picture in a block that brings its bytes along; one that is only named by an address is not fetched."""
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return None
    found = cast("dict[str, Any]", source)
    data, kind = found.get("data"), found.get("media_type")
    if found.get("type") != "base64" or not isinstance(data, str) or not isinstance(kind, str):
        return None
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    return Attachment(f"image {number}", data=raw, media_type=kind) if raw and kind.startswith("image/") else None


async def run_stream_json(
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
        return EXIT_READER_GONE
    info = await client.get_info()
    events = client.stream_events()
    translator = StreamTranslator(info, partial=include_partial)
    out.flush()
    output = PipeWriter(out.fileno())
    with StopSignals(client) as stopping:
        stream = _StreamServer(client, info, translator, output, default_mode, replay_prompts, stopping.handle_event)
        stopping.requested.add_done_callback(lambda _: stream.stop())
        stopping.abandoned.add_done_callback(lambda _: stream.finish())
        code = await stream.serve(events, lines_in, prompt)
        if not output.broken.done():
            drained = asyncio.ensure_future(output.drain())
            await asyncio.wait({drained, stopping.abandoned}, return_when=asyncio.FIRST_COMPLETED)
            drained.cancel()
    output.close()
    return stopping.code or (EXIT_READER_GONE if output.broken.done() else code)


class _InputLine(Struct):
    """One line of the client; which fields matter depends on the type."""

    type: str
    request_id: str = ""
    request: dict[str, Any] = {}
    response: dict[str, Any] = {}
    message: "_InputContent | None" = None
    uuid: str | None = None
    mode: str | None = None


class _InputContent(Struct):
    content: str | list[dict[str, Any]]


class _StreamServer:
    """One client of one session, for as long as the process lives."""

    def __init__(
        self,
        client: Client,
        info: SessionInfo,
        translator: StreamTranslator,
        output: PipeWriter,
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
        self._is_reading = False
        self._is_stopping = False
        self._prompts: set[str] = set()
        self._running = ""
        self._interrupts_next = False
        self._hooks = HookRequests(client, self._send)
        self._controls = ControlRequests(
            client, info, mode, hooks=self._hooks, interrupt=self._interrupt, warn=self._warn
        )
        self._permissions = PermissionRequests(client, self._send, self._controls.apply_permission_update)
        self._code = 0
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: asyncio.Queue[tuple[_InputLine | str, int] | None] = asyncio.Queue()
        self._state_fields = _read_state_wish()

    async def serve(
        self, events: AsyncIterator[Envelope], lines: AsyncIterator[bytes] | None, prompt: Prompt | None
    ) -> int:
        """Until there is nothing more to do or nobody to do it for. The exit code is that of the last result."""
        self._output.broken.add_done_callback(lambda _: self.finish())
        self._is_reading = self._permissions.is_open = lines is not None
        try:
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
        """A signal came: wait for the running turn, which is being interrupted, and for nothing else.

        What waits rests in the log until the session is resumed.
        """
        self._is_stopping = True
        self._prompts &= {self._running}
        self._finish_if_done()

    def finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _finish_if_done(self) -> None:
        """Leave when all that was asked for is done."""
        if not self._prompts and (self._is_stopping or not self._is_reading):
            self.finish()

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

    def _send(self, message: Raw) -> None:
        self._output.write(msgspec.json.encode(message) + b"\n")

    # --- events out ---

    async def _pump(self, events: AsyncIterator[Envelope]) -> None:
        async for envelope in events:
            self._watch(envelope)
            for message in self._translator.translate(envelope):
                self._send(message)
            await self._follow(envelope)
        self.finish()

    async def _follow(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, PermissionAsked | QuestionsAsked):
            await self._permissions.ask(event, envelope.agent)
        elif isinstance(event, PermissionAnswered | QuestionsAnswered):
            self._permissions.cancel(event.ask_id)
        elif isinstance(event, PromptDropped | PromptInjected):
            self._finish_prompt(event.id)
        elif isinstance(event, TurnStarted) and not envelope.agent:
            self._running = event.id
            if self._interrupts_next:
                self._interrupts_next = False
                await self._client.submit(Interrupt("keep"))
        elif isinstance(event, TurnEnded) and not envelope.agent:
            self._running = ""
            self._code = 0 if event.reason == "interrupted" else exit_code_of(event)
            self._permissions.cancel_all()
            self._finish_prompt(event.id)

    def _finish_prompt(self, prompt_id: str) -> None:
        """A prompt needs nothing more."""
        self._prompts.discard(prompt_id)
        if not self._prompts:
            self._tell_state("idle")
        self._finish_if_done()

    def _tell_state(self, state: str) -> None:
        if self._state_fields is not None:
            self._send(self._translator.make_note("session_state_changed", state=state, **self._state_fields))

    def _warn(self, text: str) -> None:
        self._send(self._translator.make_note("warning", text=text))

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
                await self._route_line(line, number)
        self._hooks.close()
        await self._permissions.close()
        self._lines.put_nowait(None)

    async def _route_line(self, line: bytes, number: int) -> None:
        try:
            said = msgspec.json.decode(line, type=_InputLine)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._lines.put_nowait((f"is not a message: {error}", number))
            return
        if said.type != "control_response":
            self._lines.put_nowait((said, number))
        elif not self._hooks.take_answer(said.response):
            await self._permissions.take_answer(said.response)

    async def _handle_lines(self) -> None:
        while (item := await self._lines.get()) is not None:
            await self._handle_line(*item)
        self._is_reading = False
        self._finish_if_done()

    async def _handle_line(self, said: _InputLine | str, number: int) -> None:
        if isinstance(said, str):
            self._report_input_error(number, said)
        elif said.type == "user":
            await self._handle_prompt(said, number)
        elif said.type == "control_request":
            self._send(await self._controls.answer(said.request_id, said.request))
        elif said.type not in ("control_cancel_request", "keep_alive"):
            self._report_input_error(number, f"has the unknown type {said.type!r}.")

    def _report_input_error(self, number: int, what: str) -> None:
        self._send(self._translator.make_note("input_error", line=number, error=f"Line {number} of the input {what}"))

    async def _handle_prompt(self, said: _InputLine, number: int) -> None:
        if said.message is None:
            self._report_input_error(number, "is a user line without a message.")
            return
        words = parse_content(said.message.content)
        if words.left_out:
            self._warn(f"Left out of the prompt: {', '.join(words.left_out)}.")
        prompt_id = said.uuid if said.uuid and said.uuid not in self._prompts else make_uuid()
        if self._replay:
            message = {"role": "user", "content": said.message.content}
            echo = {"type": "user", "message": message, "parent_tool_use_id": None, "isReplay": True}
            self._send({**echo, "session_id": self._info.session, "uuid": prompt_id})
        try:
            mode = parse_mode(said.mode) if said.mode else self._controls.mode
        except UsageError as error:
            self._refuse(prompt_id, error)
            return
        await self._submit_prompt(Prompt(prompt_id, words.text, mode, delivery="queue", attachments=words.attached))

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
        self._send(self._translator.make_failure(error.describe(), error.kind, prompt_id))
        self._code = error.exit_code
        self._finish_prompt(prompt_id)


def parse_mode(name: str) -> Mode:
    """`ask`, `plan`, `edit`, with or without `_mode`."""
    full = name if name.endswith("_mode") else f"{name}_mode"
    if full not in get_args(Mode):
        raise UnknownMode(name)
    return cast("Mode", full)


def _read_state_wish() -> Raw | None:
    """SDK clients that want to be told when the session is idle say so in the environment; else they are not."""
    if os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"):
        return {}
    if os.environ.get("CLAUDE_CODE_SDK_READS_SESSION_STATE"):
        return {"sdk_host_only": True}
    return None
