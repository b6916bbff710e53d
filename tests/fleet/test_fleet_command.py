"""`odin fleet`: what it refuses, a run from start to end, reports, and a run that is stopped."""

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from odin.commands.fleet_engine import open_engine
from odin.core.errors import OdinError
from odin.fleet.board import LineBoard, list_facts
from odin.fleet.engine import Attempt, FleetRun, Progress, TaskResult, TaskState, name_session
from odin.fleet.page_board import FleetBoard
from odin.fleet.report import FORMATS, make_report
from odin.fleet.run_folder import RunFolder
from odin.fleet.run_table import RunTable
from odin.fleet.summary import summarize
from odin.fleet.task import FleetTask, TaskLimits
from odin.fleet.temporal_connection import TemporalServer
from odin.fleet.terminal_board import render_board
from odin.testing import ScriptedServer, call, say
from odin.testing.script import SeenRequest, Turn
from tests.conftest import Run, RunHere
from tests.fleet.runs import make_repository
from tests.waiting import LIMIT_S


def edit(request: SeenRequest) -> Turn:
    """Append to a.txt, unless the prompt says to be lazy."""
    said = json.dumps(request.messages)
    if "tool_result" in said or "BE LAZY" in said:
        return say("done")
    return call("Bash", {"command": "echo more >> a.txt"})


def write_tasks(path: Path, *tasks: object) -> Path:
    path.write_text("".join(f"{task if isinstance(task, str) else json.dumps(task)}\n" for task in tasks))
    return path


@pytest.fixture
def settings(home: Path) -> Path:
    path = home / ".config" / "odin" / "odinconfig.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_nothing_starts_before_everything_is_checked(
    run_odin: Run, home: Path, workspace: Path, settings: Path
) -> None:
    good = write_tasks(workspace / "good.jsonl", {"prompt": "x"})
    malformed = write_tasks(workspace / "malformed.jsonl", {"prompt": "x"}, "nope", {"prompt": 3}, {"prompt": ""})
    unknown = write_tasks(
        workspace / "unknown.jsonl",
        {"id": "m", "prompt": "x", "model": "nobody/x"},
        {"id": "k", "prompt": "x", "model": "openai/gpt-6"},
        {"id": "p", "prompt": "x", "pool": "mine"},
        {"id": "r", "prompt": "x", "role": "chef"},
        {"id": "d", "prompt": "x", "repository": "nowhere"},
    )
    (workspace / "file").touch()
    refusals = {
        "run {malformed}": ("line 2: JSON is malformed", "line 3: Expected `str`", "line 4: the prompt is empty"),
        "run {unknown}": (
            "m: There is no provider 'nobody'",
            "k: No key for openai",
            "p: There is no model pool 'mine'",
            "r: There is no role 'chef'",
            f"d: there is no repository {workspace}/nowhere",
        ),
        "run {good} --pool mine": ("task-1: There is no model pool 'mine'.",),
        "run {good} --model a/b --pool c": ("--model and --pool exclude each other.",),
        "run {good} --mode x": ("Unknown mode 'x'.",),
        "run {good} --attempts 0": ("--attempts must be 1 to 1,000,000.",),
        "run {good} --name ../x": ("'../x' cannot be the name of a run.",),
        "run {good} --store {file}/x": ("Nothing can be stored.", "Choose another --store."),
        "run nowhere.jsonl": ("Cannot read nowhere.jsonl: No such file or directory.", "eval:held-out"),
        "run": ("TASKS is missing. Usage: odin fleet run TASKS",),
        "run --continue": ("RUN is missing. Usage: odin fleet run --continue RUN",),
        "": ("The following arguments are required: COMMAND.",),
        "run --continue r": ("There is no run 'r'. `odin fleet list` lists the runs.",),
        "cancel r --keep": ("Unknown option --keep. See `odin fleet cancel --help`.",),
        "status r --format html": ("Unknown option --format.",),
        "--name x list": ("The command comes first. Usage: odin fleet list",),
        "remove r s": ("Unexpected argument 's'. Usage: odin fleet remove RUN",),
        "show r": ("TASK is missing. Usage: odin fleet show RUN TASK",),
        "report r --format pdf": ("Unknown value 'pdf' for --format.",),
        "runs": ("Unknown value 'runs'. Did you mean run?",),
    }
    places = {"good": good, "malformed": malformed, "unknown": unknown, "file": workspace / "file"}
    for line, said in refusals.items():
        done = run_odin("fleet", *line.format(**places).split())
        assert done.returncode in (1, 2), line
        assert [text for text in said if text not in done.stderr] == [], (line, done.stderr)
    shown = run_odin("fleet", "status", "--help").stdout
    assert shown.startswith("usage: odin fleet status RUN [FLAGS]\n") and "--workers" not in shown
    settings.write_text('{"sandbox": {"backend": "off"}}')
    done = run_odin("fleet", "run", str(good))
    assert (done.returncode, "no sandbox works here" in done.stderr, "--unsandboxed" in done.stderr) == (2, True, True)
    assert run_odin("fleet", "list").stdout == "There are no runs. `odin fleet run TASKS` starts one.\n"
    assert not [*(home / ".local" / "share" / "odin" / "fleet").glob("*")]


