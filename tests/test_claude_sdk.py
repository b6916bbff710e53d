"""Odin as the command of the package claude-agent-sdk, which starts `odin` and speaks its stream-json protocol."""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    Message,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
    ResultError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TaskNotificationMessage,
    TaskStartedMessage,
    TextBlock,
    ThinkingBlock,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    create_sdk_mcp_server,
    query,
    tool,
)
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import PermissionRuleValue

from odin.commands import build_parser
from odin.testing import ScriptedServer, SeenRequest, Turn, Usage, call, fault, reply, say
from tests.context.test_skills import write_skill
from tests.waiting import TimeLimit, until

Configure = Callable[..., ClaudeAgentOptions]


@pytest.fixture
def configure(tmp_path: Path, workspace: Path) -> Configure:
    """Options that make the SDK start Odin against a scripted server."""
    command = tmp_path / "odin-command"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -m odin "$@"\n')
    command.chmod(0o755)

    def make(server: ScriptedServer | None, api: Any = "anthropic", **more: Any) -> ClaudeAgentOptions:
        env = server.env(api) if server is not None else {}
        return ClaudeAgentOptions(cli_path=command, cwd=workspace, env=env, **more)

    return make


async def collect(stream: AsyncIterator[Message]) -> list[Message]:
    async with TimeLimit():
        return [message async for message in stream]


def find_blocks(messages: list[Message], kind: type[Any]) -> list[Any]:
    found: list[Any] = []
    for message in messages:
        content = message.content if isinstance(message, AssistantMessage | UserMessage) else []
        found.extend(block for block in content if isinstance(block, kind))
    return found


def get_result(messages: list[Message]) -> ResultMessage:
    (result,) = [message for message in messages if isinstance(message, ResultMessage)]
    return result


async def test_prompt_with_tool_calls_yields_all_messages(configure: Configure, workspace: Path) -> None:
    (workspace / "a.txt").write_text("alpha\n")
    (workspace / "b.txt").write_text("beta\n")
    reads = [call("Read", {"file_path": str(workspace / name)}) for name in ("a.txt", "b.txt")]
    script = [reply("Let me look.", reads, thinking="two files"), say("They say alpha and beta.")]
    with ScriptedServer(script) as server:
        messages = await collect(query(prompt="What do the files say?", options=configure(server)))
    assert not server.rejected
    first = messages[0]
    assert isinstance(first, SystemMessage)
    assert first.subtype == "init"
    assert first.data["cwd"] == str(workspace)
    assert "sandbox" in first.data
    assert "Read" in first.data["tools"]
    assert [type(message) for message in messages[1:]] == [
        AssistantMessage,
        UserMessage,
        UserMessage,
        AssistantMessage,
        ResultMessage,
    ]
    uses = cast("list[ToolUseBlock]", find_blocks(messages, ToolUseBlock))
    results = cast("list[ToolResultBlock]", find_blocks(messages, ToolResultBlock))
    assert [use.id for use in uses] == [result.tool_use_id for result in results]
    assert ["alpha" in str(results[0].content), "beta" in str(results[1].content)] == [True, True]
    assert [block.thinking for block in find_blocks(messages, ThinkingBlock)] == ["two files"]
    result = get_result(messages)
    assert (result.subtype, result.is_error, result.result) == ("success", False, "They say alpha and beta.")
    assert result.num_turns == 2
    assert result.session_id == first.data["session_id"]
    assert result.usage is not None
    assert result.usage["output_tokens"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("model", "cost"), [("anthropic/unheard-of", None), ("anthropic/claude-sonnet-4-5", 18.0)])
async def test_cost_is_none_if_the_price_is_unknown(configure: Configure, model: str, cost: float | None) -> None:
    with ScriptedServer([reply("Hello.", usage=Usage(input=1_000_000, output=1_000_000))]) as server:
        result = get_result(await collect(query(prompt="Hi.", options=configure(server, model=model))))
    assert result.total_cost_usd == cost
    assert result.model_usage is not None and result.model_usage[model]["costUSD"] == cost


async def test_structured_output(configure: Configure) -> None:
    properties = {"color": {"type": "string", "minLength": 1}}
    form = {"type": "json_schema", "schema": {"type": "object", "properties": properties, "required": ["color"]}}
    script = [say("Blue."), call("StructuredOutput", {"color": ""}), call("StructuredOutput", {"color": "blue"})]
    with ScriptedServer(script) as server:
        result = get_result(await collect(query(prompt="Go.", options=configure(server, output_format=form))))
    assert (result.subtype, result.structured_output) == ("success", {"color": "blue"})
    messages: list[Message] = []
    with ScriptedServer([say("Blue.")] * 3) as server, pytest.raises(ResultError):
        async with TimeLimit():
            async for message in query(prompt="Go.", options=configure(server, output_format=form)):
                messages.append(message)
    failed = get_result(messages)
    assert (failed.subtype, failed.result) == ("error_max_structured_output_retries", "Blue.")
    assert failed.structured_output is None


