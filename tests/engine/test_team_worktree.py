"""A sub-agent in its own worktree: its owner applies its work as a diff."""

import asyncio
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.app.team import TeamFactory
from odin.core.call_events import PermissionAsked
from odin.core.event import AgentEnded, FilesChanged, Warned, WorkEnded
from odin.core.op import AnswerPermission, Prompt, Rewind
from odin.core.team import TaskRecord
from odin.testing import Turn, call, say
from tests.waiting import TimeLimit

from .conftest import Start, Talk
from .test_team import TeamScript, complete, delegate, mail_in, settle

pytestmark = pytest.mark.slow  # git makes a worktree for each

TYPES = json.dumps({"iso": {"description": "works apart", "prompt": "Work.", "isolation": "worktree"}})


def make_repository(folder: Path) -> None:
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=folder, check=True)


def delegate_isolated(name: str) -> Turn:
    return delegate(name, agent_type="iso")


async def test_worktree_changes_reach_the_project_only_when_applied(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    make_repository(workspace)
    write = call("WriteFile", {"file_path": "new.txt", "content": "made apart\n"})
    script = TeamScript(
        [delegate_isolated("a"), say("ok"), call("Apply", {"task_id": "adhoc-1"}, id="apply"), say("merged")], a=[]
    )
    script.tasks["a"] = [write, complete("wrote new.txt")]
    talk = await start(script, agent_definitions=TYPES)
    await talk.say("go")
    await settle(talk.client)
    assert (workspace / "new.txt").read_text() == "made apart\n"
    request = next(seen for seen in talk.server.requests if "wrote new.txt" in mail_in(seen))
    assert "1 file changed, +1" in mail_in(request)
    assert "tasks/adhoc-1.diff" in mail_in(request)
    assert "Apply" in request.tool_names
    applied = talk.server.requests[-1].results["apply"]
    assert "Applied 1 file to the project." in applied
    assert "Removed worktree" in applied
    last = (await talk.recorded_events(FilesChanged))[-1]
    assert [change.after.path for change in last.changes] == [str(workspace / "new.txt")]
    trees = subprocess.run(["git", "worktree", "list"], cwd=workspace, capture_output=True, text=True, check=True)
    assert len(trees.stdout.splitlines()) == 1
    assert talk.server.rejected == []
    await talk.client.submit(Rewind("p1", chat=False))
    assert not (workspace / "new.txt").exists()


async def delegate_and_apply(start: Start, workspace: Path, **options: Any) -> Talk:
    """Let a sub-agent write two files in its worktree and the main agent apply them."""
    (workspace / "a.txt").write_text("one\n")
    make_repository(workspace)
    (workspace / "sub").mkdir()
    files = [("a.txt", "two\n"), ("sub/secret.txt", "hidden\n")]
    writes = [call("WriteFile", {"file_path": path, "content": text}) for path, text in files]
    script = TeamScript(
        [delegate_isolated("a"), say("ok"), call("Apply", {"task_id": "adhoc-1"}, id="apply"), say("I see")]
    )
    script.tasks["a"] = [call("Read", {"file_path": "a.txt"}), *writes, complete("done")]
    talk = await start(script, **{"agent_definitions": TYPES, **options})
    await talk.say("go")
    return talk


async def test_apply_asks_for_approval_with_the_diff(start: Start, workspace: Path) -> None:
    """The edits in the worktree are not asked about: their effect on the project is."""
    talk = await delegate_and_apply(start, workspace, yes=False, can_ask=True)
    await talk.until_live(PermissionAsked)
    (asked,) = talk.all(PermissionAsked)
    assert asked.name == "Apply"
    assert asked.preview.startswith("--- a/a.txt\n+++ b/a.txt\n@@ ") and "diff --git" not in asked.preview
    assert {"-one", "+two", "+hidden"} <= set(asked.preview.splitlines())
    assert (workspace / "a.txt").read_text() == "one\n"
    await talk.client.submit(AnswerPermission(asked.ask_id, True))
    await settle(talk.client)
    assert (workspace / "sub/secret.txt").read_text() == "hidden\n"


@pytest.mark.parametrize(
    ("limit", "options"),
    [
        ({"permissionMode": "default"}, {}),
        ({"rules": {"WriteFile": "ask"}}, {}),
        ({}, {"config": {"rules": {"WriteFile": "ask"}}}),
    ],
    ids=["permission mode of the type", "rule of the type", "rule of the user"],
)
async def test_an_edit_in_a_worktree_that_is_asked_about_names_it(
    start: Start, workspace: Path, limit: dict[str, Any], options: dict[str, Any]
) -> None:
    types = json.dumps({"iso": {**json.loads(TYPES)["iso"], **limit}})
    talk = await delegate_and_apply(
        start, workspace, yes=False, can_ask=True, **{"agent_definitions": types, **options}
    )
    await talk.until_live(PermissionAsked)
    (asked,) = talk.all(PermissionAsked)
    assert (asked.name, asked.title) == ("WriteFile", "Write a.txt in its worktree")


async def test_commands_in_a_worktree_are_asked_about_as_before(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    make_repository(workspace)
    run = call("ExecuteCommand", {"command": "touch made.txt"})
    script = TeamScript([delegate_isolated("a"), say("ok"), say("I see")], a=[run, complete("done")])
    talk = await start(script, agent_definitions=TYPES, yes=False, can_ask=True)
    await talk.say("go")
    await talk.until_live(PermissionAsked)
    assert [asked.name for asked in talk.all(PermissionAsked)] == ["ExecuteCommand"]


@pytest.mark.parametrize("is_asked", [True, False], ids=["approved", "reported"])
async def test_apply_writes_what_was_shown(start: Start, workspace: Path, is_asked: bool) -> None:
    """The worktree changes while the request is open, or, where nothing is asked, after the report of the task."""
    (workspace / "a.txt").write_text("one\n")
    make_repository(workspace)
    script = TeamScript([delegate_isolated("a"), say("ok"), say("I see")])
    script.tasks["a"] = [call("WriteFile", {"file_path": "new.txt", "content": "shown\n"}), complete("done")]
    asking: dict[str, Any] = {"yes": False, "can_ask": True, "allowed_tools": ("WriteFile",)}
    talk = await start(script, agent_definitions=TYPES, **(asking if is_asked else {}))
    await talk.say("go")
    await settle(talk.client)
    listed = subprocess.run(["git", "worktree", "list"], cwd=workspace, capture_output=True, text=True, check=True)
    file = Path(listed.stdout.splitlines()[1].split()[0], "new.txt")
    script.main[:] = [call("Apply", {"task_id": "adhoc-1"}, id="apply"), say("merged")]
    if is_asked:
        await talk.submit("apply it")
        await talk.until_live(PermissionAsked)
        (asked,) = talk.all(PermissionAsked)
        assert "+shown" in asked.preview
        file.write_text("swapped\n")
        await talk.client.submit(AnswerPermission(asked.ask_id, True))
    else:
        file.write_text("swapped\n")
        await talk.submit("apply it")
    await settle(talk.client)
    result = talk.server.requests[-1].results["apply"]
    assert "new.txt (it was changed after its diff was shown" in result
    assert "Kept worktree" in result
    assert (workspace / "new.txt").read_text() == "shown\n"
    assert file.read_text() == "swapped\n"


async def test_deny_rules_for_paths_hold_for_the_apply_tool(start: Start, workspace: Path) -> None:
    talk = await delegate_and_apply(start, workspace, disallowed_tools=(f"Edit({workspace}/sub/secret.txt)",))
    await settle(talk.client)
    assert "sub/secret.txt" in talk.server.requests[-1].results["apply"]
    assert (workspace / "a.txt").read_text() == "one\n"


async def test_unapplied_worktree_is_kept_and_reported(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    make_repository(workspace)
    edit = call("WriteFile", {"file_path": "new.txt", "content": "x\n"})
    script = TeamScript([delegate_isolated("a"), say("ok"), say("I see")], a=[edit, complete("done")])
    talk = await start(script, agent_definitions=TYPES)
    await talk.say("go")
    await settle(talk.client)
    assert not (workspace / "new.txt").exists()
    await talk.until_live(WorkEnded)
    (kept,) = (item for item in talk.heard if isinstance(item.event, Warned))
    assert kept.agent == "iso-1" and "Its worktree is kept, with 1 file to apply: /" in str(kept.event)
    ended = next(item.seq for item in talk.heard if isinstance(item.event, AgentEnded))
    assert kept.seq >= ended, "after the result"


async def test_task_fails_without_a_git_repository(start: Start, workspace: Path) -> None:
    talk = await start(TeamScript([delegate_isolated("a"), say("I see")]), agent_definitions=TYPES)
    await talk.say("go")
    assert "git" in talk.server.requests[-1].results["call-a"]
    assert [task.state for task in (await talk.client.snapshot()).tasks] == ["failed"]


async def test_prompt_during_the_worktree_report_is_answered_before_the_task_ends(
    start: Start, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a.txt").write_text("one\n")
    make_repository(workspace)
    is_reading, gate, is_read = asyncio.Event(), asyncio.Event(), threading.Event()
    read = TeamFactory.report_work

    async def read_slowly(factory: TeamFactory, task: TaskRecord) -> tuple[str, tuple[str, ...]]:
        is_reading.set()
        await gate.wait()
        try:
            return await read(factory, task)
        finally:
            is_read.set()

    monkeypatch.setattr(TeamFactory, "report_work", read_slowly)
    script = TeamScript(
        [delegate_isolated("a"), say("ok"), say("I see")],
        a=[complete("done"), complete("done with more").hold(is_read)],
    )
    talk = await start(script, agent_definitions=TYPES)
    await talk.say("go")
    async with TimeLimit():
        await is_reading.wait()
    await talk.client.submit(Prompt("mine", "one more thing", agent="iso-1"))
    gate.set()
    await settle(talk.client)
    (task,) = (await talk.client.snapshot()).tasks
    assert (task.state, task.summary) == ("completed", "done with more")
