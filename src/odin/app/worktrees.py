"""The git worktrees of a project, kept in Odin's state folder, each on a branch `odin/NAME`.

Removing one loses nothing: the branch stays, and uncommitted files are moved aside. A worktree that was made for an
agent (see `agent_worktree`) also has a ref `refs/odin/start/NAME`, the commit it started from.
"""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from odin.app.workspace import build_git_environment
from odin.config import Config, get_state_dir, load, make_private_folder, resolve_folder
from odin.config.paths import WORKTREE_FOLDER
from odin.core.errors import OdinError, UsageError
from odin.session.store import project_key_of

REMOVED_FOLDER = ".removed"
"""Removed worktrees that still contained files are moved here."""

START_REFS = "refs/odin/start"
APPLIED_REFS = "refs/odin/applied"

_GIT_TIMEOUT_S = 120.0
_MAX_ERROR_BYTES = 10_000_000
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


class GitPlace(Struct, frozen=True):
    """A working folder and its git folders, given to git by name so that files in the folder cannot redirect it."""

    folder: Path
    git_dir: str
    common: str


class FolderTree(Struct, frozen=True):
    """The files of a folder as a git tree. `left_out` could not be added: repositories in it, and unreadable files."""

    tree: str
    left_out: tuple[str, ...] = ()


