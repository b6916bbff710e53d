"""What could lose a result, charge it twice, or report it as another one."""

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from odin.core.errors import UsageError
from odin.fleet.engine import Attempt, FleetRun, TaskResult, WorkerLost
from odin.fleet.run_table import RunTable
from odin.fleet.task import FleetTask, read_tasks
from odin.fleet.worker import Worker
from odin.testing import ScriptedServer, fault, say
from tests.conftest import Run
from tests.fleet.runs import LocalRun, make_repository
from tests.fleet.test_task_runs import edit, make_task, result
from tests.waiting import LIMIT_S


async def test_a_new_run_of_an_old_name_does_its_own_work(home: Path) -> None:
    task = make_task("t", "echo x > x.txt", checks=["test -f x.txt"])
    for number in (1, 2):
        with ScriptedServer(edit) as model:
            run = LocalRun(home, model, (task,))
            states = await run.do()
            assert (result(states["t"]), len(model.requests)) == (("passed", ""), 2), number
        await run.table.close()
        shutil.rmtree(run.folder)  # as `odin fleet remove` does
        shutil.rmtree(run.state / "fleet")


async def test_a_result_that_is_stored_is_not_made_again(home: Path) -> None:
    """The worker dies after the task has stored its result and removed its checkout."""
    task = make_task("t", "echo x > x.txt", checks=["test -f x.txt"])
    with ScriptedServer(edit) as model:
        run = LocalRun(home, model, (task,))
        await run.submit()
        worker, results = Worker(run.folder, run.state, run.env), list[TaskResult]()

        async def perform(attempt: Attempt) -> TaskResult:
            results.append(await worker.perform(attempt))
            if len(results) == 1:
                raise WorkerLost
            return results[-1]

        await run.table.work(perform, 1, "w")
        (state,) = await run.table.list_tasks()
    assert result(state) == ("passed", "")
    assert "x.txt" in run.read("t/patch.diff")
    assert results[0] == results[1]
    assert len(model.requests) == 2


async def test_a_model_that_was_unreachable_is_asked_again(home: Path) -> None:
    settings = home / ".config" / "odin" / "odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"retry": {"attempts": 1}}')
    answers = iter([fault(529), fault(529)])
    with ScriptedServer(lambda _: next(answers, say("done"))) as model:
        run = LocalRun(home, model, (make_task("t", "work"),))
        states = await run.do()
    assert (result(states["t"]), len(model.requests)) == (("passed", ""), 3)


