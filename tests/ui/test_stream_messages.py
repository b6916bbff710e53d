"""Each message of stream-json that Odin can send is read by the Python API and by the parser of the Claude SDK.

The messages are made of samples of every event. A new event or a new kind of message is in the tests by itself.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from claude_agent_sdk._internal.message_parser import parse_message

import odin
from odin.core.call_events import TextStreamed
from odin.core.client import SessionInfo
from odin.core.event import AnyEvent, Envelope, TurnStarted
from odin.ui.stream_json import translator as translator_module
from odin.ui.stream_json.translator import Raw, StreamTranslator
from odin.ui.stream_json.types import to_typed
from tests.session.event_samples import find_lost, make_samples

INFO = SessionInfo("s-1", "/w", "anthropic/m", "0.1.0", "edit_mode", "default", ("LS",))
PACKAGE = Path(translator_module.__file__).parent
TYPES = {
    "system": odin.SystemMessage,
    "assistant": odin.AssistantMessage,
    "user": odin.UserMessage,
    "stream_event": odin.StreamEvent,
    "tool_progress": odin.ToolProgress,
    "result": odin.ResultMessage,
}


def find_kinds(function: str, package: Path = PACKAGE) -> set[str]:
    """Return the first arguments of all calls of this method in the package."""
    nodes = [node for path in package.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
    return {
        str(call.args[0].value)
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == function
        and isinstance(call.args[0], ast.Constant)
    }


def make_messages(kind: type[Any]) -> Iterator[Raw]:
    """Yield the messages for samples of an event, of the main agent and of another one, while a reply streams."""
    for sample in make_samples(kind):
        event = msgspec.convert(sample, kind)
        for agent in ("", "agent-1"):
            translator = StreamTranslator(INFO, partial=True)
            for envelope in (
                Envelope(0, 0.0, "s-1", TurnStarted("p1", "hello", "edit_mode")),
                Envelope(0, 0.0, "s-1", TextStreamed("The reply begins")),
                Envelope(1, 0.0, "s-1", event, agent),
            ):
                for message in translator.translate(envelope):
                    yield msgspec.json.decode(msgspec.json.encode(message))


ALL = [message for kind in get_args(AnyEvent) for message in make_messages(kind)]
FROM_CLIENT = ("idle", "session_state_changed", "input_error")
"""Subtypes that no event leads to: what is said to the client of a process about its lines, and about the process."""


def test_samples_lead_to_each_kind_of_message() -> None:
    assert {message["type"] for message in ALL} == find_kinds("_make_message") == set(TYPES)
    notes = {message["subtype"] for message in ALL if message["type"] == "system"}
    tasks = {"init", "task_started", "task_notification", "agent_notify"}
    assert notes == (find_kinds("make_note") - {*FROM_CLIENT}) | tasks


@pytest.mark.parametrize("kind", TYPES)
def test_each_message_has_its_type_in_the_python_api(kind: str) -> None:
    for raw in [message for message in ALL if message["type"] == kind]:
        message = to_typed(raw)
        assert (type(message), message.raw) == (TYPES[kind], raw)
        inner: Raw = raw["message"] if kind in ("assistant", "user") else {}
        fields = {field.encode_name for field in msgspec.structs.fields(type(message))}
        told = {name: value for name, value in {**inner, **raw}.items() if name in fields}
        assert [*find_lost(told, message)] == []
        assert parse_message(raw) is not None or kind == "tool_progress"


@pytest.mark.parametrize("subtype", sorted(find_kinds("make_note")))
def test_a_note_may_have_any_field(subtype: str) -> None:
    raw = StreamTranslator(INFO).make_note(subtype, message="text", content=[1], raw="x", parent_tool_use_id=None)
    message = to_typed(raw)
    assert isinstance(message, odin.SystemMessage)
    assert (message.subtype, message.raw) == (subtype, raw)


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "assistant", "message": "text", "session_id": "s-1", "uuid": "u"},
        {"type": "user", "message": {"content": "an echo"}, "session_id": "s-1", "uuid": "u"},
        {"type": "result", "subtype": "success", "session_id": "s-1", "uuid": "u"},
        {"type": "control_cancel_request", "request_id": "r"},
        {"type": "system"},
    ],
)
def test_a_message_without_a_type_is_a_system_message(raw: Raw) -> None:
    message = to_typed(raw)
    assert isinstance(message, odin.SystemMessage)
    assert (message.subtype, message.raw) == (raw["type"], raw)
