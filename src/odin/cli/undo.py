"""`odin undo` and `odin redo`."""

import argparse
import asyncio

from odin.cli.output import put
from odin.cli.parser import Parser, formatter


def _undo_parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = Parser(prog=f"odin {name}", description=description, formatter_class=formatter)
    add = parser.add_argument
    add("--session", default="", metavar="ID", help="that session instead of the latest one here")
    add("--force", action="store_true", help="also what somebody else changed since")
    add("--dry-run", action="store_true", help="only say what would be done")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser


def undo_command(argv: list[str]) -> int:
    parser = _undo_parser("undo", "Go back to before a prompt: its conversation and what it did to files.")
    add = parser.add_argument
    add("--to", default="1", metavar="N|ID", help="before the N-th last prompt, or the one of that id (1)")
    add("--list", action="store_true", help="the prompts that can be taken back")
    add("--files", action="store_true", help="only the files")
    add("--chat", action="store_true", help="only the conversation")
    args = vars(parser.parse_args(argv))
    from odin.app.undo import Wish, list_prompts, undo
    from odin.ui.terminal import harmless

    both = args["files"] == args["chat"]
    args["files"], args["chat"] = both or args["files"], both or args["chat"]
    if args.pop("list"):
        return put(harmless(list_prompts(Wish(**args))))
    text, code = asyncio.run(undo(Wish(**args)))
    return put(harmless(text)) or code


def redo_command(argv: list[str]) -> int:
    args = _undo_parser("redo", "Take the last undo back, as long as nothing was asked since.").parse_args(argv)
    from odin.app.undo import Wish, redo
    from odin.ui.terminal import harmless

    text, code = asyncio.run(redo(Wish(**vars(args))))
    return put(harmless(text)) or code
