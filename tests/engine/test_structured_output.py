"""Structured output: an answer that matches a JSON schema, with every kind of model."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import odin
from odin.core.call_events import PlanAsked, ToolEnded
from odin.core.errors import UsageError
from odin.core.event import NoteAdded, TurnEnded, TurnStarted
from odin.core.message import PromptMessage
from odin.core.op import Answer, Prompt
from odin.core.provider import Chunk, Request, StopChunk, TextChunk
from odin.core.structured_output import check_schema, find_flaws, make_output_tool, parse_answer
from odin.providers import openai_chat
from odin.providers.http import HttpClient
from odin.providers.payload import is_strict_schema
from odin.testing import ScriptedServer, call, fault, reply, say
from tests.conftest import Run
from tests.table import each

from .conftest import Start, Talk

OBJECT = {"type": "object", "additionalProperties": False}
SCHEMA: dict[str, Any] = {
    **OBJECT,
    "properties": {"color": {"type": "string"}, "legs": {"type": ["integer", "null"]}},
    "required": ["color", "legs"],
}
LIMITED: dict[str, Any] = {
    **SCHEMA,
    "properties": {"color": {"type": "string"}, "legs": {"type": "integer", "minimum": 1}},
}
"""What strict schemas of APIs do not know."""

VALID = {"color": "blue", "legs": 4}
INVALID = {"color": "blue"}
ANSWER = json.dumps(VALID, separators=(",", ":"))
TOOL = "StructuredOutput"


def answer(value: dict[str, Any], text: str = "") -> Any:
    return call(TOOL, value, text=text)


async def ask(talk: Talk, schema: dict[str, Any] = SCHEMA, text: str = "Go.", prompt_id: str = "p") -> TurnEnded:
    await talk.client.submit(Prompt(prompt_id, text, output_schema=schema))
    return await talk.until_end(prompt_id)


def list_tools(body: dict[str, Any]) -> list[str]:
    tools: list[Any] = body.get("tools") or []
    declared: list[Any] = tools[0].get("functionDeclarations", tools) if tools else []
    return [tool.get("name") or tool["function"]["name"] for tool in declared]


# --- the schema ---


@each(
    "schema, problem",
    [
        ([], "must be a JSON object"),
        (OBJECT | {"properties": {"a": object()}}, "cannot be written as JSON"),
        ({}, '"type": "object"'),
        ({"type": "array", "items": {"type": "string"}}, '"type": "object"'),
        (OBJECT | {"anyOf": [{"required": ["a"]}]}, "none of $ref, anyOf"),
        (OBJECT | {"properties": {"a": {"$ref": "https://example.com/a.json"}}}, "'https://example.com/a.json'"),
        (OBJECT | {"properties": {"a": {"$ref": "other.json"}}}, "not part of it"),
        (OBJECT | {"properties": {"a": {"$ref": "#/$defs/b"}}}, "'#/$defs/b'"),
        (OBJECT | {"$schema": "https://example.com/draft"}, "unknown draft"),
        (OBJECT | {"properties": {"a": {"type": "text"}}}, "invalid at $.properties.a.type"),
        (OBJECT | {"description": "x" * 100_000}, "bytes"),
        (msgspec.json.decode('{"type":"object","properties":' + '{"a":' * 90 + "{}" + "}" * 91), "levels deep"),
    ],
)
def test_unusable_schema_is_a_usage_error(schema: Any, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_schema(schema)
    assert problem in caught.value.describe()


def test_schema_with_definitions_and_an_older_draft_is_accepted() -> None:
    older: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    older["definitions"] = {"a": {}}
    assert check_schema(older | {"required": ("a",), "properties": {"a": {"$ref": "#/definitions/a"}}})["required"] == [
        "a"
    ]
    assert "$schema" not in make_output_tool(older).schema


@each(
    "schema, strict",
    [
        (SCHEMA, True),
        (LIMITED, False),
        ({**SCHEMA, "required": ["color"]}, False),
        ({**SCHEMA, "additionalProperties": True}, False),
        ({**OBJECT, "properties": {"a": {}}, "required": ["a"]}, False),
        ({**OBJECT, "properties": {"a": {"type": "array"}}, "required": ["a"]}, False),
        ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/s"}}, "required": ["a"], "$defs": {"s": SCHEMA}}, True),
        (
            {
                **OBJECT,
                "properties": {"a": {"$ref": "#/$defs/s", "title": "A"}},
                "required": ["a"],
                "$defs": {"s": SCHEMA},
            },
            False,
        ),
        (
            {
                **OBJECT,
                "properties": {"a": {"$ref": "#/$defs/s"}},
                "required": ["a"],
                "$defs": {"s": {**OBJECT, "properties": {"s": {"$ref": "#/$defs/s"}}, "required": ["s"]}},
            },
            False,
        ),
        ({**OBJECT, "properties": {"a": {"anyOf": [{"type": "null"}, SCHEMA]}}, "required": ["a"]}, True),
    ],
)
def test_strict_schemas_are_those_that_every_api_takes(schema: dict[str, Any], strict: bool) -> None:
    check_schema(schema)
    assert is_strict_schema(schema) is strict


@each(
    "text, value",
    [
        (ANSWER, VALID),
        (f"\n{ANSWER}\n", VALID),
        (f"Here:\n```json\n{ANSWER}\n```\nDone.", VALID),
        ("", None),
        ("[1]", None),
        (f"It is {ANSWER}", None),
    ],
)
def test_json_of_an_answer_is_found(text: str, value: Any) -> None:
    assert parse_answer(text) == value


def test_flaws_name_path_and_reason() -> None:
    assert find_flaws(LIMITED, VALID) == ""
    assert find_flaws(LIMITED, {"color": 1, "legs": 0, "eyes": 2}) == (
        "$: Additional properties are not allowed ('eyes' was unexpected); $.color: 1 is not of type 'string'; "
        "$.legs: 0 is less than the minimum of 1"
    )
    endless = {**OBJECT, "properties": {"a": {"$ref": "#/properties/a"}}}
    assert find_flaws(check_schema(endless), {"a": 1}) == "it is nested too deep"


# --- the requests ---


@pytest.mark.parametrize("api", ["anthropic", "responses", "chat", "google"])
@pytest.mark.parametrize("schema", [SCHEMA, LIMITED], ids=["strict", "limited"])
async def test_each_api_gets_the_schema_in_its_own_form(start: Start, workspace: Path, api: str, schema: Any) -> None:
    is_native = schema is SCHEMA and api in ("anthropic", "responses")
    config = {"providers": {"openai": {"type": "openai-responses"}}} if api == "responses" else {}
    script = [call("LS", {"path": str(workspace)}), say(ANSWER) if is_native else answer(VALID)]
    talk = await start(script, "openai" if api in ("responses", "chat") else api, config=config)
    ended = await ask(talk, schema)
    assert (ended.reason, ended.structured_output, ended.text) == ("end_turn", VALID, ANSWER)
    assert talk.server.rejected == []
    for body in (seen.json for seen in talk.server.requests):
        assert "LS" in list_tools(body)
        assert (TOOL in list_tools(body)) is not is_native
        if api == "anthropic":
            form = {"type": "json_schema", "schema": SCHEMA} if is_native else None
            assert body.get("output_config", {}).get("format") == form
        if api == "responses":
            form = {"type": "json_schema", "name": "reply", "schema": SCHEMA, "strict": True}
            assert body.get("text") == ({"format": form} if is_native else None)
        assert "response_format" not in body and "responseMimeType" not in body.get("generationConfig", {})


async def test_gemini_without_other_tools_gets_the_schema(start: Start) -> None:
    talk = await start([say(ANSWER)], "google", tools=())
    assert (await ask(talk)).structured_output == VALID
    body = talk.server.requests[0].json
    assert "tools" not in body
    assert body["generationConfig"]["responseMimeType"] == "application/json"
    assert body["generationConfig"]["responseJsonSchema"] == SCHEMA
    assert talk.server.rejected == []


def test_chat_completions_of_openai_get_the_schema() -> None:
    request = Request("gpt-4.1", (PromptMessage("Go."),), schema=SCHEMA, strict=True)
    url = "https://api.openai.com/v1/chat/completions"
    body = json.loads(openai_chat.encode_request(request, url))
    assert body["response_format"]["json_schema"] == {"name": "reply", "schema": SCHEMA, "strict": True}
    for address, takes in ((url, True), ("http://127.0.0.1/v1", False)):
        provider = openai_chat.ChatProvider(name="x", base_url=address, api_key="", http=HttpClient({}))
        assert provider.takes_answer_schema(request) is takes


@pytest.mark.parametrize("model", ["claude-sonnet-4-0", "kimi-k2"])
async def test_models_without_strict_schemas_get_the_tool(start: Start, model: str) -> None:
    talk = await start([answer(VALID)], model=f"anthropic/{model}")
    assert (await ask(talk)).structured_output == VALID
    assert TOOL in list_tools(talk.server.requests[0].json)


async def test_rejected_schema_is_sent_as_a_tool(start: Start) -> None:
    talk = await start([fault(400, message="Schema is too complex."), answer(VALID), answer(VALID)])
    assert (await ask(talk)).structured_output == VALID
    assert (await ask(talk, prompt_id="again")).structured_output == VALID
    assert [TOOL in list_tools(seen.json) for seen in talk.server.requests] == [False, True, True]


async def test_requests_without_a_schema_are_unchanged(start: Start) -> None:
    talk = await start([say("Hi."), say(ANSWER), say("Bye.")])
    await talk.say("Go.")
    await ask(talk)
    ended = await talk.say("Go.")
    assert (ended.reason, ended.structured_output, ended.text) == ("end_turn", None, "Bye.")
    first, _, last = (seen.json for seen in talk.server.requests)
    assert {key: value for key, value in first.items() if key != "messages"} == {
        key: value for key, value in last.items() if key != "messages"
    }


async def test_next_model_of_a_pool_is_asked_in_its_own_form(start: Start) -> None:
    def play(seen: Any) -> Any:
        return fault(401) if seen.model == "claude-sonnet-4-5" else answer(VALID)

    pools = {"main": ["anthropic/claude-sonnet-4-5", "anthropic/kimi-k2"]}
    talk = await start(play, env={"ODIN_MODEL": ""}, config={"model_pools": pools})
    assert (await ask(talk)).structured_output == VALID
    first, second = (seen.json for seen in talk.server.requests)
    assert ("output_config" in first, TOOL in list_tools(first)) == (True, False)
    assert ("output_config" in second, TOOL in list_tools(second)) == (False, True)


async def test_json_contract_enforces_the_schema(start: Start, workspace: Path) -> None:
    config = {"providers": {"openai": {"models": {"m": {"tools": "json"}}}}}
    script = [call("LS", {"path": str(workspace)}), answer(INVALID), answer(INVALID), answer(VALID)]
    talk = await start(script, "openai", config=config, model="openai/m")
    assert (await ask(talk)).structured_output == VALID
    last = talk.server.requests[-1].body.decode()
    assert f'"const":"{TOOL}"' in last, "also after the same call was made twice"
    assert "'legs' is a required property" in last


async def test_small_model_that_writes_files_gives_its_answer_with_the_contract(start: Start) -> None:
    model = {"tools": "json", "strategy": "files"}
    config = {"providers": {"openai": {"models": {"m": model}}}}
    talk = await start([say("It is blue and has four legs."), answer(VALID)], "openai", config=config, model="openai/m")
    assert (await ask(talk, text="What color is the cat?")).structured_output == VALID
    assert f'"const":"{TOOL}"' in talk.server.requests[-1].body.decode()
    assert '"const":"Read"' not in talk.server.requests[-1].body.decode()


# --- corrections ---


async def test_wrong_call_is_corrected(start: Start) -> None:
    talk = await start([answer(INVALID), answer({**VALID, "legs": 0}), answer(VALID)])
    ended = await ask(talk, LIMITED)
    assert (ended.reason, ended.structured_output, ended.steps) == ("end_turn", VALID, 3)
    first, second, third = talk.all(ToolEnded)
    assert "$: 'legs' is a required property" in first.text
    assert "$.legs: 0 is less than the minimum of 1" in second.text
    assert [one.status for one in (first, second, third)] == ["error", "error", "success"]
    assert talk.server.rejected == []


async def test_answer_without_json_is_corrected_with_the_tool(start: Start) -> None:
    """Also where the API should have enforced the schema: a gateway may ignore it."""
    talk = await start([say("It is blue."), answer(VALID)])
    assert (await ask(talk)).structured_output == VALID
    (note,) = talk.all(NoteAdded)
    assert "it is not a JSON object" in note.text
    assert [TOOL in list_tools(seen.json) for seen in talk.server.requests] == [False, True]


@pytest.mark.parametrize("wrong", [answer(INVALID), say("It is blue."), say(json.dumps(INVALID))], ids=str)
async def test_third_wrong_answer_is_an_error(start: Start, wrong: Any) -> None:
    talk = await start([wrong] * 3)
    ended = await ask(talk, LIMITED)
    assert (ended.reason, ended.error_kind) == ("error_max_structured_output_retries", "OutputMismatch")
    assert (ended.structured_output, len(talk.server.requests)) == (None, 3)
    assert "blue" in ended.text, "the last answer is kept"
    assert (await talk.client.snapshot()).executing is False


@pytest.mark.parametrize("nothing", [say(""), reply(thinking="hm", stop="end_turn")], ids=["empty", "thinking"])
async def test_empty_reply_is_no_success(start: Start, nothing: Any) -> None:
    talk = await start([nothing] * 9)
    ended = await ask(talk)
    assert (ended.reason, len(talk.server.requests)) == ("error_max_structured_output_retries", 6)
    assert "it is empty" in ended.error


async def test_model_that_ends_without_a_word_is_corrected(start: Start, workspace: Path) -> None:
    talk = await start([call("LS", {"path": str(workspace)}), say(""), say(""), answer(VALID)])
    assert (await ask(talk)).structured_output == VALID
    assert [TOOL in list_tools(seen.json) for seen in talk.server.requests] == [False, False, False, True]
    assert talk.server.rejected == []


async def test_calls_beside_the_answer_run_first(start: Start, workspace: Path) -> None:
    calls = [call(TOOL, VALID), call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": "a"})]
    talk = await start([reply("", calls)])
    assert (await ask(talk, LIMITED)).structured_output == VALID
    assert (workspace / "a.txt").read_text() == "a"
    assert [event.name for event in talk.all(ToolEnded)] == ["WriteFile", TOOL]


async def test_limit_of_requests_applies_to_corrections(start: Start) -> None:
    talk = await start([answer(INVALID)] * 3, max_turns=2)
    ended = await ask(talk, LIMITED)
    assert (ended.reason, ended.structured_output, len(talk.server.requests)) == ("max_turns", None, 2)


async def test_stop_hook_applies_and_the_last_answer_counts(start: Start, workspace: Path, home: Path) -> None:
    hook = f"test -e {workspace}/seen || {{ touch {workspace}/seen; echo 'Count again.' >&2; exit 2; }}"
    config = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": hook}]}]}}
    other = {**VALID, "legs": 3}
    talk = await start([answer(other), answer(VALID)], config=config)
    ended = await ask(talk, LIMITED)
    assert (ended.structured_output, len(talk.server.requests)) == (VALID, 2)
    assert b"Count again." in talk.server.requests[1].body


async def test_sub_agents_are_not_asked_for_the_schema(start: Start) -> None:
    def play(seen: Any) -> Any:
        if b"Look at the door." in seen.body and b"Go." not in seen.body:
            return say("The door is red.")
        if b"The door is red." in seen.body:
            return answer(VALID)
        return call("AgentTool", {"description": "look", "prompt": "Look at the door."})

    talk = await start(play)
    assert (await ask(talk, LIMITED)).structured_output == VALID
    assert [TOOL in list_tools(seen.json) for seen in talk.server.requests] == [True, False, True]


async def test_plan_does_not_replace_the_answer(start: Start) -> None:
    talk = await start([call("Handoff", {"plan": "1. Use blue.", "title": "Paint it"}), answer(VALID)])
    await talk.client.submit(Prompt("p", "Plan it.", "plan_mode", output_schema=LIMITED))
    async for envelope in talk.remaining():
        if isinstance(envelope.event, PlanAsked):
            await talk.client.submit(Answer(envelope.event.ask_id, "keep_planning"))
        if isinstance(envelope.event, TurnEnded):
            assert envelope.event.structured_output == VALID
            return


async def test_schema_is_recorded_with_the_prompt(start: Start) -> None:
    talk = await start([answer(VALID)])
    await ask(talk, LIMITED)
    (started,) = await talk.recorded_events(TurnStarted)
    (ended,) = await talk.recorded_events(TurnEnded)
    assert (started.output_schema, ended.structured_output) == (LIMITED, VALID)


# --- front ends ---


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_command_prints_the_json(run_odin: Run, tmp_path: Path, form: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(LIMITED))
    script = [answer(INVALID, "Let me see."), answer(VALID, "Here it is.")]
    with ScriptedServer(script) as server:
        ran = run_odin("-p", "Go.", "--json-schema", str(path), "--output-format", form, env=server.env("anthropic"))
    assert (ran.returncode, ran.stderr) == (0, "")
    if form == "text":
        assert ran.stdout == f"{ANSWER}\n"
    else:
        result = json.loads(ran.stdout.splitlines()[-1])
        assert (result["subtype"], result["structured_output"], result["result"]) == ("success", VALID, ANSWER)


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_command_fails_with_its_own_exit_code(run_odin: Run, form: str) -> None:
    given = ("--json-schema", json.dumps(SCHEMA), "--output-format", form)
    with ScriptedServer([say("It is blue.")] * 3) as server:
        ran = run_odin("-p", "Go.", *given, env=server.env("anthropic"))
    assert ran.returncode == 5
    if form == "text":
        assert ran.stdout == "", "nothing but JSON"
        assert ran.stderr.startswith("It is blue.\nThe model gave no answer that matches the JSON schema: it is not")
    else:
        result = json.loads(ran.stdout.splitlines()[-1])
        assert (result["subtype"], result["is_error"]) == ("error_max_structured_output_retries", True)
        assert (result["result"], "structured_output" in result) == ("It is blue.", False)


def test_answer_of_a_resumed_session_matches(run_odin: Run) -> None:
    with ScriptedServer([say("Hello."), answer(VALID), answer(VALID)]) as server:
        env = server.env("anthropic")
        run_odin("-p", "Hi.", env=env)
        for _ in range(2):
            ran = run_odin("-p", "-c", "Go.", "--json-schema", json.dumps(LIMITED), env=env)
            assert (ran.returncode, ran.stdout) == (0, f"{ANSWER}\n")
        assert server.rejected == []


@each("given", ["{", "[]", '{"type": "array"}', "no-such-file.json", "huge.json"])
def test_unusable_schema_sends_nothing(run_odin: Run, workspace: Path, given: str) -> None:
    (workspace / "huge.json").write_text(" " * 1_000_000 + json.dumps(SCHEMA))
    with ScriptedServer([say("never")]) as server:
        ran = run_odin("-p", "Go.", "--json-schema", given, env=server.env("anthropic"))
        assert (ran.returncode, ran.stdout, server.requests) == (2, "", [])
    assert "chema" in ran.stderr


def test_schema_requires_a_single_prompt(run_odin: Run) -> None:
    assert run_odin("--json-schema", json.dumps(SCHEMA), "Go.").returncode == 2


def test_offline_planner_cannot_match_a_schema(run_odin: Run) -> None:
    ran = run_odin("-p", "Run echo hi", "--json-schema", json.dumps(SCHEMA))
    assert (ran.returncode, ran.stdout) == (69, "")
    assert "needs a model" in ran.stderr


async def test_python_api(workspace: Path) -> None:
    class Model:
        name = "own"

        async def stream(self, request: Request) -> AsyncIterator[Chunk]:
            assert request.tools[-1].schema == SCHEMA
            yield TextChunk(f"```json\n{ANSWER}\n```")
            yield StopChunk("end_turn")

        async def close(self) -> None:
            pass

    options = odin.Options(cwd=str(workspace), output_schema=SCHEMA)
    result = await odin.query("Go.", options, provider=Model()).wait()
    assert (result.structured_output, result.result) == (VALID, ANSWER)
    with pytest.raises(UsageError):
        await odin.query("Go.", odin.Options(cwd=str(workspace), output_schema={}), provider=Model()).wait()


def test_client_gives_the_schema_when_it_initializes(run_odin: Run) -> None:
    lines = [
        {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize", "jsonSchema": SCHEMA}},
        {"type": "user", "message": {"role": "user", "content": "Go."}},
    ]
    with ScriptedServer([say(ANSWER)]) as server:
        given = "".join(f"{json.dumps(line)}\n" for line in lines)
        ran = run_odin("headless", env=server.env("anthropic"), input=given)
    results = [line for line in map(json.loads, ran.stdout.splitlines()) if line["type"] == "result"]
    assert [result["structured_output"] for result in results] == [VALID]
