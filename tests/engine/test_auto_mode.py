"""The permission mode `auto` in a session: commands run unasked in the sandbox, and an answer can switch to it."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAnswered, PermissionAsked, ToolEnded
from odin.core.errors import UsageError
from odin.core.event import PermissionModeChanged, Warned
from odin.core.op import AnswerPermission, SetPermissionMode
from odin.testing import call, say
from tests.sandbox.sandboxes import skip_without_sandbox

from .conftest import Start
from .test_rewind import rewind

ASKING: dict[str, Any] = {"yes": False, "can_ask": True}
OFF = {"sandbox": {"backend": "off"}}


def run(command: str, id: str = "r") -> Any:
    return call("ExecuteCommand", {"command": command}, id=id)


def write(path: Path, id: str = "w") -> Any:
    return call("WriteFile", {"file_path": str(path), "content": "x\n"}, id=id)


async def start_auto(start: Start, script: list[Any], **more: Any) -> Any:
    skip_without_sandbox("auto")
    return await start(script, permission_mode="auto", **ASKING, **more)


async def test_commands_and_edits_run_unasked_within_the_project(start: Start, workspace: Path) -> None:
    outside = workspace.parent / "canary"
    (workspace / "escape.py").write_text(f"open('{outside}', 'w')")
    script = [
        write(workspace / "a.txt", "1"),
        run('python3 -c \'open("made", "w").write("x")\'', "2"),
        run("python3 escape.py", "3"),
        say("ok"),
    ]
    talk = await start_auto(start, script)
    talk.answers = [AnswerPermission("", False)]
    await talk.say("go")
    assert [event.status for event in talk.all(ToolEnded)] == ["success", "success", "error"]
    assert (workspace / "a.txt").exists() and (workspace / "made").exists() and not outside.exists()
    assert [asked.unsandboxed for asked in talk.all(PermissionAsked)] == [True]


async def test_command_that_deletes_files_asks_nothing_and_can_be_undone(start: Start, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src/main.py").write_text("x = 1\n")
    talk = await start_auto(start, [run("rm -rf src"), say("ok")])
    await talk.say("go")
    assert not (workspace / "src").exists()
    assert not talk.all(PermissionAsked)
    await rewind(talk)
    assert (workspace / "src/main.py").read_text() == "x = 1\n"


async def test_answer_can_switch_the_permission_mode(start: Start, workspace: Path) -> None:
    talk = await start([write(workspace / "a", "1"), write(workspace / "b", "2"), say("ok")], **ASKING)
    talk.answers = [AnswerPermission("", True, permission_mode="acceptEdits")]
    await talk.say("go")
    (asked,) = talk.all(PermissionAsked)
    assert asked.permission_modes[0] == "acceptEdits"
    assert [event.mode for event in talk.all(PermissionModeChanged)] == ["acceptEdits"]
    assert (await talk.client.get_info()).permission_mode == "acceptEdits"
    assert (workspace / "a").exists() and (workspace / "b").exists()


@pytest.mark.parametrize("mode", ["bypassPermissions", "auto", "nonsense"])
async def test_a_mode_that_was_not_offered_is_not_set(start: Start, workspace: Path, mode: str) -> None:
    talk = await start([run("git push"), say("ok")], **ASKING)
    talk.answers = [AnswerPermission("", True, permission_mode=mode), AnswerPermission("", False)]
    await talk.say("go")
    assert not talk.all(PermissionModeChanged)
    assert any("was not offered" in event.text for event in talk.all(Warned))
    assert talk.all(PermissionAnswered)[0].allowed


async def test_denial_does_not_switch_the_permission_mode(start: Start, workspace: Path) -> None:
    talk = await start([write(workspace / "a"), say("ok")], **ASKING)
    talk.answers = [AnswerPermission("", False, permission_mode="acceptEdits")]
    await talk.say("go")
    assert not talk.all(PermissionModeChanged)


async def test_without_a_sandbox_the_mode_is_refused_with_a_reason(start: Start, workspace: Path) -> None:
    talk = await start([run("touch made"), say("ok")], config=OFF, **ASKING)
    with pytest.raises(UsageError, match=r"needs a sandbox, and the sandbox is off \(sandbox.backend\)"):
        await talk.client.submit(SetPermissionMode("auto"))
    assert (await talk.client.get_info()).permission_mode == "default"
    talk.answers = [AnswerPermission("", False)]
    await talk.say("go")
    (asked,) = talk.all(PermissionAsked)
    assert asked.permission_modes == ()


async def test_auto_without_a_sandbox_asks_before_commands(start: Start, workspace: Path) -> None:
    talk = await start([run("touch made"), say("ok")], config=OFF, permission_mode="auto", **ASKING)
    assert any("auto needs a sandbox" in warning for warning in (await talk.client.get_info()).warnings)
    talk.answers = [AnswerPermission("", False)]
    await talk.say("go")
    assert "sandboxed commands only" in talk.all(PermissionAsked)[0].reason
    assert not (workspace / "made").exists()
