"""`odin doctor`: what is here, what is used, and what is broken; of the settings and of the models, too."""

import argparse
import asyncio
import os
from typing import Any

from odin.cli.output import put
from odin.cli.parser import Parser, formatter
from odin.config import current_folder

EPILOG = """\
  odin doctor             whether what Odin needs is here, and which sandbox it uses
  odin doctor config      every setting, the layer it comes from, and what is wrong, with file and line
  odin doctor models      ask the models of the settings, and those there is a key for, whether they answer
"""


def doctor_command(argv: list[str]) -> int:
    args = _parse(argv)
    cwd = os.path.realpath(args.cwd or current_folder())
    return {"all": _all, "config": _config, "models": _models}[args.what](args, cwd)


def _parse(argv: list[str]) -> argparse.Namespace:
    about = "Whether what Odin needs is here, and which sandbox it uses."
    parser = Parser(prog="odin doctor", description=about, epilog=EPILOG, formatter_class=formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("all", "config", "models"), default="all", metavar="WHAT", help="(all)")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser.parse_args(argv)


def _all(args: argparse.Namespace, cwd: str) -> int:
    from odin.app.doctor import examine

    report = examine(cwd, os.environ)
    _put(args, report.json(), report.text())
    return 1 if report.broken else 0


def _config(args: argparse.Namespace, cwd: str) -> int:
    from odin.app.settings import as_text, settings_report

    report = settings_report(cwd, os.environ)
    _put(args, report, as_text(report))
    return 1 if report.broken else 0


def _models(args: argparse.Namespace, cwd: str) -> int:
    """A model that does not answer is broken; that there is none is not."""
    from odin.app.answering import ask_models

    answers = asyncio.run(ask_models(cwd, os.environ))
    lines = [f"{' ' if item.ok else '!'} {item.ref} ({item.why}): {item.text}\n" for item in answers]
    none = "There is no model to ask: the offline planner answers. `odin auth add` stores a key.\n"
    _put(args, answers, "".join(lines) or none)
    return 0 if all(item.ok for item in answers) else 1


def _put(args: argparse.Namespace, facts: Any, text: str) -> None:
    if args.json:
        import msgspec

        put(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n")
    else:
        from odin.ui.terminal import visible

        put("\n".join(map(visible, text.split("\n"))))
