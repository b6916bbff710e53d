"""Temporary files: commands have their own, and tools and commands see each other's."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked, ToolEnded
from odin.core.event import FilesChanged
from odin.core.op import AnswerPermission
from odin.sandbox.temporary_files import TemporaryFiles
from odin.testing import call, say
from tests.sandbox.processes import list_open_files
from tests.waiting import wait_until

from .conftest import Start
from .test_command_views import ASKING, run


@pytest.fixture
def name() -> Iterator[str]:
    """A name that no file in /tmp has, of which none is left."""
    name = f"odin-test-{os.urandom(6).hex()}"
    yield f"/tmp/{name}"
    for path in Path("/tmp").glob(f"{name}*"):
        path.unlink()


def edit(path: str, old: str, new: str) -> Any:
    return call("Edit", {"file_path": path, "old_string": old, "new_string": new})


async def test_tools_act_on_what_commands_wrote_in_a_temporary_folder(start: Start, name: str, workspace: Path) -> None:
    calls = [
        run(f"echo one > {name}"),
        call("Read", {"file_path": name}),
        edit(name, "one", "two"),
        run(f"cat {name}; ln -s {workspace}/a.txt {name}.link"),
        call("Read", {"file_path": f"{name}.link"}),
    ]
    talk = await start([*calls, say("ok")], **ASKING)
    talk.answers = [AnswerPermission("", True)]
    await talk.say("go")
    results = talk.all(ToolEnded)
    assert [result.status for result in results] == ["success"] * 4 + ["error"]
    assert "two" in results[3].text
    assert f"{name}.link does not exist" in results[4].text  # the link leads out of what commands wrote
    assert [asked.call_id for asked in talk.all(PermissionAsked)] == [results[4].call_id]
    assert name in results[2].text
    assert not any(event.changes for event in talk.all(FilesChanged)), (
        "they go with the session, so nothing is left to undo"
    )
    assert not Path(name).exists()


async def test_commands_see_temporary_files_that_tools_used(start: Start, name: str) -> None:
    Path(f"{name}.log").write_text("crash\n")
    calls = [
        run(f"cat {name}.log"),
        call("Read", {"file_path": f"{name}.log"}),
        call("Write", {"file_path": name, "content": "one\n"}),
        edit(name, "one", "two"),
        run(f"cat {name}.log {name}; echo three >> {name}"),
        call("Read", {"file_path": name}),
        call("Delete", {"paths": [f"{name}.log"], "reason": "done"}),
        run(f"ls {name}*"),
    ]
    talk = await start([*calls, say("ok")], **ASKING)
    talk.answers = [AnswerPermission("", True)] * 4
    await talk.say("go")
    texts = [result.text for result in talk.all(ToolEnded)]
    assert f"do not see {name}.log of this machine. Read shows it" in texts[0]
    assert texts[4] == "crash\ntwo"
    assert "three" in texts[5]
    assert texts[7] == name
    assert Path(name).read_text() == "two\n"  # what a tool writes is real, what commands write is their own
    assert len(talk.all(PermissionAsked)) == 4  # reading and changing what is outside the project


async def test_no_link_of_a_command_redirects_what_it_is_shown(start: Start, name: str, workspace: Path) -> None:
    Path(f"{name}.log").write_text("crash\n")
    (workspace / "kept.txt").write_text("kept\n")
    calls = [
        run(f"ln -s {workspace}/kept.txt {name}.log"),
        call("Read", {"file_path": f"{name}.log"}),
        run(f"cat {name}.log"),
    ]
    talk = await start([*calls, say("ok")], **ASKING)
    talk.answers = [AnswerPermission("", True)]
    await talk.say("go")
    assert (workspace / "kept.txt").read_text() == "kept\n"
    assert "crash" in talk.all(ToolEnded)[2].text


def test_sharing_a_folder_leaves_nothing_open(tmp_path: Path) -> None:
    for name in ("machine/folder", "commands"):
        (tmp_path / name).mkdir(parents=True)
    files = TemporaryFiles({f"{tmp_path}/machine": f"{tmp_path}/commands"}, ())
    before = list_open_files()
    files.share(f"{tmp_path}/machine/folder")
    wait_until(lambda: not list_open_files() - before)
