"""Worktrees of agents: they start with the current files of the project; their changes are merged back or reported."""

import os
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odin.app.agent_worktree import AgentWorktree, AgentWorktrees, AppliedWork
from odin.app.worktrees import Worktrees, open_worktrees
from odin.checkpoints.rewind import RestoreOutcome, RestorePlan, write_planned_files
from odin.checkpoints.store import CheckpointStore
from odin.config.paths import make_environment
from odin.core.errors import UsageError

from . import tree as trees_kit
from .tree import read_tree

pytestmark = pytest.mark.slow  # git makes a worktree for each


def git(folder: Path, *args: str) -> str:
    return trees_kit.git(folder, "-c", "user.name=a", "-c", "user.email=a@b.c", *args)


class AgentRepository:
    """A repository with one commit, and the worktrees of its agents."""

    def __init__(self, root: Path, trees: Worktrees, state: Path) -> None:
        self.root = root
        git(root, "init", "-q", "-b", "main")
        (root / ".gitignore").write_text("*.log\n")
        (root / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 21)))
        (root / "b.txt").write_text("b\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "first")
        self.trees = trees
        self.worktrees = AgentWorktrees(trees)
        self.store = CheckpointStore(state / "store")

    async def create(self, name: str = "s1-agent-1") -> tuple[AgentWorktree, Path]:
        tree = await self.worktrees.create(name)
        return tree, Path(tree.root)

    async def apply(self, tree: AgentWorktree, *left_out: str, shown: str = "") -> AppliedWork:
        async def write(plan: RestorePlan) -> RestoreOutcome:
            return write_planned_files(plan, self.store)

        skip = dict.fromkeys(left_out, "not now")
        return await tree.apply(write, self.store, lambda path: skip.get(Path(path).name, ""), shown)


@pytest.fixture
async def repo(workspace: Path, home: Path) -> AsyncIterator[AgentRepository]:
    state = home / "state"
    async with open_worktrees(make_environment(cwd=str(workspace), state_dir=state)) as trees:
        yield AgentRepository(workspace, trees, state)


async def test_worktree_starts_with_uncommitted_files_and_leaves_the_project_alone(repo: AgentRepository) -> None:
    (repo.root / "b.txt").write_text("uncommitted\n")
    (repo.root / "new.txt").write_text("untracked\n")
    (repo.root / "x.log").write_text("ignored\n")
    git(repo.root, "add", "b.txt")
    before = (git(repo.root, "status", "--porcelain"), git(repo.root, "log", "--format=%H", "main"))
    tree, root = await repo.create()
    assert {"a.txt", "b.txt", "new.txt"} <= set(os.listdir(root)) and not (root / "x.log").exists()
    assert (root / "b.txt").read_text() == "uncommitted\n"
    assert before == (git(repo.root, "status", "--porcelain"), git(repo.root, "log", "--format=%H", "main"))
    assert (await tree.collect_diff()).describe() == "no changes"
    end = await tree.finish()
    assert (end.is_removed, end.branch, root.exists()) == (True, "", False)
    assert git(repo.root, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


async def test_all_changes_come_back_as_one_diff(repo: AgentRepository) -> None:
    tree, root = await repo.create()
    (root / "b.txt").write_text("committed\n")
    git(root, "commit", "-q", "-am", "the agent's commit")
    (root / "a.txt").write_text((root / "a.txt").read_text().replace("line 2\n", "line two\n"))
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/c.bin").write_bytes(b"\0\1\2")
    (root / "deep/run.sh").write_text("#!/bin/sh\n")
    (root / "deep/run.sh").chmod(0o755)
    (root / "link").symlink_to("a.txt")
    diff = await tree.collect_diff()
    assert diff.describe() == "5 files changed, +4 −2: a.txt, b.txt, deep/er/c.bin, deep/run.sh, link"
    assert "+line two" in diff.text and "+committed" in diff.text and "GIT binary patch" in diff.text
    kept = await tree.finish()
    assert (kept.is_removed, kept.unapplied) == (False, 5)
    (listed,) = await repo.trees.list_worktrees()
    assert (listed.name, listed.unapplied) == ("s1-agent-1", 5)
    again = await repo.worktrees.open("s1-agent-1")  # as another process would
    work = await repo.apply(again)
    assert (len(work.applied), work.is_complete) == (5, True)
    own, theirs = read_tree(repo.root), read_tree(root)
    assert own == theirs
    assert git(repo.root, "log", "--format=%s", "main") == "first\n"
    assert (await repo.apply(again)).applied == ()
    end = await again.finish()
    assert (end.is_removed, end.branch) == (True, "odin/s1-agent-1"), "the agent's commit stays on its branch"
    assert await repo.trees.list_worktrees() == []


async def test_a_change_of_the_same_size_in_the_same_second_is_seen(repo: AgentRepository) -> None:
    git(repo.root, "config", "core.trustctime", "false")
    git(repo.root, "config", "core.checkstat", "minimal")
    tree, root = await repo.create()
    file, index = root / "b.txt", Path(git(root, "rev-parse", "--path-format=absolute", "--git-path", "index").strip())
    at = int(file.stat().st_mtime) - 100
    os.utime(file, (at, at))
    git(root, "update-index", "--refresh")
    file.write_text("c\n")
    for changed in (file, index):
        os.utime(changed, (at, at))
    assert (await tree.collect_diff()).describe() == "1 file changed, +1 −1: b.txt"


async def test_the_files_that_were_shown_are_applied_not_those_of_later(repo: AgentRepository) -> None:
    tree, root = await repo.create()
    shown = {"a.txt": "shown\n", "new.txt": "shown\n", "run.sh": "#!/bin/sh\n", "removed.txt": "shown\n"}
    for name, text in shown.items():
        (root / name).write_text(text)
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("a.txt")
    diff = await tree.collect_diff()
    for name in ("a.txt", "added-later.txt"):
        (root / name).write_text("later\n")
    (root / "run.sh").chmod(0o644)
    for name in ("removed.txt", "new.txt", "link"):
        (root / name).unlink()
    (root / "new.txt").symlink_to("/etc/passwd")
    (root / "link").symlink_to("/etc/passwd")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "later")
    work = await repo.apply(tree, shown=diff.tree)
    assert set(work.applied) == {*shown, "link"}
    assert {name: (repo.root / name).read_text() for name in shown} == shown
    assert (repo.root / "run.sh").stat().st_mode & 0o111 and not (repo.root / "new.txt").is_symlink()
    assert os.readlink(repo.root / "link") == "a.txt"
    assert not (repo.root / "added-later.txt").exists()
    later = {"a.txt", "added-later.txt", "run.sh", "removed.txt", "new.txt", "link"}
    assert {file.path for file in work.skipped} == later
    assert "it was changed after its diff was shown" in work.describe()
    end = await tree.finish()
    assert (end.is_removed, end.unapplied) == (False, len(later))
    assert (root / "a.txt").read_text() == (root / "added-later.txt").read_text() == "later\n"


async def test_changes_are_merged_with_those_of_the_project(repo: AgentRepository) -> None:
    for name in ("gone", "edited", "both-gone", "same"):
        (repo.root / name).write_text("x\n")
    tree, root = await repo.create()
    for folder, number, word in ((root, 2, "agent"), (repo.root, 18, "project")):
        (folder / "a.txt").write_text((folder / "a.txt").read_text().replace(f"line {number}\n", f"{word}\n"))
        (folder / "b.txt").write_text(f"{word}\n")
        (folder / "added").write_text(f"{word}\n")
        (folder / "binary").write_bytes(f"\0{word}".encode())
        (folder / "both-gone").unlink()
        (folder / "same").write_text("the same\n")
    (root / "edited").unlink()
    (repo.root / "edited").write_text("edited\n")
    (repo.root / "gone").unlink()
    (root / "gone").write_text("edited\n")
    (root / "fine").write_text("fine\n")
    work = await repo.apply(tree)
    merged = (repo.root / "a.txt").read_text()
    assert "agent\n" in merged and "project\n" in merged and "<<<" not in merged
    assert (work.applied, work.conflicts) == (("a.txt", "fine"), ("added", "b.txt"))
    assert (repo.root / "b.txt").read_text() == "<<<<<<< project\nproject\n=======\nagent\n>>>>>>> agent\n"
    assert {file.path: file.reason.partition(";")[0] for file in work.skipped} == {
        "binary": "both changed it, and it cannot be merged",
        "edited": "the agent removed it, and the project changed it meanwhile",
        "gone": "the project removed it meanwhile",
    }
    assert (repo.root / "binary").read_bytes() == b"\0project" and (repo.root / "edited").read_text() == "edited\n"
    assert "Conflict: b.txt was changed in both;" in work.describe()
    end = await tree.finish()
    assert not end.is_removed and (root / "gone").read_text() == "edited\n", "nothing is lost"


@pytest.mark.slow
async def test_left_out_files_can_be_merged_later(repo: AgentRepository) -> None:
    tree, root = await repo.create()
    for name in ("late", "ok"):
        (root / name).write_text("x\n")
    work = await repo.apply(tree, "late")
    assert work.applied == ("ok",)
    assert work.describe().endswith("Skipped: late (not now).")
    assert not (await tree.finish()).is_removed
    assert (await repo.apply(tree)).applied == ("late",)
    assert (await tree.finish()).is_removed


async def test_worktree_with_a_nested_repository_is_kept(repo: AgentRepository) -> None:
    tree, root = await repo.create()
    for name in ("empty", "own"):
        git(root, "init", "-q", name)
        (root / name / "f").write_text("f\n")
    git(root / "own", "add", "-A")
    git(root / "own", "commit", "-q", "-m", "first")
    (root / "ok").write_text("ok\n")
    assert (await tree.collect_diff()).describe() == "2 files changed, +2 −0: ok, own; not in the diff: empty"
    work = await repo.apply(tree)
    assert (work.applied, [file.path for file in work.skipped]) == (("ok",), ["own", "empty"])
    end = await tree.finish()
    assert (end.is_removed, end.unapplied) == (False, 3) and (root / "empty/f").exists() and (root / "own/f").exists()


async def test_merge_does_not_write_through_a_link_out_of_the_project(repo: AgentRepository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo.root / "folder").mkdir()
    (repo.root / "folder/f").write_text("x\n")
    tree, root = await repo.create()
    (root / "folder/f").write_text("by the agent\n")
    (repo.root / "folder/f").unlink()
    (repo.root / "folder").rmdir()
    (repo.root / "folder").symlink_to(outside)
    work = await repo.apply(tree)
    assert (work.applied, len(work.skipped), list(outside.iterdir())) == ((), 1, [])


async def test_git_ignores_configuration_made_by_the_agent(repo: AgentRepository, tmp_path: Path) -> None:
    tree, root = await repo.create()
    evil = tmp_path / "evil"
    git(tmp_path, "init", "-q", str(evil))
    git(evil, "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    (root / ".git").write_text(f"gitdir: {evil}/.git\n")
    (root / "b.txt").write_text("changed\n")
    assert [file.path for file in (await tree.collect_diff()).files] == ["b.txt"]
    assert (await repo.apply(tree)).applied == ("b.txt",)
    assert not (tmp_path / "ran").exists()


async def test_worktrees_have_unique_names_and_keep_the_subfolder_of_the_project(
    repo: AgentRepository, home: Path
) -> None:
    _, first = await repo.create()
    _, second = await repo.create()
    assert (first.name, second.name) == ("s1-agent-1", "s1-agent-1.2")
    (repo.root / "pkg/src").mkdir(parents=True)
    (repo.root / "pkg/odinconfig.json").write_text("{}")
    (repo.root / "pkg/src/f").write_text("f\n")
    env = {**os.environ, "ODIN_STATE_DIR": str(home / "state")}
    async with open_worktrees(make_environment(env, str(repo.root / "pkg"))) as trees:
        tree = await AgentWorktrees(trees, str(repo.root / "pkg/src")).create("inner")
    relative = os.path.relpath(trees.root, repo.root)
    assert tree.root == os.path.normpath(Path(tree.path) / relative)
    assert (tree.cwd, Path(tree.cwd, "f").read_text()) == (f"{tree.path}/pkg/src", "f\n")


async def test_impossible_worktree_is_refused_with_a_reason(workspace: Path, home: Path) -> None:
    async with open_worktrees(make_environment(cwd=str(workspace), state_dir=home / "state")) as trees:
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


async def test_a_forged_tree_does_not_lead_out_of_the_project(repo: AgentRepository, tmp_path: Path) -> None:
    """Git takes a tree as it is stored, with names that it would never write, and commands can write the objects."""
    tree, root = await repo.create()
    (root / "a.txt").write_text("changed\n")
    shown = (await tree.collect_diff()).tree
    blob = bytes.fromhex(git(root, "hash-object", "a.txt").strip())
    names = ("a.txt", ".git/hooks/post-checkout", ".GIT/config.worktree", "a/../../up", "../beside", f"{tmp_path}/out")
    data = b"".join(b"100755 %s\0%s" % (name.encode(), blob) for name in sorted(names))
    stored = repo.root / ".git/objects" / shown[:2] / shown[2:]
    stored.unlink()
    stored.write_bytes(zlib.compress(b"tree %d\0%s" % (len(data), data)))
    before = {path for path in tmp_path.rglob("*") if "objects" not in path.parts}
    work = await repo.apply(tree, shown=shown)
    assert (repo.root / "a.txt").read_text() == "changed\n"
    assert {file.path for file in work.skipped} >= {name for name in names if name != "a.txt"}
    after = {path for path in tmp_path.rglob("*") if "objects" not in path.parts}
    assert not after - before


async def test_work_is_kept_although_a_command_removed_the_ref_of_its_start(repo: AgentRepository) -> None:
    tree, root = await repo.create()
    (root / "a.txt").write_text("changed\n")
    git(root, "update-ref", "-d", f"refs/odin/start/{tree.name}")
    assert not (await tree.finish()).is_removed
    assert (root / "a.txt").read_text() == "changed\n"


async def test_another_worktree_that_is_just_removed_does_not_keep_this_one(repo: AgentRepository) -> None:
    tree, _ = await repo.create()
    _, other = await repo.create("s2-agent-1")
    (repo.root / ".git" / "worktrees" / "s2-agent-1" / "index").write_text("half of an index")
    assert (await tree.end_as_branch("x")).is_removed
    assert other.exists()
