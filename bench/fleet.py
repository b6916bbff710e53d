"""Many short tasks: how many a minute, what each costs beside the agent's own work, and what a waiting one costs.

`run.py` calls `rows()`; run directly, this file prints the results. ODIN_BENCH_TASKS is the number of tasks.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from memory import adopt_orphans, list_below, read_kb
from odin.testing import ScriptedServer, call, say
from odin.testing.script import SeenRequest, Turn
from row import Row, table

TASKS = int(os.environ.get("ODIN_BENCH_TASKS", "200"))
BARE = 20
HELD = 16


def _play(request: SeenRequest) -> Turn:
    if request.results:
        return say("I added the line.")
    return call("Bash", {"command": "echo one more >> a.txt"})


def _reap() -> float:
    """Wait for all processes below this one, and return the seconds of processor time they took until now."""
    with suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _make_repository(folder: Path) -> None:
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    for number in range(50):
        (folder / f"part_{number}.py").write_text(f"VALUE = {number}\n" * 50)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=folder, check=True)


def _write_tasks(path: Path, repository: Path, count: int) -> Path:
    lines = (
        {"id": f"t{number}", "repository": str(repository), "prompt": "Add a line to a.txt."} for number in range(count)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def rows() -> list[Row]:
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="odin-bench-") as place:
        base = Path(place)
        (base / "home").mkdir()
        _make_repository(base / "repo")
        return [*_measure_work(base), *_measure_waiting(base)]


def _measure_work(base: Path) -> list[Row]:
    with ScriptedServer(_play) as model:
        env = {**os.environ, **model.env("anthropic"), "HOME": str(base / "home")}
        odin = [sys.executable, "-m", "odin"]
        start = _reap()
        for number in range(BARE + 2):  # the first ones fill caches
            if number == 2:
                start = _reap()
            folder = base / f"bare{number}"
            subprocess.run(["git", "clone", "-q", str(base / "repo"), str(folder)], check=True)
            words = ("-p", "--permission-mode", "auto", "Add a line to a.txt.")
            subprocess.run([*odin, *words], cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
        bare = (_reap() - start) / BARE
        tasks = _write_tasks(base / "tasks.jsonl", base / "repo", TASKS)
        start, began = _reap(), time.monotonic()
        words = ("fleet", "run", str(tasks), "--name", "bench", "--workers", "4")
        done = subprocess.run([*odin, *words], cwd=base, env=env, check=False, capture_output=True, text=True)
        took = time.monotonic() - began
        each = (_reap() - start) / TASKS
        if done.returncode:
            raise SystemExit(f"fleet run failed: {done.stdout[-500:]} {done.stderr[-500:]}")
    return [
        Row(f"minutes for {TASKS:,} tasks, per 1,000", took / 60 * 1000 / TASKS, None, 15, "mi", False),
        Row("processor time of a task, to the bare agent's", each * 1000, bare * 1000, 1.2, "ms", True),
    ]


def _measure_waiting(base: Path) -> list[Row]:
    """Measure a coordinator with few and with many tasks in the queue, while HELD wait for the model."""
    used: dict[int, int] = {}
    held = 0.0
    for count in (HELD + 4, HELD + 4000):
        with ScriptedServer(lambda _: say("late").delay(600)) as model:
            env = {**os.environ, **model.env("anthropic"), "HOME": str(base / "home")}
            tasks = _write_tasks(base / f"waiting{count}.jsonl", base / "repo", count)
            words = ("fleet", "run", str(tasks), "--name", f"waiting{count}", "--workers", str(HELD))
            process = subprocess.Popen(
                [sys.executable, "-m", "odin", *words], cwd=base, env=env, stdout=subprocess.DEVNULL, process_group=0
            )
            model.wait_for(HELD, 120)
            time.sleep(3)
            used[count] = read_kb(process.pid, "Rss")
            if not held:
                below = list_below(process.pid)
                held = sum(read_kb(pid, "Pss") for pid in below) / HELD / 1000
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    low, high = used.values()
    return [
        Row("memory of a task that waits for its turn", (high - low) / 4000, None, 10, "kB", False),
        Row("memory of a task that waits for the model", held, None, 30, "MB", False),
    ]


if __name__ == "__main__":
    print(table(rows()))
