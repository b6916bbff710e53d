"""`odin models`: list available models."""

import os

from odin.commands.command_line import Parser, write_output
from odin.config import get_current_folder


def run_models(argv: list[str]) -> int:
    parser = Parser(prog="odin models", description="List available models, including servers on this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from odin.models.probe import describe_models

    return write_output(describe_models(os.environ, get_current_folder(), as_json=args.json))
