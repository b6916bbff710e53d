"""The scripted model server: wire formats, usage, scripts, connections, faults and its command."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.testing import ScriptedServer, SeenRequest, Turn, Usage, call, fault, read_script, reply, retry_after, say
from tests.waiting import LIMIT_S

APIS = ("anthropic", "chat", "responses")
PATHS = {"anthropic": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
KEYS = {
    "anthropic": {"x-api-key": "k", "anthropic-version": "2023-06-01"},
    "chat": {"authorization": "Bearer k"},
    "responses": {"authorization": "Bearer k"},
}
TOOL = {"type": "object", "properties": {"x": {"type": "integer"}}}
CONTRACT: dict[str, Any] = {"type": "object", "properties": {"explanation": {}, "taskCompleted": {}, "executeTool": {}}}


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Return the data of every server-sent event. Check that the name of an event is the type in its data."""
        found: list[dict[str, Any]] = []
        for block in self.body.decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
            if "data" in lines:
                data = {"type": "[DONE]"} if lines["data"] == "[DONE]" else json.loads(lines["data"])
                assert lines.get("event", data.get("type")) == data.get("type")
                found.append(data)
        return found

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


@contextmanager
def open_connection(server: ScriptedServer) -> Generator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    try:
        yield connection
    finally:
        connection.close()


def send_on(connection: http.client.HTTPConnection, api: str, body: dict[str, Any]) -> Response:
    headers = {"content-type": "application/json", **KEYS[api]}
    connection.request("POST", PATHS[api], json.dumps(body), headers)
    answer = connection.getresponse()
    return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def send_request(server: ScriptedServer, api: str, body: dict[str, Any] | None = None, **more: Any) -> Response:
    with open_connection(server) as connection:
        return send_on(connection, api, {**(body or make_request(api)), **more})


def make_request(api: str, *texts: str, stream: bool = True, **more: Any) -> dict[str, Any]:
    """Return a valid request with these user messages, each except the last answered by "ok"."""
    spoken: list[dict[str, Any]] = []
    for text in texts or ("hi",):
        spoken += [{"role": "user", "content": text}, {"role": "assistant", "content": "ok"}]
    conversation = {"input" if api == "responses" else "messages": spoken[:-1]}
    limit = {"max_tokens": 4096} if api == "anthropic" else {}
    return {"model": "claude-x" if api == "anthropic" else "gpt-x", "stream": stream, **limit, **conversation, **more}


