"""Where the runs of this machine are: each has a table in the state folder, and a folder for checkouts and results."""

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from odin.config import get_home_dir, get_state_dir
from odin.config.owner_lock import find_owner, hold_owner_lock
from odin.core.errors import StateUnwritable, UsageError
from odin.core.text import suggest_similar

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_SUFFIX = ".sqlite"
_SERVER_SUFFIX = ".temporal"


class RunFolder:
    """The places of the run of this name, whether there is one or not. Raise UsageError if it cannot be a name."""

    def __init__(self, name: str, env: Mapping[str, str]) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be the name of a run.", "Use up to 60 letters, digits, '.', '_' and '-'."
            )
        self.name = name
        self.table = _get_tables(env) / f"{name}{_SUFFIX}"
        self.server = self.table.with_suffix(_SERVER_SUFFIX)
        """Says on which Temporal server a run is that has no table."""
        self.path = get_runs_folder(env) / name
        self.store = str(self.path / "results")
        """The store of a run that names none."""
        self._lock = self.table.with_suffix(".running")

    def hold(self) -> AbstractContextManager[None]:
        """Be the one process that runs its tasks here. Raise UsageError if another one does."""
        hint = f"`odin fleet watch {self.name}` shows it; stop that process first."
        return hold_owner_lock(self._lock, f"The run {self.name} is running", hint)

    def find_runner(self) -> str:
        """Return the id of the process that runs its tasks here, or ""."""
        return find_owner(self._lock)

    def locate_checkout(self, task: str) -> Path:
        return self.path / "work" / task

    def locate_log(self, task: str) -> Path:
        """Return where the process of a task writes what nobody expects it to."""
        return self.path / "work" / f".{task}.log"

    def remove(self) -> None:
        """Remove the run, with its checkouts and the results in its own folder."""
        import shutil

        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.table}{suffix}").unlink(missing_ok=True)
        self.server.unlink(missing_ok=True)
        self._lock.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


def _get_tables(env: Mapping[str, str]) -> Path:
    return get_state_dir(env) / "fleet"


def get_runs_folder(env: Mapping[str, str]) -> Path:
    """Return where the checkouts and results of all runs are."""
    data = env.get("XDG_DATA_HOME", "")
    base = Path(data) if data.startswith("/") else get_home_dir(env) / ".local" / "share"
    return base / "odin" / "fleet"


def list_runs(env: Mapping[str, str]) -> list[str]:
    """Return the names of the runs of this machine, the latest first."""
    tables = [entry for entry in _scan(_get_tables(env)) if entry.name.endswith((_SUFFIX, _SERVER_SUFFIX))]
    tables.sort(key=_get_change_time, reverse=True)
    return [Path(entry.name).stem for entry in tables]


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StateUnwritable(f"{folder} cannot be read: {error.strerror}.", "Make it a folder of yours.") from error


def _get_change_time(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_ctime
    except FileNotFoundError:  # it was removed meanwhile
        return 0.0


def find_run(name: str, env: Mapping[str, str]) -> RunFolder:
    """Return the folder of a run. Raise UsageError if there is none of this name."""
    known = list_runs(env)
    if name not in known:
        raise UsageError(
            f"There is no run {name!r}.{suggest_similar(name, known)}", "`odin fleet list` lists the runs."
        )
    return RunFolder(name, env)
