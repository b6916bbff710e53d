"""The stream-json protocol, message by message."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.config import Options
from odin.core.event import PromptQueued
from odin.core.interaction import Interaction
from odin.core.op import DropPrompt, Interrupt
from odin.host.manager import SessionManager
from odin.testing import ScriptedServer, call, fault, reply, say
from tests import pictures
from tests.conftest import Run
from tests.engine.test_team import TeamScript, delegate
from tests.tui.test_two_clients import StreamClient as StreamJsonClient
from tests.waiting import LIMIT_S, TimeLimit

STREAM = ["--output-format", "stream-json", "--verbose"]
BOTH = [*STREAM, "--input-format", "stream-json"]


def parse_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def select_type(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [message for message in messages if message["type"] == kind]


def make_user_line(text: Any, **more: Any) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}, **more}) + "\n"


def make_control_line(subtype: str, request_id: str = "r1", **more: Any) -> str:
    request = {"subtype": subtype, **more}
    return json.dumps({"type": "control_request", "request_id": request_id, "request": request}) + "\n"


class StreamClient:
    """A running Odin that exchanges JSON lines with the test."""

    def __init__(self, *args: str, cwd: Path, env: dict[str, str], command: Sequence[str] = BOTH) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "odin", *command, *args],
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(30, self.process.kill)
        self._watchdog.start()

    def __enter__(self) -> "StreamClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.communicate()

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def read_message(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(next(self.process.stdout))

    def read_until(self, kind: str) -> dict[str, Any]:
        """Return the next message of this type."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["type"] == kind:
                return message
        raise AssertionError(f"there was no {kind} message")

    def close_input(self) -> list[dict[str, Any]]:
        """Close the input and return the remaining messages."""
        rest, _ = self.process.communicate(timeout=LIMIT_S)
        return parse_lines(rest)


def test_prompt_argument_prints_all_messages(run_odin_process: Run, workspace: Path) -> None:
    calls = [call("LS", {"path": str(workspace)}), call("Glob", {"pattern": "*"}), call("LS", {"path": "nowhere"})]
    with ScriptedServer([reply("Look.", calls), say("Done.")]) as server:
        ran = run_odin_process("-p", "Look.", *STREAM, env=server.env("anthropic"))
    messages = parse_lines(ran.stdout)
    kinds = [message["type"] for message in messages if message["type"] != "tool_progress"]
    assert kinds == ["system", "assistant", "user", "user", "user", "assistant", "result"]
    used = [block["id"] for block in messages[1]["message"]["content"] if block["type"] == "tool_use"]
    told = [message["message"]["content"][0] for message in select_type(messages, "user")]
    assert [block["tool_use_id"] for block in told] == used
    assert [block.get("is_error", False) for block in told] == [False, False, True]
    assert {message["session_id"] for message in messages} == {messages[-1]["session_id"]}
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_prompt_has_its_result(run_odin_process: Run) -> None:
    prompts = (
        make_user_line("one")
        + make_user_line([{"type": "text", "text": "two"}, {"type": "image", "source": {}}])
        + make_user_line("three")
    )
    with ScriptedServer([say("1"), say("2"), say("3")]) as server:
        ran = run_odin_process(*BOTH, input=prompts, env=server.env("anthropic"))
        assert len(server.requests) == 3
    messages = parse_lines(ran.stdout)
    assert [message["result"] for message in select_type(messages, "result")] == ["1", "2", "3"]
    warnings = [message["text"] for message in messages if message.get("subtype") == "warning"]
    assert warnings == ["Left out of the prompt: image."]
    assert ran.returncode == 0


@pytest.mark.slow
def test_image_in_a_prompt_is_sent_and_a_bad_one_refused(run_odin_process: Run) -> None:
    data = base64.b64encode(pictures.png(4, 4)).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    prompts = make_user_line([{"type": "text", "text": "what is it?"}, {"type": "image", "source": source}])
    prompts += make_user_line([{"type": "image", "source": {**source, "data": base64.b64encode(b"no image").decode()}}])
    with ScriptedServer([say("A box.")]) as server:
        ran = run_odin_process(*BOTH, input=prompts, env=server.env("anthropic"))
        (request,) = server.requests
    assert data in request.body.decode()
    results = select_type(parse_lines(ran.stdout), "result")
    assert "A box." in [result.get("result") for result in results]
    assert "image 1 cannot be attached" in json.dumps(results)


