"""A git worktree for one agent: it works apart from the project, and its work comes back as one reviewable diff.

    trees = AgentWorktrees(Worktrees(env, config, state_dir), cwd)
    tree = await trees.create(f"{session}-{agent}")    # give the agent tree.root and tree.cwd
    diff = await tree.collect_diff()                   # everything since the start: commits, other changes, new files
    result = await tree.apply(write, store)            # a three-way merge into the project
    end = await tree.finish()                          # removes it if its work is in the project, otherwise keeps it

The worktree starts from the project as it is, with uncommitted changes and new files, but without ignored ones. Its
start is kept as a ref, so that `await trees.open(name)` works in another process, too. `apply` changes only files,
never the index, branches or commits of the project. A file that both changed differently gets git's conflict markers;
what cannot be merged is left alone and reported. Until everything is applied, the worktree stays and `odin worktree`
lists it.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from odin.app.worktrees import APPLIED_REFS, START_REFS, GitPlace, Worktrees
from odin.checkpoints.file_state import (
    LINKED_FOLDER,
    decode_path,
    encode_path,
    is_behind_link,
    is_same_state,
    read_file_state,
)
from odin.checkpoints.project_listing import hash_file, read_regular_file
from odin.checkpoints.rewind import RestoreOutcome, RestorePlan, RestoreStep
from odin.checkpoints.store import CheckpointStore
from odin.core.errors import UsageError
from odin.core.event_values import FileState, SkippedFile

MAX_FILE_BYTES = 100_000_000
_MISSING, _LINK, _SUBMODULE = "000000", "120000", "160000"

WriteFiles = Callable[[RestorePlan], Awaitable[RestoreOutcome]]
"""Writes files of the project."""


class WorktreeFile(Struct, frozen=True):
    """One changed file. `added` and `removed` count lines; both are -1 for a binary file."""

    path: str
    added: int
    removed: int


class WorktreeDiff(Struct, frozen=True):
    """The work of an agent: a diff that `git apply` accepts, and the files. `tree` is the git tree of the files.

    `left_out` are new repositories in the worktree and files that cannot be read; a diff cannot contain them.
    """

    text: str
    files: tuple[WorktreeFile, ...]
    tree: str
    left_out: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return one line: "3 files changed, +10 −2: a.py, b.py, c.py"."""
        others = f"; not in the diff: {', '.join(self.left_out[:10])}" if self.left_out else ""
        if not self.files:
            return f"no changes{others}"
        added = sum(max(file.added, 0) for file in self.files)
        removed = sum(max(file.removed, 0) for file in self.files)
        names = ", ".join(file.path for file in self.files[:10])
        more = f" and {len(self.files) - 10} more" if len(self.files) > 10 else ""
        count = f"{len(self.files)} {'file' if len(self.files) == 1 else 'files'}"
        return f"{count} changed, +{added} −{removed}: {names}{more}{others}"


class AppliedWork(Struct, frozen=True):
    """What `apply` did. `conflicts` are files with conflict markers; `skipped` ones were left alone."""

    applied: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.conflicts and not self.skipped

    def describe(self) -> str:
        lines = [f"Applied {len(self.applied)} {'file' if len(self.applied) == 1 else 'files'} to the project."]
        lines += [
            f"Conflict: {path} was changed in both; resolve the conflict markers in it." for path in self.conflicts
        ]
        lines += [f"Skipped: {file.path} ({file.reason})." for file in self.skipped]
        return "\n".join(lines)


class WorktreeEnd(Struct, frozen=True):
    """Whether a worktree was removed. `branch` is "" if its branch was removed, too, because it had no own commits.

    `unapplied` counts the files of a kept worktree that are not in the project; `moved_to` has ignored files.
    """

    name: str
    path: str
    branch: str
    is_removed: bool
    unapplied: int = 0
    moved_to: str = ""

    def describe(self) -> str:
        if not self.is_removed:
            files = f"{self.unapplied} {'file' if self.unapplied == 1 else 'files'}"
            return f"Kept worktree {self.name} with {files} not applied: {self.path}"
        branch = f" Branch {self.branch} is kept." if self.branch else ""
        moved_to = f" Its ignored files are in {self.moved_to}." if self.moved_to else ""
        return f"Removed worktree {self.name}.{branch}{moved_to}"


