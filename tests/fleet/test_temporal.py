"""What only the engine on Temporal has: what the server sees, encryption, long runs, and connections that fail."""

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from temporalio.client import Client
from temporalio.worker import Replayer

from odin.commands.fleet_engine import open_engine
from odin.core.errors import OdinError
from odin.fleet.engine import Attempt, Progress, TaskResult
from odin.fleet.page_board import FleetBoard
from odin.fleet.task import FleetTask
from odin.fleet.temporal import TemporalEngine
from odin.fleet.temporal_connection import KEY_VARIABLE, TemporalServer, connect
from odin.fleet.temporal_workflows import FleetRunWorkflow, FleetTaskWorkflow
from odin.testing import ScriptedServer, call, say
from tests.conftest import RunHere
from tests.fleet.engines import QUICK, TemporalEngines, list_statuses, make_run, wait_for
from tests.fleet.runs import make_repository
from tests.fleet.temporal_server import TemporalProcess
from tests.fleet.test_task_runs import edit, make_task
from tests.fleet.test_temporal_kills import Machine
from tests.providers.servers import Connection, serve
from tests.remote.bad_network import BadNetwork, worsen
from tests.soak import choose, soak
from tests.waiting import LIMIT_S

SECRET = "Turn the lead into gold"
KEY = {KEY_VARIABLE: base64.b64encode(bytes(range(32))).decode()}


async def pass_or_fail(attempt: Attempt) -> TaskResult:
    await attempt.report(Progress(9, 2, 1_000, 0.1, "Philosophise"))
    if attempt.task.id.endswith("7"):
        return TaskResult("failed", "checks", f"`make` failed: {SECRET}", requests=2, usd=0.1)
    return TaskResult("passed", requests=2, usd=0.1, files=("patch.diff",))


async def read_histories(client: Client, name: str) -> dict[str, list[bytes]]:
    """Return all events of the workflows of a run."""
    found: dict[str, list[bytes]] = {}
    async for workflow in client.list_workflows(f"WorkflowId STARTS_WITH 'odin-fleet/{name}'"):
        handle = client.get_workflow_handle(workflow.id, run_id=workflow.run_id)
        key = f"{workflow.id} {workflow.run_id}"
        found[key] = [event.SerializeToString() async for event in handle.fetch_history_events()]
    return found


async def test_histories_are_small_and_have_no_prompts(temporal: TemporalProcess, tmp_path: Path):
    count = choose(40, 200)
    engines = TemporalEngines(tmp_path, temporal.address)
    engines.slots = 20
    engine = await engines.open()
    tasks = [FleetTask(f"t{number}", f"{SECRET} {number}. {'x' * 5_000}") for number in range(count)]
    await engine.submit(make_run(engines), tasks)
    async with asyncio.timeout(100):
        await engine.work(pass_or_fail, 10, "w")
    states = await engine.list_tasks()
    await engine.close()
    assert all(state.result for state in states)
    assert states[7].result == TaskResult("failed", "checks", f"`make` failed: {SECRET}", requests=2, usd=0.1)
    client = await connect(engines.server, {})
    histories = await read_histories(client, engines.name)
    events = sum(map(len, histories.values()))
    size = sum(len(event) for history in histories.values() for event in history)
    assert not [key for key, history in histories.items() for event in history if SECRET.encode() in event]
    assert sum(f"odin-fleet/{engines.name} " in key for key in histories) > 1, "the run has not continued as new"
    replayer = Replayer(workflows=[FleetRunWorkflow, FleetTaskWorkflow], data_converter=client.data_converter)
    listed = client.list_workflows(f"WorkflowId STARTS_WITH 'odin-fleet/{engines.name}'", limit=10)
    await replayer.replay_workflows(listed.map_histories())  # raises if a workflow is not deterministic
    assert events / count < 30
    assert size / count < 6_000


