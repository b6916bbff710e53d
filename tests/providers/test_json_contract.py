"""The JSON contract for models without native tool calls, over real HTTP, and the choice of a tool style."""

import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.core.errors import BadRequest, ProviderError
from odin.core.message import Message, PromptMessage, ReplyMessage, Text, ToolCall, ToolMessage, ToolResult
from odin.core.provider import (
    CallChunk,
    Chunk,
    ModelInfo,
    Provider,
    Reply,
    ReplyBuilder,
    Request,
    StopChunk,
    TextChunk,
    ToolSpec,
    ToolStyle,
)
from odin.providers.http import HttpClient
from odin.providers.json_contract import (
    ExplanationReader,
    JsonContract,
    build_contract_schema,
    build_instructions,
    find_repeated_tools,
    flatten_messages,
    list_editable_lines,
    make_call_id,
)
from odin.providers.openai_chat import ChatProvider
from odin.providers.tool_adapters import AdaptiveTools, fit_tools
from odin.testing import ScriptedServer, SeenRequest, Turn, call, fault, reply, say
from tests.table import each

READ = ToolSpec(
    "Read",
    "Read a file.",
    {
        "type": "object",
        "properties": {"file_path": {"type": "string", "description": "Which"}, "limit": {"type": "integer"}},
        "required": ["file_path"],
    },
)
GREP = ToolSpec(
    "Grep",
    "Search files.",
    {
        "type": "object",
        "properties": {"pattern": {"type": "string"}, "mode": {"type": "string", "enum": ["content", "count"]}},
        "required": ["pattern"],
    },
)
EDIT = ToolSpec(
    "EditTool",
    "Edit a file.",
    {"type": "object", "properties": {"file_path": {"type": "string"}, "old_string": {"type": "string"}}},
)
TOOLS = (READ, GREP)
TEXT_CALL = '```json\n{"name": "Read", "arguments": {"file_path": "a.py"}}\n```'


@asynccontextmanager
async def open_chat(server: ScriptedServer) -> AsyncGenerator[ChatProvider]:
    http = HttpClient({})
    provider = ChatProvider(name="local", base_url=server.openai_url, api_key="none", http=http)
    try:
        yield provider
    finally:
        await provider.close()
        await http.close()


def make_request(*messages: Message | str, tools: tuple[ToolSpec, ...] = TOOLS, model: str = "small") -> Request:
    said = tuple(PromptMessage(message) if isinstance(message, str) else message for message in messages)
    return Request(model, said, ("You are Odin.",), tools, max_tokens=500)


async def collect(provider: Provider, request: Request) -> tuple[Reply, list[Chunk]]:
    pieces = [piece async for piece in provider.stream(request)]
    builder = ReplyBuilder("local", request.model)
    for piece in pieces:
        builder.add(piece)
    assert isinstance(pieces[-1], StopChunk)
    assert sum(isinstance(piece, StopChunk) for piece in pieces) == 1
    return builder.finish(), pieces


async def reply_by_contract(turn: Turn, request: Request | None = None, **options: Any) -> tuple[Reply, list[Chunk]]:
    with ScriptedServer([turn], strict=False) as server:
        async with open_chat(server) as provider:
            return await collect(JsonContract(provider, **options), request or make_request("go"))


def list_texts(pieces: Iterable[Chunk]) -> list[str]:
    return [piece.text for piece in pieces if isinstance(piece, TextChunk)]


# --- requests ---


async def test_request_has_a_schema_instead_of_tools() -> None:
    with ScriptedServer([say("Done.")]) as server:
        async with open_chat(server) as provider:
            await collect(JsonContract(provider), make_request("go"))
        (seen,) = server.requests
        assert server.rejected == []
    assert "tools" not in seen.json
    schema = seen.json["response_format"]["json_schema"]["schema"]
    reads, ends = schema["anyOf"]
    names = [entry["properties"]["toolName"]["const"] for entry in reads["properties"]["executeTool"]["items"]["anyOf"]]
    assert names == ["Read", "Grep"]
    assert list(reads["properties"]) == ["taskCompleted", "explanation", "executeTool"]
    assert ends["properties"]["taskCompleted"] == {"const": True}
    system = seen.messages[0]["content"]
    assert system.startswith("You are Odin.")
    assert "- Read(file_path: string, limit?: integer): Read a file.\n    file_path: Which" in system
    assert '- Grep(pattern: string, mode?: "content"|"count"): Search files.' in system