class AgentWorktrees:
    """The agents' worktrees of one project. `cwd` is the working folder of the session."""

    def __init__(self, trees: Worktrees, cwd: str = "") -> None:
        self._trees = trees
        self._cwd = os.path.realpath(cwd or trees.root)
        self._lock = asyncio.Lock()

    async def create(self, name: str) -> "AgentWorktree":
        """Create a worktree that starts from the project as it is. If the name is taken, add a number to it."""
        async with self._lock:
            trees = self._trees
            own = trees.find_own_place()
            head = await trees.find_commit("HEAD")
            if not head:
                raise UsageError("The repository has no commit yet, so it cannot have worktrees.", "Commit something.")
            name = await self._find_free_name(name)
            tree = (await trees.write_tree(own)).tree
            start = head
            if tree != await trees.find_tree(head):
                text = f"Uncommitted changes of the project when {name} started"
                start = await trees.commit_tree(tree, head, message=text)
            await trees.add(name, start)
            await trees.set_ref(f"{START_REFS}/{name}", start)
            return self._make(name, own, trees.find_place(name), start)

    async def open(self, name: str) -> "AgentWorktree":
        """Return an agent's worktree that exists. Raise UsageError if there is none of this name."""
        place = self._trees.find_place(name)
        start = await self._trees.find_commit(f"{START_REFS}/{name}")
        if not start:
            raise UsageError(f"Worktree {name} was not made for an agent.", "Use git to merge its branch.")
        return self._make(name, self._trees.find_own_place(), place, start)

    def _make(self, name: str, own: GitPlace, place: GitPlace, start: str) -> "AgentWorktree":
        root = os.path.relpath(os.path.realpath(self._trees.root), own.folder)
        cwd = os.path.relpath(self._cwd, own.folder)
        inside = "." if cwd.startswith("..") else cwd
        folders = [os.path.normpath(place.folder / part) for part in (root, inside)]
        return AgentWorktree(self._trees, name, own, place, start, folders[0], folders[1])

    async def _find_free_name(self, name: str) -> str:
        for number in range(1, 1000):
            chosen = name if number == 1 else f"{name}.{number}"
            folder, branch = self._trees.locate(chosen)
            if not os.path.lexists(folder) and not await self._trees.find_commit(f"refs/heads/{branch}"):
                return chosen
        raise UsageError(f"There are too many worktrees {name}.", "Remove some with `odin worktree remove`.")


