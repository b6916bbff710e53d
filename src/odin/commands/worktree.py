"""`odin worktree`: list, add and remove git worktrees of the project, kept in Odin's state folder.

Each worktree is on a branch `odin/NAME`. Removing one loses nothing: the branch stays, and uncommitted files are moved
aside.
"""

import argparse
import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from odin.commands.cleanup import REMOVED_FOLDER, WORKTREE_FOLDER
from odin.commands.command_line import Parser, make_formatter, write_json, write_output
from odin.config import get_state_dir, load, make_private_folder, resolve_folder
from odin.core.errors import OdinError, UsageError
from odin.session.store import project_key_of
from odin.ui.terminal import escape_hidden

GIT_TIMEOUT_S = 120.0
_MAX_ERROR_BYTES = 10_000_000
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Worktree(Struct, frozen=True):
    """One worktree. `changes` counts files that differ from the last commit or are untracked."""

    name: str
    path: str
    branch: str
    changes: int


class RemovedWorktree(Struct, frozen=True):
    """A removed worktree. `moved_to` is the folder its files were moved to, if some were not committed."""

    name: str
    branch: str
    moved_to: str = ""


class Worktrees:
    """The worktrees that Odin manages for the repository around `cwd`."""

    def __init__(self, env: Mapping[str, str], cwd: str = "") -> None:
        self._env = env
        self._config = load(resolve_folder(cwd), env)
        self._root = self._config.root
        self._base = get_state_dir(env) / WORKTREE_FOLDER

    async def add(self, name: str, start: str = "") -> Worktree:
        """Create a worktree on the branch `odin/NAME`, which starts at `start` or at HEAD."""
        folder, branch = await self._locate_worktree(name)
        if os.path.lexists(folder):
            raise UsageError(f"Worktree {name} already exists: {folder}.")
        if start.startswith("-"):
            raise UsageError(f"Not a commit: {start!r}.")
        make_private_folder(folder.parent)
        exists = (await self._run_git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", check=False))[0] == 0
        if exists and start:
            raise UsageError(f"Branch {branch} already exists.", "Omit --from to use it.")
        words = [str(folder), branch] if exists else ["-b", branch, str(folder), start or "HEAD"]
        await self._run_git("worktree", "add", "--quiet", *words)
        return Worktree(name, str(folder), branch, 0)

    async def list_worktrees(self) -> list[Worktree]:
        folder = await self._find_folder()
        if not folder.is_dir():
            return []
        _, text = await self._run_git("worktree", "list", "--porcelain", "-z")
        found: list[Worktree] = []
        for block in text.split("\0\0"):
            facts = {line.split(" ", 1)[0]: line.partition(" ")[2] for line in block.split("\0") if line}
            path = Path(facts.get("worktree", "/"))
            if path.parent == folder and path.is_dir():
                branch = facts.get("branch", "").removeprefix("refs/heads/") or "(no branch)"
                found.append(Worktree(path.name, str(path), branch, len(await self._list_changes(path))))
        return found

    async def remove(self, name: str, *, force: bool = False) -> RemovedWorktree:
        """Remove a worktree. Raise UsageError if it has uncommitted changes, unless `force` is set."""
        folder, _ = await self._locate_worktree(name)
        tree = next((item for item in await self.list_worktrees() if item.name == name), None)
        if tree is None:
            raise UsageError(f"No worktree {name}.", "`odin worktree list` lists the worktrees.")
        if tree.changes and not force:
            files = f"{tree.changes} {'file' if tree.changes == 1 else 'files'}"
            raise UsageError(
                f"Worktree {name} has {files} with uncommitted changes.",
                f"Commit them in {folder}, or use --force to move the files aside.",
            )
        await self._keep_commits(folder, name)
        moved_to = ""
        if tree.changes or await self._list_changes(folder, ignored=True):
            moved_to = str(self._move_aside(folder))
            await self._run_git("worktree", "prune")
        else:
            await self._run_git("worktree", "remove", str(folder))
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

    async def _keep_commits(self, folder: Path, name: str) -> None:
        """Create refs for what only this worktree references: staged changes, and commits on a detached HEAD."""
        stamp = f"refs/odin/removed/{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        _, staged = await self._run_git("stash", "create", at=folder, check=False)
        if staged.strip():
            await self._run_git("update-ref", f"{stamp}-changes", staged.strip(), at=folder)
        code, _ = await self._run_git("symbolic-ref", "--quiet", "HEAD", at=folder, check=False)
        if code:
            _, head = await self._run_git("rev-parse", "HEAD", at=folder)
            await self._run_git("update-ref", f"{stamp}-head", head.strip(), at=folder)

    async def _list_changes(self, folder: Path, *, ignored: bool = False) -> list[str]:
        words = ["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=none"]
        words += ["--ignored"] if ignored else []
        _, text = await self._run_git(*words, at=folder)
        return [line for line in text.split("\0") if line]

    async def _locate_worktree(self, name: str) -> tuple[Path, str]:
        if not _NAME_PATTERN.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
            raise UsageError(f"Invalid worktree name {name!r}.", "Use letters, digits, '-', '_' and '.'.")
        return await self._find_folder() / name, f"odin/{name}"

    async def _find_folder(self) -> Path:
        """Return the folder of this repository's worktrees, the same from any of them."""
        self._require_safe_git_config()
        _, text = await self._run_git("rev-parse", "--path-format=absolute", "--git-common-dir")
        common = Path(os.path.realpath(text.strip()))
        return Path(os.path.realpath(self._base)) / project_key_of(
            str(common.parent if common.name == ".git" else common)
        )

    def _require_safe_git_config(self) -> None:
        from odin.policy.commands.git_config import has_safe_git_config

        if not self._config.trust.trusted and not has_safe_git_config(self._root, self._root):
            raise UsageError(
                "The git configuration of this repository can start programs, so Odin does not run git.",
                "Review it, then trust the folder with `odin trust add`.",
            )

    async def _run_git(self, *args: str, at: Path | None = None, check: bool = True) -> tuple[int, str]:
        """Run git and return its exit code and output. Its process group is always killed at the end."""
        from odin.app.workspace import build_git_environment

        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                "-C",
                str(at or self._root),
                "--no-pager",
                *args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=build_git_environment(self._env),
                start_new_session=True,
            )
        except OSError as error:
            raise OdinError(f"Cannot run git: {error.strerror or error}.", "Install git.") from error
        try:
            async with asyncio.timeout(GIT_TIMEOUT_S):
                out, err = await process.communicate()
        except TimeoutError as error:
            raise OdinError(f"git {args[0]} took longer than {GIT_TIMEOUT_S:g} s.") from error
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
        if check and process.returncode:
            message = err[:_MAX_ERROR_BYTES].decode("utf-8", "replace").strip().removeprefix("fatal: ")
            raise UsageError(f"git {args[0]} failed: {message or process.returncode}.".replace("..", "."))
        return process.returncode or 0, out.decode("utf-8", "surrogateescape")