async def test_only_the_chosen_skills_are_offered(configure: Configure, home: Path) -> None:
    for name in ("pdf", "xls"):
        write_skill(home / ".claude/skills", name)
    with ScriptedServer([say("a")]) as server:
        messages = await collect(query(prompt="Go.", options=configure(server, skills=["pdf"])))
    assert "- pdf: about pdf" in str(server.requests[0].json["system"])
    assert "xls" not in str(server.requests[0].json["system"])
    first = messages[0]
    assert isinstance(first, SystemMessage) and first.data["skills"] == ["pdf"]


@pytest.mark.slow
@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_partial_messages_work_with_every_provider(configure: Configure, workspace: Path, api: str) -> None:
    answer = "A long answer, said in many small pieces. " * 40
    script = [call("LS", {"path": str(workspace)}, text="Looking."), say(answer, chunk=3)]
    with ScriptedServer(script) as server:
        options = configure(server, api, include_partial_messages=True)
        messages = await collect(query(prompt="List the files.", options=options))
    events = [message.event for message in messages if isinstance(message, StreamEvent)]
    starts = [event for event in events if event["type"] == "message_start"]
    assert len(starts) == len([event for event in events if event["type"] == "message_stop"]) == 2
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == f"Looking.{answer}"
    written = "".join(delta.get("partial_json", "") for delta in deltas)
    assert str(workspace) in written
    ids = [message.message_id for message in messages if isinstance(message, AssistantMessage)]
    assert ids == [start["message"]["id"] for start in starts]


@pytest.mark.slow
async def test_partial_messages_are_sent_only_on_request(configure: Configure) -> None:
    with ScriptedServer([say("Hi.")]) as server:
        messages = await collect(query(prompt="Hello.", options=configure(server)))
    assert not [message for message in messages if isinstance(message, StreamEvent)]


