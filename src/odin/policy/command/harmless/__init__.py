"""The commands that run without a question, with the options that are known to change nothing.

A list of what is allowed, never of what is forbidden: an option that is not here, or is written in a shortened form, is
not known and therefore asked about. There is one file per family; `judge` puts them together, and is loaded with the
first command.
"""

from odin.policy.command.harmless.redirects import harmless_redirect
from odin.policy.command.harmless.steps import Step, steps
from odin.policy.command.shapes import Simple

__all__ = ["Step", "harmless", "harmless_redirect", "steps"]


def harmless(simple: Simple, cwd: str, root: str) -> bool:
    """Whether one command only looks, and only at what lies inside the root."""
    from odin.policy.command.harmless.judge import only_looks

    return only_looks(simple, cwd, root)