async def test_with_a_key_the_server_sees_nothing_of_values(temporal: TemporalProcess, tmp_path: Path):
    engines = TemporalEngines(tmp_path, temporal.address)
    client = await connect(engines.server, KEY)
    engine = TemporalEngine(client, engines.server, engines.name, timing=QUICK, poll_s=0.05)
    await engine.submit(make_run(engines), [FleetTask("t1", SECRET), FleetTask("t7", SECRET)])
    await engine.work(pass_or_fail, 2, "w")
    assert list_statuses(await engine.list_tasks()) == {"t1": "passed", "t7": "failed"}
    assert (await engine.read_run()).name == engines.name
    histories = await read_histories(client, engines.name)
    for word in (b"Philosophise", b"passed", str(tmp_path).encode()):
        assert not [key for key, history in histories.items() for event in history if word in event], word
    for env in ({}, {KEY_VARIABLE: base64.b64encode(bytes(32)).decode()}):
        stranger = TemporalEngine(await connect(engines.server, env), engines.server, engines.name)
        with pytest.raises(OdinError, match="encrypted with another key"):
            await stranger.list_tasks()
        await stranger.close()
    plain = TemporalEngines(tmp_path, temporal.address)
    other = await plain.open()
    await other.submit(make_run(plain), [FleetTask("t1", SECRET)])
    keeper = TemporalEngine(client, plain.server, plain.name)
    with pytest.raises(OdinError, match="not encrypted"):
        await keeper.read_run()
    await other.close()
    await engine.close()


@pytest.mark.parametrize("task", [FleetTask("t1", "other"), FleetTask("../t1", "x")])
async def test_what_nobody_submits_is_not_performed(temporal: TemporalProcess, tmp_path: Path, task: FleetTask):
    """Somebody changes the tasks in the store, or submits one that leads out of the folder of its run."""
    engines = TemporalEngines(tmp_path, temporal.address)
    engine = await engines.open()
    await engine.submit(make_run(engines), [FleetTask("t1", SECRET) if task.id == "t1" else task])
    if task.id == "t1":
        (path,) = (tmp_path / "store" / ".tasks").iterdir()
        path.write_bytes(msgspec.json.encode(task))
    performed: list[Attempt] = []

    async def perform(attempt: Attempt) -> TaskResult:
        performed.append(attempt)
        return TaskResult("passed")

    await engine.work(perform, 1, "w")
    with pytest.raises(OdinError, match=r"not what was submitted|cannot be used"):
        await engine.list_tasks()
    await engine.close()
    assert performed == []


@asynccontextmanager
async def refuse_requests(status: int, message: str) -> AsyncGenerator[str]:
    """A server that answers each gRPC request with an error, in HTTP/2 by hand."""

    def frame(kind: int, flags: int, stream: int, data: bytes = b"") -> bytes:
        return len(data).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + data

    def field(name: str, value: str) -> bytes:
        return b"\x00" + b"".join(bytes((len(part),)) + part for part in (name.encode(), value.encode()))

    async def refuse(connection: Connection) -> None:
        reader, writer = connection.reader, connection.writer
        await reader.readexactly(24)
        writer.write(frame(4, 0, 0))
        while True:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3], "big"))
            stream = int.from_bytes(head[5:], "big")
            if head[3] == 4 and not head[4] & 1:
                writer.write(frame(4, 1, 0))
            elif head[3] == 1:
                fields = (("content-type", "application/grpc"), ("grpc-status", str(status)), ("grpc-message", message))
                writer.write(frame(1, 5, stream, b"\x88" + b"".join(field(*pair) for pair in fields)))

    async with serve(refuse) as listener:
        yield f"127.0.0.1:{listener.port}"


