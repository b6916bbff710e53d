"""The outcome of checks in headless text, JSON, stream-json, plain mode, the app and exports."""

import json
from pathlib import Path
from typing import Any

import pytest

from odin.core.event import Envelope, TurnEnded, TurnStarted
from odin.core.event_values import CheckResult, Verification
from odin.session.log import read_log
from odin.session.messages import read_messages
from odin.testing import ScriptedServer, Turn, call, say
from odin.ui.exit import describe_verification, get_exit_code
from odin.ui.transcript.blocks import NoticeBlock
from odin.ui.transcript.model import TranscriptModel
from tests.conftest import Run
from tests.table import each


@pytest.fixture
def project(workspace: Path, home: Path) -> Path:
    """A project with a failing check that Odin is configured to run."""
    (workspace / "Makefile").write_text("test:\n\t@echo broken; exit 1\n")
    write_settings(home, mode="run", commands="make test")
    return workspace


def write_settings(home: Path, **verify: Any) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "odinconfig.json").write_text(json.dumps({"verify": verify}))


def make_script(folder: Path) -> list[Turn]:
    edit = call("WriteFile", {"file_path": str(folder / "a.py"), "content": "x = 1\n"})
    return [edit, say("Done."), say("I cannot fix it.")]


def test_headless_text_reports_failed_checks_on_stderr_and_exits_with_3(run_odin: Run, project: Path) -> None:
    with ScriptedServer(make_script(project)) as server:
        ran = run_odin("-p", "go", "--yes", env=server.env("anthropic"))
    assert (ran.returncode, ran.stdout) == (3, "I cannot fix it.\n")
    assert ran.stderr.splitlines()[-1] == "Checks failed: make test."


def test_json_result_contains_the_verification(run_odin: Run, project: Path) -> None:
    with ScriptedServer(make_script(project)) as server:
        ran = run_odin("-p", "go", "--yes", "--output-format", "json", env=server.env("anthropic"))
    result = json.loads(ran.stdout)
    assert ran.returncode == 3
    assert (result["subtype"], result["is_error"]) == ("success", False)
    checks = [{"command": "make test", "outcome": "failed"}]
    assert result["verification"] == {"outcome": "failed", "checks": checks, "by": "odin", "rounds": 1}


def test_stream_json_has_a_tool_use_for_every_tool_result(run_odin: Run, project: Path) -> None:
    with ScriptedServer(make_script(project)) as server:
        ran = run_odin("-p", "go", "--yes", "--output-format", "stream-json", env=server.env("anthropic"))
    messages = [json.loads(line) for line in ran.stdout.splitlines()]
    blocks = [
        block for item in messages if item["type"] in ("assistant", "user") for block in item["message"]["content"]
    ]
    used = {block["id"] for block in blocks if block["type"] == "tool_use"}
    assert {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"} == used
    (checks,) = [item for item in messages if item.get("subtype") == "checks"]
    assert (checks["verification"]["outcome"], checks["continues"]) == ("failed", True)
    shown = [item for item in messages if item["type"] == "tool_progress" and item["tool_use_id"].startswith("check-")]
    assert [item["status"] for item in shown if item["status"] != "running"] == ["started", "error"]


def test_ignored_reminder_exits_with_3(run_odin: Run, project: Path, home: Path) -> None:
    write_settings(home, mode="remind")
    with ScriptedServer(make_script(project)) as server:
        ran = run_odin("-p", "go", "--yes", env=server.env("anthropic"))
    assert (ran.returncode, len(server.requests)) == (3, 3)
    assert ran.stderr.splitlines()[-1] == "Checks not run: make test."


def test_plain_mode_reports_failed_checks_once(run_odin: Run, project: Path) -> None:
    with ScriptedServer(make_script(project)) as server:
        ran = run_odin("--plain", "--yes", env=server.env("anthropic"), input="go\n")
    assert ran.stderr.count("Checks failed: make test.") == 1


def test_an_export_and_a_continued_session_are_valid(run_odin: Run, project: Path) -> None:
    with ScriptedServer([*make_script(project), say("Yes.")]) as server:
        run_odin("-p", "go", "--yes", env=server.env("anthropic"))
        again = run_odin("-p", "and now?", "--continue", env=server.env("anthropic"))
        assert (again.returncode, again.stdout, server.rejected) == (0, "Yes.\n", [])
    listed = json.loads(run_odin("sessions", "--json").stdout)
    exported = Path(run_odin("sessions", "export", listed[0]["id"]).stdout.strip()).read_text()
    assert "Odin ran the checks. make test: failed" in exported


def test_stored_messages_have_a_call_for_every_result(run_odin: Run, project: Path, home: Path) -> None:
    with ScriptedServer(make_script(project)) as server:
        run_odin("-p", "go", "--yes", env=server.env("anthropic"))
    (log,) = home.rglob("main.jsonl")
    messages = read_messages(read_log(log))
    called = {item.id for message in messages for item in message.calls}
    assert {result.call_id for message in messages for result in message.results} == called
    assert "`make test` failed" in next(message.content for message in messages if "Odin ran" in message.content)


def ended(verification: Verification | None) -> TurnEnded:
    return TurnEnded("p", "end_turn", "x", verification=verification)


MIXED = (CheckResult("a", "passed"), CheckResult("b", "failed"), CheckResult("c", "not_run", "Denied."))


@each(
    ("verification", "line", "code"),
    [
        (None, "", 0),
        (Verification("passed", (CheckResult("a", "passed"), CheckResult("b", "passed"))), "Checks passed: a, b.", 0),
        (Verification("failed", MIXED, "odin", 2), "Checks failed: b; not run: c (Denied); passed: a.", 3),
        (Verification("failed", MIXED), "Checks failed: b; not run: c (Denied); passed: a.", 3),
        (Verification("timed_out", (CheckResult("a", "timed_out"),), "odin", 1), "Checks timed out: a.", 3),
        (Verification("not_run", (CheckResult("a", "not_run"),), "odin", 1), "Checks not run: a.", 3),
        (Verification("unknown", (CheckResult("a", "unknown"),)), "Checks ran with unknown result: a.", 0),
    ],
)
def test_verification_gives_a_line_and_an_exit_code(verification: Verification | None, line: str, code: int) -> None:
    assert (describe_verification(verification), get_exit_code(ended(verification))) == (line, code)


def test_app_shows_one_notice() -> None:
    model = TranscriptModel()
    end = ended(Verification("failed", MIXED, "odin", 1))
    for seq, event in enumerate((TurnStarted("p", "go", "edit_mode"), end)):
        model.apply(Envelope(seq, 1.0, "s", event))
    notices = [(block.text, block.level) for block in model.blocks if isinstance(block, NoticeBlock)]
    assert notices == [("Checks failed: b; not run: c (Denied); passed: a.", "warn")]
