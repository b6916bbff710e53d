"""The command line: one module for each subcommand."""

from odin.commands.command_line import build_parser
from odin.commands.main import run

__all__ = ["build_parser", "run"]
