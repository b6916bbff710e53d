"""`odin -p`: standard output, standard error, exit codes, signals and closed outputs."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, Usage, call, fault, reply, say
from tests.conftest import Run
from tests.sandbox.processes import is_running
from tests.sandbox.sandboxes import skip_without_sandbox
from tests.table import each
from tests.waiting import LIMIT_S, wait_until

ODIN = [sys.executable, "-I", "-m", "odin"]


def start_odin(*args: str, cwd: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*ODIN, *args],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_standard_output_is_the_answer_and_nothing_else(run_odin: Run, workspace: Path) -> None:
    with ScriptedServer([call("LS", {"path": str(workspace)}, text="Looking."), say("It is empty.\n\n")]) as server:
        ran = run_odin("-p", "What is here?", env=server.env("anthropic"))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "It is empty.\n", "")


def run_odin_to_write_envrc(run_odin: Run, how: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    skip_without_sandbox("auto")
    command = "mkdir -p sub && echo 'echo hi' >sub/.envrc"
    with ScriptedServer([call("ExecuteCommand", {"command": command}), say("Done.")]) as server:
        words, typed = ((*how, "Do it."), None) if "-p" in how else (how, "Do it.\n")
        return run_odin(*words, "--yes", env=server.env("anthropic"), input=typed)


@pytest.mark.parametrize("how", [("-p",), ("-p", "--output-format", "json"), ("--plain",)], ids=" ".join)
def test_user_is_told_that_an_executed_file_was_left_out(run_odin: Run, workspace: Path, how: tuple[str, ...]) -> None:
    ran = run_odin_to_write_envrc(run_odin, how)
    assert "Left out, because other programs execute or obey these files" in ran.stderr
    assert "created sub/.envrc" in ran.stderr
    assert "ther programs" not in ran.stdout
    assert not (workspace / "sub" / ".envrc").exists()


@pytest.mark.usefixtures("without_views")
@pytest.mark.parametrize("how", [("-p",), ("-p", "--output-format", "json"), ("--plain",)], ids=" ".join)
def test_user_is_warned_of_a_command_that_writes_an_executed_file(run_odin: Run, how: tuple[str, ...]) -> None:
    ran = run_odin_to_write_envrc(run_odin, how)
    assert "The command created or changed sub/.envrc. Other programs execute or obey such files" in ran.stderr
    assert "ther programs" not in ran.stdout


def test_json_output_is_the_result_message(run_odin: Run, workspace: Path) -> None:
    with ScriptedServer([call("LS", {"path": str(workspace)}), say("Empty: “ü”.")]) as server:
        ran = run_odin("-p", "What is here?", "--output-format", "json", env=server.env("anthropic"))
    result = json.loads(ran.stdout)
    assert (result["type"], result["subtype"], result["is_error"]) == ("result", "success", False)
    assert (result["result"], result["num_turns"]) == ("Empty: “ü”.", 2)
    assert ran.stdout.count("\n") == 1
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_offline_planner_is_named_on_standard_error(run_odin: Run) -> None:
    ran = run_odin("-p", "hello")
    assert ran.returncode == 0
    assert ran.stdout.strip()
    assert len(ran.stderr.splitlines()) == 1
    assert "offline planner" in ran.stderr


@pytest.mark.parametrize("form", ["text", "json"])
def test_verbose_names_the_sandbox(run_odin: Run, form: str) -> None:
    with ScriptedServer([say("Hi."), say("Hi.")]) as server:
        quiet = run_odin("-p", "Hello.", "--output-format", form, env=server.env("anthropic"))
        ran = run_odin("-p", "Hello.", "--output-format", form, "--verbose", env=server.env("anthropic"))
    assert quiet.stderr == ""
    assert ran.stderr.startswith("Sandbox: ")


def test_max_turns_stops_the_run(run_odin: Run, workspace: Path) -> None:
    with ScriptedServer([call("LS", {"path": str(workspace)}, text="So far."), say("never")]) as server:
        ran = run_odin("-p", "Look.", "--max-turns", "1", env=server.env("anthropic"))
        assert len(server.requests) == 1
    assert (ran.returncode, ran.stdout) == (1, "So far.\n")
    assert "--max-turns" in ran.stderr


def test_max_budget_stops_the_run(run_odin: Run, workspace: Path) -> None:
    look = reply("So far.", [call("LS", {"path": str(workspace)})], usage=Usage(input=100_000, output=9))
    with ScriptedServer([look, say("never")]) as server:
        ran = run_odin(
            "-p", "Look.", "--max-budget-usd", "0.01", "--output-format", "json", env=server.env("anthropic")
        )
        assert len(server.requests) == 1
    result = json.loads(ran.stdout)
    assert (ran.returncode, result["subtype"]) == (1, "error_max_budget_usd")
    assert (result["result"], result["is_error"]) == ("So far.", True)
    assert "--max-budget-usd" in ran.stderr


def test_permanent_failure_exits_with_1(run_odin: Run) -> None:
    with ScriptedServer([fault(401, message="invalid x-api-key")]) as server:
        ran = run_odin("-p", "Hello.", env=server.env("anthropic"))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_temporary_failure_exits_with_75(run_odin: Run, form: str) -> None:
    with ScriptedServer([fault(429, {"retry-after": "3600"})]) as server:
        ran = run_odin("-p", "Hello.", "--output-format", form, env=server.env("anthropic"))
    assert ran.returncode == 75
    assert "Traceback" not in ran.stderr
    if form == "json":
        assert json.loads(ran.stdout)["error_kind"] == "RateLimited"


def test_retry_is_reported_on_standard_error(run_odin: Run) -> None:
    with ScriptedServer([fault(529, {"retry-after": "0"}), say("Here.")]) as server:
        ran = run_odin("-p", "Hello.", env=server.env("anthropic"))
    assert (ran.returncode, ran.stdout) == (0, "Here.\n")
    assert "Retrying in" in ran.stderr


def test_call_that_needs_approval_is_denied_without_a_terminal(run_odin: Run, workspace: Path) -> None:
    args = {"file_path": str(workspace / "x"), "content": "x"}
    with ScriptedServer([call("WriteFile", args, id="toolu_w"), say("I may not.")]) as server:
        ran = run_odin("-p", "Write.", env=server.env("anthropic"))
        assert "--permission-mode" in server.requests[1].results["toolu_w"]
    assert (ran.returncode, ran.stdout) == (4, "I may not.\n")
    assert ran.stderr.endswith("Nothing was changed: every call that would have changed something was denied.\n")
    assert not (workspace / "x").exists()


@each(
    ("flags", "calls", "code"),
    [
        ((), [("Read", {"file_path": "a"}), ("Bash", {"command": "ls"}), ("Write", {"file_path": "x"})], 4),
        (("--output-format", "json"), [("Write", {"file_path": "x"})], 4),
        (("--output-format", "stream-json"), [("Bash", {"command": "touch /nowhere/x"})], 4),
        (("--allowedTools", "Write"), [("Bash", {"command": "touch /nowhere/x"}), ("Write", {"file_path": "x"})], 0),
        (("--disallowedTools", "Read(a)"), [("Read", {"file_path": "a"})], 0),
        (("--mode", "ask"), [("Write", {"file_path": "x"})], 0),
    ],
)
def test_run_exits_with_4_if_every_change_was_denied(
    run_odin: Run, workspace: Path, flags: tuple[str, ...], calls: list[tuple[str, dict[str, str]]], code: int
) -> None:
    (workspace / "a").write_text("a\n")
    made = [call(name, {**args, **({"content": "x"} if name == "Write" else {})}) for name, args in calls]
    with ScriptedServer([*made, say("Done.")]) as server:
        ran = run_odin("-p", "Do it.", *flags, env=server.env("anthropic"))
    assert ran.returncode == code, ran.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_end_the_turn_and_the_program(workspace: Path, number: signal.Signals, code: int) -> None:
    with (
        ScriptedServer([say("Half an answer", chunk=4).stall(after=6)]) as server,
        start_odin("-p", "Tell.", "--output-format", "json", cwd=workspace, env=server.env("anthropic")) as process,
    ):
        server.wait_for(1)
        time.sleep(0.1)
        process.send_signal(number)
        printed, said = process.communicate(timeout=LIMIT_S)
    result = json.loads(printed)
    assert process.returncode == code
    assert (result["exit_reason"], result["is_error"]) == ("interrupted", True)
    assert b"Traceback" not in said


@pytest.mark.usefixtures("without_views")
def test_running_command_ends_with_odin(workspace: Path) -> None:
    command = f"sleep {60 + os.getpid() / 1e7:.7f}"
    with (
        ScriptedServer([call("ExecuteCommand", {"command": f"touch started; exec {command}"})]) as server,
        start_odin("-p", "Run.", "--yes", cwd=workspace, env=server.env("anthropic")) as process,
    ):
        wait_until(lambda: (workspace / "started").exists() and is_running(command))
        process.terminate()
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 143
    assert not is_running(command)


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_closed_standard_output_exits_silently_with_141(workspace: Path, form: str) -> None:
    gate = threading.Event()
    with (
        ScriptedServer([say("An answer nobody reads.").hold(gate)]) as server,
        start_odin("-p", "Tell.", "--output-format", form, cwd=workspace, env=server.env("anthropic")) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        if form != "stream-json":  # its first line already fails
            server.wait_for(1)
        gate.set()
        said = process.stderr.read()
        process.wait(LIMIT_S)
    assert process.returncode == 141
    assert said == b""


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_slow_reader_gets_everything(workspace: Path, form: str) -> None:
    answer = "All of it, to the very last word. " * 20_000
    with (
        ScriptedServer([say(answer)]) as server,
        start_odin("-p", "Tell.", "--output-format", form, cwd=workspace, env=server.env("anthropic")) as process,
    ):
        server.wait_for(1)
        time.sleep(0.3)
        assert process.stdout is not None
        printed = process.stdout.read().decode()
        process.wait(LIMIT_S)
    assert process.returncode == 0
    if form == "text":
        assert printed == answer + "\n"
    else:
        assert json.loads(printed.splitlines()[-1])["result"] == answer


def test_answer_is_written_to_a_file(workspace: Path) -> None:
    with ScriptedServer([say("Into a file.")]) as server, (workspace / "out").open("wb") as out:
        subprocess.run(
            [*ODIN, "-p", "Tell."],
            cwd=workspace,
            env={**os.environ, **server.env("anthropic")},
            stdin=subprocess.DEVNULL,
            stdout=out,
            check=True,
            timeout=LIMIT_S,
        )
    assert (workspace / "out").read_text() == "Into a file.\n"


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_missing_standard_output_exits_before_a_request(workspace: Path, form: str) -> None:
    """The model is not asked if its answer could not be written."""
    line = f"{shlex.join(ODIN)} -p 'Create an empty file x' --yes --output-format {form} >&-"
    ran = subprocess.run(
        ["/bin/sh", "-c", line], cwd=workspace, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert ran.returncode == 141
    assert "Traceback" not in ran.stderr
    assert not (workspace / "x").exists()
