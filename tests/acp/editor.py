"""An editor for tests: the official client library at the other end of two pipes.

Every message that Odin sends must be exactly what the models of the library make of it: no field that they do not know,
and none that they would drop.
"""

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from msgspec.structs import replace
from pydantic import BaseModel, TypeAdapter

from acp import schema
from odin.acp.server import AcpServer
from odin.commands.acp import ManagerOpener
from odin.commands.attach import connect_to_holder
from odin.config import Options
from odin.testing import ScriptedServer
from odin.ui.pipes import PipeWriter, read_lines
from tests.waiting import TimeLimit

Message = dict[str, Any]
FORMS: Message = {"elicitation": {"form": {}}}

_REQUESTS: dict[str, type[BaseModel] | TypeAdapter[Any]] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
    "elicitation/create": TypeAdapter(schema.CreateElicitationRequest),
}
_ANSWERS: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeResponse,
    "authenticate": schema.AuthenticateResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/close": schema.CloseSessionResponse,
    "session/delete": schema.DeleteSessionResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
    "session/prompt": schema.PromptResponse,
}


def find_problem(model: "type[BaseModel] | TypeAdapter[Any]", sent: Any) -> str:
    """Return how a message differs from what the library reads of it, or ""."""
    read = model.validate_python(sent) if isinstance(model, TypeAdapter) else model.model_validate(sent)
    again = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return "" if again == sent else f"{sent} was read as {again}"


class Editor:
    """Answers what Odin asks with the next of `answers`: the id of an option, or the content of a form.

    A method gets the request and returns one of these; None cancels.
    """

    def __init__(self, answers: Sequence[Any] = ()) -> None:
        self.answers = list(answers)
        self.messages: list[tuple[str, Message]] = []
        """All messages: `>` those of the editor, `<` those of Odin."""
        self.updates: list[Message] = []
        self.asked: list[Message] = []
        self.problems: list[str] = []
        self.answering = asyncio.Event()
        self.changed = asyncio.Event()
        self.agent: ClientSideConnection
        self._methods: dict[Any, str] = {}

    # --- what the library calls ---

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        pass

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **more: Any) -> Any:
        answer = await self._get_answer()
        if answer is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": answer}}

    async def create_elicitation(self, message: str, mode: Any, **more: Any) -> Any:
        answer = await self._get_answer()
        return {"action": "cancel"} if answer is None else {"action": "accept", "content": answer}

    async def _get_answer(self) -> Any:
        request = self.asked[-1]
        self.answering.set()
        if not self.answers:
            await asyncio.Event().wait()  # until Odin does not need it any more
        answer: Any = self.answers.pop(0)
        return await answer(request) if inspect.ismethod(answer) else answer

    async def ext_notification(self, method: str, params: Message) -> None:
        pass

    def on_connect(self, conn: Any) -> None:
        pass

    # --- what the test looks at ---

    def observe(self, event: StreamEvent) -> None:
        message = event.message
        is_ours = event.direction is StreamDirection.OUTGOING
        self.messages.append((">" if is_ours else "<", message))
        if is_ours:
            if "method" in message:
                self._methods[message.get("id")] = message["method"]
            return
        try:
            self._check(message)
        except Exception as error:  # the library would only log it
            self.problems.append(f"{message}: {error!r}")
        self.changed.set()

    def _check(self, message: Message) -> None:
        method = message.get("method")
        if method == "$/cancel_request":
            return
        if method is not None:
            if message["params"].get("update", {}).get("sessionUpdate") != "notice":  # newer than the library
                self._complain(find_problem(_REQUESTS[method], message["params"]))
            if method == "session/update":
                self.updates.append(message["params"]["update"])
            else:
                self.asked.append(message)
        elif "result" in message:
            self._complain(find_problem(_ANSWERS[self._methods[message["id"]]], message["result"]))
        else:
            self._complain(find_problem(schema.Error, message["error"]))
            text = message["error"]["message"]
            if not text.endswith((".", "!", "?", "`")):
                self._complain(f"no sentence: {text}")

    def _complain(self, problem: str) -> None:
        if problem:
            self.problems.append(problem)

    def all(self, kind: str) -> list[Message]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"].get("text", "") for update in self.all(kind))

    def call(self, id: str = "") -> Message:
        """Return a tool call, the last one without an id, with all updates applied."""
        found: dict[str, Message] = {}
        for update in self.updates:
            if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
                found.setdefault(update["toolCallId"], {}).update(update)
        return found[id] if id else list(found.values())[-1]

    def option(self, name: str) -> str:
        """Return the value of a config option as the editor was told last."""
        options: list[Message] = []
        for _, message in self.messages:
            told: Message = message.get("result") or message.get("params", {}).get("update") or {}
            options = told.get("configOptions", options)
        return next(option["currentValue"] for option in options if option["id"] == name)

    async def wait_until(self, is_there: Callable[[], Any]) -> Any:
        async with TimeLimit():
            while not (found := is_there()):
                self.changed.clear()
                await self.changed.wait()
        return found

    async def ask(self, method: str, **params: Any) -> Message:
        """Send a request as it is, and return its result. Raise RequestError."""
        connection: Any = self.agent._conn
        async with TimeLimit():
            return await connection.send_request(method, params)

    async def notify(self, method: str, **params: Any) -> None:
        connection: Any = self.agent._conn
        await connection.send_notification(method, params)

    async def initialize(self, **capabilities: Any) -> Message:
        return await self.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)

    async def open(self, cwd: Path | str, **more: Any) -> str:
        return (await self.ask("session/new", cwd=str(cwd), mcpServers=[], **more))["sessionId"]

    async def prompt(self, session: str, text: str, *blocks: Message) -> str:
        """Return the stop reason."""
        content = [*([{"type": "text", "text": text}] if text else []), *blocks]
        return (await self.ask("session/prompt", sessionId=session, prompt=content))["stopReason"]