class Gatekeeper:
    """A permission callback that records its calls and returns the given answers."""

    def __init__(self, *answers: PermissionResultAllow | PermissionResultDeny) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any], ToolPermissionContext]] = []

    async def __call__(
        self, name: str, args: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        self.asked.append((name, args, context))
        return self._answers.pop(0)


async def test_allowed_call_is_run(configure: Configure, workspace: Path) -> None:
    target = workspace / "new.txt"
    args = {"file_path": str(target), "content": "made\n"}
    gate = Gatekeeper(PermissionResultAllow())
    with ScriptedServer([call("WriteFile", args, id="toolu_w"), say("Done.")]) as server:
        messages = await collect(query(prompt="Make it.", options=configure(server, can_use_tool=gate)))
    assert target.read_text() == "made\n"
    ((name, shown, context),) = gate.asked
    assert (name, shown, context.tool_use_id) == ("WriteFile", args, "toolu_w")
    assert context.decision_reason
    assert get_result(messages).permission_denials == []


async def test_denied_call_returns_an_error_result(configure: Configure, workspace: Path) -> None:
    target = workspace / "new.txt"
    args = {"file_path": str(target), "content": "made\n"}
    gate = Gatekeeper(PermissionResultDeny(message="not on a Friday"))
    with ScriptedServer([call("WriteFile", args, id="toolu_w"), say("Understood.")]) as server:
        messages = await collect(query(prompt="Make it.", options=configure(server, can_use_tool=gate)))
        result_text = server.requests[1].results["toolu_w"]
    assert not target.exists()
    assert "not on a Friday" in result_text
    (block,) = cast("list[ToolResultBlock]", find_blocks(messages, ToolResultBlock))
    assert block.is_error
    result = get_result(messages)
    assert result.permission_denials == [
        {"tool_name": "WriteFile", "tool_use_id": "toolu_w", "tool_input": args, "reason": result_text}
    ]
    assert result.result == "Understood."


@pytest.mark.slow
async def test_callback_can_change_the_input_of_a_call(configure: Configure, workspace: Path) -> None:
    target = workspace / "new.txt"
    changed = {"file_path": str(target), "content": "changed\n"}
    gate = Gatekeeper(PermissionResultAllow(updated_input=changed))
    args = {"file_path": str(target), "content": "asked for\n"}
    with ScriptedServer([call("WriteFile", args), say("Done.")]) as server:
        await collect(query(prompt="Make it.", options=configure(server, can_use_tool=gate)))
    assert target.read_text() == "changed\n"


@pytest.mark.slow
async def test_denial_can_interrupt_the_turn(configure: Configure, workspace: Path) -> None:
    gate = Gatekeeper(PermissionResultDeny(message="stop here", interrupt=True))
    args = {"file_path": str(workspace / "x"), "content": "x"}
    with ScriptedServer([call("WriteFile", args), say("never said")]) as server:
        messages = await collect(query(prompt="Make it.", options=configure(server, can_use_tool=gate)))
        assert len(server.requests) == 1
    assert get_result(messages).subtype == "error_during_execution"


async def test_failing_permission_callback_denies_the_call(configure: Configure, workspace: Path) -> None:
    async def broken(name: str, args: dict[str, Any], context: ToolPermissionContext) -> PermissionResultAllow:
        raise RuntimeError("the callback broke")

    args = {"file_path": str(workspace / "x"), "content": "x"}
    with ScriptedServer([call("WriteFile", args, id="toolu_w"), say("Oh.")]) as server:
        await collect(query(prompt="Make it.", options=configure(server, can_use_tool=broken)))
        assert "the callback broke" in server.requests[1].results["toolu_w"]
    assert not (workspace / "x").exists()


def touch(name: str, id: str) -> Any:
    return call("ExecuteCommand", {"command": f"touch {name}"}, id=id)


@pytest.mark.slow
async def test_permission_request_suggests_one_rule_for_the_exact_call(configure: Configure, workspace: Path) -> None:
    """Callbacks often return all suggestions, so there is only one, and it allows nothing but the call."""

    class Trusting(Gatekeeper):
        async def __call__(
            self, name: str, args: dict[str, Any], context: ToolPermissionContext
        ) -> PermissionResultAllow | PermissionResultDeny:
            self.asked.append((name, args, context))
            return PermissionResultAllow(updated_permissions=context.suggestions)

    gate = Trusting()
    script = [touch("one", "c1"), touch("one", "c2"), touch("two", "c3"), say("Done.")]
    with ScriptedServer(script) as server:
        await collect(query(prompt="Go.", options=configure(server, can_use_tool=gate)))
    assert [args["command"] for _, args, _ in gate.asked] == ["touch one", "touch two"]
    ((suggestion,), _) = [context.suggestions for _, _, context in gate.asked]
    assert (suggestion.type, suggestion.behavior, suggestion.destination) == ("addRules", "allow", "session")
    assert suggestion.rules is not None
    ((rule,),) = [suggestion.rules]
    assert (rule.tool_name, rule.rule_content) == ("Bash", "touch one")
    assert gate.asked[0][2].title == "Bash"
    assert (workspace / "two").exists()


@pytest.mark.slow
async def test_rules_of_an_answer_are_saved_in_their_destination(configure: Configure, workspace: Path) -> None:
    def update(kind: Any, behavior: Any, destination: Any, *rules: str) -> PermissionUpdate:
        values = [PermissionRuleValue("Bash", rule) for rule in rules]
        return PermissionUpdate(kind, values, behavior, destination=destination)

    first = Gatekeeper(
        PermissionResultAllow(
            updated_permissions=[
                update("addRules", "allow", "localSettings", "touch one", "touch two"),
                update("addRules", "deny", "userSettings", "touch three"),
            ]
        )
    )
    second = Gatekeeper(
        PermissionResultAllow(
            updated_permissions=[
                update("removeRules", "allow", "projectSettings", "touch two"),
                update("removeRules", "deny", "userSettings", "touch three"),
            ]
        ),
        PermissionResultDeny(message="not two"),
        PermissionResultDeny(message="not three"),
    )
    script = [touch("zero", "c0"), touch("two", "c1"), touch("three", "c2"), say("Done.")]
    with ScriptedServer(script) as server:
        await collect(query(prompt="Go.", options=configure(server, can_use_tool=first)))
        assert "enied" in server.requests[3].results["c2"]
    assert len(first.asked) == 1
    assert (workspace / "two").exists()
    script = [touch("one", "c0"), touch("four", "c1"), touch("two", "c2"), touch("three", "c3"), say("Done.")]
    with ScriptedServer(script) as server:
        await collect(query(prompt="Go.", options=configure(server, can_use_tool=second)))
        assert "not three" in server.requests[4].results["c3"]
    assert [args["command"] for _, args, _ in second.asked] == ["touch four", "touch two", "touch three"]
    assert (workspace / "one").exists()
    assert not (workspace / "three").exists()


@pytest.mark.slow
async def test_invalid_rule_in_an_answer_is_reported_and_the_call_is_run(configure: Configure, workspace: Path) -> None:
    bad = PermissionUpdate("addRules", [PermissionRuleValue("", "(")], "allow", destination="session")
    other = PermissionUpdate("addDirectories", directories=["/"], destination="session")
    gate = Gatekeeper(PermissionResultAllow(updated_permissions=[bad, other]))
    with ScriptedServer([touch("one", "c0"), say("Done.")]) as server:
        messages = await collect(query(prompt="Go.", options=configure(server, can_use_tool=gate)))
    warnings = [
        message.data["text"]
        for message in messages
        if isinstance(message, SystemMessage) and message.subtype == "warning"
    ]
    assert len(warnings) == 2
    assert (workspace / "one").exists()


@pytest.mark.slow
async def test_permission_request_names_the_blocked_path(configure: Configure, tmp_path: Path) -> None:
    gate = Gatekeeper(PermissionResultDeny(message="no"))
    args = {"file_path": str(tmp_path / "elsewhere.txt"), "content": "x"}
    with ScriptedServer([call("WriteFile", args), say("Done.")]) as server:
        await collect(query(prompt="Go.", options=configure(server, can_use_tool=gate)))
    ((_, _, context),) = gate.asked
    assert context.decision_reason
    assert context.blocked_path == context.description == str(tmp_path / "elsewhere.txt")


QUESTIONS = [
    {
        "question": "Which database?",
        "header": "Database",
        "options": [{"label": "PostgreSQL", "description": "a server"}, {"label": "SQLite", "description": "a file"}],
        "multiSelect": False,
    },
    {
        "question": "Which extras?",
        "header": "Extras",
        "options": [{"label": "a", "description": ""}, {"label": "b", "description": ""}],
        "multiSelect": True,
    },
]
"""Questions in the format of the SDK."""


async def test_question_goes_to_the_callback_which_answers_in_its_input(configure: Configure) -> None:
    answers = {"Which database?": "SQLite", "Which extras?": "a, b"}
    gate = Gatekeeper(PermissionResultAllow(updated_input={"questions": QUESTIONS, "answers": answers}))
    script = [call("AskUserQuestion", {"questions": QUESTIONS}, id="toolu_q"), say("Done.")]
    with ScriptedServer(script) as server:
        messages = await collect(query(prompt="Set it up.", options=configure(server, can_use_tool=gate)))
        assert "Question" in server.requests[0].tool_names
        assert server.requests[1].results["toolu_q"] == "The user answered:\nDatabase: SQLite\nExtras: a, b"
    ((name, shown, context),) = gate.asked
    assert (name, shown, context.tool_use_id) == ("AskUserQuestion", {"questions": QUESTIONS}, "toolu_q")
    assert get_result(messages).result == "Done."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "expected_result"),
    [
        (PermissionResultAllow(), "Database: PostgreSQL\nExtras: a"),
        (PermissionResultDeny(message="not now"), "cancelled by user"),
    ],
)
async def test_question_without_an_answer_uses_defaults_or_is_cancelled(
    configure: Configure, answer: Any, expected_result: str
) -> None:
    script = [call("Question", {"questions": QUESTIONS}, id="toolu_q"), say("Done.")]
    with ScriptedServer(script) as server:
        options = configure(server, can_use_tool=Gatekeeper(answer))
        messages = await collect(query(prompt="Set it up.", options=options))
        assert expected_result in server.requests[1].results["toolu_q"]
    assert get_result(messages).result == "Done."


