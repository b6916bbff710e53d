"""A sub-agent in a worktree of its own: its work comes back as a diff that the owner applies."""

import json
import subprocess
from pathlib import Path

from odin.core.event import FilesChanged, Warned
from odin.testing import Turn, call, say

from .conftest import Start
from .test_team import Cast, complete, delegate, mail_in, settle

TYPES = json.dumps({"iso": {"description": "works apart", "prompt": "Work.", "isolation": "worktree"}})


def make_repository(folder: Path) -> None:
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=folder, check=True)


def iso(name: str) -> Turn:
    return delegate(name, agent_type="iso")


async def test_its_changes_stay_apart_until_they_are_applied(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    make_repository(workspace)
    write = call("WriteFile", {"file_path": "new.txt", "content": "made apart\n"})
    cast = Cast([iso("a"), say("ok"), call("Apply", {"task_id": "adhoc-1"}, id="apply"), say("merged")], a=[])
    cast.tasks["a"] = [write, complete("wrote new.txt")]
    talk = await start(cast, agents=TYPES)
    await talk.say("go")
    await settle(talk.client)
    assert (workspace / "new.txt").read_text() == "made apart\n"
    told = next(seen for seen in talk.server.requests if "wrote new.txt" in mail_in(seen))
    assert "1 file changed, +1" in mail_in(told)
    assert "tasks/adhoc-1.diff" in mail_in(told)
    assert "Apply" in told.tool_names
    applied = talk.server.requests[-1].results["apply"]
    assert "Applied 1 file to the project." in applied
    assert "Removed worktree" in applied
    assert [change.after.path for event in await talk.heard_until_now(FilesChanged) for change in event.changes][-1]
    trees = subprocess.run(["git", "worktree", "list"], cwd=workspace, capture_output=True, text=True, check=True)
    assert len(trees.stdout.splitlines()) == 1
    assert talk.server.rejected == []


async def test_an_unapplied_worktree_is_kept_and_named(start: Start, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")
    make_repository(workspace)
    edit = call("WriteFile", {"file_path": "new.txt", "content": "x\n"})
    cast = Cast([iso("a"), say("ok"), say("I see")], a=[edit, complete("done")])
    talk = await start(cast, agents=TYPES)
    await talk.say("go")
    await settle(talk.client)
    assert not (workspace / "new.txt").exists()
    await talk.until_quiet()
    assert any("Kept worktree" in event.text for event in talk.all(Warned))


async def test_without_git_the_task_is_refused_with_a_sentence(start: Start, workspace: Path) -> None:
    talk = await start(Cast([iso("a"), say("I see")]), agents=TYPES)
    await talk.say("go")
    assert "git" in talk.server.requests[-1].results["call-a"]
    assert [task.state for task in (await talk.client.snapshot()).tasks] == ["failed"]
