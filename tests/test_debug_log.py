"""`--debug FILE`: what a bug report needs, in a private file, without secrets."""

import json
import stat
from pathlib import Path
from typing import Any

from odin.core import debug
from odin.testing import ScriptedServer, call, fault, say
from tests.conftest import Run
from tests.table import each
from tests.ui.pseudo_terminal import open_terminal

KEY = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"
TOKEN = "tok-Zx81-deploy-Q44w"
PLAIN = "Moonbeam-over-Odense"
PIN = "brown#fox#jumps"
PASSWORD = "sunflower99"
STORED = "sk-proj-StoredStoredStored987654"


def read_entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@each("flags", [["-p"], ["-p", "--output-format", "json"], ["-p", "--output-format", "stream-json"]])
def test_log_has_requests_decisions_and_timings_but_no_secret(
    run_odin: Run, workspace: Path, home: Path, flags: list[str]
) -> None:
    log = workspace / "debug.log"
    log.unlink(missing_ok=True)
    log.touch(0o644)
    (workspace / ".env").write_text(
        f"PORT=3000\nexport GREETING='{PLAIN}' # hello\nPIN={PIN}  # mine\nDB=pg://joe:{PASSWORD}@db/x\n"
    )
    folder = home / ".config/odin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "auth.json").write_text(json.dumps({"openai": STORED}))
    (folder / "auth.json").chmod(0o600)
    script = [
        fault(529),
        call("Bash", {"command": f"echo {TOKEN}; echo {STORED} {PLAIN} 3000 {PIN} {PASSWORD}; env"}),
        call("Write", {"file_path": "x", "content": KEY}),
        say(f"The token is {TOKEN}."),
    ]
    with ScriptedServer(script) as server:
        env = {**server.env("anthropic"), "ANTHROPIC_API_KEY": KEY, "DEPLOY_TOKEN": TOKEN}
        prompt = f"Deploy with {TOKEN}, {STORED} and {KEY}."
        run_odin(*flags, prompt, "--debug", str(log), "--allowedTools", "Bash", env=env)
    assert debug.write is None
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    text = log.read_text()
    for secret in (KEY, TOKEN, STORED, PLAIN, PIN, PASSWORD):
        assert secret not in text
    assert " 3000 " in text
    entries = read_entries(log)
    assert {"start", "event", "request", "response", "permission", "process"} <= {entry["kind"] for entry in entries}
    assert [entry["seconds"] for entry in entries] == sorted(entry["seconds"] for entry in entries)
    types = [entry["event"]["type"] for entry in entries if entry["kind"] == "event"]
    assert {"RetryScheduled", "ToolEnded", "UsageRecorded", "TurnEnded"} <= set(types) and "TextStreamed" not in types
    statuses = [entry["status"] for entry in entries if entry["kind"] == "response"]
    assert statuses == [529, 200, 200, 200]
    decisions = {entry["tool"]: entry for entry in entries if entry["kind"] == "permission"}
    assert decisions["Write"]["refusal"]["status"] == "denied"


def test_headless_programs_and_plain_mode_have_a_log(run_odin: Run, workspace: Path) -> None:
    log = workspace / "debug.log"
    line = json.dumps({"type": "user", "message": {"role": "user", "content": "Hi."}})
    with ScriptedServer([say("Hello."), say("Hello.")]) as server:
        run_odin("headless", "--debug", str(log), env=server.env("anthropic"), input=f"{line}\n")
        assert read_entries(log)[-1]["kind"] == "event"
        size = log.stat().st_size
        env = server.env("anthropic")
        with open_terminal(f"--debug={log}", "Say hello", cwd=workspace, env=env, with_stdout=True) as terminal:
            terminal.see("Hello.")
    assert log.stat().st_size > size, "a second run is appended"


@each("flags", [["-p", "Hi.", "--mode", "x"], ["-p", "Hi.", "--resume", "x", "-c"], ["-p", ""]])
def test_a_usage_error_makes_no_log(run_odin: Run, workspace: Path, flags: list[str]) -> None:
    assert run_odin(*flags, "--debug", "debug.log").returncode == 2
    assert not (workspace / "debug.log").exists()


def test_log_that_cannot_be_written_is_a_usage_error(run_odin: Run, workspace: Path) -> None:
    (workspace / "link").symlink_to("elsewhere")
    for name in ("none/debug.log", "link"):
        ran = run_odin("-p", "Hi.", "--debug", name)
        assert ran.returncode == 2 and f"Cannot write the debug log {name}: " in ran.stderr