class AgentWorktree:
    """One worktree. `root` is the agent's project folder in it, `cwd` its working folder, `start` the commit it starts
    from."""

    def __init__(
        self, trees: Worktrees, name: str, own: GitPlace, place: GitPlace, start: str, root: str, cwd: str
    ) -> None:
        self.name = name
        self.branch = f"odin/{name}"
        self.path = str(place.folder)
        self.root = root
        self.cwd = cwd if os.path.isdir(cwd) else root  # noqa: PTH112
        self._trees = trees
        self._own = own
        self._place = place
        self.start = start

    async def collect_diff(self) -> WorktreeDiff:
        """Return all changes since the start, whether committed or not, as one diff. Ignored files are left out."""
        now = await self._trees.write_tree(self._place)
        tree = now.tree
        text = await self._trees.run_git(
            "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--binary", "-M", self.start, tree
        )
        counts = await self._trees.run_git("diff", "--numstat", "-z", "--no-renames", self.start, tree)
        files = tuple(map(_parse_count, counts.split(b"\0")[:-1]))
        return WorktreeDiff(text.decode("utf-8", "replace"), files, tree, tuple(map(encode_path, now.left_out)))

    def locate(self, file: WorktreeFile) -> str:
        """Return the path of a changed file in the project."""
        return str(self._own.folder / decode_path(file.path))

    async def apply(
        self,
        write: WriteFiles,
        store: CheckpointStore,
        skip_reason_of: Callable[[str], str] = lambda path: "",
        tree: str = "",
    ) -> AppliedWork:
        """Merge the changes into the project. `store` receives the new contents before `write` writes them.

        `tree` are the files to merge, as `collect_diff` returned them; "": as they are now. Later changes are reported
        and stay in the worktree. A file is skipped and reported if `skip_reason_of` returns a reason for its path in
        the project. Applying twice is safe: what is in the project already is not changed again.
        """
        now = await self._trees.write_tree(self._place)
        tree = tree or now.tree
        merge = _Merge(self._trees, self._own.folder, self._place, self.start, tree, store)
        for old, new, name in await self._trees.list_raw_changes(self.start, tree):
            await merge.add(old, new, name, skip_reason_of(str(self._own.folder / name)))
        for name in now.left_out:
            merge.skip(name, f"it is a repository or cannot be read; it is in {self._place.folder / name}")
        outcome = await write(RestorePlan(tuple(merge.steps), ()))
        failed = tuple(SkippedFile(self._get_name(file.path), file.reason) for file in outcome.kept)
        lost = {file.path for file in failed}
        work = AppliedWork(
            tuple(name for name in merge.names if name not in lost and name not in merge.conflicts),
            tuple(name for name in merge.conflicts if name not in lost),
            (*merge.skipped, *failed),
        )
        if work.is_complete:
            await self._mark_applied(tree)
        late = tuple(
            SkippedFile(encode_path(name), f"it was changed after its diff was shown; see {self._place.folder / name}")
            for _, _, name in await self._trees.list_raw_changes(tree, now.tree)
        )
        return replace(work, skipped=(*work.skipped, *late))

    def _get_name(self, path: str) -> str:
        return os.path.relpath(path, encode_path(str(self._own.folder)))

    async def _mark_applied(self, tree: str) -> None:
        made = await self._trees.commit_tree(tree, self.start, message=f"Applied from {self.name}")
        await self._trees.set_ref(f"{APPLIED_REFS}/{self.name}", made)

    async def finish(self) -> WorktreeEnd:
        """Remove the worktree if the project has all of its work; otherwise keep it.

        The branch is removed only if the agent committed nothing to it.
        """
        unapplied = await self._trees.count_unapplied(self.name, self.start)
        if unapplied:
            return WorktreeEnd(self.name, self.path, self.branch, is_removed=False, unapplied=unapplied)
        removed = await self._trees.remove(self.name, is_applied=True)
        has_commits = await self._trees.find_commit(f"refs/heads/{self.branch}") != self.start
        if not has_commits:
            await self._trees.delete_ref(f"refs/heads/{self.branch}")
        branch = self.branch if has_commits else ""
        return WorktreeEnd(self.name, self.path, branch, is_removed=True, moved_to=removed.moved_to)

    async def end_as_branch(self, title: str) -> WorktreeEnd:
        """Commit the work to the branch and remove the worktree; without any work remove the branch, too.

        A worktree with files that cannot be committed is kept.
        """
        now = await self._trees.write_tree(self._place)
        if now.left_out:
            return WorktreeEnd(self.name, self.path, self.branch, is_removed=False, unapplied=len(now.left_out))
        ref = f"refs/heads/{self.branch}"
        tips = [await self._trees.find_commit(ref), await self._trees.find_commit("HEAD", self._place)]
        parents = [*dict.fromkeys(filter(None, tips))] or [self.start]  # an agent may have checked out another commit
        has_work = now.tree != await self._trees.find_tree(self.start)
        if has_work and now.tree != await self._trees.find_tree(parents[0]):
            await self._trees.set_ref(ref, await self._trees.commit_tree(now.tree, *parents, message=title))
        removed = await self._trees.remove(self.name, is_applied=True)
        if not has_work:
            await self._trees.delete_ref(ref)
        branch = self.branch if has_work else ""
        return WorktreeEnd(self.name, self.path, branch, is_removed=True, moved_to=removed.moved_to)


