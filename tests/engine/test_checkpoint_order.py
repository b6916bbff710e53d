"""A file is saved and logged before it is replaced; a file that changes at that moment is left alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odin.checkpoints.rewind
import odin.tools.file_edit
from odin.core.event import Redone, Rewound
from odin.core.op import Redo, Rewind
from odin.testing import call, say

from .conftest import Start, Talk


def call_before(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, act: Callable[[], object]) -> None:
    """Call `act` right before each call of a function of the module."""
    original = getattr(module, name)

    def wrapped(*args: Any) -> Any:
        act()
        return original(*args)

    monkeypatch.setattr(module, name, wrapped)


async def edit_file(start: Start, file: Path) -> Talk:
    file.write_text("old\n")
    read = call("Read", {"file_path": str(file)})
    edit = call("EditTool", {"file_path": str(file), "old_string": "old", "new_string": "new"})
    talk = await start([read, edit, say("done")])
    await talk.say("change it")
    assert file.read_text() == "new\n"
    return talk


async def rewind_or_redo(talk: Talk, op: Rewind | Redo) -> Rewound | Redone:
    events = talk.client.stream_events()
    await talk.client.submit(op)
    async for envelope in events:
        if isinstance(envelope.event, Rewound | Redone):
            return envelope.event
    raise AssertionError("the events ended")


async def test_checkpoint_is_logged_before_a_file_changes(
    start: Start, workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = workspace / "a"
    known: list[tuple[str, int, int]] = []

    def look() -> None:
        log = next((home / ".local/state/odin/sessions").glob("*/*/main.jsonl")).read_text()
        known.append((file.read_text(), log.count("CheckpointSaved"), log.count("FilesChanged")))

    call_before(monkeypatch, odin.tools.file_edit, "replace_file", look)
    call_before(monkeypatch, odin.checkpoints.rewind, "restore_files", look)
    talk = await edit_file(start, file)
    await rewind_or_redo(talk, Rewind("p1"))
    await rewind_or_redo(talk, Redo())
    assert known == [("old\n", 1, 0), ("new\n", 2, 1), ("old\n", 3, 1)]


async def test_file_changed_during_the_rewind_is_left_alone(
    start: Start, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = workspace / "a"
    talk = await edit_file(start, file)
    call_before(monkeypatch, odin.checkpoints.rewind, "restore_files", lambda: file.write_text("mine\n"))
    rewound = await rewind_or_redo(talk, Rewind("p1"))
    assert file.read_text() == "mine\n"
    assert [file.reason for file in rewound.skipped_files] == ["it is being changed by another program"]
    assert rewound.changes == ()
