"""Spawn, SpawnStatus and SpawnStop: background processes are started, inspected and stopped."""

import asyncio
from pathlib import Path

from odin.sandbox.background import BackgroundProcess, BackgroundProcesses, SpawnRequest
from odin.sandbox.output import LOG_LIMIT
from tests.sandbox.processes import is_alive, wait_for_pids, wait_until_gone
from tests.tools.toolbox import Toolbox
from tests.waiting import until


async def wait_for_end(box: Toolbox, id: str = "spawn-1") -> BackgroundProcess:
    spawned = box.background.get(id)
    assert spawned is not None
    await until(lambda: spawned.status != "running")
    return spawned


async def test_spawn_returns_the_id_and_the_log(box: Toolbox) -> None:
    output = await box.ok("Spawn", command="echo ready; sleep 1000", description="server")
    log = box.session / "spawn-logs" / "spawn-1.log"
    assert output.asynchronous
    assert output.text == (
        f"id: spawn-1\nstatus: running\nmax_runtime: none, until it is stopped or the session ends\nlog: {log}"
    )
    await until(lambda: log.read_text() == "ready\n")


async def test_spawn_status_shows_only_new_output(box: Toolbox) -> None:
    await box.ok("Spawn", command="echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 3")
    spawned = box.background.get("spawn-1")
    assert spawned is not None
    await until(lambda: spawned.log.total)
    first = (await box.ok("SpawnStatus", id="spawn-1")).text
    assert first.startswith("spawn-1 (echo one;")
    assert "): running, " in first
    assert "\nnew output:\none\nlog: " in first
    assert "(no new output)" in (await box.ok("SpawnStatus", id="spawn-1")).text
    (box.folder / "go").touch()
    await wait_for_end(box)
    last = (await box.ok("SpawnStatus", id="spawn-1")).text
    assert "): failed, exit code 3, " in last
    assert "\nnew output:\ntwo\nlog: " in last


async def test_a_process_is_killed_at_its_timeout(box: Toolbox) -> None:
    output = await box.ok("Spawn", command="echo $$ >>pids; sleep 1000 & echo $! >>pids; wait", timeout=300)
    assert "max_runtime: 0.3 s" in output.text
    found = await asyncio.to_thread(wait_for_pids, box.folder / "pids", 2)
    assert (await wait_for_end(box)).status == "timed_out"
    wait_until_gone(found)


async def test_a_long_timeout_is_limited_with_a_note(box: Toolbox) -> None:
    text = (await box.ok("Spawn", command="sleep 1000", timeout=900_000)).text
    assert "max_runtime: 600 s" in text
    assert "(the timeout was limited to 600 s)" in text


async def test_spawn_stop_kills_the_whole_process_group(box: Toolbox) -> None:
    await box.ok("Spawn", command="trap '' TERM; echo $$ >>pids; (trap '' TERM; echo $BASHPID >>pids; sleep 1000)")
    found = await asyncio.to_thread(wait_for_pids, box.folder / "pids", 2)
    output = await box.ok("SpawnStop", id="spawn-1")
    assert "was stopped after" in output.text
    assert not any(is_alive(pid) for pid in found)
    assert ": stopped, killed by signal SIGKILL" in (await box.ok("SpawnStatus", id="spawn-1")).text
    assert "has already ended" in (await box.ok("SpawnStop", id="spawn-1")).text


async def test_children_of_a_finished_process_can_be_stopped(box: Toolbox) -> None:
    await box.ok("Spawn", command="sleep 1000 & echo $! >>pids")
    (pid,) = await asyncio.to_thread(wait_for_pids, box.folder / "pids", 1)
    assert (await wait_for_end(box)).status == "finished"
    assert is_alive(pid)
    assert "a process it started still runs" in (await box.ok("SpawnStatus", id="spawn-1")).text
    assert "left running" in (await box.ok("SpawnStop", id="spawn-1")).text
    wait_until_gone([pid])


async def test_the_error_for_an_unknown_id_lists_the_known_ids(box: Toolbox) -> None:
    for unknown in ("spawn-7", "spawn-" + "9" * 5000):
        assert "Known: none." in await box.refused("SpawnStatus", id=unknown)
    await box.ok("Spawn", command="sleep 1000")
    for name in ("SpawnStatus", "SpawnStop"):
        assert "Unknown background process 'x'. Known: spawn-1 (running)." in await box.refused(name, id="x")


async def test_spawn_status_without_an_id_lists_all_processes(box: Toolbox) -> None:
    assert (await box.ok("SpawnStatus")).text == "No background processes."
    await box.ok("Spawn", command="sleep 1000", description="a")
    await box.ok("Spawn", command="exit 1", description="b")
    await wait_for_end(box, "spawn-2")
    lines = (await box.ok("SpawnStatus")).text.split("\n")
    assert lines[0].startswith("spawn-1 (a): running, ")
    assert lines[1].startswith("spawn-2 (b): failed, exit code 1, ")