def test_a_run_from_start_to_end(run_odin: Run, home: Path, workspace: Path) -> None:
    repository = make_repository(home / "repo", {"a.txt": "one\n"})
    common = {"repository": str(repository), "checks": ["grep more a.txt"]}
    tasks = write_tasks(
        workspace / "tasks.jsonl",
        {"id": "good", "prompt": "Add a line.", **common},
        {"id": "lazy", "prompt": "BE LAZY <script>alert(1)</script>", **common},
        {"id": "missing", "prompt": "x", **common, "revision": "nowhere"},
    )

    def fleet(*args: str, code: int = 0) -> str:
        done = run_odin("fleet", *args, env=env)
        assert done.returncode == code, done
        return done.stdout

    with ScriptedServer(edit) as model:
        env: Mapping[str, str] = model.env("anthropic")
        done = run_odin("fleet", "run", str(tasks), "--name", "r", "--workers", "1", env=env)
        assert done.returncode == 3
        assert done.stdout.startswith("3 tasks: 1 passed, 1 failed, 1 did not run.\n")
        first, *lines, last = done.stderr.splitlines()
        assert first == "3 tasks."
        assert [line.split()[:4] for line in lines] == [
            ["[1/3]", "passed", "good", lines[0].split()[3]],
            ["[2/3]", "failed", "lazy", lines[1].split()[3]],
            ["[3/3]", "not", "run", "missing"],
        ]
        assert "checks: `grep more a.txt`: exit code 1" in lines[1]
        assert "has no revision nowhere" in lines[2]
        assert last == "`odin fleet status r` lists why, `odin fleet retry r` starts over."

        assert "There is a run r already." in run_odin("fleet", "run", str(tasks), "--name", "r", env=env).stderr
        assert fleet("list").splitlines()[1].split()[:6] == ["r", "now", "done", "1", "of", "3"]
        status = fleet("status", "r").splitlines()
        assert status[0] == "3 tasks: 1 passed, 1 failed, 1 did not run."
        assert "not run missing: repository: " in status[-1] or "not run missing: repository: " in status[-2]
        assert json.loads(fleet("status", "r", "--json"))["summary"]["reasons"] == [["checks", 1], ["repository", 1]]

        assert fleet("pause", "r") == "0 tasks paused.\n"

        shown = fleet("show", "r", "lazy")
        assert shown.startswith("lazy: failed, checks\n")
        checkout = home / ".local/share/odin/fleet/r/work/lazy"
        assert f"checkout    {checkout}\n" in shown and "r-lazy-0" in shown
        good = json.loads(fleet("show", "r", "good", "--json"))
        (patch,) = (Path(name) for name in good["files"] if name.endswith("/patch.diff"))
        assert good["checkout"] == "" and patch.read_text().endswith("+more\n")
        assert "Did you mean lazy?" in run_odin("fleet", "show", "r", "lasy").stderr
        assert "fleet attach" in shown and "fleet attach" not in fleet("show", "r", "good")  # its checkout is gone
        assert "removed because the task passed" in run_odin("fleet", "attach", "r", "good").stderr

        # The session of a task goes on as a copy.
        asked = run_odin("fleet", "attach", "r", "lazy", env=env, input="And now?")
        assert asked.returncode == 0 and "done" in asked.stdout
        assert [block["text"] for block in model.requests[-1].messages[-1]["content"]].count("And now?") == 1

        page = fleet("report", "r", "--format", "html")
        assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "Content-Security-Policy" in page
        report = json.loads(fleet("report", "r", "--format", "json"))
        assert [(task["id"], task["status"]) for task in report["tasks"]] == [
            ("lazy", "failed"),
            ("missing", "not_run"),
            ("good", "passed"),
        ]
        suite = ElementTree.fromstring(fleet("report", "r", "--format", "junit"))
        assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
            "tests": "3",
            "failures": "1",
            "errors": "1",
            "skipped": "0",
        }
        assert [[kind.tag for kind in case] for case in suite] == [["failure", "system-out"], ["error"], ["system-out"]]
        assert fleet("report", "r", "--output", str(workspace / "report.md")) == ""
        assert "\\<script\\>" in (workspace / "report.md").read_text()

        # What failed starts over, in a new session, when the run goes on; --json prints the report.
        assert fleet("retry", "r", "lazy") == "1 task started over. `odin fleet run --continue r` runs them.\n"
        again = json.loads(fleet("run", "--continue", "r", "--json", code=3))
        (session,) = (task["session"] for task in again["tasks"] if task["id"] == "lazy")
        assert session.startswith("r-lazy-1-")

        # Another run with all tasks solved is compared with the first one.
        env = {**model.env("anthropic")}
        write_tasks(tasks, {"id": "good", "prompt": "a", **common}, {"id": "lazy", "prompt": "b", **common})
        fleet("run", str(tasks), "--name", "other", "--keep")
        assert (home / ".local/share/odin/fleet/other/work/good").exists()
        text = fleet("compare", "r", "other")
        assert text.startswith("2 tasks that both have done, 1 other left out.\n")
        assert "only the second passed: lazy\n" in text
        assert json.loads(fleet("compare", "r", "other", "--json"))["gained"] == ["lazy"]

    assert run_odin("cleanup").stdout.count("fleet runs                         2 ") == 1
    kept = "Its sessions stay: `odin cleanup sessions --all` removes old ones."
    assert fleet("remove", "other") == f"Removed other. {kept}\n"
    assert [path.name for path in (home / ".local/share/odin/fleet").iterdir()] == ["r"]


