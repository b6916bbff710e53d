"""`odin best`: agents in worktrees, the verdict of the checks, the choice, and what stays."""

import json
import re
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, SeenRequest, Turn, call, say
from tests.conftest import RunHere
from tests.fleet.runs import run_git
from tests.terminal.emulator import open_terminal

COMMANDS = {
    "1": "printf 'answer = 42\\nother = 1\\n' > app.py; echo new > new.txt",
    "2": "sed -i s/41/42/ app.py",
    "3": "sed -i s/41/43/ app.py",
}
"""What the agents do. The first and the second pass; the second changes less."""


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "app.py").write_text("answer = 41\n")
    (workspace / "Makefile").write_text("test:\n\tgrep -q 'answer = 42' app.py\n")
    run_git(workspace, "init", "-q", "-b", "main")
    run_git(workspace, "add", "-A")
    run_git(workspace, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    (workspace / "notes.txt").write_text("not committed\n")
    return workspace


@contextmanager
def serve(
    commands: dict[str, str] = COMMANDS, meanwhile: Callable[[], object] = lambda: None
) -> Generator[ScriptedServer]:
    """Serve a model that runs one command for each agent, which it knows by the worktree, and then stops."""

    def play(request: SeenRequest) -> Turn:
        text = request.body.decode()
        if "tool_result" in text:
            meanwhile()
            return say("I changed the answer.")
        agent = re.search(r"best-\d+-\d+-(\d)", text)
        assert agent, text
        return call("Bash", {"command": commands[agent[1]]})

    with ScriptedServer(play) as server:
        yield server


def list_branches(project: Path) -> list[str]:
    found = run_git(project, "branch", "--list", "odin/*", "--format", "%(refname:short)").splitlines()
    return [re.sub(r"best-\d+-\d+", "best", name) for name in found]


def test_the_best_is_applied_and_all_stay_as_branches(project: Path, run_here: RunHere) -> None:
    models = ("anthropic/claude-sonnet-4-5", "anthropic/claude-opus-5")
    flags = [word for model in models for word in ("-m", model)]
    with serve() as server:
        code, out, err = run_here("best", "-n", "3", *flags, "--apply", "best", "Fix it", env=server.env("anthropic"))
    assert code == 0, out + err
    rows = [line.split()[:7] for line in out.splitlines()[1:4]]
    assert [(row[0], row[1], row[2], row[3], row[4], row[5]) for row in rows] == [
        ("2", models[1], "pass", "1", "+1", "−1"),
        ("1", models[0], "pass", "2", "+3", "−1"),
        ("3", models[0], "FAIL", "1", "+1", "−1"),
    ]
    assert "3: `make test`: exit code 2" in out
    assert "Applied 1 file to the project. Nothing is committed." in out
    assert (project / "app.py").read_text() == "answer = 42\n"
    assert run_git(project, "status", "--short") == " M app.py\n?? notes.txt\n"
    assert list_branches(project) == ["odin/best-1", "odin/best-2", "odin/best-3"]
    assert run_git(project, "worktree", "list").count("\n") == 1
    undo = re.search(r"^Undo: +(.*)$", out, re.MULTILINE)
    assert undo
    subprocess.run(undo[1], shell=True, check=True, cwd=project)
    assert run_git(project, "status", "--short") == "?? notes.txt\n"
    see = re.search(r"^See one: +(.*)$", out, re.MULTILINE)
    assert see
    shown = subprocess.run(see[1], shell=True, check=True, cwd=project, capture_output=True, text=True).stdout
    assert "+answer = 42" in shown and "notes" not in shown


def test_without_a_terminal_nothing_is_applied(project: Path, run_here: RunHere) -> None:
    nothing = {"1": "sed -i s/41/43/ app.py", "2": "true"}
    with serve(nothing) as server:
        code, out, _ = run_here("best", "-n", "2", "--json", "Fix it", env=server.env("anthropic"))
    assert code == 3
    told = json.loads(out)
    assert told["applied"] is None
    assert [(one["number"], one["verdict"], one["files"]) for one in told["candidates"]] == [
        (1, "failed", ["app.py"]),
        (2, "unchanged", []),
    ]
    assert run_git(project, "status", "--short") == "?? notes.txt\n"
    assert list_branches(project) == ["odin/best-1"]


def test_checks_find_the_programs_that_git_ignores(project: Path, run_here: RunHere) -> None:
    (project / ".gitignore").write_text(".venv\n")
    tool = project / ".venv" / "bin" / "judge"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\npython3 -c 'import app; assert app.answer == 42'\n")
    tool.chmod(0o755)
    with serve() as server:
        words = ("best", "-n", "1", "--check", "cd / && judge", "Fix it")
        code, out, err = run_here(*words, env=server.env("anthropic"))
    assert (code, "  pass  " in out) == (0, True), out + err
    assert f"Programs of the project that it lacks are in {tool.parent}." in server.requests[0].body.decode()


def test_what_the_project_changed_meanwhile_conflicts(project: Path, run_here: RunHere) -> None:
    with serve(meanwhile=lambda: (project / "app.py").write_text("answer = 40\n")) as server:
        words = ("best", "-n", "1", "--check", "grep 42 app.py", "--apply", "best", "Fix it")
        code, out, _ = run_here(*words, env=server.env("anthropic"))
    assert code == 1
    assert "Conflict: app.py was changed in both; resolve the conflict markers in it." in out
    assert "Undo:" not in out, "git cannot take back what has conflicts"
    assert "<<<<<<< project\nanswer = 40\n" in (project / "app.py").read_text()


def test_what_cannot_work_is_refused_before_it_costs_anything(
    project: Path, home: Path, run_here: RunHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as server:
        env = server.env("anthropic")
        (project / "Makefile").unlink()
        for words, said in (
            (("-n", "10"), "-n must be 1 to 9."),
            (("--pool", "p", "-m", "m"), "--model and --pool cannot be combined."),
            (("--pool", "nowhere"), "There is no model pool 'nowhere'."),
            (("-m", "nobody/x"), "There is no provider 'nobody'."),
            (("--apply", "best"), "The project has no checks that could judge. Name some with --check."),
        ):
            code, _, err = run_here("best", *words, "Fix it", env=env)
            assert (code, said in err) == (2, True), err
        folder = home / ".config" / "odin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "odinconfig.json").write_text('{"sandbox": {"backend": "off"}}')
        code, _, err = run_here("best", "Fix it", env=env)
        assert (code, "The agents work unattended, and the sandbox is off (sandbox.backend)." in err) == (2, True), err
        monkeypatch.chdir(home)
    assert server.requests == []
    assert list_branches(project) == []


@pytest.mark.slow  # a terminal for each key
@pytest.mark.parametrize("key", ["1", "q", "\x03"])
def test_one_key_decides(project: Path, key: str) -> None:
    with (
        serve() as server,
        open_terminal("best", "Fix it", cwd=project, env=server.env("anthropic"), columns=80) as odin,
    ):
        odin.see("Apply 2/1/3, see a diff (d), or leave them as branches (q)?")
        odin.type("d")
        odin.see("Which, 2/1/3?")
        odin.type("3")
        odin.see("I changed the answer.", "+answer = 43")
        odin.type(key)
        odin.see("Remove:   git branch -D odin/best")
        odin.assert_exit_code(130 if key == "\x03" else 0)
        odin.assert_restored()
    assert (project / "new.txt").exists() == (key == "1")
    assert list_branches(project) == ["odin/best-1", "odin/best-2", "odin/best-3"]


@pytest.mark.slow
def test_an_interrupt_stops_all_and_keeps_their_work(project: Path) -> None:
    slow = {number: f"{command}; touch {number}.txt; sleep 60" for number, command in COMMANDS.items()}
    with serve(slow) as server, open_terminal("best", "Fix it", cwd=project, env=server.env("anthropic")) as odin:
        odin.see(*(f"{number}  anthropic/claude-sonnet-4-5         Bash" for number in COMMANDS))
        odin.type("\x03")
        odin.assert_exit_code(130)
        odin.assert_no_processes_left()
    assert run_git(project, "worktree", "list").count("\n") == 1
    assert run_git(project, "status", "--short") == "?? notes.txt\n"
