"""A fleet run in this process, with its task processes, the scripted model and a git repository."""

import os
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from odin.config import get_state_dir
from odin.fleet.engine import FleetRun, TaskState
from odin.fleet.run_table import RunTable
from odin.fleet.task import FleetTask
from odin.fleet.worker import Worker
from odin.testing import ScriptedServer


def make_repository(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    run_git(folder, "init", "-q", "-b", "main")
    run_git(folder, "add", "-A")
    run_git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    return folder


def run_git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


class LocalRun:
    """A run of tasks on this machine."""

    def __init__(
        self, home: Path, model: ScriptedServer, tasks: Sequence[FleetTask], *, budget_usd: float = 0, attempts: int = 3
    ) -> None:
        self.env = {**os.environ, **model.env("anthropic")}
        self.state = get_state_dir(self.env)
        self.folder = home / ".local" / "share" / "odin" / "fleet" / "r"
        self.results = self.folder / "results"
        self.run = FleetRun("r", str(self.results), time.time(), budget_usd, attempts)
        self.tasks = tasks
        self.table = RunTable(self.state / "fleet" / "r.sqlite", poll_s=0.05, pause_s=0)

        self.is_submitted = False

    async def submit(self) -> None:
        await self.table.submit(self.run, self.tasks)
        self.is_submitted = True

    def unsandbox(self) -> None:
        """Change the stored run, as if it had been started with --unsandboxed."""
        info = msgspec.json.encode(msgspec.structs.replace(self.run, unsandboxed=True))
        with sqlite3.connect(self.state / "fleet" / "r.sqlite") as db:
            db.execute("UPDATE run SET info = ?", (info,))

    async def work(self, slots: int = 2) -> dict[str, TaskState]:
        """Work until all is done, and return the tasks by their ids."""
        await self.table.work(Worker(self.folder, self.state, self.env).perform, slots, "w")
        return {state.task.id: state for state in await self.table.list_tasks()}

    async def do(self, slots: int = 2) -> dict[str, TaskState]:
        await self.submit()
        return await self.work(slots)

    def read(self, name: str) -> str:
        return (self.results / name).read_text()
