"""The protocol between an agent SDK and the `odin` process it starts.

Messages go out as JSON lines. Prompts arrive as `user` lines, and each gets one `result`. Both sides may send a
`control_request`, which the other answers with a `control_response` of the same ID.
"""

import asyncio
import binascii
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TextIO, cast, get_args

import msgspec
from msgspec import Struct

from odin.core.call_events import AnswerEvent, AskEvent
from odin.core.client import Client, SessionInfo
from odin.core.errors import OdinError, UnknownMode, UsageError
from odin.core.event import Envelope, ModeChanged, PromptDropped, PromptInjected, TurnEnded, TurnStarted
from odin.core.event_values import ExitReason, Mode
from odin.core.interaction import make_interaction
from odin.core.message import Attachment
from odin.core.op import Interrupt, Prompt
from odin.ui.exit import EXIT_READER_GONE, StopSignals, get_exit_code, report_broken_output
from odin.ui.pipes import PipeWriter
from odin.ui.stream_json.agent_messages import list_agent_types
from odin.ui.stream_json.controls import ControlRequests, HookRequests
from odin.ui.stream_json.permissions import PermissionRequests
from odin.ui.stream_json.translator import Raw, StreamTranslator, make_uuid


class UserContent(Struct, frozen=True):
    """The text and images of a user message. `left_out` are the types of unsupported blocks."""

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
    """Return the image of a base64 block, or None. Images given by URL are not fetched."""
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return None
    fields = cast("dict[str, Any]", source)
    data, kind = fields.get("data"), fields.get("media_type")
    if fields.get("type") != "base64" or not isinstance(data, str) or not isinstance(kind, str):
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
    output_schema: Raw | None = None,
    owns_process: bool = False,
) -> int:
    """Serve one client until its input ends and every prompt has a result. Return the exit code.

    `default_mode` is the mode of prompts that name none; `replay_prompts` echoes every accepted prompt. Answers match
    the `output_schema`. If it `owns_process`, signals end it.
    """
    if out is None:
        return EXIT_READER_GONE
    info = await client.get_info()
    events = client.stream_events()
    translator = StreamTranslator(info, partial=include_partial)
    translator.agent_types = await list_agent_types(client)
    out.flush()
    output = PipeWriter(out.fileno())
    with StopSignals(client, owns_process=owns_process) as stopping:
        stream = _StreamServer(
            client, info, translator, output, default_mode, output_schema, replay_prompts, stopping.handle_event
        )
        stopping.requested.add_done_callback(lambda _: stream.stop())
        stopping.abandoned.add_done_callback(lambda _: stream.finish())
        code = await stream.serve(events, lines_in, prompt)
        if not output.broken.done():
            drained = asyncio.ensure_future(output.drain())
            await asyncio.wait({drained, stopping.abandoned}, return_when=asyncio.FIRST_COMPLETED)
            drained.cancel()
    output.close()
    if stopping.code or not output.broken.done():
        return stopping.code or code
    return report_broken_output(output.error, sys.stderr)


_IDLE_CHECK_S = 0.1
"""Interval of the checks for the end of delegated work."""

_OUTCOMES: dict[ExitReason, str] = {"end_turn": "completed", "interrupted": "cancelled", "aborted": "cancelled"}
"""How the last turn of the main agent ended, for the `idle` message. Everything else is an error."""


class _InputLine(Struct):
    """One input line. Which fields are used depends on the type."""

    type: str
    request_id: str = ""
    request: dict[str, Any] = {}
    response: dict[str, Any] = {}
    message: "_InputContent | None" = None
    uuid: str | None = None
    mode: str | None = None
    temperature: float | None = None
    max_tokens: int = 0


class _InputContent(Struct):
    content: str | list[dict[str, Any]]


