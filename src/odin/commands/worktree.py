"""`odin worktree`: list, add, review and remove git worktrees of the project."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from odin.app.agent_worktree import AgentWorktree, AgentWorktrees, AppliedWork, WorktreeDiff, WorktreeEnd
from odin.app.worktrees import Worktree, Worktrees, open_worktrees
from odin.checkpoints.rewind import write_planned_files
from odin.checkpoints.store import CheckpointStore
from odin.commands.command_line import Parser, get_stdout, make_formatter, write_json, write_output
from odin.config.paths import make_environment
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import UsageError
from odin.core.path_names import quote_path
from odin.policy.command_scope import CommandScope
from odin.ui.terminal import escape_control, escape_hidden

Result = TypeVar("Result")

EPILOG = """\
commands:
  odin worktree [list]                  list worktrees
  odin worktree add NAME [--from REF]   create a worktree on the branch odin/NAME
  odin worktree diff NAME               show what an agent changed in its worktree
  odin worktree apply NAME              merge an agent's changes into the project, then remove the worktree
  odin worktree remove NAME             remove a worktree; with --force, move uncommitted files aside
"""


def run_worktree(argv: list[str]) -> int:
    about = "List, add, review, apply or remove git worktrees of this repository."
    parser = Parser(prog="odin worktree", description=about, epilog=EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add(
        "what",
        nargs="?",
        choices=("list", "add", "diff", "apply", "remove"),
        default="list",
        metavar="WHAT",
        help="list, add, diff, apply or remove (default: list)",
    )
    add("name", nargs="?", default="", metavar="NAME", help="worktree name")
    add("--from", dest="start", default="", metavar="REF", help="add: start of the branch (default: HEAD)")
    add("--force", action="store_true", help="remove even with uncommitted changes; its files are moved aside")
    parser.add_common_flags()
    args = parser.parse_args(argv)
    if args.what != "list" and not args.name:
        raise UsageError(f"`odin worktree {args.what}` needs a worktree name.")
    actions = {
        "list": _print_list,
        "add": _add_worktree,
        "diff": _print_diff,
        "apply": _apply_worktree,
        "remove": _remove_worktree,
    }
    return actions[args.what](args)


def _run(args: argparse.Namespace, action: Callable[[Worktrees], Awaitable[Result]]) -> Result:
    """Return what `action` returns for the worktrees of the repository around the folder."""

    async def run() -> Result:
        async with open_worktrees(make_environment(cwd=args.cwd)) as trees:
            return await action(trees)

    return asyncio.run(run())


def _print_list(args: argparse.Namespace) -> int:
    found = _run(args, lambda trees: trees.list_worktrees())
    if args.json:
        return write_json(found)
    lines = (
        f"{item.name}  {escape_hidden(item.branch)}  {_describe_changes(item)}  {escape_hidden(item.path)}\n"
        for item in found
    )
    return write_output("".join(lines) or "No worktrees. Add one with `odin worktree add NAME`.\n")


def _describe_changes(item: Worktree) -> str:
    if item.unapplied:
        return f"{item.unapplied} not applied"
    return f"{item.changes} changed" if item.changes else "clean"


def _print_diff(args: argparse.Namespace) -> int:
    async def collect(trees: Worktrees) -> WorktreeDiff:
        return await (await AgentWorktrees(trees).open(args.name)).collect_diff()

    diff = _run(args, collect)
    if args.json:
        return write_json(diff, verbatim=True)
    text = escape_control(diff.text) if get_stdout().isatty() else diff.text
    return write_output(text or f"No changes in worktree {args.name}.\n", verbatim=True)


async def merge_worktree(trees: Worktrees, tree: AgentWorktree, environment: ExecutionEnvironment) -> AppliedWork:
    """Merge the work of an agent into the files of the project, except for protected ones."""
    scope = CommandScope(trees.root, trees.root, environment)

    def find_protection(path: str) -> str:
        part = scope.find_protected_part(path)
        return f"{part} is protected; review it and copy it yourself" if part else ""

    with trees.git.open_scratch() as folder:
        store = CheckpointStore(folder)
        return await tree.apply(
            lambda plan: asyncio.to_thread(write_planned_files, plan, store), store, find_protection
        )


def _apply_worktree(args: argparse.Namespace) -> int:
    """Merge the work of an agent. Return 1 if something could not be applied."""

    async def apply(trees: Worktrees) -> tuple[AppliedWork, WorktreeEnd]:
        tree = await AgentWorktrees(trees).open(args.name)
        return await merge_worktree(trees, tree, make_environment(cwd=args.cwd)), await tree.finish()

    work, end = _run(args, apply)
    if args.json:
        write_json({"work": msgspec.to_builtins(work), "end": msgspec.to_builtins(end)})
    else:
        write_output(f"{escape_control(work.describe())}\n{escape_hidden(end.describe())}\n")
    return 0 if work.is_complete else 1


def _add_worktree(args: argparse.Namespace) -> int:
    made = _run(args, lambda trees: trees.add(args.name, args.start))
    if args.json:
        return write_json(made)
    path = escape_hidden(made.path)
    return write_output(f"{path}\nCreated on branch {made.branch}. Start with: odin --cwd {quote_path(str(path))}\n")


def _remove_worktree(args: argparse.Namespace) -> int:
    removed = _run(args, lambda trees: trees.remove(args.name, force=args.force))
    if args.json:
        return write_json(removed)
    moved_to = f" Its files are in {escape_hidden(removed.moved_to)}." if removed.moved_to else ""
    return write_output(f"Removed worktree {removed.name}. Branch {escape_hidden(removed.branch)} is kept.{moved_to}\n")