class _Merge:
    """Plans a three-way merge file by file: `start` is the base, the project is ours, `tree` is theirs.

    Files of the agent are read from the tree: in its worktree, where commands run, they could be links by now.
    """

    def __init__(
        self, trees: Worktrees, own: Path, place: GitPlace, start: str, tree: str, store: CheckpointStore
    ) -> None:
        self.steps: list[RestoreStep] = []
        self.names: list[str] = []
        self.conflicts: list[str] = []
        self.skipped: list[SkippedFile] = []
        self._trees = trees
        self._own = own
        self._place = place
        self._other = place.folder
        self._start = start
        self._tree = tree
        self._store = store

    def skip(self, name: str, reason: str) -> None:
        self.skipped.append(SkippedFile(encode_path(name), reason))

    async def add(self, old: str, new: str, name: str, skip_reason: str) -> None:
        """Plan one file with its modes in git at the start and now. With a reason, skip it if it differs."""
        path = str(self._own / name)
        if any(part in ("", ".", "..") or part.lower() == ".git" for part in name.split("/")):
            # commands can write the objects of the repository, and git does not check the trees that it reads
            self.skip(name, "no file in a repository can have this name")
            return
        if _SUBMODULE in (old, new):
            self.skip(name, "submodules are not merged")
            return
        if is_behind_link(encode_path(path)):
            self.skip(name, LINKED_FOLDER)
            return
        now = read_file_state(path, hash_file)
        base = await self._read_version(self._start, old, name, path)
        theirs = await self._read_version(self._tree, new, name, path)
        if base is None or theirs is None:
            self.skip(name, f"it is too large or cannot be read; it is in {self._other / name}")
        elif _is_equal(now, theirs):
            return
        elif skip_reason:
            self.skip(name, skip_reason)
        elif _is_equal(now, base):
            self._plan(name, now, _keep_mode(now, theirs))
        elif theirs.kind == now.kind == "file" and await self._merge_text(name, now, base, theirs):
            return
        else:
            self.skip(name, _describe_clash(now, base, theirs, str(self._other / name)))

    def _plan(self, name: str, now: FileState, target: FileState) -> None:
        self.names.append(name)
        self.steps.append(RestoreStep(now, target))

    async def _read_version(self, tree: str, mode: str, name: str, path: str) -> FileState | None:
        """Return the version of a file in a tree as a state of the project's path; None if it is too large."""
        if mode == _MISSING:
            return FileState(encode_path(path), "absent")
        words = ("cat-file", "blob" if mode == _LINK else "--filters", f"{tree}:{name}")
        try:
            data = await self._trees.run_git(*words, place=self._place)
        except UsageError:
            return None
        if mode == _LINK:
            return FileState(encode_path(path), "link", target=encode_path(os.fsdecode(data)))
        if len(data) > MAX_FILE_BYTES:
            return None
        return FileState(encode_path(path), "file", self._store.keep(data), int(mode[-3:], 8))

    async def _merge_text(self, name: str, now: FileState, base: FileState, theirs: FileState) -> bool:
        """Merge two versions of a text file; return False if they cannot be merged."""
        ours = read_regular_file(str(self._own / name), MAX_FILE_BYTES)
        if ours is None:
            return False
        contents = (
            ours,
            self._store.fetch(base.sha256) if base.kind == "file" else b"",
            self._store.fetch(theirs.sha256),
        )
        with self._trees.git.open_scratch() as folder:
            files = [folder / label for label in ("project", "start", "agent")]
            for file, content in zip(files, contents, strict=True):
                file.write_bytes(content)
            labels = [word for file in files for word in ("-L", file.name)]
            merged = await self._trees.git.run(
                self._place, ["merge-file", "-p", *labels, *map(str, files)], visible=(str(folder),)
            )
        if merged.code < 0 or merged.code >= 128:
            return False
        if merged.code:
            self.conflicts.append(name)
        mode = now.mode | (theirs.mode & 0o111) if base.mode != theirs.mode else now.mode
        self._plan(name, now, FileState(now.path, "file", self._store.keep(merged.data), mode))
        return True


def _is_equal(one: FileState, other: FileState) -> bool:
    """True if both are the same to git: of a mode only the executable bit counts."""
    if one.kind != "file" or other.kind != "file":
        return is_same_state(one, other)
    return one.sha256 == other.sha256 and bool(one.mode & stat.S_IXUSR) == bool(other.mode & stat.S_IXUSR)


def _keep_mode(now: FileState, theirs: FileState) -> FileState:
    """Return the agent's version with the permissions the file has now, except for the executable bit."""
    if theirs.kind != "file" or now.kind != "file":
        return theirs
    is_same = bool(now.mode & stat.S_IXUSR) == bool(theirs.mode & stat.S_IXUSR)
    return FileState(theirs.path, "file", theirs.sha256, now.mode if is_same else theirs.mode)


def _describe_clash(now: FileState, base: FileState, theirs: FileState, source: str) -> str:
    if theirs.kind == "absent":
        return "the agent removed it, and the project changed it meanwhile"
    if now.kind == "absent" and base.kind != "absent":
        return f"the project removed it meanwhile; the agent's version is {source}"
    return f"both changed it, and it cannot be merged; the agent's version is {source}"


def _parse_count(line: bytes) -> WorktreeFile:
    added, removed, name = line.split(b"\t", 2)
    is_binary = added == b"-"
    return WorktreeFile(
        encode_path(os.fsdecode(name)), -1 if is_binary else int(added), -1 if is_binary else int(removed)
    )
