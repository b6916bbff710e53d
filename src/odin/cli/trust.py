"""`odin trust`: what this folder asks to be trusted with, and trusting it or not."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from odin.cli.output import write_message, write_output
from odin.cli.parser import Parser, make_formatter
from odin.core.errors import OdinError, UsageError

if TYPE_CHECKING:
    from odin.app.trust import TrustCandidate

_ABOUT = "What this folder asks to be trusted with. Nothing of it counts or starts until you trust the folder."


def run_trust(argv: list[str]) -> int:
    args = _parse_args(argv)
    return {"status": _print_status, "add": _add_folder, "remove": _remove_folder, "list": _list_folders}[args.what](
        args
    )


def ask_for_trust(cwd: str) -> None:
    """Before a chat begins: when the folder asks for something and is not trusted, the person decides.

    What cannot be looked at is not asked about; opening the session says what is wrong with it.
    """
    from odin.app.trust import grant_trust, inspect_folder

    try:
        wish = inspect_folder(cwd, os.environ)
    except OdinError:
        return
    if not wish.trusted and not wish.is_empty and _confirm_trust(wish):
        grant_trust(wish, os.environ)


def _confirm_trust(candidate: "TrustCandidate") -> bool:
    from odin.ui.question.trust import ask_trust

    return ask_trust(**_page_arguments_of(candidate), keyboard=sys.stdin, screen=sys.stderr)


def _page_arguments_of(candidate: "TrustCandidate") -> dict[str, Any]:
    return {
        "folder": candidate.folder,
        "changed": candidate.changed,
        "starts": candidate.starts,
        "allows": candidate.allows,
    }


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin trust", description=_ABOUT, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("status", "add", "remove", "list"), default="status", help="(status)")
    add("path", nargs="?", default="", metavar="PATH", help="another folder than this one")
    add("--yes", "-y", action="store_true", help="add: do not ask")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    args.path = args.path or args.cwd
    return args


def _print_status(args: argparse.Namespace) -> int:
    from odin.app.trust import inspect_folder
    from odin.ui.question.trust import format_trust_page

    wish = inspect_folder(args.path, os.environ)
    if args.json:
        return _print_json(_facts_of(wish))
    if wish.warning:
        write_message(wish.warning)
    return write_output(
        f"{'trusted' if wish.trusted else 'not trusted'}: {format_trust_page(**_page_arguments_of(wish))}"
    )


def _add_folder(args: argparse.Namespace) -> int:
    from odin.app.trust import grant_trust, inspect_folder
    from odin.ui.question.trust import format_trust_page

    wish = inspect_folder(args.path, os.environ)
    if args.yes:
        if not args.json:
            write_output(format_trust_page(**_page_arguments_of(wish)))
    elif not sys.stdin.isatty():
        raise UsageError("There is nobody to ask here, so nothing was trusted.", "Add --yes once you have looked.")
    elif not _confirm_trust(wish):
        return 1
    grant_trust(wish, os.environ)
    if args.json:
        return _print_json({**_facts_of(wish), "trusted": True, "changed": []})
    return write_output("Trusted.\n") if args.yes else 0


def _remove_folder(args: argparse.Namespace) -> int:
    from odin.app.trust import revoke_trust
    from odin.ui.terminal import escape_hidden

    folder, was = revoke_trust(args.path, os.environ)
    if args.json:
        return _print_json({"folder": folder, "removed": was})
    return write_output(f"{escape_hidden(folder)} {'is not trusted any more' if was else 'was not trusted'}.\n")


def _list_folders(args: argparse.Namespace) -> int:
    from odin.app.trust import list_trusted_folders
    from odin.ui.terminal import escape_hidden

    folders = list_trusted_folders(os.environ)
    if args.json:
        return _print_json(
            [{"folder": name, "since": entry.since, "files": sorted(entry.files)} for name, entry in folders.items()]
        )
    return write_output("".join(f"{escape_hidden(name)}\n" for name in folders) or "No folder is trusted.\n")


def _facts_of(candidate: "TrustCandidate") -> dict[str, Any]:
    names = ("folder", "trusted", "changed", "starts", "allows", "warning")
    return {name: getattr(candidate, name) for name in names}


def _print_json(value: Any) -> int:
    import msgspec

    return write_output(msgspec.json.encode(value).decode() + "\n")
