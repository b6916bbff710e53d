"""The tasks of `odin eval`: each check accepts its solution and rejects the untouched project and a wrong solution."""

import re
from pathlib import Path

import pytest

from odin.commands.eval import EvalTask, load_tasks
from odin.testing import ScriptedServer, say
from tests.conftest import Here

TASKS = load_tasks()


def judge(task: EvalTask, folder: Path, change: str) -> str:
    project = folder / change
    project.mkdir()
    task.write_project(project)
    answer = ""
    if change:
        getattr(task, change).apply(project)
        answer = getattr(task, change).answer
    return task.find_fault(project, answer)


@pytest.mark.slow  # starts programs for every task
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_check_accepts_the_solution_and_nothing_less(task: EvalTask, tmp_path: Path) -> None:
    assert judge(task, tmp_path, "solution") == ""
    assert judge(task, tmp_path, "wrong")
    untouched = tmp_path / "untouched"
    untouched.mkdir()
    task.write_project(untouched)
    assert task.find_fault(untouched, "")


def test_the_suite_is_broad_and_half_of_it_is_held_out() -> None:
    assert len(TASKS) >= 40
    assert len({task.name for task in TASKS}) == len(TASKS)
    assert len({task.kind for task in TASKS}) >= 12
    assert {task.language for task in TASKS} == {"python", "javascript", "go", "text"}
    assert sum(task.held_out for task in TASKS) * 2 >= len(TASKS)
    tuning = {task.project for task in TASKS if not task.held_out}
    assert not tuning & {task.project for task in TASKS if task.held_out}, "held-out tasks have projects of their own"


def test_eval_prints_what_was_solved_and_what_it_cost(here: Here) -> None:
    with ScriptedServer([say("It is in ledger/report.py."), say("It is in main.py.")]) as server:
        env = server.env("anthropic")
        code, out, _ = here("eval", "--only", "find-definition", env=env)
        assert code == 0
        assert re.search(r"^solved find-definition +1 requests .* in .* out .* s$", out, re.MULTILINE)
        assert re.search(r"^tuning +1 of 1 ", out, re.MULTILINE)
        code, out, _ = here("eval", "--only", "find-definition", env=env)
    assert "FAILED find-definition" in out
    assert "the answer is wrong (end_turn)" in out


def test_eval_lists_its_tasks_and_refuses_unknown_ones(here: Here) -> None:
    code, out, _ = here("eval", "--list", "--half", "held-out", "--only", "rename")
    assert (code, len(out.splitlines())) == (0, 5)
    code, _, err = here("eval", "--only", "nothing-like-this")
    assert code == 2
    assert "odin eval --list" in err
