"""The commands that run without a question, with the options that are known to change nothing.

A list of what is allowed, never of what is forbidden: an option that is not here, or is written in a shortened form, is
not known and therefore asked about. There is one file per family; `judge` puts them together, and is loaded with the
first command.
"""

from odin.policy.command.harmless.redirects import is_read_only_redirect
from odin.policy.command.harmless.steps import CommandStep, locate_steps
from odin.policy.command.shapes import SimpleCommand

__all__ = ["CommandStep", "is_read_only_redirect", "is_step_read_only", "locate_steps"]


def is_step_read_only(simple: SimpleCommand, cwd: str, root: str) -> bool:
    """Whether one command only looks, and only at what lies inside the root."""
    from odin.policy.command.harmless.judge import is_command_read_only

    return is_command_read_only(simple, cwd, root)
