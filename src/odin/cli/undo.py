"""`odin undo` and `odin redo`."""

import argparse
import asyncio

from odin.cli.output import write_output
from odin.cli.parser import Parser, make_formatter


def _build_parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = Parser(prog=f"odin {name}", description=description, formatter_class=make_formatter)
    add = parser.add_argument
    add("--session", default="", metavar="ID", help="that session instead of the latest one here")
    add("--force", action="store_true", help="also what somebody else changed since")
    add("--dry-run", action="store_true", help="only say what would be done")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser


def run_undo(argv: list[str]) -> int:
    parser = _build_parser("undo", "Go back to before a prompt: its conversation and what it did to files.")
    add = parser.add_argument
    add("--to", default="1", metavar="N|ID", help="before the N-th last prompt, or the one of that id (1)")
    add("--list", action="store_true", help="the prompts that can be taken back")
    add("--files", action="store_true", help="only the files")
    add("--chat", action="store_true", help="only the conversation")
    args = vars(parser.parse_args(argv))
    from odin.app.undo import UndoRequest, list_prompts, undo
    from odin.ui.terminal import escape_control

    both = args["files"] == args["chat"]
    args["files"], args["chat"] = both or args["files"], both or args["chat"]
    if args.pop("list"):
        return write_output(escape_control(list_prompts(UndoRequest(**args))))
    text, code = asyncio.run(undo(UndoRequest(**args)))
    return write_output(escape_control(text)) or code


def run_redo(argv: list[str]) -> int:
    args = _build_parser("redo", "Take the last undo back, as long as nothing was asked since.").parse_args(argv)
    from odin.app.undo import UndoRequest, redo
    from odin.ui.terminal import escape_control

    text, code = asyncio.run(redo(UndoRequest(**vars(args))))
    return write_output(escape_control(text)) or code