@pytest.mark.slow
async def test_interrupt_cancels_an_open_question(configure: Configure) -> None:
    asked = asyncio.Event()

    async def never(name: str, args: dict[str, Any], context: ToolPermissionContext) -> PermissionResultAllow:
        asked.set()
        await asyncio.sleep(3600)
        return PermissionResultAllow()

    script = [call("Question", {"questions": QUESTIONS}, id="toolu_q"), say("Here.")]
    with ScriptedServer(script) as server:
        async with ClaudeSDKClient(configure(server, can_use_tool=never)) as client:
            await client.query("Set it up.")
            async with TimeLimit():
                await asked.wait()
            await client.interrupt()
            assert get_result(await collect(client.receive_response())).subtype == "error_during_execution"
            await client.query("Are you there?")
            assert get_result(await collect(client.receive_response())).result == "Here."
        assert not server.rejected


@pytest.mark.slow
async def test_without_a_callback_the_question_tool_is_not_offered(configure: Configure) -> None:
    with ScriptedServer([call("Question", {"questions": QUESTIONS}, id="toolu_q"), say("I chose.")]) as server:
        await collect(query(prompt="Set it up.", options=configure(server)))
        assert "Question" not in server.requests[0].tool_names
        assert "No user can be asked" in server.requests[1].results["toolu_q"]


async def test_without_a_callback_nothing_is_written(configure: Configure, workspace: Path) -> None:
    args = {"file_path": str(workspace / "x"), "content": "x"}
    with ScriptedServer([call("WriteFile", args, id="toolu_w"), say("I may not.")]) as server:
        messages = await collect(query(prompt="Make it.", options=configure(server)))
        assert "--permission-mode" in server.requests[1].results["toolu_w"]
    assert not (workspace / "x").exists()
    assert get_result(messages).permission_denials


