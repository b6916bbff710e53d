"""`odin fleet run`: it checks everything, starts workers, and shows how far they are."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from odin.app.roles import load_agents
from odin.commands.command_line import get_stdout, write_json, write_message, write_output
from odin.commands.fleet_engine import open_engine, refuse_without_sandbox, remember_server
from odin.config import Config, get_home_dir, get_state_dir, load
from odin.config.auth import read_auth_file
from odin.config.paths import make_environment
from odin.core.errors import ConfigError, OdinError, UsageError
from odin.core.format import pluralize
from odin.fleet.board import LineBoard, RunBoard, list_facts
from odin.fleet.engine import FleetEngine, FleetRun, TaskState, TaskStatus
from odin.fleet.predictions import write_predictions
from odin.fleet.report import make_report
from odin.fleet.result_store import open_store
from odin.fleet.run_folder import RunFolder, find_run
from odin.fleet.summary import FleetSummary, summarize
from odin.fleet.task import FleetTask, find_missing, is_local, read_tasks
from odin.fleet.worker import Worker
from odin.models.catalog import add_stored_keys, resolve_endpoint
from odin.models.connector import ModelConnector
from odin.policy.modes import parse_mode
from odin.ui.exit import EXIT_INTERRUPTED, EXIT_UNVERIFIED
from odin.ui.terminal import is_dumb

EXIT_NOT_RUN = 75
_MAX_FAULTS = 20
_MOST = 1_000_000


def run_tasks(args: argparse.Namespace) -> int:
    for flag, number, least in (
        ("--workers", args.workers, 0),
        ("--attempts", args.attempts, 1),
        ("--budget-usd", args.budget_usd, 0),
    ):
        if not least <= number <= _MOST:  # also not NaN
            raise UsageError(f"{flag} must be {least} to {_MOST:,}.", "See `odin fleet --help`.")
    places, tasks = (find_run(args.names[0], os.environ), ()) if args.goes_on else _read_order(args)
    with places.hold():
        return asyncio.run(_coordinate(args, places, tasks))


def _read_order(args: argparse.Namespace) -> tuple[RunFolder, tuple[FleetTask, ...]]:
    if args.model and args.pool:
        raise UsageError("--model and --pool exclude each other.", "Give one of them.")
    if args.mode:
        parse_mode(args.mode)
    defaults = {name: value for name in ("model", "pool", "mode") if (value := getattr(args, name))}
    tasks = read_tasks(Path(args.names[0]), get_home_dir(os.environ), args.repositories, defaults)
    places = RunFolder(args.name or time.strftime("%Y%m%d-%H%M%S"), os.environ)
    if places.table.exists() or places.server.exists():
        hint = f"Choose another --name, or go on with it: odin fleet run --continue {places.name}"
        raise UsageError(f"There is a run {places.name} already.", hint)
    if args.temporal and args.workers:
        raise UsageError("--workers is for runs on this machine.", "Start `odin fleet worker` here as well.")
    if args.temporal and not args.store:
        raise UsageError("--temporal needs a store that all workers reach.", "Add --store URL, as s3://bucket/folder.")
    # What workers elsewhere have is for them to say.
    faults = [] if args.temporal else [*find_missing(tasks), *_find_unknown(tasks)]
    if faults:
        more = f"\n… and {len(faults) - _MAX_FAULTS} more" if len(faults) > _MAX_FAULTS else ""
        listed = "\n".join(faults[:_MAX_FAULTS])
        raise UsageError(f"Nothing was started:\n{listed}{more}")
    remember_server(args, places, is_new=True)
    return places, tasks


def _find_unknown(tasks: Sequence[FleetTask]) -> Iterator[str]:
    """Yield a sentence for each model, pool and role that a task names and nobody knows, with its first task."""
    seen: set[tuple[str, ...]] = set()
    configs: dict[str, Config] = {}
    for task in tasks:
        if task.trust and task.repository and not is_local(task.repository):
            continue  # its settings are not here yet
        # The settings of a project count only if its task is trusted.
        folder = task.repository if task.trust and Path(task.repository).is_dir() else "/"
        names = (folder, task.model, task.pool, task.role)
        if names in seen or not any(names[1:]):
            continue
        seen.add(names)
        try:
            config = configs.get(folder) or load(folder, os.environ, trust=task.trust)
            configs[folder] = config
            connector = ModelConnector(config, os.environ, eager=False)
            if task.pool:
                connector.pools.list_usable(task.pool)
            if task.model:
                connector.check_ref(task.model)
                provider = connector.normalize(task.model).partition("/")[0]
                keyed = add_stored_keys(config.providers, read_auth_file(os.environ))
                with suppress(ConfigError):  # it needs no address: a package or Odin itself provides it
                    resolve_endpoint(provider, keyed, os.environ)
            if task.role:
                load_agents(config, make_environment(cwd=folder)).find_role(task.role)
        except OdinError as error:
            yield f"{task.id}: {error.describe()}"


def _place_store(url: str) -> str:
    """Return a store that means the same in every folder."""
    return url if "://" in url else str(Path(make_environment().expand_home(url)).absolute())


# --- while it runs ---


async def _coordinate(args: argparse.Namespace, places: RunFolder, tasks: Sequence[FleetTask]) -> int:
    engine = await open_engine(places, is_mine=True)
    try:
        if tasks:
            run = FleetRun(
                places.name,
                _place_store(args.store) if args.store else places.store,
                time.time(),
                args.budget_usd,
                args.attempts,
                args.unsandboxed,
                args.keep,
            )
        else:
            run = await engine.read_run()
        if tasks:
            try:
                await asyncio.to_thread(open_store(run.store).check)
                if not args.temporal and not run.unsandboxed:
                    await refuse_without_sandbox(places.path)
                await engine.submit(run, tasks)
            except OdinError:
                places.remove()
                raise
        workers = 0 if places.server.exists() else args.workers or os.cpu_count() or 2
        board = _make_board(run, engine, is_plain=args.plain or args.json, is_mine=workers > 0)
        code = await _work(places, engine, board, workers)
        states = await engine.list_tasks()
        store, summary = open_store(run.store), summarize(states, time.time())
        predictions = await write_predictions(store, states)
        if args.json:
            write_json(make_report(run, states, time.time()))
        else:
            _write_end(places, summary)
            if predictions:
                write_output(f"Predictions: {store.locate(predictions[0])}\n")
        return code or (0 if board.is_left else find_exit_code(summary))
    finally:
        await engine.close()


async def _work(places: RunFolder, engine: FleetEngine, board: RunBoard, workers: int) -> int:
    """Run tasks until none is left. Return the exit code of the signal that stopped it, or 0."""
    worker = Worker(places.path, get_state_dir(os.environ), os.environ)
    name = f"{os.getpid()}-{time.time_ns()}"
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    working: asyncio.Future[None] = loop.create_future()

    def stop(code: int) -> None:
        text = "Stopping at once." if stopped.done() else "Stopping: what runs is given back. Ctrl-C again: at once."
        if not stopped.done():
            stopped.set_result(code)
        working.cancel()
        if workers:  # last: the terminal may be gone
            board.say(text)

    codes = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: 143, signal.SIGHUP: 129}
    for number, code in codes.items():
        loop.add_signal_handler(number, stop, code)
    try:
        with board:
            while not stopped.done() and not board.is_left:
                working = asyncio.create_task(engine.work(worker.perform, workers, name))
                while not working.done():
                    if board.is_left:
                        working.cancel()
                    board.update(await engine.list_tasks())
                    await board.wait(working)
                if not working.cancelled():
                    working.result()
                board.update(states := await engine.list_tasks())
                while (
                    board.has_keys and not stopped.done() and _count(states, "paused") and not _count(states, "waiting")
                ):
                    await board.wait(stopped)
                    board.update(states := await engine.list_tasks())
                if not _count(states, "waiting"):
                    break
    finally:
        for number in codes:
            loop.remove_signal_handler(number)
        working.cancel()  # if the board or the table fails, what runs is given back
        await asyncio.wait({working})
    return stopped.result() if stopped.done() else 0


def _count(states: Sequence[TaskState], status: TaskStatus) -> int:
    return sum(state.status == status for state in states)


def _make_board(run: FleetRun, engine: FleetEngine, *, is_plain: bool, is_mine: bool) -> RunBoard:
    out = get_stdout()
    if is_plain or not out.isatty() or not sys.stdin.isatty() or is_dumb(os.environ):
        return LineBoard(sys.stderr, time.time)
    from odin.fleet.terminal_board import TerminalBoard

    return TerminalBoard(run, engine, out, sys.stdin.fileno(), time.time, is_mine=is_mine)


def _write_end(places: RunFolder, summary: FleetSummary) -> None:
    write_output("".join(f"{line}\n" for line in list_facts(summary)))
    left = summary.total - summary.done
    if left and places.server.exists():
        write_message(f"{pluralize(left, 'task')} left for the workers. `odin fleet watch {places.name}` shows them.")
    elif left:
        resume = f"odin fleet resume {places.name} && " if summary.paused else ""
        write_message(f"{pluralize(left, 'task')} left. Go on with: {resume}odin fleet run --continue {places.name}")
    elif summary.passed < summary.total:
        write_message(f"`odin fleet status {places.name}` lists why, `odin fleet retry {places.name}` starts over.")


def find_exit_code(summary: FleetSummary) -> int:
    if summary.failed:
        return EXIT_UNVERIFIED
    if summary.cancelled:
        return EXIT_INTERRUPTED
    return 0 if summary.passed == summary.total else EXIT_NOT_RUN


def watch_run(places: RunFolder, *, is_plain: bool) -> int:
    return asyncio.run(_watch(places, is_plain=is_plain))


async def _watch(places: RunFolder, *, is_plain: bool) -> int:
    engine = await open_engine(places)
    try:
        board = _make_board(await engine.read_run(), engine, is_plain=is_plain, is_mine=False)
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: left.done() or left.set_result(None))
        with board:
            while not left.done() and not board.is_left:
                board.update(states := await engine.list_tasks())
                goes_on = places.server.exists() or await asyncio.to_thread(places.find_runner)
                if summarize(states, time.time()).is_over or not goes_on:
                    break
                await board.wait(left)
        if left.done() or board.is_left:
            return 0
        summary = summarize(await engine.list_tasks(), time.time())
        _write_end(places, summary)
        return find_exit_code(summary)
    finally:
        await engine.close()
