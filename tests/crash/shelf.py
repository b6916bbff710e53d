"""A program that does something to the sessions of a project, is killed at each of its steps in turn, and is checked.

Its arguments: what to do, and an empty folder. It prints how many deaths it died. Every death is a process of its own
that begins with a shelf of its own.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from odin.app.sessions import ProjectSessions
from odin.core.errors import SessionNotFound, UsageError
from odin.core.event import Envelope
from odin.session.index import INDEX_NAME, SessionIndex, read_usage
from odin.session.lifecycle import sweep_leftovers
from odin.session.log import read_header, read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore

from ..session.logs import add, opened, titled, turn, write
from .victim import die

SESSIONS = {"one": 3, "two": 2, "three": 1}
"""The sessions on the shelf and how often something was asked in each; every time costs a quarter of a dollar."""

BESIDE = ("outputs/a.txt", "images/b.png", "notes/c.md")
FRESH = "fresh"
EXPORTED = "told.html"


class Shelf:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SessionStore(folder / "state", "/w")
        self.sessions = ProjectSessions(self.store)
        for session, turns in SESSIONS.items():
            asked = [event for number in range(turns) for event in turn(f"t{number}", f"{session}, question {number}")]
            log = write(self.store, session, [opened(), titled(f"About {session}"), *asked], modified=1e9 + turns)
            for name in BESIDE:
                path = log.path.parent / name
                path.parent.mkdir()
                path.write_text(f"{session} {name}")
        self.sessions.list_sessions()
        log = write_more(self.store, "three")
        self.cost = sum(SESSIONS.values()) * 0.25 + 0.25
        self.logs = {name: self.store.path_of(name).read_bytes() for name in SESSIONS}
        assert log.is_file()

    def check(self, act: str) -> None:
        listed = self.sessions.list_sessions()
        self._check_list(listed)
        self._check_originals(act, {item.id for item in listed})
        assert sum(item.spent.cost_usd for item in read_usage(self.store.folder)) == self.cost
        for item in listed:
            if item.id == FRESH:
                SessionState.fold(read_log(self.store.path_of(FRESH)))
            elif item.id not in SESSIONS:
                self._check_copy(self.store.path_of(item.id))
        exported = self.folder / EXPORTED
        assert not exported.exists() or exported.read_text() == "" or exported.read_text().endswith("</html>\n")

    def _check_list(self, listed: Any) -> None:
        """What the index says is what the logs say."""
        (self.store.folder / INDEX_NAME).unlink(missing_ok=True)
        assert SessionIndex(self.store.folder).list_summaries() == listed

    def _check_originals(self, act: str, listed: set[str]) -> None:
        """All of each is there; of the one that was to be deleted either all or nothing."""
        for session, data in self.logs.items():
            if act == "delete" and session == "one" and session not in listed:
                assert not self.store.path_of(session).exists()
                continue
            assert session in listed
            log = self.store.path_of(session)
            assert log.read_bytes().startswith(data)
            assert act == "rename" or log.read_bytes() == data
            assert [(log.parent / name).read_text() for name in BESIDE] == [f"{session} {name}" for name in BESIDE]

    def _check_copy(self, log: Path) -> None:
        """A copy that is there is whole."""
        past = list(read_log(log))
        assert past, log
        assert past[-1].seq == read_header(log).forked_seq
        assert len(SessionState.fold(past).turns) == SESSIONS["one"]
        assert [(log.parent / name).read_text() for name in BESIDE] == [f"one {name}" for name in BESIDE]

    def check_leftovers(self) -> None:
        """What deaths leave behind goes when it is old, and only that."""
        kept = {path for name in (*SESSIONS, *self._copies()) for path in (self.store.folder / name).rglob("*")}
        old = time.time() - 3 * 86_400
        for path in (*self.store.folder.iterdir(), self.store.folder):
            os.utime(path, (old, old))
        sweep_leftovers(self.store)
        names = {path.name for path in self.store.folder.iterdir()}
        sessions = {*SESSIONS, *self._copies()}
        locks = {f"{session}.lock" for session in sessions}
        assert names <= {*sessions, *locks, INDEX_NAME, "usage.jsonl"}, names
        assert all(path.exists() for path in kept)
        assert {path.name for path in self.folder.iterdir()} <= {"state", EXPORTED}

    def _copies(self) -> set[str]:
        return {item.id for item in self.sessions.list_sessions()} - {*SESSIONS}


def write_more(store: SessionStore, session: str) -> Path:
    """Something that the index does not know yet."""
    log = store.open(session)
    log.hold()
    seq = list(read_log(log.path))[-1].seq
    for number, event in enumerate(turn("more", "one more"), seq + 1):
        log.append(Envelope(number, 2000.0, session, event))
    log.close()
    return log.path


def _fork(shelf: Shelf) -> None:
    shelf.sessions.fork("one")


def _begin(shelf: Shelf) -> None:
    """A new session with an id of its own, which may be there from an earlier try."""
    try:
        log = shelf.store.create("/w", FRESH)
    except UsageError:
        log = shelf.store.open(FRESH)
        log.hold()
    add(log, [opened(), titled("Fresh")], len(list(read_log(log.path))) if log.path.exists() else 0)
    log.sync()
    log.close()


def _delete(shelf: Shelf) -> None:
    try:
        shelf.sessions.delete("one")
    except SessionNotFound:
        assert not shelf.store.path_of("one").exists()


ACTS: dict[str, Callable[[Shelf], Any]] = {
    "list": lambda shelf: shelf.sessions.list_sessions(),
    "search": lambda shelf: shelf.sessions.search("question 1"),
    "begin": _begin,
    "rename": lambda shelf: shelf.sessions.rename("one", "Another title"),
    "fork": _fork,
    "delete": _delete,
    "export": lambda shelf: shelf.sessions.export("one", "html", str(shelf.folder / EXPORTED)),
    "usage": lambda shelf: list(read_usage(shelf.store.folder)),
}


def die_at(at: int, half: bool) -> None:
    """At the nth thing done to files; when that is writing, after half of it."""
    left, write = at, os.write

    def step() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if (event == "open" or event.startswith(("os.", "shutil.", "fcntl."))) and step():
            die()

    def torn(fd: int, data: Any) -> int:
        if step():
            write(fd, bytes(data)[: len(data) // 2 if half else 0])
            die()
        return write(fd, data)

    os.write = torn
    sys.addaudithook(hear)


def live_and_die(act: str, shelf: Shelf, at: int, half: bool) -> bool:
    """False when it was done before."""
    pid = os.fork()
    if pid == 0:
        try:
            die_at(at, half)
            ACTS[act](shelf)
        except BaseException as error:
            sys.stderr.write(f"{act}, step {at}: {error!r}\n")
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, (act, at)
    return os.WIFSIGNALED(status)


def die_often(act: str, root: Path) -> int:
    for at in count(1):
        with tempfile.TemporaryDirectory(dir=root) as folder:
            shelf = Shelf(Path(folder))
            died = live_and_die(act, shelf, at, half=bool(at % 2))
            try:
                shelf.check(act)
                ACTS[act](shelf)
                shelf.check(act)
                shelf.check_leftovers()
            except BaseException:
                sys.stderr.write(f"{act}, killed at step {at}\n")
                raise
        if not died:
            return at - 1
    raise AssertionError


if __name__ == "__main__":
    sys.stdout.write(f"{die_often(sys.argv[1], Path(sys.argv[2]))}\n")
