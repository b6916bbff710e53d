"""Wrong input from outside leads to a clear message on stderr, the documented exit code and no traceback."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, call, fault, say
from tests.waiting import LIMIT_S

from .conftest import Run

STREAM = "stream-json"
HTML = "<!doctype html><html><body>Welcome</body></html>"


def assert_clean_exit(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """Check the exit code, that stderr contains the words, and that it has no traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_missing_key_and_server_is_reported_in_one_line(run_odin: Run, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one TODO\n")
    done = run_odin("-p", "Search for TODO")
    assert_clean_exit(done, 0, "offline planner")
    assert done.stderr.count("\n") == 1
    assert "a.txt" in done.stdout


def test_wrong_key_is_reported_but_not_shown(run_odin: Run) -> None:
    with ScriptedServer([fault(401)]) as server:
        done = run_odin("-p", "hi", env={**server.env("anthropic"), "ANTHROPIC_API_KEY": "sk-wrong-secret"})
    assert_clean_exit(done, 1, "key", "ANTHROPIC_API_KEY")
    assert "sk-wrong-secret" not in done.stderr + done.stdout
    assert done.stdout == ""


def test_unknown_model_is_reported(run_odin: Run) -> None:
    with ScriptedServer([say("hi")], models=["known"]) as server:
        done = run_odin("-p", "hi", "--model", "anthropic/unknown", env=server.env("anthropic"))
    assert_clean_exit(done, 1, "unknown", "odin models")


def test_missing_key_of_a_model_is_reported(run_odin: Run) -> None:
    done = run_odin("-p", "hi", "--model", "anthropic/claude-sonnet-4-5")
    assert_clean_exit(done, 1, "ANTHROPIC_API_KEY")


def test_refused_connection_is_reported(run_odin: Run, home: Path) -> None:
    config = home / ".config" / "odin"
    config.mkdir(parents=True)
    (config / "odinconfig.json").write_text(json.dumps({"retry": {"attempts": 2, "base_s": 0.01}}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "ODIN_MODEL": "openai/x"}
    done = run_odin("-p", "hi", env=env)
    assert_clean_exit(done, 75, str(port))


def test_html_instead_of_json_is_reported(run_odin: Run) -> None:
    with ScriptedServer([fault(200, {"content-type": "text/html"}, HTML)]) as server:
        done = run_odin("-p", "hi", env=server.env("openai"))
    assert_clean_exit(done, 1, "web page")


@pytest.mark.parametrize("prompt", ["", "  \n "])
def test_empty_prompt_is_refused(run_odin: Run, prompt: str) -> None:
    assert_clean_exit(run_odin("-p", prompt), 2, "prompt is empty")
    assert_clean_exit(run_odin("-p", input=prompt), 2, "prompt is empty")


def test_unknown_mode_is_refused(run_odin: Run) -> None:
    assert_clean_exit(run_odin("-p", "hi", "--mode", "yolo"), 2, "yolo", "ask, plan or edit")


def test_unknown_permission_mode_is_refused(run_odin: Run) -> None:
    assert_clean_exit(run_odin("-p", "hi", "--permission-mode", "yolo"), 2, "yolo", "acceptEdits")


def test_unknown_flag_is_refused(run_odin: Run) -> None:
    assert_clean_exit(run_odin("-p", "hi", "--frobnicate"), 2, "--frobnicate", "odin --help")


def test_missing_folder_is_reported(run_odin: Run) -> None:
    assert_clean_exit(run_odin("-p", "hi", "--cwd", "nowhere"), 2, "nowhere")


def test_a_config_with_a_syntax_error_names_file_and_line(run_odin: Run, workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text('{\n  "mode": "ask",\n  oops\n}\n')
    assert_clean_exit(run_odin("-p", "hi"), 2, "odinconfig.json", "line 3")


def test_unreadable_config_is_reported(run_odin: Run, workspace: Path) -> None:
    (workspace / "odinconfig.json").mkdir()
    assert_clean_exit(run_odin("-p", "hi"), 2, "odinconfig.json")


@pytest.mark.unknown_keys
def test_an_unknown_key_is_reported_with_a_suggestion_and_the_work_goes_on(run_odin: Run, workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text('{"max_turn": 3}')
    done = run_odin("-p", "list files")
    assert_clean_exit(done, 0, "max_turn", "max_turns")


def test_unknown_session_is_reported(run_odin: Run) -> None:
    assert_clean_exit(run_odin("-p", "hi", "--resume", "nope"), 2, "no session nope")
    assert_clean_exit(run_odin("-p", "hi", "--continue"), 2, "no earlier session")


def test_unwritable_state_folder_is_reported(run_odin: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_odin("-p", "hi", env={"ODIN_STATE_DIR": str(tmp_path / "file")})
    assert_clean_exit(done, 1, "ODIN_STATE_DIR")


def test_closed_stdout_causes_no_traceback(workspace: Path) -> None:
    (workspace / "a.txt").write_text("TODO\n" * 10)
    line = f"{sys.executable} -I -m odin -p 'Search for TODO' | head -c 0; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["/bin/bash", "-c", line], cwd=workspace, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode in (0, 141), "141 as if SIGPIPE had ended it, 0 if the reader was there long enough"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_refused_call_names_the_flag_that_would_allow_it(run_odin: Run, workspace: Path) -> None:
    target = workspace / "new.txt"
    with ScriptedServer([call("WriteFile", {"file_path": str(target), "content": "x"}), say("refused")]) as server:
        done = run_odin("-p", "write", env=server.env("anthropic"))
    assert done.stdout.strip() == "refused"
    assert not target.exists()
    request_body = server.requests[1].body.decode()
    assert "requires confirmation" in request_body
    assert "--permission-mode acceptEdits" in request_body


@pytest.mark.parametrize("flags", [("--yes",), ("--permission-mode", "acceptEdits"), ("--allowedTools", "Write")])
def test_flags_allow_writing_a_file(run_odin: Run, workspace: Path, flags: tuple[str, ...]) -> None:
    target = workspace / "new.txt"
    with ScriptedServer([call("WriteFile", {"file_path": str(target), "content": "x"}), say("done")]) as server:
        done = run_odin("-p", "write", *flags, env=server.env("anthropic"))
    assert_clean_exit(done, 0)
    assert target.read_text() == "x"


def test_a_disallowed_tool_is_neither_offered_nor_run(run_odin: Run, workspace: Path) -> None:
    with ScriptedServer([call("Bash", {"command": "touch made"}), say("ok")]) as server:
        run_odin("-p", "go", "--yes", "--disallowedTools", "Bash", env=server.env("anthropic"))
    assert "ExecuteCommand" not in {tool["name"] for tool in server.requests[0].json["tools"]}
    assert not (workspace / "made").exists()


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_standard_streams_cause_no_error(workspace: Path, closed: str) -> None:
    (workspace / "a.txt").write_text("TODO\n")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -I -m odin -p 'Search for TODO' {closed}"],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert_clean_exit(done, 0)
    assert "a.txt" in done.stdout


@pytest.mark.slow
def test_invalid_utf8_causes_no_error(workspace: Path) -> None:
    """In a file name, in the prompt, in the folder name and in the model name."""
    folder = os.fsencode(workspace) + b"/caf\xe9"
    os.mkdir(folder)
    with open(folder + b"/bad\xff.txt", "wb") as file:
        file.write(b"one TODO\n")
    command = [sys.executable.encode(), b"-I", b"-m", b"odin", b"-p"]
    for extra in ([b"Search for TODO"], [b"search for caf\xe9"], [b"--model", b"offline/\xff", b"list files"]):
        done = subprocess.run([*command, *extra], cwd=folder, capture_output=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
    log = b"".join(path.read_bytes() for path in Path(os.environ["HOME"]).rglob("main.jsonl"))
    assert log.count(b"TurnEnded") == 3
    log.decode("utf-8")


def test_open_session_is_locked_for_other_processes(run_odin: Run, workspace: Path) -> None:
    run_odin("-p", "list files", "--session-id", "one")
    waiting = subprocess.Popen(
        [sys.executable, "-I", "-m", "odin", "--resume", "one", "--input-format", STREAM, "--output-format", STREAM],
        cwd=workspace,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert waiting.stdin is not None
        assert waiting.stdout is not None
        request = {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}}
        waiting.stdin.write(json.dumps(request).encode() + b"\n")
        waiting.stdin.flush()
        assert waiting.stdout.readline()
        refused = run_odin("-p", "list files", "--resume", "one", "--no-attach")
        assert_clean_exit(refused, 1, "open in another process")
    finally:
        waiting.communicate(timeout=LIMIT_S)
    assert_clean_exit(run_odin("-p", "list files", "--resume", "one"), 0)


def test_disk_that_is_full_at_the_last_line_is_reported(workspace: Path) -> None:
    with ScriptedServer([say("x" * 4000)]) as server:
        limited = f"ulimit -f 6; exec {sys.executable} -I -B -m odin -p hi"
        done = subprocess.run(
            ["/bin/bash", "-c", limited],
            cwd=workspace,
            env={**os.environ, **server.env("anthropic")},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert_clean_exit(done, 1, "cannot be written")


def test_permission_mode_plan_is_plan_mode_for_the_model_too(run_odin: Run) -> None:
    with ScriptedServer([say("a plan")]) as server:
        run_odin("-p", "go", "--permission-mode", "plan", env=server.env("anthropic"))
    assert "WriteFile" not in {tool["name"] for tool in server.requests[0].json["tools"]}
    assert "# Mode: plan" in str(server.requests[0].json["system"])


@pytest.mark.slow
def test_deleted_working_folder_is_reported(run_odin: Run, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    for command in ("-p 'list files'", "models", "sessions"):
        line = f"rmdir {gone}; {sys.executable} -I -m odin {command}"
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=gone, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert_clean_exit(done, 2, "no longer exists")
        gone.mkdir()


@pytest.mark.parametrize("command", ["sessions", "sessions --json", "models"])
def test_commands_report_a_closed_stdout(workspace: Path, command: str) -> None:
    line = f"{sys.executable} -I -m odin {command} >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=workspace, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (1, "odin: Standard output is closed.\n")


def test_instruction_file_that_links_outside_the_project_is_not_used(
    run_odin: Run, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("the secret word is xyzzy")
    (workspace / "ODIN.md").symlink_to(tmp_path / "secret")
    with ScriptedServer([say("ok")]) as server:
        done = run_odin("-p", "go", env=server.env("anthropic"))
    assert_clean_exit(done, 0, "points outside the project")
    assert b"xyzzy" not in server.requests[0].body


def test_contradicting_session_flags_are_refused(run_odin: Run) -> None:
    run_odin("-p", "list files", "--session-id", "one")
    assert_clean_exit(run_odin("-p", "list files", "--resume", "one", "--session-id", "two"), 2, "--session-id")
    assert_clean_exit(run_odin("-p", "list files", "--resume", ""), 2, "--resume needs")
    assert_clean_exit(run_odin("sessions", "--cwd", "/nowhere"), 2, "/nowhere")


def test_edit_after_a_resume_needs_no_new_read_of_an_unchanged_file(run_odin: Run, workspace: Path) -> None:
    file = workspace / "a.txt"
    file.write_text("one\n")
    edit = call("EditTool", {"file_path": str(file), "old_string": "one", "new_string": "two"})
    with ScriptedServer([call("Read", {"file_path": str(file)}), say("read"), edit, say("done")]) as server:
        run_odin("-p", "read", env=server.env("anthropic"))
        run_odin("-p", "edit", "--continue", "--yes", env=server.env("anthropic"))
    assert file.read_text() == "two\n"
