"""`odin models`."""

import os

from odin.cli.output import put
from odin.cli.parser import Parser
from odin.config import current_folder


def models_command(argv: list[str]) -> int:
    parser = Parser(prog="odin models", description="The models that can be used from here.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from odin.app.modellist import describe_models

    return put(describe_models(os.environ, current_folder(), as_json=args.json))
