"""An agent's worktree: it starts from the project as it is, and its work comes back whole, merged or reported."""

import os
from pathlib import Path

import pytest

from odin.app.agent_worktree import AgentWorktree, AgentWorktrees, AppliedWork
from odin.app.worktrees import Worktrees
from odin.checkpoints.rewind import RestoreOutcome, RestorePlan, write_planned_files
from odin.checkpoints.store import CheckpointStore
from odin.core.errors import UsageError

from . import tree as trees_kit
from .tree import tree_of


def git(folder: Path, *args: str) -> str:
    return trees_kit.git(folder, "-c", "user.name=a", "-c", "user.email=a@b.c", *args)


class Yard:
    """A repository with a commit and uncommitted changes, and its agents' worktrees."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root = root
        git(root, "init", "-q", "-b", "main")
        (root / ".gitignore").write_text("*.log\n")
        (root / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 21)))
        (root / "b.txt").write_text("b\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "first")
        self.trees = Worktrees.from_folder({**os.environ, "ODIN_STATE_DIR": str(state)}, str(root))
        self.worktrees = AgentWorktrees(self.trees)
        self.store = CheckpointStore(state / "store")

    async def create(self, name: str = "s1-agent-1") -> tuple[AgentWorktree, Path]:
        tree = await self.worktrees.create(name)
        return tree, Path(tree.root)

    async def apply(self, tree: AgentWorktree, *left_out: str) -> AppliedWork:
        async def write(plan: RestorePlan) -> RestoreOutcome:
            return write_planned_files(plan, self.store)

        return await tree.apply(write, self.store, lambda path: "not now" if Path(path).name in left_out else "")


@pytest.fixture
def yard(workspace: Path, home: Path) -> Yard:
    return Yard(workspace, home / "state")


async def test_it_starts_from_the_project_as_it_is_and_changes_nothing_in_it(yard: Yard) -> None:
    (yard.root / "b.txt").write_text("uncommitted\n")
    (yard.root / "new.txt").write_text("untracked\n")
    (yard.root / "x.log").write_text("ignored\n")
    git(yard.root, "add", "b.txt")
    before = (git(yard.root, "status", "--porcelain"), git(yard.root, "log", "--format=%H", "main"))
    tree, root = await yard.create()
    assert {"a.txt", "b.txt", "new.txt"} <= set(os.listdir(root)) and not (root / "x.log").exists()
    assert (root / "b.txt").read_text() == "uncommitted\n"
    assert before == (git(yard.root, "status", "--porcelain"), git(yard.root, "log", "--format=%H", "main"))
    assert (await tree.collect()).describe() == "no changes"
    end = await tree.finish()
    assert (end.is_removed, end.branch, root.exists()) == (True, "", False)
    assert git(yard.root, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


@pytest.mark.slow
async def test_everything_comes_back_as_one_diff(yard: Yard) -> None:
    tree, root = await yard.create()
    (root / "b.txt").write_text("committed\n")
    git(root, "commit", "-q", "-am", "the agent's commit")
    (root / "a.txt").write_text((root / "a.txt").read_text().replace("line 2\n", "line two\n"))
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/c.bin").write_bytes(b"\0\1\2")
    (root / "deep/run.sh").write_text("#!/bin/sh\n")
    (root / "deep/run.sh").chmod(0o755)
    (root / "link").symlink_to("a.txt")
    diff = await tree.collect()
    assert diff.describe() == "5 files changed, +4 −2: a.txt, b.txt, deep/er/c.bin, deep/run.sh, link"
    assert "+line two" in diff.text and "+committed" in diff.text and "GIT binary patch" in diff.text
    kept = await tree.finish()
    assert (kept.is_removed, kept.unapplied) == (False, 5)
    (listed,) = await yard.trees.list_worktrees()
    assert (listed.name, listed.unapplied) == ("s1-agent-1", 5)
    again = await yard.worktrees.open("s1-agent-1")  # as another process would
    work = await yard.apply(again)
    assert (len(work.applied), work.is_complete) == (5, True)
    own, theirs = tree_of(yard.root), tree_of(root)
    assert own == theirs
    assert git(yard.root, "log", "--format=%s", "main") == "first\n"
    assert (await yard.apply(again)).applied == ()
    end = await again.finish()
    assert (end.is_removed, end.branch) == (True, "odin/s1-agent-1"), "the agent's commit stays on its branch"
    assert await yard.trees.list_worktrees() == []


async def test_a_change_of_the_same_size_in_the_same_second_is_seen(yard: Yard) -> None:
    git(yard.root, "config", "core.trustctime", "false")
    git(yard.root, "config", "core.checkstat", "minimal")
    tree, root = await yard.create()
    file, index = root / "b.txt", Path(git(root, "rev-parse", "--path-format=absolute", "--git-path", "index").strip())
    at = int(file.stat().st_mtime) - 100
    os.utime(file, (at, at))
    git(root, "update-index", "--refresh")
    file.write_text("c\n")
    for changed in (file, index):
        os.utime(changed, (at, at))
    assert (await tree.collect()).describe() == "1 file changed, +1 −1: b.txt"


async def test_a_three_way_merge_with_what_the_project_changed_meanwhile(yard: Yard) -> None:
    for name in ("gone", "edited", "both-gone", "same"):
        (yard.root / name).write_text("x\n")
    tree, root = await yard.create()
    for folder, number, word in ((root, 2, "agent"), (yard.root, 18, "project")):
        (folder / "a.txt").write_text((folder / "a.txt").read_text().replace(f"line {number}\n", f"{word}\n"))
        (folder / "b.txt").write_text(f"{word}\n")
        (folder / "added").write_text(f"{word}\n")
        (folder / "binary").write_bytes(f"\0{word}".encode())
        (folder / "both-gone").unlink()
        (folder / "same").write_text("the same\n")
    (root / "edited").unlink()
    (yard.root / "edited").write_text("edited\n")
    (yard.root / "gone").unlink()
    (root / "gone").write_text("edited\n")
    (root / "fine").write_text("fine\n")
    work = await yard.apply(tree)
    merged = (yard.root / "a.txt").read_text()
    assert "agent\n" in merged and "project\n" in merged and "<<<" not in merged
    assert (work.applied, work.conflicts) == (("a.txt", "fine"), ("added", "b.txt"))
    assert (yard.root / "b.txt").read_text() == "<<<<<<< project\nproject\n=======\nagent\n>>>>>>> agent\n"
    assert {file.path: file.reason.partition(";")[0] for file in work.skipped} == {
        "binary": "both changed it, and it cannot be merged",
        "edited": "the agent removed it, and the project changed it meanwhile",
        "gone": "the project removed it meanwhile",
    }
    assert (yard.root / "binary").read_bytes() == b"\0project" and (yard.root / "edited").read_text() == "edited\n"
    assert "Conflict: b.txt was changed in both;" in work.describe()
    end = await tree.finish()
    assert not end.is_removed and (root / "gone").read_text() == "edited\n", "nothing is lost"


@pytest.mark.slow
async def test_only_the_wanted_files_are_merged(yard: Yard) -> None:
    tree, root = await yard.create()
    for name in ("late", "ok"):
        (root / name).write_text("x\n")
    work = await yard.apply(tree, "late")
    assert work.applied == ("ok",)
    assert work.describe().endswith("Skipped: late (not now).")
    assert not (await tree.finish()).is_removed
    assert (await yard.apply(tree)).applied == ("late",)
    assert (await tree.finish()).is_removed


async def test_a_repository_in_the_worktree_is_not_lost(yard: Yard) -> None:
    tree, root = await yard.create()
    for name in ("empty", "own"):
        git(root, "init", "-q", name)
        (root / name / "f").write_text("f\n")
    git(root / "own", "add", "-A")
    git(root / "own", "commit", "-q", "-m", "first")
    (root / "ok").write_text("ok\n")
    assert (await tree.collect()).describe() == "2 files changed, +2 −0: ok, own; not in the diff: empty"
    work = await yard.apply(tree)
    assert (work.applied, [file.path for file in work.skipped]) == (("ok",), ["own", "empty"])
    end = await tree.finish()
    assert (end.is_removed, end.unapplied) == (False, 3) and (root / "empty/f").exists() and (root / "own/f").exists()


async def test_links_lead_nowhere_else(yard: Yard, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (yard.root / "folder").mkdir()
    (yard.root / "folder/f").write_text("x\n")
    tree, root = await yard.create()
    (root / "folder/f").write_text("by the agent\n")
    (yard.root / "folder/f").unlink()
    (yard.root / "folder").rmdir()
    (yard.root / "folder").symlink_to(outside)
    work = await yard.apply(tree)
    assert (work.applied, len(work.skipped), list(outside.iterdir())) == ((), 1, [])


async def test_git_reads_no_configuration_that_the_agent_made(yard: Yard, tmp_path: Path) -> None:
    tree, root = await yard.create()
    evil = tmp_path / "evil"
    git(tmp_path, "init", "-q", str(evil))
    git(evil, "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    (root / ".git").write_text(f"gitdir: {evil}/.git\n")
    (root / "b.txt").write_text("changed\n")
    assert [file.path for file in (await tree.collect()).files] == ["b.txt"]
    assert (await yard.apply(tree)).applied == ("b.txt",)
    assert not (tmp_path / "ran").exists()


async def test_several_of_one_name_and_a_project_in_a_subfolder(yard: Yard, home: Path) -> None:
    _, first = await yard.create()
    _, second = await yard.create()
    assert (first.name, second.name) == ("s1-agent-1", "s1-agent-1.2")
    (yard.root / "pkg/src").mkdir(parents=True)
    (yard.root / "pkg/odinconfig.json").write_text("{}")
    (yard.root / "pkg/src/f").write_text("f\n")
    env = {**os.environ, "ODIN_STATE_DIR": str(home / "state")}
    trees = Worktrees.from_folder(env, str(yard.root / "pkg"))
    tree = await AgentWorktrees(trees, str(yard.root / "pkg/src")).create("inner")
    relative = os.path.relpath(trees.root, yard.root)
    assert tree.root == os.path.normpath(Path(tree.path) / relative)
    assert (tree.cwd, Path(tree.cwd, "f").read_text()) == (f"{tree.path}/pkg/src", "f\n")


async def test_folders_that_cannot_have_one_are_named(workspace: Path, home: Path) -> None:
    trees = Worktrees.from_folder({**os.environ, "ODIN_STATE_DIR": str(home / "state")}, str(workspace))
    with pytest.raises(UsageError, match="not in a git repository"):
        await AgentWorktrees(trees).create("x")
    git(workspace, "init", "-q")
    with pytest.raises(UsageError, match="no commit yet"):
        await AgentWorktrees(trees).create("x")
    git(workspace, "commit", "-q", "--allow-empty", "-m", "first")
    for name in ("../x", "a b", "-x"):
        with pytest.raises(UsageError, match="Invalid worktree name"):
            await AgentWorktrees(trees).create(name)
    await trees.add("plain")
    with pytest.raises(UsageError, match="not made for an agent"):
        await AgentWorktrees(trees).open("plain")
    with pytest.raises(UsageError, match="No worktree other"):
        await AgentWorktrees(trees).open("other")