def test_invalid_lines_are_reported_and_the_others_processed(run_odin_process: Run) -> None:
    bad = '{"type": "user"\n' + "[]\n" + '{"type": 7}\n' + "\n" + b"\xff\xfe\n".decode("latin-1") + '{"type":"sing"}\n'
    bad += "[" * 100_000 + "\n"
    more = (
        '{"type":"user"}\n'
        + make_user_line(7)
        + '{"type":"keep_alive"}\n'
        + make_user_line("  ")
        + make_user_line("fly", mode="fly")
    )
    with ScriptedServer([say("Still here.")]) as server:
        ran = run_odin_process(*BOTH, input=bad + more + make_user_line("hello"), env=server.env("anthropic"))
    messages = parse_lines(ran.stdout)
    errors = [message for message in messages if message.get("subtype") == "input_error"]
    assert [error["line"] for error in errors] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert all(error["error"].startswith(f"Input line {error['line']} ") for error in errors)
    results = select_type(messages, "result")
    assert [result["error_kind"] for result in results] == ["EmptyPrompt", "UnknownMode", ""]
    assert results[-1]["result"] == "Still here."
    assert (ran.returncode, ran.stderr) == (0, "")


def test_empty_input_is_not_an_error(run_odin_process: Run) -> None:
    ran = run_odin_process(*BOTH, input="")
    assert (ran.returncode, ran.stdout) == (0, "")


def test_initialize_succeeds_and_unknown_requests_fail(run_odin_process: Run) -> None:
    asked = (
        make_control_line("initialize", hooks=None)
        + make_control_line("mcp_message", "r2")
        + make_control_line("whatever", "r3")
    )
    ran = run_odin_process(*BOTH, input=asked)
    first, *others = [message["response"] for message in parse_lines(ran.stdout)]
    assert (first["subtype"], first["request_id"]) == ("success", "r1")
    assert {"commands", "output_style", "models"} <= set(first["response"])
    assert [(answer["subtype"], answer["request_id"]) for answer in others] == [("error", "r2"), ("error", "r3")]
    assert "'whatever'" in others[1]["error"]


def test_mode_applies_to_one_prompt(run_odin_process: Run) -> None:
    with ScriptedServer([say("a"), say("b")]) as server:
        ran = run_odin_process(
            *BOTH, input=make_user_line("a", mode="ask") + make_user_line("b"), env=server.env("anthropic")
        )
        offered = ["WriteFile" in request.tool_names for request in server.requests]
    assert offered == [False, True]
    begun = [message for message in parse_lines(ran.stdout) if message.get("subtype") == "init"]
    assert [message["mode"] for message in begun] == ["ask_mode", "edit_mode"]


def test_interrupt_right_after_a_prompt(run_odin_process: Run) -> None:
    asked = make_user_line("Tell.") + make_control_line("interrupt")
    with ScriptedServer([say("Never.").stall()]) as server:
        ran = run_odin_process(*BOTH, input=asked, env=server.env("anthropic"))
    (result,) = select_type(parse_lines(ran.stdout), "result")
    assert result["exit_reason"] == "interrupted"
    assert ran.returncode == 0


def make_write_script(path: Path) -> list[Any]:
    return [call("WriteFile", {"file_path": str(path), "content": "x"}, id="toolu_w"), say("Done.")]


@pytest.mark.parametrize("allow", [True, False])
def test_client_answers_a_permission_request(workspace: Path, allow: bool) -> None:
    target = workspace / "x"
    with (
        ScriptedServer(make_write_script(target)) as server,
        StreamClient("--permission-prompt-tool", "stdio", cwd=workspace, env=server.env("anthropic")) as client,
    ):
        client.send(make_user_line("Write."))
        asked = client.read_until("control_request")
        assert asked["request"]["subtype"] == "can_use_tool"
        assert asked["request"]["tool_name"] == "WriteFile"
        assert asked["request"]["tool_use_id"] == "toolu_w"
        verdict = {"behavior": "allow"} if allow else {"behavior": "deny", "message": "no"}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": verdict}
        client.send(json.dumps({"type": "control_response", "response": response}) + "\n")
        assert client.read_until("result")["result"] == "Done."
        assert client.close_input() == []
        assert client.process.returncode == 0
    assert target.exists() is allow


