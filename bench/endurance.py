"""Cost of a long session: resume, append, memory per turn, and idle time.

`run.py` calls `rows()`; run directly, this file prints the results. With `--child PART …` it is the measured process.
"""

import asyncio
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from row import Row, table

EVENTS = 20_000
TURNS = int(os.environ.get("ODIN_BENCH_TURNS", "2000"))
WARM = 300
"""Turns before the first memory measurement. By then all code is loaded and the context window has been full."""
WINDOW = 48_000
IDLE_S = 20.0
ROUNDS = 5
EARLY, LATE, BATCH = 100, 100_000, 2_000


# --- a session log as the engine writes it ---


def _events(turn: int) -> list[Any]:
    """The ten events of an ordinary turn: one prompt with three tool calls."""
    from odin.core.call_events import FileCached, Replied, ToolEnded, ToolStarted, UsageRecorded
    from odin.core.event import TurnEnded, TurnStarted
    from odin.core.event_values import CachedFile as File
    from odin.core.message import ReplyMessage, Text, ToolCall, Usage

    calls = tuple(ToolCall(f"call_{turn}_{at}", "Grep", {"pattern": f"name_{at}", "path": "src"}) for at in range(2))
    found = "\n".join(f"src/part_{line}.py:{line}: some words of a line that was found here" for line in range(20))
    usage = Usage(1200, 80, 9000, 300)
    told: list[Any] = [
        TurnStarted(f"p{turn}", f"Do step {turn} of the plan and say what you found.", "edit_mode"),
        UsageRecorded("anthropic/claude-sonnet-4-5", usage, 0.01, 200_000),
        Replied(ReplyMessage((Text("I look for it."), *calls), "anthropic", "claude-sonnet-4-5", "tool_use")),
    ]
    for call in calls:
        told.append(ToolStarted(call.id, call.name, call.args, "name"))
        told.append(ToolEnded(call.id, call.name, "success", found, note="20 lines"))
    told.append(FileCached(File(f"/project/src/part_{turn % 50}.py", 1000, 0.0, sha256="0" * 64)))
    told.append(Replied(ReplyMessage((Text(f"Step {turn} is done."),), "anthropic", "claude-sonnet-4-5")))
    told.append(TurnEnded(f"p{turn}", "end_turn", f"Step {turn} is done.", 2, usage, 0.01))
    return told


def _write_log(state: Path, project: Path) -> tuple[str, int]:
    """Write a session of about EVENTS events."""
    from odin.core.event import Envelope, SessionOpened
    from odin.session.store import SessionStore

    log = SessionStore(state, str(project)).create(str(project), "long")
    seq = 0
    log.append(Envelope(seq, time.time(), "long", SessionOpened(str(project), "anthropic/claude-sonnet-4-5", "0")))
    turn = 0
    while seq < EVENTS:
        for event in _events(turn):
            seq += 1
            log.append(Envelope(seq, time.time(), "long", event))
        turn += 1
    log.close()
    return "long", seq


# --- the measured processes ---


async def _child_resume(project: str, state: str, session: str) -> dict[str, float]:
    """Time from opening the session until it accepts a prompt, with all modules already loaded."""
    from odin.app import open_session
    from odin.config import Options

    env = {**os.environ, "ANTHROPIC_API_KEY": "bench", "ODIN_MODEL": "anthropic/claude-sonnet-4-5"}
    fresh = await open_session(Options(cwd=project, state_dir=state, env=env))
    await fresh.close()
    started = time.perf_counter()
    client = await open_session(Options(cwd=project, state_dir=state, env=env, resume=session))
    took = time.perf_counter() - started
    assert (await client.snapshot()).messages
    await client.close()
    return {"ms": took * 1000}


def _child_append(folder: str) -> dict[str, float]:
    """Time recording one event (append, fold, publish) early and late in a session.

    All event types have equal weight. CPU time is measured, which excludes the disk.
    """
    from odin.engine.event_bus import EventBus
    from odin.engine.recorder import Recorder
    from odin.session.state import SessionState
    from odin.session.store import SessionStore

    log = SessionStore(folder, "/project").create("/project", "append")
    recorder = Recorder(log, SessionState("append"), EventBus())
    took: dict[str, float] = {}
    turn = 0
    while recorder.state.seq < LATE + BATCH:
        seq = recorder.state.seq
        measured = EARLY <= seq < EARLY + BATCH or seq >= LATE
        events = _events(turn)
        started = time.process_time()
        for event in events:
            recorder.emit(event)
        spent = time.process_time() - started
        if measured:
            name = "late" if seq >= LATE else "early"
            took[name] = took.get(name, 0.0) + spent
            took[name + "_count"] = took.get(name + "_count", 0) + len(events)
        turn += 1
    recorder.close()
    return {name: took[name] / took[name + "_count"] * 1_000_000 for name in ("early", "late")}


def _rss_kb() -> int:
    """Return the memory in use. Freed memory that the allocator has kept does not count: it is used again."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return _status_kb("VmRSS")


def _status_kb(field: str) -> int:
    """Return a field of the process status. `ru_maxrss` would not do: a child inherits the peak of its parent."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[field].split()[0])


