"""MCP servers in a session: tools, approval, prompts, resources, manual servers, failures, processes, agents."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams

from odin.app import open_session
from odin.config import Options
from odin.config.settings import McpLimits
from odin.core.call_events import ActivityChanged, PermissionAsked, QuestionsAsked, ToolEnded, ToolProgressed
from odin.core.errors import UsageError
from odin.core.event import AnyEvent, Envelope, NoteAdded, ServersChanged, TurnEnded, Warned
from odin.core.event_values import Question, ServerStatus
from odin.core.op import AnswerPermission, AnswerQuestions, ControlServers, Prompt
from odin.core.timing import Timing
from odin.engine.client import LocalClient
from odin.mcp.connection import ATTEMPTS
from odin.mcp.elicitation import Elicitation
from odin.replay.replay import ReplayOptions, replay_session
from odin.testing import ScriptedServer, call, reply, say
from odin.ui.progress import describe_activity
from tests.ui.pseudo_terminal import open_terminal
from tests.waiting import TimeLimit, wait_until

EventT = TypeVar("EventT")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PROGRAM = str(Path(__file__).with_name("server.py"))


def make_server_settings(**given: Any) -> dict[str, Any]:
    """Return the settings of the server in server.py, with its options."""
    return {"command": sys.executable, "args": ["-I", "-S", PROGRAM, json.dumps(given).replace("$", "$$")]}


def configure(home: Path, servers: dict[str, Any], **limits: Any) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"mcp": servers, "mcp_limits": {"connect_s": 5, **limits}}
    (folder / "odinconfig.json").write_text(json.dumps(settings))


class Session:
    """A session with a scripted model. It allows permission requests and gives `answers` to questions."""

    def __init__(self, client: LocalClient, model: ScriptedServer) -> None:
        self.client = client
        self.model = model
        self.events: list[AnyEvent] = []
        self.asked: list[str] = []
        self.answers: tuple[tuple[str, ...], ...] = ()

    async def prompt(self, text: str = "Go.", mode: Any = "edit_mode") -> TurnEnded:
        stream = self.client.stream_events()
        await self.client.submit(Prompt(os.urandom(4).hex(), text, mode))
        async with TimeLimit():
            async for envelope in stream:
                event = envelope.event
                self.events.append(event)
                if isinstance(event, PermissionAsked):
                    self.asked.append(event.name)
                    await self.client.submit(AnswerPermission(event.ask_id, True))
                elif isinstance(event, QuestionsAsked):
                    self.asked.append(event.questions[0].text)
                    await self.client.submit(AnswerQuestions(event.ask_id, self.answers, cancelled=not self.answers))
                elif isinstance(event, TurnEnded) and not envelope.agent:
                    return event
        raise AssertionError

    async def wait_for(self, stream: AsyncIterator[Envelope], kind: type[EventT], *, allow: bool = False) -> EventT:
        """Return the next event of this type. With `allow`, allow every permission request until then."""
        async with TimeLimit():
            async for envelope in stream:
                if allow and isinstance(envelope.event, PermissionAsked):
                    await self.client.submit(AnswerPermission(envelope.event.ask_id, True))
                if isinstance(envelope.event, kind):
                    return envelope.event
        raise AssertionError

    def tools(self, number: int = 0) -> list[str]:
        """Return the names of the tools in the Nth request."""
        return [tool["name"] for tool in self.model.requests[number].json["tools"]]

    def results(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, ToolEnded)]

    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Warned)]

    async def get_state(self, name: str) -> ServerStatus:
        info = await self.client.get_info()
        return next(server for server in info.servers if server.name == name)


StartSession = Callable[..., Awaitable[Session]]


async def wait_for_state(session: Session, server: str, state: str) -> None:
    async with TimeLimit():
        while (await session.get_state(server)).state != state:
            await asyncio.sleep(0.01)


NO_PAUSES = Timing(mcp_retry_pauses_s=(0.0, 0.0))


@pytest.fixture
async def start_session(workspace: Path, home: Path) -> AsyncIterator[StartSession]:
    sessions: list[Session] = []

    async def make(script: list[Any], **options: Any) -> Session:
        model = ScriptedServer(script).__enter__()
        env = {**os.environ, **model.env("anthropic")}
        given: dict[str, Any] = {"cwd": str(workspace), "env": env, "can_ask": True, **options}
        client = await open_session(Options(**given))
        sessions.append(Session(client, model))
        return sessions[-1]

    yield make
    for session in sessions:
        await session.client.close()
        session.model.__exit__(None, None, None)


def call_tiny(tool: str, number: Any = 1, **args: Any) -> Any:
    """Return a scripted reply that calls a tool of the server tiny."""
    return call(f"mcp__tiny__{tool}", args, id=f"toolu_{number}")


async def test_a_tool_of_a_server_is_offered_approved_and_called(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session([call_tiny("echo", text="hello"), say("done")])
    await session.prompt()
    assert {"mcp__tiny__echo", "mcp__tiny__write", "ReadMcpResource"} <= set(session.tools())
    assert session.asked == ["mcp__tiny__echo"]
    assert session.results() == ["echo: hello"]
    state = await session.get_state("tiny")
    assert (state.state, state.version, state.prompts, state.resources) == ("ready", "tiny 1", 1, 1)


async def test_a_second_session_uses_cached_tools_and_sends_the_same_request(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(instructions="Be kind.")})
    first = await start_session([say("done")])
    await first.prompt()
    second = await start_session([call_tiny("echo", text="hi"), say("done")])
    assert (await second.get_state("tiny")).state == "pending"
    assert (await second.get_state("tiny")).tools == 12
    await second.prompt()
    bodies = [session.model.requests[0].json for session in (first, second)]
    assert bodies[0]["tools"] == bodies[1]["tools"]
    assert bodies[0]["system"] == bodies[1]["system"]
    assert "# MCP servers\n- tiny: Be kind." in str(bodies[0]["system"]).replace("\\n", "\n")
    assert second.tools(0) == second.tools(1)
    assert second.results() == ["echo: hi"]


async def test_annotations_decide_the_modes_of_a_tool_but_never_its_approval(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session([call_tiny("write", text="x"), say("no"), call_tiny("echo"), say("done")])
    await session.prompt(mode="ask_mode")
    assert {"mcp__tiny__echo", "mcp__tiny__fail"} <= set(session.tools()), "annotated as read-only, or not at all"
    assert "mcp__tiny__write" not in session.tools()
    assert "not available in ask_mode" in session.results()[0]
    await session.prompt()
    assert session.asked == ["mcp__tiny__echo"]


async def test_a_denial_without_a_user_names_the_rule_that_would_allow_it(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session(
        [call_tiny("write", text="x"), say("no")], can_ask=False, permission_mode="acceptEdits"
    )
    await session.prompt()
    assert "Allow it with --allowedTools 'mcp__tiny__write'" in session.results()[0]
    assert "acceptEdits" not in session.results()[0]


@pytest.mark.parametrize("rule", ["mcp__tiny__echo", "mcp__tiny", "mcp__*", "mcp_tiny_echo"])
async def test_rules_name_servers_and_tools(start_session: StartSession, home: Path, rule: str):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session([call_tiny("echo", text="x"), say("done")], allowed_tools=(rule,))
    await session.prompt()
    assert (session.asked, session.results()) == ([], ["echo: x"])


async def test_a_denied_server_is_not_offered_and_its_calls_are_refused(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session([call_tiny("echo"), say("done")], disallowed_tools=("mcp__tiny",))
    await session.prompt()
    assert not [name for name in session.tools() if name.startswith("mcp__")]
    assert session.results()[0].startswith(("There is no tool", "Denied by rule"))


AMBIGUOUS = {
    "time__evil": ("time", "time__evil"),
    "time_": ("time", "time_"),
    "_time": ("time", "_time"),
    "time (beta)": ("time", "time (beta)"),
    "a_b": ("time", "a.b", "a_b"),
}


@pytest.mark.parametrize("names", AMBIGUOUS.values(), ids=AMBIGUOUS)
@pytest.mark.parametrize("source", ["user", "project", "flag"])
async def test_a_server_that_rules_could_confuse_with_another_is_not_used(
    start_session: StartSession, home: Path, workspace: Path, names: tuple[str, ...], source: str
):
    servers = {name: make_server_settings(name=name) for name in names}
    given: dict[str, Any] = {"allowed_tools": ("mcp__time", "mcp__a_b", "mcp__a.b"), "trust": True}
    if source == "user":
        configure(home, servers)
    elif source == "project":
        (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    else:
        given["mcp_config"] = (json.dumps({"mcpServers": servers}),)
    calls = [call(f"mcp__{name}__echo", {"text": name}, id=f"toolu_{at}") for at, name in enumerate(names)]
    session = await start_session([*calls, say("done")], **given)
    await session.prompt()
    assert [name for name in session.tools() if name.endswith("__echo")] == ["mcp__time__echo"]
    assert [text for text in session.results() if text.startswith("echo: ")] == ["echo: time"]
    refused = " and ".join(names[1:])
    info = await session.client.get_info()
    assert [text for text in info.warnings if f"{refused} cannot be used: " in text], info.warnings


async def test_a_server_of_an_agent_that_rules_could_confuse_with_another_is_not_used(
    start_session: StartSession, home: Path
):
    configure(home, {"a.b": make_server_settings()})
    own = format_inline_server("a_b", make_server_settings(tools=1))
    write_agent(home / ".config" / "odin" / "agents", "helper", own)
    session = await start_session([delegate("helper", 1), say("sub"), say("done")])
    await session.prompt()
    assert "mcp__a_b__echo" in session.tools(1)
    assert "mcp__a_b__tool_0" not in session.tools(1)
    assert [text for text in session.warnings() if text.startswith("The MCP server a_b of the agent helper cannot")]


async def test_a_rule_for_a_server_holds_for_its_resources_and_the_request_names_it(
    start_session: StartSession, home: Path
):
    configure(home, {"my.notes": make_server_settings()})
    read = call("ReadMcpResource", {"server": "my.notes", "uri": "note://one"}, id="toolu_1")
    session = await start_session([read, say("done")])
    await session.prompt()
    asked = next(event for event in session.events if isinstance(event, PermissionAsked))
    assert asked.effect == "Reads a resource of the MCP server my.notes."
    denied = await start_session([read, say("done")], yes=True, disallowed_tools=("mcp__my_notes",))
    await denied.prompt()
    assert denied.results()[0].startswith("Denied by rule")


@pytest.mark.parametrize(
    ("tool", "args", "shown"),
    [
        ("fail", {}, "It failed."),
        ("picture", {}, "(image: 1x1, png"),
        ("slow", {}, "slow done"),
        ("env", {"text": "ANTHROPIC_API_KEY"}, "unset"),
        ("env", {"text": "GREETING"}, "hello"),
        ("roots", {}, "file://"),
        ("sample", {}, "Sampling not supported"),
        ("long", {"text": "200000"}, "result cut: the first 20480 and the last 30720 of 200000 characters"),
        ("die", {}, "The MCP server tiny ended during the call: it ended with exit code 3: the disk is on fire."),
    ],
)
async def test_tool_results_are_shown(
    start_session: StartSession, home: Path, tool: str, args: dict[str, str], shown: str
):
    configure(home, {"tiny": {**make_server_settings(), "env": {"GREETING": "hello"}}})
    session = await start_session([call_tiny(tool, **args), say("done")])
    ended = await session.prompt()
    assert ended.reason == "end_turn"
    assert shown in session.results()[0]


TWO_ROWS = {"rows": [{"id": 17}, {"id": 18}]}
LINK = {"type": "resource_link", "uri": "mem://1", "name": "one", "title": "The one", "mimeType": "text/plain"}


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            {"content": [{"type": "text", "text": "Found 2 rows."}], "structuredContent": TWO_ROWS},
            'Found 2 rows.\n{"rows":[{"id":17},{"id":18}]}',
        ),
        (
            {"content": [{"type": "text", "text": json.dumps(TWO_ROWS, indent=1)}], "structuredContent": TWO_ROWS},
            json.dumps(TWO_ROWS, indent=1),
        ),
        ({"content": [{"type": "text", "text": "Hi."}], "structuredContent": {"result": "Hi."}}, "Hi."),
        ({"content": [{"type": "text", "text": "7"}], "structuredContent": {"result": 7}}, "7"),
        (
            {"content": [{"type": "text", "text": text} for text in "ab"], "structuredContent": {"result": ["a", "b"]}},
            "a\nb",
        ),
        ({"content": [], "structuredContent": TWO_ROWS}, '{"rows":[{"id":17},{"id":18}]}'),
        ({"content": [LINK]}, "[resource mem://1 (The one; text/plain): read it with ReadMcpResource]"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "mem://2", "text": "two"}}]},
            "[resource mem://2]\ntwo",
        ),
        (
            {"content": [{"type": "text", "text": "Hi!", "annotations": {"audience": ["user"]}}]},
            "[meant for the user]\nHi!",
        ),
    ],
)
async def test_a_result_reaches_the_model_as_a_whole(
    start_session: StartSession, home: Path, answer: dict[str, Any], shown: str
):
    configure(home, {"tiny": make_server_settings(tools=[describe_tool("answer")])})
    session = await start_session([call_tiny("answer", text=json.dumps(answer)), say("done")])
    await session.prompt()
    assert session.results() == [shown]


async def test_progress_and_logs_of_a_call_are_shown(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session([call_tiny("slow"), say("done")])
    await session.prompt()
    lines = [event.text for event in session.events if isinstance(event, ToolProgressed)]
    assert [line for line in lines if "working" in line] == ["1 of 2: working", "2 of 2: working"]


async def test_a_server_that_died_is_started_again_by_the_next_call(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    times = 4
    rounds = [
        call_tiny(tool, f"{tool}{number}", text=str(number)) for number in range(times) for tool in ("die", "echo")
    ]
    session = await start_session([*rounds, say("done")], allowed_tools=("mcp__tiny",))
    await session.prompt()
    assert session.results()[1::2] == [f"echo: {number}" for number in range(times)]
    assert [text for text in session.warnings() if "tiny" in text] == times * [
        "The MCP server tiny cannot be used: it ended with exit code 3: the disk is on fire. /mcp shows the servers."
    ]


async def test_a_server_that_dies_in_every_call_is_started_again_three_times(
    start_session: StartSession, home: Path, workspace: Path
):
    counter = workspace / "starts"
    configure(home, {"tiny": make_server_settings(crashes=0, counter=str(counter))})
    script = [*(call_tiny("die", number, text=str(number)) for number in range(6)), say("done")]
    session = await start_session(script, allowed_tools=("mcp__tiny",))
    await session.prompt()
    assert ["ended during the call" in text for text in session.results()] == [*4 * [True], False, False]
    assert len(counter.read_text()) == 1 + 3


async def test_a_server_gets_three_attempts_with_pauses(start_session: StartSession, home: Path, workspace: Path):
    assert (ATTEMPTS, Timing().mcp_retry_pauses_s, McpLimits().connect_s) == (3, (0.5, 1.5), 20)
    for crashes, state in ((2, "ready"), (3, "failed")):
        counter = workspace / f"starts{crashes}"
        configure(home, {"tiny": make_server_settings(crashes=crashes, counter=str(counter))})
        session = await start_session([say("done")], timing=NO_PAUSES)
        await session.prompt()
        found = [event.servers[0] for event in session.events if isinstance(event, ServersChanged)]
        assert [item.attempt for item in found if item.state == "connecting"] == [1, 2, 3]
        assert (found[-1].state, len(counter.read_text())) == (state, 3)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (make_server_settings(fault="crash"), "it ended with exit code 1: no licence found"),
        (make_server_settings(fault="refuse"), "Your licence has expired"),
        (make_server_settings(fault="old"), "Unsupported protocol version from the server: 1999-01-01"),
        (
            {"command": sys.executable, "args": ["-c", "import no_such_module"]},
            "it ended with exit code 1: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            {"command": sys.executable, "args": ["-c", "exit('╭── Error ──╮\\n│ no disk │\\n╰───────────╯')"]},
            "it ended with exit code 1: no disk",
        ),
        (
            make_server_settings(fault="junk"),
            "it prints text that is not MCP on its standard output: Welcome to my server!",
        ),
        (make_server_settings(fault="flood"), "it flooded Odin with messages"),
        (make_server_settings(fault="hang"), "it did not answer within 0.5 s in any of 3 attempts"),
        ({"command": "no-such-program"}, "no-such-program was not found"),
        ({"command": "true"}, "it ended with exit code 0"),
        ({"args": ["x"]}, "it has neither a command nor a url"),
        ({"url": "ftp://x"}, "its url must begin with http:// or https://"),
        ({"url": "http://127.0.0.1:1/mcp"}, "http://127.0.0.1:1/mcp cannot be reached"),
    ],
)
async def test_a_server_that_fails_causes_one_warning(
    start_session: StartSession, home: Path, server: dict[str, Any], why: str
):
    configure(home, {"bad": server, "tiny": make_server_settings()}, connect_s=0.5 if "hang" in str(server) else 5)
    session = await start_session([call_tiny("echo", text="fine"), say("done")], timing=NO_PAUSES)
    await session.prompt()
    assert session.results() == ["echo: fine"]
    state = await session.get_state("bad")
    assert (state.state, state.detail[: len(why)]) == ("failed", why)
    assert len([text for text in session.warnings() if "bad" in text]) == 1
    tried = [item.attempt for event in session.events if isinstance(event, ServersChanged) for item in event.servers]
    assert max(tried) == 1 or "no-such-program" not in str(server), "a program that is missing stays missing"


async def test_the_user_sees_that_a_request_waits_for_servers(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session([say("done")])
    await session.prompt()
    shown = [describe_activity(event) for event in session.events if isinstance(event, ActivityChanged)]
    assert shown[0] == "connecting to MCP servers"
    assert "connecting to the model" in shown


async def test_text_before_the_first_message_is_ignored(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(fault="logs")})
    session = await start_session([call_tiny("echo", text="x"), say("done")])
    await session.prompt()
    assert session.results() == ["echo: x"]


async def test_a_result_that_is_too_large_fails_alone(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session(
        [call_tiny("long", 1, text="17000000"), call_tiny("echo", 2, text="still here"), say("done")]
    )
    await session.prompt()
    assert "it sent a message of 17 MB" in session.results()[0]
    assert session.results()[1] == "echo: still here"


async def test_a_list_that_a_call_has_changed_is_in_the_next_request(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session([call_tiny("change", 1), call_tiny("fresh", 2), say("done")])
    await session.prompt()
    assert "mcp__tiny__fresh" not in session.tools(0)
    assert [name for name in session.tools(1) if name.startswith("mcp__")] == ["mcp__tiny__fresh"]
    assert session.results() == ["changed", "fresh: "]


async def test_a_list_that_changes_in_a_turn_costs_the_thinking_before_and_no_request(
    start_session: StartSession, home: Path
):
    """The API refuses thinking that was made with other tools."""
    configure(home, {"tiny": make_server_settings()})
    thinks = reply("", call_tiny("echo", 1).calls, thinking="hm")
    changes = reply("", call_tiny("change", 2).calls, thinking="so")
    fresh = reply("", call_tiny("fresh", 3).calls, thinking="then")
    session = await start_session([thinks, changes, fresh, say("done")], model="anthropic/claude-sonnet-5-5")
    await session.prompt()
    sent = [
        [sum(block["type"] == "thinking" for block in one["content"]) for one in seen.messages[1::2]]
        for seen in session.model.requests
    ]
    assert sent == [[], [1], [0, 0], [0, 0, 1]]
    assert (session.model.rejected, session.model.dropped) == ([], [])


# --- names and schemas ---


def describe_tool(name: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    """Return the description of a tool as a server lists it."""
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **more}


async def test_names_and_schemas_that_an_api_rejects_are_repaired_or_left_out(start_session: StartSession, home: Path):
    node = {"type": "object", "properties": {"child": {"$ref": "#/$defs/Node"}}}
    tools = [
        describe_tool("with spaces & ünicode"),
        describe_tool("x" * 100),
        describe_tool("same.name"),
        describe_tool("same/name"),
        describe_tool(
            "recursive", {"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
        ),
        describe_tool("union", {"type": "object", "anyOf": [{"properties": {"a": {"type": ["string", "null"]}}}]}),
        describe_tool("bad_pattern", {"type": "object", "properties": {"p": {"type": "string", "pattern": "(["}}}),
        describe_tool("bad_property", {"type": "object", "properties": {"a b": {}}, "required": ["a b"]}),
        describe_tool("not_an_object", {"type": "string"}),
    ]
    configure(home, {"tiny": make_server_settings(tools=tools)})
    session = await start_session([say("done")])
    await session.prompt()
    specs = {tool["name"]: tool["input_schema"] for tool in session.model.requests[0].json["tools"]}
    ours = [name for name in specs if name.startswith("mcp__")]
    assert len(ours) == len(set(ours)) == 6
    assert max(map(len, ours)) <= 64
    assert {"mcp__tiny__with_spaces____nicode", "mcp__tiny__same_name"} <= set(ours)
    assert specs["mcp__tiny__union"]["properties"] == {"a": {"type": "string"}}
    assert specs["mcp__tiny__bad_pattern"]["properties"] == {"p": {"type": "string"}}
    left_out = [text for text in session.warnings() if "left out" in text]
    assert [text.split("'")[1] for text in left_out] == ["same/name", "bad_property", "not_an_object"]
    assert "call it mcp__tiny__same_name, and 'same.name' of tiny has that name already." in left_out[0]


async def test_many_tools_are_found_by_search_and_called_with_approval(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(tools=200), "more": make_server_settings(tools=50)})
    script = [
        call("ToolSearch", {"query": "tool_17"}, id="toolu_1"),
        call("McpCall", {"tool": "mcp__tiny__tool_17", "arguments": {"text": "x"}}, id="toolu_2"),
        call("McpCall", {"tool": "mcp__tiny__nothing"}, id="toolu_3"),
        say("done"),
    ]
    session = await start_session(script, disallowed_tools=("mcp__more",))
    await session.prompt()
    assert not [name for name in session.tools() if name.startswith("mcp__")]
    assert {"ToolSearch", "McpCall"} <= set(session.tools())
    assert len(session.model.requests[0].body) < 16_000
    assert session.results()[0].startswith("mcp__tiny__tool_17: Does tool_17.")
    assert "mcp__more" not in session.results()[0], "a rule denies it"
    assert (session.asked, session.results()[1]) == (["mcp__tiny__tool_17"], "tool_17: x")
    assert "There is no tool 'mcp__tiny__nothing' now" in session.results()[2]
    assert len({json.dumps(seen.json["tools"]) for seen in session.model.requests}) == 1


# --- questions and requests of servers ---

TITLED = {"type": "string", "oneOf": [{"const": "#0f0", "title": "Green"}, {"const": "#f00", "title": "Red"}]}
PAIR = {"type": "array", "minItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}}
SEVEN = {"action": "accept", "content": {"n": 7}}


@pytest.mark.parametrize(
    ("schema", "answers", "given"),
    [
        ({"name": {"type": "string"}}, (("Ada",),), {"action": "accept", "content": {"name": "Ada"}}),
        ({"n": {"type": "integer"}}, (("7",),), SEVEN),
        ({"n": {"type": "integer"}}, (("seven",),), {"action": "decline"}),
        ({"ok": {"type": "boolean"}}, (("No",),), {"action": "accept", "content": {"ok": False}}),
        ({"c": {"type": "string", "enum": ["a", "b"]}}, (("b",),), {"action": "accept", "content": {"c": "b"}}),
        ({"c": {"type": "string", "enum": ["a", "b"]}}, (("d",),), {"action": "decline"}),
        ({"ok": {"type": "boolean"}}, (("TRUE",),), {"action": "accept", "content": {"ok": True}}),
        ({"ok": {"type": "boolean"}}, (("perhaps",),), {"action": "decline"}),
        ({"ok": {"type": "boolean", "default": False}}, (("no",),), {"action": "accept", "content": {"ok": False}}),
        ({"c": TITLED}, (("Red",),), {"action": "accept", "content": {"c": "#f00"}}),
        ({"c": TITLED}, (("#f00",),), {"action": "accept", "content": {"c": "#f00"}}),
        ({"c": {"type": "array", "items": {"anyOf": TITLED["oneOf"]}}}, (("Red", "x"),), {"action": "decline"}),
        ({"n": {"type": "integer", "maximum": 6}}, (("7",),), {"action": "decline"}),
        ({"name": {"type": "string"}}, (), {"action": "cancel"}),
        ({"Passwort": {"type": "string"}}, (), {"action": "cancel"}),
        ({"seed phrase": {"type": "string"}, "PAT": {"type": "integer"}}, (), {"action": "cancel"}),
        ({"n": {"type": "integer", "description": "A number (do not enter your pin number)"}}, (("7",),), SEVEN),
        *(({"n": {"type": "integer"}}, ((text,),), {"action": "decline"}) for text in ("1_000", "7.0", "٣")),
        *(({"n": {"type": "number"}}, ((text,),), {"action": "decline"}) for text in ("nan", "inf", "1e999", "1_0")),
        ({"n": {"type": "number"}}, ((" 2.5 ",),), {"action": "accept", "content": {"n": 2.5}}),
        ({"s": {"type": "string", "minLength": 3}}, (("a  ",),), {"action": "decline"}),
        ({"s": {"type": "string"}}, (("   ",),), {"action": "decline"}),
        *(
            ({"s": {"type": "string", "format": kind}}, ((text,),), {"action": "decline"})
            for kind, text in (
                ("email", "not an email"),
                ("date", "2026-13-45"),
                ("date", "20260101"),
                ("date-time", "now"),
                ("date-time", "2026-12-31T18:00:00"),
                ("uri", "x y"),
            )
        ),
        *(
            ({"s": {"type": "string", "format": kind}}, ((text,),), {"action": "accept", "content": {"s": text}})
            for kind, text in (
                ("email", "ada@example.org"),
                ("date", "2026-12-31"),
                ("date-time", "2026-12-31T18:00:00.5+01:00"),
                ("uri", "https://example.org/a?b"),
            )
        ),
        ({"c": PAIR}, (("a", "a"),), {"action": "decline"}),
        ({"c": PAIR}, (("a", "b", "a"),), {"action": "accept", "content": {"c": ["a", "b"]}}),
        ({"c": {"type": "string", "enum": ["a", "b"]}}, ((),), {"action": "accept", "content": {"c": "a"}}),
        ({"n": {"type": "integer", "maximum": 6, "default": 7}}, (("7",),), {"action": "decline"}),
    ],
)
async def test_a_question_of_a_server_gets_the_users_answer(
    start_session: StartSession, home: Path, schema: Any, answers: Any, given: dict[str, Any]
):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session(
        [call_tiny("ask", text=json.dumps(schema)), say("done")], allowed_tools=("mcp__tiny",)
    )
    session.answers = answers
    await session.prompt()
    assert json.loads(session.results()[0]) == given
    requests = [event for event in session.events if isinstance(event, QuestionsAsked)]
    questions = [question for event in requests for question in event.questions]
    assert len(questions) == len(schema)
    assert schema.get("c") is not TITLED or [option.label for option in questions[0].options] == ["Green", "Red"]
    who, _, asked = questions[0].text.partition("\n\n")
    assert who.startswith("The MCP server tiny asks this and gets your answer; Odin does not vouch for it. Never ")
    assert asked.partition("\n")[0] == "Who are you?"
    assert all(question.header.startswith("MCP server tiny: ") for question in questions)
    assert not any("seven" in text for text in session.warnings()), "an answer may be a secret"


@pytest.mark.parametrize(
    ("field", "answer"),
    [
        (PAIR, ()),
        (PAIR, ("(leave empty)",)),
        ({"type": "string", "enum": ["a"]}, ("(leave empty)",)),
        ({"type": "string", "minLength": 3}, ()),
        ({"type": "string", "minLength": 3}, ("",)),
        ({"type": "string", "format": "email"}, ("  ",)),
    ],
)
async def test_an_optional_field_that_is_left_empty_is_left_out(field: dict[str, Any], answer: tuple[str, ...]):
    asked: list[Question] = []

    async def ask(call_id: str, questions: tuple[Question, ...]) -> tuple[tuple[str, ...], ...]:
        asked.extend(questions)
        return answer, ("7",)

    form: dict[str, Any] = {"type": "object", "properties": {"c": field, "n": {"type": "integer"}}}
    params = ElicitRequestFormParams(message="Which?", requested_schema=form)
    given = await Elicitation(ask, lambda text: None).answer("tiny", params, None)
    assert (given.action, given.content) == ("accept", {"n": 7})
    assert ["Never enter a password" in question.text for question in asked] == [True, False], "it is said once"


async def test_a_question_about_an_address_says_who_asks_and_shows_the_whole_address() -> None:
    asked: list[Question] = []

    async def ask(call_id: str, questions: tuple[Question, ...]) -> tuple[tuple[str, ...], ...]:
        asked.extend(questions)
        return (("Accept",),)

    params = ElicitRequestURLParams(message="m" * 5000, url="https://x.example/login", elicitation_id="1")
    await Elicitation(ask, lambda text: None).answer("tiny", params, None)
    assert asked[0].text.startswith("The MCP server tiny asks this")
    assert asked[0].text.endswith("Open this address yourself: https://x.example/login")


async def test_sampling_works_if_it_is_allowed(start_session: StartSession, home: Path):
    configure(home, {"tiny": {**make_server_settings(), "sampling": True}})
    path = home / ".config" / "odin" / "odinconfig.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "small_model": "anthropic/claude-sonnet-4-5"}))
    session = await start_session([call_tiny("sample"), say("sampled"), say("done")], allowed_tools=("mcp__tiny",))
    await session.prompt()
    assert json.loads(session.results()[0])["result"]["model"] == "odin-small"


# --- manual servers ---


async def test_a_manual_server_is_enabled_and_disabled(start_session: StartSession, home: Path):
    configure(home, {"tiny": {**make_server_settings(), "manual": True}, "other": make_server_settings(tools=1)})
    session = await start_session([say("one"), say("two"), say("three")])
    await session.prompt()
    assert (await session.get_state("tiny")).state == "disabled"
    assert "mcp__tiny__echo" not in session.tools()
    with pytest.raises(UsageError, match="tiny is disabled"):
        await session.client.submit(ControlServers("reconnect", ("tiny",)))
    for action in ("enable", "disable", "enable"):
        assert await session.client.submit(ControlServers(action, ("tiny",))), (
            "no turn runs, so it takes effect at once"
        )
    await session.prompt()
    assert "mcp__tiny__echo" in session.tools(1)
    assert (await session.get_state("tiny")).state == "ready"
    notes = [event.text for event in session.events if isinstance(event, NoteAdded)]
    assert notes == ["The user enabled the MCP servers tiny."]
    assert await session.client.submit(ControlServers("disable"))
    await session.prompt()
    assert "mcp__tiny__echo" not in session.tools(2)
    for op, problem in (
        (ControlServers("enable", ("tny",)), "There is no MCP server 'tny'"),
        (ControlServers("disable", ("other",)), "other is always on"),
    ):
        with pytest.raises(UsageError, match=problem):
            await session.client.submit(op)


async def test_servers_are_switched_between_requests_while_a_turn_runs(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(), "other": {**make_server_settings(tools=1), "manual": True}})
    session = await start_session([call_tiny("echo", 1), call_tiny("echo", 2, text="again"), say("done")])
    events = session.client.stream_events()
    await session.client.submit(Prompt("p", "Go.", "edit_mode"))
    asked = await session.wait_for(events, PermissionAsked)
    assert await session.client.submit(ControlServers("enable", ("other",)))
    with pytest.raises(UsageError, match="A change of other has not taken effect yet"):
        await session.client.submit(ControlServers("disable", ("other",)))
    assert await session.client.submit(ControlServers("reconnect", ("tiny",)))
    assert (await session.get_state("tiny")).state == "ready", "the call needs it"
    await session.client.submit(AnswerPermission(asked.ask_id, True))
    ended = await session.wait_for(events, ToolEnded)
    assert ended.text == "echo: "
    asked = await session.wait_for(events, PermissionAsked)
    assert ("mcp__other__tool_0" in session.tools(0), "mcp__other__tool_0" in session.tools(1)) == (False, True)
    await session.client.submit(AnswerPermission(asked.ask_id, True))
    assert (await session.wait_for(events, ToolEnded)).text == "echo: again"
    await session.wait_for(events, TurnEnded)


async def test_an_enabled_server_stays_enabled_after_a_resume(start_session: StartSession, home: Path):
    configure(home, {"tiny": {**make_server_settings(), "manual": True}})
    session = await start_session([say("one")])
    await session.client.submit(ControlServers("enable", ("tiny",)))
    await session.prompt()
    number = (await session.client.get_info()).session
    await session.client.close()
    again = await start_session([say("two")], resume=number)
    await again.prompt()
    assert "mcp__tiny__echo" in again.tools()


async def test_sub_agents_share_the_connection(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    task = call("AgentTool", {"description": "d", "prompt": "p"}, id="toolu_1")
    session = await start_session(
        [task, call_tiny("echo", 2, text="from below"), say("sub"), say("done")], allowed_tools=("mcp__*",)
    )
    await session.prompt()
    assert "echo: from below" in session.results()
    assert "mcp__tiny__echo" in session.tools(1)


async def test_without_servers_the_list_is_empty_and_enable_fails(start_session: StartSession, home: Path):
    configure(home, {})
    session = await start_session([say("done")])
    await session.prompt()
    assert (await session.client.get_info()).servers == ()
    with pytest.raises(UsageError, match="No MCP server is configured"):
        await session.client.submit(ControlServers("enable"))


# --- prompts and resources ---


async def test_a_prompt_of_a_server_is_a_slash_command(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    session = await start_session([say("one"), say("two")])
    await session.prompt()
    commands = [item for item in await session.client.list_commands() if item.source == "mcp"]
    assert [(item.name, item.description, item.hint) for item in commands] == [("tiny:greet", "Greets.", "who")]
    await session.prompt("/tiny:greet Ada Lovelace")
    assert "Greet Ada Lovelace." in session.model.requests[-1].body.decode()
    with pytest.raises(UsageError, match="The argument 'who' is missing"):
        await session.prompt("/mcp__tiny__greet")


async def test_an_image_in_a_prompt_of_a_server_reaches_the_model(start_session: StartSession, home: Path):
    picture = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    configure(home, {"tiny": make_server_settings(prompt=[picture])})
    session = await start_session([say("one"), say("two")])
    await session.prompt()
    await session.prompt("/tiny:greet Ada")
    content = session.model.requests[1].json["messages"][-1]["content"]
    assert "Greet Ada." in str(content), content
    assert [part["source"]["data"] for part in content if part["type"] == "image"] == [PIXEL], content


async def test_templates_of_resources_are_listed(start_session: StartSession, home: Path):
    template = {"uriTemplate": "mem://item/{n}", "name": "item", "description": "The nth item."}
    configure(home, {"tiny": make_server_settings(templates=[template])})
    session = await start_session([call("ListMcpResources", {}, id="toolu_1"), say("done")])
    await session.prompt()
    assert session.results() == ["tiny: mem://item/{n} item The nth item.\ntiny: note://one one"]


async def test_what_cannot_be_called_is_not_offered_and_conditions_are_told(start_session: StartSession, home: Path):
    task = describe_tool("research") | {"execution": {"taskSupport": "required"}}
    either = {
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "if": {"required": ["a"]},
        "then": {"required": ["c"]},
    }
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in "abc"}, **either}
    pick = {"name": "pick", "description": "Picks.", "inputSchema": schema}
    configure(home, {"tiny": make_server_settings(tools=[task, pick])})
    session = await start_session([say("done")])
    await session.prompt()
    (offered,) = (tool for tool in session.model.requests[0].json["tools"] if tool["name"].startswith("mcp__"))
    assert (offered["name"], sorted(offered["input_schema"]["properties"])) == ("mcp__tiny__pick", ["a", "b", "c"])
    said, _, conditions = offered["description"].partition("\nConditions of the arguments (JSON Schema): ")
    assert (said, json.loads(conditions)) == ("Picks.", either)


async def test_a_resource_is_mentioned_listed_and_read(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings()})
    read = call("ReadMcpResource", {"server": "tiny", "uri": "note://two"}, id="toolu_2")
    session = await start_session([call("ListMcpResources", {}, id="toolu_1"), read, say("one"), say("two")])
    await session.prompt()
    assert session.results() == ["tiny: note://one one", "the text of note://two"]
    assert session.asked == ["ReadMcpResource"]
    assert (await session.client.find_files("tiny:", 5))[0] == "tiny:note://one"
    await session.prompt("What says @tiny:note://one?")
    assert "the text of note://one" in session.model.requests[-1].body.decode()


async def test_a_mention_may_name_a_listed_resource_that_is_no_address(start_session: StartSession, home: Path):
    configure(home, {"tiny": make_server_settings(uri="memo:one")})
    session = await start_session([say("one"), say("two"), say("three")])
    await session.prompt()
    await session.prompt("What says @tiny:memo:two")
    await session.prompt("What says @tiny:memo:one")
    bodies = [seen.body.decode() for seen in session.model.requests]
    assert ["the text of memo" in body for body in bodies] == [False, False, True]


async def test_a_session_is_replayed_without_its_servers(start_session: StartSession, home: Path, workspace: Path):
    configure(home, {"tiny": make_server_settings(tools=200)})
    search = call("ToolSearch", {"query": "tool_17"}, id="toolu_1")
    echo = call("McpCall", {"tool": "mcp__tiny__tool_17", "arguments": {"text": "x"}}, id="toolu_2")
    session = await start_session([search, echo, say("done")])
    await session.prompt()
    number = (await session.client.get_info()).session
    await session.client.close()
    report = await replay_session(ReplayOptions(session=number, cwd=str(workspace)))
    assert (report.same, report.calls) == (True, 2), report.differences


async def test_a_session_does_not_wait_for_a_server_that_never_worked(start_session: StartSession, home: Path):
    configure(home, {"bad": make_server_settings(fault="hang")}, connect_s=0.1, wait_s=60)
    first = await start_session([say("one")], timing=NO_PAUSES)
    await first.prompt()
    assert (await first.get_state("bad")).state == "failed"
    second = await start_session([say("two")], timing=NO_PAUSES)
    await second.prompt()
    assert not any("did not answer within 60 s" in text for text in second.warnings())
    await wait_for_state(second, "bad", "failed")


async def test_known_servers_connect_in_the_background_but_not_in_a_headless_run(
    start_session: StartSession, home: Path
):
    configure(home, {"tiny": make_server_settings()})
    await (await start_session([say("one")])).prompt()
    headless = await start_session([say("two")], headless=True)
    await headless.prompt()
    assert (await headless.get_state("tiny")).state == "pending"
    session = await start_session([say("three")])
    await session.prompt()
    await wait_for_state(session, "tiny", "ready")


async def test_a_headless_run_tries_a_server_again_that_has_failed(
    start_session: StartSession, home: Path, workspace: Path
):
    counter = workspace / "starts"
    configure(home, {"tiny": make_server_settings(crashes=6, counter=str(counter))})
    for runs in (1, 2):
        failed = await start_session([say("one")], headless=True, timing=NO_PAUSES)
        await failed.prompt()
        assert len(counter.read_text()) == 3 * runs
        said = "The MCP server tiny cannot be used: it ended with exit code 1: not yet. `odin mcp` shows the servers."
        assert [text for text in failed.warnings() if "tiny" in text] == [said]
        await failed.client.close()
    repaired = await start_session([say("two")], headless=True, timing=NO_PAUSES)
    await repaired.prompt()
    assert "mcp__tiny__echo" in repaired.tools()


async def test_a_server_that_hangs_is_named_and_remembered(start_session: StartSession, home: Path):
    """It costs one run: the next ones neither wait for it nor start it, until it is due again or asked for."""
    mark = os.urandom(6).hex()
    configure(home, {"bad": make_server_settings(fault="hang", mark=mark)}, connect_s=60, wait_s=0.1)

    async def run() -> tuple[str, bool]:
        session = await start_session([say("one")], headless=True)
        await session.prompt()
        (warning,) = (text for text in session.warnings() if "bad" in text)
        is_started = (await session.get_state("bad")).state == "connecting"
        await session.client.close()
        assert find_processes(mark) == []
        return warning, is_started

    last = "The MCP server bad did not answer the last time"
    assert await run() == (
        "The MCP server bad did not answer within 0.1 s, so the model does not have its tools yet. "
        "`odin mcp` shows the servers.",
        True,
    )
    configure(home, {"bad": make_server_settings(fault="hang", mark=mark)}, connect_s=60, wait_s=600)
    assert await run() == (f"{last}, so it is not started now. `odin mcp` tries it again.", False)
    (stored,) = (home / ".cache/odin/mcp").glob("*.json")
    for failures in (1, 2):  # an hour later
        entry = json.loads(stored.read_bytes())
        assert entry["failures"] == failures
        stored.write_text(json.dumps({**entry, "failed_at": entry["failed_at"] - 3600}))
        assert await run() == (f"{last}, so the first request does not wait for it.", True)
        assert (await run())[1] is False


# --- processes ---


def find_processes(word: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


@pytest.mark.slow
async def test_a_stubborn_server_ends_with_the_session(start_session: StartSession, home: Path):
    mark = os.urandom(6).hex()
    configure(home, {"tiny": make_server_settings(fault="stubborn", mark=mark)})
    session = await start_session([call_tiny("echo", text="x"), say("done")])
    await session.prompt()
    assert len(find_processes(mark)) == 1
    await session.client.close()
    assert find_processes(mark) == []


@pytest.mark.slow
async def test_a_server_that_is_still_connecting_ends_with_the_session(start_session: StartSession, home: Path):
    mark = os.urandom(6).hex()
    configure(home, {"tiny": make_server_settings(fault="hang stubborn", mark=mark)}, wait_s=0)
    session = await start_session([say("done")])
    await session.prompt()
    while not find_processes(mark):
        await asyncio.sleep(0.02)
    await session.client.close()
    assert find_processes(mark) == []


def test_a_server_ends_if_odin_is_killed(workspace: Path, home: Path):
    mark = os.urandom(6).hex()
    configure(home, {"tiny": make_server_settings(fault="stubborn", mark=mark)})
    with ScriptedServer([call_tiny("echo", text="x"), say("done")]) as model:
        env = {**os.environ, **model.env("anthropic")}
        odin = subprocess.Popen(
            [sys.executable, "-m", "odin", "-p", "go"], env=env, cwd=workspace, stdin=subprocess.DEVNULL
        )
        wait_until(lambda: find_processes(mark))
        odin.kill()
        odin.wait()
        wait_until(lambda: not find_processes(mark))


@pytest.mark.parametrize(
    ("tools", "has"),
    [("", True), ("Read", False), ("mcp__tiny", True), ("mcp__tiny__echo", True), ("mcp__tiny__e*", True)],
)
async def test_an_agent_file_selects_the_tools_of_servers(
    start_session: StartSession, home: Path, workspace: Path, tools: str, has: bool
):
    agents = home / ".config" / "odin" / "agents"
    configure(home, {"tiny": make_server_settings()})
    agents.mkdir()
    listed = f"tools: {tools}\n" if tools else ""
    (agents / "helper.md").write_text(f"---\nname: helper\ndescription: Helps.\nmode: main\n{listed}---\nHelp.\n")
    session = await start_session([say("done")], role="helper")
    await session.prompt()
    assert ("mcp__tiny__echo" in session.tools()) == has


async def test_secrets_of_the_settings_do_not_reach_the_model(start_session: StartSession, home: Path):
    configure(home, {"tiny": {**make_server_settings(), "env": {"MY_TOKEN": "wxyz-1234567890-secret"}}})
    session = await start_session([call_tiny("env", text="MY_TOKEN"), say("done")])
    await session.prompt()
    assert "wxyz-1234567890-secret" not in session.model.requests[-1].body.decode()
    assert "[redacted: MY_TOKEN of tiny]" in session.results()[0]


def test_trust_covers_the_declarations_of_servers(workspace: Path, home: Path, run_odin: Any):
    (workspace / "servers").mkdir()
    (workspace / "servers" / "tool.py").write_text(Path(PROGRAM).read_text())
    entry = {"command": sys.executable, "args": ["-I", "-S", "tool.py"], "cwd": "servers"}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"ours": entry}}))
    assert run_odin("trust", "add", "--yes").returncode == 0
    assert run_odin("mcp").stdout.startswith("✓ ours")
    (workspace / "servers" / "tool.py").write_text("import evil")
    assert "`odin trust add --network ours` allows" in run_odin("mcp").stdout
    (workspace / ".mcp.json").write_text("{broken")
    done = run_odin("mcp")
    assert (done.returncode, "No MCP server of it is used." in done.stderr) == (0, True)


@pytest.mark.slow
def test_plain_mode_shows_and_switches_servers(workspace: Path, home: Path):
    configure(home, {"tiny": {**make_server_settings(), "manual": True}, "gone": {"command": "no-such-program"}})
    with (
        ScriptedServer([say("Hello.")]) as model,
        open_terminal(cwd=workspace, env=model.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("/mcp\n")
        terminal.see("○ tiny  stdio  manual  disabled")
        terminal.type("/mcp enable tiny\n")
        terminal.see("Enabled tiny, from the next request on.")
        terminal.type("/mcp enable gone\n")
        terminal.see("gone is always on")
        terminal.type("/mcp enble\n")
        terminal.see("Unknown argument 'enble'. Did you mean enable?")
        terminal.type("hi\n")
        terminal.see("The MCP server gone cannot be used: no-such-program was not found.")
        terminal.see("Hello.")
        terminal.type("/exit\n")
    assert "mcp__tiny__echo" in [tool["name"] for tool in model.requests[0].json["tools"]]


# --- servers of agents ---


def write_agent(folder: Path, name: str, servers: str, **more: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    keys = "".join(f"{key}: {value}\n" for key, value in more.items())
    (folder / f"{name}.md").write_text(f"---\ndescription: Helps.\n{keys}mcpServers:\n{servers}---\nHelp.\n")


def format_inline_server(name: str, server: dict[str, Any], **more: str) -> str:
    """Return an entry of `mcpServers` as Claude Code documents it."""
    args = "".join(f"        - {json.dumps(word)}\n" for word in server["args"])
    keys = "".join(f"      {key}: {value}\n" for key, value in more.items())
    return f"  - {name}:\n      type: stdio\n      command: {server['command']}\n      args:\n{args}{keys}"


def delegate(kind: str, number: int) -> Any:
    return call("AgentTool", {"description": "d", "prompt": "p", "agent_type": kind}, id=f"toolu_{number}")


async def test_a_sub_agent_uses_the_servers_of_its_agent_file(start_session: StartSession, home: Path):
    agents = home / ".config" / "odin" / "agents"
    mark = os.urandom(6).hex()
    own = format_inline_server("tiny", make_server_settings(mark=mark), sampling="false", timeout_s="30")
    write_agent(agents, "first", own + "  - nowhere\n", tools="Read")
    write_agent(agents, "second", own)
    write_agent(agents, "third", format_inline_server("other", {"command": "", "args": []}))
    script = [
        delegate("first", 1), call_tiny("echo", 2, text="one"), say("first done"),
        delegate("second", 3), call_tiny("echo", 4, text="two"), say("second done"),
        delegate("third", 5), say("third done"), say("done"),
    ]  # fmt: skip
    session = await start_session(script, allowed_tools=("mcp__*",))
    assert (await session.client.get_info()).servers == ()
    await session.prompt()
    assert [text for text in session.results() if text.startswith("echo")] == ["echo: one", "echo: two"]
    assert ["mcp__tiny__echo" in session.tools(number) for number in (0, 1, 3, 4, 6, 8)] == [
        *(False, True, False, True, False, False)
    ]
    assert "WriteFile" not in session.tools(1)
    assert len(find_processes(mark)) == 1, "both agents share it"
    state = await session.get_state("tiny")
    assert (state.state, state.source) == ("ready", "agent first")
    assert [text for text in session.warnings() if "the MCP server other is ignored: it has no command" in text]
    assert await session.client.submit(ControlServers("reconnect", ("tiny",)))
    with pytest.raises(UsageError, match="tiny is always on"):
        await session.client.submit(ControlServers("disable", ("tiny",)))
    await session.client.close()
    assert find_processes(mark) == []


async def test_a_server_of_an_agent_is_switched_off_while_a_turn_runs(start_session: StartSession, home: Path):
    write_agent(home / ".config" / "odin" / "agents", "helper", format_inline_server("tiny", make_server_settings()))
    session = await start_session([delegate("helper", 1), call_tiny("echo", 2), say("sub"), say("done")])
    events = session.client.stream_events()
    await session.client.submit(Prompt("p", "Go.", "edit_mode"))
    asked = await session.wait_for(events, PermissionAsked)
    assert await session.client.submit(ControlServers("disable", ("tiny",), force=True))
    await session.client.submit(AnswerPermission(asked.ask_id, True))
    ends = [(await session.wait_for(events, TurnEnded)).reason for _ in ("the sub-agent's", "the main agent's")]
    assert (ends, (await session.get_state("tiny")).state) == (["end_turn", "end_turn"], "disabled")


async def test_a_server_of_the_session_is_not_connected_again_for_an_agent(start_session: StartSession, home: Path):
    agents = home / ".config" / "odin" / "agents"
    mark = os.urandom(6).hex()
    configure(home, {"tiny": make_server_settings(mark=mark)})
    write_agent(agents, "helper", format_inline_server("tiny", make_server_settings(tools=1)), tools="Read")
    session = await start_session(
        [call_tiny("echo", 1), delegate("helper", 2), call_tiny("echo", 3, text="same"), say("sub"), say("done")],
        allowed_tools=("mcp__*",),
    )
    await session.prompt()
    assert (session.results()[1], len(find_processes(mark))) == ("echo: same", 1)
    assert "The agent helper uses another MCP server tiny that is configured already." in session.warnings()


def test_trust_covers_the_servers_of_agent_files(workspace: Path, run_odin: Any):
    (workspace / "tool.py").write_text("serve()")
    write_agent(
        workspace / ".claude" / "agents",
        "helper",
        format_inline_server("ours", {"command": "python", "args": ["tool.py"]}),
    )
    (workspace / ".mcp.json").write_text(
        json.dumps(
            {
                "mcpServers": {
                    "node": {"command": "node", "args": ["server.js"], "env": {"PATH": "evil:${PATH}", "T": "${KEY}"}},
                    "web": {"url": "https://example.org", "headers": {"Authorization": "Bearer ${KEY}"}},
                }
            }
        )
    )
    for _ in ("untrusted", "trusted"):
        listed = run_odin("trust", env={"KEY": "hush"})
        assert "MCP server ours: python tool.py" in listed.stdout
        assert "MCP server node: PATH=evil:${PATH} T=${KEY} node server.js" in listed.stdout
        assert "MCP server web: https://example.org (Authorization: Bearer ${KEY})" in listed.stdout
        assert run_odin("trust", "add", "--yes").returncode == 0
    assert run_odin("trust", "add", "--yes").returncode == 0
    (workspace / "tool.py").write_text("import evil")
    assert "tool.py" in run_odin("trust").stdout
