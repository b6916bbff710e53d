"""How a plan is named and answered by typed text: its path, the choices, the arguments of /execute."""

import os
import shlex

from odin.core.interaction import Interaction
from odin.core.op import Answer
from odin.core.slash_commands import make_argument_error, make_usage_error

SDK_PLAN_TOOL = "ExitPlanMode"
"""SDK clients see a plan as a permission request for a tool of this name."""


SDK_PLAN_MODE = "plan"
"""SDK clients see plan mode as a permission mode of this name."""


def shorten_plan_path(path: str, cwd: str) -> str:
    """Return the path as the user would type it."""
    short = os.path.relpath(path, cwd)
    return path if short.startswith("..") else short


def parse_plan_choice(interaction: Interaction, typed: str) -> Answer | None:
    """Parse a typed answer: the number of a choice, or a comment for the model. None: a comment is needed.

    An empty line keeps planning.
    """
    line = typed.strip()
    if not line:
        return Answer(interaction.id, interaction.default)
    if not line.isdecimal():
        return Answer(interaction.id, "revise", line)
    if not 1 <= int(line) <= len(interaction.choices):
        raise ValueError(line)
    key = interaction.choices[int(line) - 1].key
    return None if key == "revise" else Answer(interaction.id, key)


def format_execution(path: str, role: str) -> str:
    """Return the arguments of /execute for an approved plan."""
    return shlex.join([os.path.basename(path), *([role] if role else [])])  # noqa: PTH119


def parse_execution(rest: str) -> tuple[str, str]:
    """Return the plan and the role that /execute names; "" for what it does not."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise make_usage_error("execute", f"{error}.") from None
    if len(words) > 2:
        raise make_argument_error("execute", words[2])
    plan, role = (*words, "", "")[:2]
    return plan, role
