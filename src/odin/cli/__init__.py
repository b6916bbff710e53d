"""The command line."""

from odin.cli.main import run
from odin.cli.parser import build_parser

__all__ = ["build_parser", "run"]
