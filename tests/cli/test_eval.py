"""The tasks of `odin eval`: each check accepts its solution and rejects the untouched project and a wrong solution."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odin.config.paths import make_environment
from odin.fleet.eval_suite import EvalTask, load_eval_tasks
from odin.sandbox.runner import ProcessRunner
from odin.testing import ScriptedServer, call, say
from tests.conftest import RunHere

TASKS = load_eval_tasks()


@pytest.fixture
async def runner() -> AsyncIterator[ProcessRunner]:
    runner = ProcessRunner(make_environment(cwd="/"))
    yield runner
    await runner.close()


async def find_fault_after(task: EvalTask, folder: Path, change: str, runner: ProcessRunner) -> str:
    """Apply the named change ("solution" or "wrong") to a new project and return the fault that the check finds."""
    project = folder / change
    project.mkdir()
    task.write_project(project)
    getattr(task, change).apply(project)
    return await task.find_fault(project, getattr(task, change).answer, runner)


@pytest.mark.slow  # starts programs for every task
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
async def test_check_accepts_only_the_solution(task: EvalTask, tmp_path: Path, runner: ProcessRunner) -> None:
    assert await find_fault_after(task, tmp_path, "solution", runner) == ""
    assert await find_fault_after(task, tmp_path, "wrong", runner)
    untouched = tmp_path / "untouched"
    untouched.mkdir()
    task.write_project(untouched)
    assert await task.find_fault(untouched, "", runner)


def test_suite_covers_many_kinds_and_half_of_it_is_held_out() -> None:
    assert len(TASKS) >= 40
    assert len({task.name for task in TASKS}) == len(TASKS)
    assert len({task.kind for task in TASKS}) >= 12
    assert {task.language for task in TASKS} == {"python", "javascript", "go", "text"}
    assert sum(task.held_out for task in TASKS) * 2 >= len(TASKS)
    tuning = {task.project for task in TASKS if not task.held_out}
    assert not tuning & {task.project for task in TASKS if task.held_out}, "held-out tasks have projects of their own"


def test_eval_prints_results_and_costs(run_here: RunHere) -> None:
    with ScriptedServer([say("It is in ledger/report.py."), say("It is in main.py.")]) as server:
        env = server.env("anthropic")
        code, out, _ = run_here("eval", "--only", "find-definition", env=env)
        assert code == 0
        assert re.search(r"^solved find-definition +1 requests .* in .* out .* s$", out, re.MULTILINE)
        assert re.search(r"^tuning +1 of 1 ", out, re.MULTILINE)
        code, out, _ = run_here("eval", "--only", "find-definition", env=env)
    assert "FAILED find-definition" in out
    assert "the answer is wrong (end_turn)" in out


def test_eval_lists_its_tasks_and_refuses_unknown_ones(run_here: RunHere) -> None:
    code, out, _ = run_here("eval", "--list", "--half", "held-out", "--only", "rename")
    assert (code, len(out.splitlines())) == (0, 5)
    code, _, err = run_here("eval", "--only", "nothing-like-this")
    assert code == 2
    assert "odin eval --list" in err


def test_checks_run_in_the_sandbox(run_here: RunHere, home: Path) -> None:
    """The check runs what the model wrote, which may not write outside of the project of the task."""
    script = f"print('Hello, ledger!')\nopen({str(home / 'hit')!r}, 'w')\n"
    replies = [call("Write", {"file_path": "hello.py", "content": script}), say("Done."), say("No check applies.")]
    with ScriptedServer(replies) as server:
        code, out, _ = run_here("eval", "--only", "create-script", env=server.env("anthropic"))
    assert (code, "FAILED create-script" in out or "solved create-script" in out) == (0, True)
    assert "3 requests" in out
    assert not (home / "hit").exists()
