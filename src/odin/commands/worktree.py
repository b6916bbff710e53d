"""`odin worktree`: other work trees of the project's repository, kept with Odin's state, for work beside one's own.

Each is on a branch `odin/NAME`. Removing one loses nothing: a branch stays, and files that no commit holds are put
aside, never deleted.

`odin worktree`: work trees of this repository, for work beside the one you are in.
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
from typing import Any

from msgspec import Struct

from odin.commands.cleanup import REMOVED_FOLDER, WORKTREE_FOLDER
from odin.commands.command_line import Parser, make_formatter, write_output
from odin.config import get_current_folder, get_state_dir, load, make_private_folder
from odin.core.errors import OdinError, UsageError
from odin.session.store import project_key_of
from odin.ui.terminal import escape_hidden

GIT_TIMEOUT_S = 120.0
_MAX_ERROR_BYTES = 10_000_000
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Worktree(Struct, frozen=True):
    """One work tree. `changes` are its files that differ from the last commit or are new."""

    name: str
    path: str
    branch: str
    changes: int


class RemovedWorktree(Struct, frozen=True):
    """A work tree that was removed. `aside` is where its files are, when they were more than what is committed."""

    name: str
    branch: str
    aside: str = ""


class Worktrees:
    def __init__(self, env: Mapping[str, str], cwd: str = "") -> None:
        folder = os.path.realpath(cwd or get_current_folder())
        if not Path(folder).is_dir():
            raise UsageError(f"There is no folder {folder}.", "Name an existing one with --cwd.")
        self._env = env
        self._config = load(folder, env)
        self._root = self._config.root
        self._base = get_state_dir(env) / WORKTREE_FOLDER

    async def add(self, name: str, start: str = "") -> Worktree:
        """A new one, on a branch of its own that begins at `start`, or at the last commit."""
        folder, branch = await self._locate_worktree(name)
        if os.path.lexists(folder):
            raise UsageError(f"There is a work tree {name} already.", f"It is {folder}.")
        if start.startswith("-"):
            raise UsageError(f"{start!r} names no commit.")
        make_private_folder(folder.parent)
        known = (await self._run_git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", check=False))[0] == 0
        if known and start:
            raise UsageError(f"The branch {branch} exists already.", "Leave --from out to go on with it.")
        words = [str(folder), branch] if known else ["-b", branch, str(folder), start or "HEAD"]
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
        """Raises UsageError when it holds what is not committed, unless `force`."""
        folder, _ = await self._locate_worktree(name)
        tree = next((item for item in await self.list_worktrees() if item.name == name), None)
        if tree is None:
            raise UsageError(f"There is no work tree {name}.", "See `odin worktree list`.")
        if tree.changes and not force:
            files = f"{tree.changes} {'file' if tree.changes == 1 else 'files'}"
            raise UsageError(
                f"The work tree {name} has {files} that no commit holds, so it stays.",
                f"Commit them in {folder}, or use --force, which puts the files aside.",
            )
        await self._keep_commits(folder, name)
        aside = ""
        if tree.changes or await self._list_changes(folder, ignored=True):
            aside = str(self._move_aside(folder))
            await self._run_git("worktree", "prune")
        else:
            await self._run_git("worktree", "remove", str(folder))
        return RemovedWorktree(name, tree.branch, aside)

    def _move_aside(self, folder: Path) -> Path:
        target = make_private_folder(folder.parent / REMOVED_FOLDER) / f"{folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        number = 1
        while os.path.lexists(target):
            number += 1
            target = target.with_name(f"{target.name.partition('~')[0]}~{number}")
        try:
            folder.rename(target)
        except OSError as error:
            raise OdinError(f"{folder} cannot be put aside: {error.strerror or error}.") from error
        return target

    async def _keep_commits(self, folder: Path, name: str) -> None:
        """What only this work tree knows gets a name: commits on no branch, and what was added but not committed."""
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
            raise UsageError(f"{name!r} is no name for a work tree.", "Use letters, digits, '-', '_' and '.'.")
        return await self._find_folder() / name, f"odin/{name}"

    async def _find_folder(self) -> Path:
        """Where those of this repository are; it is the same one seen from any of its work trees."""
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
                "The settings of this repository can start programs, so git is not called.",
                "Look at them, then trust the folder: `odin trust add`.",
            )

    async def _run_git(self, *args: str, at: Path | None = None, check: bool = True) -> tuple[int, str]:
        """The exit code of git and what it printed. It is ended as a group, also when it takes too long."""
        from odin.app.git_context import build_git_environment

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
            raise OdinError(f"git does not start: {error.strerror or error}.", "Install it.") from error
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
            said = err[:_MAX_ERROR_BYTES].decode("utf-8", "replace").strip().removeprefix("fatal: ")
            raise UsageError(f"git {args[0]} failed: {said or process.returncode}.".replace("..", "."))
        return process.returncode or 0, out.decode("utf-8", "surrogateescape")


EPILOG = """\
  odin worktree [list]                  those there are
  odin worktree add NAME [--from REF]   a new one, on the branch odin/NAME
  odin worktree remove NAME             when everything in it is committed; with --force its files are put aside
"""


def run_worktree(argv: list[str]) -> int:
    args = _parse_args(argv)

    trees = Worktrees(os.environ, args.cwd)
    return {"list": _print_list, "add": _add_worktree, "remove": _remove_worktree}[args.what](args, trees)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    about = "Work trees of this repository, kept with Odin's state."
    parser = Parser(prog="odin worktree", description=about, epilog=EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("list", "add", "remove"), default="list", metavar="WHAT", help="(list)")
    add("name", nargs="?", default="", metavar="NAME", help="which one")
    add("--from", dest="start", default="", metavar="REF", help="add: where its branch begins (the last commit)")
    add("--force", action="store_true", help="remove: also with changes; its files are put aside")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    if args.what != "list" and not args.name:
        raise UsageError(f"`odin worktree {args.what}` needs a name.")
    return args


def _print_list(args: argparse.Namespace, trees: Any) -> int:
    found = asyncio.run(trees.list_worktrees())
    if args.json:
        return _print_json(found)
    lines = (
        f"{item.name}  {escape_hidden(item.branch)}  {f'{item.changes} changed' if item.changes else 'clean'}  "
        f"{escape_hidden(item.path)}\n"
        for item in found
    )
    return write_output("".join(lines) or "There are no work trees. `odin worktree add NAME` makes one.\n")


def _add_worktree(args: argparse.Namespace, trees: Any) -> int:
    made = asyncio.run(trees.add(args.name, args.start))
    if args.json:
        return _print_json(made)
    path = escape_hidden(made.path)
    return write_output(f"{path}\nIt is on the branch {made.branch}. Work in it with: odin --cwd {path}\n")


def _remove_worktree(args: argparse.Namespace, trees: Any) -> int:
    gone = asyncio.run(trees.remove(args.name, force=args.force))
    if args.json:
        return _print_json(gone)
    aside = f" Its files are in {escape_hidden(gone.aside)}." if gone.aside else ""
    return write_output(f"Removed the work tree {gone.name}. Its branch {escape_hidden(gone.branch)} stays.{aside}\n")


def _print_json(value: Any) -> int:
    import msgspec

    return write_output(msgspec.json.encode(value).decode() + "\n")