def test_instructions_name_only_offered_tools() -> None:
    reading = build_instructions(TOOLS)
    assert '"toolName": "Grep"' in reading
    assert '"toolName": "Read"' in reading
    assert "EditTool" not in reading
    assert "WriteFile" not in reading
    assert "old_string" not in reading
    assert "Grep" not in build_instructions((READ,))
    own = ToolSpec("Weather", "Tells the weather.", {"type": "object", "properties": {}})
    assert '"toolName": "Weather"' in build_instructions((own,))
    assert "Read" not in build_instructions((own,))


def test_schema_keeps_only_structure() -> None:
    entries = build_contract_schema((READ,))["anyOf"][0]["properties"]["executeTool"]["items"]["anyOf"]
    assert entries[0]["properties"]["toolInput"] == {
        "type": "object",
        "required": ["file_path"],
        "properties": {"file_path": {"type": "string", "minLength": 1}, "limit": {"type": "integer"}},
        "additionalProperties": False,
    }
    reads, changes, ends = build_contract_schema((READ, EDIT))["anyOf"]
    limits = [shape["properties"]["executeTool"]["maxItems"] for shape in (reads, changes, ends)]
    assert limits == [4, 1, 0], "several reads, one change, no call at the end"
    loose = build_contract_schema(TOOLS, "loose")["properties"]["executeTool"]["items"]["properties"]
    assert loose == {"toolName": {"type": "string", "enum": ["Read", "Grep"]}, "toolInput": {"type": "object"}}


def make_step(number: int, *, error: bool = False) -> tuple[ReplyMessage, ToolMessage]:
    name = f"c{number}"
    asked = ReplyMessage((Text(f"step {number}"), ToolCall(name, "Read", {"file_path": f"/{number}"})))
    return asked, ToolMessage((ToolResult(name, f"content {number}", error),), (f"note {number}",))


def test_history_becomes_plain_messages() -> None:
    asked, answered = make_step(1, error=True)
    flat = flatten_messages([PromptMessage("do it", ("env",)), asked, answered, ReplyMessage((Text("Done."),))])
    assert flat[0] == PromptMessage("do it", ("env",))
    assert isinstance(flat[1], ReplyMessage)
    assert json.loads(flat[1].text) == {
        "taskCompleted": False,
        "explanation": "step 1",
        "executeTool": [{"toolName": "Read", "toolInput": {"file_path": "/1"}}],
    }
    assert flat[2] == PromptMessage("Error of Read:\ncontent 1", ("note 1", "The task is: do it"))
    assert isinstance(flat[3], ReplyMessage)
    assert json.loads(flat[3].text) == {"taskCompleted": True, "explanation": "Done.", "executeTool": []}


@given(st.lists(st.sampled_from(["step", "prompt", "answer"]), max_size=12))
def test_flattened_history_is_a_prefix_of_a_longer_one(kinds: list[str]) -> None:
    messages: list[Message] = [PromptMessage("first")]
    for number, kind in enumerate(kinds):
        before = flatten_messages(messages)
        if kind == "step":
            messages += make_step(number)
        else:
            messages.append(PromptMessage(f"p{number}") if kind == "prompt" else ReplyMessage((Text(f"a{number}"),)))
        assert flatten_messages(messages)[: len(before)] == before


def make_search(pattern: str) -> tuple[ReplyMessage, ToolMessage]:
    asked = ReplyMessage((ToolCall(f"g{pattern}", "Grep", {"pattern": pattern}),))
    return asked, ToolMessage((ToolResult(f"g{pattern}", "No matches found"),))


def test_tools_with_repeated_calls_are_found() -> None:
    go = PromptMessage("go")
    assert find_repeated_tools((go, *make_step(1), *make_step(1))) == {"Read"}
    assert find_repeated_tools((go, *make_step(1), *make_search("x"), *make_step(1), *make_search("x"))) == {
        "Read",
        "Grep",
    }
    assert find_repeated_tools((go, *make_step(1), *make_step(1), *make_step(2))) == set(), "the last call is a new one"
    assert find_repeated_tools((go, *make_step(1), PromptMessage("again"), *make_step(1))) == set(), (
        "the call is repeated in another turn"
    )
    assert find_repeated_tools((go,)) == set()


def make_edit(path: str, text: str, *, error: bool = True) -> tuple[ReplyMessage, ToolMessage]:
    asked = ReplyMessage((ToolCall("e", "EditTool", {"file_path": path, "old_string": "x"}),))
    return asked, ToolMessage((ToolResult("e", text, error),))


