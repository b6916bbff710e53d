"""The protocol between an agent SDK and the `odin` process it starts.

Messages go out as JSON lines. Prompts arrive as `user` lines, and each gets one `result`. Both sides may send a
`control_request`, which the other answers with a `control_response` of the same ID.
"""

import binascii
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TextIO, cast

import msgspec
from msgspec import Struct

from odin.core.call_events import AnswerEvent, AskEvent
from odin.core.client import Client, SessionInfo, Snapshot
from odin.core.errors import OdinError, UsageError
from odin.core.event import Envelope, ModeChanged, TurnEnded
from odin.core.event_values import Mode
from odin.core.interaction import make_interaction
from odin.core.message import Attachment
from odin.core.op import Interrupt, Prompt
from odin.ui.exit import EXIT_READER_GONE
from odin.ui.line_server import LineServer, parse_mode, run_server
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
    make = partial(_StreamServer, client, info, translator, default_mode, output_schema, replay_prompts)
    return await run_server(
        make, client, events=events, out=out, lines_in=lines_in, prompt=prompt, owns_process=owns_process
    )


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


class _StreamServer(LineServer):
    def __init__(
        self,
        client: Client,
        info: SessionInfo,
        translator: StreamTranslator,
        mode: Mode,
        output_schema: Raw | None,
        replay: bool,
        output: PipeWriter,
        watch: Callable[[Envelope], None],
    ) -> None:
        super().__init__(client, output, watch)
        self._info = info
        self._translator = translator
        self._replay = replay
        self._state = ""
        self._hooks = HookRequests(client, self._send)
        self._hooks.connect_servers(info.servers)
        self._controls = ControlRequests(
            client, info, mode, output_schema, hooks=self._hooks, interrupt=self._stop_work, warn=self._warn
        )
        self._permissions = PermissionRequests(client, self._send, self._controls.apply_permission_update)
        self._state_fields = _read_state_fields()

    async def start(self, shot: Snapshot) -> None:
        self._permissions.is_open = self._is_reading
        self._translator.mode = shot.agent_mode if shot.executing else self._translator.mode
        for interaction in shot.interactions:
            self._permissions.ask(interaction)

    def tell_idle(self) -> None:
        """Send `idle` unless the last result has said so, and the new state of the session."""
        if not self._is_idle_told:
            self._is_idle_told = True
            self._send(self._translator.make_note("idle", last_outcome=self._last_outcome))
        self._tell_state("idle", last_outcome=self._last_outcome)

    def _send(self, message: Raw) -> None:
        self._output.write_json(msgspec.json.encode(message))

    # --- events out ---

    async def tell_event(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, TurnEnded) and not envelope.agent:
            self._translator.is_quiet = self._is_idle_told = not (await self._client.snapshot()).is_working
        for message in self._translator.translate(envelope):
            self._send(message)
        if isinstance(event, AskEvent):
            self._permissions.ask(make_interaction(event, envelope.agent))
        elif isinstance(event, AnswerEvent):
            self._permissions.cancel(event.ask_id)
        elif isinstance(event, ModeChanged) and not envelope.agent:
            self._controls.mode = event.mode

    def _tell_state(self, state: str, **more: Any) -> None:
        if self._state_fields is not None and state != self._state:
            fields = {"state": state, **more, **self._state_fields}
            self._send(self._translator.make_note("session_state_changed", **fields))
        self._state = state

    def _warn(self, text: str) -> None:
        self._send(self._translator.make_note("warning", text=text))

    async def _stop_work(self) -> None:
        """Interrupt; queued prompts still run."""
        await self._interrupt(Interrupt("keep"))

    # --- lines in ---

    def close_input(self) -> None:
        self._hooks.close()
        self._permissions.close()

    async def route_line(self, line: bytes, number: int) -> None:
        """Responses are handled at once, because earlier lines may wait for them; all others in order."""
        try:
            message = msgspec.json.decode(line, type=_InputLine)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._ordered.put_nowait(partial(self._handle_line, f"is not a message: {error}", number))
            return
        if message.type != "control_response":
            self._ordered.put_nowait(partial(self._handle_line, message, number))
        elif not self._hooks.take_answer(message.response):
            await self._permissions.take_answer(message.response)

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
        prompt_id = line.uuid if line.uuid and line.uuid not in self._follower.prompts else make_uuid()
        if self._replay:
            message = {"role": "user", "content": line.message.content}
            echo = {"type": "user", "message": message, "parent_tool_use_id": None, "isReplay": True}
            self._send({**echo, "session_id": self._info.session, "uuid": prompt_id})
        try:
            mode = parse_mode(line.mode) if line.mode else self._controls.mode
        except UsageError as error:
            self.refuse(prompt_id, error)
            return
        prompt = Prompt(prompt_id, content.text, mode, delivery="queue", attachments=content.attached)
        schema = self._controls.output_schema
        options = {"temperature": line.temperature, "max_tokens": line.max_tokens, "output_schema": schema}
        await self._submit_prompt(msgspec.structs.replace(prompt, **options))

    async def _submit_prompt(self, prompt: Prompt) -> None:
        if not self._follower.is_waiting:
            self._tell_state("running")
        await super()._submit_prompt(prompt)

    def refuse(self, prompt_id: str, error: OdinError) -> None:
        """Send an error result for a prompt that cannot be accepted."""
        self._send(self._translator.make_failure(error.describe(), error.kind, prompt_id))
        self._code = error.exit_code
        self._finish_prompt(prompt_id)


def _read_state_fields() -> Raw | None:
    """Return extra fields for session state messages, or None if no environment variable asks for these messages."""
    if os.environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"):
        return {}
    if os.environ.get("CLAUDE_CODE_SDK_READS_SESSION_STATE"):
        return {"sdk_host_only": True}
    return None