@pytest.mark.parametrize("when", ["before", "effects"])
def test_client_is_asked_before_a_command_unless_it_wants_to_see_the_effects(workspace: Path, when: str) -> None:
    script = [call("Bash", {"command": "echo hi > made.txt"}), say("Done.")]
    flags = ("--permission-prompt-tool", "stdio", *(("--commands-ask", "effects") if when == "effects" else ()))
    with (
        ScriptedServer(script) as server,
        StreamClient(*flags, cwd=workspace, env=server.env("anthropic")) as client,
    ):
        client.send(make_user_line("Run it."))
        asked = client.read_until("control_request")
        made = asked["request"].get("effects", {"files": []})["files"]
        assert [item["path"] for item in made] == (["made.txt"] if when == "effects" else [])
        assert not (workspace / "made.txt").exists()
        response = {"subtype": "success", "request_id": asked["request_id"], "response": {"behavior": "allow"}}
        client.send(json.dumps({"type": "control_response", "response": response}) + "\n")
        assert client.read_until("result")["result"] == "Done."
        client.close_input()
    assert (workspace / "made.txt").read_text() == "hi\n"


def test_client_answers_the_interaction_that_the_app_would_show(workspace: Path) -> None:
    target = workspace / "x"
    with (
        ScriptedServer(make_write_script(target)) as server,
        StreamClient("--permission-prompt-tool", "stdio", cwd=workspace, env=server.env("anthropic")) as client,
    ):
        client.send(make_user_line("Write."))
        request = client.read_until("control_request")["request"]
        asked = msgspec.convert(request["interaction"], Interaction)
        assert (asked.kind, asked.title, asked.danger) == ("permission", "Create file x", "changes_files")
        assert [detail.kind for detail in asked.details] == ["diff"]
        rule = next(field for field in asked.form if field.name == "rule").options[0].label
        for choice, found in (("sure", "'sure' is not an answer to this."), (7, "The answer is not valid")):
            client.send(make_control_line("answer", id=asked.id, choice=choice))
            assert found in client.read_until("control_response")["response"]["error"]
        client.send(make_control_line("answer", id=asked.id, choice="allow_session", rule=rule))
        assert client.read_until("control_response")["response"]["response"] == {"accepted": True}
        assert client.read_until("result")["result"] == "Done."
        client.close_input()
    assert target.exists()


def test_interrupt_cancels_the_permission_request(workspace: Path) -> None:
    with (
        ScriptedServer(make_write_script(workspace / "x")) as server,
        StreamClient("--permission-prompt-tool", "stdio", cwd=workspace, env=server.env("anthropic")) as client,
    ):
        client.send(make_user_line("Write."))
        asked = client.read_until("control_request")
        client.send(make_control_line("interrupt"))
        assert client.read_until("control_cancel_request")["request_id"] == asked["request_id"]
        client.close_input()
    assert not (workspace / "x").exists()


def test_permission_request_is_denied_when_the_input_ends(workspace: Path) -> None:
    with (
        ScriptedServer(make_write_script(workspace / "x")) as server,
        StreamClient("--permission-prompt-tool", "stdio", cwd=workspace, env=server.env("anthropic")) as client,
    ):
        client.send(make_user_line("Write."))
        client.read_until("control_request")
        (result,) = select_type(client.close_input(), "result")
        assert "input was closed" in server.requests[1].results["toolu_w"]
    assert result["result"] == "Done."
    assert not (workspace / "x").exists()