@pytest.mark.slow
def test_a_stopped_run_gives_its_tasks_back(home: Path, workspace: Path) -> None:
    """Ctrl-C stops what runs; meanwhile nobody else can run it, and afterwards it goes on in the same session."""
    gate = threading.Event()
    tasks = write_tasks(workspace / "tasks.jsonl", {"id": "t", "prompt": "Do it."})
    with ScriptedServer(lambda _: say("done").hold(gate)) as model:
        env = {**os.environ, **model.env("anthropic"), "HOME": str(home)}

        def start(*args: str) -> "subprocess.Popen[str]":
            command = [sys.executable, "-m", "odin", "fleet", *args]
            return subprocess.Popen(
                command, cwd=workspace, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )

        running = start("run", str(tasks), "--name", "r")
        model.wait_for(1)
        second = start("run", "--continue", "r")
        assert f"The run r is running already (process {running.pid})." in second.communicate(timeout=LIMIT_S)[1]
        watching = start("watch", "r")
        assert watching.stdout is not None and watching.stderr is not None
        assert watching.stderr.readline() == "1 task.\n"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=LIMIT_S)
        assert (running.returncode, out.splitlines()[0]) == (130, "1 task: 0 passed, 1 waiting.")
        assert "Stopping: what runs is given back." in err
        assert err.endswith("1 task left. Go on with: odin fleet run --continue r\n")
        assert watching.communicate(timeout=LIMIT_S)[0].startswith("1 task: 0 passed, 1 waiting.\n")
        assert watching.returncode == 75
        gate.set()
        after = start("run", "--continue", "r")
        assert after.communicate(timeout=LIMIT_S)[0].startswith("1 task: 1 passed.\n")
        assert after.returncode == 0
        assert json.dumps(model.requests[-1].messages).count("Do it.") == 1


