"""The git worktrees of a project, kept in Odin's state folder, each on a branch `odin/NAME`.

Removing one loses nothing: the branch stays, and uncommitted files are moved aside. A worktree that was made for an
agent (see `agent_worktree`) also has a ref `refs/odin/start/NAME`, the commit it started from.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from odin.app.git import Git, GitOutput, GitPlace, find_repository, open_git
from odin.config import Config, load, make_private_folder
from odin.config.paths import WORKTREE_FOLDER
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError, UsageError
from odin.sandbox.protected_files import read_first_line
from odin.session.store import make_project_key

REMOVED_FOLDER = ".removed"
"""Removed worktrees that still contained files are moved here."""

START_REFS = "refs/odin/start"
APPLIED_REFS = "refs/odin/applied"

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Worktree(Struct, frozen=True):
    """One worktree. `changes` counts files that differ from the last commit or are untracked.

    For an agent's worktree, `unapplied` counts the files that differ from its start and are not in the project yet.
    """

    name: str
    path: str
    branch: str
    changes: int
    unapplied: int = 0


class RemovedWorktree(Struct, frozen=True):
    """A removed worktree. `moved_to` is the folder its files were moved to, if some were not committed."""

    name: str
    branch: str
    moved_to: str = ""


class FolderTree(Struct, frozen=True):
    """The files of a folder as a git tree. `left_out` could not be added: repositories in it, and unreadable files."""

    tree: str
    left_out: tuple[str, ...] = ()


class Worktrees:
    """The worktrees that Odin manages for the repository around the project."""

    def __init__(self, git: Git, config: Config, environment: ExecutionEnvironment) -> None:
        self.git = git
        self._root = config.root
        self._base = Path(environment.state_dir, WORKTREE_FOLDER)

    @property
    def root(self) -> str:
        return self._root

    async def add(self, name: str, start: str = "") -> Worktree:
        """Create a worktree on the branch `odin/NAME`, which starts at `start` or at HEAD."""
        folder, branch = self.locate(name)
        if os.path.lexists(folder):
            raise UsageError(f"Worktree {name} already exists: {folder}.")
        if start.startswith("-"):
            raise UsageError(f"Not a commit: {start!r}.")
        exists = bool(await self.find_commit(f"refs/heads/{branch}"))
        if exists and start:
            raise UsageError(f"Branch {branch} already exists.", "Omit --from to use it.")
        words = [str(folder), branch] if exists else ["--no-track", "-b", branch, str(folder), start or "HEAD"]
        make_private_folder(folder)
        try:
            await self._make_worktree(name, words)
        except BaseException:
            with suppress(OdinError):
                await self._forget(self.find_place(name))
            await _remove_folder(folder)
            raise
        return Worktree(name, str(folder), branch, 0)

    async def _make_worktree(self, name: str, words: Sequence[str]) -> None:
        """Create the worktree without files, then its files.

        Only the second step runs filters of the repository. It can write nothing but the files and an index of its own.
        """
        folder, _ = self.locate(name)
        own = self.find_own_place()
        await self.git.change_files(["mkdir", "-p", f"{own.common}/worktrees"], own.common)
        refs = ("refs", "logs", "reftable", "worktrees", str(folder))
        await self.run_git("worktree", "add", "--quiet", "--no-checkout", *words, writes=refs)
        place = self.find_place(name)
        with self.git.open_scratch() as scratch:
            env = {"GIT_INDEX_FILE": str(scratch / "index")}
            await self.run_git("read-tree", "HEAD", place=place, writes=(str(scratch),), extra_env=env)
            await self.run_git(
                *("checkout-index", "--all", "--quiet", "--index"),
                place=place,
                writes=(str(scratch), str(folder)),
                extra_env=env,
            )
            await self.git.copy_file(scratch / "index", Path(place.git_dir, "index"))

    async def list_worktrees(self) -> list[Worktree]:
        return [await self._inspect(place) for place in self._list_places()]

    async def _inspect(self, place: GitPlace) -> Worktree:
        name = place.folder.name
        head = read_first_line(f"{place.git_dir}/HEAD").partition("refs/heads/")[2]
        changes = len(await self._list_changes(place))
        return Worktree(name, str(place.folder), head or "(no branch)", changes, await self.count_unapplied(name))

    async def count_unapplied(self, name: str, start: str = "") -> int:
        """Return how many files an agent changed in its worktree since all of its work was in the project.

        `start` is the commit it started from, if that is known; a command may have removed its ref.
        """
        start = start or await self.find_commit(f"{START_REFS}/{name}")
        if not start:
            return 0
        now = await self.write_tree(self.find_place(name))
        applied = await self.find_commit(f"{APPLIED_REFS}/{name}")
        return len(await self.list_raw_changes(applied or start, now.tree)) + len(now.left_out)

    async def remove(self, name: str, *, force: bool = False, is_applied: bool = False) -> RemovedWorktree:
        """Remove a worktree. Raise UsageError if it has uncommitted changes, unless `force` is set.

        `is_applied`: the project has all files of the worktree that git does not ignore.
        """
        place = self.find_place(name)
        tree, folder = await self._inspect(place), place.folder  # others may be in the hands of another process
        if tree.changes and not force and not is_applied:
            files = f"{tree.changes} {'file' if tree.changes == 1 else 'files'}"
            raise UsageError(
                f"Worktree {name} has {files} with uncommitted changes.",
                f"Commit them in {folder}, or use --force to move the files aside.",
            )
        await self._keep_commits(place, name, staged=not is_applied)
        changes = await self._list_changes(place, ignored=True)
        is_kept = any(line.startswith(b"!!") for line in changes) if is_applied else bool(changes)
        moved_to = self._move_aside(folder)
        await self._forget(place)
        for refs in (START_REFS, APPLIED_REFS):
            await self.delete_ref(f"{refs}/{name}")
        if not is_kept:
            await _remove_folder(moved_to)
        return RemovedWorktree(name, tree.branch, str(moved_to) if is_kept else "")

    async def _forget(self, place: GitPlace) -> None:
        """Remove the folder in which git keeps its data about a worktree.

        `git worktree prune` would do so for all worktrees that git cannot see, and in the sandbox it does not see all.
        """
        await self.git.change_files(["rm", "-rf", "--", place.git_dir], f"{place.common}/worktrees")

    def _move_aside(self, folder: Path) -> Path:
        target = make_private_folder(folder.parent / REMOVED_FOLDER) / f"{folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        number = 1
        while os.path.lexists(target):
            number += 1
            target = target.with_name(f"{target.name.partition('~')[0]}~{number}")
        try:
            folder.rename(target)
        except OSError as error:
            raise OdinError(f"Cannot move {folder}: {error.strerror or error}.") from error
        return target

    async def _keep_commits(self, place: GitPlace, name: str, *, staged: bool) -> None:
        """Create refs for what only this worktree references: staged changes, and commits on a detached HEAD.

        Staged changes are kept as `git stash` would: a commit of the files whose second parent has the index.
        """
        stamp = f"refs/odin/removed/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        head = await self.find_commit("HEAD", place)
        if staged and head:
            with self.git.open_scratch() as scratch:
                await self.git.copy_file(Path(place.git_dir, "index"), scratch / "index")
                env = {"GIT_INDEX_FILE": str(scratch / "index")}
                done = await self._run(("write-tree",), place, ("objects", str(scratch)), env)
            index = done.data.decode().strip()
            if not done.code and index != await self.find_tree(head):
                parent = await self.commit_tree(index, head, message=f"Index of {name}")
                files = (await self.write_tree(place)).tree
                await self.set_ref(f"{stamp}-changes", await self.commit_tree(files, head, parent, message=name))
        if not read_first_line(f"{place.git_dir}/HEAD").startswith("ref:"):
            await self.set_ref(f"{stamp}-head", head)

    async def _list_changes(self, place: GitPlace, *, ignored: bool = False) -> list[bytes]:
        words = ["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none"]
        words += ["--ignored"] if ignored else []
        return [line for line in (await self.run_git(*words, place=place)).split(b"\0") if line]

    # --- where they are ---

    def locate(self, name: str) -> tuple[Path, str]:
        """Return the folder and the branch of a worktree of this name, whether it exists or not."""
        if not _NAME_PATTERN.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
            raise UsageError(f"Invalid worktree name {name!r}.", "Use letters, digits, '-', '_' and '.'.")
        return self._find_folder() / name, f"odin/{name}"

    def find_place(self, name: str) -> GitPlace:
        """Return a worktree with its git folder, which must name the worktree in turn."""
        folder, _ = self.locate(name)
        place = next((place for place in self._list_places() if place.folder == folder), None)
        if place is None:
            raise UsageError(f"No worktree {name}.", "`odin worktree list` lists the worktrees.")
        return place

    def find_own_place(self) -> GitPlace:
        """Return the working folder of the project itself. Raise UsageError if it is not in a git repository."""
        place = find_repository(self._root)
        if place is None:
            raise UsageError(f"{self._root} is not in a git repository.", "A worktree needs one: run `git init`.")
        return place

    def _find_folder(self) -> Path:
        """Return the folder of this repository's worktrees, the same from any of them."""
        common = Path(self.find_own_place().common)
        name = make_project_key(str(common.parent if common.name == ".git" else common))
        return Path(os.path.realpath(self._base)) / name

    def _list_places(self) -> Iterator[GitPlace]:
        base, common = self._find_folder(), self.find_own_place().common
        names: list[str] = []
        with suppress(OSError):
            names = sorted(os.listdir(f"{common}/worktrees"))  # noqa: PTH208
        for git_dir in (Path(common, "worktrees", name) for name in names):
            dot_git = Path(os.path.realpath(read_first_line(f"{git_dir}/gitdir") or "/"))
            folder = dot_git.parent
            if dot_git.name == ".git" and folder.parent == base and folder.is_dir() and not git_dir.is_symlink():
                yield GitPlace(folder, str(git_dir), common)

    # --- git ---

    async def find_commit(self, ref: str, place: GitPlace | None = None) -> str:
        """Return the commit that a ref names, or ""."""
        done = await self._run(("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"), place)
        return "" if done.code else done.data.decode().strip()

    async def find_tree(self, commit: str) -> str:
        return (await self.run_git("rev-parse", f"{commit}^{{tree}}")).decode().strip()

    async def commit_tree(self, tree: str, *parents: str, message: str) -> str:
        """Store a commit and return its id."""
        words = [word for parent in parents for word in ("-p", parent)]
        return (await self.run_git("commit-tree", tree, *words, "-m", message, writes=("objects",))).decode().strip()

    async def set_ref(self, ref: str, commit: str) -> None:
        await self.run_git("update-ref", ref, commit, writes=("refs", "logs", "reftable"))

    async def delete_ref(self, ref: str) -> None:
        """Delete a ref, if it exists. Git then writes to its folder itself, where it runs nothing of the repository."""
        if await self.find_commit(ref):
            await self.run_git("update-ref", "-d", ref, writes=(".",))

    async def write_tree(self, place: GitPlace) -> FolderTree:
        """Store all files of a working folder that are not ignored as a git tree. Its own index is not changed."""
        with self.git.open_scratch() as scratch:
            await self.git.copy_file(Path(place.git_dir, "index"), scratch / "index")
            env, writes = {"GIT_INDEX_FILE": str(scratch / "index")}, ("objects", str(scratch))
            added = await self._run(("add", "--all", "--ignore-errors", "--", ":/"), place, writes, env)
            if added.code not in (0, 1):
                raise _make_git_error("add", added)
            left_out = await self._list_untracked(place, env, scratch) if added.code else ()
            tree = (await self.run_git("write-tree", place=place, writes=writes, extra_env=env)).decode().strip()
            return FolderTree(tree, left_out)

    async def _list_untracked(self, place: GitPlace, env: Mapping[str, str], scratch: Path) -> tuple[str, ...]:
        words = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=all")
        lines = (await self.run_git(*words, place=place, writes=(str(scratch),), extra_env=env)).split(b"\0")
        return tuple(os.fsdecode(line[3:]).rstrip("/") for line in lines if line.startswith(b"??"))

    async def list_raw_changes(self, start: str, tree: str) -> list[tuple[str, str, str]]:
        """Return old mode, new mode and path of the files that differ between two trees. A missing file has mode 0."""
        raw = await self.run_git("diff-tree", "-r", "-z", "--no-renames", start, tree)
        parts = raw.split(b"\0")
        return [
            (facts.split()[0].decode().lstrip(":"), facts.split()[1].decode(), os.fsdecode(name))
            for facts, name in zip(parts[0::2], parts[1::2], strict=False)
            if facts
        ]

    async def run_git(
        self,
        *args: str,
        place: GitPlace | None = None,
        writes: Sequence[str] = (),
        extra_env: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the output of git. Raise UsageError if it fails."""
        done = await self._run(args, place, writes, extra_env)
        if done.code:
            raise _make_git_error(args[0], done)
        return done.data

    async def _run(
        self,
        args: Sequence[str],
        place: GitPlace | None = None,
        writes: Sequence[str] = (),
        extra_env: Mapping[str, str] | None = None,
    ) -> GitOutput:
        """Run git in a worktree or the project. `writes` are paths, or names in the repository's git folder."""
        place = place or self.find_own_place()
        paths = tuple(os.path.normpath(Path(place.common, name)) for name in writes)
        return await self.git.run(place, args, writes=paths, env=extra_env)


async def _remove_folder(folder: Path) -> None:
    from shutil import rmtree

    await asyncio.to_thread(rmtree, folder, ignore_errors=True)


@asynccontextmanager
async def open_worktrees(environment: ExecutionEnvironment) -> AsyncGenerator[Worktrees]:
    """Open the worktrees of the repository around the current folder outside of a session."""
    config = load(environment.cwd, environment.variables)
    async with open_git(config, environment) as git:
        yield Worktrees(git, config, environment)


def _make_git_error(command: str, done: GitOutput) -> UsageError:
    message = done.errors.strip().removeprefix("fatal: ")
    return UsageError(f"git {command} failed: {message or done.code}.".replace("..", "."))
