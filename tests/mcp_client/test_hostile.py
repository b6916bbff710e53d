"""Servers that lie, break the protocol or never answer: each costs one message, never the session."""

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
from odin.mcp.listing import ListedTool, ServerListing
from odin.mcp.messages import FloodGate, find_request_id
from odin.mcp.schema import SchemaRejected, repair_schema
from odin.mcp.tools import make_tools
from odin.mcp.transport import SdkTransport
from odin.testing import say
from tests.mcp_client.test_session import Open, configure, odd, opened, tiny, use
from tests.table import each

__all__ = ["opened"]

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
def test_only_objects_are_schemas_of_arguments(schema: Any, problem: str):
    try:
        repair_schema(schema)
        assert not problem
    except SchemaRejected as error:
        assert str(error) == problem


def test_a_schema_that_cannot_be_read_costs_its_tool():
    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError

    server: Any = type("Server", (), {"name": "tiny", "settings": McpServerSettings(allowed_tools=("o*",))})
    listed = (ListedTool("other", schema=OBJECT), ListedTool("odd", schema=Broken(OBJECT)), ListedTool("hidden"))
    server.listing = ServerListing(listed)
    tools, problems = make_tools(server, Path(), ())
    assert [tool.name for tool in tools] == ["mcp__tiny__other"], "hidden is not among the allowed tools"
    assert problems == ["The tool 'odd' of the MCP server tiny is left out: its input schema cannot be read."]


async def test_lists_with_wrong_entries_cost_those_entries_also_from_the_cache(opened: Open, home: Path):
    tools = [
        odd("echo", description=5, annotations={"readOnlyHint": "maybe"}, title=[], outputSchema={"type": "nonsense"}),
        odd("odd_type", {"type": "object", "properties": {"a": {"type": {"b": 1}}, "c": 5}}),
        odd("list", ["no"]),
        {"name": "none"},
        {"name": 5},
        "text",
    ]
    configure(home, {"tiny": tiny(tools=tools)})
    for _ in range(2):
        session = await opened([use("echo", text="x"), say("done")])
        await session.ask()
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
def test_the_request_that_a_message_answers(head: bytes, tail: bytes, number: int | None):
    assert find_request_id(head, tail) == number


async def test_a_broken_answer_fails_its_call_at_once(opened: Open, home: Path):
    configure(home, {"tiny": tiny(tools=[odd("broken"), odd("echo")])})
    session = await opened(
        [use("broken", 1, text='{"jsonrpc":"2.0","id":ID,"result":{"con'), use("echo", 2, text="fine"), say("done")],
        allowed_tools=("mcp__tiny",),
    )
    await session.ask()
    assert session.results()[0].startswith("The MCP server tiny refused the call: it sent broken JSON: {")
    assert session.results()[0].endswith(',"result":{"con.')
    assert session.results()[1] == "echo: fine"


async def test_a_broken_message_without_an_id_is_named_when_the_time_is_up(opened: Open, home: Path):
    configure(home, {"tiny": {**tiny(tools=[odd("broken")]), "timeout_s": 0.2}})
    session = await opened([use("broken", text='{"oops": '), say("done")], allowed_tools=("mcp__tiny",))
    await session.ask()
    assert session.results() == ['The MCP server tiny did not answer within 0.2 s, but wrote: {"oops":.']


async def test_a_server_that_always_announces_changes_is_asked_less_and_less(
    opened: Open, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("odin.mcp.connection._REFRESH_PAUSE_S", 0.01)
    configure(home, {"tiny": tiny(tools=[odd("count"), odd("slow")], fault="restless")})
    session = await opened([say("one"), use("count"), say("two")], allowed_tools=("mcp__tiny",))
    await session.ask()
    await asyncio.sleep(0.2)
    await session.ask()
    assert 2 <= int(session.results()[0]) <= 6, "after 10, 20, 40, 80, 160 ms"


async def test_an_sdk_client_that_does_not_answer_fails_the_request():
    async def ignore(message: dict[str, Any]) -> None:
        return None

    async with SdkTransport(ignore) as (read, write):
        await write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=7, method="ping")))
        answer = (await read.receive()).message
    assert (answer.id, answer.error.message) == (7, "the SDK client sent no answer")