class _StreamServer:
    """Serves one client of one session."""

    def __init__(
        self,
        client: Client,
        info: SessionInfo,
        translator: StreamTranslator,
        output: PipeWriter,
        mode: Mode,
        output_schema: Raw | None,
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
        self._is_awaiting_team = False
        self._is_idle_told = True
        self._last_outcome = "completed"
        self._state = ""
        self._prompts: set[str] = set()
        self._running = ""
        self._interrupt_next_turn = False
        self._hooks = HookRequests(client, self._send)
        self._hooks.connect_servers(info.servers)
        self._controls = ControlRequests(
            client, info, mode, output_schema, hooks=self._hooks, interrupt=self._interrupt, warn=self._warn
        )
        self._permissions = PermissionRequests(client, self._send, self._controls.apply_permission_update)
        self._code = 0
        self._has_program = False
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: asyncio.Queue[tuple[_InputLine | str, int] | None] = asyncio.Queue()
        self._state_fields = _read_state_fields()

    async def serve(
        self, events: AsyncIterator[Envelope], lines: AsyncIterator[bytes] | None, prompt: Prompt | None
    ) -> int:
        """Serve until all work is done or the client is gone. Return the exit code of the last result."""
        self._output.broken.add_done_callback(lambda _: self.finish())
        self._is_reading = self._has_program = self._permissions.is_open = lines is not None
        try:
            # The session may be at work already, and wait for answers.
            shot = await self._client.snapshot()
            self._translator.mode = shot.agent_mode if shot.executing else self._translator.mode
            for interaction in shot.interactions:
                self._permissions.ask(interaction)
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
        self._prompts &= {self._running}
        self._finish_if_done()

    def finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _finish_if_done(self) -> None:
        """Finish if every prompt has its result, no more input can come, and no delegated work goes on."""
        if self._prompts or (self._is_reading and not self._is_stopping) or self._done.done():
            return
        if self._is_stopping:
            self.finish()
        else:
            self._await_idle()

    def _await_idle(self) -> None:
        if not self._is_awaiting_team:
            self._is_awaiting_team = True
            self._spawn(self._tell_when_idle())

    @property
    def _has_turns(self) -> bool:
        return bool(self._running or self._prompts)

    async def _tell_when_idle(self) -> None:
        """Tell the client that nothing works any more, sub-agents included, unless the last result has said so.

        Stop waiting while there is a turn or a prompt: its end starts this again.
        """
        while not self._has_turns and await self._client.is_working():  # noqa: ASYNC110 (some ends have no event)
            await asyncio.sleep(_IDLE_CHECK_S)
        self._is_awaiting_team = False
        if self._has_turns:
            return
        if not self._is_idle_told:
            self._is_idle_told = True
            self._send(self._translator.make_note("idle", last_outcome=self._last_outcome))
        self._tell_state("idle", last_outcome=self._last_outcome)
        if not self._is_reading:
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
        self._output.write_json(msgspec.json.encode(message))

    # --- events out ---

    async def _pump(self, events: AsyncIterator[Envelope]) -> None:
        async for envelope in events:
            self._watch(envelope)
            if isinstance(envelope.event, TurnEnded) and not envelope.agent:
                self._translator.is_quiet = self._is_idle_told = not await self._client.is_working()
            for message in self._translator.translate(envelope):
                self._send(message)
            await self._follow(envelope)
        self.finish()

    async def _follow(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, AskEvent):
            self._permissions.ask(make_interaction(event, envelope.agent))
        elif isinstance(event, AnswerEvent):
            self._permissions.cancel(event.ask_id)
        elif isinstance(event, PromptDropped) and event.id in self._prompts:  # another client has dropped it
            self._refuse(event.id, OdinError("The prompt was removed from the queue."))
        elif isinstance(event, PromptInjected):
            self._finish_prompt(event.id)
        elif isinstance(event, TurnStarted) and not envelope.agent:
            self._running = event.id
            self._is_idle_told = False
            if self._interrupt_next_turn:
                self._interrupt_next_turn = False
                await self._client.submit(Interrupt("keep"))
        elif isinstance(event, ModeChanged) and not envelope.agent:
            self._controls.mode = event.mode
        elif isinstance(event, TurnEnded) and not envelope.agent:
            self._running = ""
            self._last_outcome = _OUTCOMES.get(event.reason, "error")
            # A program that sends the prompts reads about checks and denials in the result; SDKs raise for other codes.
            is_well = event.reason == "interrupted" or (event.reason == "end_turn" and self._has_program)
            self._code = 0 if is_well else get_exit_code(event)
            self._finish_prompt(event.id)

    def _finish_prompt(self, prompt_id: str) -> None:
        self._prompts.discard(prompt_id)
        if not self._prompts:
            self._await_idle()
        self._finish_if_done()

    def _tell_state(self, state: str, **more: Any) -> None:
        if self._state_fields is not None and state != self._state:
            fields = {"state": state, **more, **self._state_fields}
            self._send(self._translator.make_note("session_state_changed", **fields))
        self._state = state

    def _warn(self, text: str) -> None:
        self._send(self._translator.make_note("warning", text=text))

    async def _interrupt(self) -> None:
        """Interrupt the running turn, or the next one if a prompt was just submitted. Queued prompts still run.

        While only sub-agents work, stop them.
        """
        if self._running:
            await self._client.submit(Interrupt("keep"))
        elif self._prompts:
            self._interrupt_next_turn = True
        elif await self._client.submit(Interrupt("keep")):
            self._last_outcome = "cancelled"

    # --- lines in ---

    async def _read(self, lines: AsyncIterator[bytes]) -> None:
        """Read lines. Responses are handled at once, because earlier lines may wait for them; all others in order."""
        number = 0
        async for line in lines:
            number += 1
            if line.strip():
                await self._route_line(line, number)
        self._hooks.close()
        self._permissions.close()
        self._lines.put_nowait(None)

    async def _route_line(self, line: bytes, number: int) -> None:
        try:
            message = msgspec.json.decode(line, type=_InputLine)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._lines.put_nowait((f"is not a message: {error}", number))
            return
        if message.type != "control_response":
            self._lines.put_nowait((message, number))
        elif not self._hooks.take_answer(message.response):
            await self._permissions.take_answer(message.response)

    async def _handle_lines(self) -> None:
        while (item := await self._lines.get()) is not None:
            await self._handle_line(*item)
        self._is_reading = False
        self._finish_if_done()

    async def _handle_line(self, line: _InputLine | str, number: int) -> None:
        if isinstance(line, str):
            self._report_input_error(number, line)
        elif line.type == "user":
            await self._handle_prompt(line, number)
        elif line.type == "control_request":
            self._send(await self._controls.answer(line.request_id, line.request))
            if line.request.get("subtype") == "initialize":
                self._translator.agent_types = await list_agent_types(self._client)
                self._translator.skills = tuple(skill.name for skill in (await self._client.get_info()).skills)
        elif line.type not in ("control_cancel_request", "keep_alive"):
            self._report_input_error(number, f"has the unknown type {line.type!r}.")

    def _report_input_error(self, number: int, problem: str) -> None:
        self._send(self._translator.make_note("input_error", line=number, error=f"Input line {number} {problem}"))

    async def _handle_prompt(self, line: _InputLine, number: int) -> None:
        if line.message is None:
            self._report_input_error(number, "is a user line without a message.")
            return
        content = parse_content(line.message.content)
        if content.left_out:
            self._warn(f"Left out of the prompt: {', '.join(content.left_out)}.")
        prompt_id = line.uuid if line.uuid and line.uuid not in self._prompts else make_uuid()
        if self._replay:
            message = {"role": "user", "content": line.message.content}
            echo = {"type": "user", "message": message, "parent_tool_use_id": None, "isReplay": True}
            self._send({**echo, "session_id": self._info.session, "uuid": prompt_id})
        try:
            mode = parse_mode(line.mode) if line.mode else self._controls.mode
        except UsageError as error:
            self._refuse(prompt_id, error)
            return
        prompt = Prompt(prompt_id, content.text, mode, delivery="queue", attachments=content.attached)
        schema = self._controls.output_schema
        options = {"temperature": line.temperature, "max_tokens": line.max_tokens, "output_schema": schema}
        await self._submit_prompt(msgspec.structs.replace(prompt, **options))

    async def _submit_prompt(self, prompt: Prompt) -> None:
        if not self._prompts:
            self._tell_state("running")
        self._prompts.add(prompt.id)
        try:
            await self._client.submit(prompt)
        except OdinError as error:
            self._refuse(prompt.id, error)

    def _refuse(self, prompt_id: str, error: OdinError) -> None:
        """Send an error result for a prompt that cannot be accepted."""
        self._send(self._translator.make_failure(error.describe(), error.kind, prompt_id))
        self._code = error.exit_code
        self._finish_prompt(prompt_id)


def parse_mode(name: str) -> Mode:
    """Parse `ask`, `plan` or `edit`, with or without `_mode`. Raise UnknownMode."""
    full = name if name.endswith("_mode") else f"{name}_mode"
    if full not in get_args(Mode):
        raise UnknownMode(name)
    return cast("Mode", full)


def _read_state_fields() -> Raw | None:
    """Return extra fields for session state messages, or None if no environment variable asks for these messages."""
    if os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"):
        return {}
    if os.environ.get("CLAUDE_CODE_SDK_READS_SESSION_STATE"):
        return {"sdk_host_only": True}
    return None