async def test_a_connection_that_fails_is_explained(temporal: TemporalProcess, tmp_path: Path):
    (tmp_path / "junk.pem").write_text("junk")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = f"127.0.0.1:{silent.getsockname()[1]}"
        wrong: list[tuple[Callable[[str], TemporalServer], dict[str, str], str]] = [
            (lambda _: TemporalServer("here"), {}, "'here' is no address of a Temporal server"),
            (lambda _: TemporalServer("127.0.0.1:1"), {}, "No Temporal server answers at 127.0.0.1:1"),
            (lambda _: TemporalServer(nobody), {}, f"No Temporal server answers at {nobody}"),
            (lambda at: TemporalServer(at, "nowhere"), {}, "has no namespace nowhere"),
            (lambda at: TemporalServer(at, tls=True), {}, "is not secure|No Temporal server answers"),
            (lambda at: TemporalServer(at, cert="c.pem"), {}, "A client certificate needs its key"),
            (lambda at: TemporalServer(at, ca="missing.pem"), {}, "Cannot read missing.pem"),
            (lambda at: TemporalServer(at, ca=str(tmp_path / "junk.pem")), {}, "is not secure|No Temporal server"),
            (lambda at: TemporalServer(at, api_key="MY_KEY"), {}, "The API key MY_KEY is not set"),
            (lambda at: TemporalServer(at), {KEY_VARIABLE: "short"}, f"{KEY_VARIABLE} is not 32 bytes"),
        ]
        for make_server, env, message in wrong:
            with pytest.raises(OdinError, match=message) as caught:
                await connect(make_server(temporal.address), env, timeout_s=2)
            assert caught.value.hint, message
    async with refuse_requests(16, "Request unauthorized.") as address:
        with pytest.raises(OdinError, match=r"refuses this user: .*Request unauthorized"):
            await connect(TemporalServer(address), {}, timeout_s=5)


@soak
async def test_a_network_that_is_cut_costs_nothing(temporal: TemporalProcess, tmp_path: Path):
    """The worker's connection is cut again and again while its tasks run: none is lost or performed twice."""
    engines = TemporalEngines(tmp_path, temporal.address)
    engines.slots = 8
    engine = await engines.open()
    await engine.submit(make_run(engines), [FleetTask(f"t{number}", "p") for number in range(choose(8, 50))])
    performed: list[str] = []
    network: BadNetwork

    async def perform(attempt: Attempt) -> TaskResult:
        performed.append(attempt.task.id)
        for event in range(2):
            await attempt.report(Progress(event, 1, 10, 0.1))
            network.cut_all()
            await asyncio.sleep(0.1)
        return TaskResult("passed", requests=1, usd=0.1)

    async with worsen(temporal.port, "cuts") as (network, port):
        network.is_calm = True
        far = TemporalServer(f"127.0.0.1:{port}", queue=engines.server.queue)
        worker = TemporalEngine(await connect(far, {}), far, engines.name, timing=QUICK, poll_s=0.1)
        async with asyncio.timeout(100):
            await worker.work(perform, 4, "w")
        await worker.close()
    states = await engine.list_tasks()
    await engine.close()
    assert {state.result.outcome for state in states if state.result} == {"passed"}
    assert sorted(performed) == sorted(state.task.id for state in states)
    assert network.done["connections"] > 2, "nothing was cut"


async def test_who_watches_needs_no_worker(temporal: TemporalProcess, tmp_path: Path):
    engines = TemporalEngines(tmp_path, temporal.address)
    engine = await engines.open()
    await engine.submit(make_run(engines), [FleetTask("a", "p"), FleetTask("b", "p")])
    watching = await engines.open()
    await wait_for(watching, lambda states: all(state.status == "waiting" for state in states.values()))
    assert await watching.signal("pause", ["b"]) == 1
    states = await wait_for(watching, lambda states: states["b"].status == "paused")
    assert states["a"].status == "waiting"
    await watching.close()
    await engine.close()
    assert os.listdir(tmp_path / "store") == [".tasks"]
    (tmp_path / "store").rename(tmp_path / "moved")
    stranger = await engines.open()
    with pytest.raises(OdinError, match="The tasks of the run cannot be read from"):
        await stranger.list_tasks()
    await stranger.close()