def make_read(path: str, text: str) -> tuple[ReplyMessage, ToolMessage]:
    asked = ReplyMessage((ToolCall(path, "Read", {"file_path": path}),))
    return asked, ToolMessage((ToolResult(path, text),))


def test_editable_lines_are_listed_after_a_failed_edit() -> None:
    seen = [
        *make_read("/a", '     1\t{\n     2\t  "debug": true,\n     3\t\n     4\t}'),
        *make_read("/b", "     1\tother"),
    ]
    history = (PromptMessage("go"), *seen, *make_edit("/a", "old_string was not found."))
    assert list_editable_lines(history) == ("{", '  "debug": true,', "}")
    assert list_editable_lines((*history, *make_read("/b", "     1\tother"))) == list_editable_lines(history), (
        "a later read changes nothing"
    )
    assert list_editable_lines((PromptMessage("go"), *seen, *make_edit("/a", "Edited.", error=False))) == ()
    assert list_editable_lines((PromptMessage("go"), *make_edit("/c", "Must read file first"))) == ()
    assert list_editable_lines((*history, ReplyMessage((Text("Done."),)), PromptMessage("more"))) == ()
    long = "\n".join(f"{number:6}\tline {number}" for number in range(1000))
    assert (
        list_editable_lines(
            (PromptMessage("go"), *make_read("/a", long), *make_edit("/a", "old_string was not found."))
        )
        == ()
    )


async def test_schema_after_a_failed_edit_lists_the_lines() -> None:
    history = [*make_read("/a", '     1\tsay("hi")'), *make_edit("/a", "old_string was not found.")]
    with ScriptedServer([say("x")]) as server:
        async with open_chat(server) as provider:
            await collect(JsonContract(provider), make_request("go", *history, tools=(EDIT,)))
        schema = server.requests[0].json["response_format"]["json_schema"]["schema"]
    entry = schema["anyOf"][0]["properties"]["executeTool"]["items"]["anyOf"][0]
    assert entry["properties"]["toolInput"]["properties"]["old_string"] == {"type": "string", "enum": ['say("hi")']}


async def test_schema_omits_a_tool_whose_call_was_repeated() -> None:
    same = [part for number in (1, 1) for part in make_step(number)]
    with ScriptedServer([say("x"), say("x")]) as server:
        async with open_chat(server) as provider:
            await collect(JsonContract(provider), make_request("go", *same))
            await collect(JsonContract(provider), make_request("go", *same, tools=(READ,)))
        schemas = [json.dumps(seen.json["response_format"]) for seen in server.requests]
        systems = [seen.messages[0]["content"] for seen in server.requests]
    assert '"Read"' not in schemas[0]
    assert '"Grep"' in schemas[0]
    assert '"Read"' in schemas[1], "the only tool is kept"
    assert "- Read(" in systems[0], "the system prompt still describes every tool"


async def test_request_without_tools_has_a_plain_history() -> None:
    with ScriptedServer([say("A summary.")]) as server:
        async with open_chat(server) as provider:
            answer, _ = await collect(JsonContract(provider), make_request("go", *make_step(1), "sum up", tools=()))
        (seen,) = server.requests
    assert answer.message.text == "A summary."
    assert "response_format" not in seen.json
    assert {message["role"] for message in seen.messages} == {"system", "user", "assistant"}


# --- replies ---


async def test_contract_reply_becomes_a_call() -> None:
    answer, pieces = await reply_by_contract(call("Read", {"file_path": "/a"}, text="I read it."))
    assert answer.message.text == "I read it."
    (made,) = answer.message.calls
    assert (made.name, made.args) == ("Read", {"file_path": "/a"})
    assert answer.message.stop == "tool_use"
    assert [piece.done for piece in pieces if isinstance(piece, CallChunk)] == [True]


async def test_several_calls_keep_their_order() -> None:
    calls = [call("Read", {"file_path": "/a"}), call("Grep", {"pattern": "x"}), call("Read", {"file_path": "/b"})]
    answer, _ = await reply_by_contract(reply("", calls))
    assert [made.name for made in answer.message.calls] == ["Read", "Grep", "Read"]
    assert len({made.id for made in answer.message.calls}) == 3


def contract_reply(explanation: str, completed: bool, execute: Any, **say_options: Any) -> Turn:
    body = {"taskCompleted": completed, "explanation": explanation, "executeTool": execute}
    return say(json.dumps(body), **say_options)


ONE = {"toolName": "Read", "toolInput": {"file_path": "/a"}}


