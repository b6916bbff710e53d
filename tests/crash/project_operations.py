"""A program that runs an operation on the sessions of a project, kills it at each of its steps, and checks the result.

Its arguments are the name of the operation and an empty folder. It prints the number of kills. For every kill it makes
a new sample project and forks a process that runs the operation.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from odin.core.errors import SessionNotFound, UsageError
from odin.core.event import Envelope
from odin.host.stored_sessions import ProjectSessions
from odin.session.index import INDEX_NAME, SessionIndex, read_usage
from odin.session.lifecycle import sweep_leftovers
from odin.session.log import read_header, read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore

from ..session.logs import append_events, opened, titled, turn, write_session
from .worker import kill_self

SESSIONS = {"one": 3, "two": 2, "three": 1}
"""The sessions of the sample project, and the number of turns in each; a turn costs a quarter of a dollar."""

SIDE_FILES = ("outputs/a.txt", "images/b.png", "notes/c.md")
NEW_SESSION = "fresh"
EXPORT_NAME = "told.html"


class SampleProject:
    """A project with three sessions, and the checks after a killed operation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SessionStore(folder / "state", "/w")
        self.sessions = ProjectSessions(self.store)
        for session, turns in SESSIONS.items():
            turn_events = [
                event for number in range(turns) for event in turn(f"t{number}", f"{session}, question {number}")
            ]
            log = write_session(
                self.store, session, [opened(), titled(f"About {session}"), *turn_events], modified=1e9 + turns
            )
            for name in SIDE_FILES:
                path = log.path.parent / name
                path.parent.mkdir()
                path.write_text(f"{session} {name}")
        self.sessions.list_sessions()
        log = append_turn(self.store, "three")
        self.cost = sum(SESSIONS.values()) * 0.25 + 0.25
        self.logs = {name: self.store.get_path(name).read_bytes() for name in SESSIONS}
        assert log.is_file()

    def check(self, operation: str) -> None:
        listed = self.sessions.list_sessions()
        self._check_list(listed)
        self._check_originals(operation, {item.id for item in listed})
        assert sum(item.spent.cost_usd for item in read_usage(self.store.folder)) == self.cost
        for item in listed:
            if item.id == NEW_SESSION:
                SessionState.fold(read_log(self.store.get_path(NEW_SESSION)))
            elif item.id not in SESSIONS:
                self._check_fork(self.store.get_path(item.id))
        exported = self.folder / EXPORT_NAME
        assert not exported.exists() or exported.read_text() == "" or exported.read_text().endswith("</html>\n")

    def _check_list(self, listed: Any) -> None:
        """Check that the index lists what the logs contain."""
        (self.store.folder / INDEX_NAME).unlink(missing_ok=True)
        assert SessionIndex(self.store.folder).list_summaries() == listed

    def _check_originals(self, operation: str, listed: set[str]) -> None:
        """Check that every session is complete, and that the deleted one is either complete or gone."""
        for session, data in self.logs.items():
            if operation == "delete" and session == "one" and session not in listed:
                assert not self.store.get_path(session).exists()
                continue
            assert session in listed
            log = self.store.get_path(session)
            assert log.read_bytes().startswith(data)
            assert operation == "rename" or log.read_bytes() == data
            assert [(log.parent / name).read_text() for name in SIDE_FILES] == [
                f"{session} {name}" for name in SIDE_FILES
            ]

    def _check_fork(self, log: Path) -> None:
        """Check that a fork is complete."""
        past = list(read_log(log))
        assert past, log
        assert past[-1].seq == read_header(log).forked_seq
        assert len(SessionState.fold(past).turns) == SESSIONS["one"]
        assert [(log.parent / name).read_text() for name in SIDE_FILES] == [f"one {name}" for name in SIDE_FILES]

    def check_leftovers(self) -> None:
        """Check that cleanup removes the old leftovers of killed operations, and nothing else."""
        kept = {path for name in (*SESSIONS, *self._list_forks()) for path in (self.store.folder / name).rglob("*")}
        old = time.time() - 3 * 86_400
        for path in (*self.store.folder.iterdir(), self.store.folder):
            os.utime(path, (old, old))
        sweep_leftovers(self.store)
        names = {path.name for path in self.store.folder.iterdir()}
        sessions = {*SESSIONS, *self._list_forks()}
        locks = {f"{session}.lock" for session in sessions}
        assert names <= {*sessions, *locks, INDEX_NAME, "usage.jsonl"}, names
        assert all(path.exists() for path in kept)
        assert {path.name for path in self.folder.iterdir()} <= {"state", EXPORT_NAME}

    def _list_forks(self) -> set[str]:
        return {item.id for item in self.sessions.list_sessions()} - {*SESSIONS}


