"""MCP servers that lie, break the protocol or never answer: the user gets a message, and the session goes on."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from odin.config.settings import McpServerSettings
from odin.core.call_events import QuestionsAnswered, QuestionsAsked, ToolEnded
from odin.core.errors import UsageError
from odin.core.event import Warned
from odin.core.op import Interrupt, Prompt
from odin.core.timing import Timing
from odin.mcp.listing import ListedTool, ServerListing
from odin.mcp.messages import RateLimiter, find_request_id
from odin.mcp.schema import SchemaRejected, repair_schema
from odin.mcp.tools import McpTool, add_tools
from odin.mcp.transport import SdkTransport
from odin.testing import say
from tests.mcp_client.test_session import (
    StartSession,
    call_tiny,
    configure,
    describe_tool,
    make_server_settings,
    start_session,
)
from tests.table import each

__all__ = ["start_session"]

OBJECT = {"type": "object"}


# --- schemas ---


@each(
    "written, kept",
    [
        ({"type": {"a": 1}}, {}),
        ({"type": [{"a": 1}, "string"]}, {"type": "string"}),
        ({"type": "strnig"}, {}),
        ({"enum": "abc"}, {}),
        ({"enum": ["a", "a", True, 1]}, {"enum": ["a", True, 1]}),
        ({"minimum": "1", "maximum": 3}, {"maximum": 3}),
        ({"minimum": True}, {}),
        ({"minimum": float("nan")}, {}),
        ({"multipleOf": 0}, {}),
        ({"minLength": -1, "maxLength": 2.0}, {"maxLength": 2}),
        ({"minItems": 1.5}, {}),
        ({"uniqueItems": "yes"}, {}),
        ({"format": {}}, {}),
        ({"not": 5}, {}),
        ({"pattern": 5}, {}),
        ({"properties": {"x": {"type": ["string"]}}, "required": ["x", "x", 5]},
         {"properties": {"x": {"type": "string"}}, "required": ["x"]}),
    ],
)  # fmt: skip
def test_keywords_with_wrong_values_are_left_out(written: dict[str, Any], kept: dict[str, Any]):
    repaired = repair_schema({"type": "object", "properties": {"p": written}})
    assert repaired["properties"]["p"] == kept
    Draft202012Validator.check_schema(repaired)


@each(
    "schema, problem",
    [
        (None, "it has no input schema"),
        ([], "its input schema is not an object"),
        ({"type": "string"}, "its input schema is of the type 'string', not an object"),
        ({"type": ["object", "string"]}, "its input schema is of the type ['object', 'string'], not an object"),
        ({"type": ["object", "null"]}, ""),
        ({"properties": {}}, ""),
    ],
)
def test_an_input_schema_must_be_an_object(schema: Any, problem: str):
    try:
        repair_schema(schema)
        assert not problem
    except SchemaRejected as error:
        assert str(error) == problem


def test_a_tool_whose_schema_cannot_be_read_is_left_out():
    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError

    server: Any = type("Server", (), {"name": "tiny", "settings": McpServerSettings(allowed_tools=("o*",))})
    listed = (ListedTool("other", schema=OBJECT), ListedTool("odd", schema=Broken(OBJECT)), ListedTool("hidden"))
    server.listing = ServerListing(listed)
    tools: dict[str, McpTool] = {}
    user: Any = None
    problems = add_tools(tools, server, user)
    assert [*tools] == ["mcp__tiny__other"], "hidden is not among the allowed tools"
    assert problems == ["The tool 'odd' of the MCP server tiny is left out: its input schema cannot be read."]


async def test_invalid_entries_of_a_tool_list_are_left_out_also_from_the_cache(start_session: StartSession, home: Path):
    tools = [
        describe_tool(
            "echo", description=5, annotations={"readOnlyHint": "maybe"}, title=[], outputSchema={"type": "nonsense"}
        ),
        describe_tool("odd_type", {"type": "object", "properties": {"a": {"type": {"b": 1}}, "c": 5}}),
        describe_tool("list", ["no"]),
        {"name": "none"},
        {"name": 5},
        "text",
    ]
    configure(home, {"tiny": make_server_settings(tools=tools)})
    for _ in range(2):
        session = await start_session([call_tiny("echo", text="x"), say("done")])
        await session.prompt()
        assert session.results() == ["echo: x"]
        ours = [name for name in session.tools() if name.startswith("mcp__")]
        assert ours == ["mcp__tiny__echo", "mcp__tiny__odd_type"]


# --- messages ---


@each(
    "head, tail, number",
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"id":9', b"", 7),
        (b'{"jsonrpc":"2.0","result":{"structuredContent":{"id": 3}}, "id" : 7}', b"", 7),
        (b'{"result":{"structuredContent":{"id": 3', b'"}]},"id":12,"jsonrpc":"2.0"}', 12),
        (b'{"result":{"text":"\\"id\\":4 {', b'and {"id": 5}}}', None),
        (b'{"jsonrpc":"2.0","id":7,', b"", 7),
        (b'{"jsonrpc":"2.0","method":"ping","id":7}', b"", None),
        (b'{"id":"x"}', b"", None),
        (b"{", b"", None),
    ],
)
def test_the_request_id_of_a_broken_message_is_found(head: bytes, tail: bytes, number: int | None):
    assert find_request_id(head, tail) == number


async def test_a_broken_answer_fails_its_call_at_once(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(tools=[describe_tool("broken"), describe_tool("echo")])})
    session = await start_session(
        [
            call_tiny("broken", 1, text='{"jsonrpc":"2.0","id":ID,"result":{"con'),
            call_tiny("echo", 2, text="fine"),
            say("done"),
        ],
        allowed_tools=("mcp__tiny",),
    )
    await session.prompt()
    assert session.results()[0].startswith("The MCP server tiny refused the call: it sent broken JSON: {")
    assert session.results()[0].endswith(',"result":{"con.')
    assert session.results()[1] == "echo: fine"


async def test_a_broken_message_without_an_id_is_quoted_at_the_timeout(start_session: StartSession, home: Path):
    configure(home, {"tiny": {**make_server_settings(tools=[describe_tool("broken")]), "timeout_s": 0.2}})
    session = await start_session([call_tiny("broken", text='{"oops": '), say("done")], allowed_tools=("mcp__tiny",))
    await session.prompt()
    assert session.results() == ['The MCP server tiny did not answer within 0.2 s, but wrote: {"oops":.']


async def test_tools_of_a_server_that_always_announces_changes_are_listed_ever_less_often(
    start_session: StartSession, home: Path
):
    configure(
        home, {"tiny": make_server_settings(tools=[describe_tool("count"), describe_tool("slow")], fault="restless")}
    )
    script = [say("one"), call_tiny("count"), say("two")]
    session = await start_session(script, allowed_tools=("mcp__tiny",), timing=Timing(mcp_refresh_s=0.01))
    await session.prompt()
    await asyncio.sleep(0.2)
    await session.prompt()
    assert 2 <= int(session.results()[0]) <= 6, "after 10, 20, 40, 80, 160 ms"


async def test_an_sdk_client_that_does_not_answer_fails_the_request():
    async def ignore(message: dict[str, Any]) -> None:
        return None

    async with SdkTransport(ignore) as (read, write):
        await write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=7, method="ping")))
        answer = (await read.receive()).message
    assert (answer.id, answer.error.message) == (7, "the SDK client sent no answer")


async def test_too_many_tools_are_truncated_with_a_warning(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(tools=2_001)})
    session = await start_session([say("done")])
    await session.prompt()
    assert (await session.get_state("tiny")).tools == 2_000
    assert [text for text in session.warnings() if "offers more than 2,000 tools" in text]


# --- questions ---


async def test_interrupting_a_call_cancels_its_question(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session([call_tiny("ask", 1), call_tiny("echo", 2, text="x"), say("done")])
    events = session.client.stream_events()
    await session.client.submit(Prompt("p", "Go.", "edit_mode"))
    await session.wait_for(events, QuestionsAsked, allow=True)
    await session.client.submit(Interrupt())
    answered = await session.wait_for(events, QuestionsAnswered)
    assert (answered.cancelled, answered.by) == (True, "interrupt")
    await session.wait_for(events, ToolEnded)
    await session.prompt()
    assert session.asked == ["mcp__tiny__echo"], "the next permission request is shown"
    assert session.results() == ["echo: x"]


async def test_a_call_that_ends_first_cancels_its_questions(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(tools=[describe_tool("ask_and_go"), describe_tool("echo")])})
    session = await start_session([call_tiny("ask_and_go", 1, text="50"), call_tiny("echo", 2), say("done")])
    await session.prompt()
    assert session.results()[0] == "gone"
    assert session.asked[0] == "mcp__tiny__ask_and_go"
    assert session.asked[-1] == "mcp__tiny__echo"
    assert len([text for text in session.asked if "Sure?" in text]) <= 1, "one question at a time"
    declined = [text for text in session.warnings() if "Odin declined" in text]
    assert 1 <= len(declined) <= 20


async def test_a_question_with_too_many_fields_is_declined(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    parts = json.dumps({f"part{number}": {"type": "string"} for number in range(21)})
    session = await start_session([call_tiny("ask", text=parts), say("done")], allowed_tools=("mcp__tiny",))
    await session.prompt()
    assert json.loads(session.results()[0]) == {"action": "decline"}
    assert [text for text in session.warnings() if "asked for 21 values at once, and Odin declined" in text]


# --- waiting ---


async def test_a_server_prompt_without_an_answer_times_out(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(fault="mute")})
    session = await start_session([say("one")], timing=Timing(mcp_prompt_s=0.1))
    await session.prompt()
    with pytest.raises(UsageError, match=r"tiny did not answer within 0\.1 s"):
        await session.prompt("/tiny:greet Ada")


async def test_a_server_prompt_without_an_answer_is_interrupted(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(fault="mute")})
    session = await start_session([say("one"), say("two")], timing=Timing(mcp_waiting_note_s=0.0))
    await session.prompt()
    events = session.client.stream_events()
    waiting = asyncio.create_task(session.prompt("/tiny:greet Ada"))
    assert (await session.wait_for(events, Warned)).text == "Waiting for the MCP server tiny, for at most 20 s."
    assert await session.client.submit(Interrupt())
    with pytest.raises(UsageError, match="interrupted"):
        await waiting
    await session.prompt()
    assert len(session.model.requests) == 2


def test_a_flood_is_recognized_by_the_types_of_messages():
    log = JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": 'the "result"'})
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={})
    gate = RateLimiter(max_messages=2, max_excess=3)
    assert [gate.allow(message) for message in (log, answer, log, answer, log)] == [True, True, False, True, False]
    assert gate.fault == ""
    gate.allow(answer)
    assert gate.fault == "it flooded Odin with messages", "unexpected answers count, too"