async def test_very_many_tools_are_cut_with_a_warning(opened: Open, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("odin.mcp.listing.MAX_TOOLS", 3)
    configure(home, {"tiny": tiny(tools=4)})
    session = await opened([say("done")])
    await session.ask()
    assert len([name for name in session.tools() if name.startswith("mcp__")]) == 3
    assert [text for text in session.warnings() if "offers more than 2,000 tools" in text]


# --- questions ---


async def test_a_question_ends_with_the_call_that_is_interrupted(opened: Open, home: Path):
    configure(home, {"tiny": tiny()})
    session = await opened([use("ask", 1), use("echo", 2, text="x"), say("done")])
    events = session.client.stream_events()
    await session.client.submit(Prompt("p", "Go.", "edit_mode"))
    await session.wait_for(events, QuestionsAsked, allow=True)
    await session.client.submit(Interrupt())
    answered = await session.wait_for(events, QuestionsAnswered)
    assert (answered.cancelled, answered.by) == (True, "interrupt")
    await session.wait_for(events, ToolEnded)
    await session.ask()
    assert session.asked == ["mcp__tiny__echo"], "the next permission request is shown"
    assert session.results() == ["echo: x"]


async def test_a_question_ends_with_a_call_that_does_not_wait_for_it(opened: Open, home: Path):
    configure(home, {"tiny": tiny(tools=[odd("ask_and_go"), odd("echo")])})
    session = await opened([use("ask_and_go", 1, text="50"), use("echo", 2), say("done")])
    await session.ask()
    assert session.results()[0] == "gone"
    assert session.asked[0] == "mcp__tiny__ask_and_go"
    assert session.asked[-1] == "mcp__tiny__echo"
    assert len([text for text in session.asked if "Sure?" in text]) <= 1, "one question at a time"
    declined = [text for text in session.warnings() if "Odin declined" in text]
    assert 1 <= len(declined) <= 20


async def test_a_question_with_too_many_parts_is_declined(opened: Open, home: Path):
    configure(home, {"tiny": tiny()})
    parts = json.dumps({f"part{number}": {"type": "string"} for number in range(21)})
    session = await opened([use("ask", text=parts), say("done")], allowed_tools=("mcp__tiny",))
    await session.ask()
    assert json.loads(session.results()[0]) == {"action": "decline"}
    assert [text for text in session.warnings() if "asked for 21 values at once, and Odin declined" in text]


# --- waiting ---


async def test_a_prompt_of_a_server_that_does_not_answer(opened: Open, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("odin.mcp.servers.PROMPT_S", 0.1)
    configure(home, {"tiny": tiny(fault="mute")})
    session = await opened([say("one"), say("two")])
    await session.ask()
    with pytest.raises(UsageError, match=r"tiny did not answer within 0\.1 s"):
        await session.ask("/tiny:greet Ada")
    monkeypatch.setattr("odin.mcp.servers.PROMPT_S", 20)
    monkeypatch.setattr("odin.mcp.servers._SAY_WAITING_S", 0)
    events = session.client.stream_events()
    waiting = asyncio.create_task(session.ask("/tiny:greet Ada"))
    assert (await session.wait_for(events, Warned)).text == "Waiting for the MCP server tiny, for at most 20 s."
    assert await session.client.submit(Interrupt())
    with pytest.raises(UsageError, match="interrupted"):
        await waiting
    await session.ask()
    assert len(session.model.requests) == 2


def test_a_flood_is_recognized_by_what_a_message_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("odin.mcp.messages.MAX_MESSAGES", 2)
    monkeypatch.setattr("odin.mcp.messages._FLOOD_LIMIT", 3)
    log = JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": 'the "result"'})
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={})
    gate = FloodGate()
    assert [gate.admit(message) for message in (log, answer, log, answer, log)] == [True, True, False, True, False]
    assert gate.fault == ""
    gate.admit(answer)
    assert gate.fault == "it flooded Odin with messages", "also with answers that nobody waits for"