EPILOG = """\
commands:
  odin worktree [list]                  list worktrees
  odin worktree add NAME [--from REF]   create a worktree on the branch odin/NAME
  odin worktree remove NAME             remove a worktree; with --force, move uncommitted files aside
"""


def run_worktree(argv: list[str]) -> int:
    args = _parse_args(argv)
    trees = Worktrees(os.environ, args.cwd)
    return {"list": _print_list, "add": _add_worktree, "remove": _remove_worktree}[args.what](args, trees)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    about = "List, add or remove git worktrees of this repository."
    parser = Parser(prog="odin worktree", description=about, epilog=EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add(
        "what",
        nargs="?",
        choices=("list", "add", "remove"),
        default="list",
        metavar="WHAT",
        help="list, add or remove (default: list)",
    )
    add("name", nargs="?", default="", metavar="NAME", help="worktree name")
    add("--from", dest="start", default="", metavar="REF", help="add: start of the branch (default: HEAD)")
    add("--force", action="store_true", help="remove even with uncommitted changes; its files are moved aside")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="project folder")
    args = parser.parse_args(argv)
    if args.what != "list" and not args.name:
        raise UsageError(f"`odin worktree {args.what}` needs a worktree name.")
    return args


def _print_list(args: argparse.Namespace, trees: Worktrees) -> int:
    found = asyncio.run(trees.list_worktrees())
    if args.json:
        return write_json(found)
    lines = (
        f"{item.name}  {escape_hidden(item.branch)}  {f'{item.changes} changed' if item.changes else 'clean'}  "
        f"{escape_hidden(item.path)}\n"
        for item in found
    )
    return write_output("".join(lines) or "No worktrees. Add one with `odin worktree add NAME`.\n")


def _add_worktree(args: argparse.Namespace, trees: Worktrees) -> int:
    made = asyncio.run(trees.add(args.name, args.start))
    if args.json:
        return write_json(made)
    path = escape_hidden(made.path)
    return write_output(f"{path}\nCreated on branch {made.branch}. Start with: odin --cwd {path}\n")


def _remove_worktree(args: argparse.Namespace, trees: Worktrees) -> int:
    removed = asyncio.run(trees.remove(args.name, force=args.force))
    if args.json:
        return write_json(removed)
    moved_to = f" Its files are in {escape_hidden(removed.moved_to)}." if removed.moved_to else ""
    return write_output(f"Removed worktree {removed.name}. Branch {escape_hidden(removed.branch)} is kept.{moved_to}\n")
