"""The stream-json protocol, line by line, as any program could speak it."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.testing import ScriptedServer, call, fault, reply, say
from tests import pictures
from tests.conftest import Run
from tests.engine.test_team import Cast, delegate

STREAM = ["--output-format", "stream-json", "--verbose"]
BOTH = [*STREAM, "--input-format", "stream-json"]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def of_type(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [message for message in messages if message["type"] == kind]


def user(text: Any, **more: Any) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}, **more}) + "\n"


def control(subtype: str, request_id: str = "r1", **more: Any) -> str:
    request = {"subtype": subtype, **more}
    return json.dumps({"type": "control_request", "request_id": request_id, "request": request}) + "\n"


class Talk:
    """A running Odin that is talked to in lines."""

    def __init__(self, *args: str, cwd: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "odin", *BOTH, *args],
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(30, self.process.kill)
        self._watchdog.start()

    def __enter__(self) -> "Talk":
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.communicate()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def hear_any(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(next(self.process.stdout))

    def hear(self, kind: str) -> dict[str, Any]:
        """The next message of this type."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["type"] == kind:
                return message
        raise AssertionError(f"no {kind} came")

    def end(self) -> list[dict[str, Any]]:
        """Close the input; what still came."""
        rest, _ = self.process.communicate(timeout=20)
        return lines(rest)


def test_one_prompt_without_input(run_odin_process: Run, workspace: Path) -> None:
    calls = [call("LS", {"path": str(workspace)}), call("Glob", {"pattern": "*"}), call("LS", {"path": "nowhere"})]
    with ScriptedServer([reply("Look.", calls), say("Done.")]) as server:
        ran = run_odin_process("-p", "Look.", *STREAM, env=server.env("anthropic"))
    messages = lines(ran.stdout)
    kinds = [message["type"] for message in messages if message["type"] != "tool_progress"]
    assert kinds == ["system", "assistant", "user", "user", "user", "assistant", "result"]
    used = [block["id"] for block in messages[1]["message"]["content"] if block["type"] == "tool_use"]
    told = [message["message"]["content"][0] for message in of_type(messages, "user")]
    assert [block["tool_use_id"] for block in told] == used
    assert [block.get("is_error", False) for block in told] == [False, False, True]
    assert {message["session_id"] for message in messages} == {messages[-1]["session_id"]}
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_prompt_has_its_result(run_odin_process: Run) -> None:
    prompts = user("one") + user([{"type": "text", "text": "two"}, {"type": "image", "source": {}}]) + user("three")
    with ScriptedServer([say("1"), say("2"), say("3")]) as server:
        ran = run_odin_process(*BOTH, input=prompts, env=server.env("anthropic"))
        assert len(server.requests) == 3
    messages = lines(ran.stdout)
    assert [message["result"] for message in of_type(messages, "result")] == ["1", "2", "3"]
    warnings = [message["text"] for message in messages if message.get("subtype") == "warning"]
    assert warnings == ["Left out of the prompt: image."]
    assert ran.returncode == 0


@pytest.mark.slow
def test_an_image_in_a_prompt(run_odin_process: Run) -> None:
    data = base64.b64encode(pictures.png(4, 4)).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    prompts = user([{"type": "text", "text": "what is it?"}, {"type": "image", "source": source}])
    prompts += user([{"type": "image", "source": {**source, "data": base64.b64encode(b"no image").decode()}}])
    with ScriptedServer([say("A box.")]) as server:
        ran = run_odin_process(*BOTH, input=prompts, env=server.env("anthropic"))
        (request,) = server.requests
    assert data in request.body.decode()
    results = of_type(lines(ran.stdout), "result")
    assert "A box." in [result.get("result") for result in results]
    assert "image 1 cannot be attached" in json.dumps(results)