@pytest.mark.parametrize(
    ("turn", "text", "names", "stop"),
    [
        (contract_reply("Done.", True, []), "Done.", [], "end_turn"),
        (contract_reply("Done.", True, None), "Done.", [], "end_turn"),
        (contract_reply("More.", True, [ONE]), "More.", ["Read"], "tool_use"),
        (contract_reply("Hm.", False, []), "Hm.", [], "unfinished"),
        (contract_reply("One.", False, ONE), "One.", ["Read"], "tool_use"),
        (contract_reply("", True, []), "Done.", [], "end_turn"),
        (contract_reply("Odd.", False, [{"toolName": "Fly", "toolInput": {}}]), "Odd.", ["Fly"], "tool_use"),
        (
            contract_reply("Text.", False, [{"toolName": "Read", "toolInput": '{"file_path": "/a"}'}]),
            "Text.",
            ["Read"],
            "tool_use",
        ),
        (say('{"executeTool": [], "explanation": "Late.", "taskCompleted": true}'), "Late.", [], "end_turn"),
        (say("Just words."), "Just words.", [], "end_turn"),
        (say(f"I look.\n{TEXT_CALL}"), "I look.", ["Read"], "tool_use"),
        (say('{"name": "Read", "arguments": {"file_path": "/a"}}'), "", ["Read"], "tool_use"),
        (say('{"version": 2}'), '{"version": 2}', [], "end_turn"),
        (say('```json\n{"version": 2}\n```'), '```json\n{"version": 2}\n```', [], "end_turn"),
    ],
)
async def test_every_form_of_reply_is_understood(turn: Turn, text: str, names: list[str], stop: str) -> None:
    with ScriptedServer([fault(400, message="no grammar"), fault(400, message="no grammar"), turn]) as server:
        async with open_chat(server) as provider:
            answer, _ = await collect(JsonContract(provider), make_request("go"))
    assert answer.message.text.strip() == text
    assert [made.name for made in answer.message.calls] == names
    assert answer.message.stop == stop
    assert answer.malformed_calls == ()


async def reply_without_schema(text: str, **options: Any) -> tuple[Reply, list[Chunk]]:
    """Return the reply of a server that supports no schema, so that the text arrives unchanged."""
    refusals = [fault(400, message="no grammar"), fault(400, message="no grammar")]
    with ScriptedServer([*refusals, say(text, **options)]) as server:
        async with open_chat(server) as provider:
            return await collect(JsonContract(provider), make_request("go"))


async def test_broken_json_becomes_a_malformed_call() -> None:
    answer, _ = await reply_without_schema(
        '{"taskCompleted": false, "executeTool": [{"toolName": "Read", "toolInput": {"file'
    )
    assert [bad.name for bad in answer.malformed_calls] == ["Read"]
    assert answer.message.calls == ()
    answer, _ = await reply_without_schema('{"taskCompleted": false, "executeTool": ["Read"]}')
    assert len(answer.malformed_calls) == 1


async def test_a_reply_cut_by_the_limit_runs_nothing() -> None:
    cut = '{"taskCompleted": false, "explanation": "I re", "executeTool": [{"toolName": "Read", "toolInput": {"fi'
    answer, _ = await reply_without_schema(cut, stop="max_tokens")
    assert answer.message.text == "I re"
    assert answer.message.stop == "max_tokens"
    assert answer.message.calls == ()
    assert answer.malformed_calls == ()


async def test_text_after_the_object_is_ignored() -> None:
    first = json.dumps({"taskCompleted": False, "explanation": "One.", "executeTool": [ONE]})
    second = json.dumps({"taskCompleted": True, "explanation": "Two.", "executeTool": []})
    answer, _ = await reply_without_schema(f"{first}\n{second}")
    assert answer.message.text == "One."
    assert len(answer.message.calls) == 1


async def test_the_explanation_streams_while_the_object_comes_in() -> None:
    _, pieces = await reply_by_contract(contract_reply("One two three four five.", True, [], chunk=4))
    assert "".join(list_texts(pieces)) == "One two three four five."
    assert len(list_texts(pieces)) > 3


async def test_refused_schema_is_simplified_for_all_later_requests() -> None:
    script = [fault(400, message="failed to parse grammar"), say("One."), say("Two.")]
    with ScriptedServer(script) as server:
        async with open_chat(server) as provider:
            asked = JsonContract(provider)
            assert (await collect(asked, make_request("go")))[0].message.text == "One."
            assert (await collect(asked, make_request("go")))[0].message.text == "Two."
        schemas = [seen.json["response_format"]["json_schema"]["schema"] for seen in server.requests]
    assert ["anyOf" in schema for schema in schemas] == [True, False, False]


