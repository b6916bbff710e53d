"""`odin import`: a session that was exported, or the transcript of another agent, as a new session."""

import os

from odin.cli.output import write_output
from odin.cli.parser import Parser
from odin.ui.terminal import escape_hidden

_ABOUT = (
    "Make a new session of an export of Odin (json, or a main.jsonl) or of a transcript in JSON lines (stream-json)."
)


def run_import(argv: list[str]) -> int:
    parser = Parser(prog="odin import", description=_ABOUT)
    add = parser.add_argument
    add("file", metavar="FILE", help="what to read")
    add("--title", default="", metavar="TEXT", help="the title of the session")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    from odin.app.importing import import_session

    made = import_session(args.file, os.environ, cwd=args.cwd, title=args.title)
    if args.json:
        import msgspec

        return write_output(msgspec.json.encode(made).decode() + "\n")
    lines = [
        f"Session {made.session}: {escape_hidden(made.title)}" if made.title else f"Session {made.session}",
        f"{made.prompts} prompts. Go on with it: odin --resume {made.session}",
        *(f"Left out: {count} {escape_hidden(what)}" for what, count in made.skipped.items()),
    ]
    return write_output("\n".join(lines) + "\n")