async def prompts(*texts: str) -> AsyncIterator[dict[str, Any]]:
    for text in texts:
        yield {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}


@pytest.mark.slow
async def test_each_prompt_of_a_stream_has_its_own_permission_request_and_result(
    configure: Configure, workspace: Path
) -> None:
    gate = Gatekeeper(PermissionResultAllow(), PermissionResultAllow())
    script = [
        call("WriteFile", {"file_path": str(workspace / "one"), "content": "1"}),
        say("One."),
        call("WriteFile", {"file_path": str(workspace / "two"), "content": "2"}),
        say("Two."),
    ]
    with ScriptedServer(script) as server:
        messages = await collect(query(prompt=prompts("one", "two"), options=configure(server, can_use_tool=gate)))
    assert [message.result for message in messages if isinstance(message, ResultMessage)] == ["One.", "Two."]
    assert (workspace / "two").read_text() == "2"
    assert len(gate.asked) == 2


async def test_a_conversation_in_one_process(configure: Configure) -> None:
    with ScriptedServer([say("Hello, Ada."), say("Ada.")]) as server:
        async with ClaudeSDKClient(configure(server)) as client:
            await client.query("I am Ada.")
            first = get_result(await collect(client.receive_response()))
            await client.query("Who am I?")
            second = get_result(await collect(client.receive_response()))
            assert (first.result, second.result) == ("Hello, Ada.", "Ada.")
            assert first.session_id == second.session_id
        spoken = [str(message["content"]) for message in server.requests[1].messages]
    assert len(spoken) == 3
    assert "I am Ada." in spoken[0]
    assert "Hello, Ada." in spoken[1]


async def test_an_interrupt_while_a_command_runs(configure: Configure, workspace: Path, without_views: None) -> None:
    command = {"command": f"touch {workspace}/started; sleep 60; touch {workspace}/finished"}
    with ScriptedServer([call("ExecuteCommand", command), say("Here again.")]) as server:
        async with ClaudeSDKClient(configure(server, permission_mode="bypassPermissions")) as client:
            await client.query("Run it.")
            await until((workspace / "started").exists)
            await client.interrupt()
            result = get_result(await collect(client.receive_response()))
            assert (result.subtype, result.terminal_reason) == ("error_during_execution", "aborted_tools")
            await client.query("Are you there?")
            assert get_result(await collect(client.receive_response())).result == "Here again."
        assert not server.rejected
    assert not (workspace / "finished").exists()


@pytest.mark.slow
async def test_an_interrupt_while_the_model_writes(configure: Configure) -> None:
    gate = threading.Event()
    with ScriptedServer([say("A very long story", chunk=4).hold(gate, after=4), say("Yes.")]) as server:
        async with ClaudeSDKClient(configure(server, include_partial_messages=True)) as client:
            await client.query("Tell me a story.")
            async for message in client.receive_messages():
                if isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta":
                    break
            await client.interrupt()
            result = get_result(await collect(client.receive_response()))
            assert result.terminal_reason == "aborted_streaming"
            gate.set()
            await client.query("Still there?")
            assert get_result(await collect(client.receive_response())).result == "Yes."
        assert not server.rejected


@pytest.mark.slow
async def test_prompt_right_after_an_interrupt_has_its_own_result(
    configure: Configure, workspace: Path, without_views: None
) -> None:
    """The client does not wait for the end of the interrupted turn before it sends the next prompt."""
    command = {"command": f"touch {workspace}/started; trap '' TERM INT; sleep 60"}
    with ScriptedServer([call("ExecuteCommand", command), say("Here again.")]) as server:
        async with ClaudeSDKClient(configure(server, permission_mode="bypassPermissions")) as client:
            await client.query("Run it.")
            await until((workspace / "started").exists)
            await client.interrupt()
            await client.query("Are you there?")
            assert get_result(await collect(client.receive_response())).terminal_reason == "aborted_tools"
            assert get_result(await collect(client.receive_response())).result == "Here again."
        assert not server.rejected


@pytest.mark.slow
async def test_permission_mode_and_model_can_change_between_prompts(configure: Configure, workspace: Path) -> None:
    target = workspace / "x"
    args = {"file_path": str(target), "content": "x"}
    script = [call("WriteFile", args), say("I may not."), call("WriteFile", args), say("Written.")]
    with ScriptedServer(script) as server:
        async with ClaudeSDKClient(configure(server)) as client:
            await client.query("Write.")
            await collect(client.receive_response())
            assert not target.exists()
            await client.set_permission_mode("acceptEdits")
            await client.set_model("anthropic/claude-opus-4-1")
            await client.query("Write now.")
            messages = await collect(client.receive_response())
            init = next(one for one in messages if isinstance(one, SystemMessage) and one.subtype == "init")
            assert init.data["permissionMode"] == "acceptEdits"
            assert init.data["model"] == "anthropic/claude-opus-4-1"
        assert server.requests[0].model != server.requests[-1].model == "claude-opus-4-1"
    assert target.read_text() == "x"