async def test_a_request_that_is_refused_in_every_form_fails() -> None:
    with ScriptedServer([fault(400, message="bad model settings")] * 3) as server:
        async with open_chat(server) as provider:
            with pytest.raises(BadRequest):
                await collect(JsonContract(provider), make_request("go"))
        assert len(server.requests) == 3
        assert "response_format" not in server.requests[-1].json


# --- reading the explanation while it streams ---


@given(st.text(), st.integers(1, 9), st.booleans())
def test_explanation_is_read_from_chunks_of_any_size(text: str, size: int, ascii_only: bool) -> None:
    raw = json.dumps({"taskCompleted": True, "explanation": text, "executeTool": []}, ensure_ascii=ascii_only)
    reader = ExplanationReader()
    given_out = "".join(reader.feed(raw[at : at + size]) for at in range(0, len(raw), size))
    assert given_out == reader.shown_text == text


def test_half_a_surrogate_pair_is_replaced() -> None:
    reader = ExplanationReader()
    assert reader.feed('{"explanation": "a\\ud83d') == "a"
    assert reader.feed("\\ude00 b\\ud83d!") == "😀 b"
    assert reader.feed(" the end\\udc00") == "\ufffd! the end\ufffd"


# --- choosing the tool style ---


class StyleRecorder:
    """Records the styles that AdaptiveTools reports."""

    def __init__(self) -> None:
        self.styles: list[tuple[str, ToolStyle]] = []

    def __call__(self, model: str, style: ToolStyle) -> None:
        self.styles.append((model, style))


async def test_a_native_model_is_asked_natively_and_passed_through() -> None:
    recorder = StyleRecorder()
    with ScriptedServer([call("Read", {"file_path": "/a"}, text="I look."), say("Done.")]) as server:
        async with open_chat(server) as provider:
            tools = AdaptiveTools(provider, "auto", on_style=recorder)
            first, _ = await collect(tools, make_request("go"))
            second, _ = await collect(tools, make_request("go"))
        assert [seen.tool_names for seen in server.requests] == [["Read", "Grep"]] * 2
    assert first.message.text == "I look."
    assert [made.name for made in first.message.calls] == ["Read"]
    assert second.message.text == "Done."
    assert recorder.styles == []


async def test_call_in_text_is_run_and_switches_to_the_contract() -> None:
    recorder = StyleRecorder()
    with ScriptedServer([say(f"I look.\n\n{TEXT_CALL}\nIt says 7.", chunk=3), say("Done.")]) as server:
        async with open_chat(server) as provider:
            tools = AdaptiveTools(provider, "auto", on_style=recorder)
            first, pieces = await collect(tools, make_request("go"))
            second, _ = await collect(tools, make_request("go"))
        assert server.requests[0].tool_names == ["Read", "Grep"]
        assert server.requests[1].tool_names == []
        assert "response_format" in server.requests[1].json
    assert "".join(list_texts(pieces)).strip() == "I look."
    assert first.message.stop == "tool_use"
    assert [(made.name, made.args) for made in first.message.calls] == [("Read", {"file_path": "a.py"})]
    assert second.message.text == "Done."
    assert recorder.styles == [("small", "json")]


async def test_resumed_session_continues_with_the_contract() -> None:
    asked = ReplyMessage((ToolCall(make_call_id("small"), "Read", {"file_path": "/a"}),))
    answered = ToolMessage((ToolResult(asked.calls[0].id, "7"),))
    with ScriptedServer([say("Done."), say("Done.")]) as server:
        async with open_chat(server) as provider:
            tools = AdaptiveTools(provider, "auto")
            assert tools.choose_style(make_request("go", asked, answered)) == "json"
            await collect(tools, make_request("go", asked, answered))
            await collect(tools, make_request("go", asked, answered, model="another"))
        assert [seen.tool_names for seen in server.requests] == [[], ["Read", "Grep"]]


@pytest.mark.parametrize(
    "sentence",
    [
        "registry.ollama.ai/library/gemma:2b does not support tools",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "tools param requires --jinja flag",
        "Function calling is not supported by this model: tools are not supported",
    ],
)
async def test_server_without_tool_support_is_asked_by_the_contract(sentence: str) -> None:
    recorder = StyleRecorder()
    with ScriptedServer([fault(400, message=sentence), say("Done."), say("Again.")]) as server:
        async with open_chat(server) as provider:
            tools = AdaptiveTools(provider, "auto", on_style=recorder)
            answer, _ = await collect(tools, make_request("go"))
            await collect(tools, make_request("go"))
        assert [bool(seen.tool_names) for seen in server.requests] == [True, False, False]
    assert answer.message.text == "Done."
    assert recorder.styles == [("small", "json")]


