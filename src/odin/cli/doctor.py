"""`odin doctor`: what is here, what is used, and what is broken; of the settings and of the models, too."""

import argparse
import asyncio
import os
from typing import Any

from odin.cli.output import write_output
from odin.cli.parser import Parser, make_formatter
from odin.config import get_current_folder

EPILOG = """\
  odin doctor             whether what Odin needs is here, and which sandbox it uses
  odin doctor config      every setting, the layer it comes from, and what is wrong, with file and line
  odin doctor models      ask the models of the settings, and those there is a key for, whether they answer
"""


def run_doctor(argv: list[str]) -> int:
    args = _parse_args(argv)
    cwd = os.path.realpath(args.cwd or get_current_folder())
    return {"all": _run_checks, "config": _run_config, "models": _run_models}[args.what](args, cwd)


def _parse_args(argv: list[str]) -> argparse.Namespace:
    about = "Whether what Odin needs is here, and which sandbox it uses."
    parser = Parser(prog="odin doctor", description=about, epilog=EPILOG, formatter_class=make_formatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("all", "config", "models"), default="all", metavar="WHAT", help="(all)")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser.parse_args(argv)


def _run_checks(args: argparse.Namespace, cwd: str) -> int:
    from odin.app.doctor import examine

    report = examine(cwd, os.environ)
    _print_report(args, report.to_json(), report.format_text())
    return 1 if report.broken else 0


def _run_config(args: argparse.Namespace, cwd: str) -> int:
    from odin.app.settings import format_settings, report_settings

    report = report_settings(cwd, os.environ)
    _print_report(args, report, format_settings(report))
    return 1 if report.broken else 0


def _run_models(args: argparse.Namespace, cwd: str) -> int:
    """A model that does not answer is broken; that there is none is not."""
    from odin.app.answering import probe_models

    answers = asyncio.run(probe_models(cwd, os.environ))
    lines = [f"{' ' if item.ok else '!'} {item.ref} ({item.why}): {item.text}\n" for item in answers]
    none = "There is no model to ask: the offline planner answers. `odin auth add` stores a key.\n"
    _print_report(args, answers, "".join(lines) or none)
    return 0 if all(item.ok for item in answers) else 1


def _print_report(args: argparse.Namespace, facts: Any, text: str) -> None:
    if args.json:
        import msgspec

        write_output(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n")
    else:
        from odin.ui.terminal import escape_hidden

        write_output("\n".join(map(escape_hidden, text.split("\n"))))
