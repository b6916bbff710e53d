"""`odin doctor`: what is here, what is used, and what is broken."""

import os

from odin.cli.output import put
from odin.cli.parser import Parser
from odin.config import current_folder


def doctor_command(argv: list[str]) -> int:
    parser = Parser(prog="odin doctor", description="Whether what Odin needs is here, and which sandbox it uses.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--cwd", default="", metavar="DIR", help="the project's folder")
    args = parser.parse_args(argv)
    from odin.app.doctor import examine

    report = examine(os.path.realpath(args.cwd or current_folder()), os.environ)
    if args.json:
        import msgspec

        put(msgspec.json.format(msgspec.json.encode(report.json()), indent=2).decode() + "\n")
    else:
        from odin.ui.terminal import visible

        put("\n".join(map(visible, report.text().split("\n"))))
    return 1 if report.broken else 0
