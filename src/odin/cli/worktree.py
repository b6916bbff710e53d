"""`odin worktree`: work trees of this repository, for work beside the one you are in."""

import argparse
import asyncio
import os
from typing import Any

from odin.cli.output import write_output
from odin.cli.parser import Parser, make_formatter
from odin.core.errors import UsageError
from odin.ui.terminal import escape_hidden

EPILOG = """\
  odin worktree [list]                  those there are
  odin worktree add NAME [--from REF]   a new one, on the branch odin/NAME
  odin worktree remove NAME             when everything in it is committed; with --force its files are put aside
"""


def run_worktree(argv: list[str]) -> int:
    args = _parse_args(argv)
    from odin.app.worktree import Worktrees

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
