"""`odin models` and `odin sessions`."""

import os

from odin.cli.output import put
from odin.cli.parser import Parser
from odin.config import current_folder


def models_command(argv: list[str]) -> int:
    parser = Parser(prog="odin models", description="The models that can be used from here.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from odin.app.models import describe_models

    return put(describe_models(os.environ, current_folder(), as_json=args.json))


def sessions_command(argv: list[str]) -> int:
    parser = Parser(prog="odin sessions", description="The sessions of this project, newest first.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    from odin.app.sessions import list_sessions

    rows = list_sessions(args.cwd)
    if args.json:
        import msgspec

        return put(msgspec.json.encode(rows).decode() + "\n")
    return put("".join(f"{row.id}  {row.when}  {row.title}\n" for row in rows) or "No sessions yet.\n")
