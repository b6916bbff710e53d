"""The command line."""

from odin.commands.command_line import build_parser
from odin.commands.main import run

__all__ = ["build_parser", "run"]
