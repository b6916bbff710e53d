"""Which engine a fleet run is on, and `odin fleet worker`, which performs tasks from a Temporal server."""

import argparse
import asyncio
import logging
import os
import signal
import socket
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from odin.app.sandbox import LazySandbox
from odin.commands.command_line import Parser, make_formatter, write_message
from odin.config import get_state_dir, load
from odin.config.files import lock_file, write_atomically
from odin.config.paths import make_environment
from odin.core.errors import OdinError, UsageError
from odin.core.format import pluralize
from odin.core.private_folders import make_private_folder
from odin.fleet.engine import Attempt, FleetEngine, TaskResult
from odin.fleet.run_folder import RunFolder, get_runs_folder
from odin.fleet.run_table import RunTable
from odin.fleet.worker import Worker

if TYPE_CHECKING:
    from odin.fleet.temporal_connection import TemporalServer

_SAY_S = 60.0
_FLAGS = ("namespace", "queue", "tls", "ca", "cert", "key", "api_key")


def add_temporal_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("temporal (docs/fleet-temporal.md)").add_argument
    add("--temporal", default="", metavar="HOST:PORT", help="run on the workers of this Temporal server")
    add("--temporal-namespace", default="", metavar="NAME", help="namespace there (default: default)")
    add("--temporal-queue", default="", metavar="NAME", help="task queue of the workers (default: odin-fleet)")
    add("--temporal-tls", action="store_true", help="connect with TLS")
    add("--temporal-ca", default="", metavar="FILE", help="certificate of the authority of the server")
    add("--temporal-cert", default="", metavar="FILE", help="certificate of this client")
    add("--temporal-key", default="", metavar="FILE", help="key of that certificate")
    add("--temporal-api-key", default="", metavar="VARIABLE", help="environment variable with the API key")


def remember_server(args: argparse.Namespace, places: RunFolder, *, is_new: bool = False) -> None:
    """Note on which server a run is, so that later commands need no flags. Raise UsageError if it is not there."""
    server = _read_flags(args)
    if server is None:
        return

    async def check() -> None:
        engine = await _open_temporal(server, places)
        try:
            if not is_new:
                await engine.read_run()
        finally:
            await engine.close()

    asyncio.run(check())
    make_private_folder(places.server.parent)
    write_atomically(places.server, msgspec.json.encode(server))


async def open_engine(places: RunFolder, *, is_mine: bool = False) -> FleetEngine:
    """Return the engine of a run. `is_mine`: this process holds the run, so that nobody else performs its tasks."""
    if not places.server.exists():
        return RunTable(places.table, is_alive=lambda _: not is_mine)
    connection, _ = _import_temporal()
    return await _open_temporal(msgspec.json.decode(places.server.read_bytes(), type=connection.TemporalServer), places)


async def _open_temporal(server: "TemporalServer", places: RunFolder) -> FleetEngine:
    connection, engine = _import_temporal()
    logging.getLogger("temporalio").setLevel(logging.ERROR)  # warnings would break the board
    client = await connection.connect(server, os.environ)
    return engine.TemporalEngine(client, server, places.name)


def _read_flags(args: argparse.Namespace) -> "TemporalServer | None":
    given = {name: value for name in _FLAGS if (value := getattr(args, f"temporal_{name}"))}
    if args.temporal:
        return _import_temporal()[0].TemporalServer(args.temporal, **given)
    if given:
        flag = f"--temporal-{next(iter(given)).replace('_', '-')}"
        raise UsageError(f"{flag} needs --temporal.", "Add --temporal HOST:PORT.")
    return None


def _import_temporal() -> "tuple[ModuleType, ModuleType]":
    try:
        from odin.fleet import temporal, temporal_connection
    except ImportError as error:
        raise UsageError(
            f"--temporal needs packages that are not installed ({error.name}).",
            "Install them: uv tool install 'odin-code[fleet]'",
        ) from None
    return temporal_connection, temporal