class Worktrees:
    """The worktrees that Odin manages for the repository around the project."""

    def __init__(self, env: Mapping[str, str], config: Config, state_dir: str = "") -> None:
        self._env = env
        self._config = config
        self._root = config.root
        self._base = (Path(state_dir) if state_dir else get_state_dir(env)) / WORKTREE_FOLDER

    @classmethod
    def from_folder(cls, env: Mapping[str, str], cwd: str = "") -> "Worktrees":
        """Return the worktrees of the repository around a folder."""
        return cls(env, load(resolve_folder(cwd), env))

    @property
    def root(self) -> str:
        return self._root

    async def add(self, name: str, start: str = "") -> Worktree:
        """Create a worktree on the branch `odin/NAME`, which starts at `start` or at HEAD."""
        folder, branch = await self.locate(name)
        if os.path.lexists(folder):
            raise UsageError(f"Worktree {name} already exists: {folder}.")
        if start.startswith("-"):
            raise UsageError(f"Not a commit: {start!r}.")
        make_private_folder(folder.parent)
        exists = bool(await self.find_commit(f"refs/heads/{branch}"))
        if exists and start:
            raise UsageError(f"Branch {branch} already exists.", "Omit --from to use it.")
        words = [str(folder), branch] if exists else ["-b", branch, str(folder), start or "HEAD"]
        await self.run_git("worktree", "add", "--quiet", *words)
        return Worktree(name, str(folder), branch, 0)

    async def list_worktrees(self) -> list[Worktree]:
        folder = await self._find_folder()
        if not folder.is_dir():
            return []
        text = (await self.run_git("worktree", "list", "--porcelain", "-z")).decode("utf-8", "surrogateescape")
        found: list[Worktree] = []
        for block in text.split("\0\0"):
            facts = {line.split(" ", 1)[0]: line.partition(" ")[2] for line in block.split("\0") if line}
            path = Path(facts.get("worktree", "/"))
            if path.parent == folder and path.is_dir():
                branch = facts.get("branch", "").removeprefix("refs/heads/") or "(no branch)"
                changes = len(await self._list_changes(await self.find_place(path.name)))
                found.append(Worktree(path.name, str(path), branch, changes, await self.count_unapplied(path.name)))
        return found

    async def count_unapplied(self, name: str) -> int:
        """Return how many files an agent changed in its worktree, unless all of its work is in the project."""
        start = await self.find_commit(f"{START_REFS}/{name}")
        if not start:
            return 0
        now = await self.write_tree(await self.find_place(name))
        applied = await self.find_commit(f"{APPLIED_REFS}/{name}")
        if applied and (await self.run_git("rev-parse", f"{applied}^{{tree}}")).decode().strip() == now.tree:
            return len(now.left_out)
        return len(await self.list_raw_changes(start, now.tree)) + len(now.left_out)

    async def remove(self, name: str, *, force: bool = False, is_applied: bool = False) -> RemovedWorktree:
        """Remove a worktree. Raise UsageError if it has uncommitted changes, unless `force` is set.

        `is_applied`: the project has all files of the worktree that git does not ignore.
        """
        await self.locate(name)
        tree = next((item for item in await self.list_worktrees() if item.name == name), None)
        if tree is None:
            raise UsageError(f"No worktree {name}.", "`odin worktree list` lists the worktrees.")
        place = await self.find_place(name)
        folder = place.folder
        if tree.changes and not force and not is_applied:
            files = f"{tree.changes} {'file' if tree.changes == 1 else 'files'}"
            raise UsageError(
                f"Worktree {name} has {files} with uncommitted changes.",
                f"Commit them in {folder}, or use --force to move the files aside.",
            )
        await self._keep_commits(place, name, staged=not is_applied)
        moved_to = ""
        changes = await self._list_changes(place, ignored=True)
        if any(line.startswith(b"!!") for line in changes) if is_applied else changes:
            moved_to = str(self._move_aside(folder))
            await self.run_git("worktree", "prune")
        else:
            await self.run_git("worktree", "remove", *(["--force"] if is_applied else []), str(folder))
        for refs in (START_REFS, APPLIED_REFS):
            if await self.find_commit(f"{refs}/{name}"):
                await self.run_git("update-ref", "-d", f"{refs}/{name}")
        return RemovedWorktree(name, tree.branch, moved_to)

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
        """Create refs for what only this worktree references: staged changes, and commits on a detached HEAD."""
        stamp = f"refs/odin/removed/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        _, changes = await self.try_git("stash", "create", place=place) if staged else (0, b"")
        if changes.strip():
            await self.run_git("update-ref", f"{stamp}-changes", changes.decode().strip(), place=place)
        code, _ = await self.try_git("symbolic-ref", "--quiet", "HEAD", place=place)
        if code:
            head = await self.run_git("rev-parse", "HEAD", place=place)
            await self.run_git("update-ref", f"{stamp}-head", head.decode().strip(), place=place)

    async def _list_changes(self, place: GitPlace, *, ignored: bool = False) -> list[bytes]:
        words = ["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none"]
        words += ["--ignored"] if ignored else []
        return [line for line in (await self.run_git(*words, place=place)).split(b"\0") if line]

    # --- where they are ---

    async def locate(self, name: str) -> tuple[Path, str]:
        """Return the folder and the branch of a worktree of this name, whether it exists or not."""
        if not _NAME_PATTERN.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
            raise UsageError(f"Invalid worktree name {name!r}.", "Use letters, digits, '-', '_' and '.'.")
        return await self._find_folder() / name, f"odin/{name}"

    async def find_place(self, name: str) -> GitPlace:
        """Return a worktree with its git folder, which must name the worktree in turn."""
        folder, _ = await self.locate(name)
        common = await self._find_common()
        for git_dir in sorted((common / "worktrees").glob("*")) if folder.is_dir() else ():
            with contextlib.suppress(OSError):
                if os.path.realpath((git_dir / "gitdir").read_text().strip()) == str(folder / ".git"):
                    return GitPlace(folder, str(git_dir), str(common))
        raise UsageError(f"No worktree {name}.", "`odin worktree list` lists the worktrees.")

    async def find_own_place(self) -> GitPlace:
        """Return the working folder of the project itself. Raise UsageError if it is not in a git repository."""
        self._require_safe_git_config()
        code, top = await self.try_git("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir")
        lines = top.decode("utf-8", "surrogateescape").splitlines()
        if code or len(lines) != 2:
            raise UsageError(f"{self._root} is not in a git repository.", "A worktree needs one: run `git init`.")
        return GitPlace(Path(os.path.realpath(lines[0])), lines[1], str(await self._find_common()))

    async def _find_folder(self) -> Path:
        """Return the folder of this repository's worktrees, the same from any of them."""
        common = await self._find_common()
        name = project_key_of(str(common.parent if common.name == ".git" else common))
        return Path(os.path.realpath(self._base)) / name

    async def _find_common(self) -> Path:
        self._require_safe_git_config()
        text = await self.run_git("rev-parse", "--path-format=absolute", "--git-common-dir")
        return Path(os.path.realpath(text.decode("utf-8", "surrogateescape").strip()))

    def _require_safe_git_config(self) -> None:
        from odin.policy.commands.git_config import has_safe_git_config

        above = (
            str(folder) for folder in (Path(self._root), *Path(self._root).parents) if os.path.lexists(folder / ".git")
        )
        top = next(above, self._root)
        if not self._config.trust.trusted and not has_safe_git_config(top, top):
            raise UsageError(
                "The git configuration of this repository can start programs, so Odin does not run git.",
                "Review it, then trust the folder with `odin trust add`.",
            )

    # --- git ---

    async def find_commit(self, ref: str) -> str:
        """Return the commit that a ref names, or ""."""
        code, text = await self.try_git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        return "" if code else text.decode().strip()

    async def write_tree(self, place: GitPlace) -> FolderTree:
        """Store all files of a working folder that are not ignored as a git tree. Its own index is not changed."""
        import shutil
        import tempfile

        with tempfile.TemporaryDirectory(prefix="odin-index-") as folder:
            index = Path(folder, "index")
            with contextlib.suppress(FileNotFoundError):  # the time of the index tells git which files to read again
                shutil.copy2(Path(place.git_dir, "index"), index)
            env = {"GIT_INDEX_FILE": str(index)}
            code, _, err = await self._run(("add", "--all", "--ignore-errors", "--", ":/"), place, env)
            if code not in (0, 1):
                raise _make_git_error("add", code, err)
            left_out = await self._list_untracked(place, env) if code else ()
            tree = (await self.run_git("write-tree", place=place, extra_env=env)).decode().strip()
            return FolderTree(tree, left_out)

    async def _list_untracked(self, place: GitPlace, env: Mapping[str, str]) -> tuple[str, ...]:
        words = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=all")
        lines = (await self.run_git(*words, place=place, extra_env=env)).split(b"\0")
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
        extra_env: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the output of git. Raise UsageError if it fails."""
        code, out, err = await self._run(args, place, extra_env)
        if code:
            raise _make_git_error(args[0], code, err)
        return out

    async def try_git(
        self,
        *args: str,
        place: GitPlace | None = None,
        extra_env: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Return the exit code and the output of git."""
        code, out, _ = await self._run(args, place, extra_env)
        return code, out

    async def _run(
        self, args: tuple[str, ...], place: GitPlace | None, extra_env: Mapping[str, str] | None
    ) -> tuple[int, bytes, bytes]:
        """Run git without hooks and prompts. Its process group is always killed at the end."""
        env = {**build_git_environment(self._env), **(extra_env or {})}
        if place is not None:
            env |= {"GIT_DIR": place.git_dir, "GIT_COMMON_DIR": place.common, "GIT_WORK_TREE": str(place.folder)}
        folder = place.folder if place else Path(self._root)
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                "-C",
                str(folder),
                "--no-pager",
                *args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            raise OdinError(f"Cannot run git: {error.strerror or error}.", "Install git.") from error
        try:
            async with asyncio.timeout(_GIT_TIMEOUT_S):
                out, err = await process.communicate()
        except TimeoutError as error:
            raise OdinError(f"git {args[0]} took longer than {_GIT_TIMEOUT_S:g} s.") from error
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
        return process.returncode or 0, out, err


def _make_git_error(command: str, code: int, err: bytes) -> UsageError:
    message = err[:_MAX_ERROR_BYTES].decode("utf-8", "replace").strip().removeprefix("fatal: ")
    return UsageError(f"git {command} failed: {message or code}.".replace("..", "."))