def test_the_page_about_the_fleet_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
    rows = page[page.index("| field |") : page.index("Lines of SWE-bench")]
    fields = {*FleetTask.__struct_fields__, *TaskLimits.__struct_fields__}
    assert [name for name in sorted(fields) if f"`{name}`" not in rows] == []


# --- boards ---


def make_states(home: Path) -> list[TaskState]:
    """30 tasks: 12 passed, 6 failed, 2 did not run, 4 run, 6 wait. Their texts are hostile."""
    evil = "\x1b[31m]0;<b>|`x`\u202e " + "long " * 60
    states: list[TaskState] = []
    for number in range(30):
        task = FleetTask(f"task-{number}-{'x' * number}", evil, str(home))
        state = TaskState(task, attempt=1, started=1000.0 + number)
        if number < 20:
            outcome = "passed" if number < 12 else "failed" if number < 18 else "not_run"
            reason = "" if number < 12 else f"reason{number % 7}"
            result = TaskResult(outcome, reason, evil, f"r-{task.id}-0", 2, 1000, 10, 0.01, 10.0 + number)
            state = replace(state, status="done", result=result, ended=1030.0 + number)
        elif number < 24:
            state = replace(state, status="running", progress=Progress(5, 1, 500, 0.005, evil))
        else:
            state = replace(state, attempt=0, started=0.0)
        states.append(state)
    return states


@pytest.mark.parametrize("size", [(80, 24), (140, 40), (40, 12)])
def test_the_board_fits_the_terminal(home: Path, size: tuple[int, int]) -> None:
    states = make_states(home)
    summary = summarize(states, 1060.0)
    out = io.StringIO()
    console = Console(file=out, width=size[0], height=size[1], force_terminal=False)
    console.print(render_board(FleetRun("r", "", 1000.0, 5.0), states, summary, 1060.0, size, Text("KEYS")))
    lines = out.getvalue().splitlines()
    assert len(lines) <= size[1] and max(map(len, lines)) <= size[0]
    assert "\x1b" not in out.getvalue() and "\u202e" not in out.getvalue()
    assert (lines[0], lines[-1]) == ("r  1 min 0 s", "KEYS")
    assert lines[1].endswith("20 of 30")
    assert lines[2].startswith("12 passed   6 failed   2 not run")
    assert lines[3].startswith("$0.22 of $5.00, 22k tokens")
    assert max(line.count("reason") for line in lines) <= 1
    if size[1] >= 24:
        assert ["WHY TASKS DID NOT PASS" in lines, "SLOWEST" in lines] == [True, True]
        assert sum(line.startswith("task-2") for line in lines) >= 3


def test_the_rate_is_that_of_the_work_that_goes_on(home: Path) -> None:
    states = make_states(home)
    began = summarize(states, 1060.0)
    assert (began.tasks_per_minute, began.eta_s) == (20.0, 30.0)
    # After a night, only what has ended since then counts.
    night = summarize(states, 87_460.0, since=87_400.0)
    assert (night.tasks_per_minute, night.eta_s) == (0.0, None)
    assert list_facts(began)[2].startswith("Why: reason5 (2), reason0 (1)")


