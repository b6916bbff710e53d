"""Features of every command line: folder flags, shorthands, unwritable output, and the crash log."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import odin.commands.main as main
from odin.app.crash_log import MAX_LOG_BYTES, append_entry, log_crash, log_unhandled_errors
from odin.commands.command_line import ABOUT, FOLDER_FLAGS, extract_folder_flags
from odin.commands.main import COMMANDS, SHORTHANDS
from odin.config.paths import crash_log_path
from odin.core.errors import UsageError
from odin.session.store import SessionStore
from odin.testing import ScriptedServer, say
from tests.conftest import Run, RunHere
from tests.session.logs import opened, turn, write_session

KEY = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"


def test_help_names_every_command() -> None:
    named = {line.split()[1] for line in ABOUT.splitlines() if line.startswith("  odin ")}
    assert named == {*COMMANDS, *SHORTHANDS}


def test_help_lists_the_commands_before_the_flags_in_groups() -> None:
    text = main.build_parser().format_help()
    groups = (
        "commands:",
        "the prompt,",
        "mode, model and limits:",
        "tools and permissions:",
        "sessions:",
        "exit codes:",
    )
    places = [text.index(f"\n{group}") for group in groups]
    assert places == sorted(places) and "\noptions:" not in text
    assert text.startswith("usage: odin [FLAGS] [PROMPT]\n       odin COMMAND [ARGUMENTS]\n")


# --- folder flags ---


@pytest.mark.usefixtures("no_network")
def test_flags_move_the_folders_of_every_command(run_odin: Run, tmp_path: Path, home: Path) -> None:
    config, state, cache = (tmp_path / name for name in ("c", "s", "k"))
    moved = ("--config-dir", str(config), f"--state-dir={state}", "--cache-dir", str(cache))
    with ScriptedServer([say("hi")]) as server:
        env = {**server.env("anthropic"), "ODIN_STATE_DIR": str(tmp_path / "elsewhere")}
        assert run_odin(*moved, "-p", "hello", env=env).stdout == "hi\n"
    assert len(list(state.glob("sessions/*/*/main.jsonl"))) == 1
    assert run_odin("auth", "add", "anthropic", *moved, input=KEY).returncode == 0
    assert (config / "auth.json").is_file()
    assert len(json.loads(run_odin("sessions", "--json", *moved).stdout)) == 1
    folders = json.loads(run_odin("doctor", *moved, "--json").stdout)["folders"]
    assert [folders[name]["path"] for name in ("configuration", "state", "cache")] == [
        str(config), str(state), str(cache),
    ]  # fmt: skip
    assert not (tmp_path / "elsewhere").exists() and list(home.iterdir()) == []


def test_folder_flags_are_extracted_and_need_a_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    env: dict[str, str] = {}
    assert extract_folder_flags(["a", "--state-dir", "x", "b", "--", "--state-dir", "y"], env) == [
        "a",
        "b",
        "--",
        "--state-dir",
        "y",
    ]
    assert env == {"ODIN_STATE_DIR": str(tmp_path / "x")}, "relative to the current folder, even if it changes later"
    for line in (["--state-dir"], ["--state-dir="], ["--config-dir", " "]):
        with pytest.raises(UsageError, match="needs a folder"):
            extract_folder_flags(line, env)
    assert set(FOLDER_FLAGS) <= {word for action in main.build_parser()._actions for word in action.option_strings}


# --- shorthands ---


def test_resume_command_continues_a_session(run_odin: Run, store: SessionStore) -> None:
    write_session(store, "aa1", [opened(), *turn("t1", "first prompt", "An answer.")])
    with ScriptedServer([say("again")]) as server:
        done = run_odin("resume", "aa1", "-p", "more", env=server.env("anthropic"))
        assert done.stdout == "again\n", done.stderr
        assert "An answer." in str(server.requests[0].messages)
    assert "There is no session zz9" in run_odin("resume", "zz9", "-p", "x").stderr


def test_headless_command_prints_json_lines(run_odin_process: Run) -> None:
    line = json.dumps({"type": "user", "message": {"role": "user", "content": "hello"}})
    with ScriptedServer([say("hi")]) as server:
        done = run_odin_process("headless", input=f"{line}\n", env=server.env("anthropic"))
    assert done.returncode == 0, done.stderr
    kinds = [json.loads(row)["type"] for row in done.stdout.splitlines()]
    assert kinds[0] == "system" and kinds[-1] == "result"


@pytest.mark.parametrize(
    "line", [["-c", "-r", "aa1"], ["-c", "-r"], ["resume", "-c"], ["-c", "--resume", "x", "-p", "y"]]
)
def test_continue_and_resume_exclude_each_other(run_here: RunHere, line: list[str]) -> None:
    code, _, said = run_here(*line)
    assert code == 2 and said == "odin: --resume and --continue cannot be combined.\n"


# --- unwritable output ---

PRINTING = [
    (("--version",), 0, False),
    (("--version",), 0, True),
    (("sessions", "--json"), 0, False),
    (("sessions", "--json"), 0, True),
    (("-p", "hi"), 141, False),
    (("-p", "hi", "--output-format", "json"), 141, False),
    (("-p", "hi", "--output-format", "stream-json", "--verbose"), 141, False),
]
"""Command lines, the exit code if the reader has closed the pipe, and whether Python writes without a buffer."""


@pytest.mark.slow
@pytest.mark.parametrize(("line", "code", "unbuffered"), PRINTING)
def test_full_disk_is_reported_and_a_closed_pipe_is_not(
    workspace: Path, line: tuple[str, ...], code: int, unbuffered: bool
) -> None:
    command = [sys.executable, "-I", *(["-u"] if unbuffered else []), "-m", "odin", *line]
    env = dict(os.environ)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=workspace, env=env, check=False
        )
    told = [text for text in done.stderr.splitlines() if text.startswith("odin: ")]
    assert (done.returncode, len(told)) == (74, 1), done.stderr
    assert told[0].startswith("odin: Cannot write to standard output: No space left on device.")
    assert ("The session has the answer: odin --continue" in told[0]) == ("-p" in line)
    assert "Traceback" not in done.stderr
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        left = subprocess.run(
            command, stdout=unread, stderr=subprocess.PIPE, text=True, cwd=workspace, env=env, check=False
        )
    assert left.returncode == code
    assert [text for text in left.stderr.splitlines() if not text.startswith("No model is configured")] == []


# --- the crash log ---


def test_crash_is_logged_redacted_and_reported(run_here: RunHere, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    def broken(argv: list[str]) -> int:
        raise RuntimeError(f"the key is {KEY}")

    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setattr(main, "_run_prompt", broken)
    code, _, said = run_here("hello")
    path = home / ".local/state/odin/logs/odin.log"
    assert code == 1
    assert "internal error (RuntimeError" in said and f"Details are in {path}" in said
    text = path.read_text()
    assert "in broken" in text and "RuntimeError: the key is [redacted: ANTHROPIC_API_KEY]" in text
    assert KEY not in text + said
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_crash_prints_the_traceback_if_the_log_cannot_be_written(
    run_here: RunHere, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(argv: list[str]) -> int:
        raise RuntimeError("oops")

    (tmp_path / "file").touch()
    monkeypatch.setenv("ODIN_STATE_DIR", str(tmp_path / "file/state"))
    monkeypatch.setattr(main, "_run_prompt", broken)
    code, _, said = run_here("hello")
    assert code == 1 and "Traceback" in said and "RuntimeError: oops" in said


def test_crash_log_is_rotated() -> None:
    for number in range(60):
        assert append_entry(f"{number} " + "x" * 45_000, os.environ) == crash_log_path(os.environ)
    path = crash_log_path(os.environ)
    older = path.with_name("odin.log.1")
    assert path.read_text().count("odin ") and "59 xxx" in path.read_text()
    assert path.stat().st_size < MAX_LOG_BYTES + 60_000 and older.stat().st_size < MAX_LOG_BYTES + 60_000
    assert sorted(item.name for item in path.parent.iterdir()) == ["odin.log", "odin.log.1"]
    try:
        raise ValueError("y" * 500_000)
    except ValueError as error:
        assert log_crash(error, os.environ) == path
    assert path.stat().st_size < MAX_LOG_BYTES + 120_000


async def test_exception_of_an_unawaited_task_is_logged() -> None:
    import asyncio
    import gc

    loop = asyncio.get_running_loop()
    log_unhandled_errors(loop, os.environ)

    async def fail() -> None:
        raise KeyError("lost")

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()
    loop.set_exception_handler(None)
    text = crash_log_path(os.environ).read_text()
    assert "Task exception was never retrieved" in text and "KeyError: 'lost'" in text
