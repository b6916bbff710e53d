"""Tasks of a fleet from the checkout to the stored results, each in a process of its own."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.fleet.engine import TaskState
from odin.fleet.task import FleetTask, TaskLimits
from odin.testing import ScriptedServer, call, say
from odin.testing.script import SeenRequest, Turn
from tests.fleet.runs import LocalRun, make_repository, run_git


def edit(request: SeenRequest) -> Turn:
    """Run the command that the prompt names, then stop."""
    if any("tool_result" in json.dumps(item) for item in request.messages):
        return say("done")
    return call("Bash", {"command": get_prompt(request)})


def get_prompt(request: SeenRequest) -> str:
    texts = [block["text"] for block in request.messages[0]["content"] if block["type"] == "text"]
    return next(text for text in reversed(texts) if text.startswith("RUN ")).removeprefix("RUN ").strip()


def make_task(name: str, prompt: str, repository: Path | str = "", **more: object) -> FleetTask:
    return msgspec.convert({"id": name, "prompt": f"RUN {prompt}", "repository": str(repository), **more}, FleetTask)


def result(state: TaskState) -> tuple[str, str]:
    assert state.result is not None
    return state.result.outcome, state.result.reason


async def test_results_of_tasks_are_stored(home: Path) -> None:
    repository = make_repository(home / "repo", {"a.txt": "one\n"})
    first = run_git(repository, "rev-parse", "HEAD").strip()
    (repository / "a.txt").write_text("two\n")
    run_git(repository, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "two")
    all_outputs = ("patch", "branch", "files", "session")
    tasks = (
        make_task(
            "new", "echo more >> a.txt", repository, checks=["grep two a.txt"], outputs=all_outputs, files=["*.txt"]
        ),
        make_task("old", "echo more >> a.txt", repository, revision=first, checks=["grep two a.txt"]),
        make_task(
            "committed", "echo x > b.txt; git add -A; git -c user.name=a -c user.email=a@b commit -qm x", repository
        ),
        make_task("none", "echo x > b.txt"),
        make_task("missing", "true", repository, revision="no-such-branch"),
        make_task("gone", "true", home / "nowhere"),
    )
    with ScriptedServer(edit) as model:
        run = LocalRun(home, model, tasks)
        states = await run.do()
    assert {name: result(state) for name, state in states.items()} == {
        "new": ("passed", ""),
        "old": ("failed", "checks"),
        "committed": ("passed", ""),
        "none": ("passed", ""),
        "missing": ("not_run", "repository"),
        "gone": ("not_run", "repository"),
    }
    assert len(model.requests) == 8
    new = states["new"].result
    assert new is not None
    assert new.files == ("session/main.jsonl", "patch.diff", "files/a.txt", "branch.bundle")
    assert new.requests == 2
    assert new.usd > 0
    assert run.read("new/files/a.txt") == "two\nmore\n"
    assert "RUN echo more" in run.read("new/session/main.jsonl")
    (home / "p.diff").write_text(run.read("new/patch.diff"))
    run_git(repository, "apply", str(home / "p.diff"))
    assert (repository / "a.txt").read_text() == "two\nmore\n"
    assert "b.txt" in run.read("committed/patch.diff")
    run_git(repository, "fetch", "-q", str(run.results / "new/branch.bundle"), "odin/new:odin/new")
    assert run_git(repository, "show", "odin/new:a.txt") == "two\nmore\n"
    assert msgspec.json.decode(run.read("old/result.json"))["reason"] == "checks"


async def test_a_killed_task_goes_on_where_its_log_ends(home: Path) -> None:
    """The first call is not repeated: its result is in the log."""

    def play(request: SeenRequest) -> Turn:
        seen = json.dumps(request.messages)
        if "Odin was interrupted" in seen:
            return say("done")
        if "tool_result" in seen:
            return say("never").delay(60)
        return call("Bash", {"command": "echo once >> log.txt"})

    with ScriptedServer(play) as model:
        run = LocalRun(home, model, (make_task("t", "work", outputs=["files"], files=["log.txt"]),))
        await run.submit()
        working = asyncio.create_task(run.work())
        await asyncio.to_thread(model.wait_for, 2, 30)
        os.killpg(find_process(run, "t"), signal.SIGKILL)
        states = await working
    state = states["t"]
    assert result(state) == ("passed", "")
    assert state.attempt == 2
    assert run.read("t/files/log.txt") == "once\n"
    assert len(model.requests) == 3
    assert state.result is not None
    assert state.result.requests >= 2


async def test_a_task_that_kills_every_process_fails(home: Path) -> None:
    with ScriptedServer(lambda _: say("never").delay(60)) as model:
        run = LocalRun(home, model, (make_task("t", "work"),), attempts=2)
        await run.submit()
        working = asyncio.create_task(run.work())
        for attempt in (1, 2):
            await asyncio.to_thread(model.wait_for, attempt, 30)
            os.killpg(find_process(run, "t"), signal.SIGKILL)
        states = await working
    assert result(states["t"]) == ("not_run", "died")


async def test_pause_resume_and_cancel(home: Path) -> None:
    def play(request: SeenRequest) -> Turn:
        return say("done") if "Odin was interrupted" in json.dumps(request.messages) else say("never").delay(60)

    with ScriptedServer(play) as model:
        run = LocalRun(home, model, (make_task("a", "work"), make_task("b", "work")))
        await run.submit()
        working = asyncio.create_task(run.work())
        await asyncio.to_thread(model.wait_for, 2, 30)
        assert await run.table.signal("pause", ("a",)) == 1
        assert await run.table.signal("cancel", ("b",)) == 1
        states = await working
        assert states["a"].status == "paused"
        assert result(states["b"]) == ("cancelled", "cancelled")
        assert await run.table.signal("resume") == 1
        states = await run.work()
        assert result(states["a"]) == ("passed", "")
        assert len(model.requests) == 3
        assert await run.table.signal("retry") == 1
        assert (await run.table.list_tasks())[1].retries == 1


@pytest.mark.slow
async def test_limits_end_a_task(home: Path) -> None:
    tasks = (
        msgspec.structs.replace(make_task("time", "sleep 60"), limits=TaskLimits(minutes=0.1)),
        msgspec.structs.replace(make_task("calls", "true"), limits=TaskLimits(calls=1)),
        msgspec.structs.replace(make_task("cost", "true"), limits=TaskLimits(usd=0.000001)),
    )
    with ScriptedServer(edit) as model:
        states = await LocalRun(home, model, tasks).do(slots=3)
    assert {name: result(state) for name, state in states.items()} == {
        "time": ("failed", "time"),
        "calls": ("failed", "calls"),
        "cost": ("failed", "cost"),
    }
    found = states["calls"].result
    assert found is not None and found.detail == "It needed more than 1 model call."


ISOLATION: dict[str, tuple[str, dict[str, Any], str]] = {
    "outside": ("python3 -c \"open(chr(47) + 'OUT', 'w')\"", {}, "Read-only file system"),
    "other": ("cd ..; echo x > named/x", {}, "outside the project"),
    "network": ("curl -sS URL/v1/models", {}, "Couldn't connect"),
    "connected": ("curl -sS URL/v1/models", {"network": True}, "API key"),
    "connected-outside": ("python3 -c \"open(chr(47) + 'OUT', 'w')\"", {"network": True}, "Read-only file system"),
    "secret": ("printenv DEPLOY_TOKEN || echo none", {}, "none"),
    "named": ("printenv DEPLOY_TOKEN | md5sum", {"secrets": ["DEPLOY_TOKEN"]}, "960c3d9c75bfc7ec0ed2f95d1addc206"),
    "sessions": ("ls /STATE/sessions", {}, "outside the project"),
    "hidden": ("python3 -c \"import os; print(os.listdir(chr(47) + 'STATE/sessions'))\"", {}, "-work-hidden-"),
}


async def test_a_task_reaches_only_its_checkout(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "s3cret-value-of-mine")
    with ScriptedServer(edit) as model:
        words = {"URL": model.url, "OUT": f"{home}/outside"[1:], "STATE": f"{home}/.local/state/odin"[1:]}
        tasks: list[FleetTask] = []
        for name, (command, more, _) in ISOLATION.items():
            for word, value in words.items():
                command = command.replace(word, value)
            tasks.append(make_task(name, f"{command} # {name}", **more))
        states = await LocalRun(home, model, tasks).do(slots=4)
    answers = {get_prompt(request).rpartition("# ")[2]: [*request.results.values()] for request in model.requests}
    for name, (_, _, expected) in ISOLATION.items():
        assert expected in answers[name][0], name
    assert {state.status for state in states.values()} == {"done"}
    assert not (home / "outside").exists()


async def test_the_projects_hooks_and_settings_need_trust(home: Path) -> None:
    settings = {"hooks": {"UserPromptSubmit": [{"command": "touch hooked"}]}, "model": "anthropic/claude-opus-5-5"}
    repository = make_repository(home / "repo", {"odinconfig.json": json.dumps(settings)})
    more: dict[str, Any] = {"outputs": ["files"], "files": ["hooked"], "model": "anthropic/claude-sonnet-5-5"}
    tasks = [make_task(name, "true", repository, trust=name == "trusted", **more) for name in ("trusted", "other")]
    with ScriptedServer(edit) as model:
        states = await LocalRun(home, model, tasks).do()
    assert {name: state.result.files for name, state in states.items() if state.result} == {
        "trusted": ("files/hooked",),
        "other": (),
    }


BOMB = """python3 -c 'import os, time; [os.fork() for _ in range(11)]; time.sleep(60)'"""


@pytest.mark.slow
async def test_a_poisoned_task_affects_only_itself(home: Path) -> None:
    """The others pass; each poisoned one ends, and nothing of it is left."""
    links = make_repository(home / "links", {"a.txt": "x", ".gitattributes": "* filter=evil diff=evil\n"})
    (links / "out").symlink_to("/etc/passwd")
    run_git(links, "config", "filter.evil.clean", "touch /tmp/odin-evil; cat")
    (links / ".git/hooks/post-checkout").write_text("#!/bin/sh\ntouch /tmp/odin-evil\n")
    (links / ".git/hooks/post-checkout").chmod(0o755)
    run_git(links, "add", "-A")
    run_git(links, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "links")
    Path("/tmp/odin-evil").unlink(missing_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as silent, ScriptedServer(edit) as model:
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}/repo.git"
        short = TaskLimits(minutes=0.1)
        tasks = [
            make_task("bomb", BOMB, limits={"minutes": 0.1}),
            make_task("output", "yes", limits={"minutes": 0.1}),
            msgspec.structs.replace(make_task("git", "true", hanging), limits=short),
            make_task("links", "true", links, outputs=["files", "patch"], files=["*", "../*"][:1]),
            *(make_task(f"good{number}", "true") for number in range(3)),
        ]
        run = LocalRun(home, model, tasks)
        states = await run.do(slots=4)
    assert states.pop("bomb").status == "done"  # in time, or because it started too many processes
    assert {name: result(state) for name, state in states.items()} == {
        "output": ("failed", "time"),
        "git": ("not_run", "time"),
        "links": ("passed", ""),
        **{f"good{number}": ("passed", "") for number in range(3)},
    }
    links_result = states["links"].result
    assert links_result is not None
    assert "files/out" not in links_result.files
    assert not Path("/tmp/odin-evil").exists()
    assert b"for _ in range(11)" not in b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))


def find_process(run: LocalRun, task: str) -> int:
    """Return the PID of the process that has the session of a task open."""
    (lock,) = (run.state / "sessions").rglob(f"r-{task}-0-*.lock")
    return json.loads(lock.read_text())["pid"]


async def test_without_a_sandbox_a_task_runs_only_if_that_is_wanted(home: Path) -> None:
    settings = home / ".config" / "odin" / "odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"sandbox": {"backend": "off"}}')
    with ScriptedServer(edit) as model:
        run = LocalRun(home, model, (make_task("t", "echo x > x.txt", outputs=["files"], files=["x.txt"]),))
        states = await run.do()
        assert result(states["t"]) == ("not_run", "sandbox")
        assert not model.requests
        run.unsandbox()
        await run.table.signal("retry")
        states = await run.work()
        assert result(states["t"]) == ("passed", "")
        assert run.read("t/files/x.txt") == "x\n"


async def test_a_retry_starts_from_a_new_checkout(home: Path) -> None:
    with ScriptedServer(edit) as model:
        task = make_task("t", "echo x >> x.txt; echo y >> y.txt", checks=["test ! -e y.txt"], outputs=["patch"])
        run = LocalRun(home, model, (task,))
        for _ in range(2):
            states = await (run.work() if run.is_submitted else run.do())
            assert result(states["t"]) == ("failed", "checks")
            assert run.read("t/patch.diff").count("+x") == 1
            assert await run.table.signal("retry") == 1
    assert len(model.requests) == 4