def test_a_missing_package_is_named(run_here: RunHere, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("odin.fleet.temporal")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(sys.modules["odin.fleet"], name.rpartition(".")[2])
    monkeypatch.setitem(sys.modules, "temporalio", None)
    code, _, error = run_here("fleet", "worker", "--temporal", "127.0.0.1:1")
    assert code == 2
    assert "--temporal needs packages that are not installed (temporalio)" in error


async def test_a_run_from_the_command_line(temporal: TemporalProcess, home: Path):
    repository = make_repository(home / "repo", {"a.txt": "one\n"})
    tasks = [make_task("good", "echo two >> a.txt", repository, checks=["grep two a.txt"]), make_task("empty", "true")]
    (home / "tasks.jsonl").write_bytes(b"\n".join(msgspec.json.encode(task) for task in tasks))
    flags = ("--temporal", temporal.address, "--temporal-queue", "command-line")

    def fleet(*words: str, code: int = 0) -> str:
        program = (sys.executable, "-m", "odin", "fleet", *words)
        done = subprocess.run(program, cwd=home, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == code, done
        return done.stdout + done.stderr

    assert "Add --store URL" in fleet("run", "tasks.jsonl", *flags, code=2)
    assert "needs --temporal" in fleet("status", "cli", "--temporal-queue", "q", code=2)
    assert "There is no run cli" in fleet("status", "cli", *flags, code=2)
    with ScriptedServer(edit) as model:
        machine = Machine(home / "machine", model)
        await machine.start(temporal.address, *flags[2:], "--url", "https://machine:7000")
        started = asyncio.create_task(
            asyncio.to_thread(fleet, "run", "tasks.jsonl", "--name", "cli", "--store", str(home / "store"), *flags)
        )
        assert "2 passed" in await started
        assert "There is a run cli already" in await asyncio.to_thread(
            fleet, "run", "tasks.jsonl", "--name", "cli", "--store", str(home / "store"), *flags, code=2
        )
        assert "cli" in await asyncio.to_thread(fleet, "list")
        assert "passed" in await asyncio.to_thread(fleet, "show", "cli", "good")
        shown = await asyncio.to_thread(FleetBoard(os.environ, open_engine).read)
        assert [cell.text for cell in shown.sections[0].rows[0].cells[:4]] == ["cli", "done", "2 of 2", "2"]
        await machine.stop(signal.SIGTERM)
    assert "takes up to 2 tasks at once" in (machine.home / "worker.log").read_text()
    assert "+two" in (home / "store" / "good" / "patch.diff").read_text()
    assert "Removed cli" in await asyncio.to_thread(fleet, "remove", "cli")


async def test_a_task_on_another_machine_can_be_attached(temporal: TemporalProcess, home: Path):
    """Its worker says where the sessions of its machine are served."""
    (home / "tasks.jsonl").write_bytes(msgspec.json.encode(make_task("long", "true")))
    flags = ("--temporal", temporal.address, "--temporal-queue", "attach")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with ScriptedServer([call("Bash", {"command": "true"}), say("never").delay(300)], repeat=True) as model:
        machine = Machine(home / "machine", model)
        there = {**os.environ, **model.env("anthropic"), "HOME": str(machine.home)}
        folder = machine.home / ".local" / "share" / "odin" / "fleet"
        folder.mkdir(parents=True)
        await machine.start(temporal.address, *flags[2:], "--url", url)
        odin = (sys.executable, "-m", "odin")
        serving = await asyncio.create_subprocess_exec(
            *(*odin, "serve", "--port", str(port), "--root", str(folder), "--pair", "no"),
            cwd=machine.home,
            env=there,
            stderr=subprocess.DEVNULL,
        )
        running = await asyncio.create_subprocess_exec(
            *(*odin, "fleet", "run", "tasks.jsonl", "--name", "far", "--store", str(home / "store"), *flags),
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            await asyncio.to_thread(model.wait_for, 2, 60)
            made = await asyncio.create_subprocess_exec(
                *(*odin, "pair", "--right", "approve", "--json"), cwd=machine.home, env=there, stdout=subprocess.PIPE
            )
            code = json.loads((await made.communicate())[0])["code"]

            def attach(*words: str) -> str:
                done = subprocess.run(
                    (*odin, *words), cwd=home, capture_output=True, input="", text=True, timeout=LIMIT_S
                )
                return done.stdout + done.stderr

            (log,) = machine.home.rglob("far-long-0-*.lock")
            where = f"{url}/sessions/{log.stem}"
            opened = f"odin --resume {log.stem}"
            assert opened in await asyncio.to_thread(attach, "attach", where, "--code", code, "--plain")
            words = ("fleet", "attach", "far", "long", "--plain")
            while opened not in (shown := await asyncio.to_thread(attach, *words)):
                assert "is not on this machine" in shown, shown  # until the worker has told its address
                await asyncio.sleep(0.5)
        finally:
            for process in (running, serving):
                process.kill()
                await process.wait()
            await machine.stop(signal.SIGKILL)