@pytest.mark.slow
async def test_plan_mode_offers_no_writing_tools(configure: Configure) -> None:
    with ScriptedServer([say("Edit."), say("Plan.")]) as server:
        async with ClaudeSDKClient(configure(server)) as client:
            await client.query("a")
            await collect(client.receive_response())
            await client.set_permission_mode("plan")
            await client.query("b")
            await collect(client.receive_response())
        offered = [request.tool_names for request in server.requests]
    assert "WriteFile" in offered[0]
    assert "WriteFile" not in offered[1]


@pytest.mark.slow
async def test_control_requests_return_server_info_and_context_usage(configure: Configure, workspace: Path) -> None:
    (workspace / "CLAUDE.md").write_text("Use tabs.")
    with ScriptedServer([say("Hi.")]) as server:
        async with ClaudeSDKClient(configure(server)) as client:
            info = await client.get_server_info()
            assert info is not None
            assert info["models"][0]["value"].startswith("anthropic/")
            assert (await client.get_mcp_status())["mcpServers"] == []
            await client.query("Hello.")
            await collect(client.receive_response())
            usage = await client.get_context_usage()
            assert 0 < usage["totalTokens"] < usage["maxTokens"]
            assert usage["memoryFiles"] == [{"path": "CLAUDE.md", "type": "project", "tokens": 4}]
            with pytest.raises(Exception, match="Control request 'rewind_files' is not supported"):
                await client.rewind_files("x")
            with pytest.raises(Exception, match="mode"):
                await client.set_permission_mode(cast("Any", "anything goes"))


async def test_wrong_key_is_an_error_with_a_message(configure: Configure) -> None:
    with ScriptedServer([fault(401, message="invalid x-api-key")]) as server, pytest.raises(ResultError) as caught:
        await collect(query(prompt="Hello.", options=configure(server)))
    assert caught.value.exit_code == 1
    assert caught.value.data["error_kind"] == "AuthFailed"
    assert caught.value.errors


@pytest.mark.slow
async def test_the_limit_of_turns_is_an_error_result(configure: Configure, workspace: Path) -> None:
    script = [call("LS", {"path": str(workspace)}), say("never asked for")]
    with ScriptedServer(script) as server, pytest.raises(ResultError) as caught:
        await collect(query(prompt="List.", options=configure(server, max_turns=1)))
    assert caught.value.subtype == "error_max_turns"


async def test_session_can_be_resumed_in_another_process(configure: Configure) -> None:
    with ScriptedServer([say("Noted."), say("Blue.")]) as server:
        first = get_result(await collect(query(prompt="My colour is blue.", options=configure(server))))
        options = configure(server, resume=first.session_id)
        second = get_result(await collect(query(prompt="Which colour?", options=options)))
        assert "My colour is blue." in str(server.requests[1].messages[0])
    assert second.result == "Blue."
    assert second.session_id == first.session_id


@pytest.mark.slow
async def test_tool_aliases_and_session_options_are_applied(configure: Configure, workspace: Path) -> None:
    with ScriptedServer([call("Bash", {"command": "echo made > out.txt"}), say("Ran.")]) as server:
        options = configure(
            server,
            allowed_tools=["Bash"],
            disallowed_tools=["Write", "Edit"],
            system_prompt={"type": "preset", "preset": "claude_code", "append": "Speak like a skald."},
            max_thinking_tokens=2000,
            extra_args={"replay-user-messages": None},
        )
        messages = await collect(query(prompt="Run it.", options=options))
        request = server.requests[0]
    assert (workspace / "out.txt").read_text() == "made\n"
    assert "Speak like a skald." in str(request.json["system"])
    assert not {"WriteFile", "EditTool"} & set(request.tool_names)
    replayed = [message for message in messages if isinstance(message, UserMessage) and message.content == "Run it."]
    assert len(replayed) == 1
    assert replayed[0].uuid


@pytest.mark.slow
async def test_empty_system_prompt_is_replaced_by_the_default(configure: Configure) -> None:
    """The SDK passes an empty system prompt when its user gives none."""
    with ScriptedServer([say("Hi.")]) as server:
        messages = await collect(query(prompt="Hello.", options=configure(server)))
        assert len(str(server.requests[0].json["system"])) > 500
    (text,) = cast("list[TextBlock]", find_blocks(messages, TextBlock))
    assert text.text == "Hi."