async def refuse_without_sandbox(folder: Path) -> None:
    make_private_folder(folder)
    sandbox = LazySandbox(load(str(folder), os.environ), make_environment(cwd=str(folder)))
    try:
        if not await sandbox.can_confine():
            raise UsageError(
                f"Tasks run unattended, and no sandbox works here: {sandbox.explain_level()}",
                "`odin doctor` helps. Where the machine itself is the sandbox, --unsandboxed runs tasks without one.",
            )
    finally:
        await sandbox.close()


# --- workers ---


def run_worker(argv: list[str]) -> int:
    parser = Parser(
        prog="odin fleet worker",
        description="Perform tasks of all fleet runs on a Temporal server, until Ctrl-C.",
        formatter_class=make_formatter,
    )
    add = parser.add_argument
    add("--slots", type=int, default=0, metavar="N", help="tasks at once (default: one for each processor)")
    add("--folder", default="", metavar="DIR", help="where checkouts go (default: ~/.local/share/odin/fleet)")
    add("--url", default="", metavar="URL", help="where the sessions of this machine are served, for `odin attach`")
    add("--unsandboxed", action="store_true", help="accept runs without a sandbox")
    add_temporal_flags(parser)
    args = parser.parse_args(argv)
    server = _read_flags(args)
    if server is None:
        raise UsageError("A worker needs a Temporal server.", "Usage: odin fleet worker --temporal HOST:PORT")
    if args.slots < 0:
        raise UsageError("--slots must be at least 1.", "See `odin fleet worker --help`.")
    folder = Path(args.folder).absolute() if args.folder else get_runs_folder(os.environ)
    make_private_folder(folder)
    return asyncio.run(
        _serve(server, folder, args.slots or os.cpu_count() or 2, args.url, unsandboxed=args.unsandboxed)
    )


async def _serve(server: "TemporalServer", folder: Path, slots: int, url: str, *, unsandboxed: bool) -> int:
    if not unsandboxed:
        await refuse_without_sandbox(folder)
    connection, engine = _import_temporal()
    client = await connection.connect(server, os.environ)
    state, machine, stopped = get_state_dir(os.environ), _name_machine(folder), asyncio.Event()
    # What opens the server is not for tasks, whatever they ask for.
    env = {name: value for name, value in os.environ.items() if name not in (connection.KEY_VARIABLE, server.api_key)}

    async def perform(attempt: Attempt) -> TaskResult:
        # Who submits a run does not decide what is safe on this machine.
        RunFolder(attempt.run.name, os.environ)  # refuses a name that leads elsewhere
        run = msgspec.structs.replace(attempt.run, unsandboxed=attempt.run.unsandboxed and unsandboxed)
        attempt = msgspec.structs.replace(attempt, run=run)
        return await Worker(folder / run.name, state, env).perform(attempt)

    said = 0.0

    def say_rarely(record: logging.LogRecord) -> bool:
        """Say once in a while that the server is away, and not at each of many attempts."""
        nonlocal said
        if "gRPC call" not in record.getMessage():
            return True
        if record.created >= said + _SAY_S:
            said = record.created
            write_message(f"{server.address} does not answer: what runs goes on, and is reported when it does.")
        return False

    logging.getLogger("temporalio.core").addFilter(say_rarely)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    write_message(
        f"{machine} takes up to {pluralize(slots, 'task')} at once from {server.address}. Ctrl-C gives them back."
    )
    try:
        await engine.serve(client, server, perform, slots, machine, url=url, until=stopped.wait())
    except RuntimeError as error:
        raise OdinError(f"The worker has lost the Temporal server: {error}", "Start it again.") from error
    return 0


def _name_machine(folder: Path) -> str:
    """Return the name of whoever has the checkouts below a folder. It survives restarts."""
    path = folder / ".machine"
    with lock_file(path, 10):
        if not path.exists():
            write_atomically(path, f"{socket.gethostname()}-{os.urandom(3).hex()}".encode())
        return path.read_text()