def make_raw_request(api: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    headers = {"host": "x", "content-type": "application/json", "content-length": str(len(data)), **KEYS[api]}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {PATHS[api]} HTTP/1.1\r\n{head}\r\n".encode() + data


@contextmanager
def open_socket(server: ScriptedServer, api: str, body: dict[str, Any] | None = None) -> Generator[socket.socket]:
    """Yield a socket on which the request was sent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as line:
        line.sendall(make_raw_request(api, body or make_request(api)))
        yield line


def read_until(line: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        more = line.recv(65536)
        assert more, f"the connection ended before {mark!r}: {data!r}"
        data += more
    return data


def read_to_end(line: socket.socket) -> bytes:
    data = b""
    while more := line.recv(65536):
        data += more
    return data


# --- the wire formats ---


def test_anthropic_stream_has_the_events_of_the_real_api_in_order() -> None:
    turn = reply("Let me look.", [call("Read", {"x": 1}), call("LS", {})], thinking="hmm")
    with ScriptedServer([turn]) as server:
        got = send_request(server, "anthropic")
    assert got.headers["content-type"].startswith("text/event-stream")
    assert got.types == [
        "message_start",
        *("content_block_start", "ping", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
        "message_delta",
        "message_stop",
    ]
    starts = [event["content_block"] for event in got.events if event["type"] == "content_block_start"]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "toolu_0001", "name": "Read", "input": {}},
        {"type": "tool_use", "id": "toolu_0002", "name": "LS", "input": {}},
    ]
    kinds = [event["delta"]["type"] for event in got.events if event["type"] == "content_block_delta"]
    assert kinds == ["thinking_delta", "signature_delta", "text_delta", *["input_json_delta"] * 3]
    assert got.events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert got.events[-2]["usage"]["output_tokens"] > 1


def test_a_chat_stream_has_role_deltas_reason_usage_and_done() -> None:
    turn = reply("Let me look.", [call("Read", {"x": 1}), call("LS", {})], thinking="hmm", chunk=6)
    with ScriptedServer([turn, turn]) as server:
        got = send_request(server, "chat", stream_options={"include_usage": True})
        bare = send_request(server, "chat")
    *chunks, usage, done = got.events
    assert done == {"type": "[DONE]"}
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    assert all(chunk["object"] == "chat.completion.chunk" and chunk["usage"] is None for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [
        {"role": "assistant", "content": "", "refusal": None},
        {"reasoning_content": "hmm"},
        {"content": "Let me"},
        {"content": " look."},
        {
            "tool_calls": [
                {"index": 0, "id": "call_0001", "type": "function", "function": {"name": "Read", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":1'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
        {
            "tool_calls": [
                {"index": 1, "id": "call_0002", "type": "function", "function": {"name": "LS", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 9 + ["tool_calls"]
    assert all("usage" not in chunk for chunk in bare.events)


def test_a_responses_stream_has_numbered_events_and_ends_with_the_whole_response() -> None:
    turn = reply("Let me look.", [call("Read", {"x": 1})], thinking="hmm")
    with ScriptedServer([turn]) as server:
        got = send_request(server, "responses", include=["reasoning.encrypted_content"])
    assert got.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in got.events] == list(range(len(got.events)))
    final = got.events[-1]["response"]
    assert final["output"] == [event["item"] for event in got.events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in final["output"]] == ["reasoning", "message", "function_call"]
    assert final["output"][0]["encrypted_content"]
    assert final["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert final["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}


def test_without_stream_the_answer_is_one_json_object() -> None:
    turn = reply("Look.", [call("Read", {"x": 1}, id="id_1")], thinking="hmm")
    with ScriptedServer([turn] * 3) as server:
        anthropic = send_request(server, "anthropic", stream=False).json
        chat = send_request(server, "chat", stream=False).json
        responses = send_request(server, "responses", stream=False).json
    assert [block["type"] for block in anthropic["content"]] == ["thinking", "text", "tool_use"]
    assert anthropic["content"][2] == {"type": "tool_use", "id": "id_1", "name": "Read", "input": {"x": 1}}
    assert anthropic["stop_reason"] == "tool_use"
    message = chat["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Look.", "hmm")
    assert message["tool_calls"][0]["function"] == {"name": "Read", "arguments": '{"x":1}'}
    assert chat["choices"][0]["finish_reason"] == "tool_calls"
    assert [item["type"] for item in responses["output"]] == ["reasoning", "message", "function_call"]
    assert responses["output"][2]["call_id"] == "id_1"


@pytest.mark.parametrize(
    ("stop", "chat", "status", "reason"),
    [
        ("end_turn", "stop", "completed", None),
        ("max_tokens", "length", "incomplete", {"reason": "max_output_tokens"}),
        ("refusal", "content_filter", "completed", None),
    ],
)
def test_each_api_has_its_own_stop_reasons(stop: str, chat: str, status: str, reason: Any) -> None:
    with ScriptedServer([say("No.", stop=stop)] * 3) as server:
        assert send_request(server, "anthropic").events[-2]["delta"]["stop_reason"] == stop
        assert send_request(server, "chat").events[-2]["choices"][0]["finish_reason"] == chat
        final = send_request(server, "responses").events[-1]
    assert final["type"] == f"response.{status}"
    assert final["response"]["incomplete_details"] == reason
    assert final["response"]["output"][0]["content"][0]["type"] == ("refusal" if stop == "refusal" else "output_text")


def join_deltas(api: str, got: Response) -> tuple[str, str]:
    """Return the text and the call arguments that the deltas add up to."""
    text, arguments = "", ""
    for event in got.events:
        if api == "anthropic":
            text += event.get("delta", {}).get("text", "")
            arguments += event.get("delta", {}).get("partial_json", "")
        elif api == "chat":
            for choice in event.get("choices", ()):
                text += choice["delta"].get("content") or ""
                for part in choice["delta"].get("tool_calls", ()):
                    arguments += part["function"]["arguments"]
        elif event["type"] == "response.output_text.delta":
            text += event["delta"]
        elif event["type"] == "response.function_call_arguments.delta":
            arguments += event["delta"]
    return text, arguments


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


@pytest.mark.slow
@given(st.sampled_from(APIS), WORDS, st.dictionaries(WORDS, WORDS, min_size=1, max_size=3), st.integers(1, 40))
def test_the_deltas_add_up_to_what_the_script_says(api: str, text: str, args: dict[str, str], chunk: int) -> None:
    with ScriptedServer([reply(text, [call("Echo", args)], chunk=chunk)]) as server:
        joined_text, arguments = join_deltas(api, send_request(server, api))
    assert joined_text == text
    assert json.loads(arguments) == args


# --- tokens and the cache ---


def read_usage(api: str, got: Response) -> tuple[int, int, int]:
    """Return the input, cache-read and cache-written tokens, which never overlap."""
    if api == "anthropic":
        usage = got.events[0]["message"]["usage"]
        return usage["input_tokens"], usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    usage = got.events[-2]["usage"] if api == "chat" else got.events[-1]["response"]["usage"]
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    read, written = details["cached_tokens"], details["cache_write_tokens"]
    return usage.get("prompt_tokens", usage.get("input_tokens")) - read - written, read, written


def test_given_usage_is_reported_as_given() -> None:
    usage = Usage(input=100, output=20, cache_read=30, cache_write=7, reasoning=5)
    with ScriptedServer([say("ok", usage=usage)] * 3) as server:
        assert read_usage("anthropic", send_request(server, "anthropic")) == (100, 30, 7)
        chat = send_request(server, "chat", stream_options={"include_usage": True}).events[-2]["usage"]
        responses = send_request(server, "responses").events[-1]["response"]["usage"]
    assert (chat["prompt_tokens"], chat["completion_tokens"]) == (137, 25)
    assert chat["completion_tokens_details"]["reasoning_tokens"] == 5
    assert (responses["input_tokens"], responses["output_tokens"]) == (137, 25)


# --- the script ---


def test_used_up_script_returns_an_error() -> None:
    with ScriptedServer([say("only one")]) as server:
        assert send_request(server, "chat").status == 200
        got = send_request(server, "chat")
        assert server.script.left == 0
    assert got.status == 500
    assert "used up: it has 1 turns" in got.json["error"]["message"]
    assert got.headers["x-should-retry"] == "false"


def test_repeated_script_starts_again() -> None:
    with ScriptedServer([say("one"), say("two")], repeat=True) as server:
        texts = [join_deltas("chat", send_request(server, "chat"))[0] for _ in range(5)]
    assert texts == ["one", "two", "one", "two", "one"]


def test_a_function_may_be_the_script() -> None:
    def answer(seen: SeenRequest) -> Turn:
        return say(f"{seen.api} asked {seen.messages[-1]['content']} of {seen.model} with {seen.tool_names}")

    tools = [{"type": "function", "function": {"name": "Read", "parameters": TOOL}}]
    with ScriptedServer(answer) as server:
        text, _ = join_deltas("chat", send_request(server, "chat", make_request("chat", "why"), tools=tools))
    assert text == "chat asked why of gpt-x with ['Read']"


def test_failing_script_function_returns_an_error() -> None:
    def broken(seen: SeenRequest) -> Turn:
        raise KeyError("nothing")

    with ScriptedServer(broken) as server:
        got = send_request(server, "anthropic")
    assert got.status == 500
    assert got.json["error"]["message"] == "The script failed: KeyError: 'nothing'"


def test_results_are_read_alike_from_all_three_formats() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}]}
    bodies: dict[str, Any] = {
        "anthropic": {"messages": [{"role": "user", "content": [result]}]},
        "chat": {"messages": [{"role": "tool", "tool_call_id": "a", "content": "one"}]},
        "responses": {"input": [{"type": "function_call_output", "call_id": "a", "output": "one"}]},
    }
    for api, body in bodies.items():
        with ScriptedServer([say("ok")], strict=False) as server:
            send_request(server, api, {"model": "m", **body})
            assert server.requests[0].results == {"a": "one"}


@pytest.mark.parametrize("api", APIS)
def test_a_planner_schema_turns_calls_into_the_json_contract(api: str) -> None:
    spec: dict[str, Any] = {"type": "json_schema", "name": "plan", "schema": CONTRACT}
    wanted: dict[str, Any] = {
        "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": CONTRACT}}},
        "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "plan", "schema": CONTRACT}}},
        "responses": {"text": {"format": spec}},
    }
    with ScriptedServer([call("Read", {"x": 1}, text="I look."), say("Done.")]) as server:
        first, arguments = join_deltas(api, send_request(server, api, **wanted[api]))
        last, _ = join_deltas(api, send_request(server, api, **wanted[api]))
    assert arguments == ""
    assert json.loads(first) == {
        "explanation": "I look.",
        "taskCompleted": False,
        "executeTool": [{"toolName": "Read", "toolInput": {"x": 1}}],
    }
    assert json.loads(last) == {"explanation": "Done.", "taskCompleted": True, "executeTool": []}


def test_another_schema_gets_the_text_as_it_is() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "title", "schema": schema}}
    with ScriptedServer([say('{"title":"x"}')]) as server:
        assert join_deltas("chat", send_request(server, "chat", response_format=wanted))[0] == '{"title":"x"}'


# --- connections ---


def test_a_connection_is_kept_for_several_requests() -> None:
    with ScriptedServer([say("one"), fault(429), say("two")]) as server, open_connection(server) as connection:
        got = [send_on(connection, "chat", make_request("chat")) for _ in range(3)]
        assert len(server.connections) == 1
    assert [answer.status for answer in got] == [200, 429, 200]


def test_chunked_bodies_expectations_and_pipelined_requests_are_understood() -> None:
    data = json.dumps(make_request("chat", stream=False)).encode()
    head = make_raw_request("chat", {}).partition(b"content-length")[0]
    chunked = head + b"authorization: Bearer k\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n"
    whole = make_raw_request("chat", make_request("chat", stream=False))
    with ScriptedServer([say("one"), say("two")]) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as line:
            line.sendall(chunked)
            assert read_until(line, b"\r\n\r\n").startswith(b"HTTP/1.1 100 Continue")
            line.sendall(
                b"5\r\n" + data[:5] + b"\r\n" + b"%x\r\n" % len(data[5:]) + data[5:] + b"\r\n0\r\n\r\n" + whole
            )
            read_until(line, b'"content":"two"')
        assert [seen.json["model"] for seen in server.requests] == ["gpt-x", "gpt-x"]


@pytest.mark.parametrize("junk", [b"hello\r\n\r\n", b"GET / HTTP/2\r\n\r\n", b"GET / HTTP/1.1\r\nnocolon\r\n\r\n"])
def test_invalid_http_is_refused_and_the_connection_closed(junk: bytes) -> None:
    with ScriptedServer() as server, socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as line:
        line.sendall(junk)
        assert read_to_end(line).startswith(b"HTTP/1.1 400 ")


def test_requests_are_recorded_with_their_times() -> None:
    with ScriptedServer([say("one"), say("two")]) as server:
        send_request(server, "chat", make_request("chat", "first"))
        send_request(server, "anthropic", make_request("anthropic", "second"))
        server.wait_idle()
        first, second = server.requests
    assert (first.method, first.path, first.api, first.status) == ("POST", "/v1/chat/completions", "chat", 200)
    assert first.headers["authorization"] == "Bearer k"
    assert json.loads(first.body) == first.json == make_request("chat", "first")
    assert second.api == "anthropic"
    assert first.at <= first.finished_at <= second.at <= second.finished_at
    assert not first.hung_up


def test_stopping_is_clean_even_in_the_middle_of_a_reply() -> None:
    before = threading.active_count()
    server = ScriptedServer([say("one").stall()]).start()
    with open_socket(server, "chat") as line:
        read_until(line, b"\r\n\r\n")
        server.stop()
        assert read_to_end(line) == b""
    assert threading.active_count() == before
    assert not server.requests[0].hung_up
    server.stop()


def test_stopped_server_refuses_and_can_restart_on_its_port() -> None:
    server = ScriptedServer([say("one"), say("two")]).start()
    port = server.port
    assert send_request(server, "chat").status == 200
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        send_request(server, "chat")
    with server:
        assert server.port == port
        assert join_deltas("chat", send_request(server, "chat"))[0] == "two"


def test_waiting_for_requests_is_bounded() -> None:
    with ScriptedServer([say("slow").stall()]) as server:
        with pytest.raises(TimeoutError, match="Only 0 of 1"):
            server.wait_for(1, timeout=0.01)
        with open_socket(server, "chat"):
            assert server.wait_for(1).model == "gpt-x"
            with pytest.raises(TimeoutError, match="still being answered"):
                server.wait_idle(timeout=0.01)


def test_env_points_a_process_at_the_server() -> None:
    with ScriptedServer(models=["m-1"]) as server:
        assert server.env("anthropic") == {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "scripted-key",
            "ODIN_MODEL": "anthropic/m-1",
        }
        assert server.env("openai", "other")["OPENAI_BASE_URL"] == server.openai_url == server.url + "/v1"
        assert server.env("openai", "other")["ODIN_MODEL"] == "openai/other"


# --- faults ---


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (401, "authentication_error", "invalid_api_key"),
        (403, "permission_error", None),
        (404, "not_found_error", "model_not_found"),
        (413, "request_too_large", None),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (500, "api_error", None),
        (529, "overloaded_error", None),
    ],
)
def test_error_status_has_the_error_format_of_the_api(status: int, kind: str, code: str | None) -> None:
    with ScriptedServer([fault(status, message="So it is.")] * 2) as server:
        anthropic, chat = send_request(server, "anthropic"), send_request(server, "chat")
        assert server.rejected == []
    assert anthropic.status == chat.status == status
    assert anthropic.json["error"] == {"type": kind, "message": "So it is."}
    assert (chat.json["error"]["message"], chat.json["error"]["code"]) == ("So it is.", code)


def test_fault_can_set_status_headers_and_body() -> None:
    turns = [
        fault(429, {"x-mine": "1"}, message="Pay first.", type="insufficient_quota", code="insufficient_quota"),
        fault(502, body="<html><h1>Bad gateway</h1></html>"),
        fault(200, body="<html>Sign in to the hotel network</html>"),
        fault(503, body={"detail": "busy"}),
        fault(200, {"content-type": None}, body=b"\x00\xff"),
        fault(200),
    ]
    with ScriptedServer(turns) as server:
        quota, gateway, hotel, busy, raw, empty = (send_request(server, "chat") for _ in turns)
    assert quota.json["error"]["code"] == "insufficient_quota" and quota.headers["x-mine"] == "1"
    assert (gateway.status, gateway.headers["content-type"]) == (502, "text/html")
    assert hotel.status == 200 and hotel.body.startswith(b"<html>")
    assert busy.json == {"detail": "busy"}
    assert raw.body == b"\x00\xff" and "content-type" not in raw.headers
    assert empty.body == b""


def test_retry_after_supports_every_header_format() -> None:
    assert retry_after(2) == {"retry-after": "2"}
    assert retry_after(0.25, "decimal") == {"retry-after": "0.250"}
    assert retry_after(0.25, "ms") == {"retry-after-ms": "250"}
    reset = retry_after(90, "reset")
    assert reset["x-ratelimit-reset-requests"] == "90s"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(reset["anthropic-ratelimit-requests-reset"]))
    with ScriptedServer([fault(429, retry_after(3600, "date"))]) as server:
        header = send_request(server, "chat").headers["retry-after"]
    assert header.endswith(" GMT")
    assert parsedate_to_datetime(header).tzinfo is not None


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("after", [0, 2, 999])
def test_a_stalled_stream_stays_open_and_silent(api: str, after: int) -> None:
    with ScriptedServer([say("one two").stall(after)]) as server:
        with open_socket(server, api) as line:
            data = read_until(line, b"\r\n\r\n")
            line.settimeout(0.1)
            with pytest.raises(TimeoutError):
                while more := line.recv(65536):
                    data += more
            assert b"\r\n0\r\n\r\n" not in data
            assert data.count(b"\n\n") == after or after == 999
        server.wait_idle()
        assert server.requests[0].hung_up


@pytest.mark.parametrize(
    ("api", "ping"), [("anthropic", b"event: ping\n"), ("chat", b": ping\n"), ("responses", b": ")]
)
def test_pings_go_on_until_the_client_gives_up(api: str, ping: bytes) -> None:
    with ScriptedServer([say("never").pings(every=0.001)]) as server:
        with open_socket(server, api) as line:
            data = b""
            while data.count(ping) < 5:
                data += read_until(line, ping)
            assert b"never" not in data
        server.wait_idle()
        assert server.requests[0].hung_up


@pytest.mark.parametrize("api", APIS)
def test_stream_is_cut_after_a_number_of_events(api: str) -> None:
    with ScriptedServer([say("one two").cut(events=2)]) as server, open_socket(server, api) as line:
        data = read_to_end(line)
    assert data.count(b"\n\n") == 2
    assert not data.endswith(b"0\r\n\r\n")


def test_stream_is_cut_after_a_number_of_bytes() -> None:
    with ScriptedServer([say("one two").cut(bytes=25), say("x").cut(bytes=3)]) as server:
        with open_connection(server) as connection, pytest.raises(http.client.IncompleteRead):
            send_on(connection, "anthropic", make_request("anthropic"))
        with open_socket(server, "anthropic", make_request("anthropic", stream=False)) as line:
            head, _, body = read_to_end(line).partition(b"\r\n\r\n")
    assert body == b'{"i' and b"content-length: 3\r\n" not in head


def test_a_cut_stream_gives_exactly_the_bytes_asked_for() -> None:
    with ScriptedServer([say("one two"), say("one two").cut(bytes=100)]) as server:
        whole = send_request(server, "chat").body
        with open_socket(server, "chat") as line:
            torn = read_to_end(line).partition(b"\r\n\r\n")[2]
    parts = torn.split(b"\r\n")
    assert len(b"".join(parts[1::2])) == 100
    assert int(parts[0], 16) > 100 and whole


def test_a_connection_is_dropped_without_an_answer_or_reset() -> None:
    with ScriptedServer([say("x").cut(), say("x").cut(reset=True), say("one two").cut(events=1, reset=True)]) as server:
        with open_socket(server, "chat") as line:
            assert read_to_end(line) == b""
        for _ in range(2):
            with open_socket(server, "chat") as line, pytest.raises(ConnectionResetError):
                read_to_end(line)


@pytest.mark.parametrize("api", APIS)
def test_reply_sent_byte_by_byte_is_the_same(api: str) -> None:
    with ScriptedServer([say("grüße 🌍").trickle()]) as server:
        assert join_deltas(api, send_request(server, api))[0] == "grüße 🌍"


@pytest.mark.parametrize("api", APIS)
def test_arguments_may_be_malformed(api: str) -> None:
    with ScriptedServer([call("Read", '{"x": '), call("Read", "[]")]) as server:
        assert join_deltas(api, send_request(server, api))[1] == '{"x": '
        assert join_deltas(api, send_request(server, api))[1] == "[]"


@pytest.mark.parametrize("api", APIS)
def test_an_event_may_be_garbled(api: str) -> None:
    with ScriptedServer([say("one").garble(after=2)]) as server:
        got = send_request(server, api)
    data = [line[6:] for line in got.body.decode().splitlines() if line.startswith("data: ")]
    json.loads(data[0])
    json.loads(data[1])
    with pytest.raises(json.JSONDecodeError):
        json.loads(data[2])
    json.loads(data[3])


@pytest.mark.parametrize("api", APIS)
def test_an_empty_reply_is_well_formed(api: str) -> None:
    with ScriptedServer([say("")]) as server:
        got = send_request(server, api)
    assert join_deltas(api, got) == ("", "")
    expected = {
        "anthropic": ["message_start", "ping", "message_delta", "message_stop"],
        "responses": ["response.created", "response.in_progress", "response.completed"],
    }
    if api == "chat":
        assert got.events[-1]["type"] == "[DONE]"
    else:
        assert got.types == expected[api]


@pytest.mark.parametrize(
    ("api", "last"),
    [("anthropic", "message_delta"), ("chat", "finish"), ("responses", "response.output_item.done")],
)
def test_the_end_of_a_stream_may_be_missing(api: str, last: str) -> None:
    with ScriptedServer([say("one").unfinished(), say("one").unfinished(missing=2)]) as server:
        got, shorter = send_request(server, api), send_request(server, api)
    if api == "chat":
        assert got.events[-1]["choices"][0]["finish_reason"] == "stop"
        assert shorter.events[-1]["choices"][0]["finish_reason"] is None
    else:
        assert got.types[-1] == last
        assert len(shorter.types) == len(got.types) - 1


def test_a_stream_may_break_off_with_an_error_event() -> None:
    with ScriptedServer([say("one two").error(after=2)] * 3) as server:
        anthropic, chat, responses = (
            send_request(server, "anthropic"),
            send_request(server, "chat"),
            send_request(server, "responses"),
        )
    assert anthropic.status == 200
    assert len(anthropic.events) == 3
    assert anthropic.events[-1] == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
    }
    last = json.loads(chat.body.decode().strip().splitlines()[-1][6:])
    assert last["error"]["message"] == "Overloaded"
    assert responses.types[-2:] == ["error", "response.failed"]
    assert [event["sequence_number"] for event in responses.events] == [0, 1, 2, 3]
    assert responses.events[-1]["response"]["error"] == {"code": "server_is_overloaded", "message": "Overloaded"}


def test_a_body_may_be_compressed() -> None:
    with ScriptedServer([say("one").gzip(), say("one").gzip()]) as server:
        stream, whole = send_request(server, "chat"), send_request(server, "chat", stream=False)
    assert stream.headers["content-encoding"] == whole.headers["content-encoding"] == "gzip"
    unpacked = Response(200, {}, zlib.decompress(stream.body, wbits=31))
    assert join_deltas("chat", unpacked)[0] == "one"
    assert json.loads(zlib.decompress(whole.body, wbits=31))["object"] == "chat.completion"


def test_headers_may_be_missing_or_added() -> None:
    with ScriptedServer([say("one").with_headers({"Content-Type": None, "x-mine": "1"})]) as server:
        got = send_request(server, "chat")
    assert "content-type" not in got.headers
    assert got.headers["x-mine"] == "1"
    assert got.headers["x-request-id"] == "req_000001"


def test_an_answer_may_be_late_and_slow() -> None:
    with ScriptedServer([say("a b c", chunk=1).delay(0.05).pace(0.01)]) as server:
        assert join_deltas("chat", send_request(server, "chat"))[0] == "a b c"
        server.wait_idle()
        seen = server.requests[0]
    assert seen.finished_at - seen.at >= 0.05 + 5 * 0.01


def test_a_client_that_hangs_up_while_it_waits_is_noticed() -> None:
    with ScriptedServer([say("late").delay(600), say("next")]) as server:
        with open_socket(server, "chat"):
            server.wait_for(1)
        server.wait_idle()
        assert server.requests[0].hung_up
        assert send_request(server, "chat").status == 200


def test_a_stream_is_held_until_the_test_opens_the_gate() -> None:
    gate = threading.Event()
    with ScriptedServer([say("one two").hold(gate, after=2)]) as server, open_socket(server, "anthropic") as line:
        data = read_until(line, b"content_block_start")
        assert b"one two" not in data
        gate.set()
        read_until(line, b"message_stop")


def test_a_large_reply_waits_for_a_slow_reader() -> None:
    text = "x" * 24_000_000
    with ScriptedServer([say(text)]) as server:
        with open_socket(server, "chat", make_request("chat", stream=False)) as line:
            head = read_until(line, b"\r\n\r\n")
            assert not server.requests[0].finished_at
            size = int(re.findall(rb"content-length: (\d+)", head)[0])
            got = len(head.partition(b"\r\n\r\n")[2])
            while got < size:
                got += len(line.recv(1 << 20))
        server.wait_idle()
        assert not server.requests[0].hung_up


# --- python -m odin.testing ---


def test_the_command_serves_a_json_script_and_logs(tmp_path: Path) -> None:
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    turns = [{"calls": [{"name": "Read", "args": {"x": 1}}]}, {"text": "done", "usage": {"input": 7}}, {"status": 529}]
    script.write_text(json.dumps({"turns": turns, "models": ["m"]}))
    command = [sys.executable, "-m", "odin.testing", str(script), "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            server = ScriptedServer(port=int(url.rpartition(":")[2]))
            assert url == server.url
            assert join_deltas("chat", send_request(server, "chat", model="m"))[1] == '{"x":1}'
            assert send_request(server, "anthropic", model="m").events[0]["message"]["usage"]["input_tokens"] == 7
            assert send_request(server, "anthropic", model="m").status == 529
            assert send_request(server, "chat", model="n").status == 404
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["status"] for line in lines] == [200, 200, 529, 404]
    assert lines[0]["body"]["messages"] == [{"role": "user", "content": "hi"}]
    assert lines[0]["at"] <= lines[0]["finished_at"] <= lines[1]["at"]
    assert lines[0]["headers"]["authorization"] == "(hidden)"
    assert lines[0]["rejected"] is None and "`n` does not exist" in lines[3]["rejected"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("[{", "not valid"), ('[{"texd": "x"}]', "`texd`"), ('{"turns": 3}', "turns"), (None, "cannot be read")],
)
def test_the_command_refuses_a_bad_script(tmp_path: Path, text: str | None, complaint: str) -> None:
    script = tmp_path / "script.json"
    if text is not None:
        script.write_text(text)
    command = [sys.executable, "-m", "odin.testing", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr and done.stderr.count("\n") == 1


def test_json_script_equals_the_script_of_functions() -> None:
    text = """[
        {"text": "done", "stop": "end_turn", "stall_after": 2},
        {"text": "hm", "calls": [{"name": "Read", "args": {"x": 1}, "id": "a"}]},
        {"status": 429, "headers": {"retry-after": "1"}, "message": "Slow down."},
        {"text": "x", "stop": "end_turn", "fails": {"after": 3}}
    ]"""
    assert read_script(text).turns == (
        say("done").stall(2),
        call("Read", {"x": 1}, id="a", text="hm"),
        fault(429, {"retry-after": "1"}, message="Slow down."),
        say("x").error(after=3),
    )


# --- docs/testing.md ---


DOC = Path(__file__).parent.parent / "docs" / "testing.md"


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOC.read_text(), flags=re.S | re.M)


@pytest.mark.slow
def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    example = tmp_path / "test_example.py"
    example.write_text(next(block for block in code_blocks("python") if "def test_" in block))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "-W",
        "error",
        str(example),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b[2-9] passed", done.stdout)


def test_the_json_scripts_of_the_page_are_valid() -> None:
    scripts = [read_script(block) for block in code_blocks("json")]
    assert scripts and all(script.turns for script in scripts)


def test_the_page_names_every_modifier_and_option() -> None:
    page = DOC.read_text()
    modifiers = [name for name, value in vars(Turn).items() if callable(value) and not name.startswith("_")]
    assert len(modifiers) >= 12
    for name in modifiers:
        assert f".{name}(" in page, name
    for name in ("repeat", "models", "window", "trained", "local", "tools", "strict", "accepts", "port", "log"):
        assert re.search(rf"`{name}|[( ]{name}=", page), name