def test_a_permission_update_can_change_the_mode(workspace: Path) -> None:
    first, second = workspace / "1", workspace / "2"
    script = [
        call("WriteFile", {"file_path": str(first), "content": "x"}),
        call("WriteFile", {"file_path": str(second), "content": "x"}),
        say("Done."),
    ]
    with (
        ScriptedServer(script) as server,
        StreamClient("--permission-prompt-tool", "stdio", cwd=workspace, env=server.env("anthropic")) as client,
    ):
        client.send(make_user_line("Write."))
        asked = client.read_until("control_request")
        updates = [{"type": "setMode", "mode": "acceptEdits"}, {"type": "addDirectories", "directories": ["/"]}]
        verdict = {"behavior": "allow", "updatedPermissions": updates}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": verdict}
        client.send(json.dumps({"type": "control_response", "response": response}) + "\n")
        while (told := client.read_until("system"))["subtype"] != "warning":
            assert told["subtype"] == "status"
        assert "'addDirectories'" in told["text"]
        rest = client.close_input()
    assert not select_type(rest, "control_request")
    assert (first.exists(), second.exists()) == (True, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_interrupts_the_turn_and_exits(workspace: Path, number: signal.Signals) -> None:
    with (
        ScriptedServer([say("Long.").stall(after=4)]) as server,
        StreamClient("--include-partial-messages", cwd=workspace, env=server.env("anthropic")) as client,
    ):
        client.send(make_user_line("Tell.") + make_user_line("And then?"))
        client.read_until("stream_event")
        client.process.send_signal(number)
        assert client.read_until("result")["exit_reason"] == "interrupted"
        assert client.process.wait(LIMIT_S) == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
        assert len(server.requests) == 1


def test_sigterm_exits_while_idle(workspace: Path) -> None:
    with StreamClient(cwd=workspace, env={}) as client:
        client.send(make_control_line("initialize"))
        client.read_until("control_response")
        client.process.terminate()
        assert client.process.wait(LIMIT_S) == 143


def test_the_exit_code_is_that_of_the_last_prompt(run_odin_process: Run) -> None:
    script = [say("fine"), fault(429, {"retry-after": "3600"})]
    with ScriptedServer(script) as server:
        ran = run_odin_process(*BOTH, input=make_user_line("a") + make_user_line("b"), env=server.env("anthropic"))
    assert ran.returncode == 75


def test_a_retry_is_a_message(run_odin_process: Run) -> None:
    with ScriptedServer([fault(529, {"retry-after": "0"}), say("Here.")]) as server:
        ran = run_odin_process("-p", "Hello.", *STREAM, env=server.env("anthropic"))
    (retry,) = [message for message in parse_lines(ran.stdout) if message.get("subtype") == "api_retry"]
    assert (retry["attempt"], retry["error"], retry["error_kind"]) == (1, "server_error", "Overloaded")


def test_client_that_writes_everything_before_reading_does_not_deadlock(workspace: Path) -> None:
    """Both pipes are full at the same time."""
    many = 400
    with StreamClient(cwd=workspace, env={}) as client:
        client.send("".join(make_control_line("x" * 2000, f"r{number}") for number in range(many)))
        answers = client.close_input()
    assert [answer["response"]["request_id"] for answer in answers] == [f"r{number}" for number in range(many)]


@pytest.mark.slow
def test_every_small_chunk_is_streamed(run_odin_process: Run) -> None:
    answer = "".join(f"{number} " for number in range(3000))
    with ScriptedServer([say(answer, chunk=1)]) as server:
        ran = run_odin_process("-p", "Count.", *STREAM, "--include-partial-messages", env=server.env("anthropic"))
    deltas = [message["event"].get("delta", {}) for message in select_type(parse_lines(ran.stdout), "stream_event")]
    assert "".join(delta.get("text", "") for delta in deltas) == answer


@pytest.mark.slow
def test_a_client_defines_agents_and_switches_the_role(workspace: Path) -> None:
    agents = {"judge": {"description": "Judges", "prompt": "Judge.", "model": "haiku"}, "bad": {"tools": "Read"}}
    with (
        ScriptedServer([say("Planned."), say("Built.")]) as server,
        StreamClient("--role", "planner", cwd=workspace, env=server.env("anthropic")) as client,
    ):
        client.send(make_control_line("initialize", agents=agents))
        assert client.read_until("system")["text"] == "--agents bad: The prompt is empty. This agent is ignored."
        known = client.read_until("control_response")["response"]["response"]
        assert [item["name"] for item in known["agents"]] == ["explore", "general", "judge"]
        assert [item["name"] for item in known["roles"]] == ["builder", "planner"]
        client.send(make_user_line("One."))
        assert client.read_until("system")["role"] == "planner"
        client.read_until("result")
        client.send(make_control_line("set_role", role="bulider") + make_control_line("set_role", "r2", role="builder"))
        refused, switched = (
            client.read_until("control_response")["response"],
            client.read_until("control_response")["response"],
        )
        assert refused["error"] == "There is no role 'bulider'. Did you mean builder? The roles are: builder, planner."
        assert switched["response"] == {"role": "builder"}
        client.send(make_control_line("set_tools", tools=["Read"]) + make_control_line("set_tools", tools="x"))
        client.send(
            make_control_line("set_system_prompt", system_prompt="Rhyme.")
            + make_control_line("set_system_prompt", system_prompt=7)
        )
        answers = [client.read_until("control_response")["response"] for _ in range(4)]
        assert [answer["subtype"] for answer in answers] == ["success", "error", "success", "error"]
        assert answers[0]["response"] == {"tools": ["Read"]}
        client.send(make_user_line("Two.", temperature=0.5, max_tokens=99) + make_user_line("Three.", temperature=9))
        assert "temperature must be from 0 to 2" in str([client.read_until("result"), client.read_until("result")])
        client.close_input()
    first, second = (request.json for request in server.requests)
    assert ["# Role: planner" in str(body["system"]) for body in (first, second)] == [True, False]
    assert [tool["name"] for tool in second["tools"]] == ["Read"] and "Rhyme." in str(second["system"])
    assert (second["max_tokens"], second["temperature"]) == (99, 0.5)


@pytest.mark.slow
def test_an_unknown_role_or_wrong_agents_on_the_command_line_are_usage_errors(workspace: Path) -> None:
    for args, message in (
        (("--role", "nobody"), "There is no role 'nobody'. The roles are: builder, planner."),
        (("--agents", "{"), "--agents is not valid JSON"),
        (("--agents", "[]"), "--agents must be a JSON object"),
    ):
        command = [sys.executable, "-I", "-m", "odin", "-p", "hi", *args]
        done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert done.returncode == 2 and message in done.stderr


def test_interrupt_stops_background_agents_and_idle_follows(workspace: Path) -> None:
    report = call("Report", {"message": "half done", "kind": "risk_alert"})
    team_script = TeamScript([delegate("a"), say("I wait."), say("I see.")], a=[report, say("hm").stall()])
    with (
        ScriptedServer(team_script) as server,
        StreamClient("--yes", cwd=workspace, env=server.env("anthropic")) as client,
    ):
        client.send(make_user_line("go"))
        heard: list[dict[str, Any]] = []
        while len(select_type(heard, "result")) < 2:
            heard.append(client.read_message())
        assert [result["idle"] for result in select_type(heard, "result")] == [False, False]
        (told,) = [message for message in heard if message.get("subtype") == "agent_notify"]
        assert (told["agent_id"], told["task_id"], told["tool_use_id"]) == ("general-1", "adhoc-1", "call-a")
        assert (told["kind"], told["priority"], told["text"]) == ("risk_alert", "urgent", "half done")
        client.send(make_control_line("interrupt"))
        while (last := client.read_message()).get("subtype") != "idle":
            heard.append(last)
        assert last["last_outcome"] == "cancelled"
        done = next(message for message in heard if message.get("subtype") == "task_notification")
        assert (done["status"], done["state"]) == ("stopped", "cancelled")


async def test_a_paused_prompt_that_another_client_drops_has_a_result(workspace: Path, tmp_path: Path) -> None:
    with ScriptedServer([say("Never.").stall()]) as server:
        manager = SessionManager()
        other = await manager.open(Options(env={**os.environ, **server.env("anthropic")}, cwd=str(workspace)))
        stream = StreamJsonClient(manager, other.session.id, tmp_path)
        stream.attach(-1)
        for name in ("first", "second"):
            stream.send(type="user", message={"content": name}, uuid=name)
        await anext(one async for one in other.stream_events() if isinstance(one.event, PromptQueued))
        await other.submit(Interrupt())
        async with TimeLimit():
            while not select_type(stream.messages, "result"):
                await asyncio.sleep(0.01)
                stream.receive()
            await other.submit(DropPrompt("second"))
            while len(results := select_type(stream.messages, "result")) < 2:
                await asyncio.sleep(0.01)
                stream.receive()
        await stream.detach()
        await other.close()
    assert [(one["turn_id"], one["exit_reason"]) for one in results] == [("first", "interrupted"), ("second", "error")]
    assert "removed from the queue" in str(results[1])
