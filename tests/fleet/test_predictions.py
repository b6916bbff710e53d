"""Tasks in the shape of SWE-bench, and the predictions of their run."""

import json
from pathlib import Path

from odin.fleet.predictions import write_predictions
from odin.fleet.result_store import FolderStore
from odin.fleet.task import read_tasks
from odin.testing import ScriptedServer, SeenRequest, Turn, call, say
from tests.fleet.runs import LocalRun, make_repository, run_git


async def test_predictions_are_the_patches_of_what_ran(home: Path, tmp_path: Path) -> None:
    made = make_repository(tmp_path / "source", {"app.py": "answer = 41\n", "naïve.txt": "é\n"})
    base = run_git(made, "rev-parse", "HEAD").strip()
    run_git(made, "bundle", "create", "-q", str(tmp_path / "acme__app.bundle"), "main")
    line = {
        "repo": "acme/app",
        "base_commit": base,
        "problem_statement": "The answer is wrong.",
        "patch": "secret",
        "test_patch": "secret",
        "FAIL_TO_PASS": "[]",
        "version": "1.0",
    }
    lines = [
        {**line, "instance_id": "acme__app-1"},
        {**line, "instance_id": "acme__app-2", "problem_statement": "Say nothing."},
        {**line, "instance_id": "acme__app-3", "base_commit": "0" * 40},
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tasks = read_tasks(tmp_path / "tasks.jsonl", home, str(tmp_path))
    command = "echo 'answer = 42' > app.py; echo ü >> naïve.txt; printf '\\0\\1' > data.bin"

    def play(request: SeenRequest) -> Turn:
        text = json.dumps(request.messages)
        assert "secret" not in text
        return say("Done.") if "tool_result" in text or "nothing" in text else call("Bash", {"command": command})

    with ScriptedServer(play) as model:
        run = LocalRun(home, model, tasks)
        states = await run.do()
    names = await write_predictions(FolderStore(run.results), list(states.values()))
    assert names == ("predictions.jsonl", "instances.jsonl")
    predictions = [json.loads(line) for line in run.read("predictions.jsonl").splitlines()]
    assert [(one["instance_id"], one["model_name_or_path"]) for one in predictions] == [
        ("acme__app-1", "anthropic/claude-sonnet-4-5"),
        ("acme__app-2", "anthropic/claude-sonnet-4-5"),
    ]
    assert predictions[1]["model_patch"] == ""
    (tmp_path / "p.diff").write_text(predictions[0]["model_patch"])
    run_git(made, "apply", str(tmp_path / "p.diff"))
    assert (made / "app.py").read_text() == "answer = 42\n"
    assert (made / "data.bin").read_bytes() == b"\0\1"
    instances = [json.loads(line) for line in run.read("instances.jsonl").splitlines()]
    assert [one["outcome"] for one in instances] == ["passed", "passed", "not_run"]
    assert instances[0]["requests"] == 2
    assert instances[0]["tokens_out"] > 0
    assert instances[0]["log"] == str(run.results / "acme__app-1" / "session" / "main.jsonl")
    assert Path(instances[0]["log"]).is_file()


async def test_other_tasks_have_no_predictions(tmp_path: Path) -> None:
    assert await write_predictions(FolderStore(tmp_path), []) == ()
    assert list(tmp_path.iterdir()) == []
