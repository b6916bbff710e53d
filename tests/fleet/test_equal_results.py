"""The same tasks on both engines, with real sessions: the same outcomes, and the same bytes in the store."""

import os
from pathlib import Path

from odin.config import get_state_dir
from odin.fleet.engine import FleetEngine, TaskResult
from odin.fleet.worker import Worker
from odin.testing import ScriptedServer
from tests.fleet.engines import Engines, TableEngines, TemporalEngines, make_run
from tests.fleet.runs import make_repository
from tests.fleet.temporal_server import TemporalProcess
from tests.fleet.test_task_runs import edit, make_task


async def run(
    engines: Engines, model: ScriptedServer, repository: Path
) -> tuple[dict[str, TaskResult], dict[str, bytes]]:
    """Return the results of some tasks, and what is in the store besides sessions."""
    tasks = [
        make_task("patch", "echo two >> a.txt", repository, checks=["grep two a.txt"]),
        make_task("branch", "rm a.txt", repository, outputs=["patch", "branch"]),
        make_task("wrong", "true", repository, checks=["grep two a.txt"]),
        make_task("missing", "true", engines.folder / "nowhere"),
    ]
    env = {**os.environ, **model.env("anthropic")}
    engine: FleetEngine = await engines.open()
    await engine.submit(make_run(engines), tasks)
    await engine.work(Worker(engines.folder / "run", get_state_dir(env), env).perform, 2, "w")
    results = {state.task.id: state.result for state in await engine.list_tasks() if state.result}
    await engine.close()
    store = engines.folder / "store"
    names = [path.relative_to(store) for task in tasks for path in (store / task.id).glob("*.*")]
    return results, {str(name): (store / name).read_bytes() for name in names if name.suffix in (".diff", ".bundle")}


def describe(results: dict[str, TaskResult]) -> dict[str, object]:
    return {name: (found.outcome, found.reason, found.requests, sorted(found.files)) for name, found in results.items()}


async def test_both_engines_come_to_the_same(home: Path, temporal: TemporalProcess) -> None:
    repository = make_repository(home / "repo", {"a.txt": "one\n"})
    for name in ("table", "temporal"):
        (home / name).mkdir()
    with ScriptedServer(edit) as model:
        results, files = await run(TableEngines(home / "table"), model, repository)
        other_results, other_files = await run(TemporalEngines(home / "temporal", temporal.address), model, repository)
    outcomes = {name: found.outcome for name, found in results.items()}
    assert outcomes == {"patch": "passed", "branch": "passed", "wrong": "failed", "missing": "not_run"}
    assert describe(results) == describe(other_results)
    assert files["patch/patch.diff"] and sorted(files) == sorted(other_files)
    patches = {name for name in files if name.endswith(".diff")}
    assert {name: files[name] for name in patches} == {name: other_files[name] for name in patches}
    assert results["wrong"].detail == other_results["wrong"].detail