@pytest.mark.slow
def test_every_flag_the_sdk_may_pass_is_understood(workspace: Path) -> None:
    options = ClaudeAgentOptions(
        cli_path="odin",
        tools=["Read"],
        allowed_tools=["Bash(git log:*)"],
        disallowed_tools=["Write"],
        max_turns=3,
        max_budget_usd=0.5,
        task_budget={"total": 9},
        model="m",
        fallback_model="n",
        betas=["context-1m-2025-08-07"],
        permission_prompt_tool_name="stdio",
        permission_mode="plan",
        continue_conversation=True,
        session_id="s",
        settings="{}",
        add_dirs=[workspace],
        mcp_servers={"x": {"command": "x"}},
        include_partial_messages=True,
        include_hook_events=True,
        strict_mcp_config=True,
        fork_session=True,
        setting_sources=["user"],
        plugins=[{"type": "local", "path": "p"}],
        thinking={"type": "enabled", "budget_tokens": 1000, "display": "omitted"},
        effort="low",
        output_format={"type": "json_schema", "schema": {"type": "object"}},
    )
    command = SubprocessCLITransport("", options)._build_command()
    parsed = build_parser().parse_args(command[1:])
    assert (parsed.output_format, parsed.input_format) == ("stream-json", "stream-json")
    assert (parsed.max_turns, parsed.max_thinking_tokens, parsed.session_id) == (3, 1000, "s")


PLAN = "1. Rename it.\n2. Test it."


async def test_approved_plan_is_carried_out_in_the_same_turn(configure: Configure, workspace: Path) -> None:
    write = call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}, id="toolu_w")
    update = PermissionUpdate(type="setMode", mode="acceptEdits", destination="session")
    gate = Gatekeeper(PermissionResultAllow(updated_permissions=[update]))
    script = [call("ExitPlanMode", {"plan": PLAN}, id="toolu_p"), write, say("Done."), say("Next.")]
    with ScriptedServer(script) as server:
        options = configure(server, can_use_tool=gate, permission_mode="plan")
        async with ClaudeSDKClient(options) as client:
            await client.query("Plan it.")
            messages = await collect(client.receive_response())
            await client.query("And now?")
            assert get_result(await collect(client.receive_response())).result == "Next."
            modes = [message.data["permissionMode"] for message in messages if isinstance(message, SystemMessage)]
            assert modes == ["plan", "acceptEdits"]
            assert get_result(messages).result == "Done."
        assert "WriteFile" not in server.requests[0].tool_names
        assert "WriteFile" in server.requests[3].tool_names, "later prompts are in edit mode, too"
    ((name, shown, context),) = gate.asked
    path = str(workspace.resolve() / ".odin/plans/plan-001.md")
    assert (name, shown["plan"], shown["planFilePath"]) == ("ExitPlanMode", PLAN, path)
    assert context.tool_use_id == "toolu_p"
    assert [(one.type, one.mode) for one in context.suggestions] == [("setMode", "acceptEdits")]
    assert (workspace / "x").read_text() == "x"


@pytest.mark.slow
async def test_denied_plan_returns_the_reason_to_the_model(configure: Configure, workspace: Path) -> None:
    script = [call("ExitPlanMode", {"plan": PLAN}, id="toolu_p"), say("What then?")]
    with ScriptedServer(script) as server:
        gate = Gatekeeper(PermissionResultDeny(message="too long"))
        options = configure(server, can_use_tool=gate, permission_mode="plan")
        messages = await collect(query(prompt="Plan it.", options=options))
        assert "The user says: too long" in server.requests[1].results["toolu_p"]
        assert "WriteFile" not in server.requests[1].tool_names
    assert get_result(messages).result == "What then?"


@pytest.mark.slow
async def test_plan_edited_by_the_callback_is_saved(configure: Configure, workspace: Path) -> None:
    script = [call("ExitPlanMode", {"plan": PLAN}, id="toolu_p"), say("Done.")]
    with ScriptedServer(script) as server:
        gate = Gatekeeper(PermissionResultAllow(updated_input={"plan": "1. Half of it."}))
        options = configure(server, can_use_tool=gate, permission_mode="plan")
        await collect(query(prompt="Plan it.", options=options))
        assert "1. Half of it." in server.requests[1].results["toolu_p"]
    assert (workspace / ".odin/plans/plan-001.md").read_text() == "1. Half of it.\n"


@pytest.mark.slow
async def test_without_a_callback_the_plan_is_the_result(configure: Configure, workspace: Path) -> None:
    with ScriptedServer([call("ExitPlanMode", {"plan": PLAN}, id="toolu_p")]) as server:
        messages = await collect(query(prompt="Plan it.", options=configure(server, permission_mode="plan")))
    assert get_result(messages).result == PLAN