async def test_what_a_task_leaves_behind_is_stored_without_secrets(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_PLACE", "in-the-old-quarry")
    files = {
        "odinconfig.json": "{}",
        "name": "x",
    }
    repository = make_repository(home / "repo", files)
    more = {"files": ["**/*"], "outputs": ["files", "session", "patch"], "secrets": ["DEPLOY_PLACE"]}
    tasks = (
        make_task("names.1", "python3 -c \"open(b'\\xff\\nx', 'w')\"; printenv DEPLOY_PLACE", repository, **more),
        make_task("config", "echo '{bad' > odinconfig.json", repository, checks=["true"], **more),
        make_task("check", "true", repository, checks=["echo to $DEPLOY_PLACE; false"], **more),
        make_task("nested", "git init -q inner; touch inner/x; echo y > y.txt", repository, **more),
        make_task("broken", "git update-ref -d HEAD; mv .git/HEAD .git/gone", repository, **more),
        make_task("clone", "true", "https://me:hunter2hunter2@127.0.0.1:9/x.git"),
    )
    with ScriptedServer(edit) as model:
        run = LocalRun(home, model, tasks)
        states = await run.do()
    assert {name: result(state) for name, state in states.items()} == {
        "names.1": ("passed", ""),
        "config": ("passed", ""),
        "check": ("failed", "checks"),
        "nested": ("passed", ""),
        "broken": ("failed", "outputs"),
        "clone": ("not_run", "repository"),
    }
    assert "y.txt" in run.read("nested/patch.diff")
    stored = [str(path.read_bytes()) for path in run.results.rglob("*") if path.is_file()]
    assert [text for text in (*stored, str(states.values())) if "quarry" in text] == []
    assert all(state.result and "hunter2" not in state.result.detail for state in states.values())


async def test_a_time_limit_in_the_checks_keeps_the_patch(home: Path) -> None:
    task = make_task("t", "echo x > x.txt", checks=["sleep 60"], limits={"minutes": 0.1})
    with ScriptedServer(edit) as model:
        run = LocalRun(home, model, (task,))
        states = await run.do()
    assert result(states["t"]) == ("failed", "time")
    assert "x.txt" in run.read("t/patch.diff")


def test_tasks_that_nothing_could_do_are_refused(home: Path) -> None:
    path = home / "tasks.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "one"}\r\n{"prompt": "two\xe2\x80\xa8lines"}\r\n')
    assert [task.prompt for task in read_tasks(path, home)] == ["one", "two\u2028lines"]
    faults = {
        '{"prompt": "x", "id": "a..b"}': "the id 'a..b' cannot be the name of a branch",
        '{"prompt": "x", "id": "a.lock"}': "the id 'a.lock'",
        '{"prompt": "x", "id": "A"}\n{"prompt": "x", "id": "a"}': "line 2: the id a is that of line 1",
        '{"prompt": "x", "checks": ["a\\u0000b"]}': "NUL",
        '{"prompt": "x", "files": ["a**"]}': "'a**' is no pattern",
        '{"prompt": "x", "files": ["."]}': "'.' is no pattern",
        "[" * 100_000: "line 1: maximum recursion depth",
    }
    for text, said in faults.items():
        path.write_text(text)
        with pytest.raises(UsageError) as caught:
            read_tasks(path, home)
        assert said in str(caught.value)


def test_odd_numbers_stores_and_damaged_runs(run_odin: Run, home: Path, workspace: Path) -> None:
    (workspace / "tasks.jsonl").write_text('{"prompt": "x"}\n')
    for flags in ("--budget-usd nan", "--budget-usd inf", "--attempts 99999999999999999999"):
        done = run_odin("fleet", "run", "tasks.jsonl", *flags.split())
        assert (done.returncode, "must be" in done.stderr) == (2, True), done.stderr
    done = run_odin("best", "x", "--minutes", "nan")
    assert (done.returncode, "must be positive" in done.stderr) == (2, True), done.stderr
    with ScriptedServer([say("done")]) as model:
        words = ("fleet", "run", "tasks.jsonl", "--store", "out", "--name", "v1.temporal")
        done = run_odin(*words, env=model.env("anthropic"))
    assert done.returncode == 0, done.stderr
    shown = run_odin("fleet", "show", "v1.temporal", "task-1", cwd=home).stdout
    assert f"file        {workspace}/out/task-1/result.json\n" in shown
    done = run_odin("fleet", "list", env={"ODIN_STATE_DIR": "/dev/null"})
    assert (done.returncode, "cannot be read: Not a directory" in done.stderr) == (1, True), done.stderr
    (home / ".local/state/odin/fleet/empty.sqlite").touch()
    (home / ".local/state/odin/fleet/bad.sqlite").write_text("nonsense" * 200)
    for name in ("empty", "bad"):
        done = run_odin("fleet", "remove", name)
        assert (done.returncode, done.stdout) == (0, f"Removed {name}.\n"), done.stderr


async def test_a_worker_that_is_stopped_while_it_takes_a_task_gives_it_back(tmp_path: Path) -> None:
    asked, answered = threading.Event(), threading.Event()

    def tell_time() -> float:
        asked.set()
        answered.wait(LIMIT_S)
        return 1000.0

    async def perform(_: Attempt) -> TaskResult:
        raise AssertionError("the worker was stopped")

    table = RunTable(tmp_path / "r.sqlite", clock=tell_time)
    await table.submit(FleetRun("r", str(tmp_path), 1.0, attempts=1), [FleetTask("t", "x")])
    working = asyncio.create_task(table.work(perform, 1, "w"))
    await asyncio.to_thread(asked.wait, 30)
    working.cancel()
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    (state,) = await table.list_tasks()
    await table.close()
    assert (state.status, state.worker) == ("waiting", "")