async def test_at_most_fifty_processes_run_at_once(box: Toolbox) -> None:
    for _ in range(50):
        await box.ok("Spawn", command="exec sleep 1000")
    assert "50 background processes are already running" in await box.refused("Spawn", command="sleep 1000")
    await box.ok("SpawnStop", id="spawn-1")
    assert "id: spawn-51" in (await box.ok("Spawn", command="sleep 1000")).text


async def test_closing_ends_all_processes(box: Toolbox) -> None:
    for _ in range(3):
        await box.ok("Spawn", command="setsid sleep 1000 & sleep 1000 & echo $! >>pids; echo $$ >>pids; wait")
    found = await asyncio.to_thread(wait_for_pids, box.folder / "pids", 6)
    await box.background.close()
    wait_until_gone(found)
    assert {spawned.status for spawned in box.background.list_all()} == {"stopped"}
    assert "session is closing" in await box.refused("Spawn", command="true")


async def test_execute_command_can_run_in_the_background(box: Toolbox) -> None:
    output = await box.ok("ExecuteCommand", command="sleep 1000", run_in_background=True, timeout=5000)
    assert output.asynchronous
    assert "id: spawn-1" in output.text
    assert "max_runtime: 5 s" in output.text
    for name in ("ExecuteCommand", "Spawn"):
        more = {"run_in_background": True} if name == "ExecuteCommand" else {}
        assert "Not run: vim" in await box.refused(name, command="vim x", **more)
        assert "empty" in await box.refused(name, command=" ", **more)


async def test_processes_have_no_stdin_no_terminal_and_no_pager(box: Toolbox) -> None:
    await box.ok("Spawn", command="read x; echo read=$?; (: </dev/tty) 2>/dev/null || echo no-tty; echo $PAGER")
    await wait_for_end(box)
    assert "new output:\nread=1\nno-tty\ncat\n" in (await box.ok("SpawnStatus", id="spawn-1")).text


async def test_a_deleted_working_directory_is_reported(box: Toolbox) -> None:
    box.folder.rmdir()
    assert "no longer exists" in await box.refused("Spawn", command="true")
    assert list((box.session / "spawn-logs").iterdir()) == []


async def test_a_long_log_keeps_the_newest_output_and_says_what_was_cut(box: Toolbox) -> None:
    await box.ok("Spawn", command="for i in 1 2 3 4 5 6; do head -c 3000000 /dev/zero | tr '\\0' $i; echo; done")
    spawned = await wait_for_end(box)
    log, before = Path(spawned.log.path), Path(f"{spawned.log.path}.1")
    printed = "".join(str(digit) * 3_000_000 + "\n" for digit in range(1, 7))
    note, _, newest = log.read_text().partition("]\n")
    assert note.startswith("[log cut: the ")
    assert str(before) in note
    assert printed.endswith(before.read_text().partition("]\n")[2] + newest if before.read_text()[0] == "[" else newest)
    assert newest.endswith("6\n")
    assert log.stat().st_size <= LOG_LIMIT + 200
    assert before.stat().st_size <= LOG_LIMIT + 200
    look = (await box.ok("SpawnStatus", id="spawn-1")).text
    assert len(look) < 11_000
    assert f"18000006 bytes in all, the first 4000 and the last 6000 characters are shown; the full text: {log}" in look


async def test_ids_continue_after_a_resume(box: Toolbox) -> None:
    again = BackgroundProcesses(box.runner, box.session / "spawn-logs", used_ids=3)
    box.tools["SpawnStatus"]._background = again  # pyright: ignore[reportAttributeAccessIssue]
    assert "before this session was resumed" in await box.refused("SpawnStatus", id="spawn-2")
    assert "Unknown background process" in await box.refused("SpawnStatus", id="spawn-4")
    log = box.session / "spawn-logs" / "spawn-4.log"
    log.parent.mkdir(parents=True)
    log.write_text("of a run that was killed")
    started = await again.start(SpawnRequest("true", str(box.folder)))
    assert started.id == "spawn-5"
    assert log.read_text() == "of a run that was killed"
    await again.close()


def test_permission_subject_and_kinds_of_the_spawn_tools(workspace: Path) -> None:
    tools = Toolbox(workspace).tools
    assert tools["Spawn"].get_target(tools["Spawn"].parse({"command": "npm start"})).command == "npm start"
    assert [tools[name].kind for name in ("Spawn", "SpawnStatus", "SpawnStop")] == ["execute", "read", "interactive"]
