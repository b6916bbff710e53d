"""`odin trust`: what this folder asks to be trusted with, and trusting it or not."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from odin.cli.output import put, say
from odin.cli.parser import Parser, formatter
from odin.core.errors import OdinError, UsageError

if TYPE_CHECKING:
    from odin.app.trust import Demand

_ABOUT = "What this folder asks to be trusted with. Nothing of it counts or starts until you trust the folder."


def trust_command(argv: list[str]) -> int:
    args = _parse(argv)
    return {"status": _status, "add": _add, "remove": _remove, "list": _list}[args.what](args)


def ask_once(cwd: str) -> None:
    """Before a chat begins: when the folder asks for something and is not trusted, the person decides.

    What cannot be looked at is not asked about; opening the session says what is wrong with it.
    """
    from odin.app.trust import demand, give

    try:
        wish = demand(cwd, os.environ)
    except OdinError:
        return
    if not wish.trusted and not wish.empty and _agreed(wish):
        give(wish, os.environ)


def _agreed(wish: "Demand") -> bool:
    from odin.ui.question.trust import ask

    return ask(**_shown(wish), keyboard=sys.stdin, screen=sys.stderr)


def _shown(wish: "Demand") -> dict[str, Any]:
    return {"folder": wish.folder, "changed": wish.changed, "starts": wish.starts, "allows": wish.allows}


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin trust", description=_ABOUT, formatter_class=formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("status", "add", "remove", "list"), default="status", help="(status)")
    add("path", nargs="?", default="", metavar="PATH", help="another folder than this one")
    add("--yes", "-y", action="store_true", help="add: do not ask")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    args.path = args.path or args.cwd
    return args


def _status(args: argparse.Namespace) -> int:
    from odin.app.trust import demand
    from odin.ui.question.trust import page

    wish = demand(args.path, os.environ)
    if args.json:
        return _json(_facts(wish))
    if wish.warning:
        say(wish.warning)
    return put(f"{'trusted' if wish.trusted else 'not trusted'}: {page(**_shown(wish))}")


def _add(args: argparse.Namespace) -> int:
    from odin.app.trust import demand, give
    from odin.ui.question.trust import page

    wish = demand(args.path, os.environ)
    if args.yes:
        if not args.json:
            put(page(**_shown(wish)))
    elif not sys.stdin.isatty():
        raise UsageError("There is nobody to ask here, so nothing was trusted.", "Add --yes once you have looked.")
    elif not _agreed(wish):
        return 1
    give(wish, os.environ)
    if args.json:
        return _json({**_facts(wish), "trusted": True, "changed": []})
    return put("Trusted.\n") if args.yes else 0


def _remove(args: argparse.Namespace) -> int:
    from odin.app.trust import take_back
    from odin.ui.terminal import visible

    folder, was = take_back(args.path, os.environ)
    if args.json:
        return _json({"folder": folder, "removed": was})
    return put(f"{visible(folder)} {'is not trusted any more' if was else 'was not trusted'}.\n")


def _list(args: argparse.Namespace) -> int:
    from odin.app.trust import trusted_folders
    from odin.ui.terminal import visible

    folders = trusted_folders(os.environ)
    if args.json:
        return _json(
            [{"folder": name, "since": entry.since, "files": sorted(entry.files)} for name, entry in folders.items()]
        )
    return put("".join(f"{visible(name)}\n" for name in folders) or "No folder is trusted.\n")


def _facts(wish: "Demand") -> dict[str, Any]:
    names = ("folder", "trusted", "changed", "starts", "allows", "warning")
    return {name: getattr(wish, name) for name in names}


def _json(value: Any) -> int:
    import msgspec

    return put(msgspec.json.encode(value).decode() + "\n")