def test_what_cannot_be_read_is_said_and_the_rest_goes_on(run_odin_process: Run) -> None:
    bad = '{"type": "user"\n' + "[]\n" + '{"type": 7}\n' + "\n" + b"\xff\xfe\n".decode("latin-1") + '{"type":"sing"}\n'
    more = '{"type":"user"}\n' + user(7) + '{"type":"keep_alive"}\n' + user("  ") + user("fly", mode="fly")
    with ScriptedServer([say("Still here.")]) as server:
        ran = run_odin_process(*BOTH, input=bad + more + user("hello"), env=server.env("anthropic"))
    messages = lines(ran.stdout)
    errors = [message for message in messages if message.get("subtype") == "input_error"]
    assert [error["line"] for error in errors] == [1, 2, 3, 5, 6, 7, 8]
    assert all(error["error"].startswith(f"Input line {error['line']} ") for error in errors)
    results = of_type(messages, "result")
    assert [result["error_kind"] for result in results] == ["EmptyPrompt", "UnknownMode", ""]
    assert results[-1]["result"] == "Still here."
    assert (ran.returncode, ran.stderr) == (0, "")


def test_nothing_to_do_is_no_error(run_odin_process: Run) -> None:
    ran = run_odin_process(*BOTH, input="")
    assert (ran.returncode, ran.stdout) == (0, "")


def test_the_handshake(run_odin_process: Run) -> None:
    asked = control("initialize", hooks=None) + control("mcp_message", "r2") + control("whatever", "r3")
    ran = run_odin_process(*BOTH, input=asked)
    first, *others = [message["response"] for message in lines(ran.stdout)]
    assert (first["subtype"], first["request_id"]) == ("success", "r1")
    assert {"commands", "output_style", "models"} <= set(first["response"])
    assert [(answer["subtype"], answer["request_id"]) for answer in others] == [("error", "r2"), ("error", "r3")]
    assert "'whatever'" in others[1]["error"]


def test_a_mode_for_one_prompt(run_odin_process: Run) -> None:
    with ScriptedServer([say("a"), say("b")]) as server:
        ran = run_odin_process(*BOTH, input=user("a", mode="ask") + user("b"), env=server.env("anthropic"))
        offered = ["WriteFile" in request.tool_names for request in server.requests]
    assert offered == [False, True]
    assert [message["mode"] for message in lines(ran.stdout) if message["type"] == "system"] == [
        "ask_mode",
        "edit_mode",
    ]


def test_an_interrupt_right_behind_its_prompt(run_odin_process: Run) -> None:
    asked = user("Tell.") + control("interrupt")
    with ScriptedServer([say("Never.").stall()]) as server:
        ran = run_odin_process(*BOTH, input=asked, env=server.env("anthropic"))
    (result,) = of_type(lines(ran.stdout), "result")
    assert result["exit_reason"] == "interrupted"
    assert ran.returncode == 0


def ask_for_writing(path: Path) -> list[Any]:
    return [call("WriteFile", {"file_path": str(path), "content": "x"}, id="toolu_w"), say("Done.")]


@pytest.mark.parametrize("allow", [True, False])
def test_the_client_is_asked(workspace: Path, allow: bool) -> None:
    target = workspace / "x"
    with (
        ScriptedServer(ask_for_writing(target)) as server,
        Talk("--permission-prompt-tool", "stdio", cwd=workspace, env=server.env("anthropic")) as talk,
    ):
        talk.say(user("Write."))
        asked = talk.hear("control_request")
        assert asked["request"]["subtype"] == "can_use_tool"
        assert asked["request"]["tool_name"] == "WriteFile"
        assert asked["request"]["tool_use_id"] == "toolu_w"
        verdict = {"behavior": "allow"} if allow else {"behavior": "deny", "message": "no"}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": verdict}
        talk.say(json.dumps({"type": "control_response", "response": response}) + "\n")
        assert talk.hear("result")["result"] == "Done."
        assert talk.end() == []
        assert talk.process.returncode == 0
    assert target.exists() is allow


def test_a_question_is_taken_back_when_the_turn_is_interrupted(workspace: Path) -> None:
    with (
        ScriptedServer(ask_for_writing(workspace / "x")) as server,
        Talk("--permission-prompt-tool", "stdio", cwd=workspace, env=server.env("anthropic")) as talk,
    ):
        talk.say(user("Write."))
        asked = talk.hear("control_request")
        talk.say(control("interrupt"))
        assert talk.hear("control_cancel_request")["request_id"] == asked["request_id"]
        talk.end()
    assert not (workspace / "x").exists()