def test_one_line_is_written_for_each_task_that_ends(home: Path) -> None:
    out = io.StringIO()
    board = LineBoard(out, lambda: 1060.0)
    states = make_states(home)
    before = [replace(state, result=None, status="running") if state.task.id < "task-12" else state for state in states]
    board.update(before)
    board.update(states)
    board.update(states)
    first, *lines = out.getvalue().splitlines()
    assert first == "30 tasks, 16 of them done before."
    assert [line.split()[:3] for line in lines] == [
        [f"[{number}/30]", "passed", state.task.id]
        for number, state in enumerate((one for one in states if one.task.id < "task-12" and one.result), 17)
    ]


def test_reports_have_no_markup_of_tasks(home: Path) -> None:
    report = make_report(FleetRun("r", str(home / "store"), 1000.0), make_states(home), 1060.0)
    texts = {name: make(report) for name, make in FORMATS.items()}
    assert all("\x1b" not in text for text in texts.values())
    assert "<b>|" not in texts["html"]
    assert texts["markdown"].count("<b>|") == texts["markdown"].count("\n```\n]0;<b>|") == 8
    suite = ElementTree.fromstring(texts["junit"])
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("30", "6", "10")
    assert json.loads(texts["json"])["summary"]["passed"] == 12


async def test_the_page_has_the_runs_and_their_actions(home: Path, run_here: RunHere) -> None:
    places = RunFolder("r", os.environ)
    board = FleetBoard(os.environ, open_engine)
    assert not board.exists()
    table = RunTable(places.table)
    secret = "sk-ant-api03-" + "a" * 80
    tasks = [FleetTask(f"t{number}", "x") for number in range(3)]
    run = FleetRun("r", places.store, 1000.0)
    await table.submit(run, tasks)

    async def fail(attempt: Attempt) -> TaskResult:
        return TaskResult("failed", "checks", f"key {secret}", name_session(run, attempt.task.id, 0), 1, usd=0.5)

    places.locate_checkout("t0").mkdir(parents=True)
    await table.signal("pause", ["t2"])
    await table.work(fail, 1, "w")
    shown = await asyncio.to_thread(board.read)
    (row,) = shown.sections[0].rows
    assert [cell.text for cell in row.cells[:6]] == ["r", "stopped", "2 of 3", "0", "2", "0"]
    assert [(action.label, bool(action.question)) for action in row.actions] == [
        ("Resume", False),
        ("Retry", True),
        ("Cancel", True),
    ]
    unsolved = next(section for section in shown.sections if section.heading == "r: did not pass")
    assert [row.cells[0].session for row in unsolved.rows] == [name_session(run, "t0", 0), ""]
    assert secret not in str(shown)
    text = await asyncio.to_thread(board.act, "retry:r")
    assert text == "Retry: 2 tasks of r. Run odin fleet run --continue r."
    assert {state.status for state in await table.list_tasks()} == {"waiting", "paused"}
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = f"127.0.0.1:{gone.getsockname()[1]}"
    RunFolder("far", os.environ).server.write_bytes(msgspec.json.encode(TemporalServer(nobody)))
    RunFolder("bad", os.environ).table.write_bytes(b"not a database" * 1000)
    rows = {row.key: row.cells[1].text for row in (await asyncio.to_thread(board.read)).sections[0].rows}
    assert rows["r"] == "stopped"
    assert "No Temporal server answers" in rows["far"]
    assert "is damaged" in rows["bad"]
    for action in "remove:r", "retry:far":
        with pytest.raises(OdinError):
            await asyncio.to_thread(board.act, action)
    await table.close()
    removed = (await asyncio.to_thread(run_here, "fleet", "remove", "far"))[1]
    assert removed == "Removed far from this machine only.\n"