@pytest.mark.slow
async def test_agents_of_the_client_work_in_parallel_with_separate_messages(
    configure: Configure, workspace: Path
) -> None:
    """One agent type comes with the handshake, one with --agents. Messages of the agents name their parent call."""
    agents = {"judge": AgentDefinition("Judges the work.", "You judge.", tools=["Read"], model="inherit")}
    flag = json.dumps({"scout": {"description": "Looks around.", "prompt": "You look."}})
    tasks = {"a": "judge", "b": "scout", "c": "judge"}
    all_work = threading.Event()
    given = [call("Delegate", {"description": f"job {key}", "agent_type": tasks[key]}, id=f"d-{key}") for key in tasks]
    main = [reply(calls=given), say("Waiting."), *(say("It is good.") for _ in tasks)]
    looked: set[str] = set()

    def play(seen: SeenRequest) -> Turn:
        if "Delegate" in seen.tool_names:
            return main.pop(0)
        key = next(key for key in tasks if f"job {key}" in json.dumps(seen.messages))
        if key in looked:
            return call("Complete", {"summary": f"done {key}"}, id=f"end-{key}")
        looked.add(key)
        if len(looked) == len(tasks):
            all_work.set()
        return call("Read", {"file_path": str(workspace / "x")}, id=f"read-{key}").hold(all_work)

    (workspace / "x").write_text("x\n")
    with ScriptedServer(play) as server:
        options = configure(server, agents=agents, extra_args={"agents": flag})
        messages = await collect(query(prompt="Judge.", options=options))
    assert not server.rejected
    own = {
        (message.parent_tool_use_id, block.id)
        for message in messages
        if isinstance(message, AssistantMessage) and message.parent_tool_use_id
        for block in message.content
        if isinstance(block, ToolUseBlock)
    }
    assert own == {(f"d-{key}", f"{what}-{key}") for key in tasks for what in ("read", "end")}
    started = [message for message in messages if isinstance(message, TaskStartedMessage)]
    assert sorted((item.tool_use_id, item.task_type, item.description) for item in started) == [
        (f"d-{key}", kind, f"job {key}") for key, kind in tasks.items()
    ]
    ended = [message for message in messages if isinstance(message, TaskNotificationMessage)]
    assert sorted((item.tool_use_id, item.status, item.summary) for item in ended) == [
        (f"d-{key}", "completed", f"done {key}") for key in tasks
    ]
    assert {item.task_id for item in started} == {item.task_id for item in ended} == {f"adhoc-{n}" for n in (1, 2, 3)}
    init = next(message for message in messages if isinstance(message, SystemMessage))
    assert {"judge", "scout", "general"} <= set(init.data["agents"])
    judged = [seen for seen in server.requests if "Delegate" not in seen.tool_names]
    assert any("# Role: judge\\nYou judge." in str(seen.json["system"]) for seen in judged)
    assert [item.result for item in messages if isinstance(item, ResultMessage)][-1] == "It is good."


@pytest.mark.slow
async def test_each_client_has_the_tools_that_it_hosts_now(configure: Configure) -> None:
    """Nothing is remembered of a server that is code in the client: the next client may have another one."""

    def host(name: str) -> Any:
        @tool(name, "Does it.", {})
        async def do(args: dict[str, Any]) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": f"{name} is done"}]}

        return create_sdk_mcp_server("mine", tools=[do])

    for names in (("alpha",), ("beta", "gamma")):
        hosted = {f"s{number}": host(name) for number, name in enumerate(names)}
        with ScriptedServer([say("done")]) as server:
            async with ClaudeSDKClient(configure(server, mcp_servers=hosted)) as client:
                await client.query("Go.")
                await collect(client.receive_response())
        offered = [one["name"] for one in server.requests[0].json["tools"]]
        assert [name for name in offered if name.startswith("mcp__")] == [
            f"mcp__s{number}__{name}" for number, name in enumerate(names)
        ]


async def test_tools_hosted_by_the_client_can_be_called(configure: Configure) -> None:
    """`create_sdk_mcp_server`: the server runs in the client's process, and its messages are control requests."""

    @tool("add", "Adds two numbers.", {"a": int, "b": int})
    async def add(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"sum: {args['a'] + args['b']}"}]}

    script = [call("mcp__calc__add", {"a": 2, "b": 3}, id="toolu_1"), say("5")]
    messages: list[Message] = []
    status: Any = None
    with ScriptedServer(script) as server:
        hosted = create_sdk_mcp_server("calc", tools=[add])
        options = configure(server, mcp_servers={"calc": hosted}, allowed_tools=["mcp__calc__add"])
        async with ClaudeSDKClient(options) as client:
            await client.query("What is 2 + 3?")
            messages = await collect(client.receive_response())
            status = await client.get_mcp_status()
    assert [block.content for block in find_blocks(messages, ToolResultBlock)] == ["sum: 5"]
    assert [(item["name"], item["status"]) for item in status["mcpServers"]] == [("calc", "connected")]
    assert "mcp__calc__add" in [one["name"] for one in server.requests[0].json["tools"]]