def test_nobody_answers_when_the_input_ends(workspace: Path) -> None:
    with (
        ScriptedServer(ask_for_writing(workspace / "x")) as server,
        Talk("--permission-prompt-tool", "stdio", cwd=workspace, env=server.env("anthropic")) as talk,
    ):
        talk.say(user("Write."))
        talk.hear("control_request")
        (result,) = of_type(talk.end(), "result")
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
        Talk("--permission-prompt-tool", "stdio", cwd=workspace, env=server.env("anthropic")) as talk,
    ):
        talk.say(user("Write."))
        asked = talk.hear("control_request")
        updates = [{"type": "setMode", "mode": "acceptEdits"}, {"type": "addDirectories", "directories": ["/"]}]
        verdict = {"behavior": "allow", "updatedPermissions": updates}
        response = {"subtype": "success", "request_id": asked["request_id"], "response": verdict}
        talk.say(json.dumps({"type": "control_response", "response": response}) + "\n")
        assert "'addDirectories'" in talk.hear("system")["text"]
        rest = talk.end()
    assert not of_type(rest, "control_request")
    assert (first.exists(), second.exists()) == (True, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_talk(workspace: Path, number: signal.Signals) -> None:
    with (
        ScriptedServer([say("Long.").stall(after=4)]) as server,
        Talk("--include-partial-messages", cwd=workspace, env=server.env("anthropic")) as talk,
    ):
        talk.say(user("Tell.") + user("And then?"))
        talk.hear("stream_event")
        talk.process.send_signal(number)
        assert talk.hear("result")["exit_reason"] == "interrupted"
        assert talk.process.wait(20) == {signal.SIGTERM: 143, signal.SIGINT: 130}[number]
        assert len(server.requests) == 1


def test_a_signal_ends_a_talk_in_which_nothing_runs(workspace: Path) -> None:
    with Talk(cwd=workspace, env={}) as talk:
        talk.say(control("initialize"))
        talk.hear("control_response")
        talk.process.terminate()
        assert talk.process.wait(20) == 143


def test_the_exit_code_is_that_of_the_last_prompt(run_odin_process: Run) -> None:
    script = [say("fine"), fault(429, {"retry-after": "3600"})]
    with ScriptedServer(script) as server:
        ran = run_odin_process(*BOTH, input=user("a") + user("b"), env=server.env("anthropic"))
    assert ran.returncode == 75


def test_a_retry_is_a_message(run_odin_process: Run) -> None:
    with ScriptedServer([fault(529, {"retry-after": "0"}), say("Here.")]) as server:
        ran = run_odin_process("-p", "Hello.", *STREAM, env=server.env("anthropic"))
    (retry,) = [message for message in lines(ran.stdout) if message.get("subtype") == "api_retry"]
    assert (retry["attempt"], retry["error"], retry["error_kind"]) == (1, "server_error", "Overloaded")


def test_a_client_that_writes_before_it_reads(workspace: Path) -> None:
    """Both pipes are full at once; neither side waits for the other for ever."""
    many = 400
    with Talk(cwd=workspace, env={}) as talk:
        talk.say("".join(control("x" * 2000, f"r{number}") for number in range(many)))
        answers = talk.end()
    assert [answer["response"]["request_id"] for answer in answers] == [f"r{number}" for number in range(many)]


@pytest.mark.slow
def test_many_small_pieces_all_arrive(run_odin_process: Run) -> None:
    answer = "".join(f"{number} " for number in range(3000))
    with ScriptedServer([say(answer, chunk=1)]) as server:
        ran = run_odin_process("-p", "Count.", *STREAM, "--include-partial-messages", env=server.env("anthropic"))
    deltas = [message["event"].get("delta", {}) for message in of_type(lines(ran.stdout), "stream_event")]
    assert "".join(delta.get("text", "") for delta in deltas) == answer


@pytest.mark.slow
def test_a_client_defines_agents_and_switches_the_role(workspace: Path) -> None:
    agents = {"judge": {"description": "Judges", "prompt": "Judge.", "model": "haiku"}, "bad": {"tools": "Read"}}
    with (
        ScriptedServer([say("Planned."), say("Built.")]) as server,
        Talk("--role", "planner", cwd=workspace, env=server.env("anthropic")) as talk,
    ):
        talk.say(control("initialize", agents=agents))
        assert talk.hear("system")["text"] == "--agents bad: The prompt is empty. This agent is ignored."
        known = talk.hear("control_response")["response"]["response"]
        assert [item["name"] for item in known["agents"]] == ["explore", "general", "judge"]
        assert [item["name"] for item in known["roles"]] == ["builder", "planner"]
        talk.say(user("One."))
        assert talk.hear("system")["role"] == "planner"
        talk.hear("result")
        talk.say(control("set_role", role="bulider") + control("set_role", "r2", role="builder"))
        refused, switched = talk.hear("control_response")["response"], talk.hear("control_response")["response"]
        assert refused["error"] == "There is no role 'bulider'. Did you mean builder? The roles are: builder, planner."
        assert switched["response"] == {"role": "builder"}
        talk.say(control("set_tools", tools=["Read"]) + control("set_tools", tools="x"))
        talk.say(control("set_system_prompt", system_prompt="Rhyme.") + control("set_system_prompt", system_prompt=7))
        answers = [talk.hear("control_response")["response"] for _ in range(4)]
        assert [answer["subtype"] for answer in answers] == ["success", "error", "success", "error"]
        assert answers[0]["response"] == {"tools": ["Read"]}
        talk.say(user("Two.", temperature=0.5, max_tokens=99) + user("Three.", temperature=9))
        assert "temperature must be from 0 to 2" in str([talk.hear("result"), talk.hear("result")])
        talk.end()
    first, second = (request.json for request in server.requests)
    assert ["# Role: planner" in str(body["system"]) for body in (first, second)] == [True, False]
    assert [tool["name"] for tool in second["tools"]] == ["Read"] and "Rhyme." in str(second["system"])
    assert (second["max_tokens"], second.get("temperature", 0.5)) == (99, 0.5)


@pytest.mark.slow
def test_an_unknown_role_or_wrong_agents_on_the_command_line_are_usage_errors(workspace: Path) -> None:
    for args, message in (
        (("--role", "nobody"), "There is no role 'nobody'. The roles are: builder, planner."),
        (("--agents", "{"), "--agents is not valid JSON"),
        (("--agents", "[]"), "--agents must be a JSON object"),
    ):
        command = [sys.executable, "-I", "-m", "odin", "-p", "hi", *args]
        done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 2 and message in done.stderr


def test_an_interrupt_stops_agents_that_work_alone_and_idle_means_that_they_are_quiet(workspace: Path) -> None:
    report = call("Report", {"message": "half done", "kind": "risk_alert"})
    cast = Cast([delegate("a"), say("I wait."), say("I see.")], a=[report, say("hm").stall()])
    with ScriptedServer(cast) as server, Talk("--yes", cwd=workspace, env=server.env("anthropic")) as talk:
        talk.say(user("go"))
        heard: list[dict[str, Any]] = []
        while len(of_type(heard, "result")) < 2:
            heard.append(talk.hear_any())
        assert [result["idle"] for result in of_type(heard, "result")] == [False, False]
        (told,) = [message for message in heard if message.get("subtype") == "agent_notify"]
        assert (told["agent_id"], told["task_id"], told["tool_use_id"]) == ("general-1", "adhoc-1", "call-a")
        assert (told["kind"], told["priority"], told["text"]) == ("risk_alert", "urgent", "half done")
        talk.say(control("interrupt"))
        while (last := talk.hear_any()).get("subtype") != "idle":
            heard.append(last)
        assert last["last_outcome"] == "cancelled"
        done = next(message for message in heard if message.get("subtype") == "task_notification")
        assert (done["status"], done["state"]) == ("stopped", "cancelled")