async def test_other_refusal_is_an_error() -> None:
    with ScriptedServer([fault(400, message="max_tokens is too large")]) as server:
        async with open_chat(server) as provider:
            with pytest.raises(ProviderError):
                await collect(AdaptiveTools(provider, "auto"), make_request("go"))
        assert len(server.requests) == 1


async def test_fixed_styles_are_kept() -> None:
    with ScriptedServer([say(TEXT_CALL), say("Done.")]) as server:
        async with open_chat(server) as provider:
            native, _ = await collect(AdaptiveTools(provider, "native"), make_request("go"))
            await collect(AdaptiveTools(provider, "json"), make_request("go"))
        assert [bool(seen.tool_names) for seen in server.requests] == [True, False]
    assert native.message.text == TEXT_CALL
    assert native.message.calls == ()


async def test_text_beside_a_native_call_is_never_read_as_a_call() -> None:
    with ScriptedServer([call("Grep", {"pattern": "x"}, text=TEXT_CALL)]) as server:
        async with open_chat(server) as provider:
            answer, _ = await collect(AdaptiveTools(provider, "auto"), make_request("go"))
    assert [made.name for made in answer.message.calls] == ["Grep"]
    assert answer.message.text == TEXT_CALL


async def test_closing_the_stream_early_closes_the_connection() -> None:
    async def leave(build: Callable[[ChatProvider], Provider]) -> bool:
        with ScriptedServer([say("word " * 50, chunk=5).stall(after=6)]) as server:
            async with open_chat(server) as provider:
                pieces = build(provider).stream(make_request("go"))
                async for piece in pieces:
                    if isinstance(piece, TextChunk):
                        break
                await pieces.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            server.wait_idle()
            return server.requests[0].hung_up

    assert await leave(lambda provider: AdaptiveTools(provider, "auto"))
    assert await leave(lambda provider: AdaptiveTools(provider, "native"))
    assert await leave(JsonContract)


# --- small context windows ---


def make_spec(name: str, *parameters: str) -> ToolSpec:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return ToolSpec(name, f"About {name}.", {"type": "object", "properties": properties, "required": [parameters[0]]})


FULL = (
    make_spec("LS", "path", "ignore"),
    make_spec("Grep", "pattern", "path", "glob", "-A"),
    make_spec("TodoWrite", "todos"),
)
BRIEF = tuple(ToolSpec(tool.name, "Short.", tool.schema) for tool in FULL)


def make_model_info(context: int, **more: Any) -> ModelInfo:
    return ModelInfo("m", context=context, **more)


def test_large_and_unknown_context_windows_get_all_tools() -> None:
    assert fit_tools(FULL, BRIEF, make_model_info(0)) == FULL
    assert fit_tools(FULL, BRIEF, make_model_info(200_000)) == FULL


def test_medium_context_windows_get_short_descriptions() -> None:
    assert fit_tools(FULL, BRIEF, make_model_info(32_768)) == BRIEF


@each("info", [make_model_info(16_384), make_model_info(200_000, parameters=1.5e9), make_model_info(0, parameters=3e9)])
def test_small_windows_and_small_models_get_few_tools_with_few_parameters(info: ModelInfo) -> None:
    few = fit_tools(FULL, BRIEF, info)
    assert [tool.name for tool in few] == ["LS", "Grep"]
    assert [list(tool.schema["properties"]) for tool in few] == [["path"], ["pattern", "path"]]
    assert few[0].description == "Short."
    assert fit_tools(FULL[2:], BRIEF[2:], info) == BRIEF[2:], "other tools are better than none"


def is_prefix(first: SeenRequest, second: SeenRequest) -> bool:
    return second.messages[: len(first.messages)] == first.messages


async def test_next_request_starts_with_the_previous_one() -> None:
    with ScriptedServer([say("x"), say("x"), say("x")]) as server:
        async with open_chat(server) as provider:
            asked = JsonContract(provider)
            history: list[Message] = [PromptMessage("go", ("env",))]
            for number in range(3):
                await collect(asked, make_request(*history))
                history += make_step(number)
        one, two, three = server.requests
    assert is_prefix(one, two)
    assert is_prefix(two, three)
