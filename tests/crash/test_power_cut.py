"""After a power cut only what was brought to the disk is there: it must be enough, and in the right order."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import odin.tools.file_edit
from odin.checkpoints.store import CheckpointStore
from odin.core.event import CheckpointSaved, TurnEnded
from odin.session.log import read_log
from odin.testing import ScriptedServer, call, say

from ..engine.conftest import Start


class Disk:
    """What was brought to the disk so far: files by name, with their bytes then, and folders."""

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

    def holds(self, data: bytes) -> bool:
        """Whether these bytes are on the disk, by themselves or in a pack."""
        return any(data in kept for path, kept in self.files.items() if "checkpoints" in path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(os, "fsync", found.fsync)
    return found


async def test_how_to_undo_a_change_is_on_the_disk_before_the_change(
    start: Start,
    workspace: Path,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = workspace / "a.txt"
    file.write_text("the earlier text\n")
    seen: list[tuple[bool, bool]] = []
    right = odin.tools.file_edit.replace_file

    def looked(*args: object) -> os.stat_result:
        said = b'"type":"CheckpointSaved"' in disk.logs[-1]
        seen.append((said, disk.holds(b"the earlier text\n")))
        return right(*args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(odin.tools.file_edit, "replace_file", looked)
    read = call("Read", {"file_path": str(file)})
    edit = call("EditTool", {"file_path": str(file), "old_string": "earlier", "new_string": "later"})
    talk = await start([read, edit, say("done")])
    await talk.say("change it")
    assert file.read_text() == "the later text\n"
    assert seen == [(True, True)]


async def test_whatever_was_synced_names_only_what_was_synced_before(
    start: Start,
    workspace: Path,
    home: Path,
    disk: Disk,
    tmp_path: Path,
) -> None:
    """Each time the log is synced it could be all that is left. What it names of files is on the disk by then."""
    for number in range(30):
        (workspace / f"{number}.txt").write_text(f"number {number}\n")
    checked = 0

    def check() -> None:
        nonlocal checked
        path = tmp_path / "left.jsonl"
        path.write_bytes(disk.logs[-1])
        store = CheckpointStore(next((home / ".local/state/odin/checkpoints").iterdir()))
        for saved in (item.event for item in read_log(path) if isinstance(item.event, CheckpointSaved)):
            states = store.load_manifest(saved.manifest).files if saved.manifest else saved.files
            for state in states:
                if state.kind == "file" and state.saved:
                    assert disk.holds(store.fetch(state.sha256))
                    checked += 1

    write = call("WriteFile", {"file_path": str(workspace / "31.txt"), "content": "new\n"})
    again = call("EditTool", {"file_path": str(workspace / "31.txt"), "old_string": "new", "new_string": "newer"})
    command = call("ExecuteCommand", {"command": "echo more >>7.txt"})
    talk = await start([write, again, command, say("done")])
    await talk.say("go")
    check()
    assert checked >= 31
    kinds = [type(item.event) for item in read_log(tmp_path / "left.jsonl")]
    assert kinds[-1] is TurnEnded


async def test_a_new_session_can_be_found_after_its_first_prompt(start: Start, home: Path, disk: Disk) -> None:
    """A file is lost when the folder that names it is not on the disk."""
    talk = await start([say("one"), say("two")])
    await talk.say("first")
    log = next((home / ".local/state/odin/sessions").glob("*/*/main.jsonl"))
    assert disk.folders[:3] == [str(log.parent), str(log.parent.parent), str(log.parent.parent.parent)]
    await talk.say("second")
    assert len(disk.folders) == 3


async def test_a_file_that_ends_in_nothing(start: Start, home: Path) -> None:
    """Some file systems remember how long a file was and not what was in it."""
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


def test_half_an_object_is_never_taken_for_a_whole_one(tmp_path: Path, disk: Disk) -> None:
    """It gets its name when it is on the disk; with the name first, a cut would leave an empty file that counts."""
    store = CheckpointStore(tmp_path)
    named: list[bool] = []
    sync = disk.sync

    def look(fd: int) -> None:
        named.append(any(path.name[0] != "." for path in (tmp_path / "objects").rglob("*") if path.is_file()))
        sync(fd)

    disk.sync = look
    store.keep(b"bytes")
    assert named == [False]