async def _child_memory(project: str, state: str, url: str) -> dict[str, float]:
    """Measure memory over many prompts, each with a command that prints one megabyte."""
    from odin.app import open_session
    from odin.config import Options
    from odin.core.event import TurnEnded
    from odin.core.op import Prompt

    env = {
        **os.environ,
        "ANTHROPIC_API_KEY": "bench",
        "ANTHROPIC_BASE_URL": url,
        "ODIN_MODEL": "anthropic/claude-sonnet-4-5",
    }
    client = await open_session(Options(cwd=project, state_dir=state, env=env, yes=True))
    events = client.stream_events()
    marks: list[int] = []
    for turn in range(TURNS):
        await client.submit(Prompt(f"p{turn}", f"Print the numbers, please ({turn})."))
        async for envelope in events:
            if isinstance(envelope.event, TurnEnded):
                assert envelope.event.reason == "end_turn", envelope.event
                break
        if turn % 100 == 99:
            marks.append(_rss_kb())
            print(turn + 1, marks[-1], file=sys.stderr, flush=True)
    await client.close()
    used = marks[WARM // 100 - 1 :]
    slope = (statistics.mean(used[-3:]) - statistics.mean(used[:3])) / ((len(used) - 3) * 100)
    return {"kb": slope, "peak_mb": _status_kb("VmHWM") / 1024}


async def _child_idle(project: str, state: str, session: str) -> dict[str, float]:
    """Return the CPU usage of an idle session in percent."""
    from odin.app import open_session
    from odin.config import Options

    env = {**os.environ, "ANTHROPIC_API_KEY": "bench", "ODIN_MODEL": "anthropic/claude-sonnet-4-5"}
    client = await open_session(Options(cwd=project, state_dir=state, env=env, resume=session))
    await asyncio.sleep(1.0)
    before, started = time.process_time(), time.perf_counter()
    await asyncio.sleep(IDLE_S)
    used = (time.process_time() - before) / (time.perf_counter() - started)
    await client.close()
    return {"percent": used * 100}


_CHILDREN: dict[str, Callable[..., Any]] = {
    "resume": _child_resume,
    "append": _child_append,
    "memory": _child_memory,
    "idle": _child_idle,
}


def _measured(part: str, *args: str, home: Path) -> dict[str, float]:
    argv = [sys.executable, __file__, "--child", part, *args]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "ODIN_BENCH_TURNS": str(TURNS)}
    done = subprocess.run(argv, stdout=subprocess.PIPE, env=env, check=True)
    return json.loads(done.stdout)


# --- results ---


def _memory(home: Path, project: Path, state: Path) -> dict[str, float]:
    from odin.testing import ScriptedServer, call, say

    config = home / ".config" / "odin"
    config.mkdir(parents=True)
    models = {"claude-sonnet-4-5": {"context": WINDOW}}
    (config / "odinconfig.json").write_text(json.dumps({"providers": {"anthropic": {"models": models}}}))

    def play(seen: Any) -> Any:
        del server.requests[:-2]
        server.rejected.clear()
        newest = seen.json["messages"][-1]["content"]
        answered = not isinstance(newest, str) and any(part.get("type") == "tool_result" for part in newest)
        if answered or not seen.json.get("tools"):
            return say("Here they are.")
        return call("ExecuteCommand", {"command": "seq 1 150000"})

    server = ScriptedServer(play, window=WINDOW)
    with server:
        return _measured("memory", str(project), str(state), server.url, home=home)


def rows(parts: tuple[str, ...] = ("resume", "append", "memory", "idle")) -> list[Row]:
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        project, state = home / "work", home / "state"
        project.mkdir()
        state.mkdir(mode=0o700)
        session, count = _write_log(state, project)
        if "resume" in parts:
            runs = [_measured("resume", str(project), str(state), session, home=home)["ms"] for _ in range(ROUNDS)]
            found.append(Row(f"resume a session of {count:,} events", statistics.median(runs), None, 400, "ms", False))
        if "append" in parts:
            took = _measured("append", str(home / "append"), home=home)
            what = f"record an event at {LATE:,}, beside one at {EARLY}"
            found.append(Row(what, took["late"], took["early"], 1.5, "µs", True))
        if "memory" in parts:
            used = _memory(home, project, state)
            found.append(Row(f"memory per turn over {TURNS:,} turns", used["kb"], None, 2, "kB", False))
            found.append(Row(f"peak memory of {TURNS:,} turns, Odin alone", used["peak_mb"], None, 120, "MB", False))
        if "idle" in parts:
            used = _measured("idle", str(project), str(state), session, home=home)
            found.append(Row("processor while idle", used["percent"], None, 0.5, "%", False))
    return found


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        result = _CHILDREN[sys.argv[2]](*sys.argv[3:])
        print(json.dumps(asyncio.run(result) if asyncio.iscoroutine(result) else result))
        return
    parts = tuple(sys.argv[1:])
    print(table(rows(parts) if parts else rows()))


if __name__ == "__main__":
    main()