@asynccontextmanager
async def open_server(
    model: ScriptedServer | None, **options: Any
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Give the two ends of a server in this process, as an editor has them."""
    env = {**os.environ, **(model.env("anthropic") if model is not None else {})}
    to_odin, from_odin = os.pipe(), os.pipe()
    bugs: list[Exception] = []
    async with AsyncExitStack() as stack:
        given = replace(Options(env=env, can_ask=True), **options)
        output = PipeWriter(from_odin[1])
        server = AcpServer(given, output, ManagerOpener(given, stack).open, connect_to_holder, _collect(bugs))
        serving = asyncio.create_task(server.serve(read_lines(to_odin[0])))
        reader, writer = await _open_streams(from_odin[0], to_odin[1])
        try:
            yield reader, writer
        finally:
            writer.close()
            async with TimeLimit():
                await serving
            output.close()
            for fd in (to_odin[0], from_odin[1]):
                os.close(fd)
    assert bugs == []


@asynccontextmanager
async def open_editor(
    model: ScriptedServer | None, *, answers: Sequence[Any] = (), capabilities: Message | None = None, **options: Any
) -> AsyncGenerator[Editor]:
    """Give an editor that is connected to a server in this process; `capabilities` None sends no initialize."""
    editor = Editor(answers)
    async with open_server(model, **options) as (reader, writer):
        client: Any = editor
        editor.agent = ClientSideConnection(
            client, writer, reader, observers=[editor.observe], use_unstable_protocol=True
        )
        try:
            if capabilities is not None:
                await editor.initialize(**capabilities)
            yield editor
        finally:
            await editor.agent.close()
    assert not editor.problems, "\n".join(editor.problems)


def _collect(bugs: list[Exception]) -> Callable[[Exception], str]:
    def report(error: Exception) -> str:
        bugs.append(error)
        return f"Internal error: {error!r}."

    return report


async def _open_streams(reading: int, writing: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb"))
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(writing, "wb"))
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