def append_turn(store: SessionStore, session: str) -> Path:
    """Append a turn that the index does not contain yet."""
    log = store.open(session)
    log.hold()
    seq = list(read_log(log.path))[-1].seq
    for number, event in enumerate(turn("more", "one more"), seq + 1):
        log.append(Envelope(number, 2000.0, session, event))
    log.close()
    return log.path


def _fork(project: SampleProject) -> None:
    project.sessions.fork("one")


def _create(project: SampleProject) -> None:
    """Create a new session. It may exist from the killed attempt."""
    try:
        log = project.store.create("/w", NEW_SESSION)
    except UsageError:
        log = project.store.open(NEW_SESSION)
        log.hold()
    append_events(log, [opened(), titled("Fresh")], len(list(read_log(log.path))) if log.path.exists() else 0)
    log.sync()
    log.close()


def _delete(project: SampleProject) -> None:
    try:
        project.sessions.delete("one")
    except SessionNotFound:
        assert not project.store.get_path("one").exists()


OPERATIONS: dict[str, Callable[[SampleProject], Any]] = {
    "list": lambda project: project.sessions.list_sessions(),
    "search": lambda project: project.sessions.search("question 1"),
    "begin": _create,
    "rename": lambda project: project.sessions.rename("one", "Another title"),
    "fork": _fork,
    "delete": _delete,
    "export": lambda project: project.sessions.export("one", "html", str(project.folder / EXPORT_NAME)),
    "usage": lambda project: list(read_usage(project.store.folder)),
}


def arm_kill(at: int, half: bool) -> None:
    """Kill this process at its nth file operation. A write at that step writes half of its data, or nothing."""
    left, write = at, os.write

    def step() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    def count_event(event: str, args: tuple[Any, ...]) -> None:
        if (event == "open" or event.startswith(("os.", "shutil.", "fcntl."))) and step():
            kill_self()

    def write_and_count(fd: int, data: Any) -> int:
        if step():
            write(fd, bytes(data)[: len(data) // 2 if half else 0])
            kill_self()
        return write(fd, data)

    os.write = write_and_count
    sys.addaudithook(count_event)


def run_and_kill(operation: str, project: SampleProject, at: int, half: bool) -> bool:
    """Run the operation in a forked process, killed at this step. Return False if it ended before the kill."""
    pid = os.fork()
    if pid == 0:
        try:
            arm_kill(at, half)
            OPERATIONS[operation](project)
        except BaseException as error:
            sys.stderr.write(f"{operation}, step {at}: {error!r}\n")
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, (operation, at)
    return os.WIFSIGNALED(status)


def kill_at_steps(operation: str, root: Path, every: int) -> int:
    """Kill the operation at each of its steps, or at every few ones. Return the number of the last kill."""
    for at in count(1, every):
        with tempfile.TemporaryDirectory(dir=root) as folder:
            project = SampleProject(Path(folder))
            was_killed = run_and_kill(operation, project, at, half=bool(at % 2))
            try:
                project.check(operation)
                OPERATIONS[operation](project)
                project.check(operation)
                project.check_leftovers()
            except BaseException:
                sys.stderr.write(f"{operation}, killed at step {at}\n")
                raise
        if not was_killed:
            return at - every
    raise AssertionError


if __name__ == "__main__":
    sys.stdout.write(f"{kill_at_steps(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))}\n")
