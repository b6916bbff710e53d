"""The tasks of `odin eval` as tasks of a fleet: they start in their projects and are judged as `odin eval` does."""

import json
from pathlib import Path

import pytest

from odin.core.errors import UsageError
from odin.fleet.task import FleetTask, read_tasks
from odin.testing import ScriptedServer, SeenRequest, Turn, call, say
from tests.fleet.runs import LocalRun


@pytest.mark.parametrize(("suite", "count"), [("eval", 99), ("eval:tuning", 49), ("eval:held-out", 50)])
def test_the_suite_and_its_halves_are_sources_of_tasks(suite: str, count: int, home: Path) -> None:
    tasks = read_tasks(Path(suite), home)
    assert len(tasks) == count
    assert {(task.limits.minutes, task.limits.calls) for task in tasks} == {(15, 40)}


def test_an_unknown_task_is_reported_before_anything_starts(tmp_path: Path, home: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"repository": "eval:find-definitio", "prompt": "x"}\n')
    with pytest.raises(UsageError, match="line 1: `odin eval` has no task 'find-definitio'"):
        read_tasks(tmp_path / "tasks.jsonl", home)


async def test_tasks_are_judged_by_answers_and_files(home: Path) -> None:
    chosen = {task.id: task for task in read_tasks(Path("eval:tuning"), home)}
    wrong = FleetTask("wrong", "Answer wrongly.", "eval:find-definition")
    tasks = (chosen["find-definition"], chosen["create-script"], wrong)

    def play(request: SeenRequest) -> Turn:
        text = json.dumps(request.messages)
        if "wrongly" in text:
            return say("It is in main.py.")
        if "hello.py" not in text:
            return say("It is in ledger/report.py.")
        if "tool_result" in text:
            return say("Done.")
        return call("Write", {"file_path": "hello.py", "content": "print('Hello, ledger!')\n"})

    with ScriptedServer(play) as model:
        run = LocalRun(home, model, tasks)
        states = await run.do()
    results = {name: (state.result.outcome, state.result.detail) for name, state in states.items() if state.result}
    assert results == {
        "find-definition": ("passed", ""),
        "create-script": ("passed", ""),
        "wrong": ("failed", "the answer is wrong"),
    }
    assert "+print('Hello, ledger!')" in run.read("create-script/patch.diff")
