"""What Odin syncs to the disk, and in which order, is enough to recover from a power cut."""

import errno
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import odin.tools.file_edit
from odin.checkpoints.store import CheckpointStore
from odin.core.event import CheckpointSaved, FilesChanged, TurnEnded, Warned
from odin.core.event_values import FileState
from odin.session.log import read_log
from odin.testing import ScriptedServer, call, say
from tests.waiting import LIMIT_S, until

from ..engine.conftest import WITHOUT_VIEWS, Start


class Disk:
    """Replaces `os.fsync` and records what was synced: the bytes of files by path, and folders."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: list[str] = []
        self.logs: list[bytes] = []
        self.sync: Callable[[int], None] = os.fsync

    def fsync(self, fd: int) -> None:
        self.sync(fd)
        path = os.readlink(f"/proc/self/fd/{fd}")
        if Path(path).is_dir():
            self.folders.append(path)
            return
        data = Path(path).read_bytes()
        self.files[path] = data
        if path.endswith("main.jsonl"):
            self.logs.append(data)

    def contains(self, data: bytes) -> bool:
        """Return whether these bytes were synced in a checkpoint, as an object or in a pack."""
        return any(data in kept for path, kept in self.files.items() if "checkpoints" in path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(os, "fsync", found.fsync)
    return found


async def test_checkpoint_is_synced_before_the_file_changes(
    start: Start,
    workspace: Path,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = workspace / "a.txt"
    file.write_text("the earlier text\n")
    seen: list[tuple[bool, bool]] = []
    original = odin.tools.file_edit.replace_file

    def record_and_replace(*args: object) -> os.stat_result:
        is_logged = b'"type":"CheckpointSaved"' in disk.logs[-1]
        seen.append((is_logged, disk.contains(b"the earlier text\n")))
        return original(*args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(odin.tools.file_edit, "replace_file", record_and_replace)
    read = call("Read", {"file_path": str(file)})
    edit = call("EditTool", {"file_path": str(file), "old_string": "earlier", "new_string": "later"})
    talk = await start([read, edit, say("done")])
    await talk.say("change it")
    assert file.read_text() == "the later text\n"
    assert seen == [(True, True)]


@pytest.mark.parametrize(("config", "count"), [({}, 3), (WITHOUT_VIEWS, 33)], ids=["in a view", "listing the project"])
async def test_synced_log_refers_only_to_synced_objects(
    config: dict[str, Any],
    count: int,
    start: Start,
    workspace: Path,
    home: Path,
    disk: Disk,
    tmp_path: Path,
) -> None:
    """A power cut may follow every sync of the log, so all objects that the log names must be synced before it."""
    for number in range(30):
        (workspace / f"{number}.txt").write_text(f"number {number}\n")
    checked = 0

    def check() -> None:
        nonlocal checked
        path = tmp_path / "left.jsonl"
        path.write_bytes(disk.logs[-1])
        store = CheckpointStore(next((home / ".local/state/odin/checkpoints").iterdir()))
        for event in (item.event for item in read_log(path)):
            states: Iterable[FileState] = ()
            if isinstance(event, CheckpointSaved):
                states = store.load_manifest(event.manifest).files if event.manifest else event.files
            elif isinstance(event, FilesChanged):
                states = (change.before for change in event.changes)
            for state in states:
                if state.kind == "file" and state.saved:
                    assert disk.contains(store.fetch(state.sha256))
                    checked += 1

    write = call("WriteFile", {"file_path": str(workspace / "31.txt"), "content": "new\n"})
    again = call("EditTool", {"file_path": str(workspace / "31.txt"), "old_string": "new", "new_string": "newer"})
    command = call("ExecuteCommand", {"command": "echo more >>7.txt"})
    talk = await start([write, again, command, say("done")], config=config)
    await talk.say("go")
    await talk.client.close()
    check()
    assert checked >= count
    kinds = [type(item.event) for item in read_log(tmp_path / "left.jsonl")]
    assert kinds[-1] is TurnEnded


async def test_a_new_session_can_be_found_after_its_first_prompt(start: Start, home: Path, disk: Disk) -> None:
    """A file is lost if the folder that contains it was not synced."""
    talk = await start([say("one"), say("two")])
    await talk.say("first")
    log = next((home / ".local/state/odin/sessions").glob("*/*/main.jsonl"))
    assert disk.folders[:3] == [str(log.parent), str(log.parent.parent), str(log.parent.parent.parent)]
    await talk.say("second")
    assert len(disk.folders) == 3


async def test_log_that_ends_in_null_bytes_can_be_resumed(start: Start, home: Path) -> None:
    """Some file systems restore the length of a file, but not its content."""
    talk = await start([say("one")])
    await talk.say("first")
    await talk.client.close()
    log = next((home / ".local/state/odin/sessions").glob("*/*/main.jsonl"))
    with log.open("ab") as file:
        file.write(bytes(700))
    with ScriptedServer([say("two")]) as server:
        again = await start(None, server=server, continue_last=True)
        assert (await again.say("second")).text == "two"
        assert b"first" in server.requests[0].body


def test_checkpoint_object_gets_its_name_after_it_is_synced(tmp_path: Path, disk: Disk) -> None:
    """If it got its name first, a power cut could leave an empty file that looks like a complete object."""
    store = CheckpointStore(tmp_path)
    names_found: list[bool] = []
    sync = disk.sync

    def record_and_sync(fd: int) -> None:
        names_found.append(any(path.name[0] != "." for path in (tmp_path / "objects").rglob("*") if path.is_file()))
        sync(fd)

    disk.sync = record_and_sync
    store.keep(b"bytes")
    assert names_found == [False]


class SlowDisk(Disk):
    """A disk that takes until `done` is set to sync a log that contains `words`."""

    def __init__(self, words: bytes) -> None:
        super().__init__()
        self._words = words
        self.is_asked = threading.Event()
        self.done = threading.Event()
        self.fails = False

    def fsync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.name == "main.jsonl" and self._words in path.read_bytes():
            self.is_asked.set()
            assert self.done.wait(LIMIT_S)
            if self.fails:
                raise OSError(errno.EIO, "Input/output error")
        super().fsync(fd)


async def test_a_slow_disk_delays_only_the_session_that_waits_for_it(
    start: Start, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(b"the slow one")
    monkeypatch.setattr(os, "fsync", disk.fsync)
    slow, other = await start([say("Late.")]), await start([say("Quick.")])
    await slow.submit("the slow one")
    await until(disk.is_asked.is_set)
    assert (await other.say("hurry")).text == "Quick."
    assert slow.server.requests == [], "a prompt is on the disk before it is sent"
    disk.done.set()
    assert (await slow.until_end("p1")).text == "Late."


@pytest.mark.parametrize(
    ("words", "requests"), [(b"the slow one", 0), (b'"type":"CheckpointSaved"', 1), (b'"type":"TurnEnded"', 2)]
)
async def test_what_cannot_be_synced_is_reported_and_has_no_effect(
    start: Start, workspace: Path, monkeypatch: pytest.MonkeyPatch, words: bytes, requests: int
) -> None:
    disk = SlowDisk(words)
    disk.fails = True
    disk.done.set()
    monkeypatch.setattr(os, "fsync", disk.fsync)
    write = call("WriteFile", {"file_path": str(workspace / "new.txt"), "content": "new\n"})
    talk = await start([write, say("Done.")])
    ended = await talk.say("the slow one")
    await talk.client.close()
    assert len(talk.server.requests) == requests
    assert (workspace / "new.txt").exists() is (requests == 2)
    told = [ended.error, *[item.event.text async for item in talk.remaining() if isinstance(item.event, Warned)]]
    assert "The session log cannot be written" in "".join(told)
